//! Operations of one call.

use std::fmt;

use super::error::Error;
use crate::abi::{IPC_NOWAIT, SEM_UNDO, SEMVMX, SemBuf};

/// One operation of a call on several semaphores (`struct sembuf` of semop(2)): [`Set::run`](super::Set::run).
///
/// ```
/// use manyway_sem::{Error, Namespace, Op};
///
/// let namespace = Namespace::private()?;
/// let set = namespace.private_set(&[3, 0])?;
/// // Take two from the first when the second is zero; the process's end gives the two back.
/// set.run(&[Op::zero(1), Op::take(0, 2).undo()])?;
/// // One left: not enough, so nothing at all happens.
/// assert_eq!(set.try_run(&[Op::add(1, 1), Op::take(0, 2)]), Err(Error::WouldBlock));
/// assert_eq!(set.values()?, [1, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
// {bad 16 | flags 16 | sem_op 16 | num 16}, one word: what is written as a word and read as one stays in a register.
pub struct Op(u64);

const MAX: u16 = SEMVMX as u16;
/// The amount, which is where `sem_op` is otherwise, cannot be one.
const BAD: u64 = 1 << 48;

impl Op {
    const fn new(num: u16, op: i16) -> Op {
        Op(num as u64 | (op as u16 as u64) << 16)
    }
    const fn with(self, flag: i32) -> Op {
        Op(self.0 | (flag as u64) << 32)
    }
    /// Takes `amount` (1 to 32767) from semaphore `num`; waits until its value is as large.
    #[inline]
    pub const fn take(num: u16, amount: u16) -> Op {
        match amount {
            1..=MAX => Op::new(num, -(amount as i16)),
            _ => Op(Op::new(num, amount as i16).0 | BAD),
        }
    }
    /// Adds `amount` (1 to 32767) to semaphore `num`; never waits.
    #[inline]
    pub const fn add(num: u16, amount: u16) -> Op {
        match amount {
            1..=MAX => Op::new(num, amount as i16),
            _ => Op(Op::new(num, amount as i16).0 | BAD),
        }
    }
    /// Waits until semaphore `num` is zero.
    #[inline]
    pub const fn zero(num: u16) -> Op {
        Op::new(num, 0)
    }
    /// The same, taken back when the process ends, in whatever way (SEM_UNDO).
    #[inline]
    pub const fn undo(self) -> Op {
        self.with(SEM_UNDO)
    }
    /// The same, failing with [`Error::WouldBlock`] when this operation is the first one of the call that would wait (IPC_NOWAIT).
    #[inline]
    pub const fn no_wait(self) -> Op {
        self.with(IPC_NOWAIT)
    }

    /// As the engine takes it.
    #[inline(always)]
    pub(super) fn raw(self) -> Result<SemBuf, Error> {
        let Op(w) = self;
        if w & BAD != 0 {
            return Err(Error::BadAmount((w >> 16) as u16));
        }
        Ok(SemBuf { num: w as u16, op: (w >> 16) as i16, flg: (w >> 32) as i16 })
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.raw() {
            Err(_) => f.write_str("an operation with a bad amount")?,
            Ok(SemBuf { num, op: 0, .. }) => write!(f, "zero({num})")?,
            Ok(SemBuf { num, op, .. }) => write!(f, "{}({num}, {})", if op < 0 { "take" } else { "add" }, op.unsigned_abs())?,
        }
        let flags = (self.0 >> 32) as i32;
        f.write_str(if flags & SEM_UNDO != 0 { ".undo()" } else { "" })?;
        f.write_str(if flags & IPC_NOWAIT != 0 { ".no_wait()" } else { "" })
    }
}
