//! Arenas of other versions of Manyway in a namespace's directory: each layout has a file of its own, and programs that have it mapped and
//! those of this version do not see each other's semaphores. Nothing mixes; but partners on two layouts exclude each other no more, so whoever
//! looks is told.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use manyway_sem::LAYOUT;
use serde::Serialize;

use crate::people::Process;
use crate::users;
use crate::watcher;

/// What the file names of arenas of all layouts begin with; a number follows.
const PREFIX: &str = "arena-v";

/// Another layout's arena.
#[derive(Clone, Debug, Serialize)]
pub struct OtherLayout {
    /// Its layout.
    pub layout: u32,
    /// Its file.
    pub file: PathBuf,
    /// Who has it mapped, as far as the caller may see.
    pub processes: Vec<Process>,
}

impl fmt::Display for OtherLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has layout {}, of another version of Manyway (this one has {LAYOUT})", self.file.display(), self.layout)?;
        if self.processes.is_empty() {
            return write!(f, "; nobody is seen to use it");
        }
        let names: Vec<String> = self.processes.iter().map(ToString::to_string).collect();
        write!(f, "; {} there and the programs of this version do not see each other's semaphores", names.join(", "))
    }
}

/// The file names of arenas in a directory, with their layouts.
pub fn arenas(dir: &Path) -> Vec<(u32, PathBuf)> {
    let number = |name: &str| name.strip_prefix(PREFIX).filter(|n| n.bytes().all(|b| b.is_ascii_digit()))?.parse().ok();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect()
}

/// The arenas of other layouts in a namespace's directory. Where there are none, which is nearly always, nobody's memory is looked at.
pub fn beside(dir: &Path) -> Vec<OtherLayout> {
    let others = arenas(dir).into_iter().filter(|&(layout, _)| layout != LAYOUT);
    let mut others: Vec<_> = others
        .map(|(layout, file)| {
            let users = users::mapping(&file).into_iter().filter(|&pid| !watcher::is_one(pid));
            OtherLayout { layout, processes: users.map(Process::look).collect(), file }
        })
        .collect();
    others.sort_by_key(|other| other.layout);
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn names_of_arenas() {
        let top = TestDir::new();
        for name in ["arena-v1", "arena-v2", "arena-v2.new", "arena-v", "arena-v+3", "arena-v99999999999", "watcher.lock"] {
            fs::write(top.path().join(name), "").unwrap();
        }
        let mut found = arenas(top.path());
        found.sort();
        assert_eq!(found, [(1, top.path().join("arena-v1")), (2, top.path().join("arena-v2"))]);
        let beside = beside(top.path());
        assert_eq!(beside.iter().map(|other| (other.layout, other.processes.len())).collect::<Vec<_>>(), [(2, 0)]);
        assert!(
            beside[0]
                .to_string()
                .ends_with("arena-v2 has layout 2, of another version of Manyway (this one has 1); nobody is seen to use it")
        );
    }
}
