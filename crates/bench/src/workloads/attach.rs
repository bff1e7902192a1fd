//! What the first call costs: of a program that has just been started, and of a process that has just been forked.

use std::sync::atomic::Ordering::*;

use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Kind, Sem, Set, SetId};
use crate::contest::histogram_of;
use crate::crowd::{Child, Stage};
use crate::lab::Lab;
use crate::machine::now_ns;
use crate::report::Unit;
use crate::rounds::{Series, interleave};
use crate::worker::{Answer, Command};
use crate::{Env, Error, Report};

/// A worker's role: its own first call, or that of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum First {
    /// The worker's own: it has not made one yet.
    Own(SetId),
    /// A forked child's.
    Childs(SetId),
}

/// What it took, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Took {
    /// The call.
    pub call: u64,
    /// From before the fork to the end of the call; of the worker's own: the call again.
    pub all: u64,
}

impl First {
    /// Plays it. The call is a release with SEM_UNDO: what a process must have in a namespace is made for it.
    pub fn run<B: Backend>(self, backend: &B) -> Result<Took, Error> {
        match self {
            First::Own(id) => Self::call(backend, id).map(|(start, end)| Took { call: end - start, all: end - start }),
            First::Childs(id) => {
                let stage = Stage::new(1)?;
                let line = &stage.lines()[0];
                let forked = now_ns();
                let child = Child::start(|| match Self::call(backend, id) {
                    Ok((start, end)) => {
                        line.count.store(end - start, Relaxed);
                        line.ended.store(end, Relaxed);
                        0
                    }
                    Err(_) => 1,
                })?;
                if child.wait() != Some(0) {
                    return Err(backend.failed("a child's call", Errno::EIO));
                }
                Ok(Took { call: line.count.load(Relaxed), all: line.ended.load(Relaxed).saturating_sub(forked) })
            }
        }
    }

    fn call<B: Backend>(backend: &B, id: SetId) -> Result<(u64, u64), Error> {
        let start = now_ns();
        let sem = backend.open(id)?.sem(0, true).map_err(|e| backend.failed("semop", e))?;
        sem.give().map_err(|e| backend.failed("semop", e))?;
        Ok((start, now_ns()))
    }
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// Whose semaphores.
    #[arg(long, value_delimiter = ',', default_value = "kernel,manyway,manyway-preload")]
    pub backend: Vec<Kind>,
    /// First calls of each case on each back end.
    #[arg(long, default_value_t = 100, value_parser = crate::cli::rounds)]
    pub rounds: usize,
}

const CASES: [&str; 3] = ["first call of a program", "first call of a child", "fork to first call"];

/// Runs it: microseconds.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let mut labs = Vec::new();
    let mut series = Vec::new();
    for &kind in args.backend.iter().filter(|kind| kind.is_system_v()) {
        let mut lab = Lab::open(env, kind, None)?;
        let set = lab.create(&[0])?;
        labs.push((lab, set));
        series.extend(CASES.map(|case| Series::new(case, kind, Unit::Us)));
    }
    if series.is_empty() {
        return Err(Error::NothingToDo);
    }
    interleave(&mut series, 2, args.rounds, |index, series| {
        let (lab, set) = &mut labs[index / CASES.len()];
        let took = if series.case == CASES[0] {
            // Started anew, so that it has not made a call.
            let mut worker = lab.worker(None)?;
            let answer = worker.ask(&Command::First(First::Own(*set)))?;
            took(answer).map_err(|other| worker.surprised(&other))?
        } else {
            let answer = lab.keeper().ask(&Command::First(First::Childs(*set)))?;
            took(answer).map_err(|other| lab.keeper().surprised(&other))?
        };
        Ok(if series.case == CASES[2] { took.all } else { took.call } as f64 / 1e3)
    })?;
    for series in &mut series {
        series.times = histogram_of(series.samples.iter().map(|us| (us * 1e3) as u64));
    }
    Ok(Report::new("attach", args, &series))
}

fn took(answer: Answer) -> Result<Took, Answer> {
    match answer {
        Answer::First(took) => Ok(took),
        other => Err(other),
    }
}
