//! The bounds: room is asked for before it is used, and the clock makes room.
//!
//! Its hand goes over the buckets. What was met since it came by last is spared once. Tickets, mount points, what is pinned, and
//! directories that have names below them in the cache or are held are passed over; a search is given up after so many buckets, and when two whole
//! turns have found nothing, each takes a single step until something has happened.

use std::collections::VecDeque;

use manyway_sync::atomic::{AtomicUsize, Ordering::*};

use crate::entry::{self, MOUNT, NEGATIVE, PASSAGE, REVALIDATING, TOLD};
use crate::inner::{Inner, Locks, Trash};
use crate::lock::Mutex;
use crate::mem::EntryRef;
use crate::node::Node;

pub(crate) struct Hand {
    at: AtomicUsize,
    /// Buckets that were looked at since something was freed or could be.
    in_vain: AtomicUsize,
    /// Pinned names that the hand met: directory's number, name.
    met: Mutex<VecDeque<(u64, Box<[u8]>)>>,
}

/// Remembered for `pressure`.
const MET: usize = 1024;
/// Buckets for one search.
const BUDGET: usize = 4096;
/// Buckets that one step of a search takes.
const STEP: usize = 32;

impl Hand {
    pub fn new() -> Self {
        Hand { at: AtomicUsize::new(0), in_vain: AtomicUsize::new(0), met: Mutex::new(VecDeque::new()) }
    }

    /// A kill, an unpin, or whatever else may have made something evictable.
    pub fn something_happened(&self) {
        self.in_vain.store(0, Relaxed);
    }

    pub fn take_met(&self, max: usize) -> Vec<(u64, Box<[u8]>)> {
        let mut met = self.met.lock();
        let n = max.min(met.len());
        met.drain(..n).collect()
    }
}

impl<I: Send + Sync + 'static> Inner<I> {
    /// Room for so much, made if need be. No lock and no guard is held.
    pub fn reserve(&self, entries: usize, bytes: usize) -> bool {
        // Some way before the bound, so that what is evicted is freed by the time its room is needed.
        let slack = (self.books.bound_entries / 32).clamp(8, 4096);
        let live = self.books.entries.load(Relaxed).saturating_sub(self.books.retired.load(Relaxed));
        let slack_bytes = (self.books.bound_bytes / 32).min(slack * 128);
        let live_bytes = self.books.bytes.load(Relaxed).saturating_sub(self.books.retired_bytes.load(Relaxed));
        if live + slack > self.books.bound_entries || live_bytes.saturating_add(slack_bytes) > self.books.bound_bytes {
            self.evict((slack / 4).max(4), false);
        }
        if self.books.take(entries, bytes) {
            return true;
        }
        for _ in 0..4 {
            self.reclaim.push();
            self.settle();
            if self.books.take(entries, bytes) {
                return true;
            }
            if self.evict((slack / 4).max(4), false) == 0 {
                break;
            }
        }
        self.reclaim.push();
        self.settle();
        self.books.take(entries, bytes)
    }

    /// Evicts up to `want` entries; how many it were. No lock and no guard is held.
    pub fn evict(&self, want: usize, negative: bool) -> usize {
        let buckets = self.table.len();
        let mut trash = Trash::new();
        let mut looked = 0;
        // One step at least: not all that makes something evictable is told of (a handle that is dropped, a name that has gone cold).
        let is_vain = || self.clock_hand.in_vain.load(Relaxed) > 2 * buckets;
        while trash.len() < want && looked < BUDGET.max(want) && (looked == 0 || !is_vain()) {
            let step = STEP.min(buckets);
            let from = self.clock_hand.at.fetch_add(step, Relaxed);
            let guard = self.reclaim.enter();
            for i in from..from + step {
                self.table.each(&guard, i % buckets, |e| {
                    if trash.len() < want {
                        self.try_evict(e, negative, &mut trash);
                    }
                });
            }
            looked += step;
            self.clock_hand.in_vain.fetch_add(step, Relaxed);
        }
        let n = trash.len();
        self.books.evicted.fetch_add(n as u64, Relaxed);
        self.dispose(trash);
        n
    }

    fn try_evict(&self, e: EntryRef<'_, I>, negative: bool, trash: &mut Trash<I>) {
        let may =
            |state: u32| entry::kind(state) == entry::LIVE && state & (REVALIDATING | MOUNT) == 0 && (!negative || state & NEGATIVE != 0);
        if !may(e.state.load(Acquire)) || e.take_referenced() {
            return;
        }
        let state = e.state.load(Acquire);
        // Who holds a directory may go on to use it, and nobody may come to have another node for it meanwhile. Held means more counts than
        // its entry's.
        let is_held = |node: &Node<I>| node.pins.load(Relaxed) > 0 || node.dir().is_some() && node.refs.load(Acquire) > 1;
        if let Some(node) = e.node() {
            if node.pins.load(Relaxed) > 0 {
                // Who could not be noted is told of another time.
                if e.tell(true) && !self.met_pinned(e) {
                    e.tell(false);
                }
                return;
            }
            if state & TOLD != 0 {
                e.tell(false);
            }
            if is_held(node) {
                return;
            }
        }
        // The kind does not change while it is LIVE.
        let _passages = (state & PASSAGE != 0).then(|| self.rename.lock());
        let mut locks = Locks::of([Some(e.get().parent()), e.get().node()].into_iter().flatten());
        if !may(e.state.load(Acquire)) || e.node().is_some_and(is_held) {
            return;
        }
        let (dir, names) = locks.get(e.get().parent());
        if state & NEGATIVE == 0 {
            dir.lose();
        }
        if let Some(node) = e.node() {
            self.disown(node);
        }
        self.take_out(dir, names, e, trash);
    }

    /// A node loses its name in the cache, but not in the store. A directory by whose number it would be found again stays; another one gets a
    /// second node when it is looked up, and who has the first is told that it must not be used. A directory's lock is held.
    pub fn disown(&self, node: &Node<I>) {
        if let Some(dir) = node.dir().filter(|_| node.id().is_none()) {
            node.set_evicted();
            // Nor does it say any more what is not in it.
            dir.lose();
        }
    }

    /// Notes a pinned name for `pressure`, if there is room.
    fn met_pinned(&self, e: EntryRef<'_, I>) -> bool {
        let mut met = self.clock_hand.met.lock();
        let room = met.len() < MET;
        if room {
            met.push_back((e.parent().number, e.name().into()));
        }
        room
    }

    /// Whether one more name that does not exist may be kept.
    pub fn room_for_negative(&self) -> bool {
        let bound = self.books.bound_negatives;
        if self.books.negatives.load(Relaxed) < bound {
            return true;
        }
        bound > 0 && self.evict((bound / 16).clamp(1, 64), true) > 0
    }
}
