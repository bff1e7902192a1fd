//! The benchmarks as a program of their own, for the tests and for measuring without the command.

use std::process::ExitCode;

use clap::Parser;
use manyway_bench::{Env, Error, cli};

/// Benchmarks of semaphores, back ends side by side.
#[derive(Parser)]
#[command(version)]
struct Program {
    #[command(flatten)]
    args: cli::Args,
}

fn main() -> ExitCode {
    let program = Program::parse();
    let exe = std::env::current_exe().map_err(Error::io("cannot find this program's file"));
    match exe.and_then(|exe| cli::run(&program.args, &Env::beside(&exe, &[]))) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("manyway-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
