//! Where people wait: for the holder of a ticket, or for the end of a change.
//!
//! A room is found by what is waited for. Who waits comes in while what it waits for cannot end unseen (a CAS sets WAITED in the room's
//! lock; or the directory's lock is held); who ends it comes to the room afterwards.

use std::sync::Arc;

use crate::Error;
use crate::lock::{Condvar, Mutex};

/// What is waited for: an entry's address, or a directory's number and a name's hash. Two that meet in one key wake each other for nothing,
/// no more.
pub(crate) type Key = u64;

pub(crate) struct Rooms(Box<[Mutex<Vec<Waiter>>]>);

struct Waiter {
    key: Key,
    chair: Arc<Chair>,
}

struct Chair {
    /// None: waits; else what came of it.
    outcome: Mutex<Option<Result<(), Error>>>,
    called: Condvar,
}

/// A place in a room.
#[must_use]
pub(crate) struct Seat(Arc<Chair>);

impl Seat {
    /// Waits. The error of a holder who failed.
    pub fn wait(self) -> Result<(), Error> {
        let mut outcome = self.0.outcome.lock();
        loop {
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            outcome = self.0.called.wait(outcome);
        }
    }
}

const ROOMS: u64 = 64;

impl Rooms {
    pub fn new() -> Self {
        Rooms((0..ROOMS).map(|_| Mutex::new(Vec::new())).collect())
    }

    fn room(&self, key: Key) -> &Mutex<Vec<Waiter>> {
        // A model is to do the same each time, wherever its memory lies.
        let i = if cfg!(loom) { 0 } else { key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58 };
        &self.0[i as usize]
    }

    /// Takes a seat, if `still` says in the room's lock that there is something to wait for.
    pub fn sit(&self, key: Key, still: impl FnOnce() -> bool) -> Option<Seat> {
        let chair = Arc::new(Chair { outcome: Mutex::new(None), called: Condvar::new() });
        let mut room = self.room(key).lock();
        if !still() {
            return None;
        }
        if room.len() == room.capacity() {
            // Who did not want to wait has left its chair.
            room.retain(|w| Arc::strong_count(&w.chair) > 1);
        }
        room.push(Waiter { key, chair: chair.clone() });
        Some(Seat(chair))
    }

    /// Calls all who wait for `key`.
    pub fn call(&self, key: Key, outcome: Result<(), Error>) {
        let mut called = Vec::new();
        self.room(key).lock().retain(|w| {
            let stays = w.key != key;
            if !stays {
                called.push(w.chair.clone());
            }
            stays
        });
        for chair in called {
            *chair.outcome.lock() = Some(outcome.clone());
            chair.called.notify();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_called_with_what_came_of_it() {
        let rooms = Rooms::new();
        let (a, b) = (rooms.sit(1, || true).unwrap(), rooms.sit(2, || true).unwrap());
        assert!(rooms.sit(1, || false).is_none());
        rooms.call(1, Err(Error::Denied));
        rooms.call(2, Ok(()));
        assert_eq!((a.wait(), b.wait()), (Err(Error::Denied), Ok(())));
    }
    #[test]
    fn who_does_not_wait_leaves_no_chair() {
        let rooms = Rooms::new();
        let stays = rooms.sit(7, || true).unwrap();
        for _ in 0..10_000 {
            drop(rooms.sit(7, || true));
        }
        assert!(rooms.room(7).lock().len() < 100);
        rooms.call(7, Ok(()));
        assert_eq!(stays.wait(), Ok(()));
    }
}
