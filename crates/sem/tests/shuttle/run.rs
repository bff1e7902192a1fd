//! Schedules by the thousand, and one of them again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use manyway_sync::sim::{self, Clocked};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// A family of schedules: what happens in them, and its share of them.
struct Family {
    name: &'static str,
    run: fn(),
    share: u64,
}

const FAMILIES: &[Family] = &[
    Family { name: "ledger", run: crate::ledger::run, share: 30 },
    Family { name: "values", run: crate::values::run, share: 15 },
    Family { name: "removal", run: crate::removal::run, share: 15 },
    Family { name: "queue", run: crate::queue::run, share: 10 },
    Family { name: "barging", run: crate::barging::run, share: 5 },
    Family { name: "comings", run: crate::comings::run, share: 10 },
    Family { name: "heirs", run: crate::heirs::run, share: 15 },
    Family { name: "nested", run: crate::nested::run, share: 10 },
    Family { name: "onward", run: crate::onward::run, share: 5 },
];

/// Schedules in an ordinary run.
const ITERATIONS: u64 = 6_000;
/// Changes of priority in a schedule of PCT, and schedules that one seed stands for: the first tells it how long they are.
const PCT: (usize, usize) = (6, 10);

static SCHEDULES: AtomicU64 = AtomicU64::new(0);
static DEATHS: AtomicU64 = AtomicU64::new(0);
static SIGNALS: AtomicU64 = AtomicU64::new(0);
static ENDS: AtomicU64 = AtomicU64::new(0);

/// Notes a signal that was delivered.
pub fn note_signal() {
    SIGNALS.fetch_add(1, Relaxed);
}

fn schedule(family: &Family) {
    if std::env::var_os("MANYWAY_SHUTTLE_SEED").is_some() {
        sim::tell();
    }
    let clock = sim::start_clock();
    (family.run)();
    sim::closing();
    clock.join().expect("the clock");
    SCHEDULES.fetch_add(1, Relaxed);
    DEATHS.fetch_add(sim::deaths(), Relaxed);
    ENDS.fetch_add(sim::ends(), Relaxed);
}

/// Runs what a seed stands for; how many schedules, or nothing: one failed.
fn run_seed(family: &'static Family, scheduler: &str, seed: u64) -> Option<u64> {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(400_000);
    config.silence_warnings = true;
    let run = move || schedule(family);
    catch_unwind(AssertUnwindSafe(|| match scheduler {
        "pct" => Runner::new(Clocked(PctScheduler::new_from_seed(seed, PCT.0, PCT.1)), config).run(run),
        "random" => Runner::new(Clocked(RandomScheduler::new_from_seed(seed, 1)), config).run(run),
        other => panic!("no scheduler {other}"),
    }))
    .ok()
    .map(|n| n as u64)
}

/// Runs about so many schedules of a family. False: one failed.
fn run_family(family: &'static Family, first_seed: u64, schedules: u64) -> bool {
    let mut done = 0;
    let mut seed = first_seed;
    while done < schedules {
        // As many schedules of the one as of the other.
        let scheduler = if seed.is_multiple_of(PCT.1 as u64 + 1) { "pct" } else { "random" };
        match run_seed(family, scheduler, seed) {
            Some(n) => done += n,
            None => {
                println!("to run it again: MANYWAY_SHUTTLE_SEED={}:{scheduler}:{seed}", family.name);
                return false;
            }
        }
        seed += 1;
    }
    true
}

pub fn main() {
    if let Ok(again) = std::env::var("MANYWAY_SHUTTLE_SEED") {
        let parts: Vec<_> = again.split(':').collect();
        let [name, scheduler, seed] = parts[..] else { panic!("MANYWAY_SHUTTLE_SEED is family:scheduler:seed") };
        let family = FAMILIES.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no family {name}"));
        let passed = run_seed(family, scheduler, seed.parse().expect("a number")).is_some();
        println!("{again}: {}", if passed { "passed" } else { "FAILED" });
        std::process::exit(!passed as i32);
    }
    let wanted: u64 = std::env::var("MANYWAY_SHUTTLE_ITERATIONS").map_or(ITERATIONS, |n| n.parse().expect("a number"));
    // Other schedules each time, unless the first one's seed is given: a failure names its own.
    let first = std::env::var("MANYWAY_SHUTTLE_FIRST").map(|n| n.parse().expect("a number"));
    let seed = first.unwrap_or_else(|_| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64 >> 8) & 0xffff_ffff);
    let only: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let families: Vec<_> = FAMILIES.iter().filter(|f| only.is_empty() || only.iter().any(|o| o == f.name)).collect();
    let shares: u64 = families.iter().map(|f| f.share).sum();
    let began = Instant::now();
    // A thread a family: a run stays on one thread, which has a machine of its own.
    let threads: Vec<_> = families
        .into_iter()
        .map(|f| std::thread::spawn(move || (f.name, run_family(f, seed, (wanted * f.share).div_ceil(shares)), began.elapsed())))
        .collect();
    let results: Vec<(_, bool, Duration)> = threads.into_iter().map(|t| t.join().expect("a family's thread")).collect();
    for (name, passed, took) in &results {
        println!("{name}: {} ({:.1} s)", if *passed { "passed" } else { "FAILED" }, took.as_secs_f32());
    }
    let violations = results.iter().filter(|r| !r.1).count();
    println!(
        "proof: shuttle: {} schedules, {} deaths, {} other ends, {} signals, {violations} violations",
        SCHEDULES.load(Relaxed),
        DEATHS.load(Relaxed),
        ENDS.load(Relaxed) - DEATHS.load(Relaxed),
        SIGNALS.load(Relaxed),
    );
    std::process::exit((violations > 0) as i32);
}
