//! What a hostile writer can do (docs/segment.md), row by row: exactly that damage is written, a call is made, and what the page says comes of
//! it: for the caller, for `manyway show`, for `manyway doctor`.

mod failures;
mod locks;
mod place;
mod queues;
mod tables;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

const ROWS: [(&str, fn()); 15] = [
    ("queue_that_leads_to_a_stranger", queues::leads_to_a_stranger),
    ("queue_that_is_a_ring", queues::is_a_ring),
    ("sleeper_in_no_queue", queues::sleeper_in_no_queue),
    ("call_of_too_many_operations", queues::call_of_too_many_operations),
    ("key_chain_that_is_a_ring", tables::key_chain_is_a_ring),
    ("bitmap_that_says_full", tables::bitmap_says_full),
    ("lock_of_nobody", locks::of_nobody),
    ("lock_of_the_dead", locks::of_the_dead),
    ("lock_of_somebody_who_lives", locks::of_somebody_who_lives),
    ("queue_that_cannot_be_left", locks::queue_cannot_be_left),
    ("recoverer_that_does_nothing", locks::recoverer_does_nothing),
    ("id_that_leads_nowhere", failures::id_leads_nowhere),
    ("set_that_says_that_it_is_gone", failures::set_says_that_it_is_gone),
    ("slot_that_is_somebody_elses", failures::slot_is_somebody_elses),
    ("sleep_without_a_result", failures::sleep_without_a_result),
];

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let listing = args.list;
    let trials = ROWS.map(|(name, row)| Trial::test(name, move || carried_out(row)));
    let conclusion = libtest_mimic::run(&args, trials.into());
    if !listing {
        println!(
            "proof: rows: {} kinds of damage, each with its documented outcome, {} violations",
            conclusion.num_passed, conclusion.num_failed
        );
    }
    conclusion.exit_code()
}

fn carried_out(row: fn()) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(row)).map_err(|e| {
        let text = e.downcast_ref::<String>().cloned().or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        text.unwrap_or_else(|| "panicked".to_owned()).into()
    })
}
