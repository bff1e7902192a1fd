//! A process with adjustments in many sets, as the back ends of a database have: what an operation with SEM_UNDO costs it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Kind, Sem, Set, SetId};
use crate::cli::Pin;
use crate::lab::Lab;
use crate::report::{Ratio, Unit};
use crate::rounds::{Series, interleave};
use crate::worker::{Answer, Command};
use crate::{Env, Error, Report, machine};

/// A worker's role: takes and gives, with SEM_UNDO, on sets of which it holds a unit each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Many {
    /// How many sets; they are made, and a unit is taken of each, when there are fewer.
    pub sets: usize,
    /// Goes through all of them in turn; false: stays with one in the middle.
    pub all: bool,
    /// For how long.
    pub time: Duration,
}

impl Many {
    /// Does it: nanoseconds of a call, by the thread's own time.
    pub fn run<B: Backend>(&self, backend: &B, made: &mut Vec<SetId>) -> Result<f64, Error> {
        let failed = |e| backend.failed("semop", e);
        while made.len() < self.sets {
            let id = backend.create(&[2])?;
            made.push(id);
            backend.open(id)?.sem(0, true).and_then(|sem| sem.take()).map_err(failed)?;
        }
        let open = |&id: &SetId| backend.open(id)?.sem(0, true).map_err(failed);
        let sems = match self.all {
            true => made[..self.sets].iter().map(open).collect::<Result<Vec<_>, _>>()?,
            false => vec![open(&made[self.sets / 2])?],
        };
        let turns = 4096usize.div_ceil(sems.len());
        let (start, mut calls) = (machine::thread_cpu_ns(), 0u64);
        loop {
            for _ in 0..turns {
                for sem in &sems {
                    sem.take().and_then(|()| sem.give()).map_err(failed)?;
                }
            }
            calls += (2 * turns * sems.len()) as u64;
            let took = machine::thread_cpu_ns() - start;
            if u128::from(took) >= self.time.as_nanos() {
                return Ok(took as f64 / calls as f64);
            }
        }
    }
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// How many sets a process has adjustments in.
    #[arg(default_value_t = 1000, value_parser = clap::value_parser!(u16).range(2..=32000))]
    pub sets: u16,
    /// Whose semaphores.
    #[arg(long, value_delimiter = ',', default_value = "kernel,manyway,manyway-preload")]
    pub backend: Vec<Kind>,
    /// Seconds for each case on each back end.
    #[arg(long, default_value_t = 2.0)]
    pub secs: f64,
    /// Samples for each case on each back end.
    #[arg(long, default_value_t = 10, value_parser = crate::cli::rounds)]
    pub rounds: usize,
    /// CPUs to use, one worker each in this order.
    #[arg(long, default_value_t)]
    pub pin: Pin,
}

/// Runs it: nanoseconds of a call.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let many = usize::from(args.sets);
    let cases = [("one set".to_owned(), 1, false), (format!("one of {many}"), many, false), (format!("{many} in turn"), many, true)];
    let time = Duration::from_secs_f64(args.secs / args.rounds as f64);
    let mut labs = Vec::new();
    let mut series = Vec::new();
    for &kind in args.backend.iter().filter(|kind| kind.is_system_v()) {
        for (case, ..) in &cases {
            // A keeper each: what a process has adjustments in it keeps.
            labs.push(Lab::open(env, kind, args.pin.cpu(0)?)?);
            series.push(Series::new(case.clone(), kind, Unit::Ns));
        }
    }
    if series.is_empty() {
        return Err(Error::NothingToDo);
    }
    interleave(&mut series, 2, args.rounds, |index, _| {
        let (_, sets, all) = cases[index % cases.len()];
        let keeper = labs[index].keeper();
        match keeper.ask(&Command::Many(Many { sets, all, time }))? {
            Answer::Cost(ns) => Ok(ns),
            other => Err(keeper.surprised(&other)),
        }
    })?;
    let mut report = Report::new("undo", args, &series);
    for cases in series.chunks(cases.len()) {
        report.ratios.extend(cases[1..].iter().filter_map(|s| Ratio::of(s, &cases[0], &cases[0].case)));
    }
    Ok(report)
}
