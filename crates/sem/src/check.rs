//! Is a namespace sound? Every structure of the arena is read (nothing is written, no lock is taken, no slot either) and compared with what
//! docs/segment.md says of it, for `manyway doctor`. It knows nothing of how the engine changes them, so that a fault there is found here.

use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::String;
use std::vec::Vec;

use manyway_shm::alloc::Kind;
use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU16, Ordering::*};

use crate::engine::Engine;
use crate::id::IdEntry;
use crate::journal::{Kind as Section, parse_head};
use crate::node;
use crate::queue::{Where, unpack};
use crate::set::SetRef;
use crate::slots::*;
use crate::word;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// What the dead have left: the next call that meets it clears it away.
    Left,
    /// A contradiction: a hostile or broken writer's work, or a fault.
    Damage,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// Id of the set that it concerns.
    pub set: Option<i32>,
    /// What it is.
    pub what: String,
}

/// So many findings of one kind are told one by one.
const TOLD: usize = 20;

struct Check<'e> {
    engine: &'e Engine,
    found: Vec<Finding>,
    /// Objects that the roots reach: by byte offset.
    reached: BTreeSet<u64>,
    /// Nonzero adjustments: (set's index, number) → how many, and the exclusive or of process slots.
    held: BTreeMap<(u32, u16), (u32, u32)>,
    /// Sleepers: slot → in how many queues.
    queued: BTreeMap<u32, u32>,
}

impl Engine {
    /// Looks at all structures. What processes change meanwhile may look wrong for a moment: what two looks find is there.
    pub fn check(&self) -> Vec<Finding> {
        let mut c = Check { engine: self, found: Vec::new(), reached: BTreeSet::new(), held: BTreeMap::new(), queued: BTreeMap::new() };
        c.counts();
        c.processes();
        c.threads();
        let sets = c.sets();
        for set in &sets {
            c.cells(set);
        }
        c.sleepers(&sets);
        c.keys(&sets);
        c.bitmaps();
        c.found.sort();
        c.found.dedup();
        c.found
    }
}

impl<'e> Check<'e> {
    fn damage(&mut self, set: Option<&SetRef<'_>>, what: String) {
        self.found.push(Finding { severity: Severity::Damage, set: set.map(|s| s.id()), what });
    }
    fn left(&mut self, set: Option<&SetRef<'_>>, what: String) {
        self.found.push(Finding { severity: Severity::Left, set: set.map(|s| s.id()), what });
    }

    fn counts(&mut self) {
        let h = self.engine.arena.header();
        let counts = [
            ("thread slots in use", &h.threads_high, &h.threads_ready, MAX_SLOTS),
            ("process slots in use", &h.procs_high, &h.procs_ready, MAX_SLOTS),
            ("extents in use", &h.extents, &h.extents_ready, MAX_EXTENTS.next_multiple_of(512)),
            ("the last index", &h.last_index, &h.ids_ready, MAX_SETS),
        ];
        for (what, used, ready, most) in counts {
            let (used, ready) = (used.load(Relaxed), ready.load(Relaxed));
            if used > ready || ready > most {
                self.damage(None, format!("{what}: {used}, of {ready} that are allocated, of {most} that there can be"));
            }
        }
        self.lock(None, "the registry", h.registry.load(Acquire), 0, |kind, _| matches!(kind, Section::Registry | Section::Remove));
        if let Some(d) = self.engine.damage() {
            let kind = d.kind.map_or("something unknown", |k| match k {
                crate::Damage::Lock => "a lock of nobody's, which was opened",
                crate::Damage::Queue => "a queue whose links led astray, which was made anew",
                crate::Damage::Set => "a set whose words say that it is gone",
                crate::Damage::Slot => "a living thread's slot that was somebody else's",
            });
            let index = d.index.map_or(String::new(), |i| format!(", at index {i}"));
            self.damage(None, format!("calls have met damage {} times; last {kind}{index}, met by process {}", d.times, d.pid));
        }
    }

    /// A lock's word: free, or with an owner whose journal (`names`) knows of it.
    fn lock(&mut self, set: Option<&SetRef<'_>>, what: &str, w: u64, free: u64, names: impl Fn(Section, u32) -> bool) {
        if w == free {
            return;
        }
        if w & word::LOCKED == 0 {
            return self.damage(set, format!("the lock of {what} is no lock word ({w:#x})"));
        }
        let owner = word::owner(w);
        let engine = self.engine;
        let Some(ctl) = engine.ctl(owner).filter(|_| !engine.slot_is_nobodys(owner)) else {
            return self.damage(set, format!("{what} is locked by thread slot {owner}, which is nobody's"));
        };
        let (kind, page, _) = parse_head(ctl.head.load(Acquire));
        if !names(kind, page) {
            self.damage(set, format!("{what} is locked by thread {}, which knows nothing of it", ctl.tid.load(Relaxed)));
        } else if engine.context_gone(owner) {
            self.left(set, format!("{what} is locked by thread {}, which is gone", ctl.tid.load(Relaxed)));
        }
    }

    fn reach(&mut self, set: Option<&SetRef<'_>>, at: u64, what: &str) {
        if self.engine.arena.object_at(at).is_none() {
            self.damage(set, format!("{what} at {at:#x} is where no object can be"));
        } else if !self.reached.insert(at) {
            self.damage(set, format!("{what} at {at:#x} has two owners"));
        }
    }

    fn processes(&mut self) {
        let engine = self.engine;
        for proc in 0..engine.procs_high() {
            let Some(p) = engine.proc_slot(proc) else { continue };
            let w = ProcWord(p.word.load(Acquire));
            if w.0 & 3 == 3 {
                self.damage(None, format!("process slot {proc} is in no state that there is"));
            }
            if w.state() == SlotState::Free {
                continue;
            }
            if engine.process_gone(proc) {
                self.left(None, format!("process {} is gone and has a slot", w.by()));
            }
            for (d, dir) in p.dirs.iter().enumerate() {
                let page = dir.load(Acquire) as u64;
                if page == 0 {
                    continue;
                }
                self.reach(None, page * PAGE, "an undo directory");
                if engine.arena.object_at(page * PAGE) == Some(Kind::Directories) {
                    self.directory(proc, w.by(), d as u32, page * PAGE);
                }
            }
        }
    }

    fn directory(&mut self, proc: u32, pid: u32, d: u32, at: u64) {
        let engine = self.engine;
        let Some(words) = engine.arena.at::<Directory>(at) else { return };
        for (i, w) in words.0.iter().enumerate() {
            let (off, index) = (w.load(Acquire) as u64 * 64, d * 1024 + i as u32);
            if off == 0 {
                continue;
            }
            self.reach(None, off, "an undo record");
            let Some((e, set)) = engine.set_of_index(index) else {
                self.damage(None, format!("process {pid} has adjustments for index {index}, where no set is"));
                continue;
            };
            let Some(r) = engine.record(proc, index, e.tag()) else {
                self.damage(Some(&set), format!("process {pid} has adjustments that are another set's"));
                continue;
            };
            if r.head.nsems.load(Relaxed) != set.nsems {
                self.damage(
                    Some(&set),
                    format!("process {pid} has {} adjustments for {} semaphores", r.head.nsems.load(Relaxed), set.nsems),
                );
            }
            for (num, _) in set.cells() {
                if engine.adjustment(proc, &set, num) != 0 {
                    let h = self.held.entry((index, num)).or_default();
                    *h = (h.0 + 1, h.1 ^ proc);
                }
            }
        }
    }

    fn threads(&mut self) {
        let engine = self.engine;
        for slot in 0..engine.threads_high() {
            let (Some(word), Some(ctl)) = (engine.thread_word(slot), engine.ctl(slot)) else { continue };
            let w = ThreadWord(word.load(Acquire));
            if w.0 & 3 == 3 {
                self.damage(None, format!("thread slot {slot} is in no state that there is"));
            }
            if w.state() != SlotState::Live {
                continue;
            }
            let tid = ctl.tid.load(Relaxed);
            let owner = engine.proc_slot(w.by()).map(|p| ProcWord(p.word.load(Acquire)).state());
            if !matches!(owner, Some(SlotState::Live | SlotState::Claimed)) && w.recoverer().is_none() {
                self.damage(None, format!("thread {tid} belongs to no process"));
            } else if engine.context_gone(slot) {
                self.left(None, format!("thread {tid} is gone and has a slot"));
            }
        }
    }

    fn sets(&mut self) -> Vec<SetRef<'e>> {
        let engine = self.engine;
        let (mut sets, mut sems) = (Vec::new(), 0u64);
        for index in 0..engine.arena.header().ids_ready.load(Acquire).min(MAX_SETS) {
            let Some(e) = engine.id_word(index).map(IdEntry::find).filter(|e| e.0 != 0) else { continue };
            if e.tag() == 0 || !engine.arena.is_set(e.at()) {
                self.damage(None, format!("index {index} leads to {:#x}, where no set is", e.at()));
                continue;
            }
            let Some((_, set)) = engine.set_of_index(index) else {
                self.damage(None, format!("the set at index {index} has more semaphores than any set can have"));
                continue;
            };
            self.reach(Some(&set), e.at(), "the set");
            let h = set.head;
            for (what, is, should) in
                [("tag", h.tag.load(Relaxed), e.tag()), ("index", h.index.load(Relaxed), index), ("seq", h.seq.load(Relaxed), e.seq())]
            {
                if is != should {
                    self.damage(Some(&set), format!("its head says {what} {is}, the id table {should}"));
                }
            }
            if set.nsems == 0 || Kind::for_set(set.nsems) != engine.arena.object_at(e.at()) {
                self.damage(Some(&set), format!("its size, {} semaphores, is not that of its memory", set.nsems));
            }
            if h.mode.load(Relaxed) & !0o777 != 0 {
                self.damage(Some(&set), format!("its mode is {:o}", h.mode.load(Relaxed)));
            }
            let (page, free) = (set.page(), word::tag_bits(set.tag));
            self.lock(Some(&set), "the set", h.lock.load(Acquire), free, |kind, p| {
                p == page && matches!(kind, Section::Set | Section::SetAllCommit | Section::Registry | Section::Remove)
            });
            sems += u64::from(set.nsems);
            sets.push(set);
        }
        let h = engine.arena.header();
        let (n, all) = (h.sets.load(Relaxed), h.sems.load(Relaxed));
        if (n as usize, u64::from(all)) != (sets.len(), sems) {
            self.damage(None, format!("{n} sets of {all} semaphores are counted, {} of {sems} are there", sets.len()));
        }
        sets
    }

    fn cells(&mut self, set: &SetRef<'e>) {
        let page = set.page();
        let mut wrong = 0;
        for (num, cell) in set.cells() {
            if wrong > TOLD {
                return self.damage(Some(set), format!("semaphore {num} and those behind it were not looked at"));
            }
            let before = self.found.len();
            self.cell(set, num, cell, page);
            wrong += usize::from(self.found.len() > before);
        }
        for which in [Where::SetAlter, Where::SetConst] {
            self.queue(set, 0, which);
        }
    }

    fn cell(&mut self, set: &SetRef<'e>, num: u16, cell: &Cell, page: u32) {
        let w = cell.word.load(Acquire);
        let what = format!("semaphore {num}");
        if w & word::LOCKED != 0 {
            self.lock(Some(set), &what, w, 0, |kind, p| p == page && kind != Section::Idle);
        } else if word::tag(w) != set.tag || w & word::REMOVED != 0 {
            self.damage(Some(set), format!("{what} says that it is gone, or another set's"));
        } else {
            let complex = w & word::COMPLEX != 0;
            let sleepers = cell.zero.head.load(Relaxed) != 0 || (cell.alter.head.load(Relaxed) != 0 && !complex);
            if sleepers && w & (word::WAITERS | word::COMPLEX) == 0 {
                self.damage(Some(set), format!("{what} has sleepers and does not say so"));
            }
            if complex != (cell.ncomplex.load(Relaxed) != 0) {
                self.damage(Some(set), format!("{what} counts {} sleeping calls of several operations", cell.ncomplex.load(Relaxed)));
            }
            let h = cell.holders.load(Relaxed);
            let (n, xor) = self.held.get(&(set.index, num)).copied().unwrap_or_default();
            if h != u64::from(n) << 32 | u64::from(xor) {
                self.damage(Some(set), format!("{what} counts {} holders, there are {n}", word::holders::count(h)));
            }
        }
        if w & 1 << 19 != 0 {
            self.damage(Some(set), format!("{what} has a bit that means nothing"));
        }
        self.queue(set, num, Where::Zero);
        self.queue(set, num, Where::Alter);
    }

    /// A queue's links, both ways, and its order.
    fn queue(&mut self, set: &SetRef<'e>, num: u16, which: Where) {
        let engine = self.engine;
        let Some(q) = engine.queue(set, num, which) else { return };
        let place = match which {
            Where::SetAlter | Where::SetConst => String::from("the set's queue"),
            _ => format!("the queue of semaphore {num}"),
        };
        let (mut last, mut ticket, mut next) = (0, 0, q.head.load(Relaxed));
        for _ in 0..=engine.threads_high() {
            let Some(slot) = next.checked_sub(1) else {
                if q.tail.load(Relaxed) != last {
                    self.damage(Some(set), format!("{place} has another end than it says"));
                }
                return;
            };
            let Some(ctl) = engine.ctl(slot).filter(|c| engine.is_of(set, num, which, c)) else {
                return self.damage(Some(set), format!("{place} leads to thread slot {slot}, which is not in it"));
            };
            if ctl.prev.load(Relaxed) != last {
                self.damage(Some(set), format!("{place} is not the same backwards"));
            }
            if ctl.ticket.load(Relaxed) < ticket {
                self.damage(Some(set), format!("{place} is not in order of arrival"));
            }
            *self.queued.entry(slot).or_default() += 1;
            (last, ticket, next) = (next, ctl.ticket.load(Relaxed), ctl.next.load(Relaxed));
        }
        self.damage(Some(set), format!("{place} is a circle"));
    }

    /// Whoever sleeps is in one queue, of the set that it sleeps on; a call of several operations is counted where it should be.
    fn sleepers(&mut self, sets: &[SetRef<'e>]) {
        let engine = self.engine;
        let by_page: BTreeMap<(u32, u32), &SetRef<'e>> = sets.iter().map(|s| ((s.page(), s.tag), s)).collect();
        let mut complex: BTreeMap<(u32, u16), u32> = BTreeMap::new();
        for slot in 0..engine.threads_high() {
            let Some(ctl) = engine.ctl(slot) else { continue };
            let Some((call, _)) = node::read(ctl) else { continue };
            let tid = ctl.tid.load(Relaxed);
            let Some(set) = by_page.get(&call.set) else {
                self.damage(None, format!("thread {tid} sleeps on a set that there is not"));
                continue;
            };
            match self.queued.get(&slot) {
                Some(1) => {}
                None => self.damage(Some(set), format!("thread {tid} sleeps and is in no queue")),
                Some(n) => self.damage(Some(set), format!("thread {tid} is in {n} queues")),
            }
            if call.nops == 0 || call.nops > MAX_OPM || u32::from(unpack(call.op).num) >= set.nsems {
                self.damage(Some(set), format!("thread {tid} sleeps in a call that cannot be"));
            }
            if call.nops > 1 {
                let nums: BTreeSet<u16> = engine.node_ops(slot, ctl).map(|o| o.num).collect();
                nums.into_iter().for_each(|num| *complex.entry((set.index, num)).or_default() += 1);
            }
            if engine.context_gone(slot) {
                self.left(Some(set), format!("thread {tid} sleeps, and is gone"));
            }
        }
        for set in sets {
            for (num, cell) in set.cells() {
                let (is, should) = (cell.ncomplex.load(Relaxed), complex.get(&(set.index, num)).copied().unwrap_or(0));
                if is != should {
                    self.damage(Some(set), format!("semaphore {num} counts {is} sleeping calls of several operations, there are {should}"));
                }
            }
        }
    }

    fn keys(&mut self, sets: &[SetRef<'e>]) {
        let engine = self.engine;
        let mut found = BTreeSet::new();
        for bucket in 0..KEY_BUCKETS as u64 {
            let mut next = engine.arena.at::<AtomicU16>(KEY_HASH_AT + bucket * 2).map_or(0, |w| u32::from(w.load(Relaxed)));
            while let Some(index) = next.checked_sub(1) {
                let Some((_, set)) = engine.set_of_index(index) else {
                    self.damage(None, format!("the key table leads to index {index}, where no set is"));
                    break;
                };
                if !found.insert(index) {
                    self.damage(Some(&set), String::from("the key table leads to it twice"));
                    break;
                }
                next = set.head.next_key.load(Relaxed);
            }
        }
        for set in sets {
            let key = set.head.key.load(Relaxed);
            let by_key = engine.find_key(key).is_some_and(|s| s.index == set.index);
            if key != 0 && !by_key {
                self.damage(Some(set), format!("it is not found by its key {key:#010x}"));
            }
        }
    }

    /// What is in use is what the roots reach.
    fn bitmaps(&mut self) {
        let (mut lost, mut unmarked) = (0, 0);
        let reached = core::mem::take(&mut self.reached);
        self.engine.arena.each_object(&mut |at, used| match (used, reached.contains(&at)) {
            (true, false) => lost += 1,
            (false, true) => unmarked += 1,
            _ => {}
        });
        if lost > 0 {
            self.damage(None, format!("{lost} objects are in use that nothing leads to"));
        }
        if unmarked > 0 {
            self.damage(None, format!("{unmarked} objects are in use and counted as free"));
        }
    }
}
