//! The hostile writer: changes words of an arena at random and with aim, by a seed.
//!
//! It reads the arena as docs/segment.md describes it, to find what is worth changing; it takes nothing of what it reads for granted.

use std::ffi::CString;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use manyway_shm::layout::*;
use manyway_shm::{Arena, OpenOptions};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::*};

use crate::ledger::Ledger;

/// What is aimed at. Each has the same chance.
const AIMS: [fn(&mut Mutator); 14] = [
    Mutator::anything,
    Mutator::anything,
    Mutator::header,
    Mutator::tables,
    Mutator::ids,
    Mutator::slot_words,
    Mutator::processes,
    Mutator::set_head,
    Mutator::cell_word,
    Mutator::cell_rest,
    Mutator::journal,
    Mutator::node,
    Mutator::links,
    Mutator::undo,
];

/// What comes before is looked at when a process opens the file, and never again: a file that is wrong there is refused (`damage.rs`).
const FIRST: u64 = offset_of!(Header, fairness) as u64;
/// Where the first extents end, in which everything is.
const END: u64 = EXTENTS_AT + 64 * EXTENT;

/// The writer of one arena.
pub struct Mutator {
    arena: Arena,
    rng: Rng,
    /// Process ids that a claim may name: innocent ones.
    pids: Vec<u32>,
    ledger: Option<&'static Ledger>,
    /// Byte offsets of the words written last, to write them again.
    recent: Vec<u64>,
}

/// For how long, and how often, a round's writer writes.
pub fn run(dir: &Path, ledger: &'static Ledger, seed: u64, pids: Vec<u32>) {
    let mut m = Mutator::new(dir, seed, pids, Some(ledger));
    // One round changes a word now and then, another one as fast as it can.
    let pause = [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(5), Duration::from_millis(30)][m.rng.usize(0..4)];
    while !ledger.stopped() {
        m.flip();
        let until = Instant::now() + pause;
        while !pause.is_zero() && Instant::now() < until && !ledger.stopped() {
            std::thread::sleep(pause.min(Duration::from_millis(5)));
        }
    }
}

impl Mutator {
    pub fn new(dir: &Path, seed: u64, pids: Vec<u32>, ledger: Option<&'static Ledger>) -> Mutator {
        let name = CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it");
        let arena = Arena::open(&name, &OpenOptions::default()).expect("an arena");
        Mutator { arena, rng: Rng::with_seed(seed), pids, ledger, recent: Vec::new() }
    }

    /// Makes one change, or several that belong together.
    pub fn flip(&mut self) {
        let aim = AIMS[self.rng.usize(0..AIMS.len())];
        // What all calls need is seldom damaged, or nothing else would be looked at.
        let vital = [Mutator::header as fn(&mut Mutator), Mutator::tables, Mutator::anything];
        if vital.contains(&aim) && self.rng.u8(0..8) > 0 {
            return;
        }
        aim(self);
    }

    fn word(&self, at: u64) -> Option<&AtomicU64> {
        // What is far away is nobody's: looking at it would allocate it.
        self.arena.at::<AtomicU64>(at & !7).filter(|_| (FIRST..END).contains(&at))
    }

    /// Writes 64 bits.
    fn put(&mut self, at: u64, value: u64) {
        let Some(w) = self.word(at) else { return };
        let was = w.swap(value, Relaxed);
        if let Some(l) = self.ledger {
            l.changed(at & !7, was, value);
        }
        self.recent.push(at & !7);
        if self.recent.len() > 32 {
            self.recent.remove(0);
        }
    }
    /// Writes 32 bits.
    fn put32(&mut self, at: u64, value: u32) {
        let Some(w) = self.arena.at::<AtomicU32>(at & !3).filter(|_| (FIRST..END).contains(&at)) else { return };
        let was = w.swap(value, Relaxed);
        if let Some(l) = self.ledger {
            l.changed(at & !3, was.into(), value.into());
        }
    }
    fn put16(&mut self, at: u64, value: u16) {
        let Some(w) = self.arena.at::<AtomicU16>(at & !1).filter(|_| (FIRST..END).contains(&at)) else { return };
        let was = w.swap(value, Relaxed);
        if let Some(l) = self.ledger {
            l.changed(at & !1, was.into(), value.into());
        }
    }

    fn value64(&mut self, was: u64) -> u64 {
        let r = &mut self.rng;
        match r.u8(0..9) {
            0 => 0,
            1 => u64::MAX,
            2 => r.u64(..),
            3 => was ^ 1 << r.u32(0..64),
            4 => was.wrapping_add(1),
            5 => was.wrapping_sub(1),
            6 => r.u64(0..64),
            7 => was ^ 0xffff_ffff << 32,
            _ => was.rotate_left(r.u32(0..64)),
        }
    }
    fn value32(&mut self, was: u32) -> u32 {
        let r = &mut self.rng;
        match r.u8(0..9) {
            0 => 0,
            1 => u32::MAX,
            2 => r.u32(..),
            3 => was ^ 1 << r.u32(0..32),
            4 => was.wrapping_add(1),
            5 => r.u32(0..16),
            6 => 65_535 + r.u32(0..3),
            7 => 1 << r.u32(0..32),
            _ => was.wrapping_sub(1),
        }
    }
    fn change64(&mut self, at: u64) {
        let Some(was) = self.word(at).map(|w| w.load(Relaxed)) else { return };
        let v = self.value64(was);
        self.put(at, v);
    }
    fn change32(&mut self, at: u64) {
        let Some(was) = self.arena.at::<AtomicU32>(at & !3).map(|w| w.load(Relaxed)) else { return };
        let v = self.value32(was);
        self.put32(at, v);
    }

    // Where things are.

    fn pick_set(&mut self) -> Option<(u32, u64, u32)> {
        let ready = self.arena.header().ids_ready.load(Relaxed).min(512);
        let sets: Vec<(u32, u64)> = (0..ready)
            .filter_map(|i| self.word(IDS_AT + u64::from(i) * 8).map(|w| (i, w.load(Relaxed))))
            .filter(|&(_, e)| e != 0)
            .collect();
        if sets.is_empty() {
            return None;
        }
        let (index, e) = sets[self.rng.usize(0..sets.len())];
        Some((index, (e >> 22 & 0x3ff_ffff) * PAGE, e as u32 & 0x3f_ffff))
    }
    fn pick_cell(&mut self) -> Option<(u64, u32)> {
        let (_, at, tag) = self.pick_set()?;
        let n = self.arena.at::<SetHead>(at)?.nsems.load(Relaxed).clamp(1, 64);
        let num = if self.rng.bool() { self.rng.u32(0..n.min(4)) } else { self.rng.u32(0..n) };
        Some((at + 128 + u64::from(num) * 64, tag))
    }
    fn slots(&self) -> u32 {
        self.arena.header().threads_high.load(Relaxed).clamp(1, 64)
    }
    fn any_slot(&mut self) -> u32 {
        let n = self.slots();
        match self.rng.u8(0..8) {
            0 => self.rng.u32(..),
            1 => self.rng.u32(0..1 << 17),
            2 => n,
            _ => self.rng.u32(0..n),
        }
    }
    fn pick_ctl(&mut self) -> Option<u64> {
        let slot = self.slots();
        let slot = self.rng.u32(0..slot);
        let e = self.arena.header().thread_extents[(slot / THREADS_PER_EXTENT) as usize].load(Relaxed);
        (e != 0 && e <= MAX_EXTENTS)
            .then(|| EXTENTS_AT + u64::from(e - 1) * EXTENT + u64::from(slot % THREADS_PER_EXTENT) * THREAD_PAGES * PAGE + PAGE)
    }
    fn pid(&mut self) -> u32 {
        let n = self.pids.len();
        match self.rng.u8(0..4) {
            0 => self.rng.u32(0..1 << 22),
            _ => self.pids[self.rng.usize(0..n)],
        }
    }

    // What is aimed at.

    /// Any word of an extent's or table's first pages, of a set, of a slot; or one that was written before.
    fn anything(&mut self) {
        let bases = [
            0,
            KEY_HASH_AT,
            IDS_AT,
            THREAD_WORDS_AT,
            PROCS_AT,
            EXTENT_TABLE_AT,
            EXTENTS_AT,
            EXTENTS_AT + EXTENT,
            EXTENTS_AT + 2 * EXTENT,
            EXTENTS_AT + 3 * EXTENT,
            EXTENTS_AT + 4 * EXTENT,
        ];
        let page = bases[self.rng.usize(0..bases.len())];
        let page = page + if page >= EXTENTS_AT { self.rng.u64(0..8) * PAGE } else { 0 };
        let at = match self.rng.u8(0..8) {
            0 if !self.recent.is_empty() => self.recent[self.rng.usize(0..self.recent.len())],
            // Small offsets have the most in them.
            1..=4 => page + self.rng.u64(0..64) * 8,
            _ => page + self.rng.u64(0..512) * 8,
        };
        self.change64(at);
    }

    fn header(&mut self) {
        let first = offset_of!(Header, attached) as u64;
        match self.rng.u8(0..8) {
            0 | 1 => self.change32(offset_of!(Header, fairness) as u64),
            2 => {
                let pid = self.pid();
                self.put32(offset_of!(Header, watcher) as u64, pid);
            }
            3 => {
                let slot = self.any_slot();
                self.put(offset_of!(Header, registry) as u64, 1 << 15 | u64::from(slot) << 42);
            }
            4 => {
                let at = offset_of!(Header, thread_extents) as u64 + self.rng.u64(0..4) * 4;
                self.change32(at);
            }
            _ => {
                let at = first + self.rng.u64(0..32) * 4;
                self.change32(at);
            }
        }
    }

    fn tables(&mut self) {
        match self.rng.u8(0..3) {
            0 => {
                let at = KEY_HASH_AT + self.rng.u64(0..KEY_BUCKETS as u64) * 2;
                let v = self.rng.u16(0..8);
                self.put16(at, v);
            }
            1 => {
                let at = EXTENT_TABLE_AT + self.rng.u64(0..8) * 8;
                let v = u64::from(self.rng.u8(0..18)) | self.rng.u64(0..2000) << 8;
                self.put(at, v);
            }
            // A bitmap: what is in use is free, what is free is in use.
            _ => {
                let at = EXTENTS_AT + self.rng.u64(0..8) * EXTENT + self.rng.u64(0..16) * 8;
                let v = if self.rng.bool() { 0 } else { u64::MAX };
                self.put(at, v);
            }
        }
    }

    fn ids(&mut self) {
        let at = IDS_AT + self.rng.u64(0..16) * 8;
        let v = match self.rng.u8(0..5) {
            0 => 0,
            // Another set's entry, or one with another set's page.
            1 => {
                let another = IDS_AT + self.rng.u64(0..16) * 8;
                self.word(another).map_or(0, |w| w.load(Relaxed))
            }
            2 => self.rng.u64(..),
            3 => self.word(at).map_or(0, |w| w.load(Relaxed)) ^ self.rng.u64(0..256) << 22,
            _ => self.word(at).map_or(0, |w| w.load(Relaxed)) ^ 1 << self.rng.u32(0..64),
        };
        self.put(at, v);
    }

    fn slot_words(&mut self) {
        let n = u64::from(self.slots());
        let at = THREAD_WORDS_AT + self.rng.u64(0..n) * 8;
        let was = self.word(at).map_or(0, |w| w.load(Relaxed));
        let v = match self.rng.u8(0..4) {
            // Another state; a recoverer; another process; anything.
            0 => was & !3 | self.rng.u64(0..4),
            1 => was & !(0x3f_ffff << 24) | ((u64::from(self.any_slot()) + 1) & 0x3f_ffff) << 24,
            2 => was & !(0x3f_ffff << 2) | self.rng.u64(0..70_000) << 2,
            _ => self.value64(was),
        };
        self.put(at, v);
    }

    fn processes(&mut self) {
        let n = u64::from(self.arena.header().procs_high.load(Relaxed).clamp(1, 32));
        let at = PROCS_AT + self.rng.u64(0..n) * 256;
        let was = self.word(at).map_or(0, |w| w.load(Relaxed));
        match self.rng.u8(0..6) {
            0 => {
                let pid = u64::from(self.pid());
                let state = self.rng.u64(0..4);
                self.put(at, was & !0xff_ffff | pid << 2 | state);
            }
            1 => {
                let by = u64::from(self.any_slot()) + 1;
                self.put(at, was & !(0xf_ffff << 24) | (by & 0xf_ffff) << 24);
            }
            2 => self.change64(at + offset_of!(ProcSlot, inode) as u64),
            3 => self.change32(at + offset_of!(ProcSlot, thread_hint) as u64),
            4 => {
                // A directory somewhere else.
                let dir = at + offset_of!(ProcSlot, dirs) as u64;
                let was = self.arena.at::<AtomicU32>(dir).map_or(0, |w| w.load(Relaxed));
                let v = [0, self.rng.u32(..), self.rng.u32(0..1 << 26), was ^ 1, 8192][self.rng.usize(0..5)];
                self.put32(dir, v);
            }
            _ => self.change64(at),
        }
    }

    fn set_head(&mut self) {
        let Some((_, at, tag)) = self.pick_set() else { return };
        match self.rng.u8(0..6) {
            0 => {
                let slot = self.any_slot();
                self.put(at + offset_of!(SetHead, lock) as u64, 1 << 15 | u64::from(slot) << 42);
            }
            1 => {
                let v = [0, 1 << 18, u64::from(tag) << 42, u64::from(tag ^ 1) << 42, u64::MAX][self.rng.usize(0..5)];
                self.put(at + offset_of!(SetHead, lock) as u64, v);
            }
            2 => {
                let slot = self.any_slot();
                let q = at + self.rng.u64(0..4) * 4 + offset_of!(SetHead, alter) as u64;
                self.put32(q, slot.wrapping_add(1));
            }
            3 => self.change32(at + offset_of!(SetHead, complex) as u64),
            4 => {
                let v = self.rng.u32(0..16);
                self.put32(at + offset_of!(SetHead, next_key) as u64, v);
            }
            _ => {
                let at = at + self.rng.u64(0..12) * 4;
                self.change32(at);
            }
        }
    }

    fn cell_word(&mut self) {
        let Some((at, tag)) = self.pick_cell() else { return };
        let was = self.word(at).map_or(0, |w| w.load(Relaxed));
        let v = match self.rng.u8(0..6) {
            // Locked by nobody, by somebody who lives and knows nothing of it, or by whoever looks.
            0 | 1 => was & 0x3ff_ffff_ffff | 1 << 15 | u64::from(self.any_slot()) << 42,
            2 => was ^ 1 << self.rng.u32(15..20),
            3 => was & !0x7fff | self.rng.u64(0..0x8000),
            4 => u64::from(tag.wrapping_add(self.rng.u32(0..2))) << 42 | self.rng.u64(0..5),
            _ => self.value64(was),
        };
        self.put(at, v);
    }

    fn cell_rest(&mut self) {
        let Some((at, _)) = self.pick_cell() else { return };
        match self.rng.u8(0..5) {
            0 | 1 => {
                let slot = self.any_slot();
                let q = at + offset_of!(Cell, zero) as u64 + self.rng.u64(0..4) * 4;
                self.put32(q, slot.wrapping_add(1));
            }
            2 => self.change64(at + offset_of!(Cell, staged) as u64),
            3 => self.change64(at + offset_of!(Cell, holders) as u64),
            _ => {
                let at = at + 8 + self.rng.u64(0..14) * 4;
                self.change32(at);
            }
        }
    }

    /// Somebody's journal says that it is in the middle of something.
    fn journal(&mut self) {
        let (Some(ctl), Some((_, set, _))) = (self.pick_ctl(), self.pick_set()) else { return };
        match self.rng.u8(0..8) {
            0 | 1 => {
                let v = (set / PAGE) << 32 | self.rng.u64(0..4) << 16 | self.rng.u64(0..256) << 8 | self.rng.u64(0..12);
                self.put(ctl + offset_of!(ThreadCtl, head) as u64, v);
            }
            2 => self.change64(ctl + offset_of!(ThreadCtl, fin) as u64),
            3 => {
                let who = u64::from(self.any_slot()) + 1;
                let v = self.rng.u64(0..4) | (who & 0x1_ffff) << 2 | self.rng.u64(0..4) << 19 | self.rng.u64(0..64) << 35;
                self.put(ctl + offset_of!(ThreadCtl, step) as u64, v);
            }
            4 => self.change32(ctl + offset_of!(ThreadCtl, target) as u64),
            5 => self.change32(ctl + offset_of!(ThreadCtl, unlinked) as u64),
            // It is dead; it is somebody else.
            6 => {
                let at = ctl + offset_of!(ThreadCtl, robust) as u64;
                let was = self.arena.at::<AtomicU32>(at).map_or(0, |w| w.load(Relaxed));
                let v = [was | 0x4000_0000, was ^ 1, 0, self.rng.u32(..)][self.rng.usize(0..4)];
                self.put32(at, v);
            }
            _ => {
                let at = ctl + self.rng.u64(0..8) * 8;
                self.change64(at);
            }
        }
    }

    fn node(&mut self) {
        let Some(ctl) = self.pick_ctl() else { return };
        match self.rng.u8(0..6) {
            0 => {
                let v = [0, 1, 2, 511, 512, 513, u32::MAX][self.rng.usize(0..7)];
                self.put32(ctl + offset_of!(ThreadCtl, nops) as u64, v);
            }
            1 => {
                let v = u64::from(self.rng.u16(0..8)) | self.rng.u64(0..1 << 32) << 16;
                self.put(ctl + offset_of!(ThreadCtl, op) as u64, v);
            }
            2 => {
                // The page of operations before the control page.
                let at = ctl - PAGE + self.rng.u64(0..16) * 8;
                let v = self.rng.u64(..) & 0xffff_ffff_0007;
                self.put(at, v);
            }
            3 => {
                let v = self.rng.u32(0..16) | self.rng.u32(0..64) << 4;
                self.put32(ctl + offset_of!(ThreadCtl, state) as u64, v);
            }
            4 => {
                let v = [0, u64::MAX, self.rng.u64(..), 1][self.rng.usize(0..4)];
                self.put(ctl + offset_of!(ThreadCtl, ticket) as u64, v);
            }
            _ => {
                let at = ctl + 64 + self.rng.u64(0..16) * 4;
                self.change32(at);
            }
        }
    }

    /// Links into circles, to the node itself, out of range, to other queues.
    fn links(&mut self) {
        let Some(ctl) = self.pick_ctl() else { return };
        let slot = self.any_slot();
        let at = ctl + [offset_of!(ThreadCtl, next), offset_of!(ThreadCtl, prev)][self.rng.usize(0..2)] as u64;
        self.put32(at, slot.wrapping_add(1));
        if self.rng.bool() {
            let which = self.rng.u32(0..6);
            self.put32(ctl + offset_of!(ThreadCtl, linked) as u64, which);
        }
        if self.rng.bool()
            && let Some((cell, _)) = self.pick_cell()
        {
            let q = cell + offset_of!(Cell, zero) as u64 + self.rng.u64(0..4) * 4;
            self.put32(q, slot.wrapping_add(1));
            let was = self.word(cell).map_or(0, |w| w.load(Relaxed));
            self.put(cell, was | 1 << 16);
        }
    }

    fn undo(&mut self) {
        let n = self.arena.header().procs_high.load(Relaxed).clamp(1, 32);
        let proc = PROCS_AT + u64::from(self.rng.u32(0..n)) * 256;
        let Some(dir) = self.arena.at::<ProcSlot>(proc).map(|p| u64::from(p.dirs[0].load(Relaxed)) * PAGE) else { return };
        if dir == 0 || dir >= EXTENTS_AT + 64 * EXTENT {
            return;
        }
        let entry = dir + self.rng.u64(0..16) * 4;
        let record = self.arena.at::<AtomicU32>(entry).map_or(0, |w| u64::from(w.load(Relaxed)) * 64);
        match self.rng.u8(0..4) {
            0 => {
                let v = [0, self.rng.u32(..), self.rng.u32(0..1 << 20), 1][self.rng.usize(0..4)];
                self.put32(entry, v);
            }
            _ if record == 0 || record >= EXTENTS_AT + 64 * EXTENT => {}
            1 => self.change32(record + offset_of!(UndoHead, nsems) as u64),
            2 => self.change32(record + offset_of!(UndoHead, tag) as u64),
            _ => {
                let v = [i16::MIN as u16, i16::MAX as u16, 1, self.rng.u16(..)][self.rng.usize(0..4)];
                let at = record + UNDO_ADJ_AT + self.rng.u64(0..4) * 2;
                self.put16(at, v);
            }
        }
    }
}
