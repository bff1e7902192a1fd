//! Random programs, carried out in lock-step on the kernel and on Manyway.
//!
//! A [`Program`] is a list of steps of several workers. After each step every worker has either returned or sleeps, so that the same program
//! does the same thing each time, and what all of them saw can be compared ([`Stage::run`]).

mod program;
mod stage;

pub use program::{Act, Program, Step};
pub use stage::{Marks, Stage};

/// What must have happened at least once in a good number of programs: the rare paths are the ones to compare.
pub const WANTED: &[&str] = &[
    "simple done",
    "complex done",
    "zero done",
    "undo done",
    "simple sleeps",
    "complex sleeps",
    "zero sleeps",
    "two sleep",
    "three sleep",
    "newcomer overtakes sleeper",
    "one step serves two",
    "sleeper served",
    "sleeper overtakes sleeper",
    "sleeper EAGAIN",
    "sleeper ERANGE",
    "EAGAIN by IPC_NOWAIT",
    "EAGAIN by timeout",
    "ERANGE",
    "EINTR",
    "EIDRM",
    "SETVAL serves",
    "SETALL serves",
    "death serves",
    "death of a sleeper",
    "exit",
    "execve",
    "unshare",
    "fork",
    "thread",
    "thread exits",
    "death of several threads",
    "blocker moves",
];

/// The smallest program found by leaving out steps that still makes `differs` true.
pub fn shrink(mut program: Program, mut differs: impl FnMut(&Program) -> bool) -> Program {
    let mut chunk = program.steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < program.steps.len() {
            let mut smaller = program.clone();
            smaller.steps.drain(at..(at + chunk).min(smaller.steps.len()));
            if differs(&smaller) {
                program = smaller;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    program
}
