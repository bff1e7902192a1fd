//! One semaphore: found once, then one compare-and-swap an operation.

use std::fmt;
use std::time::Duration;

use manyway_shm::layout::Cell;
use manyway_sync::atomic::Ordering::Relaxed;

use super::error::Error;
use super::permit::Permit;
use super::set::{Patience, Set};
use super::thread;
use crate::abi::{SEM_UNDO, SEMVMX, SemBuf};
use crate::attach::wiped;
use crate::fast;

/// One semaphore of a set: a number from 0 to 32767 that is never taken below 0.
///
/// ```
/// use manyway_sem::{Error, Namespace};
///
/// let namespace = Namespace::private()?;
/// let sem = namespace.private_set(&[0])?.sem(0)?;
/// std::thread::scope(|threads| {
///     threads.spawn(move || sem.add(3));
///     sem.take(2)
/// })?;
/// assert_eq!(sem.try_take(2), Err(Error::WouldBlock));
/// assert_eq!(sem.value()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Semaphore {
    set: Set,
    cell: &'static Cell,
    /// See [`thread::key_of`].
    key: u64,
    num: u16,
    undo: bool,
}

impl Semaphore {
    pub(super) fn new(set: Set, cell: &'static Cell, num: u16) -> Semaphore {
        Semaphore { set, cell, key: thread::key_of(cell, set.found().tag), num, undo: false }
    }

    /// The same semaphore, whose operations are taken back when the process ends, in whatever way (SEM_UNDO of semop(2)): what it has
    /// taken is added, what it has added is taken, as far as the value allows.
    ///
    /// Take back with the handle that you took with: an `add` without undo leaves what the process's end will give back as it was.
    #[must_use]
    pub fn with_undo(self) -> Semaphore {
        Semaphore { undo: true, ..self }
    }
    /// The same semaphore, whose waits end with [`Error::Interrupted`] when a signal's handler has run, as semop(2) has it. Otherwise they
    /// go on.
    #[must_use]
    pub fn interruptible(self) -> Semaphore {
        Semaphore { set: self.set.interruptible(), ..self }
    }
    /// The set that it is in.
    pub fn set(&self) -> Set {
        self.set
    }
    /// Its number in the set.
    pub fn num(&self) -> u16 {
        self.num
    }

    /// Adds `amount` (1 to 32767); never waits (semop(2) with a positive `sem_op`).
    ///
    /// # Errors
    /// [`Error::Overflow`], [`Error::BadAmount`], [`Error::Removed`], [`Error::Denied`]; with undo, [`Error::NoMemory`] for the process's first
    /// use of it on the set. Nothing has been changed then.
    #[inline(always)]
    pub fn add(&self, amount: u16) -> Result<(), Error> {
        self.operate(checked(amount)?, || Patience::Forever)
    }
    /// Takes `amount` (1 to 32767); waits until the value is as large (semop(2) with a negative `sem_op`).
    ///
    /// # Errors
    /// As [`Semaphore::add`], and [`Error::Interrupted`] if asked for.
    #[inline(always)]
    pub fn take(&self, amount: u16) -> Result<(), Error> {
        self.operate(-checked(amount)?, || Patience::Forever)
    }
    /// Takes `amount` if the value is as large now (IPC_NOWAIT of semop(2)).
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if it is not; else as [`Semaphore::add`].
    #[inline(always)]
    pub fn try_take(&self, amount: u16) -> Result<(), Error> {
        self.operate(-checked(amount)?, || Patience::Never)
    }
    /// Takes `amount`, waiting no longer than `timeout` (semtimedop(2)). The time is that of CLOCK_MONOTONIC, from this call on.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when that has passed; else as [`Semaphore::take`].
    #[inline]
    pub fn take_timeout(&self, amount: u16, timeout: Duration) -> Result<(), Error> {
        self.operate(-checked(amount)?, || Patience::of(timeout))
    }
    /// Waits until the value is 0 (semop(2) with a `sem_op` of 0). Also when it is 0 only for an instant.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Denied`], and [`Error::Interrupted`] if asked for.
    #[inline(always)]
    pub fn wait_zero(&self) -> Result<(), Error> {
        self.operate(0, || Patience::Forever)
    }
    /// Succeeds if the value is 0 now.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if it is not; else as [`Semaphore::wait_zero`].
    #[inline(always)]
    pub fn try_wait_zero(&self) -> Result<(), Error> {
        self.operate(0, || Patience::Never)
    }
    /// Waits until the value is 0, no longer than `timeout` (semtimedop(2)).
    ///
    /// # Errors
    /// [`Error::TimedOut`] when that has passed; else as [`Semaphore::wait_zero`].
    #[inline]
    pub fn wait_zero_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.operate(0, || Patience::of(timeout))
    }

    /// Takes one, to be given back when the permit is dropped or the process ends; waits until there is one.
    ///
    /// ```
    /// let namespace = manyway_sem::Namespace::private()?;
    /// let lock = namespace.private_set(&[1])?.sem(0)?;
    /// {
    ///     let _permit = lock.acquire()?;
    ///     assert_eq!(lock.value()?, 0);
    /// }
    /// assert_eq!(lock.value()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::take`].
    #[inline]
    pub fn acquire(&self) -> Result<Permit, Error> {
        self.acquire_many(1)
    }
    /// The same with `amount` at once.
    ///
    /// # Errors
    /// As [`Semaphore::take`].
    #[inline]
    pub fn acquire_many(&self, amount: u16) -> Result<Permit, Error> {
        self.with_undo().take(amount)?;
        Ok(Permit::new(*self, amount))
    }
    /// Takes `amount` if there is as much now, to be given back as by [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::try_take`].
    #[inline]
    pub fn try_acquire(&self, amount: u16) -> Result<Permit, Error> {
        self.with_undo().try_take(amount)?;
        Ok(Permit::new(*self, amount))
    }
    /// Takes `amount`, waiting no longer than `timeout`, to be given back as by [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::take_timeout`].
    #[inline]
    pub fn acquire_timeout(&self, amount: u16, timeout: Duration) -> Result<Permit, Error> {
        self.with_undo().take_timeout(amount, timeout)?;
        Ok(Permit::new(*self, amount))
    }

    /// The value (GETVAL of semctl(2)).
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Denied`].
    pub fn value(&self) -> Result<u16, Error> {
        self.set.with(|e, t| e.getval(t, self.set.id(), self.num.into())).map(|v| v as u16)
    }
    /// Sets the value (SETVAL of semctl(2)). Nobody gives back any more what was taken from the semaphore with undo before.
    ///
    /// # Errors
    /// [`Error::BadValue`], [`Error::Removed`], [`Error::Denied`].
    pub fn set_value(&self, value: u16) -> Result<(), Error> {
        if value > SEMVMX as u16 {
            return Err(Error::BadValue(value));
        }
        self.set.with(|e, t| e.setval(t, self.set.id(), self.num.into(), value.into()))
    }
    /// The process that operated on it last (GETPID of semctl(2)); None: nobody did yet.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Denied`].
    pub fn last_pid(&self) -> Result<Option<u32>, Error> {
        let pid = self.set.with(|e, t| e.getpid(t, self.set.id(), self.num.into()))?;
        Ok((pid != 0).then_some(pid as u32))
    }
    /// How many threads wait to take from it (GETNCNT of semctl(2)).
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Denied`].
    pub fn takers(&self) -> Result<usize, Error> {
        self.set.with(|e, t| e.getncnt(t, self.set.id(), self.num.into())).map(|n| n as usize)
    }
    /// How many threads wait for it to be zero (GETZCNT of semctl(2)).
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Denied`].
    pub fn zero_waiters(&self) -> Result<usize, Error> {
        self.set.with(|e, t| e.getzcnt(t, self.set.id(), self.num.into())).map(|n| n as usize)
    }

    #[inline(always)]
    fn operate(&self, op: i16, patience: impl FnOnce() -> Patience) -> Result<(), Error> {
        let engine = self.set.engine();
        let set = self.set.found();
        // First: who has no place in the namespace must not look at the set.
        let pid_bits = engine.wiped(wiped::PID_BITS).load(Relaxed);
        if pid_bits != 0 && engine.owner_permits(set.head, if op == 0 { 4 } else { 2 }) && fast::is_current([self.cell], set.tag) {
            let done = if self.undo { self.operate_undo(op) } else { fast::plain(self.cell, set.tag, pid_bits, op.into()) };
            if done {
                return Ok(());
            }
        }
        self.operate_slow(op, patience)
    }

    // Inlined: out of line it saves and restores more registers than it has work for (8.6 ns instead of 5.7).
    #[inline(always)]
    fn operate_undo(&self, op: i16) -> bool {
        let (engine, set) = (self.set.engine(), self.set.found());
        let Some(a) = thread::adjustment(self.set.namespace().shared(), set, self.num, self.key) else {
            return self.operate_undo_unprepared(op);
        };
        engine.enter_first(a.seat.thread);
        let done = fast::undo(self.cell, a.word, &a.seat.by, a.head, set.tag, op);
        engine.leave_first(a.seat.thread);
        done
    }

    /// The same where the way to this process's adjustment has to be found first.
    #[cold]
    #[inline(never)]
    fn operate_undo_unprepared(&self, op: i16) -> bool {
        thread::with(self.set.namespace().shared(), |t| self.set.engine().try_one(t, self.set.id(), self.num, op, SEM_UNDO as i16))
    }

    #[cold]
    #[inline(never)]
    fn operate_slow(&self, op: i16, patience: impl FnOnce() -> Patience) -> Result<(), Error> {
        self.set.call(&[self.raw(op)], patience())
    }

    #[inline]
    fn raw(&self, op: i16) -> SemBuf {
        SemBuf { num: self.num, op, flg: if self.undo { SEM_UNDO as i16 } else { 0 } }
    }
}

/// An amount as the engine counts.
#[inline(always)]
fn checked(amount: u16) -> Result<i16, Error> {
    if amount == 0 || amount > SEMVMX as u16 {
        return Err(Error::BadAmount(amount));
    }
    Ok(amount as i16)
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("set", &self.set.id()).field("num", &self.num).field("undo", &self.undo).finish()
    }
}
