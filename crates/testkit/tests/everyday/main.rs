//! Ordinary programs under `manyway run`: shells, compilers, servers, databases, interpreters and the test suites that they ship. Each case is a
//! script that runs twice in the same place, without Manyway and with it, and must end with the same exit code and the same output, to the
//! letter. `cost` measures what the start of a program costs more.
//!
//! A case is a file in `cases`: `# needs: PROGRAM=PACKAGE …` names what it needs, `# sample` marks the quick ones that run each time, `# semaphores`
//! those that use semaphores (then the namespace must have counted some), `# share` those in which root executes programs as somebody else. `MANYWAY_EVERYDAY=all` runs all; what is absent is told then.

mod case;
mod cost;

use std::env;

use libtest_mimic::{Arguments, run};

fn main() {
    let args = Arguments::from_args();
    let all = env::var_os("MANYWAY_EVERYDAY").is_some_and(|v| v == "all");
    let mut trials = case::trials(all);
    trials.extend(cost::trials());
    let conclusion = run(&args, trials);
    case::tell();
    conclusion.exit();
}
