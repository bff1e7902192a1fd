//! The same library in programs of another C library.

use std::env;
use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Trial, run};
use manyway_preload_tests::same_on_both;

const COMPILER: &str = "musl-gcc";
const PACKAGE: &str = "musl-tools";

fn main() {
    let present = Command::new(COMPILER).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    let required = env::var_os("MANYWAY_REQUIRE_ALL").is_some_and(|v| v == "1");
    let trials = ["arguments", "credentials", "handlers", "pointers", "processes", "raw_syscall", "threads"].map(|name| {
        let trial = Trial::test(name, move || {
            if !present {
                return Err(format!("needs {PACKAGE}: there is no program {COMPILER}").into());
            }
            same_on_both(COMPILER, name);
            Ok(())
        });
        if present { trial } else { trial.with_kind(format!("needs {PACKAGE}")).with_ignored_flag(!required) }
    });
    run(&Arguments::from_args(), trials.into()).exit();
}
