//! Slots of processes and threads, undo directories and records, nodes.

use std::collections::BTreeMap;
use std::mem::offset_of;

use manyway_sem::abi::SemBuf;
use manyway_sem::node::{self, State};
use manyway_sem::slotword::{ProcWord, SlotState, ThreadWord};
use manyway_shm::layout::*;

use super::Seen;

/// FUTEX_OWNER_DIED: what the kernel marks a robust word with.
const OWNER_DIED: u32 = 0x4000_0000;

/// A sleeping thread.
#[derive(Clone, Debug)]
pub struct Node {
    pub slot: u32,
    /// Where its set lies, and the set's tag.
    pub set: (u64, u32),
    pub ticket: u64,
    pub linked: u32,
    pub proc: u32,
    pub ops: Vec<SemBuf>,
}

/// The nodes of living threads.
#[derive(Debug, Default)]
pub struct Sleepers {
    pub asleep: Vec<Node>,
    pub nodes: BTreeMap<u32, u32>,
}

impl Seen<'_> {
    /// Where a thread slot's control page lies.
    pub(super) fn ctl(&self, slot: u32) -> Option<u64> {
        let entry = offset_of!(Header, thread_extents) as u64 + u64::from(slot / THREADS_PER_EXTENT) * 4;
        let extent = u64::from(self.arena.u32(entry)).checked_sub(1).filter(|_| slot < MAX_SLOTS)?;
        Some(EXTENTS_AT + extent * EXTENT + u64::from(slot % THREADS_PER_EXTENT) * THREAD_PAGES * PAGE + PAGE)
    }

    /// The process slots that are in use.
    pub(super) fn look_at_processes(&mut self, alive: &dyn Fn(u32, u64) -> bool) -> BTreeMap<u32, u32> {
        let a = self.arena;
        let mut procs = BTreeMap::new();
        let high = a.u32(offset_of!(Header, procs_high) as u64).min(a.u32(offset_of!(Header, procs_ready) as u64));
        for proc in 0..high.min(MAX_SLOTS) {
            let at = PROCS_AT + u64::from(proc) * size_of::<ProcSlot>() as u64;
            let w = ProcWord(a.u64(at));
            let dirs = |i: u64| a.u32(at + offset_of!(ProcSlot, dirs) as u64 + i * 4);
            if w.state() == SlotState::Free {
                self.expect((0..32).all(|i| dirs(i) == 0), || format!("process slot {proc} is free and has undo directories"));
                continue;
            }
            let pid = w.by();
            let inode = if w.state() == SlotState::Live { a.u64(at + offset_of!(ProcSlot, inode) as u64) } else { 0 };
            self.expect(w.state() == SlotState::Live, || format!("process slot {proc} is claimed and no more, by {pid}"));
            self.expect(alive(pid, inode), || format!("process slot {proc} is that of {pid}, who is gone"));
            self.same(&format!("process slot {proc}'s recoverer"), w.recoverer(), None);
            procs.insert(proc, pid);
            for i in 0..32 {
                if dirs(i) != 0 {
                    self.look_at_directory(proc, i as u32 * 1024, u64::from(dirs(i)) * PAGE);
                }
            }
        }
        procs
    }

    fn look_at_directory(&mut self, proc: u32, first: u32, at: u64) {
        let a = self.arena;
        self.uses(at, PAGE);
        for i in 0..1024 {
            let record = u64::from(a.u32(at + u64::from(i) * 4)) * 64;
            if record == 0 {
                continue;
            }
            let index = first + i;
            let Some(set) = self.sets.get(&index).copied() else {
                self.expect(false, || format!("process slot {proc} has an undo record for index {index}, which no set has"));
                continue;
            };
            let name = format!("process slot {proc}'s undo record for set {}", set.id);
            let field = |offset: usize| a.u32(record + offset as u64);
            self.same(&format!("{name}: its tag"), field(offset_of!(UndoHead, tag)), set.tag);
            self.same(&format!("{name}: its length"), field(offset_of!(UndoHead, nsems)), set.nsems);
            self.uses(record, UNDO_ADJ_AT + u64::from(set.nsems) * 2);
            self.records.insert((index, proc), record + UNDO_ADJ_AT);
        }
    }

    /// The nodes of the threads that are in use.
    pub(super) fn look_at_threads(&mut self, procs: &BTreeMap<u32, u32>) -> Sleepers {
        let a = self.arena;
        let mut sleepers = Sleepers::default();
        let high = a.u32(offset_of!(Header, threads_high) as u64).min(a.u32(offset_of!(Header, threads_ready) as u64));
        for slot in 0..high.min(MAX_SLOTS) {
            let w = ThreadWord(a.u64(THREAD_WORDS_AT + u64::from(slot) * 8));
            let Some(ctl) = self.ctl(slot) else {
                self.expect(false, || format!("thread slot {slot} has no place"));
                continue;
            };
            let field = |offset: usize| a.u32(ctl + offset as u64);
            let state = field(offset_of!(ThreadCtl, state));
            if w.state() == SlotState::Free {
                self.expect(node::state(state) != State::Queued, || format!("thread slot {slot} is free and sleeps"));
                continue;
            }
            self.expect(w.state() == SlotState::Live, || format!("thread slot {slot} is claimed and no more"));
            self.expect(procs.contains_key(&w.by()), || format!("thread slot {slot} is of process slot {}, which is free", w.by()));
            self.same(&format!("thread slot {slot}'s recoverer"), w.recoverer(), None);
            let robust = field(offset_of!(ThreadCtl, robust));
            self.expect(robust & OWNER_DIED == 0, || format!("thread slot {slot}'s thread is gone"));
            self.same(&format!("thread slot {slot}'s committed step"), a.u64(ctl + offset_of!(ThreadCtl, step) as u64), 0);
            let linked = field(offset_of!(ThreadCtl, linked));
            const PARKED: u32 = 8;
            sleepers.nodes.insert(slot, state & !PARKED);
            // Only while it sleeps does the rest of a node say anything: a recoverer does not touch one that has been completed.
            if node::state(state) != State::Queued {
                continue;
            }
            let set = (u64::from(field(offset_of!(ThreadCtl, set))) * PAGE, field(offset_of!(ThreadCtl, set_tag)));
            let nops = field(offset_of!(ThreadCtl, nops)).min(MAX_OPM);
            let op = |i: u32| if nops == 1 { a.u64(ctl + offset_of!(ThreadCtl, op) as u64) } else { a.u64(ctl - PAGE + u64::from(i) * 8) };
            let ops = (0..nops).map(|i| unpacked(op(i))).collect();
            let proc = field(offset_of!(ThreadCtl, proc)).wrapping_sub(1);
            self.same(&format!("thread slot {slot}: the process in its node"), proc, w.by());
            let ticket = a.u64(ctl + offset_of!(ThreadCtl, ticket) as u64);
            sleepers.asleep.push(Node { slot, set, ticket, linked, proc, ops });
        }
        sleepers
    }
}

/// {number 16 | operation 16 | flags 16}.
fn unpacked(w: u64) -> SemBuf {
    SemBuf { num: w as u16, op: (w >> 16) as i16, flg: (w >> 32) as i16 }
}
