//! A hostile writer beside honest callers: it changes words of the arena, at random and with aim, while processes use the namespace by every
//! way there is. Nobody crashes, hangs, is signalled or is harmed outside the arena, and another namespace in the same processes works on.
//!
//! `MANYWAY_HOSTILE_SECONDS` sets for how long (12), `MANYWAY_HOSTILE_SEED` the first round's seed: a failure names its round's.

mod caller;
mod ledger;
mod mutator;
mod stage;
mod truncate;
mod ways;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};

use caller::{Kind, Orders};
use ledger::Ledger;

/// First arguments of this program when it is to be one of the round's processes.
const CALLER: &str = "caller-of-hostile";
const MUTATOR: &str = "mutator-of-hostile";
const INNOCENT: &str = "innocent-of-hostile";
const TRUNCATED: &str = "truncated-of-hostile";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args[i].parse().expect("a number");
    match args.get(1).map(String::as_str) {
        Some(CALLER) => {
            let (dir, other) = (Path::new(&args[2]), Path::new(&args[3]));
            let ledger = Ledger::map(Path::new(&args[4]));
            let orders = Orders {
                dir,
                other,
                ledger,
                line: number(5) as usize,
                seed: number(6),
                kind: Kind::of(&args[7]),
                mortal: args[8] == "mortal",
            };
            return caller::run(&orders);
        }
        Some(MUTATOR) => {
            let pids = args[5..].iter().map(|p| p.parse().expect("a pid")).collect();
            return mutator::run(Path::new(&args[2]), Ledger::map(Path::new(&args[3])), number(4), pids);
        }
        Some(TRUNCATED) => return truncate::program(Path::new(&args[2]), &args[3]),
        Some(INNOCENT) => return stage::innocent(Ledger::map(Path::new(&args[2]))),
        _ => {}
    }
    let tests =
        [("honest_callers_beside_a_hostile_writer", stage::rounds as fn()), ("the_file_is_cut_short_under_its_users", truncate::cut_short)];
    let trials = tests.map(|(name, run)| Trial::test(name, move || carried_out(run)));
    let mut args = Arguments::from_args();
    args.test_threads = Some(1);
    libtest_mimic::run(&args, trials.into()).exit();
}

fn carried_out(run: fn()) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|e| {
        let text = e.downcast_ref::<String>().cloned().or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        text.unwrap_or_else(|| "panicked".to_owned()).into()
    })
}
