//! Sets: found by key, made, asked, changed, removed; calls of several operations.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use manyway_shm::layout::{Cell, SetHead};
use manyway_sync::{Errno, clock};

use super::error::Error;
use super::namespace::Namespace;
use super::op::Op;
use super::prepared::Prepared;
use super::semaphore::Semaphore;
use super::thread;
use crate::abi::{IPC_CREAT, IPC_EXCL, IPC_PRIVATE, SEM_UNDO, SEMVMX, SemBuf, SetStat, Timespec};
use crate::engine::{Engine, Holder, Sleeper, Thread};
use crate::fast;
use crate::set::SetRef;

/// The name by which processes find a set (`key_t`): any number but 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(i32);

impl Key {
    /// A key.
    ///
    /// # Panics
    /// When `key` is 0, which is IPC_PRIVATE and names no set: [`Namespace::private_set`] makes one without a key. In a constant this is an
    /// error of the compiler.
    pub const fn new(key: i32) -> Key {
        assert!(key != IPC_PRIVATE, "a key must not be 0; Namespace::private_set makes a set without a key");
        Key(key)
    }

    /// The key that ftok(3) makes of an existing file and a number; the same one for C programs.
    ///
    /// ```
    /// let key = manyway_sem::Key::of_file("/etc/passwd", b'a')?;
    /// assert_eq!(key, manyway_sem::Key::of_file("/etc/passwd", b'a')?);
    /// assert_ne!(key, manyway_sem::Key::of_file("/etc/passwd", b'b')?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// That of stat(2); [`io::ErrorKind::InvalidInput`] in the rare case that the key would be 0.
    pub fn of_file(path: impl AsRef<Path>, project: u8) -> io::Result<Key> {
        let file = std::fs::metadata(path)?;
        let key = (file.ino() & 0xffff) as u32 | ((file.dev() & 0xff) as u32) << 16 | (project as u32) << 24;
        match key as i32 {
            IPC_PRIVATE => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "this file and project number give the key 0; use another number"))
            }
            key => Ok(Key(key)),
        }
    }

    /// The number.
    pub const fn get(self) -> i32 {
        self.0
    }
}

/// How to find or make the set of a key: [`Namespace::set`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SetOptions {
    namespace: Namespace,
    key: i32,
    mode: u32,
}

impl SetOptions {
    pub(super) fn new(namespace: Namespace, key: Key) -> SetOptions {
        SetOptions { namespace, key: key.0, mode: 0o600 }
    }
    pub(super) fn private(namespace: Namespace, values: &[u16]) -> Result<Set, Error> {
        SetOptions { namespace, key: IPC_PRIVATE, mode: 0o600 }.get(values, IPC_CREAT)
    }

    /// Mode of a new set, the low nine bits: read to look at it and to wait for zero, write to change it. 0600 unless this says otherwise.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode & 0o777;
        self
    }

    /// Opens the set, whatever its size.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::KeyDenied`] (semget(2)).
    pub fn open(self) -> Result<Set, Error> {
        self.get(&[], 0)
    }
    /// Opens the set, or makes it with one semaphore for each of the values. An existing one keeps its values, and must have as many
    /// semaphores or more. Of processes that do this at once, one makes it, and none sees it without its values.
    ///
    /// ```
    /// use manyway_sem::{Key, Namespace};
    ///
    /// let namespace = Namespace::private()?;
    /// const KEY: Key = Key::new(42);
    /// let set = namespace.set(KEY).create(&[1, 0])?;
    /// set.sem(0)?.take(1)?;
    /// assert_eq!(namespace.set(KEY).create(&[1, 0])?.values()?, [0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooSmall`], [`Error::KeyDenied`], and as [`Namespace::private_set`] (semget(2) with IPC_CREAT).
    pub fn create(self, values: &[u16]) -> Result<Set, Error> {
        self.get(values, IPC_CREAT)
    }
    /// Makes the set; one that exists is an error.
    ///
    /// # Errors
    /// [`Error::Exists`], and as [`Namespace::private_set`] (semget(2) with IPC_CREAT and IPC_EXCL).
    pub fn create_new(self, values: &[u16]) -> Result<Set, Error> {
        self.get(values, IPC_CREAT | IPC_EXCL)
    }

    fn get(self, values: &[u16], flags: i32) -> Result<Set, Error> {
        let SetOptions { namespace, key, mode } = self;
        let limit = namespace.limits().msl;
        if values.len() > limit as usize || (values.is_empty() && flags & IPC_CREAT != 0) {
            return Err(Error::BadSize { wanted: count(values), limit });
        }
        check_values(values)?;
        let flags = flags | mode as i32;
        let got = thread::with(namespace.shared(), |t| namespace.engine().get(t, key, values.len() as i32, flags, values));
        let id = got.map_err(|e| match e {
            Errno::ENOENT => Error::NotFound { key },
            Errno::EEXIST => Error::Exists { key },
            Errno::EINVAL => Error::TooSmall { key, wanted: count(values) },
            Errno::EACCES => Error::KeyDenied { key },
            e => Error::of_set(0, e),
        })?;
        Set::find(namespace, id)
    }
}

/// A length as errors show it.
fn count<T>(slice: &[T]) -> u32 {
    slice.len().try_into().unwrap_or(u32::MAX)
}

fn check_values(values: &[u16]) -> Result<(), Error> {
    match values.iter().find(|v| **v > SEMVMX as u16) {
        Some(v) => Err(Error::BadValue(*v)),
        None => Ok(()),
    }
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    Forever,
    Never,
    Until(Instant),
}

impl Patience {
    pub(super) fn of(d: Duration) -> Patience {
        // A time beyond what the clock can show does not come.
        Instant::now().checked_add(d).map_or(Patience::Forever, Patience::Until)
    }
    fn timeout(self) -> Option<Timespec> {
        let left = match self {
            Patience::Forever => return None,
            Patience::Never => Duration::ZERO,
            Patience::Until(at) => at.saturating_duration_since(Instant::now()),
        };
        Some(Timespec { sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), nsec: left.subsec_nanos() as i64 })
    }
}

/// A thread that waits in a call on the set: [`Set::sleepers`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SleepingCall {
    /// Who, since when, and the operation that blocks it.
    pub sleeper: Sleeper,
    /// All operations of its call.
    pub operations: Vec<SemBuf>,
}

/// A set of semaphores. It lives until it is removed, whoever made it may long be gone.
#[derive(Clone, Copy)]
pub struct Set {
    namespace: Namespace,
    found: SetRef<'static>,
    id: i32,
    interruptible: bool,
}

impl Set {
    pub(super) fn find(namespace: Namespace, id: i32) -> Result<Set, Error> {
        let engine = namespace.engine();
        let found = thread::with(namespace.shared(), |t| engine.on_sets(t, || engine.set_of_id(id))).map_err(|e| Error::of_set(id, e))?;
        Ok(Set { namespace, found, id, interruptible: false })
    }

    /// Semaphore `num`, counted from 0.
    ///
    /// # Errors
    /// [`Error::NoSuchSemaphore`]; [`Error::Removed`], if the set was removed meanwhile and something else lies in its place.
    pub fn sem(&self, num: u16) -> Result<Semaphore, Error> {
        match self.found.cell(num as u32) {
            Some(cell) => Ok(Semaphore::new(*self, cell, num)),
            None if self.namespace.engine().beyond(&self.found) == Errno::EFBIG => {
                Err(Error::NoSuchSemaphore { num: num as u32, len: self.found.nsems })
            }
            None => Err(Error::of_set(self.id, Errno::EIDRM)),
        }
    }
    /// How many semaphores it has.
    #[expect(clippy::len_without_is_empty, reason = "a set is never empty")]
    pub fn len(&self) -> usize {
        self.found.nsems as usize
    }
    /// Its id, by which [`Namespace::set_by_id`] and `manyway show` find it.
    pub fn id(&self) -> i32 {
        self.id
    }
    /// The namespace it is in.
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }
    /// The same set, whose waits end with [`Error::Interrupted`] when a signal's handler has run, as semop(2) has it. Otherwise they go
    /// on.
    #[must_use]
    pub fn interruptible(self) -> Set {
        Set { interruptible: true, ..self }
    }

    /// Carries out all operations together, or waits until it can: semop(2). Operations count in their order: `add` before `take` on the
    /// same semaphore may take what is added.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Denied`], [`Error::Overflow`], [`Error::NoSuchSemaphore`], [`Error::BadAmount`],
    /// [`Error::NoOperations`], [`Error::TooManyOperations`]; [`Error::WouldBlock`] by [`Op::no_wait`]; [`Error::NoMemory`] for the first use
    /// of undo on the set. Nothing has been changed then.
    #[inline]
    pub fn run(&self, ops: &[Op]) -> Result<(), Error> {
        self.run_for(ops, Patience::Forever)
    }
    /// The same if it can be done at once (IPC_NOWAIT of semop(2)).
    ///
    /// # Errors
    /// [`Error::WouldBlock`] when it would have to wait; else as [`Set::run`].
    #[inline]
    pub fn try_run(&self, ops: &[Op]) -> Result<(), Error> {
        self.run_for(ops, Patience::Never)
    }
    /// The same, waiting no longer than `timeout` (semtimedop(2)).
    ///
    /// # Errors
    /// [`Error::TimedOut`] when that has passed; else as [`Set::run`].
    #[inline]
    pub fn run_timeout(&self, ops: &[Op], timeout: Duration) -> Result<(), Error> {
        self.run_for(ops, Patience::of(timeout))
    }

    /// The same operations for many calls: checked, and their semaphores found, once.
    ///
    /// # Errors
    /// [`Error::NoOperations`], [`Error::TooManyOperations`], [`Error::BadAmount`], [`Error::NoSuchSemaphore`].
    pub fn prepare(&self, ops: &[Op]) -> Result<Prepared, Error> {
        Prepared::new(*self, ops)
    }

    #[inline(always)]
    fn run_for(&self, ops: &[Op], patience: Patience) -> Result<(), Error> {
        let done = match *ops {
            [op] => self.single(op),
            [a, b] => self.pair(a, b),
            _ => false,
        };
        if done { Ok(()) } else { self.run_slow(ops, patience) }
    }

    /// One operation on a semaphore that is free; false: nothing has been done.
    #[inline(never)]
    fn single(&self, op: Op) -> bool {
        let Ok(op) = op.raw() else { return false };
        thread::with(self.namespace.shared(), |t| self.engine().try_one(t, self.id, op.num, op.op, op.flg))
    }

    /// Two operations on two semaphores that are free; false: nothing has been done. The operations come and stay in registers.
    #[inline(never)]
    fn pair(&self, a: Op, b: Op) -> bool {
        let now = clock::realtime_secs();
        let (Ok(a), Ok(b)) = (a.raw(), b.raw()) else { return false };
        let (a, b) = if a.num < b.num { (a, b) } else { (b, a) };
        let (engine, set) = (self.engine(), &self.found);
        // First: who has no place in the namespace must not look at the set.
        let Some(seat) = thread::seat(self.namespace.shared()) else { return false };
        if a.num == b.num
            || b.num as u32 >= set.nsems
            || (a.flg | b.flg) & SEM_UNDO as i16 != 0
            || !engine.owner_permits(set.head, if a.op | b.op == 0 { 4 } else { 2 })
        {
            return false;
        }
        let view = set.arena.view();
        let cell = |num: u16| view.at::<Cell>(set.at + (size_of::<SetHead>() + num as usize * size_of::<Cell>()) as u64);
        let (Some(ca), Some(cb)) = (cell(a.num), cell(b.num)) else { return false };
        if !fast::is_of([ca, cb], set.tag, now) {
            return false;
        }
        engine.enter_first(seat.thread);
        let done = fast::pair(ca, cb, &seat.by, set.page(), set.tag, (a.num, a.op), (b.num, b.op));
        engine.leave_first(seat.thread);
        done
    }

    #[cold]
    #[inline(never)]
    fn run_slow(&self, ops: &[Op], patience: Patience) -> Result<(), Error> {
        const FEW: usize = 16;
        if ops.len() <= FEW {
            let mut raw = [SemBuf::default(); FEW];
            for (raw, op) in raw.iter_mut().zip(ops) {
                *raw = op.raw()?;
            }
            return self.call(&raw[..ops.len()], patience);
        }
        let raw: Vec<SemBuf> = ops.iter().map(|op| op.raw()).collect::<Result<_, _>>()?;
        self.call(&raw, patience)
    }

    /// A call by the slow path.
    pub(super) fn call(&self, ops: &[SemBuf], patience: Patience) -> Result<(), Error> {
        self.check(ops)?;
        loop {
            let timeout = patience.timeout();
            match self.with_errno(|e, t| {
                e.on_sets(t, || {
                    // What a removed set's memory says of permissions means nothing.
                    self.exists()?;
                    e.semop_set(t, &self.found, ops, timeout)
                })
            }) {
                Ok(()) => return Ok(()),
                Err(Errno::EINTR) if !self.interruptible => {}
                Err(Errno::EAGAIN) if matches!(patience, Patience::Until(at) if Instant::now() >= at) => return Err(Error::TimedOut),
                Err(e) => return Err(Error::of_set(self.id, e)),
            }
        }
    }

    /// What can be said of a call before it is made.
    pub(super) fn check(&self, ops: &[SemBuf]) -> Result<(), Error> {
        let limit = self.namespace.limits().opm;
        if ops.is_empty() {
            return Err(Error::NoOperations);
        }
        if ops.len() > limit as usize {
            return Err(Error::TooManyOperations { got: count(ops), limit });
        }
        if let Some(op) = ops.iter().find(|op| op.num as u32 >= self.found.nsems) {
            return Err(Error::NoSuchSemaphore { num: op.num as u32, len: self.found.nsems });
        }
        Ok(())
    }

    /// All values at one moment (GETALL of semctl(2)).
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Denied`].
    pub fn values(&self) -> Result<Vec<u16>, Error> {
        let mut values = vec![0; self.len()];
        self.with(|e, t| e.getall(t, self.id, &mut values))?;
        Ok(values)
    }
    /// Sets all values at one moment (SETALL of semctl(2)). Nobody gives back any more what was taken from the set with undo before.
    ///
    /// # Errors
    /// [`Error::WrongLength`], [`Error::BadValue`], [`Error::Removed`], [`Error::Denied`].
    pub fn set_values(&self, values: &[u16]) -> Result<(), Error> {
        if values.len() != self.len() {
            return Err(Error::WrongLength { got: count(values), len: self.found.nsems });
        }
        check_values(values)?;
        self.with(|e, t| e.setall(t, self.id, values))
    }
    /// Key, owner, mode, size and times (IPC_STAT of semctl(2)).
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Denied`].
    pub fn status(&self) -> Result<SetStat, Error> {
        self.with(|e, t| e.stat(t, self.id))
    }
    /// Changes owner, group and the low nine bits of the mode (IPC_SET of semctl(2)).
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::NotOwner`].
    pub fn set_permissions(&self, uid: u32, gid: u32, mode: u32) -> Result<(), Error> {
        self.with(|e, t| e.set_perm(t, self.id, uid, gid, mode))
    }
    /// Who is to give back what, should it end: processes with undo in force on the set. System V has no such query.
    ///
    /// ```
    /// let namespace = manyway_sem::Namespace::private()?;
    /// let set = namespace.private_set(&[5])?;
    /// set.sem(0)?.with_undo().take(2)?;
    /// let holders = set.holders()?;
    /// assert_eq!((holders[0].pid, holders[0].adj), (std::process::id(), 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Removed`].
    pub fn holders(&self) -> Result<Vec<Holder>, Error> {
        let mut holders = Vec::new();
        self.with(|e, t| e.for_each_holder(t, self.id, &mut |h| holders.push(h)))?;
        Ok(holders)
    }
    /// Who waits in a call on the set, in order of arrival. System V has no such query.
    ///
    /// # Errors
    /// [`Error::Removed`].
    pub fn sleepers(&self) -> Result<Vec<SleepingCall>, Error> {
        let mut calls = Vec::new();
        self.with(|e, t| e.for_each_sleeper(t, self.id, &mut |sleeper, ops| calls.push(SleepingCall { sleeper, operations: ops.into() })))?;
        Ok(calls)
    }
    /// Removes the set (IPC_RMID of semctl(2)). Whoever waits on it gets [`Error::Removed`], and so does every later call.
    ///
    /// # Errors
    /// [`Error::Removed`] when somebody else did so before, [`Error::NotOwner`].
    pub fn remove(self) -> Result<(), Error> {
        self.with(|e, t| e.remove(t, self.id))
    }

    pub(super) fn engine(&self) -> &'static Engine {
        self.namespace.engine()
    }
    pub(super) fn found(&self) -> &SetRef<'static> {
        &self.found
    }
    fn exists(&self) -> Result<(), Errno> {
        match self.engine().set_of_id(self.id) {
            Ok(now) if now.tag == self.found.tag => Ok(()),
            _ => Err(Errno::EIDRM),
        }
    }
    /// Calls the engine about this set.
    pub(super) fn with<R>(&self, f: impl FnOnce(&Engine, &Thread) -> Result<R, Errno>) -> Result<R, Error> {
        self.with_errno(f).map_err(|e| Error::of_set(self.id, e))
    }
    fn with_errno<R>(&self, f: impl FnOnce(&Engine, &Thread) -> Result<R, Errno>) -> Result<R, Errno> {
        thread::with(self.namespace.shared(), |t| f(self.engine(), t))
    }
}

impl PartialEq for Set {
    fn eq(&self, other: &Set) -> bool {
        self.namespace == other.namespace && self.id == other.id
    }
}
impl Eq for Set {}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set").field("id", &self.id).field("len", &self.len()).field("namespace", &self.namespace).finish()
    }
}
