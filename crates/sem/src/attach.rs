//! A process's and a thread's place in the namespace: made at first use, found out of date after a fork.

use manyway_shm::layout::*;
use manyway_shm::region::ThreadRegion;
use manyway_sync::atomic::{AtomicU32, AtomicU64, Ordering::*, compiler_fence};
use manyway_sync::identity::Identity;
use manyway_sync::{Errno, sys};

use crate::edges;
use crate::engine::{Damage, Engine};
use crate::lock::{NO_SET, Wait};
use crate::node;
use crate::slots::*;
use crate::word;

/// How many semaphores a thread keeps at hand.
pub(crate) const KEPT: usize = 4;

/// A semaphore that was found, with the calling process's adjustment. Read and written within sections only, since a handler does both.
pub(crate) struct Kept {
    /// {1 | number 16 | id 32}; 0: none.
    pub(crate) key: AtomicU64,
    /// The entry of the id table, which has the tag.
    pub(crate) set: AtomicU64,
    /// Byte offset of the cell.
    pub(crate) cell: AtomicU64,
    /// Byte offset of the adjustment. It stays there as long as the set, and the process.
    pub(crate) adj: AtomicU64,
}

impl Kept {
    const fn new() -> Kept {
        Kept { key: AtomicU64::new(0), set: AtomicU64::new(0), cell: AtomicU64::new(0), adj: AtomicU64::new(0) }
    }
    #[inline(always)]
    pub(crate) const fn key_of(id: i32, num: u16) -> u64 {
        1 << 63 | (num as u64) << 32 | id as u32 as u64
    }
}

/// What the engine keeps of a thread. One per thread and namespace; all zero at first. Only its own thread (and the signal handlers
/// that interrupt it) may pass it to the engine.
pub struct Thread {
    /// The process's epoch when the slot was taken; another one: this is a fork's copy.
    pub(crate) epoch: AtomicU64,
    /// Thread slot.
    pub(crate) slot: AtomicU32,
    /// How many sections this thread is in: sections nest.
    pub(crate) in_section: AtomicU32,
    /// 1: a signal was deferred in the section.
    pub(crate) deferred: AtomicU32,
    /// Sequence number + 1 of the sleep this thread is in; 0: none, or it was taken out by a handler.
    pub(crate) sleeping: AtomicU32,
    /// How the sleep that a handler ended ends: errno, 0 done.
    pub(crate) outcome: AtomicU32,
    /// Sleeps since it last watched for the end of one: see [`Engine::watch`].
    pub(crate) unwatched: AtomicU32,
    /// After so many it may watch again; 0: it never has.
    pub(crate) watch_after: AtomicU32,
    /// 1: the slot's page for several operations is allocated.
    pub(crate) ops_ready: AtomicU32,
    /// When a holder was asked for certain whether it lives.
    pub(crate) doubted: AtomicU64,
    /// When the time of the call that it is in is up (CLOCK_MONOTONIC ns); 0: never. For waits for locks.
    pub(crate) until: AtomicU64,
    /// Byte offset of the slot's control page.
    pub(crate) ctl_at: AtomicU64,
    /// The slot's word as it was taken.
    word: AtomicU64,
    /// The epoch in which the region was linked into this thread's robust list; 0: it is not. A fork's child has a list of its own. (What
    /// the shared page says of it is no ground to touch private lists.)
    linked: AtomicU64,
    /// Where the semaphores that it used last with SEM_UNDO are.
    pub(crate) kept: [Kept; KEPT],
    /// The robust word's region, kept over forks.
    region: ThreadRegion,
}

impl Thread {
    /// A thread that has not used the engine yet.
    pub const fn new() -> Thread {
        Thread {
            epoch: AtomicU64::new(0),
            slot: AtomicU32::new(0),
            in_section: AtomicU32::new(0),
            deferred: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            outcome: AtomicU32::new(0),
            unwatched: AtomicU32::new(0),
            watch_after: AtomicU32::new(0),
            ops_ready: AtomicU32::new(0),
            doubted: AtomicU64::new(0),
            until: AtomicU64::new(0),
            ctl_at: AtomicU64::new(0),
            word: AtomicU64::new(0),
            linked: AtomicU64::new(0),
            kept: [const { Kept::new() }; KEPT],
            region: ThreadRegion::new(),
        }
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}

/// Indices of the page that a fork child finds zeroed.
pub(crate) mod wiped {
    /// The pid in its place in a cell word; 0: not attached, or to be checked again.
    pub(crate) const PID_BITS: usize = 0;
    /// Epoch; 0: not attached.
    pub(crate) const EPOCH: usize = 1;
    /// Process slot.
    pub(crate) const PROC: usize = 2;
    /// Pid.
    pub(crate) const PID: usize = 3;
    /// The thread that attaches the process; 0: none.
    pub(crate) const LOCK: usize = 4;
}

/// The calling thread, attached.
#[derive(Clone, Copy)]
pub(crate) struct Me<'e> {
    pub(crate) slot: u32,
    pub(crate) ctl: &'e ThreadCtl,
    pub(crate) proc: u32,
    pub(crate) pid: u32,
    /// The process's epoch at that time.
    pub(crate) epoch: u64,
}

impl Engine {
    #[inline]
    pub(crate) fn wiped(&self, i: usize) -> &AtomicU64 {
        &self.wiped.words()[i]
    }
    fn attachment(&self) -> edges::Attachment<'_> {
        use wiped::*;
        edges::Attachment { pid_bits: self.wiped(PID_BITS), epoch: self.wiped(EPOCH), proc: self.wiped(PROC), pid: self.wiped(PID) }
    }
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.wiped(wiped::EPOCH).load(Relaxed)
    }

    /// Begins a locked section: signals are deferred until [`Engine::leave`].
    #[inline]
    pub(crate) fn enter(&self, t: &Thread) {
        t.in_section.store(t.in_section.load(Relaxed) + 1, Relaxed);
        compiler_fence(SeqCst);
    }
    /// Ends a locked section, after its wake-ups.
    #[inline]
    pub(crate) fn leave(&self, t: &Thread) {
        compiler_fence(SeqCst);
        let outer = t.in_section.load(Relaxed).saturating_sub(1);
        if outer == 0
            && t.epoch.load(Relaxed) == self.epoch()
            && let Some(ctl) = self.ctl(t.slot.load(Relaxed))
        {
            // A lock that names this slot from now on is damage, and told from a section that is stopped: see `lock`.
            ctl.head.store(0, Release);
        }
        t.in_section.store(outer, Relaxed);
        compiler_fence(SeqCst);
        if outer == 0 && t.deferred.load(Relaxed) != 0 {
            self.run_deferred(t);
        }
    }
    /// [`Engine::enter`] and [`Engine::leave`] for a thread that is known to be in no section.
    #[inline(always)]
    pub(crate) fn enter_first(&self, t: &Thread) {
        t.in_section.store(1, Relaxed);
        compiler_fence(SeqCst);
    }
    /// See [`Engine::enter_first`].
    #[inline(always)]
    pub(crate) fn leave_first(&self, t: &Thread) {
        compiler_fence(SeqCst);
        t.in_section.store(0, Relaxed);
        compiler_fence(SeqCst);
        if t.deferred.load(Relaxed) != 0 {
            self.run_deferred(t);
        }
    }
    #[cold]
    #[inline(never)]
    fn run_deferred(&self, t: &Thread) {
        t.deferred.store(0, Relaxed);
        if let Some(hook) = self.deferred_hook() {
            hook(t);
        }
    }

    /// The calling thread's slot, taken now if it has none.
    pub(crate) fn me(&self, t: &Thread) -> Result<Me<'_>, Errno> {
        if self.is_lost() {
            return Err(Errno::EIO);
        }
        let epoch = self.epoch();
        if epoch == 0 || t.epoch.load(Relaxed) != epoch || self.wiped(wiped::PID_BITS).load(Relaxed) == 0 {
            self.attach(t)?;
        }
        t.until.store(0, Relaxed);
        if t.in_section.load(Relaxed) != 0 {
            // A signal handler that was not deferred, or a section that was abandoned by cancellation.
            self.abandoned(t)?;
        }
        if !self.is_mine(t) {
            self.evicted(t)?;
        }
        let slot = t.slot.load(Relaxed);
        let ctl = self.ctl(slot).ok_or(Errno::EIO)?;
        let (proc, pid) = (self.wiped(wiped::PROC).load(Relaxed) as u32, self.wiped(wiped::PID).load(Relaxed) as u32);
        Ok(Me { slot, ctl, proc, pid, epoch: t.epoch.load(Relaxed) })
    }

    /// The calling thread in a section, which [`Engine::leave`] ends. A signal handler that ran just before may have forked, and this be the
    /// child: it must not act in its parent's place.
    pub(crate) fn enter_as_me(&self, t: &Thread) -> Result<Me<'_>, Errno> {
        loop {
            let me = self.me(t)?;
            self.enter(t);
            if me.epoch == self.epoch() {
                return Ok(me);
            }
            self.leave(t);
        }
    }

    /// With a trampoline no handler gets here, so an open section was abandoned (asynchronous cancellation runs clean-up handlers on the
    /// living thread): let go of what it holds. Without one it is a handler in the middle of a section, which must not wait for itself.
    fn abandoned(&self, t: &Thread) -> Result<(), Errno> {
        if self.deferred_hook().is_none() {
            return Err(Errno::EDEADLK);
        }
        self.release_locks_of(t.slot.load(Relaxed));
        t.in_section.store(0, Relaxed);
        Ok(())
    }

    /// See [`Engine::abandon`].
    pub(crate) fn leave_for_good(&self, t: &Thread) {
        if t.epoch.load(Relaxed) != self.epoch() {
            return;
        }
        if t.in_section.load(Relaxed) != 0 && self.abandoned(t).is_err() {
            return;
        }
        let slot = t.slot.load(Relaxed);
        if let Some(ctl) = self.ctl(slot) {
            // Its node may be in a queue before it knows that it sleeps.
            self.take_out(t, slot, ctl, crate::node::seq(ctl.state.load(Acquire)));
        }
        t.sleeping.store(0, Relaxed);
        if t.deferred.load(Relaxed) != 0 {
            self.run_deferred(t);
        }
    }

    /// True while the thread's slot is what it was when it took it.
    fn is_mine(&self, t: &Thread) -> bool {
        let word = self.thread_word(t.slot.load(Relaxed));
        word.is_some_and(|w| ThreadWord(w.load(Relaxed)).with_recoverer(None).0 == t.word.load(Relaxed))
    }

    /// The slot has been given to somebody else, or is none, though its thread lives: a hostile or broken writer's work. Takes another one.
    #[cold]
    #[inline(never)]
    fn evicted(&self, t: &Thread) -> Result<(), Errno> {
        if t.in_section.load(Relaxed) != 0 {
            // In the middle of a recovery: at the next call.
            return Err(Errno::EIO);
        }
        self.damaged(Damage::Slot, NO_SET);
        self.unlink_region(t);
        t.epoch.store(0, Relaxed);
        self.attach(t)
    }

    fn unlink_region(&self, t: &Thread) {
        if t.linked.swap(0, Relaxed) == self.epoch() {
            t.region.unlink();
        }
    }

    #[cold]
    #[inline(never)]
    fn attach(&self, t: &Thread) -> Result<(), Errno> {
        if t.epoch.load(Relaxed) != self.epoch() {
            // A fork's copy of a thread in the middle of something: that was the parent's.
            t.in_section.store(0, Relaxed);
            t.deferred.store(0, Relaxed);
        }
        self.enter(t);
        let r = self.attach_process().and_then(|new| self.attach_thread(t).map(|()| new));
        self.leave(t);
        if r? {
            self.give_back_if_alone(t);
        }
        // Now that this thread has a slot, in whose name it can be done, and before another one needs a further slot: so the tables stay as
        // large as there are ever living at once, and a batch.
        if self.about_to_grow() {
            self.reap_processes(t, None, false);
            self.reap_threads(t);
        }
        Ok(())
    }

    /// True: the process is new in the namespace.
    fn attach_process(&self) -> Result<bool, Errno> {
        let pid = sys::getpid();
        // ATTACHED
        if let Some(attached) = self.attachment().pid() {
            if attached == pid {
                self.wiped(wiped::PID_BITS).store(word::pid_bits(pid), Relaxed);
                return Ok(false);
            }
            // A vfork child in its parent's memory: it has no place of its own to keep, and the parent's is not its to use.
            return Err(Errno::ENOSYS);
        }
        let (lock, me) = (self.wiped(wiped::LOCK), sys::gettid());
        while let Err(owner) = lock.compare_exchange(0, me as u64, Acquire, Relaxed) {
            let owner = owner as u32;
            if owner == me && self.deferred_hook().is_none() {
                // A handler in the middle of its own thread's attachment.
                return Err(Errno::EDEADLK);
            }
            // Who attaches may be cancelled at it. What it had done by then is found again below.
            if owner == me || !sys::thread_exists(pid, owner) {
                let _ = lock.compare_exchange(owner as u64, 0, AcqRel, Relaxed);
            } else {
                sys::nap(20_000);
            }
        }
        let first = self.epoch() == 0;
        let r = if first { self.attach_process_locked(pid) } else { Ok(false) };
        lock.store(0, Release);
        if let (true, Ok(_), Some(hook)) = (first, r, self.attached_hook()) {
            hook();
        }
        r
    }

    fn attach_process_locked(&self, pid: u32) -> Result<bool, Errno> {
        let identity = Identity::of(pid);
        let h = self.arena.header();
        let mine = (0..self.procs_high()).find(|&i| {
            self.proc_slot(i).is_some_and(|p| {
                let w = ProcWord(p.word.load(Acquire));
                w.state() == SlotState::Live
                    && w.by() == pid
                    && Identity { inode: p.inode.load(Relaxed), start: p.start.load(Relaxed) } == identity
                    && identity != Identity::default()
            })
        });
        let proc = match mine {
            // After execve: the adjustments are still this process's; the threads are not. Those whose robust word is linked the kernel has
            // marked; one that is not marked is a living thread that uses the namespace through another engine.
            Some(i) => {
                for slot in 0..self.threads_high() {
                    if let (Some(word), Some(ctl)) = (self.thread_word(slot), self.ctl(slot)) {
                        let w = ThreadWord(word.load(Acquire));
                        if w.state() == SlotState::Live && w.by() == i && ctl.unlinked.load(Relaxed) == 1 {
                            mark_gone(word, w, ctl);
                        }
                    }
                }
                i
            }
            None => self.claim_process(pid, identity)?,
        };
        // KEPT-PAGES: its place before its first look at a set.
        edges::kept_pages();
        self.attachment().publish(proc, pid, h.attached.fetch_add(1, Relaxed).wrapping_add(1).max(1));
        // WATCHER
        if edges::ring(&h.doorbell, &h.watcher) {
            manyway_sync::futex::wake(&h.doorbell, u32::MAX);
        }
        Ok(mine.is_none())
    }

    fn attach_thread(&self, t: &Thread) -> Result<(), Errno> {
        let epoch = self.epoch();
        if t.epoch.load(Relaxed) == epoch {
            return Ok(());
        }
        let proc = self.wiped(wiped::PROC).load(Relaxed) as u32;
        let slot = self.claim_thread(proc)?;
        let word = self.thread_word(slot).ok_or(Errno::EIO)?;
        let ctl = self.ctl(slot).ok_or(Errno::EIO)?;
        let r = self.link_thread(t, slot, ctl);
        let w = ThreadWord(word.load(Relaxed));
        if let Err(e) = r {
            word.store(w.recycled().0, Release);
            return Err(e);
        }
        w.go_live(word, proc); // SLOT-LIVE: the control page before it
        t.word.store(w.owned(proc, SlotState::Live).0, Relaxed);
        if let Some(p) = self.proc_slot(proc) {
            p.thread_hint.store(slot + 1, Relaxed);
        }
        t.slot.store(slot, Relaxed);
        t.ctl_at.store(self.thread_at(slot).ok_or(Errno::EIO)? + PAGE, Relaxed);
        t.ops_ready.store(0, Relaxed);
        t.kept.iter().for_each(|k| k.key.store(0, Relaxed));
        t.sleeping.store(0, Relaxed);
        t.epoch.store(epoch, Relaxed);
        Ok(())
    }

    fn link_thread(&self, t: &Thread, slot: u32, ctl: &ThreadCtl) -> Result<(), Errno> {
        let at = self.thread_at(slot).ok_or(Errno::EIO)? + PAGE;
        let tid = sys::gettid();
        occupy(ctl, tid);
        let linked = t.region.link(&self.arena, at)?;
        t.linked.store(if linked { self.epoch() } else { 0 }, Relaxed);
        ctl.unlinked.store(!linked as u32, Relaxed);
        Ok(())
    }

    /// Gives the thread's slot back when it ends in good order. What it holds by SEM_UNDO stays the process's.
    pub fn detach_thread(&self, t: &Thread) {
        let epoch = self.epoch();
        if epoch == 0 || t.epoch.load(Relaxed) != epoch || t.in_section.load(Relaxed) != 0 {
            return;
        }
        let slot = t.slot.load(Relaxed);
        let (Some(word), Some(ctl), true) = (self.thread_word(slot), self.ctl(slot), self.is_mine(t)) else {
            self.unlink_region(t);
            t.epoch.store(0, Relaxed);
            return;
        };
        self.enter(t);
        let seq = node::seq(ctl.state.load(Relaxed));
        let left = self.withdraw_node(t, slot, ctl, slot, ctl, seq, Wait::Brief).is_ok();
        self.leave(t);
        t.epoch.store(0, Relaxed);
        let w = ThreadWord(word.load(Relaxed));
        if !left {
            // Its node is in a queue whose lock is not to be had: the slot is left as a dead thread's is.
            mark_gone(word, w, ctl);
            self.unlink_region(t);
            return;
        }
        ctl.unlinked.store(1, Relaxed);
        // Marked first: from here until the slot is free nobody but its existence tells of this thread's end.
        compiler_fence(SeqCst);
        self.unlink_region(t);
        self.forget_recoverer(slot, ctl);
        w.recycle(word);
    }
}
