//! `manyway run`: becomes a program that uses Manyway's semaphores.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use manyway_sem::OpenOptions;

use crate::args::Run;
use crate::exit::{Failure, Result, Status};
use crate::namespace::{self, DIR_VARIABLE, Intent};
use crate::users::Gate;
use crate::watcher::{self, Duty, End};
use crate::{library, program};

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Returns only when the program could not be started.
pub fn run(args: &Run) -> Result<()> {
    let (name, arguments) = args.program.split_first().expect("clap requires a program");
    let path = program::find(name)?;
    let not_run = |failure: Failure| failure.status(Status::NotRun);
    let library = library::install().map_err(not_run)?;
    let dir = prepare_namespace(args).map_err(not_run)?;

    // Until this process has become the program, no watcher may conclude that nobody uses the namespace.
    let _gate = Gate::hold_open(&dir).map_err(|e| not_run(Failure::io(format!("cannot lock {}", dir.display()), e)))?;
    // A private namespace needs somebody who removes it, even if nobody is to look for deaths.
    let duty = Duty { dir: dir.clone(), reap: !args.no_watcher, end: if args.private { End::Remove } else { End::Leave } };
    if duty.reap || duty.end == End::Remove {
        watcher::start(&duty).unwrap_or_else(|e| {
            eprintln!("manyway: no watcher ({e}): sleepers find the death of a holder within 50 ms instead of at once");
        });
    }

    let error = Command::new(&path)
        .arg0(name)
        .args(arguments)
        .env(PRELOAD_VARIABLE, library::preload_list(&library, env::var_os(PRELOAD_VARIABLE).as_deref()))
        .env(DIR_VARIABLE, &dir)
        .exec();
    Err(Failure::io(format!("cannot execute {}", path.display()), error).status(Status::NotExecutable))
}

/// Finds or makes the namespace; it is opened to see that the program will be able to.
fn prepare_namespace(args: &Run) -> Result<PathBuf> {
    let dir = if args.private {
        watcher::remove_abandoned(&namespace::private_orphans());
        namespace::private_directory()?
    } else {
        namespace::directory(&args.namespace, Intent::Make)?
    };
    let how = OpenOptions { limits: args.limits, fairness: args.fairness.map(Into::into), ..OpenOptions::CREATE };
    // One spelling for all: the watcher knows the users of a namespace by this value.
    let opened = namespace::open(&dir, &how).and_then(|_| dir.canonicalize().map_err(|e| Failure::io(dir.display(), e)));
    if opened.is_err() && args.private {
        discard(&dir);
    }
    opened
}

/// A private directory that nobody will use.
fn discard(dir: &Path) {
    // What cannot be removed is swept away by the next `run --private`.
    let _ = fs::remove_dir_all(dir);
}
