//! What the engine keeps of each thread, one for each (thread, namespace).
//!
//! A thread finds its own in a thread-local cell; the ones of other namespaces in a list behind it. At its end it hands its slots back
//! and what was allocated for it to the next thread: the pages stay mapped, since the kernel may look at them until the thread is gone.

use std::cell::{self, RefCell};
use std::ptr;
use std::sync::Mutex;

use manyway_shm::layout::Cell;
use manyway_sync::atomic::{AtomicI16, Ordering::Relaxed};

use super::namespace::Shared;
use crate::engine::{Engine, Thread};
use crate::fast::{self, Doer};
use crate::set::SetRef;
use crate::word;

const _: () = {
    const fn shareable<T: Send + Sync>() {}
    shareable::<Engine>();
    shareable::<Thread>();
};

/// Threads' belongings that nobody uses.
pub(super) struct Pool(Mutex<Vec<&'static Thread>>);

impl Pool {
    pub(super) const fn new() -> Pool {
        Pool(Mutex::new(Vec::new()))
    }
    // Never waits for the lock: in a fork's child the thread that held it may not exist.
    fn take(&self) -> &'static Thread {
        let left = self.0.try_lock().ok().and_then(|mut v| v.pop());
        left.unwrap_or_else(|| Box::leak(Box::default()))
    }
    fn give(&self, t: &'static Thread) {
        if let Ok(mut v) = self.0.try_lock() {
            v.push(t);
        }
    }
}

/// A thread that has its slot, as the fast paths need it.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    pub(super) thread: &'static Thread,
    pub(super) by: Doer<'static>,
    /// The process's epoch when it was looked up.
    epoch: u64,
}

impl Seat {
    /// False in a fork's child, and in a handler that interrupted a section.
    #[inline(always)]
    fn is_good(&self, engine: &Engine) -> bool {
        self.epoch == engine.epoch() && self.thread.in_section.load(Relaxed) == 0
    }
}

/// This process's adjustment of a semaphore, as this thread reaches it.
#[derive(Clone, Copy)]
pub(super) struct Adjustment {
    pub(super) seat: Seat,
    pub(super) word: &'static AtomicI16,
    /// What the journal says of an operation on it.
    pub(super) head: u64,
    /// Of which semaphore: [`key_of`].
    key: u64,
}

/// What tells a semaphore from all others of this process: its cell's address and its set's incarnation, with which the adjustment goes.
pub(super) fn key_of(cell: &'static Cell, tag: u32) -> u64 {
    word::tag_bits(tag) | (ptr::from_ref(cell).addr() / size_of::<Cell>()) as u64
}

/// A thread in a namespace.
#[derive(Clone, Copy)]
struct Place {
    shared: &'static Shared,
    thread: &'static Thread,
}

impl Place {
    fn new(shared: &'static Shared) -> Place {
        Place { shared, thread: shared.pool.take() }
    }
    fn leave(self) {
        self.shared.engine.detach_thread(self.thread);
        if self.thread.in_section.load(Relaxed) == 0 {
            self.shared.pool.give(self.thread);
        }
    }
}

/// All places of a thread.
struct Places(RefCell<Vec<Place>>);

impl Drop for Places {
    fn drop(&mut self) {
        LAST.set(None);
        SEAT.set(None);
        ADJUSTMENTS.with(|all| all.iter().for_each(|a| a.set(None)));
        self.0.get_mut().drain(..).for_each(Place::leave);
    }
}

/// How many adjustments a thread keeps at hand.
const KEPT: usize = 8;

thread_local! {
    /// The place used last. Neither this nor the next two have a destructor, so that reaching them costs a load.
    static LAST: cell::Cell<Option<Place>> = const { cell::Cell::new(None) };
    /// The seat used last, with its namespace.
    static SEAT: cell::Cell<Option<(&'static Shared, Seat)>> = const { cell::Cell::new(None) };
    /// Adjustments used last, by their keys.
    static ADJUSTMENTS: [cell::Cell<Option<Adjustment>>; KEPT] = const { [const { cell::Cell::new(None) }; KEPT] };
    static PLACES: Places = const { Places(RefCell::new(Vec::new())) };
}

/// Calls `f` with the calling thread's own.
#[inline]
pub(super) fn with<R>(shared: &'static Shared, f: impl FnOnce(&'static Thread) -> R) -> R {
    match LAST.get() {
        Some(place) if ptr::eq(place.shared, shared) => f(place.thread),
        _ => with_slow(shared, f),
    }
}

#[cold]
#[inline(never)]
fn with_slow<R>(shared: &'static Shared, f: impl FnOnce(&'static Thread) -> R) -> R {
    let found = PLACES.try_with(|places| {
        let mut places = places.0.try_borrow_mut().ok()?;
        let known = places.iter().find(|p| ptr::eq(p.shared, shared)).copied();
        Some(known.unwrap_or_else(|| {
            let place = Place::new(shared);
            places.push(place);
            place
        }))
    });
    if let Ok(Some(place)) = found {
        LAST.set(Some(place));
        return f(place.thread);
    }
    // The thread is at its end, and another thread-local value's destructor calls: a place for this call only.
    let place = Place::new(shared);
    let r = f(place.thread);
    place.leave();
    r
}

/// The calling thread's seat in a namespace if it is at hand; None: it is not, but will be next time if it can.
#[inline(always)]
pub(super) fn seat(shared: &'static Shared) -> Option<Seat> {
    match SEAT.get() {
        Some((s, seat)) if ptr::eq(s, shared) && seat.is_good(&shared.engine) => Some(seat),
        _ => {
            look_up_seat(shared);
            None
        }
    }
}

#[cold]
#[inline(never)]
fn look_up_seat(shared: &'static Shared) -> Option<Seat> {
    let engine = &shared.engine;
    let (thread, me) = with(shared, |t| Some((t, engine.me(t).ok()?)))?;
    // A place for one call only is gone already.
    LAST.get().filter(|p| ptr::eq(p.thread, thread))?;
    let by = Doer::new(me.ctl, me.slot, me.pid, me.proc);
    let seat = Seat { thread, by, epoch: engine.epoch() };
    SEAT.set(Some((shared, seat)));
    Some(seat)
}

/// This process's adjustment of a semaphore if it is at hand; None: it is not, but will be next time if it can.
#[inline(always)]
pub(super) fn adjustment(shared: &'static Shared, set: &SetRef<'static>, num: u16, key: u64) -> Option<Adjustment> {
    match ADJUSTMENTS.with(|all| all[key as usize % KEPT].get()) {
        Some(a) if a.key == key && a.seat.is_good(&shared.engine) => Some(a),
        _ => {
            look_up_adjustment(shared, set, num, key);
            None
        }
    }
}

#[cold]
#[inline(never)]
fn look_up_adjustment(shared: &'static Shared, set: &SetRef<'static>, num: u16, key: u64) -> Option<()> {
    let seat = look_up_seat(shared)?;
    let record = shared.engine.record(seat.by.proc(), set.index, set.tag)?;
    let found = Adjustment { seat, head: fast::undo_head(set.page(), num), word: shared.engine.adj(record, num)?, key };
    ADJUSTMENTS.with(|all| all[key as usize % KEPT].set(Some(found)));
    Some(())
}
