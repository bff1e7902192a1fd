//! `manyway run`: becomes a program that uses Manyway's semaphores.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use manyway_sem::{OpenOptions, Share, Thread};
use rustix::process::geteuid;

use crate::args::Run;
use crate::exit::{Failure, Result, Status};
use crate::kernel_calls::{self, Verdict};
use crate::library::PRELOAD_VARIABLE;
use crate::namespace::{DIR_VARIABLE, Intent, OWNER_VARIABLE, Place};
use crate::people::printable;
use crate::places::Surroundings;
use crate::report::Report;
use crate::users::Gate;
use crate::watcher::{self, Duty, End};
use crate::{layouts, library, program, supervise};

/// Makes the library tell the listener who uses the namespace.
const REPORT_VARIABLE: &str = "MANYWAY_REPORT";

/// Returns only when the program could not be started.
pub fn run(args: &Run) -> Result<()> {
    let (name, arguments) = args.program.split_first().expect("clap requires a program");
    let path = program::find(name)?;
    let not_run = |failure: Failure| failure.status(Status::NotRun);
    let library = library::install().map_err(not_run)?;
    // Until this process has become the program, no watcher may conclude that nobody uses the namespace.
    let (place, owner, _gate) = enter_namespace(args).map_err(not_run)?;
    let dir = &place.dir;
    for other in layouts::beside(dir).into_iter().filter(|other| !other.processes.is_empty()) {
        eprintln!("manyway: {other}. Start them anew with this version, or choose another namespace with --ns.");
    }
    // A private namespace needs somebody who removes it, even if nobody is to look for deaths.
    let duty = Duty { place: place.clone(), reap: !args.no_watcher, end: if args.private { End::Remove } else { End::Leave } };
    if duty.reap || duty.end == End::Remove {
        watcher::start(&duty).unwrap_or_else(|e| {
            eprintln!("manyway: no watcher ({e}): sleepers find the death of a holder within 50 ms instead of at once");
        });
    }

    let mut command = Command::new(&path);
    command
        .arg0(name)
        .args(arguments)
        .env(PRELOAD_VARIABLE, library::preload_list(&library, env::var_os(PRELOAD_VARIABLE).as_deref()))
        .env(DIR_VARIABLE, dir)
        .env_remove(OWNER_VARIABLE);
    if let Some(owner) = owner {
        command.env(OWNER_VARIABLE, owner.to_string());
    }
    let not_executed = |error| Err(Failure::io(format!("cannot execute {}", path.display()), error).status(Status::NotExecutable));
    let Some(to) = &args.report else {
        if args.no_kernel {
            refuse_kernel().map_err(not_run)?;
        }
        return not_executed(command.exec());
    };
    command.env(REPORT_VARIABLE, "1");
    match reported(command, args, &place, to) {
        Ok(code) => std::process::exit(code),
        Err(error) => not_executed(error),
    }
}

/// From here on, nobody can use the kernel's semaphores.
fn refuse_kernel() -> Result<()> {
    let program = kernel_calls::filter(Verdict::Refuse);
    let installed = kernel_calls::install(&program, Verdict::Refuse);
    installed
        .map(drop)
        .map_err(|e| Failure::io("cannot refuse the kernel's semaphore calls", e).advise("The kernel must have seccomp filters."))
}

/// Runs the program as a child and writes the report at its end; its exit code.
fn reported(command: Command, args: &Run, place: &Place, to: &Path) -> io::Result<i32> {
    let engine = place.open(&OpenOptions::FIND).ok();
    let operations = || engine.as_ref().map_or(0, |e| e.operations(&Thread::new()));
    let before = operations();
    let words: Vec<_> = args.program.iter().map(|word| printable(&word.to_string_lossy())).collect();
    let begun =
        Report { command: words.join(" "), namespace: place.dir.display().to_string(), refused: args.no_kernel, ..Report::default() };
    let (code, mut report) = supervise::run(command, begun)?;
    report.operations = operations().saturating_sub(before);
    let written = if to == Path::new("-") {
        io::stderr().write_all(report.to_string().as_bytes())
    } else {
        serde_json::to_string_pretty(&report).map_err(io::Error::from).and_then(|text| fs::write(to, text + "\n"))
    };
    if let Err(e) = written {
        eprintln!("manyway: cannot write the report to {}: {e}", to.display());
    }
    Ok(code)
}

/// How often a namespace is made again that was swept away before it was held.
const SWEPT: usize = 8;

/// Finds or makes the namespace and holds it: from then on nobody takes it for abandoned.
fn enter_namespace(args: &Run) -> Result<(Place, Option<u32>, Gate)> {
    let mut swept = 0;
    loop {
        let (place, owner) = prepare_namespace(args)?;
        match Gate::hold_open(&place.dir) {
            Ok(gate) => return Ok((place, owner, gate)),
            Err(e) if e.kind() == io::ErrorKind::NotFound && swept < SWEPT => swept += 1,
            Err(e) => return Err(Failure::io(format!("cannot lock {}", place.dir.display()), e)),
        }
    }
}

/// Finds or makes the namespace; it is opened to see that the program will be able to. With it the owner that the program must be told,
/// since a process that it starts may be another user's.
fn prepare_namespace(args: &Run) -> Result<(Place, Option<u32>)> {
    let place = if args.private {
        let surroundings = Surroundings::real();
        watcher::remove_abandoned(&surroundings.orphans());
        Place { dir: surroundings.private()?, owner: None }
    } else {
        Place::find(&args.namespace, Intent::Make, args.settings.share)?
    };
    let opened = open(&place, &args.settings.options());
    if opened.is_err() && args.private {
        discard(&place.dir);
    }
    opened
}

/// Opens or makes the namespace; where it is, and the owner that programs must be told.
pub fn open(place: &Place, how: &OpenOptions) -> Result<(Place, Option<u32>)> {
    let engine = place.open(how)?;
    // One spelling for all: the watcher knows the users of a namespace by this value.
    let dir = place.dir.canonicalize().map_err(|e| Failure::io(place.dir.display(), e))?;
    let owner = dir.metadata().map_err(|e| Failure::io(dir.display(), e))?.uid();
    let own = geteuid().as_raw();
    if engine.share() != Share::Nobody && (owner == own || own == 0) {
        // Whoever cannot have a watcher learns of a death within 50 ms.
        let _ = watcher::share(&dir, engine.share());
    }
    let told = (owner != 0 && (owner != own || engine.share() != Share::Nobody)).then_some(owner);
    Ok((Place { dir, owner: place.owner }, told))
}

/// A private directory that nobody will use.
fn discard(dir: &Path) {
    // What cannot be removed is swept away by the next `run --private`.
    let _ = fs::remove_dir_all(dir);
}
