//! A process is killed while it holds a unit that another sleeps for: how long until the other runs.

use std::process::{Child, Stdio};
use std::time::Duration;

use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Kind, Sem, Set, SetId};
use crate::cli::Pin;
use crate::lab::Lab;
use crate::machine::now_ns;
use crate::report::Unit;
use crate::rounds::{Series, interleave};
use crate::worker::{Answer, Command};
use crate::{Env, Error, Report};

/// The holder's role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hold {
    /// The set, whose semaphore 0 it takes.
    pub set: SetId,
    /// Memory to have resident, in MiB: the kernel frees it before it applies the undo.
    pub resident: usize,
}

impl Hold {
    /// Takes the unit and touches the memory.
    pub fn run<S: Set>(&self, set: &S) -> Result<(), Errno> {
        set.sem(0, true)?.take()?;
        // Never freed: this process waits to be killed.
        std::mem::forget(vec![1u8; self.resident << 20]);
        Ok(())
    }
}

/// The sleeper's role: when it had the unit, by the monotonic clock.
pub fn take<S: Set>(set: &S) -> Result<u64, Errno> {
    let sem = set.sem(0, true)?;
    sem.take()?;
    let at = now_ns();
    sem.give()?;
    Ok(at)
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// Whose semaphores.
    #[arg(long, value_delimiter = ',', default_value = "kernel,manyway")]
    pub backend: Vec<Kind>,
    /// Samples for each case on each back end.
    #[arg(long, default_value_t = 30, value_parser = crate::cli::rounds)]
    pub rounds: usize,
    /// MiB that the holder has resident.
    #[arg(long, default_value_t = 0)]
    pub resident: usize,
    /// CPUs to use: the holder's, the sleeper's.
    #[arg(long, default_value = "none")]
    pub pin: Pin,
}

/// One back end, in one case.
struct Scene {
    set: SetId,
    /// Ends before the namespace that it watches.
    _watcher: Option<Watcher>,
    lab: Lab,
}

/// A watcher's process, killed when dropped.
struct Watcher(Child);

/// Runs it: each back end with a watcher (when there is one to start) and without.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let cases = [env.watcher.as_ref().map(|command| ("watcher", Some(command))), Some(("no-watcher", None))];
    let mut scenes = Vec::new();
    let mut series = Vec::new();
    for (case, watcher) in cases.into_iter().flatten() {
        for &kind in args.backend.iter().filter(|kind| kind.is_system_v()) {
            let mut lab = Lab::open(env, kind, None)?;
            let set = lab.create(&[1])?;
            let watcher = match watcher {
                Some(command) if kind != Kind::Kernel => Some(Watcher::start(command, &lab)?),
                _ => None,
            };
            scenes.push(Scene { set, _watcher: watcher, lab });
            series.push(Series::new(case, kind, Unit::Us));
        }
    }
    if series.is_empty() {
        return Err(Error::NothingToDo);
    }
    interleave(&mut series, 2, args.rounds, |index, _| scenes[index].sample(args))?;
    Ok(Report::new("kill", args, &series))
}

impl Scene {
    /// Microseconds from the kill to the sleeper running.
    fn sample(&mut self, args: &Args) -> Result<f64, Error> {
        let mut holder = self.lab.worker(args.pin.cpu(0)?)?;
        match holder.ask(&Command::Hold(Hold { set: self.set, resident: args.resident }))? {
            Answer::Done => (),
            other => return Err(holder.surprised(&other)),
        }
        let mut sleeper = self.lab.worker(args.pin.cpu(1)?)?;
        sleeper.send(&Command::Take(self.set))?;
        self.await_sleeper()?;
        let killed = now_ns();
        holder.kill()?;
        let woken = match sleeper.receive()? {
            Answer::At(ns) => ns,
            other => return Err(sleeper.surprised(&other)),
        };
        holder.wait()?;
        Ok(woken.saturating_sub(killed) as f64 / 1000.0)
    }

    /// Until the sleeper is queued, and then long enough that it sleeps.
    fn await_sleeper(&mut self) -> Result<(), Error> {
        let keeper = self.lab.keeper();
        loop {
            match keeper.ask(&Command::Sleepers(self.set, 0))? {
                Answer::Count(0) => std::thread::sleep(Duration::from_micros(100)),
                Answer::Count(_) => break,
                other => return Err(keeper.surprised(&other)),
            }
        }
        std::thread::sleep(Duration::from_millis(3));
        Ok(())
    }
}

impl Watcher {
    fn start(command: &[std::ffi::OsString], lab: &Lab) -> Result<Watcher, Error> {
        let Some((program, args)) = command.split_first() else {
            return Err(Error::io("cannot start the watcher")(std::io::ErrorKind::NotFound.into()));
        };
        let mut command = std::process::Command::new(program);
        command.args(args).arg(lab.dir()).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map(Watcher).map_err(Error::io(format!("cannot start the watcher {program:?}")))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
