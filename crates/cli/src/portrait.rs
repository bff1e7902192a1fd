//! A namespace as a whole, as serde types.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use manyway_sem::{Engine, OpenOptions};
use serde::Serialize;

use crate::explain;
use crate::layouts;
use crate::namespace::Place;
use crate::people::{Names, Process, is_alive};

/// A namespace.
#[derive(Serialize)]
pub struct Portrait {
    /// Its name; of another user's OWNER/NAME; of one that has none the directory.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// The owner's name.
    pub owner: String,
    /// The owner's number.
    pub uid: u32,
    /// What it occupies.
    pub bytes: u64,
    /// What is in it; absent when it cannot be opened.
    #[serde(flatten)]
    pub inside: Option<Inside>,
    /// Why it cannot be opened.
    pub error: Option<String>,
}

/// What only one who opens a namespace knows.
#[derive(Serialize)]
pub struct Inside {
    /// "nobody", "group NAME", "all users".
    pub share: String,
    /// "strict" or "barging".
    pub fairness: &'static str,
    /// SEMMSL,SEMMNS,SEMOPM,SEMMNI.
    pub limits: String,
    /// Sets.
    pub sets: i32,
    /// Semaphores in them.
    pub semaphores: i32,
    /// Processes that have used it and live.
    pub processes: usize,
    /// Its watcher.
    pub watcher: Option<Process>,
}

impl Portrait {
    /// Looks at a namespace.
    pub fn of(name: String, place: &Place) -> Portrait {
        let uid = place.dir.symlink_metadata().map_or(u32::MAX, |meta| meta.uid());
        let opened = place.open(&OpenOptions::FIND);
        let error = opened.as_ref().err().map(|failure| failure.what().to_owned());
        Portrait {
            name,
            dir: place.dir.clone(),
            owner: Names::new().user(uid),
            uid,
            bytes: layouts::arenas(&place.dir).iter().filter_map(|(_, file)| Some(file.symlink_metadata().ok()?.blocks() * 512)).sum(),
            inside: opened.ok().map(|engine| Inside::of(&engine)),
            error,
        }
    }
}

impl Inside {
    fn of(engine: &Engine) -> Inside {
        let info = engine.info();
        Inside {
            share: explain::share(engine.share()),
            fairness: explain::fairness(engine.fairness()),
            limits: explain::limits(engine.limits()),
            sets: info.sets,
            semaphores: info.sems,
            processes: processes(engine).len(),
            watcher: Some(engine.watcher()).filter(|&pid| pid != 0).map(Process::look).filter(|watcher| watcher.alive),
        }
    }
}

/// Processes that have used the namespace and live, but for the caller and the watcher.
pub fn processes(engine: &Engine) -> Vec<u32> {
    let mut pids = Vec::new();
    engine.for_each_process(&mut |pid| pids.push(pid));
    pids.retain(|&pid| pid != std::process::id() && pid != engine.watcher() && is_alive(pid));
    pids
}

/// Bytes as a person reads them.
pub fn size(bytes: u64) -> String {
    match bytes >> 10 {
        kib @ ..10_000 => format!("{kib} KiB"),
        kib @ ..10_000_000 => format!("{} MiB", kib >> 10),
        kib => format!("{} GiB", kib >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size(20 << 10), "20 KiB");
        assert_eq!(size(100 << 20), "100 MiB");
        assert_eq!(size(30 << 30), "30 GiB");
    }
}
