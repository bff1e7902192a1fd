//! `manyway bench`: the benchmarks, with this program as their workers and their watcher.

use std::env;

use manyway_bench::cli;
use manyway_bench::{Env, Report as Figures};
use serde::Serialize;

use crate::args::Bench;
use crate::exit::{Failure, Result};
use crate::library;
use crate::namespace::Place;
use crate::output::{Report, Sheet, emit};
use crate::watcher::{Duty, End};

/// What a benchmark found.
#[derive(Serialize)]
#[serde(transparent)]
struct Outcome(Figures);

impl Report for Outcome {
    fn draw(&self, sheet: &mut Sheet) {
        sheet.line(self.0.to_string().trim_end());
    }
}

pub fn run(args: &Bench) -> Result<()> {
    let exe = env::current_exe().map_err(|e| Failure::io("cannot find this program's file", e))?;
    let command = |arguments: Vec<_>| [exe.clone().into()].into_iter().chain(arguments).collect();
    // A worker is told what to preload.
    let preload = if args.args.workload.preloads() { Some(library::install()?) } else { None };
    let watcher = Duty { place: Place { dir: Default::default(), owner: None }, reap: true, end: End::Stay };
    let surroundings = Env { worker: command(vec!["bench".into()]), preload, watcher: Some(command(watcher.flags())) };
    let figures = cli::run(&args.args, &surroundings).map_err(|e| Failure::new(e.to_string()))?;
    emit(&Outcome(figures), false)
}
