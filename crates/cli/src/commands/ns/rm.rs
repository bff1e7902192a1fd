//! `manyway ns rm`.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use manyway_sem::{OpenOptions, Thread};
use rustix::fs::{AtFlags, unlinkat};
use rustix::process::geteuid;
use serde::Serialize;

use crate::args::NsRm;
use crate::exit::{Failure, Result};
use crate::namespace::{Intent, Place};
use crate::output::{Report, Sheet, emit};
use crate::people::Process;
use crate::users::{self, Gate};

/// What is removed with a namespace; other files are not Manyway's.
const FILES: [&str; 3] = ["arena-v1", "arena-v1.new", "watcher.lock"];

/// What was removed.
#[derive(Serialize)]
struct Removal {
    namespace: PathBuf,
    /// Sets that were in it.
    sets: usize,
    /// Processes that used it.
    processes: Vec<Process>,
}

impl Report for Removal {
    fn draw(&self, sheet: &mut Sheet) {
        sheet.line(format!("removed {}", self.namespace.display()));
    }
}

pub fn run(args: &NsRm) -> Result<()> {
    let place = Place::find(&args.namespace, Intent::Find, None)?;
    own(&place)?;
    let dir = place.dir.canonicalize().map_err(|e| Failure::io(place.dir.display(), e))?;
    let locked = |e| Failure::io(format!("{} is about to be used", dir.display()), e).advise("Try again; or remove it with --force.");
    let _closed = if args.force { Gate::close(&dir) } else { Gate::close_soon(&dir) }.map_err(locked)?;
    // What is damaged or of another version has nothing to be ended.
    let engine = match place.open(&OpenOptions::FIND) {
        Ok(engine) => Some(engine),
        Err(_) if args.force => None,
        Err(failure) => return Err(failure),
    };
    let users = engine.as_ref().map_or_else(Vec::new, |engine| users::of(&dir, engine));
    let sets = engine.as_ref().map_or(0, |engine| engine.info().sets);
    if !args.force && (sets > 0 || !users.is_empty()) {
        let names: Vec<String> = users.iter().map(ToString::to_string).collect();
        let used = if names.is_empty() { String::new() } else { format!(", and is used by {}", names.join(", ")) };
        return Err(Failure::new(format!("{} has {sets} sets{used}", dir.display()))
            .advise("Remove it with --force: sleeping calls fail with EIDRM, and what programs hold is lost."));
    }
    let ended = engine.map(|engine| engine.end(&Thread::new()));
    let sets = ended.transpose().map_err(|e| Failure::io(format!("cannot end {}", dir.display()), e))?.unwrap_or(0);
    remove_files(&dir)?;
    emit(&Removal { namespace: dir, sets, processes: users }, args.json)
}

/// Checks that the namespace is the caller's to change: his own, or he is root.
pub fn own(place: &Place) -> Result<()> {
    let dir = place.dir.display();
    let meta = place.dir.symlink_metadata().map_err(|e| match e.kind() {
        ErrorKind::NotFound => Failure::new(format!("there is no namespace in {dir}")).advise("`manyway ns ls` lists them."),
        _ => Failure::io(dir, e),
    })?;
    let own = geteuid().as_raw();
    if own == 0 || own == meta.uid() {
        return Ok(());
    }
    Err(Failure::new(format!("{} belongs to user {}", place.dir.display(), meta.uid()))
        .advise("Only its owner and root can change or remove it."))
}

fn remove_files(dir: &PathBuf) -> Result<()> {
    let failed = |e: std::io::Error| Failure::io(format!("cannot remove {}", dir.display()), e);
    let open: File = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(dir).map_err(failed)?;
    for name in FILES {
        match unlinkat(&open, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(failed(e.into())),
        }
    }
    match fs::remove_dir(dir) {
        Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {
            eprintln!("manyway: {} stays: there are files in it that are not Manyway's, or are another version's", dir.display());
            Ok(())
        }
        removed => removed.map_err(failed),
    }
}
