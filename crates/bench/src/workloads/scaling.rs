//! Two processes on two CPUs, each on its own semaphore of one set: what they do together against what one does alone.

use std::time::Duration;

use serde::Serialize;

use crate::backend::Kind;
use crate::cli::Pin;
use crate::lab::{Lab, Worker};
use crate::report::{Ratio, Unit};
use crate::rounds::{Series, interleave};
use crate::worker::{Answer, Command};
use crate::workloads::uncontended::{Case, Loop};
use crate::{Env, Error, Report};

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// Whose semaphores.
    #[arg(long, value_delimiter = ',', default_value = "kernel,manyway")]
    pub backend: Vec<Kind>,
    /// Seconds for each case on each back end.
    #[arg(long, default_value_t = 1.0)]
    pub secs: f64,
    /// Samples for each case on each back end.
    #[arg(long, default_value_t = 15, value_parser = crate::cli::rounds)]
    pub rounds: usize,
    /// CPUs to use, one worker each in this order.
    #[arg(long, default_value_t)]
    pub pin: Pin,
}

/// One back end with its two workers.
struct Pair {
    /// Holds the set; declared last so that the workers end first.
    workers: [Worker; 2],
    commands: [Command; 2],
    _lab: Lab,
}

const ONE: &str = "one-process";
const TWO: &str = "two-processes";

/// Runs it.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let have = args.pin.distinct()?;
    if have < 2 {
        return Err(Error::Cpus { needed: 2, have });
    }
    // A sample of "one" is both workers alone, one after the other: CPUs differ.
    let time = Duration::from_secs_f64(args.secs / args.rounds as f64 / 2.0);
    let mut pairs = Vec::new();
    let mut series = Vec::new();
    for &kind in &args.backend {
        let mut lab = Lab::open(env, kind, None)?;
        let set = lab.create(&[1, 1])?;
        let workers = [lab.worker(args.pin.cpu(0)?)?, lab.worker(args.pin.cpu(1)?)?];
        let commands = [0, 1].map(|num| Command::Loop(Loop { set, num, case: Case::IncDec, time }));
        pairs.push(Pair { workers, commands, _lab: lab });
        series.extend([ONE, TWO].map(|case| Series::new(case, kind, Unit::PerSecond)));
    }
    interleave(&mut series, 2, args.rounds, |index, series| {
        let pair = &mut pairs[index / 2];
        if series.case == TWO { pair.together() } else { pair.alone() }
    })?;
    let mut report = Report::new("scaling", args, &series);
    for pair in series.chunks(2) {
        report.ratios.extend(Ratio::of(&pair[1], &pair[0], ONE));
    }
    Ok(report)
}

impl Pair {
    /// Calls per second of one worker, the mean of the two.
    fn alone(&mut self) -> Result<f64, Error> {
        let mut sum = 0.0;
        for (worker, command) in self.workers.iter_mut().zip(&self.commands) {
            worker.send(command)?;
            sum += rate(worker)?;
        }
        Ok(sum / 2.0)
    }

    /// Calls per second of both at once.
    fn together(&mut self) -> Result<f64, Error> {
        for (worker, command) in self.workers.iter_mut().zip(&self.commands) {
            worker.send(command)?;
        }
        let [a, b] = &mut self.workers;
        Ok(rate(a)? + rate(b)?)
    }
}

fn rate(worker: &mut Worker) -> Result<f64, Error> {
    match worker.receive()? {
        Answer::Looped(looped) => Ok(1e9 / looped.wall),
        other => Err(worker.surprised(&other)),
    }
}
