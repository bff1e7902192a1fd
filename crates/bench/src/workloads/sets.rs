//! What a call costs when the namespace is nearly empty, and when it is nearly full: making, finding, using, listing and removing sets.

use std::hint::black_box;

use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Kind, Sem, SetId};
use crate::lab::Lab;
use crate::report::{Ratio, Unit};
use crate::rounds::Series;
use crate::worker::{Answer, Command};
use crate::{Env, Error, Report, machine};

/// What is timed, each with few sets and with many.
const CASES: [[&str; 2]; 5] = [
    ["create-few", "create-many"],
    ["find-few", "find-many"],
    ["call-few", "call-many"],
    ["list-few", "list-many"],
    ["remove-few", "remove-many"],
];

/// Nanoseconds of the thread's own time for one call of each case, in the order of the report's.
pub type Costs = [f64; CASES.len()];

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// Whose semaphores.
    #[arg(long, value_delimiter = ',', default_value = "kernel,manyway,manyway-preload")]
    pub backend: Vec<Kind>,
    /// Sets in the full namespace: at most what SEMMNI allows.
    #[arg(long, default_value_t = 32_000, value_parser = clap::value_parser!(u32).range(2..))]
    pub sets: u32,
    /// Sets that are made and looked at for a sample; the nearly empty namespace has no others.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: u32,
    /// Semaphores of each set.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub sems: u16,
    /// Samples for each case on each back end.
    #[arg(long, default_value_t = 5, value_parser = crate::cli::rounds)]
    pub rounds: usize,
}

/// A worker's role: with so many other sets in place, makes, finds, uses, lists and removes some.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Census {
    /// Others, which stay for the next one.
    pub others: u32,
    /// How many are made, and removed at the end.
    pub sample: u32,
    /// Semaphores of each.
    pub sems: u16,
}

/// Keys of this workload begin here: 0 is IPC_PRIVATE.
const FIRST_KEY: i32 = 0x6d77_0000;

impl Census {
    /// Does it; the cost of each case.
    pub fn run<B: Backend>(&self, backend: &B, others: &mut Vec<SetId>) -> Result<Costs, Error> {
        if others.is_empty() {
            backend.part();
        }
        let key = |n: u32| FIRST_KEY.wrapping_add(n as i32);
        while (others.len() as u32) < self.others {
            others.push(backend.keyed(key(self.sample + others.len() as u32), self.sems)?);
        }
        let mut made = Vec::with_capacity(self.sample as usize);
        let costs = self.measure(backend, key, &mut made);
        // What is left when a call has failed goes with the others.
        others.append(&mut made);
        costs
    }

    fn measure<B: Backend>(&self, backend: &B, key: impl Fn(u32) -> i32, made: &mut Vec<SetId>) -> Result<Costs, Error> {
        let create = timed(|| {
            for n in 0..self.sample {
                made.push(backend.keyed(key(n), self.sems)?);
            }
            Ok(())
        })?;
        let find = timed(|| (0..self.sample).try_for_each(|n| backend.keyed(key(n), self.sems).map(|id| _ = black_box(id))))?;
        let call = timed(|| made.iter().try_for_each(|&id| backend.first(id)?.give().map_err(|e| backend.failed("semop", e))))?;
        let mut listed = 0;
        let list = timed(|| {
            listed = backend.list()?;
            Ok(())
        })?;
        let remove = timed(|| {
            while let Some(&id) = made.last() {
                backend.remove(id)?;
                made.pop();
            }
            Ok(())
        })?;
        let each = |ns: f64| ns / f64::from(self.sample);
        Ok([each(create), each(find), each(call), list / listed.max(1) as f64, each(remove)])
    }
}

/// The thread's own time on the CPU, nanoseconds.
fn timed(work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let start = machine::thread_cpu_ns();
    work()?;
    Ok((machine::thread_cpu_ns() - start) as f64)
}

/// Runs it.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let kinds: Vec<Kind> = args.backend.iter().copied().filter(|kind| kind.is_system_v()).collect();
    if kinds.is_empty() {
        return Err(Error::NothingToDo);
    }
    let mut series: Vec<Series> =
        kinds.iter().flat_map(|&kind| CASES.into_iter().flatten().map(move |case| Series::new(case, kind, Unit::Ns))).collect();
    // A full namespace takes long to make, so a round is a new place for each back end, first nearly empty, then nearly full.
    for round in 0..args.rounds {
        for turn in 0..kinds.len() {
            let index = if round % 2 == 0 { turn } else { kinds.len() - 1 - turn };
            let mut lab = Lab::open(env, kinds[index], None)?;
            for (column, others) in [0, args.sets.saturating_sub(args.sample)].into_iter().enumerate() {
                let census = Census { others, sample: args.sample.min(args.sets), sems: args.sems };
                let costs = match lab.keeper().ask(&Command::Census(census))? {
                    Answer::Costs(costs) => costs,
                    other => return Err(lab.keeper().surprised(&other)),
                };
                for (row, cost) in costs.into_iter().enumerate() {
                    series[(index * CASES.len() + row) * 2 + column].samples.push(cost);
                }
            }
        }
    }
    let mut report = Report::new("sets", args, &series);
    for pair in series.chunks(2) {
        report.ratios.extend(Ratio::of(&pair[1], &pair[0], &pair[0].case));
    }
    Ok(report)
}
