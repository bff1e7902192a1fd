//! Objects in extents. An extent keeps its kind for ever (docs/segment.md says why); bitmaps are caches of what the roots reach.
//!
//! Everything here but [`Arena::take_extent`] is called under the registry lock.

use manyway_sync::Errno;
use manyway_sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::arena::Arena;
use crate::layout::*;

/// What an extent is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Semaphore sets of up to 1, 4, 16, 64, 256, 1,023 pages.
    Set1 = 1,
    /// See [`Kind::Set1`].
    Set4,
    /// See [`Kind::Set1`].
    Set16,
    /// See [`Kind::Set1`].
    Set64,
    /// See [`Kind::Set1`].
    Set256,
    /// See [`Kind::Set1`].
    Set1023,
    /// Thread slots.
    Threads,
    /// Undo directories.
    Directories,
    /// Undo records of 64 bytes, and so on.
    Undo64,
    /// See [`Kind::Undo64`].
    Undo256,
    /// See [`Kind::Undo64`].
    Undo1K,
    /// See [`Kind::Undo64`].
    Undo4K,
    /// See [`Kind::Undo64`].
    Undo16K,
    /// See [`Kind::Undo64`].
    Undo64K,
    /// See [`Kind::Undo64`].
    Undo256K,
}

use Kind::*;

const SETS: [Kind; 6] = [Set1, Set4, Set16, Set64, Set256, Set1023];
const UNDOS: [Kind; 7] = [Undo64, Undo256, Undo1K, Undo4K, Undo16K, Undo64K, Undo256K];
const KINDS: [Kind; 15] =
    [Set1, Set4, Set16, Set64, Set256, Set1023, Threads, Directories, Undo64, Undo256, Undo1K, Undo4K, Undo16K, Undo64K, Undo256K];

impl Kind {
    fn from_u8(k: u8) -> Option<Kind> {
        KINDS.get((k as usize).wrapping_sub(1)).copied()
    }
    /// Bytes of an object.
    pub const fn size(self) -> u64 {
        match self {
            Set1 | Directories | Undo4K => 4096,
            Set4 | Undo16K => 4 * 4096,
            Set16 | Undo64K => 16 * 4096,
            Set64 | Undo256K => 64 * 4096,
            Set256 => 256 * 4096,
            Set1023 => 1023 * 4096,
            Threads => THREAD_PAGES * PAGE,
            Undo64 => 64,
            Undo256 => 256,
            Undo1K => 1024,
        }
    }
    /// Bytes of an extent before its objects: the bitmap, in whole pages.
    const fn bitmap_bytes(self) -> u64 {
        match self {
            Threads => 0,
            Undo64 => 2 * PAGE,
            _ => PAGE,
        }
    }
    const fn objects(self) -> u64 {
        (EXTENT - self.bitmap_bytes()) / self.size()
    }
    /// The kind that holds a set of `nsems` semaphores.
    pub fn for_set(nsems: u32) -> Option<Kind> {
        let need = size_of::<SetHead>() as u64 + nsems as u64 * size_of::<Cell>() as u64;
        SETS.into_iter().find(|k| k.size() >= need)
    }
    /// The kind that holds `nsems` adjustments.
    pub fn for_undo(nsems: u32) -> Option<Kind> {
        let need = UNDO_ADJ_AT + nsems as u64 * 2;
        UNDOS.into_iter().find(|k| k.size() >= need)
    }
    fn is_set(self) -> bool {
        SETS.contains(&self)
    }
}

/// So many free objects are tried before a file system is taken for full: each may have its pages, or not.
const TRIES: u32 = 4096;

/// The entry of an extent that is being taken: of no kind yet.
const TAKING: u64 = 0xff;

fn extent_at(e: u32) -> u64 {
    EXTENTS_AT + e as u64 * EXTENT
}

impl Arena {
    /// The entry of an extent in the table: {free objects 56 | kind 8}.
    fn extent_entry(&self, e: u32) -> Option<&AtomicU64> {
        (e < MAX_EXTENTS).then(|| self.at(EXTENT_TABLE_AT + e as u64 * 8)).flatten()
    }

    /// Takes a new extent for a kind. Lock-free; an extent whose taker dies here is lost (address space only). One whose taker finds no
    /// memory is left as it was, for the next one: a program that asks a full file system over and over must not use up the table.
    pub fn take_extent(&self, kind: Kind) -> Result<u32, Errno> {
        let h = self.header();
        for _ in 0..MAX_EXTENTS {
            let known = self.extents_in_use();
            let left = (0..known).find(|&e| self.extent_entry(e).is_some_and(|w| w.load(Relaxed) == 0));
            let e = left.unwrap_or(known);
            if e >= MAX_EXTENTS {
                return Err(Errno::ENOSPC);
            }
            if e >= h.extents_ready.load(Acquire) {
                let first = e & !511;
                self.populate(EXTENT_TABLE_AT + first as u64 * 8, PAGE)?;
                h.extents_ready.fetch_max(first + 512, AcqRel);
            }
            let entry = self.extent_entry(e).ok_or(Errno::ENOMEM)?;
            let mine = entry.compare_exchange(0, TAKING, AcqRel, Relaxed).is_ok();
            // Also when it is somebody else's, who may have died before this.
            h.extents.fetch_max(e + 1, AcqRel);
            if !mine {
                continue;
            }
            if kind.bitmap_bytes() > 0
                && let Err(none) = self.populate(extent_at(e), kind.bitmap_bytes())
            {
                self.release(extent_at(e), kind.bitmap_bytes());
                entry.store(0, Release);
                return Err(none);
            }
            entry.store(kind.objects() << 8 | kind as u64, Release);
            return Ok(e);
        }
        Err(Errno::ENOSPC)
    }

    /// Allocates an object, the first `bytes` of it in memory. Its content is what the last user left, or zeros.
    ///
    /// The lowest free one: its pages are there, if it was ever in use, so that a kind occupies what was in use at the same time at most. On a file
    /// system without room any other whose pages are there.
    pub fn alloc(&self, kind: Kind, bytes: u64) -> Result<u64, Errno> {
        // No extent before the hint has room.
        let hint = &self.header().hints[kind as usize];
        let mut tries = TRIES;
        let mut refused = Ok(());
        for e in hint.load(Relaxed).saturating_sub(1)..self.extents_in_use() {
            let entry = self.extent_entry(e).map_or(0, |w| w.load(Acquire));
            if entry & 0xff != kind as u64 || entry >> 8 == 0 {
                continue;
            }
            match self.alloc_within(kind, e, bytes, &mut tries) {
                Ok(at) => {
                    if refused.is_ok() {
                        hint.store(e + 1, Relaxed);
                    }
                    return Ok(at);
                }
                Err(none) if tries == 0 => return Err(none),
                Err(none) => refused = Err(none),
            }
        }
        refused?;
        let e = self.take_extent(kind)?;
        hint.store(e + 1, Relaxed);
        self.alloc_within(kind, e, bytes, &mut tries)
    }

    /// The same in one extent that has room.
    fn alloc_within(&self, kind: Kind, e: u32, bytes: u64, tries: &mut u32) -> Result<u64, Errno> {
        let entry = self.extent_entry(e).ok_or(Errno::ENOMEM)?;
        let mut refused = None;
        for i in 0..kind.objects().div_ceil(64) {
            let word = self.at::<AtomicU64>(extent_at(e) + i * 8).ok_or(Errno::ENOMEM)?;
            let mut free = !word.load(Relaxed);
            while free != 0 {
                let bit = free.trailing_zeros() as u64;
                free &= free - 1;
                let n = i * 64 + bit;
                if n >= kind.objects() {
                    break;
                }
                let at = extent_at(e) + kind.bitmap_bytes() + n * kind.size();
                match self.fill(kind, at, bytes) {
                    Ok(()) => {
                        word.store(word.load(Relaxed) | 1 << bit, Relaxed);
                        entry.store(entry.load(Relaxed).wrapping_sub(1 << 8), Relaxed);
                        return Ok(at);
                    }
                    Err(none) => refused = Some(none),
                }
                *tries = tries.saturating_sub(1);
                if *tries == 0 {
                    return Err(refused.unwrap_or(Errno::ENOMEM));
                }
            }
        }
        Err(refused.unwrap_or_else(|| {
            // The count said that there is room and the bitmap that there is none: the count is wrong (a hostile writer). Correct it.
            entry.store(kind as u64, Relaxed);
            Errno::ENOMEM
        }))
    }

    /// Sees to it that the first `bytes` of a free object are in memory.
    fn fill(&self, kind: Kind, at: u64, bytes: u64) -> Result<(), Errno> {
        self.populate(at, 1)?;
        // Sets and undo records begin with their tag and their size; that of the last one there stays.
        let is_new = self.at::<AtomicU32>(at + 4).is_some_and(|nsems| nsems.load(Relaxed) == 0);
        self.populate(at, bytes.clamp(1, kind.size())).inspect_err(|_| {
            // What there was room for must not stay with an object that was not made; but for pages that somebody may know.
            if is_new && kind.size() >= PAGE {
                self.release(at, kind.size());
            }
        })
    }

    fn extents_in_use(&self) -> u32 {
        let h = self.header();
        h.extents.load(Acquire).min(h.extents_ready.load(Acquire)).min(MAX_EXTENTS)
    }

    /// Where the object that begins at `at` is kept account of: its kind, extent and number.
    fn locate(&self, at: u64) -> Option<(Kind, u32, u64)> {
        let e = u32::try_from(at.checked_sub(EXTENTS_AT)? / EXTENT).ok().filter(|&e| e < self.extents_in_use())?;
        let kind = Kind::from_u8(self.extent_entry(e)?.load(Acquire) as u8)?;
        let within = (at - extent_at(e)).checked_sub(kind.bitmap_bytes())?;
        let n = within / kind.size();
        (within % kind.size() == 0 && n < kind.objects()).then_some((kind, e, n))
    }

    /// Frees an object. Its pages stay, for the next one: somebody may be about to touch them (docs/segment.md, *Pages of what is freed*).
    pub fn free(&self, at: u64) {
        let Some((kind, e, n)) = self.locate(at) else { return };
        let (Some(word), Some(entry)) = (self.at::<AtomicU64>(extent_at(e) + n / 64 * 8), self.extent_entry(e)) else {
            return;
        };
        let was = word.load(Relaxed);
        if was & 1 << (n % 64) == 0 {
            return;
        }
        let free = (entry.load(Relaxed) >> 8) + 1;
        word.store(was & !(1 << (n % 64)), Relaxed);
        entry.store(free << 8 | kind as u64, Relaxed);
        let hint = &self.header().hints[kind as usize];
        hint.store(hint.load(Relaxed).min(e + 1), Relaxed);
        self.header().kept.store(1, Relaxed);
    }

    /// True when there may be pages of freed objects.
    pub fn keeps_pages(&self) -> bool {
        self.header().kept.load(Relaxed) != 0
    }

    /// Gives the pages of all free objects back. The caller has made sure that nobody can touch them: no process, nor thread of its own, has
    /// found anything in this arena before.
    pub fn give_back(&self) {
        for e in 0..self.extents_in_use() {
            let kind = self.extent_entry(e).and_then(|w| Kind::from_u8(w.load(Acquire) as u8));
            let Some(kind) = kind.filter(|&k| k != Threads && k.size() >= PAGE) else { continue };
            let first = extent_at(e) + kind.bitmap_bytes();
            let in_use = |n: u64| self.at::<AtomicU64>(extent_at(e) + n / 64 * 8).is_none_or(|w| w.load(Relaxed) >> (n % 64) & 1 == 1);
            // One call for all that lie side by side.
            let mut begin = 0;
            for n in 0..=kind.objects() {
                if n == kind.objects() || in_use(n) {
                    if begin < n {
                        self.release(first + begin * kind.size(), (n - begin) * kind.size());
                    }
                    begin = n + 1;
                }
            }
        }
        // Last: should the caller die before, the next one does it.
        self.header().kept.store(0, Relaxed);
    }

    /// Forgets which objects are in use. Follow with [`Arena::mark`] for all that the roots reach.
    pub fn clear_marks(&self) {
        // What a death left half made is free from now on.
        self.header().kept.store(1, Relaxed);
        self.header().hints.iter().for_each(|hint| hint.store(0, Relaxed));
        for e in 0..self.extents_in_use() {
            let Some(entry) = self.extent_entry(e) else { continue };
            let Some(kind) = Kind::from_u8(entry.load(Relaxed) as u8).filter(|&k| k != Threads) else {
                continue;
            };
            for i in 0..kind.objects().div_ceil(64) {
                if let Some(word) = self.at::<AtomicU64>(extent_at(e) + i * 8) {
                    word.store(0, Relaxed);
                }
            }
            entry.store(kind.objects() << 8 | kind as u64, Relaxed);
        }
    }

    /// Marks an object as in use. False: there is no such object.
    pub fn mark(&self, at: u64) -> bool {
        let Some((kind, e, n)) = self.locate(at) else { return false };
        let (Some(word), Some(entry)) = (self.at::<AtomicU64>(extent_at(e) + n / 64 * 8), self.extent_entry(e)) else {
            return false;
        };
        let was = word.load(Relaxed);
        if was & 1 << (n % 64) == 0 {
            word.store(was | 1 << (n % 64), Relaxed);
            entry.store((entry.load(Relaxed) >> 8).saturating_sub(1) << 8 | kind as u64, Relaxed);
        }
        true
    }

    /// How many objects of a kind are in use, for the instruments; about so many while others make and free some.
    pub fn in_use(&self, kind: Kind) -> u64 {
        let entries = (0..self.extents_in_use()).filter_map(|e| Some(self.extent_entry(e)?.load(Acquire)));
        entries.filter(|w| w & 0xff == kind as u64).map(|w| kind.objects().saturating_sub(w >> 8)).sum()
    }

    /// The kind of the object that begins at `at`; None: none can.
    pub fn object_at(&self, at: u64) -> Option<Kind> {
        self.locate(at).map(|(kind, ..)| kind)
    }

    /// Calls `f` with where each object begins that can be in an extent, and whether it is in use. (Thread slots tell of themselves.)
    pub fn each_object(&self, f: &mut dyn FnMut(u64, bool)) {
        for e in 0..self.extents_in_use() {
            let kind = self.extent_entry(e).and_then(|w| Kind::from_u8(w.load(Acquire) as u8)).filter(|&k| k != Threads);
            let Some(kind) = kind else { continue };
            for n in 0..kind.objects() {
                let Some(word) = self.at::<AtomicU64>(extent_at(e) + n / 64 * 8) else { break };
                f(extent_at(e) + kind.bitmap_bytes() + n * kind.size(), word.load(Relaxed) >> (n % 64) & 1 == 1);
            }
        }
    }

    /// True when `at` is where a set begins.
    pub fn is_set(&self, at: u64) -> bool {
        self.locate(at).is_some_and(|(k, ..)| k.is_set())
    }
}
