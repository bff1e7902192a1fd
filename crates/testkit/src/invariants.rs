//! What must hold in an arena in which nobody is on the way: every structure against the truth that it is made from, by reading alone.
//!
//! It shares with the engine the layout and the bits of the words, none of the code that walks, counts or decides. docs/crash-model.md says
//! which structures are the truth (values, adjustments, node states with their tickets, id table, slot words) and which are caches.

mod objects;
mod sets;
mod slots;

use std::collections::BTreeMap;
use std::fmt;

use crate::image::Mapped;

/// What an arena means to programs: what a death must not change in part.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Meaning {
    /// By id.
    pub sets: BTreeMap<i32, SetMeaning>,
    /// The threads of living processes that have slept and how that ended, or that sleep, by thread slot: the node's state word without the mark
    /// that says whether it had parked.
    pub nodes: BTreeMap<u32, u32>,
}

/// What a set means to programs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetMeaning {
    /// Key.
    pub key: i32,
    /// Low nine bits of the mode; owner; owner's group.
    pub access: (u32, u32, u32),
    /// The value of each semaphore.
    pub values: Vec<u16>,
    /// Process slot, semaphore, adjustment, where it is not 0.
    pub adjustments: Vec<(u32, u16, i16)>,
    /// The thread slots that sleep here, in order of arrival.
    pub sleepers: Vec<u32>,
}

/// What is wrong in an arena.
#[derive(Clone, Debug, Default)]
pub struct Violations(pub Vec<String>);

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// Looks at a whole arena at rest. `alive` tells of a process's pid and pidfs inode whether it lives. The result is what it means; an error
/// says what does not hold.
pub fn check(arena: &Mapped, alive: &dyn Fn(u32, u64) -> bool) -> Result<Meaning, Violations> {
    let mut seen = Seen { arena, wrong: Vec::new(), sets: BTreeMap::new(), records: BTreeMap::new(), used: BTreeMap::new() };
    seen.look_at_sets();
    let procs = seen.look_at_processes(alive);
    let sleepers = seen.look_at_threads(&procs);
    let meaning = seen.look_at_cells(&sleepers);
    seen.look_at_keys();
    seen.look_at_objects();
    if seen.wrong.is_empty() { Ok(Meaning { nodes: sleepers.nodes, sets: meaning }) } else { Err(Violations(seen.wrong)) }
}

/// A set that the id table leads to.
#[derive(Clone, Copy, Debug)]
struct SetAt {
    at: u64,
    tag: u32,
    nsems: u32,
    id: i32,
}

/// A look at an arena.
struct Seen<'a> {
    arena: &'a Mapped,
    wrong: Vec<String>,
    /// By index.
    sets: BTreeMap<u32, SetAt>,
    /// (set index, process slot) → where its adjustments begin.
    records: BTreeMap<(u32, u32), u64>,
    /// Offset of each object that the roots reach → its bytes.
    used: BTreeMap<u64, u64>,
}

/// More than this is not reported: one broken link breaks the rest.
const ENOUGH: usize = 8;

impl Seen<'_> {
    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.wrong.len() < ENOUGH {
            self.wrong.push(what());
        }
    }
    fn same<T: PartialEq + fmt::Debug>(&mut self, what: &str, is: T, should_be: T) {
        if is != should_be && self.wrong.len() < ENOUGH {
            self.wrong.push(format!("{what} is {is:?} and should be {should_be:?}"));
        }
    }
    fn uses(&mut self, at: u64, bytes: u64) {
        let twice = self.used.insert(at, bytes).is_some();
        self.expect(!twice, || format!("the object at {at:#x} is used twice"));
    }
}
