//! A parent that has seen its child's death by `wait(2)` must find the child's undo done at its next call.

use manyway_sem::Errno;
use serde::Serialize;

use crate::backend::{Kind, Sem, Set, SetId};
use crate::lab::{Lab, Worker};
use crate::report::Unit;
use crate::rounds::{Series, interleave};
use crate::worker::{Answer, Command, Start};
use crate::workloads::kill::Hold;
use crate::{Env, Error, Report};

/// The parent's role: a child takes the unit, is killed and waited for; true when the next call got the unit.
pub fn death<S: Set>(start: &Start, id: SetId, set: &S) -> Result<bool, Error> {
    let failed = |call| move |errno| Error::Call { backend: start.place.kind, call, errno };
    let mut child = Worker::copy(&Start { keeper: false, ..start.clone() })?;
    match child.ask(&Command::Hold(Hold { set: id, resident: 0 }))? {
        Answer::Done => (),
        other => return Err(child.surprised(&other)),
    }
    child.kill()?;
    child.wait()?;
    let sem = set.sem(0, true).map_err(failed("semop"))?;
    let seen = match sem.try_take() {
        Ok(()) => true,
        Err(Errno::EAGAIN) => {
            sem.take().map_err(failed("semop"))?;
            false
        }
        Err(errno) => return Err(failed("semop")(errno)),
    };
    sem.give().map_err(failed("semop"))?;
    Ok(seen)
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// Whose semaphores.
    #[arg(long, value_delimiter = ',', default_value = "kernel,manyway,manyway-preload")]
    pub backend: Vec<Kind>,
    /// Deaths on each back end.
    #[arg(long, default_value_t = 3000, value_parser = crate::cli::rounds)]
    pub rounds: usize,
}

/// Runs it.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let mut labs = Vec::new();
    let mut series = Vec::new();
    for &kind in args.backend.iter().filter(|kind| kind.is_system_v()) {
        let mut lab = Lab::open(env, kind, None)?;
        let set = lab.create(&[1])?;
        labs.push((lab, set));
        series.push(Series::new("wait-undo", kind, Unit::Held));
    }
    if series.is_empty() {
        return Err(Error::NothingToDo);
    }
    interleave(&mut series, 0, args.rounds, |index, _| {
        let (lab, set) = &mut labs[index];
        match lab.keeper().ask(&Command::Death(*set))? {
            Answer::Held(seen) => Ok(f64::from(u8::from(seen))),
            other => Err(lab.keeper().surprised(&other)),
        }
    })?;
    Ok(Report::new("wait-undo", args, &series))
}
