//! The engine as its front ends see it: the C library, the Rust API and the command all call these.

use core::ffi::CStr;

use manyway_sync::Errno;

use crate::abi::{SemBuf, SemInfo, SetStat, Timespec};

/// Limits of a namespace, as `kernel.sem` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// SEMMSL: semaphores in a set.
    pub msl: u32,
    /// SEMMNS: semaphores in the namespace.
    pub mns: u32,
    /// SEMOPM: operations in a call.
    pub opm: u32,
    /// SEMMNI: sets.
    pub mni: u32,
}

/// Who gets a unit that is released while others sleep for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// The first sleeper that fits, at once: the kernel's order.
    Strict,
    /// Whoever comes first, until a sleeper has waited about a millisecond; then the sleeper.
    Barging,
}

/// How to open a namespace.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Make it when it does not exist.
    pub create: bool,
    /// Limits for a new namespace (default: the kernel's); an existing one must have them.
    pub limits: Option<Limits>,
    /// Fairness for a new namespace (default strict); an existing one must have it.
    pub fairness: Option<Fairness>,
}

/// Why a namespace could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// A system call failed: which, and how.
    Os(&'static str, Errno),
    /// The directory or file belongs to somebody else, or others may write it.
    Untrusted(&'static str),
    /// The file is no arena, or is cut short or damaged: what is wrong.
    NotAnArena(&'static str),
    /// Made by another layout version.
    OtherLayout(u32),
    /// Made in another PID namespace, whose process numbers mean other processes.
    OtherPidNamespace,
    /// Exists with other limits: those it has.
    LimitsDiffer(Limits),
    /// Exists with other fairness: that it has.
    FairnessDiffers(Fairness),
    /// The limits asked for are outside what the layout can hold: which.
    BadLimits(&'static str),
}

/// A process whose adjustment (semadj) for a semaphore is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Semaphore.
    pub num: u16,
    /// What its death adds to the value.
    pub adj: i16,
    /// False: it is gone and its undo is due.
    pub alive: bool,
}

/// A thread that sleeps in semop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleeper {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The operation that blocks it.
    pub blocker: SemBuf,
    /// How many operations its call has.
    pub nops: u32,
    /// How long it has slept, nanoseconds.
    pub age_ns: u64,
}

/// One namespace, mapped into this process. All methods may be called from any thread; `t` is the calling thread's own.
pub struct Engine {
    _private: (),
}

/// What the engine keeps of a thread. One per thread and namespace; all zero at first.
pub struct Thread {
    _private: (),
}

impl Thread {
    /// A thread that has not used the engine yet.
    pub const fn new() -> Thread {
        Thread { _private: () }
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}

#[allow(unused_variables, missing_docs)]
impl Engine {
    /// Opens the namespace in the directory `dir` (which must exist unless `create`).
    pub fn open(dir: &CStr, how: &OpenOptions) -> Result<Engine, OpenError> {
        todo!()
    }
    pub fn limits(&self) -> Limits {
        todo!()
    }
    pub fn fairness(&self) -> Fairness {
        todo!()
    }
    /// semget(2).
    pub fn semget(&self, t: &Thread, key: i32, nsems: i32, flags: i32) -> Result<i32, Errno> {
        todo!()
    }
    /// semop(2), semtimedop(2). Checks in the kernel's order; `ops` has been read from the caller already.
    pub fn semop(&self, t: &Thread, id: i32, ops: &[SemBuf], timeout: Option<Timespec>) -> Result<(), Errno> {
        todo!()
    }
    pub fn getval(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        todo!()
    }
    pub fn getpid(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        todo!()
    }
    pub fn getncnt(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        todo!()
    }
    pub fn getzcnt(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        todo!()
    }
    pub fn setval(&self, t: &Thread, id: i32, num: i32, val: i32) -> Result<(), Errno> {
        todo!()
    }
    /// Number of semaphores of a set that the caller may read (GETALL) or alter (SETALL): the length of its array.
    pub fn array_len(&self, t: &Thread, id: i32, alter: bool) -> Result<usize, Errno> {
        todo!()
    }
    /// GETALL. `out` must have at least `array_len` elements.
    pub fn getall(&self, t: &Thread, id: i32, out: &mut [u16]) -> Result<(), Errno> {
        todo!()
    }
    /// SETALL. `vals` must have at least `array_len` elements.
    pub fn setall(&self, t: &Thread, id: i32, vals: &[u16]) -> Result<(), Errno> {
        todo!()
    }
    /// IPC_STAT.
    pub fn stat(&self, t: &Thread, id: i32) -> Result<SetStat, Errno> {
        todo!()
    }
    /// SEM_STAT (`any` false) and SEM_STAT_ANY: by index; the result's `id` is what the call returns.
    pub fn stat_index(&self, t: &Thread, index: i32, any: bool) -> Result<SetStat, Errno> {
        todo!()
    }
    /// IPC_SET: owner and the low nine bits of the mode.
    pub fn set_perm(&self, t: &Thread, id: i32, uid: u32, gid: u32, mode: u32) -> Result<(), Errno> {
        todo!()
    }
    /// IPC_RMID.
    pub fn remove(&self, t: &Thread, id: i32) -> Result<(), Errno> {
        todo!()
    }
    /// IPC_INFO, SEM_INFO.
    pub fn info(&self) -> SemInfo {
        todo!()
    }
    /// Applies now the undo of every process that is gone, and frees its slots; `pid` restricts it to one. For the interposed wait
    /// family and the watcher. Returns how many processes were cleaned up.
    pub fn reap(&self, t: &Thread, pid: Option<u32>) -> usize {
        todo!()
    }
    /// Applies the calling process's own adjustments now (unshare(CLONE_SYSVSEM), rule 18).
    pub fn apply_own_undo(&self, t: &Thread) {
        todo!()
    }
    /// Calls `f` for every set with its status and its creator's pid.
    pub fn for_each_set(&self, t: &Thread, f: &mut dyn FnMut(SetStat, u32)) {
        todo!()
    }
    /// Calls `f` for every nonzero adjustment of a set.
    pub fn for_each_holder(&self, t: &Thread, id: i32, f: &mut dyn FnMut(Holder)) -> Result<(), Errno> {
        todo!()
    }
    /// Calls `f` for every sleeper of a set, in order of arrival, with its operations.
    pub fn for_each_sleeper(&self, t: &Thread, id: i32, f: &mut dyn FnMut(Sleeper, &[SemBuf])) -> Result<(), Errno> {
        todo!()
    }
    /// Calls `f` with the pid of every process that has a slot.
    pub fn for_each_process(&self, f: &mut dyn FnMut(u32)) {
        todo!()
    }
    /// Operations carried out in this namespace so far; counts of racing operations may be lost, so: at least about so many.
    pub fn operations(&self, t: &Thread) -> u64 {
        todo!()
    }
    /// Drops what is cached of the process's user, groups and capabilities; call it after any of them changed.
    pub fn forget_credentials(&self) {
        todo!()
    }
    /// Marks this thread's context as to be checked again at the next call (a vfork child may borrow it).
    pub fn distrust_context(&self) {
        todo!()
    }
    /// True while the calling thread is inside a locked section: a signal's handler must wait.
    pub fn in_section(t: &Thread) -> bool {
        todo!()
    }
    /// If the calling thread sleeps in semop, takes it out of the queue (EINTR), unless it has been completed already. For the signal
    /// trampoline, before it calls the program's handler. Returns a token to hand to `after_handler`.
    pub fn before_handler(&self, t: &Thread) -> u64 {
        todo!()
    }
    /// Restores what `before_handler` saved; the handler may have called semop itself.
    pub fn after_handler(&self, t: &Thread, token: u64) {
        todo!()
    }
    /// Called by the engine at the end of a section in which a signal was deferred.
    pub fn set_deferred_hook(&self, hook: fn(&Thread)) {
        todo!()
    }
    /// Marks that a signal was deferred in the current section, so that its end calls the hook.
    pub fn defer(t: &Thread) {
        todo!()
    }
    /// Doorbell: changes whenever a process takes a slot. Waits until it differs from `seen` or `timeout_ms` passes; returns the new value. For
    /// the watcher.
    pub fn wait_doorbell(&self, seen: u32, timeout_ms: u32) -> u32 {
        todo!()
    }
    /// Tells the sleepers that a watcher lives (or no longer does), by its pid.
    pub fn set_watcher(&self, pid: u32) {
        todo!()
    }
}
