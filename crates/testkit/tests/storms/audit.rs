//! The namespace as it lies in memory, judged by what the documents say of it. Nothing is called and nothing is locked: a set of which a lock
//! is held, by a stopped process or a dead one, is in the middle of something and is left for the next audit.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::*;

use manyway_sem::id::{INDEX_BITS, IdEntry};
use manyway_sem::slotword::{ProcWord, SlotState, ThreadWord, is_marked};
use manyway_sem::word::{self, holders};
use manyway_sem::{Fairness, node};
use manyway_shm::Arena;
use manyway_shm::alloc::Kind;
use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicI16, AtomicU32, AtomicU64};

use crate::ledger::{Ledger, SETS, UNITS, Unit, Use, use_of};

const SET_KINDS: [Kind; 6] = [Kind::Set1, Kind::Set4, Kind::Set16, Kind::Set64, Kind::Set256, Kind::Set1023];
const UNDO_KINDS: [Kind; 7] = [Kind::Undo64, Kind::Undo256, Kind::Undo1K, Kind::Undo4K, Kind::Undo16K, Kind::Undo64K, Kind::Undo256K];

/// Plain units that died with their holders: certainly so many, and perhaps so many more.
pub type Losses = HashMap<(usize, u16), (u32, u32)>;

/// How much was judged.
#[derive(Debug, Default)]
pub struct Judged {
    pub sets: u64,
    pub sleepers: u64,
    /// Sets and tables that were in the middle of something.
    pub busy: u64,
}

/// A set in memory.
struct Lies<'a> {
    head: &'a SetHead,
    at: u64,
    tag: u32,
    nsems: u32,
    index: u32,
}

/// A sleeper.
pub struct Node<'a> {
    pub slot: u32,
    pub ctl: &'a ThreadCtl,
    pub call: node::Call,
    pub seq: u32,
    pub ticket: u64,
    gone: bool,
}

/// Bits of a packed operation.
const fn num_of(op: u64) -> u16 {
    op as u16
}
const fn amount_of(op: u64) -> i32 {
    (op >> 16) as u16 as i16 as i32
}

// A node's `linked`.
const ZERO: u32 = 1;
const ALTER: u32 = 2;

pub struct Audit<'a> {
    pub arena: &'a Arena,
    pub ledger: &'a Ledger,
}

impl<'a> Audit<'a> {
    fn at<T: Shared>(&self, at: u64) -> &'a T {
        self.arena.at(at).unwrap_or_else(|| panic!("offset {at:#x} is outside the arena"))
    }
    pub fn threads_high(&self) -> u32 {
        self.arena.header().threads_high.load(Acquire)
    }
    pub fn procs_high(&self) -> u32 {
        self.arena.header().procs_high.load(Acquire)
    }
    pub fn thread_word(&self, slot: u32) -> ThreadWord {
        ThreadWord::read(self.at::<AtomicU64>(THREAD_WORDS_AT + u64::from(slot) * 8))
    }
    pub fn proc_slot(&self, proc: u32) -> &'a ProcSlot {
        self.at(PROCS_AT + u64::from(proc) * size_of::<ProcSlot>() as u64)
    }
    pub fn proc_word(&self, proc: u32) -> ProcWord {
        ProcWord::read(&self.proc_slot(proc).word)
    }
    fn thread_at(&self, slot: u32) -> Option<u64> {
        let extent = self.arena.header().thread_extents[(slot / THREADS_PER_EXTENT) as usize].load(Acquire);
        let within = u64::from(slot % THREADS_PER_EXTENT) * THREAD_PAGES * PAGE;
        Some(EXTENTS_AT + u64::from(extent.checked_sub(1)?) * EXTENT + within)
    }
    pub fn ctl(&self, slot: u32) -> Option<&'a ThreadCtl> {
        Some(self.at(self.thread_at(slot)? + PAGE))
    }

    /// Everybody who sleeps.
    pub fn nodes(&self) -> Vec<Node<'a>> {
        let node = |slot| {
            let ctl = self.ctl(slot)?;
            let (call, seq) = node::read(ctl)?;
            (self.thread_word(slot).state() == SlotState::Live).then(|| Node {
                slot,
                ctl,
                call,
                seq,
                ticket: ctl.ticket.load(Relaxed),
                gone: is_marked(ctl),
            })
        };
        (0..self.threads_high()).filter_map(node).collect()
    }

    fn set_at(&self, index: u32) -> Option<(IdEntry, Lies<'a>)> {
        let e = IdEntry::find(self.at::<AtomicU64>(IDS_AT + u64::from(index) * 8));
        if e.0 == 0 {
            return None;
        }
        let head: &SetHead = self.at(e.at());
        Some((e, Lies { head, at: e.at(), tag: e.tag(), nsems: head.nsems.load(Relaxed), index }))
    }
    fn cell(&self, set: &Lies<'_>, num: u32) -> &'a Cell {
        self.at(set.at + size_of::<SetHead>() as u64 + u64::from(num) * size_of::<Cell>() as u64)
    }
    fn cells(&self, set: &Lies<'_>) -> impl Iterator<Item = (u32, &'a Cell)> {
        (0..set.nsems).map(|n| (n, self.cell(set, n)))
    }
    fn is_busy(&self, set: &Lies<'_>) -> bool {
        let locked = |w: &AtomicU64| w.load(Acquire) & word::LOCKED != 0;
        locked(&set.head.lock) || self.cells(set).any(|(_, c)| locked(&c.word))
    }

    /// The adjustments of each process slot in use for a set.
    fn adjustments(&self, set: &Lies<'_>) -> Vec<(u32, Vec<i32>)> {
        let mut all = Vec::new();
        for proc in 0..self.procs_high() {
            if self.proc_word(proc).state() != SlotState::Live {
                continue;
            }
            let page = self.proc_slot(proc).dirs[(set.index >> 10) as usize].load(Acquire);
            if page == 0 {
                continue;
            }
            let record = self.at::<AtomicU32>(u64::from(page) * PAGE + u64::from(set.index & 1023) * 4).load(Acquire);
            let at = u64::from(record) * 64;
            if record != 0 && self.at::<UndoHead>(at).tag.load(Acquire) == set.tag {
                let adj = |n| i32::from(self.at::<AtomicI16>(at + UNDO_ADJ_AT + u64::from(n) * 2).load(Relaxed));
                all.push((proc, (0..set.nsems).map(adj).collect()));
            }
        }
        all
    }

    /// Judges all that lies there. `resting`: nobody is in a call.
    pub fn judge(&self, fairness: Fairness, losses: &Losses, resting: bool) -> Result<Judged, String> {
        let mut judged = Judged::default();
        let nodes = self.nodes();
        self.registry(&mut judged)?;
        self.slots()?;
        let index_of = |s: usize| self.ledger.sets[s].load(SeqCst);
        for s in 0..SETS {
            let id = index_of(s);
            let Some((e, set)) = (id != 0).then(|| self.set_at(id as u32 & ((1 << INDEX_BITS) - 1))).flatten() else { continue };
            if e.seq() != id as u32 >> INDEX_BITS {
                continue;
            }
            if self.is_busy(&set) {
                judged.busy += 1;
                continue;
            }
            let wrong = |what: String| format!("set {s}, id {id}: {what}");
            self.units(s, &set, losses).map_err(wrong)?;
            judged.sleepers += self.sleepers(&set, &nodes, fairness).map_err(wrong)?;
            judged.sets += 1;
        }
        if resting && let Some(n) = nodes.iter().find(|n| !n.gone) {
            return Err(format!("slot {} sleeps, but everybody rests: {:?}", n.slot, n.call));
        }
        Ok(judged)
    }

    /// Values, adjustments and holders of a set.
    fn units(&self, s: usize, set: &Lies<'_>, losses: &Losses) -> Result<(), String> {
        let adjustments = self.adjustments(set);
        let mut sum = 0;
        for (num, cell) in self.cells(set) {
            let value = word::value(cell.word.load(Acquire));
            let held: i32 = adjustments.iter().map(|(_, a)| a[num as usize]).sum();
            sum += value;
            let right = match use_of(s) {
                Use::Undo => value + held == i32::from(UNITS),
                Use::Moves => held == 0,
                Use::Plain => {
                    let (out, perhaps) = self.out(s, num as u16, losses);
                    let most = i32::from(UNITS) - out as i32;
                    held == 0 && value <= most && value >= most - perhaps as i32
                }
            };
            if !right {
                let (out, perhaps) = self.out(s, num as u16, losses);
                return Err(format!("semaphore {num} ({:?}) has {value}, {held} are held, {out} out, {perhaps} perhaps", use_of(s)));
            }
            let count = adjustments.iter().fold(0, |h, (proc, a)| holders::changed(h, *proc, 0, a[num as usize]));
            if count != cell.holders.load(Acquire) {
                return Err(format!("semaphore {num} counts its holders as {:#x}, they are {count:#x}", cell.holders.load(Acquire)));
            }
        }
        if use_of(s) == Use::Moves && sum != i32::from(UNITS) * set.nsems as i32 {
            return Err(format!("{sum} units in {} semaphores", set.nsems));
        }
        Ok(())
    }

    /// Plain units of a semaphore that are out, and those whose taking or giving was cut short or is on its way.
    fn out(&self, s: usize, num: u16, losses: &Losses) -> (u32, u32) {
        let (mut out, mut perhaps) = losses.get(&(s, num)).copied().unwrap_or_default();
        for (crew, _) in self.ledger.enlisted() {
            for hand in &crew.hands {
                match hand.noted() {
                    Unit::Held(a, b) if (a, b) == (s, num) => out += 1,
                    Unit::Taking(a, b) | Unit::Giving(a, b) if (a, b) == (s, num) => perhaps += 1,
                    _ => {}
                }
            }
        }
        (out, perhaps)
    }

    fn ops(&self, n: &Node<'_>) -> Vec<u64> {
        match n.call.nops {
            1 => vec![n.call.op],
            nops => {
                let at = self.thread_at(n.slot).expect("it has slept");
                (0..nops.min(MAX_OPM)).map(|i| self.at::<AtomicU64>(at + u64::from(i) * 8).load(Relaxed)).collect()
            }
        }
    }

    fn could_proceed(&self, set: &Lies<'_>, ops: &[u64]) -> bool {
        let mut values = HashMap::new();
        ops.iter().all(|op| {
            let num = num_of(*op).into();
            let value = values.entry(num).or_insert_with(|| word::value(self.cell(set, num).word.load(Acquire)));
            if amount_of(*op) == 0 {
                return *value == 0;
            }
            *value += amount_of(*op);
            *value >= 0
        })
    }

    /// Queues and sleepers of a set. Nobody sleeps who could proceed, whatever the time: the one who made it possible has the lock until he
    /// is served. (In a barging namespace he has been nudged, and looks for himself.)
    fn sleepers(&self, set: &Lies<'_>, nodes: &[Node<'_>], fairness: Fairness) -> Result<u64, String> {
        let here: Vec<&Node<'_>> = nodes.iter().filter(|n| n.call.set == ((set.at / PAGE) as u32, set.tag)).collect();
        let queued = self.queued(set, &here)?;
        let mut named = HashMap::<u32, u32>::new();
        let mut first = HashSet::new();
        let mut judged = 0;
        let mut sleepers = here.clone();
        sleepers.sort_by_key(|n| n.ticket);
        for n in sleepers {
            let ops = self.ops(n);
            // Of those who want to take from a cell a barging namespace nudges the first that could. He is not parked then. One who has died of it
            // since is still the one, until somebody takes him out of the queue.
            let nudged = fairness == Fairness::Barging && ops.len() == 1 && amount_of(ops[0]) < 0;
            let could_proceed = self.could_proceed(set, &ops);
            let parked = n.ctl.state.load(Acquire) == node::parked(n.seq);
            if n.gone {
                if nudged && could_proceed && !parked {
                    first.insert(num_of(ops[0]));
                }
                continue;
            }
            judged += 1;
            if !queued.contains(&n.slot) {
                return Err(format!("slot {} sleeps for {ops:x?} and is in no queue", n.slot));
            }
            if ops.len() > 1 {
                let nums: HashSet<u32> = ops.iter().map(|o| num_of(*o).into()).collect();
                nums.into_iter().for_each(|num| *named.entry(num).or_default() += 1);
            }
            // One who has parked, but waits for a lock, or is about to look, has not gone to sleep yet: nobody owes him a nudge.
            if could_proceed && (!nudged || first.insert(num_of(ops[0])) && parked && is_in_futex(n.ctl.tid.load(Acquire))) {
                return Err(format!("slot {} sleeps for {ops:x?} and could proceed; {}", n.slot, self.cell_text(set, num_of(ops[0]))));
            }
        }
        for (num, n) in named {
            let cell = self.cell(set, num);
            if cell.word.load(Acquire) & word::COMPLEX == 0 || cell.ncomplex.load(Acquire) < n {
                return Err(format!(
                    "{n} calls of several operations that name semaphore {num} sleep; {}",
                    self.cell_text(set, num as u16)
                ));
            }
        }
        Ok(judged)
    }

    fn cell_text(&self, set: &Lies<'_>, num: u16) -> String {
        let cell = self.cell(set, num.into());
        let w = cell.word.load(Acquire);
        format!("semaphore {num}: value {}, word {w:#x}, {} complex sleepers", word::value(w), cell.ncomplex.load(Acquire))
    }

    /// Walks all queues of a set: in order of tickets, linked both ways, and all in them sleep here.
    fn queued(&self, set: &Lies<'_>, here: &[&Node<'_>]) -> Result<HashSet<u32>, String> {
        let mut all = HashSet::new();
        let mut walk = |q: &Queue, linked: u32, name: &str| -> Result<(), String> {
            let (mut next, mut last, mut ticket) = (q.head.load(Acquire), 0, 0);
            while let Some(slot) = next.checked_sub(1) {
                let ctl = self.ctl(slot).ok_or("a queue leads to no slot")?;
                let here = here.iter().any(|n| n.slot == slot);
                // One who is gone may have been cleared away, but is not where others are looked for.
                if !here && !is_marked(ctl) {
                    return Err(format!("{name} has slot {slot}, which does not sleep here: {:#x}", ctl.state.load(Acquire)));
                }
                let now = ctl.ticket.load(Relaxed);
                if now < ticket || ctl.prev.load(Relaxed) != last || ctl.linked.load(Relaxed) != linked && here {
                    return Err(format!("{name} is not in order at slot {slot}: ticket {now} behind {ticket}"));
                }
                if !all.insert(slot) {
                    return Err(format!("slot {slot} is in two queues, or twice in {name}"));
                }
                (last, ticket) = (next, now);
                next = ctl.next.load(Relaxed);
            }
            if q.tail.load(Acquire) != last {
                return Err(format!("{name} ends with {}, its tail is {}", last, q.tail.load(Acquire)));
            }
            Ok(())
        };
        for (num, cell) in self.cells(set) {
            walk(&cell.zero, ZERO, &format!("the zero queue of semaphore {num}"))?;
            let complex = cell.word.load(Acquire) & word::COMPLEX != 0;
            walk(&cell.alter, ALTER, &format!("the alter queue of semaphore {num}"))?;
            let waiters = cell.zero.head.load(Acquire) != 0 || cell.alter.head.load(Acquire) != 0;
            if waiters && !complex && cell.word.load(Acquire) & word::WAITERS == 0 {
                return Err(format!("semaphore {num} has sleepers and does not say so: {:#x}", cell.word.load(Acquire)));
            }
        }
        walk(&set.head.alter, 3, "the set's alter queue")?;
        walk(&set.head.consts, 4, "the set's queue of waits for zeros")?;
        Ok(all)
    }

    /// Counts and bitmaps against what the roots reach, unless somebody is at them.
    fn registry(&self, judged: &mut Judged) -> Result<(), String> {
        let h = self.arena.header();
        if h.registry.load(Acquire) != 0 {
            judged.busy += 1;
            return Ok(());
        }
        let (mut sets, mut sems) = (0, 0);
        for index in 0..h.ids_ready.load(Acquire) {
            if let Some((_, set)) = self.set_at(index) {
                sets += 1;
                sems += set.nsems;
            }
        }
        let (mut dirs, mut records) = (0, 0);
        for proc in 0..self.procs_high() {
            for dir in &self.proc_slot(proc).dirs {
                let page = u64::from(dir.load(Acquire));
                if page != 0 {
                    dirs += 1;
                    records += self.at::<Directory>(page * PAGE).0.iter().filter(|w| w.load(Acquire) != 0).count() as u64;
                }
            }
        }
        let in_use = |kinds: &[Kind]| kinds.iter().map(|k| self.arena.in_use(*k)).sum::<u64>();
        let counted = (h.sets.load(Acquire), h.sems.load(Acquire), in_use(&SET_KINDS), in_use(&[Kind::Directories]), in_use(&UNDO_KINDS));
        let found = (sets, sems, u64::from(sets), dirs, records);
        if counted != found {
            return Err(format!("sets, semaphores, set objects, directories, records: counted {counted:?}, found {found:?}"));
        }
        Ok(())
    }

    /// Thread slots belong to process slots that are in use.
    fn slots(&self) -> Result<(), String> {
        for slot in 0..self.threads_high() {
            let w = self.thread_word(slot);
            if w.state() == SlotState::Live && self.proc_word(w.by()).state() == SlotState::Free {
                let ctl = self.ctl(slot).ok_or("a slot without a page")?;
                let (tid, robust, state) = (ctl.tid.load(Relaxed), ctl.robust.load(Relaxed), ctl.state.load(Relaxed));
                let (head, linked) = (ctl.head.load(Relaxed), ctl.unlinked.load(Relaxed) == 0);
                return Err(format!(
                    "thread slot {slot} is of process slot {}, which is free: {:#x}, thread {tid}, {robust:#x}, {state:#x}, {head:#x}, linked {linked}, process word {:#x}",
                    w.by(),
                    w.0,
                    self.proc_word(w.by()).0
                ));
            }
        }
        Ok(())
    }

    /// Slots in use: threads, processes.
    pub fn slots_in_use(&self) -> (usize, usize) {
        (
            (0..self.threads_high()).filter(|s| self.thread_word(*s).state() != SlotState::Free).count(),
            (0..self.procs_high()).filter(|p| self.proc_word(*p).state() != SlotState::Free).count(),
        )
    }
    /// Sets, directories and records in use.
    pub fn objects_in_use(&self) -> u64 {
        SET_KINDS.iter().chain(&UNDO_KINDS).chain(&[Kind::Directories]).map(|k| self.arena.in_use(*k)).sum()
    }
}

/// Whether a thread that is stopped was stopped in futex(2), or in what that is begun again by.
fn is_in_futex(tid: u32) -> bool {
    let said = std::fs::read_to_string(format!("/proc/{tid}/syscall")).unwrap_or_default();
    let number = said.split(' ').next().and_then(|n| n.parse::<i64>().ok());
    number.is_some_and(|n| [libc::SYS_futex, libc::SYS_restart_syscall].contains(&n))
}
