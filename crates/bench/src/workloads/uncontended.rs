//! One process alone: what a call costs when nobody else is there.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Kind, Sem, Set, SetId, Several};
use crate::cli::Pin;
use crate::lab::Lab;
use crate::report::Unit;
use crate::rounds::{Series, interleave};
use crate::worker::{Answer, Command};
use crate::{Env, Error, Report, machine};

/// What is called in the loop. Semaphores 0 and 1 are free (1) at the start, 2 is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// −1 and +1 in turn on one semaphore.
    IncDec,
    /// Wait for zero on a semaphore that is zero.
    Zero,
    /// −1 and +1 in turn, both with SEM_UNDO.
    Undo,
    /// −1 on two semaphores in one call, then +1 on both.
    Two,
}

/// Values of the set that the cases run on.
pub const VALUES: [u16; 3] = [1, 1, 0];

/// The loop as a worker's role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loop {
    /// The set.
    pub set: SetId,
    /// The semaphore; `Case::Two` takes the next one too, `Case::Zero` that after it.
    pub num: u16,
    /// What to call.
    pub case: Case,
    /// For how long.
    pub time: Duration,
}

/// What a loop took, nanoseconds per call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Looped {
    /// By the clock on the wall.
    pub wall: f64,
    /// Of the thread's own time on a CPU: without what other programs took from it.
    pub cpu: f64,
}

impl Loop {
    /// Calls for the time asked for.
    pub fn run<S: Set>(&self, set: &S) -> Result<Looped, Errno> {
        // Between two looks at the clock: long enough that the clock is lost in it, for the fastest back end.
        const BATCH: u64 = 4096;
        let (start, cpu_start, mut calls) = (Instant::now(), machine::thread_cpu_ns(), 0);
        loop {
            calls += repeat(set, self.num, self.case, BATCH)?;
            let wall = start.elapsed();
            if wall >= self.time {
                let cpu = machine::thread_cpu_ns() - cpu_start;
                return Ok(Looped { wall: wall.as_nanos() as f64 / calls as f64, cpu: cpu as f64 / calls as f64 });
            }
        }
    }
}

/// Goes through the case's calls `times` times; how many calls that were.
pub fn repeat<S: Set>(set: &S, num: u16, case: Case, times: u64) -> Result<u64, Errno> {
    match case {
        // Two loops, each with the one kind of semaphore that the compiler then knows it has.
        Case::IncDec => turns(&set.sem(num, false)?, times),
        Case::Undo => turns(&set.sem(num, true)?, times),
        Case::Zero => {
            let sem = set.sem(num + 2, false)?;
            for _ in 0..times {
                sem.wait_zero()?;
            }
            Ok(times)
        }
        Case::Two => {
            let [take, give] = [-1, 1].map(|op| set.several(&[(num, op), (num + 1, op)]));
            let (take, give) = (take?, give?);
            for _ in 0..times {
                take.call()?;
                give.call()?;
            }
            Ok(2 * times)
        }
    }
}

#[inline(always)]
fn turns(sem: &impl Sem, times: u64) -> Result<u64, Errno> {
    for _ in 0..times {
        sem.take()?;
        sem.give()?;
    }
    Ok(2 * times)
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// Whose semaphores.
    #[arg(long, value_delimiter = ',', default_value = "kernel,manyway,posix")]
    pub backend: Vec<Kind>,
    /// Seconds for each case on each back end.
    #[arg(long, default_value_t = 0.3)]
    pub secs: f64,
    /// Samples for each case on each back end.
    #[arg(long, default_value_t = 15, value_parser = crate::cli::rounds)]
    pub rounds: usize,
    /// CPUs to use, one worker each in this order: `1,0`, or `none` to leave it to the system.
    #[arg(long, default_value_t)]
    pub pin: Pin,
}

/// A row of the report: a case through a back end's own interface, or through the C symbols.
struct Row {
    name: &'static str,
    case: Case,
    c_symbols: bool,
}

const ROWS: [Row; 6] = [
    Row { name: "inc-dec", case: Case::IncDec, c_symbols: false },
    Row { name: "zero", case: Case::Zero, c_symbols: false },
    Row { name: "undo", case: Case::Undo, c_symbols: false },
    Row { name: "two", case: Case::Two, c_symbols: false },
    Row { name: "preload-inc-dec", case: Case::IncDec, c_symbols: true },
    Row { name: "preload-undo", case: Case::Undo, c_symbols: true },
];

impl Row {
    /// Whose worker runs it for the back end that the user named; None: it has no such case.
    fn worker(&self, kind: Kind) -> Option<Kind> {
        match (self.c_symbols, kind) {
            (_, Kind::Kernel) => Some(Kind::Kernel),
            (true, Kind::Manyway) => Some(Kind::ManywayPreload),
            (true, _) => None,
            (false, Kind::Posix) => (self.case == Case::IncDec).then_some(Kind::Posix),
            (false, _) => Some(kind),
        }
    }
}

/// Runs it.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let time = Duration::from_secs_f64(args.secs / args.rounds as f64);
    let mut labs: Vec<(Kind, Lab, SetId)> = Vec::new();
    let mut series = Vec::new();
    // For each series its lab and its case.
    let mut plan = Vec::new();
    for row in &ROWS {
        for &kind in &args.backend {
            let Some(worker) = row.worker(kind) else {
                continue;
            };
            let known = labs.iter().position(|(kind, ..)| *kind == worker);
            let lab = match known {
                Some(index) => index,
                None => {
                    let mut lab = Lab::open(env, worker, args.pin.cpu(0)?)?;
                    let set = lab.create(&VALUES)?;
                    labs.push((worker, lab, set));
                    labs.len() - 1
                }
            };
            series.push(Series::new(row.name, kind, Unit::Ns));
            plan.push((lab, row.case));
        }
    }
    if series.is_empty() {
        return Err(Error::NothingToDo);
    }
    interleave(&mut series, 2, args.rounds, |index, _| {
        let (lab, case) = plan[index];
        let (_, lab, set) = &mut labs[lab];
        match lab.keeper().ask(&Command::Loop(Loop { set: *set, num: 0, case, time }))? {
            Answer::Looped(looped) => Ok(looped.cpu),
            other => Err(lab.keeper().surprised(&other)),
        }
    })?;
    Ok(Report::new("uncontended", args, &series))
}
