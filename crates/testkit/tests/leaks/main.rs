//! Leaks: what is made and ended over and over leaves nothing behind. Each kind of cycle runs a few times, everything is counted (memory of
//! the arena and of the process, mappings, descriptors, slots, records, files), the cycle runs by the thousand, and all is counted again.
//!
//! `MANYWAY_LEAKS=all` runs each a hundred thousand times (the heavy ones less often, as `KINDS` says).

mod children;
mod command;
mod cycles;
mod footprint;
mod threads;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use libtest_mimic::{Arguments, Failed, Trial};

use footprint::{Footprint, Place};

/// One kind of cycle.
struct Kind {
    name: &'static str,
    /// Runs it so often.
    run: fn(&Place, usize),
    /// How often in the test suite.
    few: usize,
    /// How often when all is asked for.
    many: usize,
}

const fn kind(name: &'static str, run: fn(&Place, usize), few: usize, many: usize) -> Kind {
    Kind { name, run, few, many }
}

const ALL: usize = 100_000;
const KINDS: [Kind; 20] = [
    kind("sets_are_made_and_removed", cycles::sets, 3_000, ALL),
    kind("large_sets_are_made_and_removed", cycles::large_sets, 60, ALL / 50),
    kind("sets_are_removed_under_adjustments", cycles::sets_with_adjustments, 2_000, ALL),
    kind("sets_are_removed_under_sleepers", cycles::sets_with_sleepers, 300, ALL / 10),
    kind("sleepers_time_out", cycles::timeouts, 2_000, ALL),
    kind("engines_are_opened_and_closed", cycles::engines, 1_000, ALL),
    kind("namespaces_are_made_and_removed", cycles::namespaces, 300, ALL / 10),
    kind("windows_are_outgrown", cycles::windows, 20, ALL / 100),
    kind("processes_come_and_go", children::come_and_go, 800, ALL),
    kind("processes_end_unseen", children::end_unseen, 400, ALL),
    kind("processes_end_with_adjustments_in_many_sets", children::many_records, 100, ALL / 20),
    kind("processes_are_killed_asleep", children::killed_asleep, 400, ALL),
    kind("processes_fork_and_the_parent_ends_first", children::generations, 300, ALL),
    kind("processes_execute_another_image", children::exec, 120, ALL / 5),
    kind("threads_come_and_go", threads::api, 2_000, ALL),
    kind("threads_end_without_a_word", threads::undetached, 2_000, ALL),
    kind("threads_come_and_go::preload", threads::preloaded, 2_000, ALL),
    kind("processes_come_and_go::preload", children::preloaded, 300, ALL),
    kind("calls_fail_on_a_full_file_system", cycles::full, 300, ALL / 10),
    kind("programs_run::command", command::programs, 12, ALL / 100),
];

fn main() {
    if children::act_if_asked() || command::act_if_asked() {
        return;
    }
    // One at a time: they count what this process has.
    let args = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let all = manyway_testkit::asks_for_all("MANYWAY_LEAKS");
    static DONE: Mutex<(usize, usize)> = Mutex::new((0, 0));
    let trials = KINDS.iter().map(|kind| {
        let n = if all { kind.many } else { kind.few };
        let run = move || {
            leaves_nothing(kind, n)?;
            let mut done = DONE.lock().expect("nobody panics here");
            *done = (done.0 + 1, done.1 + n);
            Ok(())
        };
        Trial::test(kind.name, run).with_ignored_flag(kind.name.ends_with("command") && !command::possible() || needs_root(kind))
    });
    let listing = args.list;
    let conclusion = libtest_mimic::run(&args, trials.collect());
    if !listing {
        let (kinds, cycles) = *DONE.lock().expect("nobody panics here");
        println!(
            "proof: leaks: {kinds} kinds of cycles, {cycles} cycles, each with memory, mappings, descriptors, slots, records and files as before, \
             {} violations",
            conclusion.num_failed
        );
    }
    conclusion.exit();
}

fn needs_root(kind: &Kind) -> bool {
    kind.name.ends_with("full_file_system") && !manyway_testkit::running_as_root()
}

/// Everything is used once before the first count: pages that stay, by design, are there then.
const WARM: usize = 20;

fn leaves_nothing(kind: &Kind, n: usize) -> Result<(), Failed> {
    let counted = || {
        let place = Place::new();
        let count = |n| {
            (kind.run)(&place, n);
            Footprint::of(&place)
        };
        let warm = count(WARM.min(n));
        // Twice: what a first count costs itself is no leak.
        let before = count(WARM.min(n));
        let after = count(n);
        (warm, before, after)
    };
    let (warm, before, after) = catch_unwind(AssertUnwindSafe(counted)).map_err(|e| {
        let text = e.downcast_ref::<String>().cloned().or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        text.unwrap_or_else(|| "panicked".to_owned())
    })?;
    match after.more_than(&before) {
        None => Ok(()),
        Some(what) => Err(format!("{what} after {n} cycles\nwarm:   {warm:?}\nbefore: {before:?}\nafter:  {after:?}").into()),
    }
}
