//! Reclamation for models, and for miri: what is retired may be freed when all guards that were there have ended, and at once. In models an entry that is
//! freed stays in memory, and says so when it is used (`mem::life`).

use std::sync::Arc;

use crate::lock::Mutex;
use crate::mem::EntryPtr;

struct State<I> {
    next: u64,
    guards: Vec<u64>,
    waiting: Vec<(Vec<u64>, Vec<EntryPtr<I>>)>,
    free: Vec<EntryPtr<I>>,
}

/// Ends a guard, whatever the type of the inodes.
trait Guards: Send + Sync {
    fn end(&self, guard: u64);
}

impl<I: Send + Sync> Guards for Mutex<State<I>> {
    fn end(&self, guard: u64) {
        let mut s = self.lock();
        s.guards.retain(|g| *g != guard);
        for (guards, entries) in std::mem::take(&mut s.waiting) {
            let guards: Vec<u64> = guards.into_iter().filter(|g| *g != guard).collect();
            if guards.is_empty() {
                s.free.extend(entries);
            } else {
                s.waiting.push((guards, entries));
            }
        }
    }
}

pub(crate) struct Guard(Arc<dyn Guards>, u64);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

pub(crate) struct Reclaim<I>(Arc<Mutex<State<I>>>);

impl<I: Send + Sync + 'static> Reclaim<I> {
    pub fn new() -> Self {
        Reclaim(Arc::new(Mutex::new(State { next: 0, guards: Vec::new(), waiting: Vec::new(), free: Vec::new() })))
    }

    pub fn enter(&self) -> Guard {
        let mut s = self.0.lock();
        s.next += 1;
        let guard = s.next;
        s.guards.push(guard);
        Guard(self.0.clone(), guard)
    }

    pub fn retire(&self, entries: impl IntoIterator<Item = EntryPtr<I>>) {
        let mut s = self.0.lock();
        if s.guards.is_empty() {
            s.free.extend(entries);
        } else {
            let guards = s.guards.clone();
            s.waiting.push((guards, entries.into_iter().collect()));
        }
    }

    pub fn push(&self) {}

    pub fn take_free(&self) -> Vec<EntryPtr<I>> {
        std::mem::take(&mut self.0.lock().free)
    }

    pub fn take_all(&mut self) -> Vec<EntryPtr<I>> {
        let mut s = self.0.lock();
        let mut all = std::mem::take(&mut s.free);
        all.extend(std::mem::take(&mut s.waiting).into_iter().flat_map(|(_, entries)| entries));
        all
    }
}
