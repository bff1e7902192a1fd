//! A call that is made again and again: checked, and its cells found, once.

use std::fmt;
use std::time::Duration;

use manyway_shm::layout::Cell;
use manyway_sync::clock;

use super::error::Error;
use super::op::Op;
use super::set::{Patience, Set};
use super::thread;
use crate::abi::{SEM_UNDO, SemBuf};
use crate::fast;

/// Operations on a set that are carried out together or not at all, prepared for many calls: [`Set::prepare`].
///
/// ```
/// use manyway_sem::{Namespace, Op};
///
/// let namespace = Namespace::private()?;
/// let set = namespace.private_set(&[2, 2])?;
/// let both = set.prepare(&[Op::take(0, 1), Op::take(1, 1)])?;
/// both.run()?;
/// both.run()?;
/// assert_eq!(set.values()?, [0, 0]);
/// assert!(both.try_run().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Prepared {
    set: Set,
    ops: Box<[SemBuf]>,
    pair: Option<Pair>,
}

/// Two plain operations on two semaphores, ascending: what the fast path takes.
#[derive(Clone, Copy)]
struct Pair {
    cells: [&'static Cell; 2],
    ops: [(u16, i16); 2],
    /// What the caller must be allowed: 4 to read, 2 to alter.
    want: u32,
}

impl Pair {
    fn of(set: &Set, ops: &[SemBuf]) -> Option<Pair> {
        let &[first, second] = ops else { return None };
        let (a, b) = if first.num < second.num { (first, second) } else { (second, first) };
        if a.num == b.num || (a.flg | b.flg) & SEM_UNDO as i16 != 0 {
            return None;
        }
        let cell = |op: SemBuf| set.found().cell(op.num.into());
        let want = if a.op | b.op == 0 { 4 } else { 2 };
        Some(Pair { cells: [cell(a)?, cell(b)?], ops: [(a.num, a.op), (b.num, b.op)], want })
    }
}

impl Prepared {
    pub(super) fn new(set: Set, ops: &[Op]) -> Result<Prepared, Error> {
        let ops: Box<[SemBuf]> = ops.iter().map(|op| op.raw()).collect::<Result<_, _>>()?;
        set.check(&ops)?;
        Ok(Prepared { pair: Pair::of(&set, &ops), set, ops })
    }

    /// Carries the operations out; waits until all of them can be (semop(2)).
    ///
    /// # Errors
    /// As [`Set::run`].
    // Out of line it saves and restores registers for a fifth of what it does.
    #[inline(always)]
    pub fn run(&self) -> Result<(), Error> {
        if self.fast() { Ok(()) } else { self.set.call(&self.ops, Patience::Forever) }
    }
    /// The same if it can be done at once.
    ///
    /// # Errors
    /// As [`Set::try_run`].
    #[inline]
    pub fn try_run(&self) -> Result<(), Error> {
        if self.fast() { Ok(()) } else { self.set.call(&self.ops, Patience::Never) }
    }
    /// The same, waiting no longer than `timeout` (semtimedop(2)).
    ///
    /// # Errors
    /// As [`Set::run_timeout`].
    #[inline]
    pub fn run_timeout(&self, timeout: Duration) -> Result<(), Error> {
        if self.fast() { Ok(()) } else { self.set.call(&self.ops, Patience::of(timeout)) }
    }

    /// False: nothing has been done.
    #[inline(always)]
    fn fast(&self) -> bool {
        let (Some(pair), set, engine) = (&self.pair, self.set.found(), self.set.engine()) else { return false };
        // First: who has no place in the namespace must not look at the set.
        let Some(seat) = thread::seat(self.set.namespace().shared()) else { return false };
        if !fast::is_of(pair.cells, set.tag, clock::realtime_secs()) || !engine.owner_permits(set.head, pair.want) {
            return false;
        }
        engine.enter_first(seat.thread);
        let done = fast::pair(pair.cells[0], pair.cells[1], &seat.by, set.page(), set.tag, pair.ops[0], pair.ops[1]);
        engine.leave_first(seat.thread);
        done
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("set", &self.set.id()).field("operations", &self.ops).finish()
    }
}
