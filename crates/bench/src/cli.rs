//! The command line of the benchmarks, for whichever program offers them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::workloads::{
    attach, footprint, handoff, kill, lat_sem, lockloop, osim, scaling, sembench, semop_multi, semscale, sets, uncontended, undo,
    wait_undo, waitforzero,
};
use crate::{Env, Error, Report, machine, worker};

/// `bench WORKLOAD …`
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What to measure.
    #[command(subcommand)]
    pub workload: Workload,
    /// Also write the report as JSON into FILE.
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The workloads.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Workload {
    /// What a call costs when nobody else is there.
    Uncontended(uncontended::Args),
    /// Two processes on two semaphores of one set, against one process.
    Scaling(scaling::Args),
    /// From the kill of a holder to the sleeper running.
    Kill(kill::Args),
    /// After wait(2) reported a death: whether its undo is seen by the next call.
    WaitUndo(wait_undo::Args),
    /// What an empty namespace and a set of one semaphore occupy.
    Footprint(footprint::Args),
    /// What calls cost with a thousand sets, and with as many as there can be.
    Sets(sets::Args),
    /// Threads on semaphores of their own, or in pairs: rounds per second.
    Semscale(semscale::Args),
    /// Many threads on the semaphores of one set: calls per second.
    SemopMulti(semop_multi::Args),
    /// Many processes on few semaphores, all begun by one SETALL: microseconds of a loop.
    Osim(osim::Args),
    /// Many who wait for one semaphore to be zero: wake-ups per second.
    #[command(name = "waitforzero")]
    WaitForZero(waitforzero::Args),
    /// Many who sleep on semaphores of their own, and one who wakes them: wake-ups per second.
    Sembench(sembench::Args),
    /// Processes that take one lock in turn: nanoseconds of a loop, and how long they wait for it.
    Lockloop(lockloop::Args),
    /// Two processes that exchange a token by one call each.
    LatSem(lat_sem::Args),
    /// Two processes that hand a token to and fro.
    Handoff(handoff::Args),
    /// A process with adjustments in many sets.
    Undo(undo::Args),
    /// What a process's first call costs.
    Attach(attach::Args),
    /// Walks of paths: the dentry cache, the kernel's, maps under locks.
    #[cfg(feature = "walk")]
    Walk(crate::walk::Args),
    /// A process that walks; started by the workload.
    #[cfg(feature = "walk")]
    #[command(hide = true)]
    Walker {
        /// How to start, as JSON.
        start: String,
    },
    /// A process of another workload; started by it.
    #[command(hide = true)]
    Worker {
        /// Where to join, as JSON.
        start: String,
    },
}

impl Workload {
    /// True for what needs the library that is preloaded.
    pub fn preloads(&self) -> bool {
        match self {
            Workload::Worker { .. } => false,
            #[cfg(feature = "walk")]
            Workload::Walk(_) | Workload::Walker { .. } => false,
            _ => true,
        }
    }
}

/// Runs the workload that `args` names, and writes its JSON where asked to.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let report = match &args.workload {
        Workload::Uncontended(args) => uncontended::run(args, env),
        Workload::Scaling(args) => scaling::run(args, env),
        Workload::Kill(args) => kill::run(args, env),
        Workload::WaitUndo(args) => wait_undo::run(args, env),
        Workload::Footprint(args) => footprint::run(args, env),
        Workload::Sets(args) => sets::run(args, env),
        Workload::Semscale(args) => semscale::run(args, env),
        Workload::SemopMulti(args) => semop_multi::run(args, env),
        Workload::Osim(args) => osim::run(args, env),
        Workload::WaitForZero(args) => waitforzero::run(args, env),
        Workload::Sembench(args) => sembench::run(args, env),
        Workload::Lockloop(args) => lockloop::run(args, env),
        Workload::LatSem(args) => lat_sem::run(args, env),
        Workload::Handoff(args) => handoff::run(args, env),
        Workload::Undo(args) => undo::run(args, env),
        Workload::Attach(args) => attach::run(args, env),
        #[cfg(feature = "walk")]
        Workload::Walk(args) => crate::walk::run(args, env),
        #[cfg(feature = "walk")]
        Workload::Walker { start } => crate::walk::worker::main(start),
        Workload::Worker { start } => worker::main(start),
    }?;
    if let Some(path) = &args.json {
        report.write_json(path)?;
    }
    Ok(report)
}

impl Env {
    /// For a program that offers the benchmarks as `EXE ARGS…`, the library to preload beside it or named by `MANYWAY_LIB`.
    pub fn beside(exe: &Path, args: &[&str]) -> Env {
        let library = std::env::var_os("MANYWAY_LIB").map(PathBuf::from);
        let library = library.unwrap_or_else(|| exe.with_file_name("libmanyway.so"));
        let worker = std::iter::once(exe.as_os_str().to_owned()).chain(args.iter().map(Into::into)).collect();
        Env { worker, preload: library.is_file().then_some(library), watcher: None }
    }
}

/// `--rounds`: at least one.
pub(crate) fn rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".to_owned()),
        Ok(n) => Ok(n),
        Err(e) => Err(format!("{e}")),
    }
}

/// Which CPUs the workers run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// Those that this process may use, the last first: the first one serves most interrupts.
    #[default]
    Allowed,
    /// These.
    Cpus(Vec<usize>),
    /// Wherever the system puts them.
    None,
}

impl Pin {
    /// The CPU of worker `index`; None: any.
    pub fn cpu(&self, index: usize) -> Result<Option<usize>, Error> {
        let cpus = self.cpus()?;
        Ok(match self {
            Pin::None => None,
            _ => cpus.get(index % cpus.len().max(1)).copied(),
        })
    }

    /// On how many CPUs the workers can run at once.
    pub fn distinct(&self) -> Result<usize, Error> {
        let mut cpus = self.cpus()?;
        cpus.sort_unstable();
        cpus.dedup();
        Ok(cpus.len())
    }

    /// The CPUs in the order in which workers take them; none: wherever the system puts them.
    pub fn in_order(&self) -> Result<Vec<usize>, Error> {
        if *self == Pin::None { Ok(Vec::new()) } else { self.cpus() }
    }

    fn cpus(&self) -> Result<Vec<usize>, Error> {
        match self {
            Pin::Cpus(cpus) => Ok(cpus.clone()),
            _ => machine::allowed_cpus().map(|cpus| cpus.into_iter().rev().collect()),
        }
    }
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Pin, String> {
        match text {
            "none" => Ok(Pin::None),
            "allowed" => Ok(Pin::Allowed),
            list => {
                let cpus: Result<Vec<usize>, _> = list.split(',').map(str::parse).collect();
                cpus.map(Pin::Cpus).map_err(|_| format!("{list:?} is no list of CPU numbers like 0,1, nor `allowed`, nor `none`"))
            }
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pin::Allowed => f.write_str("allowed"),
            Pin::None => f.write_str("none"),
            Pin::Cpus(cpus) => {
                let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
                f.write_str(&list.join(","))
            }
        }
    }
}

impl Serialize for Pin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::backend::Kind;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn uncontended_as_documented() {
        let line = ["bench", "uncontended", "--backend", "kernel,posix", "--json", "f", "--secs", "1.5", "--rounds", "3", "--pin", "1,0"];
        let args = Program::try_parse_from(line).unwrap_or_else(|e| panic!("{e}")).args;
        assert_eq!(args.json.as_deref(), Some(Path::new("f")));
        let Workload::Uncontended(args) = args.workload else { panic!("{:?}", args.workload) };
        assert_eq!(args.backend, [Kind::Kernel, Kind::Posix]);
        assert_eq!((args.secs, args.rounds, args.pin), (1.5, 3, Pin::Cpus(vec![1, 0])));
    }

    #[test]
    fn all_three_back_ends_by_default() {
        let args = Program::try_parse_from(["bench", "uncontended"]).unwrap_or_else(|e| panic!("{e}")).args;
        let Workload::Uncontended(args) = args.workload else { panic!("{:?}", args.workload) };
        assert_eq!(args.backend, [Kind::Kernel, Kind::Manyway, Kind::Posix]);
    }

    #[test]
    fn a_bad_pin_or_round_count_is_refused() {
        for bad in [["--pin", "x"], ["--pin", ""], ["--rounds", "0"], ["--backend", "sysv"]] {
            assert!(Program::try_parse_from(["bench", "uncontended"].iter().chain(&bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn workers_go_round_the_cpus() {
        let pin: Pin = "3,1".parse().unwrap();
        let cpus: Vec<_> = (0..3).map(|i| pin.cpu(i).unwrap()).collect();
        assert_eq!(cpus, [Some(3), Some(1), Some(3)]);
        assert_eq!("1,1".parse::<Pin>().unwrap().distinct().unwrap(), 1);
    }
}
