//! Each promise of the cache, and each way in which one is known to be broken elsewhere, by name.

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod changes;
mod fills;
mod listings;
mod mounts;
mod pins;
mod races;
mod renames;
mod walks;
mod world;

use libtest_mimic::{Arguments, Trial};

/// The tests of a module, by their functions' names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub const TESTS: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use tests;

fn main() {
    let args = Arguments::from_args();
    let all = [
        bounds::TESTS,
        changes::TESTS,
        fills::TESTS,
        listings::TESTS,
        mounts::TESTS,
        pins::TESTS,
        races::TESTS,
        renames::TESTS,
        walks::TESTS,
    ]
    .concat();
    let trials = all.into_iter().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&args, trials.collect());
    let run = conclusion.num_passed + conclusion.num_failed;
    if !args.list && run > 0 {
        println!("proof: dcache named: {run} promises, {} violations", conclusion.num_failed);
    }
    conclusion.exit();
}
