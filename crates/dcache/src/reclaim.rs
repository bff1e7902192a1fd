//! When memory that was taken out of the table may be freed: crossbeam's epochs, with a collector of the cache's own, so that other users'
//! guards do not keep our memory.
//!
//! What is retired is kept in batches in the cache itself. What the collector keeps for a batch is a number only, so nothing of the
//! author's is destroyed wherever a thread happens to help the collector, and a cache that ends frees its batches at once.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crossbeam_epoch::{Collector, LocalHandle};
use manyway_sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::lock::Mutex;
use crate::mem::EntryPtr;

/// While one lives, nothing that was in the table at its begin, or came later, is freed.
pub(crate) type Guard = crossbeam_epoch::Guard;

/// Retired entries.
struct Limbo<I> {
    /// Not given to the collector yet.
    pending: Vec<EntryPtr<I>>,
    /// Waiting for guards to end, by number.
    waiting: Vec<(u64, Vec<EntryPtr<I>>)>,
    /// May be freed.
    free: Vec<EntryPtr<I>>,
    next: u64,
}

/// So many are given to the collector at once, if nobody is short of room.
const BATCH: usize = 32;

pub(crate) struct Reclaim<I> {
    collector: Collector,
    /// By its address a thread finds its registration: nobody else's as long as a registration remembers it.
    alive: Arc<()>,
    limbo: Arc<Mutex<Limbo<I>>>,
    /// How many may be freed: looked at without the lock.
    ready: Arc<AtomicUsize>,
    /// How many are pending.
    pending: AtomicUsize,
}

/// A thread's registration with a cache's collector.
struct Local {
    handle: LocalHandle,
    alive: Weak<()>,
}

thread_local! {
    static LOCALS: RefCell<Vec<Local>> = const { RefCell::new(Vec::new()) };
}

impl<I: Send + Sync + 'static> Reclaim<I> {
    pub fn new() -> Self {
        Reclaim {
            collector: Collector::new(),
            alive: Arc::new(()),
            limbo: Arc::new(Mutex::new(Limbo { pending: Vec::new(), waiting: Vec::new(), free: Vec::new(), next: 0 })),
            ready: Arc::new(AtomicUsize::new(0)),
            pending: AtomicUsize::new(0),
        }
    }

    #[inline(always)]
    pub fn enter(&self) -> Guard {
        let guard = LOCALS.try_with(|locals| {
            let locals = locals.try_borrow().ok()?;
            let first = locals.first()?;
            std::ptr::eq(first.alive.as_ptr(), Arc::as_ptr(&self.alive)).then(|| first.handle.pin())
        });
        match guard {
            Ok(Some(guard)) => guard,
            _ => self.enter_slow(),
        }
    }

    #[cold]
    fn enter_slow(&self) -> Guard {
        let guard = LOCALS.try_with(|locals| {
            let mut locals = locals.try_borrow_mut().ok()?;
            match locals.iter().position(|l| std::ptr::eq(l.alive.as_ptr(), Arc::as_ptr(&self.alive))) {
                Some(i) => locals.swap(0, i),
                None => {
                    locals.retain(|l| l.alive.strong_count() > 0);
                    locals.insert(0, Local { handle: self.collector.register(), alive: Arc::downgrade(&self.alive) });
                }
            }
            Some(locals[0].handle.pin())
        });
        // A thread that is ending, or is here already by way of its own end, registers for this once.
        guard.ok().flatten().unwrap_or_else(|| self.collector.register().pin())
    }

    /// Takes over what is out of the table.
    pub fn retire(&self, entries: impl IntoIterator<Item = EntryPtr<I>>) {
        let full = {
            let mut limbo = self.limbo.lock();
            limbo.pending.extend(entries);
            self.pending.store(limbo.pending.len(), Relaxed);
            limbo.pending.len() >= BATCH
        };
        if full {
            self.hand_over();
        }
    }

    /// Gives what is pending to the collector, and helps it along.
    fn hand_over(&self) {
        let guard = self.enter();
        let number = {
            let mut limbo = self.limbo.lock();
            let batch = std::mem::take(&mut limbo.pending);
            self.pending.store(0, Relaxed);
            if batch.is_empty() {
                None
            } else {
                limbo.next += 1;
                let number = limbo.next;
                limbo.waiting.push((number, batch));
                Some(number)
            }
        };
        if let Some(number) = number {
            let (limbo, ready) = (self.limbo.clone(), self.ready.clone());
            guard.defer(move || {
                let mut limbo = limbo.lock();
                if let Some(i) = limbo.waiting.iter().position(|(n, _)| *n == number) {
                    let (_, mut batch) = limbo.waiting.swap_remove(i);
                    limbo.free.append(&mut batch);
                    ready.store(limbo.free.len(), Relaxed);
                }
            });
        }
        guard.flush();
    }

    /// Tries to get everything that is retired past the guards: a step of the epoch at each guard's begin and end.
    pub fn push(&self) {
        for _ in 0..4 {
            self.hand_over();
        }
    }

    /// What may be freed by now.
    pub fn take_free(&self) -> Vec<EntryPtr<I>> {
        if self.ready.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut limbo = self.limbo.lock();
        self.ready.store(0, Relaxed);
        std::mem::take(&mut limbo.free)
    }

    /// Everything: for who has the cache alone.
    pub fn take_all(&mut self) -> Vec<EntryPtr<I>> {
        let mut limbo = self.limbo.lock();
        let mut all = std::mem::take(&mut limbo.free);
        all.append(&mut limbo.pending);
        for (_, mut batch) in std::mem::take(&mut limbo.waiting) {
            all.append(&mut batch);
        }
        all
    }
}
