//! The engine as its front ends see it: the C library, the Rust API and the command all call these.

use core::ffi::CStr;

use manyway_shm::Arena;
use manyway_shm::layout::MAX_SETS;
pub use manyway_shm::{Fairness, Limits, OpenError, OpenOptions, Share};
use manyway_sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use manyway_sync::memory::WipedPage;
use manyway_sync::{Errno, futex, sys};

use crate::abi::{SemBuf, SemInfo, SetStat, Timespec};
pub use crate::attach::Thread;
use crate::control::Count;
use crate::edges;
use crate::perm;

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

/// What calls can find wrong in a namespace: the work of a hostile or broken writer, since neither a death nor a race leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Damage {
    /// A lock named an owner that knew nothing of it; it was opened.
    Lock = 1,
    /// A queue's links led astray; it was made anew from the sleepers.
    Queue,
    /// A set that the id table has says that it is gone; calls on it fail with EIO.
    Set,
    /// A thread's own slot was given to somebody else; the thread took another one.
    Slot,
}

/// What was found wrong last, and how often anything was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamageReport {
    /// What it was; None: a kind that this version does not know.
    pub kind: Option<Damage>,
    /// Index of the set that it was met in.
    pub index: Option<u32>,
    /// Who met it.
    pub pid: u32,
    /// When, seconds since 1970.
    pub time: u64,
    /// How often any was met.
    pub times: u32,
}

/// One namespace, mapped into this process. All methods may be called from any thread; `t` is the calling thread's own.
pub struct Engine {
    pub(crate) arena: Arena,
    /// What a fork child must find zeroed: see `attach::wiped`.
    pub(crate) wiped: WipedPage,
    /// SEMOPM was not 1 when the namespace was opened.
    pairs: bool,
    /// `ids_ready` as last seen: its own line is written by who makes sets.
    pub(crate) ids_known: AtomicU32,
    /// Who the caller is, as far as it is known: see `perm`.
    pub(crate) credentials: AtomicU64,
    /// Permission verdicts: see `perm`.
    pub(crate) verdicts: [AtomicU64; 16],
    /// 1: the arena's file was cut short under this process.
    lost: AtomicU32,
    /// How often this process has met damage.
    pub(crate) met_damage: AtomicU32,
    /// The process that opened it; a fork's child is another one.
    pub(crate) opener: u32,
    deferred_hook: Option<fn(&Thread)>,
    attached_hook: Option<fn()>,
}

impl Engine {
    /// Opens the namespace in the directory `dir`.
    pub fn open(dir: &CStr, how: &OpenOptions) -> Result<Engine, OpenError> {
        let arena = Arena::open(dir, how)?;
        let wiped = WipedPage::new().map_err(|e| OpenError::Os("cannot map a page that a fork wipes", e))?;
        let engine = Engine {
            pairs: arena.limits().opm >= 2,
            ids_known: AtomicU32::new(0),
            arena,
            wiped,
            credentials: AtomicU64::new(perm::NOTHING),
            verdicts: [const { AtomicU64::new(0) }; 16],
            lost: AtomicU32::new(0),
            met_damage: AtomicU32::new(0),
            opener: sys::getpid(),
            deferred_hook: None,
            attached_hook: None,
        };
        // Now, since the process may get a user namespace where it has no number yet.
        engine.euid();
        Ok(engine)
    }
    /// The namespace's limits.
    pub fn limits(&self) -> Limits {
        self.arena.limits()
    }
    /// Sets other limits, for all processes from their next call on.
    pub fn set_limits(&self, limits: Limits) -> Result<(), OpenError> {
        self.arena.set_limits(limits)
    }
    /// Sets another fairness. The caller has made sure that no other process uses the namespace.
    pub fn set_fairness(&self, fairness: Fairness) {
        self.arena.set_fairness(fairness);
    }
    /// Shares the namespace in directory `dir` with others than before; who uses it goes on.
    pub fn set_share(dir: &CStr, how: &OpenOptions, share: Share) -> Result<(), OpenError> {
        Arena::set_share(dir, how, share)
    }
    /// Ends the namespace: its sets are removed, and from then on none is made. Returns how many there were.
    pub fn end(&self, t: &Thread) -> Result<usize, Errno> {
        self.arena.end();
        // Whoever was making a set had the registry's lock; after this refused call it is in the table.
        let _ = self.semget(t, crate::abi::IPC_PRIVATE, 1, 0);
        let mut removed = 0;
        for index in 0..MAX_SETS {
            let Some((_, set)) = self.set_of_index(index) else { continue };
            match self.remove(t, set.id()) {
                Ok(()) => removed += 1,
                // Somebody else was faster.
                Err(Errno::EINVAL | Errno::EIDRM) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(removed)
    }
    /// The namespace's fairness.
    pub fn fairness(&self) -> Fairness {
        self.arena.fairness()
    }
    /// Who shares the namespace, as it was when it was opened.
    pub fn share(&self) -> Share {
        self.arena.share()
    }
    /// Device and inode of the arena's file.
    pub fn file(&self) -> (u64, u64) {
        self.arena.file()
    }

    /// semget(2).
    pub fn semget(&self, t: &Thread, key: i32, nsems: i32, flags: i32) -> Result<i32, Errno> {
        self.unless_lost(self.get(t, key, nsems, flags, &[]))
    }

    /// semop(2), semtimedop(2). Checks in the kernel's order; `ops` has been read from the caller already.
    #[inline]
    pub fn semop(&self, t: &Thread, id: i32, ops: &[SemBuf], timeout: Option<Timespec>) -> Result<(), Errno> {
        if let [op] = ops
            && timeout.is_none_or(Timespec::is_valid)
            && self.try_one(t, id, op.num, op.op, op.flg)
        {
            return Ok(());
        }
        self.semop_rest(t, id, ops, timeout)
    }

    #[inline(never)]
    fn semop_rest(&self, t: &Thread, id: i32, ops: &[SemBuf], timeout: Option<Timespec>) -> Result<(), Errno> {
        if let [a, b] = ops
            && self.pairs
            && timeout.is_none_or(Timespec::is_valid)
            && self.fast_pair(t, id, *a, *b)
        {
            return Ok(());
        }
        self.on_sets(t, || self.semop_slow(t, id, ops, timeout))
    }

    /// GETVAL.
    pub fn getval(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        self.on_sets(t, || self.get_val(t, id, num))
    }
    /// GETPID.
    pub fn getpid(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        self.on_sets(t, || self.get_pid(t, id, num))
    }
    /// GETNCNT.
    pub fn getncnt(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        self.on_sets(t, || self.get_count(t, id, num, Count::Alter))
    }
    /// GETZCNT.
    pub fn getzcnt(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        self.on_sets(t, || self.get_count(t, id, num, Count::Zero))
    }
    /// SETVAL.
    pub fn setval(&self, t: &Thread, id: i32, num: i32, val: i32) -> Result<(), Errno> {
        self.on_sets(t, || self.set_val(t, id, num, val))
    }
    /// Number of semaphores of a set that the caller may read (GETALL) or alter (SETALL): the length of its array.
    pub fn array_len(&self, t: &Thread, id: i32, alter: bool) -> Result<usize, Errno> {
        self.on_sets(t, || self.array_length(id, alter))
    }
    /// GETALL. `out` must have at least `array_len` elements.
    pub fn getall(&self, t: &Thread, id: i32, out: &mut [u16]) -> Result<(), Errno> {
        self.on_sets(t, || self.get_all(t, id, out))
    }
    /// SETALL. `vals` must have at least `array_len` elements.
    pub fn setall(&self, t: &Thread, id: i32, vals: &[u16]) -> Result<(), Errno> {
        self.on_sets(t, || self.set_all(t, id, vals))
    }
    /// IPC_STAT.
    pub fn stat(&self, t: &Thread, id: i32) -> Result<SetStat, Errno> {
        self.on_sets(t, || self.ipc_stat(t, id))
    }
    /// SEM_STAT (`any` false) and SEM_STAT_ANY: by index; the result's `id` is what the call returns.
    pub fn stat_index(&self, t: &Thread, index: i32, any: bool) -> Result<SetStat, Errno> {
        self.on_sets(t, || self.stat_by_index(t, index, any))
    }
    /// IPC_SET: owner and the low nine bits of the mode.
    pub fn set_perm(&self, t: &Thread, id: i32, uid: u32, gid: u32, mode: u32) -> Result<(), Errno> {
        self.on_sets(t, || self.set_perms(t, id, uid, gid, mode))
    }
    /// IPC_RMID.
    pub fn remove(&self, t: &Thread, id: i32) -> Result<(), Errno> {
        self.on_sets(t, || self.remove_set(t, id))
    }
    /// IPC_INFO, SEM_INFO.
    pub fn info(&self) -> SemInfo {
        self.sem_info()
    }

    /// Applies now the undo of every process that is gone, and frees its slots; `pid` restricts it to one. For the interposed wait
    /// family and the watcher. Returns how many processes were cleaned up.
    pub fn reap(&self, t: &Thread, pid: Option<u32>) -> usize {
        self.reap_processes(t, pid, true)
    }
    /// Applies the calling process's own adjustments now (unshare(CLONE_SYSVSEM)), unless other threads share them: then the kernel only
    /// leaves the list to those, and so does this, but for what the calling thread does later, which joins it again.
    pub fn apply_own_undo(&self, t: &Thread) {
        if !sys::has_threads()
            && let Ok(me) = self.me(t)
        {
            self.apply_process(t, &me, me.proc, me.pid);
        }
    }

    /// Calls `f` for every set with its status and its creator's pid.
    pub fn for_each_set(&self, _t: &Thread, f: &mut dyn FnMut(SetStat, u32)) {
        self.each_set(f);
    }
    /// Calls `f` for every nonzero adjustment of a set.
    pub fn for_each_holder(&self, _t: &Thread, id: i32, f: &mut dyn FnMut(Holder)) -> Result<(), Errno> {
        self.each_adjustment(id, f)
    }
    /// Calls `f` for every sleeper of a set, in order of arrival, with its operations.
    #[cfg(feature = "std")]
    pub fn for_each_sleeper(&self, t: &Thread, id: i32, f: &mut dyn FnMut(Sleeper, &[SemBuf])) -> Result<(), Errno> {
        self.each_sleeper(t, id, f)
    }
    /// Calls `f` with the pid of every process that has a slot.
    pub fn for_each_process(&self, f: &mut dyn FnMut(u32)) {
        self.each_process(f);
    }
    /// Operations carried out in this namespace so far; counts of racing operations may be lost, so: at least about so many.
    pub fn operations(&self, _t: &Thread) -> u64 {
        self.count_operations()
    }

    /// For a handler of SIGBUS, which may call it: when `address` lies in this namespace's memory, whose file has been cut short, makes the
    /// access repeatable and returns true. Every call of this process on the namespace fails with EIO from then on.
    ///
    /// The preloaded library does this in every program. A program of its own that does not dies by SIGBUS, as with any file that it maps.
    pub fn replace_lost(&self, address: usize) -> bool {
        // Before the zeros are there: another thread that met them first would take them for an arena without sets.
        self.arena.replace_lost(address, || self.lost.store(1, SeqCst))
    }
    /// A call that looks sets up. Who has no place in the namespace takes it first: what is freed while nobody has one is given back, so whoever
    /// knows of a set must have had one when he came to know it.
    pub(crate) fn on_sets<T>(&self, t: &Thread, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        if self.epoch() == 0 {
            // Who finds no room for one may look all the same; a call that cannot do without says so itself.
            let _ = self.me(t);
        }
        self.unless_lost(call())
    }
    /// What a call came to, or EIO when the arena was lost meanwhile: then it may have met zeros anywhere, and taken them for what they are not.
    pub(crate) fn unless_lost<T>(&self, r: Result<T, Errno>) -> Result<T, Errno> {
        if self.is_lost() { Err(Errno::EIO) } else { r }
    }
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Relaxed) != 0
    }

    /// Notes damage, for the instruments: the call that met it goes on, or fails with EIO.
    #[cold]
    pub(crate) fn damaged(&self, kind: Damage, index: u32) {
        let h = self.arena.header();
        let pid = self.wiped(crate::attach::wiped::PID).load(Relaxed);
        h.damage.store(kind as u64 | (index.min(0xffff) as u64) << 8 | pid << 24, Relaxed);
        h.damage_time.store(manyway_sync::clock::realtime_secs(), Relaxed);
        h.damages.fetch_add(1, Relaxed);
        self.met_damage.fetch_add(1, Relaxed);
    }
    /// What calls have found wrong in this namespace, if anything.
    pub fn damage(&self) -> Option<DamageReport> {
        let h = self.arena.header();
        let (w, times) = (h.damage.load(Relaxed), h.damages.load(Relaxed));
        let kind = [Damage::Lock, Damage::Queue, Damage::Set, Damage::Slot].into_iter().find(|k| *k as u64 == w & 0xff);
        let index = Some((w >> 8) as u32 & 0xffff).filter(|&i| i < manyway_shm::layout::MAX_SETS);
        (w != 0 || times != 0).then(|| DamageReport {
            kind,
            index,
            pid: (w >> 24) as u32 & 0x3f_ffff,
            time: h.damage_time.load(Relaxed),
            times,
        })
    }

    /// Makes the next call check who it is: a vfork child may run in this memory.
    pub fn distrust_context(&self) {
        self.wiped(crate::attach::wiped::PID_BITS).store(0, Relaxed);
    }

    /// True while the calling thread is inside a locked section: a signal's handler must wait.
    pub fn in_section(t: &Thread) -> bool {
        t.in_section.load(Relaxed) != 0
    }
    /// If the calling thread sleeps in semop, takes it out of the queue (EINTR), unless it has been completed already. For the signal
    /// trampoline, before it calls the program's handler. Returns a token to hand to `after_handler`.
    pub fn before_handler(&self, t: &Thread) -> u64 {
        self.interrupt(t)
    }
    /// Restores what `before_handler` saved; the handler may have called semop itself.
    pub fn after_handler(&self, t: &Thread, token: u64) {
        self.resume(t, token);
    }
    /// The calling thread leaves the call that it is in for good: it is being cancelled. Lets go of what it holds, and takes it out of the
    /// queue, as if the call had ended when the cancellation came.
    pub fn abandon(&self, t: &Thread) {
        self.leave_for_good(t);
    }
    /// Sets what is called at the end of a section in which a signal was deferred.
    /// Having one says that every handler goes through a trampoline that defers.
    pub fn set_deferred_hook(&mut self, hook: fn(&Thread)) {
        self.deferred_hook = Some(hook);
    }
    pub(crate) fn deferred_hook(&self) -> Option<fn(&Thread)> {
        self.deferred_hook
    }
    /// Sets what is called when a process has taken its place in the namespace: once in each, a fork's child as well.
    pub fn set_attached_hook(&mut self, hook: fn()) {
        self.attached_hook = Some(hook);
    }
    pub(crate) fn attached_hook(&self) -> Option<fn()> {
        self.attached_hook
    }
    /// Marks that a signal was deferred in the current section, so that its end calls the hook.
    pub fn defer(t: &Thread) {
        t.deferred.store(1, Relaxed);
    }

    /// Doorbell: changes whenever a process takes a slot. Waits until it differs from `seen` or `timeout_ms` passes; returns the new
    /// value. For the watcher.
    pub fn wait_doorbell(&self, seen: u32, timeout_ms: u32) -> u32 {
        let bell = &self.arena.header().doorbell;
        let now = bell.load(Acquire);
        if now != seen || timeout_ms == 0 {
            return now;
        }
        let _ = futex::wait(bell, seen, timeout_ms as u64 * 1_000_000);
        bell.load(Acquire)
    }
    /// The watcher's pid, as it has written it; 0: there is none.
    pub fn watcher(&self) -> u32 {
        self.arena.header().watcher.load(Relaxed)
    }
    /// Tells the sleepers that a watcher lives (or, with 0, no longer does), by its pid.
    pub fn set_watcher(&self, pid: u32) {
        edges::watch(&self.arena.header().watcher, pid); // WATCHER
    }
}
