//! Random programs of several processes: on Manyway every step must end as on the kernel.
//!
//! `MANYWAY_RANDOM_CASES` programs (200), drawn from `MANYWAY_RANDOM_SEED` and the numbers after it. A program that ends otherwise is
//! made smaller and shown with what both did.

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_testkit::random::{Marks, Program, Stage, WANTED, shrink};
use manyway_testkit::{Backend, Setup, become_worker_if_asked, kernel_has_semaphores};

/// Fewer programs need not reach every rare path.
const ENOUGH: u64 = 150;

fn main() {
    become_worker_if_asked();
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(4);
    let kernel = kernel_has_semaphores();
    // The kernel against itself: the programs do the same each time, and reach what is to be compared.
    let trials = [("kernel", Backend::Kernel), ("engine", Backend::Engine), ("preload", Backend::Preload)]
        .map(|(name, backend)| Trial::test(format!("random::{name}"), move || compare(backend)).with_ignored_flag(!kernel));
    libtest_mimic::run(&args, trials.into()).exit();
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v}: not a number")))
}

fn compare(backend: Backend) -> Result<(), Failed> {
    let cases = number("MANYWAY_RANDOM_CASES", 200);
    let first = number("MANYWAY_RANDOM_SEED", 1);
    let stage = |backend| Stage::new(Setup::of(backend));
    let mut oracle = stage(Backend::Kernel);
    let mut subject = stage(backend);
    let mut marks = Marks::new();
    let mut with_two = 0;
    for seed in first..first + cases {
        let program = Program::draw(seed);
        let mut of_this = Marks::new();
        let rule = oracle.run(&program, &mut of_this);
        let seen = subject.run(&program, &mut Marks::new());
        if let Some(first) = difference(&rule, &seen) {
            let none = &mut Marks::new();
            let mut smallest = first.clone();
            let small = shrink(program, |p| {
                let found = difference(&oracle.run(p, none), &subject.run(p, none));
                let differs = found.is_some();
                smallest = found.unwrap_or_else(|| std::mem::take(&mut smallest));
                differs
            });
            let (workers, sets) = (small.workers, small.sets);
            return Err(format!("seed {seed}: {workers} workers, sets of {sets:?}\n{smallest}\nat first:\n{first}").into());
        }
        with_two += u64::from(of_this.contains_key("two sleep"));
        for (what, n) in of_this {
            *marks.entry(what).or_default() += n;
        }
    }
    let missing: Vec<_> = WANTED.iter().filter(|w| !marks.contains_key(*w)).collect();
    if cases >= ENOUGH && (!missing.is_empty() || 2 * with_two < cases) {
        return Err(format!("never happened: {missing:?}; two slept in {with_two} of {cases} programs; {marks:?}").into());
    }
    Ok(())
}

/// The steps up to the first that ended differently.
fn difference(rule: &[String], seen: &[String]) -> Option<String> {
    let at = rule.iter().zip(seen).position(|(a, b)| a != b)?;
    let before = rule[..at].iter().fold(String::new(), |text, step| text + "  " + step + "\n");
    Some(format!("{before}  kernel:  {}\n  Manyway: {}\n", rule[at], seen[at]))
}
