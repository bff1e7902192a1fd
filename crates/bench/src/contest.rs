//! Cases of crowds on several back ends, placed and loaded in several ways, sampled in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::backend::Kind;
use crate::crowd::{self, Crowd, Limit, Outcome, Scene};
use crate::lab::Lab;
use crate::report::{Ratio, Unit};
use crate::rounds::{Costs, Series, Times, interleave};
use crate::worker::{Answer, Command};
use crate::{Env, Error, Report, machine};

/// What the command lines of all crowds have.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Common {
    /// Whose semaphores.
    #[arg(long, value_delimiter = ',', default_value = "kernel,manyway,manyway-barging,manyway-preload")]
    pub backend: Vec<Kind>,
    /// Seconds for each case on each back end.
    #[arg(long, default_value_t = 2.0)]
    pub secs: f64,
    /// Samples for each case on each back end.
    #[arg(long, default_value_t = 8, value_parser = crate::cli::rounds)]
    pub rounds: usize,
    /// Where the tasks run; each is a case (default: the workload's).
    #[arg(long, value_delimiter = ',')]
    pub pin: Vec<Placement>,
    /// What else runs; each is a case (default: the workload's).
    #[arg(long, value_delimiter = ',')]
    pub load: Vec<Load>,
}

impl Common {
    /// What a workload takes when nothing was asked for.
    pub fn with(mut self, pin: &[Placement], load: &[Load]) -> Common {
        if self.pin.is_empty() {
            self.pin = pin.to_vec();
        }
        if self.load.is_empty() {
            self.load = load.to_vec();
        }
        self
    }
    /// The same of the load, for a workload that places its tasks itself.
    pub fn with_load(self) -> Common {
        let pin = self.pin.clone();
        self.with(&pin, &[Load::Idle])
    }
}

/// Where the tasks of a crowd run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// All on one CPU.
    One,
    /// Each on the next CPU, round and round.
    Spread,
    /// Wherever the system puts them.
    None,
}

/// What else runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Nothing of ours.
    Idle,
    /// A thread that never sleeps, on each CPU.
    Hogs,
}

/// One case, before it is placed.
pub struct Case {
    /// Its name; placement and load are added.
    pub name: String,
    /// What is played.
    pub scene: Scene,
    /// By how many.
    pub tasks: usize,
    /// Threads instead of processes.
    pub threads: bool,
    /// The CPUs of its tasks, for a script that has its own rule.
    pub cpus: Option<Vec<usize>>,
    /// How much is done in a round.
    pub amount: Amount,
    /// What a sample is.
    pub unit: Unit,
    /// The sample of an outcome.
    pub score: fn(&Outcome) -> f64,
    /// Which back ends can do it.
    pub kinds: fn(Kind) -> bool,
}

/// How much a task does in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So many loops.
    Loops(u64),
    /// As many loops as take about a round's time; found out in the warm-up, for each back end, and the same in all rounds.
    Fixed,
    /// For the round's time, as the original has it.
    Timed,
}

impl Placement {
    fn cpus(self) -> Result<Vec<usize>, Error> {
        let mut cpus = machine::allowed_cpus()?;
        // The first one serves most interrupts.
        cpus.reverse();
        Ok(match self {
            Placement::One => cpus[..1].to_vec(),
            Placement::Spread => cpus,
            Placement::None => Vec::new(),
        })
    }
    fn name(self) -> Option<&'static str> {
        match self {
            Placement::One => Some("one CPU"),
            Placement::Spread => Some("spread"),
            Placement::None => None,
        }
    }
}

/// A case on a back end.
struct Entry {
    lab: usize,
    crowd: Crowd,
    amount: Amount,
    score: fn(&Outcome) -> f64,
    loaded: bool,
    times: Histogram<u64>,
    /// The 99th percentile of each round.
    p99: Vec<f64>,
    /// Counts of all rounds, CPU time, sleeps, preemptions.
    spent: [u64; 4],
}

/// Runs the cases.
pub fn run(workload: &str, args: &impl Serialize, common: &Common, env: &Env, cases: Vec<Case>) -> Result<Report, Error> {
    let round = Duration::from_secs_f64(common.secs / common.rounds as f64);
    let mut labs: Vec<Lab> = Vec::new();
    for &kind in &common.backend {
        labs.push(Lab::open(env, kind, None)?);
    }
    let (mut series, mut entries) = (Vec::new(), Vec::new());
    for &load in &common.load {
        for case in &cases {
            let placements = if case.cpus.is_some() { &[Placement::None][..] } else { &common.pin[..] };
            for placement in placements {
                let loaded = (load == Load::Hogs).then_some("loaded");
                let parts = [Some(case.name.as_str()), placement.name(), loaded];
                let name = parts.into_iter().flatten().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(", ");
                for (lab, &kind) in common.backend.iter().enumerate() {
                    if !(case.kinds)(kind) {
                        continue;
                    }
                    series.push(Series::new(name.clone(), kind, case.unit));
                    let cpus = case.cpus.clone().map_or_else(|| placement.cpus(), Ok)?;
                    let limit = match case.amount {
                        Amount::Loops(loops) => Limit::Loops(loops),
                        Amount::Fixed => Limit::Loops(1),
                        Amount::Timed => Limit::Time(round),
                    };
                    let crowd = Crowd { scene: case.scene.clone(), tasks: case.tasks, threads: case.threads, cpus, limit };
                    let (times, p99) = (crowd::histogram(), Vec::new());
                    entries.push(Entry {
                        lab,
                        crowd,
                        amount: case.amount,
                        score: case.score,
                        loaded: loaded.is_some(),
                        times,
                        p99,
                        spent: [0; 4],
                    });
                }
            }
        }
    }
    if series.is_empty() {
        return Err(Error::NothingToDo);
    }
    let hogs = Hogs::start(entries.iter().any(|e| e.loaded))?;
    let mut samples = 0;
    let warm_up = series.len();
    interleave(&mut series, 1, common.rounds, |index, _| {
        let entry = &mut entries[index];
        hogs.run(entry.loaded);
        let warm = samples < warm_up;
        samples += 1;
        entry.sample(&mut labs, warm, round)
    })?;
    hogs.run(false);
    for (series, entry) in series.iter_mut().zip(&entries) {
        series.times = Times::of(&entry.times);
        let [count, spent @ ..] = entry.spent;
        let [cpu, sleeps, preemptions] = spent.map(|sum| sum as f64 / count.max(1) as f64);
        series.costs = Some(Costs { cpu: cpu / 1e3, sleeps, preemptions });
    }
    let mut report = Report::new(workload, args, &series);
    report.ratios.extend(tails(&series, entries));
    Ok(report)
}

/// How these times, nanoseconds, are distributed.
pub fn histogram_of(times: impl Iterator<Item = u64>) -> Option<Times> {
    let mut histogram = crowd::histogram();
    times.for_each(|ns| histogram.saturating_record(ns.max(1)));
    Times::of(&histogram)
}

/// The ratios of the rounds' 99th percentiles over the kernel's, where times were recorded.
fn tails(series: &[Series], entries: Vec<Entry>) -> Vec<Ratio> {
    let tail = |(s, e): (&Series, Entry)| (!e.p99.is_empty()).then(|| Series { unit: Unit::Us, samples: e.p99, ..s.clone() });
    let tails: Vec<Series> = series.iter().zip(entries).filter_map(tail).collect();
    let over = |s: &Series| {
        let kernel = tails.iter().find(|r| r.case == s.case && r.backend == Kind::Kernel.name())?;
        (s.backend != Kind::Kernel.name()).then(|| Ratio::of(s, kernel, "kernel's p99")).flatten()
    };
    tails.iter().filter_map(over).collect()
}

impl Entry {
    fn sample(&mut self, labs: &mut [Lab], warm: bool, round: Duration) -> Result<f64, Error> {
        if warm && self.amount == Amount::Fixed {
            self.calibrate(labs, round)?;
        }
        let outcome = self.play(labs)?;
        if !warm {
            let mut times = crowd::histogram();
            outcome.add_times(&mut times);
            if !times.is_empty() {
                self.p99.push(times.value_at_quantile(0.99) as f64 / 1e3);
            }
            outcome.add_times(&mut self.times);
            let spent = [outcome.count, outcome.cpu, outcome.switches[0], outcome.switches[1]];
            self.spent.iter_mut().zip(spent).for_each(|(sum, s)| *sum += s);
        }
        Ok((self.score)(&outcome))
    }

    /// Finds out how many loops take a round's time.
    fn calibrate(&mut self, labs: &mut [Lab], round: Duration) -> Result<(), Error> {
        let mut loops = 10u64;
        loop {
            self.crowd.limit = Limit::Loops(loops);
            let took = self.play(labs)?.elapsed.max(1) as f64;
            let factor = round.as_nanos() as f64 / took;
            if factor < 3.0 || loops > 1 << 40 {
                self.crowd.limit = Limit::Loops(((loops as f64 * factor) as u64).max(1));
                return Ok(());
            }
            loops = (loops as f64 * factor.min(50.0)) as u64;
        }
    }

    fn play(&self, labs: &mut [Lab]) -> Result<Outcome, Error> {
        let keeper = labs[self.lab].keeper();
        match keeper.ask(&Command::Crowd(self.crowd.clone()))? {
            Answer::Crowd(outcome) => Ok(outcome),
            other => Err(keeper.surprised(&other)),
        }
    }
}

/// A thread that never sleeps on each CPU, while it is asked for.
struct Hogs {
    wanted: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hogs {
    fn start(needed: bool) -> Result<Hogs, Error> {
        let (wanted, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut threads = Vec::new();
        for cpu in if needed { machine::allowed_cpus()? } else { Vec::new() } {
            let (wanted, over) = (wanted.clone(), over.clone());
            threads.push(std::thread::spawn(move || {
                // Where it cannot be pinned the scheduler will place it.
                let _ = machine::pin(cpu);
                while !over.load(Relaxed) {
                    if wanted.load(Relaxed) { std::hint::spin_loop() } else { std::thread::park() }
                }
            }));
        }
        Ok(Hogs { wanted, over, threads })
    }

    fn run(&self, wanted: bool) {
        if self.wanted.swap(wanted, Relaxed) != wanted {
            self.threads.iter().for_each(|t| t.thread().unpark());
        }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        self.run(false);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
