//! The command `manyway`: runs programs on user-space System V semaphores and shows what they do with them.
//!
//! | module | subject |
//! |---|---|
//! | [`args`] | the command line: every subcommand and option |
//! | [`commands`] | one file per subcommand |
//! | [`namespace`], [`places`] | choosing a namespace and opening it; which directory that is |
//! | [`program`] | can this program be run under Manyway? |
//! | [`dirs`] | directories that only trusted users can change |
//! | [`library`] | the embedded library and where it is put |
//! | [`kernel_calls`], [`supervise`], [`report`] | who slips past to the kernel's semaphores: refused, or told of at the end |
//! | [`watcher`], [`users`] | the process that finds deaths at once; who still uses a namespace |
//! | [`survey`], [`waitfor`] | what sets, holders and sleepers there are; wait-for cycles |
//! | [`layouts`] | other versions' arenas in the same directory |
//! | [`output`] | tables and JSON |
//! | [`portrait`] | a namespace as a whole |
//! | [`people`] | names of processes and users |
//! | [`exit`], [`explain`] | exit codes; every error turned into what to do |
#![deny(unsafe_code)]

mod args;
mod commands;
mod dirs;
mod exit;
mod explain;
mod kernel_calls;
mod layouts;
mod library;
mod namespace;
mod output;
mod people;
mod places;
mod portrait;
mod program;
mod report;
mod supervise;
mod survey;
#[cfg(test)]
mod testdir;
mod users;
mod waitfor;
mod watcher;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before the command line is parsed: the watcher lives long, and stays small without the parser's memory.
    if let Some(duty) = watcher::Duty::from_args(std::env::args_os()) {
        return watcher::main(&duty);
    }
    let command = match args::parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    match commands::dispatch(&command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
