//! An entry's state word.
//!
//! | kind | meaning | leaves it by |
//! |---|---|---|
//! | FILLING | reserved: the holder of a ticket is going to say what the name leads to | `publish` (→ LIVE), `kill` |
//! | LIVE | the binding holds | `kill` |
//! | DEAD | it does not hold any more; for ever | |
//!
//! Publish and kill are made under the lock of the entry's directory; walkers set REFERENCED and WAITED, and one of them REVALIDATING, at
//! any time, so all are CAS loops.

use manyway_sync::atomic::Ordering::*;

use crate::mem::Entry;

pub(crate) const DEAD: u32 = 0;
pub(crate) const FILLING: u32 = 1;
pub(crate) const LIVE: u32 = 2;
const KIND: u32 = 3;
// A walk looks at many states at once: only LIVE has its bit.
const _: () = assert!(LIVE.is_power_of_two() && (DEAD | FILLING) & LIVE == 0);

/// Met since the clock's hand came by.
pub(crate) const REFERENCED: u32 = 1 << 2;
/// LIVE, its time is over, and somebody has the ticket.
pub(crate) const REVALIDATING: u32 = 1 << 3;
/// Somebody waits for the holder of the ticket.
pub(crate) const WAITED: u32 = 1 << 4;
/// What the name leads to, copied from the node, so that a walk need not read it. None of them: a file.
pub(crate) const DIRECTORY: u32 = 1 << 5;
pub(crate) const LINK: u32 = 1 << 6;
/// The name does not exist.
pub(crate) const NEGATIVE: u32 = 1 << 7;
/// The root of another tree is mounted over what the store has there.
pub(crate) const MOUNT: u32 = 1 << 8;
/// `expiry` means something.
pub(crate) const TIMED: u32 = 1 << 9;

/// That it is pinned was told (`pressure`).
pub(crate) const TOLD: u32 = 1 << 10;

/// Bindings that walks go on from: their ends are ordered by the rename lock.
pub(crate) const PASSAGE: u32 = DIRECTORY | LINK;

#[inline(always)]
pub(crate) fn kind(state: u32) -> u32 {
    state & KIND
}

impl<I> Entry<I> {
    fn change(&self, order: manyway_sync::atomic::Ordering, f: impl Fn(u32) -> Option<u32>) -> Result<u32, u32> {
        let mut old = self.state.load(Acquire);
        while let Some(new) = f(old) {
            match self.state.compare_exchange_weak(old, new, order, Acquire) {
                Ok(_) => return Ok(old),
                Err(now) => old = now,
            }
        }
        Err(old)
    }

    /// The state, looked at again behind a fence.
    #[inline(always)]
    pub fn state_again(&self) -> u32 {
        self.state.load(Relaxed)
    }

    #[inline(always)]
    pub fn is_live(&self) -> bool {
        kind(self.state.load(Relaxed)) == LIVE
    }

    /// FILLING → LIVE: its node is said already. The state before.
    pub fn publish(&self, binding: u32, expiry: u32) -> u32 {
        self.expiry.store(expiry, Relaxed);
        // BIND: node and expiry before the state.
        match self.change(AcqRel, |s| (kind(s) == FILLING).then_some(LIVE | binding | s & REFERENCED)) {
            Ok(old) => old,
            Err(_) => unreachable!("who publishes has looked under the directory's lock"),
        }
    }

    /// → DEAD. The state before.
    pub fn kill(&self) -> u32 {
        // KILL: comes before whatever the killer does next: taking it out, publishing what is there instead.
        match self.change(AcqRel, |s| (kind(s) != DEAD).then_some(DEAD)) {
            Ok(old) => old,
            Err(_) => unreachable!("who kills has looked under the directory's lock"),
        }
    }

    /// Marks a ticket's entry: somebody waits. False: the ticket was answered.
    pub fn wait_for(&self) -> bool {
        self.change(AcqRel, |s| (kind(s) == FILLING || kind(s) == LIVE && s & REVALIDATING != 0).then_some(s | WAITED)).is_ok()
    }

    /// Takes the ticket of a LIVE entry whose time is over.
    pub fn revalidate(&self) -> bool {
        self.change(AcqRel, |s| (kind(s) == LIVE && s & REVALIDATING == 0).then_some(s | REVALIDATING)).is_ok()
    }

    /// Gives it back, with a new time if there is one. The state before; none: it is DEAD.
    pub fn revalidated(&self, expiry: Option<(u32, u32)>) -> Option<u32> {
        if let Some((_, expiry)) = expiry {
            self.expiry.store(expiry, Relaxed);
        }
        self.change(AcqRel, |s| {
            let timed = expiry.map_or(s & TIMED, |(timed, _)| timed);
            (kind(s) == LIVE).then_some(s & !(REVALIDATING | WAITED | TIMED) | timed)
        })
        .ok()
    }

    #[inline(always)]
    pub fn set_referenced(&self, seen: u32) {
        if seen & REFERENCED == 0 {
            self.mark_referenced();
        }
    }

    #[cold]
    fn mark_referenced(&self) {
        self.state.fetch_or(REFERENCED, Relaxed);
    }

    /// That it is pinned is told, or may be told again. False: it was so before.
    pub fn tell(&self, told: bool) -> bool {
        self.change(Relaxed, |s| (told != (s & TOLD != 0)).then_some(s ^ TOLD)).is_ok()
    }

    /// The clock's hand comes by: whether it was met.
    pub fn take_referenced(&self) -> bool {
        self.change(Relaxed, |s| (s & REFERENCED != 0).then_some(s & !REFERENCED)).is_ok()
    }
}
