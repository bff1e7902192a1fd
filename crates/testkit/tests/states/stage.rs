//! Where a case plays: a namespace, those who act in it, and what they find there.
//!
//! Everybody who acts is a thread with an engine of its own in this one process, disguised in the arena as another, parked process: then its
//! death is a change of a few words (the kernel's mark, and the identity of a process that has ended in the place of one that lives), and
//! a call can be repeated from any image. Sleepers and those who died before are real processes; the sleepers are stopped, and what
//! becomes of them is read from their nodes.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::mem::{MaybeUninit, offset_of};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use manyway_sem::abi::{IPC_PRIVATE, SEM_UNDO, SemBuf};
use manyway_sem::node::{self, State};
use manyway_sem::slotword::{ProcWord, SlotState, ThreadWord};
use manyway_sem::{Engine, Errno, Fairness, OpenOptions, Thread};
use manyway_shm::layout::*;
use manyway_testkit::image::{Image, Mapped};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use crate::{clock, robust};

/// An operation.
pub const fn op(num: u16, op: i16, flags: i32) -> SemBuf {
    SemBuf { num, op, flg: flags as i16 }
}

/// Who a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    pub inode: u64,
}

impl Identity {
    fn of(pid: u32) -> Identity {
        // SAFETY: takes numbers; the descriptor is closed below.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        assert!(fd >= 0, "pidfd_open of {pid}");
        // SAFETY: plain numbers, for which all zeros is a value.
        let mut st: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `st` is the structure that fstat fills; the descriptor is ours.
        unsafe {
            libc::fstat(fd, &raw mut st);
            libc::close(fd);
        }
        Identity { pid, inode: st.st_ino }
    }
}

/// A child process that ends with its parent. In the child, `run` does not return.
fn child(run: impl FnOnce()) -> Pid {
    // SAFETY: this process has one thread.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            // SAFETY: takes numbers only; ends the child without running what belongs to its parent.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                run();
                libc::_exit(0)
            }
        }
    }
}

/// A process that lives and does nothing.
fn parked() -> Identity {
    let pid = child(|| {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    });
    Identity::of(pid.as_raw() as u32)
}

/// A process that has ended.
fn ended() -> Identity {
    let identity = parked();
    let pid = Pid::from_raw(identity.pid as i32);
    kill(pid, Signal::SIGKILL).expect("it is ours");
    waitpid(pid, None).expect("it is ours");
    identity
}

/// One who acts: a thread of this process, with an engine of its own.
pub struct Actor {
    pub engine: &'static Engine,
    pub t: &'static Thread,
    /// As which process the arena has it.
    pub identity: Cell<Identity>,
    saved: RefCell<MaybeUninit<[u8; size_of::<Thread>()]>>,
}

impl Actor {
    fn new(dir: &CString, fairness: Fairness) -> Actor {
        let engine = Engine::open(dir, &OpenOptions { create: true, fairness: Some(fairness), ..Default::default() }).expect("a namespace");
        Actor {
            engine: Box::leak(Box::new(engine)),
            t: Box::leak(Box::new(Thread::new())),
            identity: Cell::new(Identity { pid: std::process::id(), inode: 0 }),
            saved: RefCell::new(MaybeUninit::uninit()),
        }
    }
    /// Takes a slot, by a call that nobody can notice.
    pub fn attach(&self) {
        let _ = self.engine.semget(self.t, i32::MAX, 0, 0);
    }
    /// Keeps what this thread knows, for when the arena is put back.
    pub fn save(&self) {
        // SAFETY: a thread's state is atomics; nobody else is in it.
        unsafe { ptr::copy_nonoverlapping(ptr::from_ref(self.t).cast(), self.saved.borrow_mut().as_mut_ptr(), 1) };
    }
    /// Knows again what it knew then.
    pub fn restore(&self) {
        // SAFETY: as above; `save` has filled it.
        unsafe { ptr::copy_nonoverlapping(self.saved.borrow().as_ptr(), ptr::from_ref(self.t).cast_mut().cast(), 1) };
    }
    /// A call whose result does not matter.
    pub fn op(&self, id: i32, ops: &[SemBuf]) {
        let _ = self.engine.semop(self.t, id, ops, None);
    }
}

/// A namespace and those who act in it.
pub struct Stage {
    /// Whose call is cut.
    pub victim: Actor,
    /// Who recovers, and may die of it.
    pub recoverer: Actor,
    /// Who comes last and finds everything in order.
    pub checker: Actor,
    pub arena: Mapped,
    /// The set on which the case plays.
    pub id: Cell<i32>,
    /// Another set, with which nothing must happen.
    pub neighbour: i32,
    /// Processes that have ended, for the victim and the recoverer.
    pub dead: [Identity; 2],
    /// The process that died before, if the case has one.
    pub dead_before: Cell<u32>,
    disguises: RefCell<Vec<Identity>>,
    doomed: Cell<Option<Pid>>,
    pub path: CString,
    _dir: tempfile::TempDir,
}

/// Where the second key of every namespace here leads.
pub const NEIGHBOUR_KEY: i32 = 0x4e45;

impl Stage {
    /// A namespace with a recoverer, a checker and a neighbour set, of which the checker holds a unit.
    pub fn new(fairness: Fairness) -> Stage {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let path = CString::new(dir.path().as_os_str().as_bytes()).expect("no NUL in it");
        let [victim, recoverer, checker] = [(); 3].map(|()| Actor::new(&path, fairness));
        let arena = Mapped::open(&dir.path().join("arena-v1")).expect("the arena");
        let disguises = RefCell::new((0..4).map(|_| parked()).collect());
        let mut stage = Stage {
            victim,
            recoverer,
            checker,
            arena,
            id: Cell::new(0),
            neighbour: 0,
            dead: [ended(), ended()],
            dead_before: Cell::new(0),
            disguises,
            doomed: Cell::new(None),
            path,
            _dir: dir,
        };
        for actor in [&stage.checker, &stage.recoverer] {
            actor.attach();
            stage.disguise(actor);
        }
        let (e, t) = (stage.checker.engine, stage.checker.t);
        stage.neighbour = e.semget(t, NEIGHBOUR_KEY, 2, 0o1600).expect("a set");
        e.setall(t, stage.neighbour, &[3, 3]).expect("SETALL");
        // Tickers among the sleepers leave it to others to look for the dead.
        e.set_watcher(std::process::id());
        stage.checker.op(stage.neighbour, &[op(0, -1, SEM_UNDO)]);
        stage.recoverer.op(stage.neighbour, &[op(1, -1, SEM_UNDO)]);
        stage.recoverer.op(stage.neighbour, &[op(1, 1, SEM_UNDO)]);
        robust::keep_apart();
        stage
    }

    /// Makes the set on which the case plays, each semaphore stamped by an operation in this second: the fast paths are taken then.
    pub fn set(&self, values: &[u16]) {
        let (e, t) = (self.checker.engine, self.checker.t);
        self.id.set(e.semget(t, IPC_PRIVATE, values.len() as i32, 0o600).expect("a set"));
        for num in 0..values.len().min(100) as u16 {
            self.checker.op(self.id.get(), &[op(num, 1, 0)]);
        }
        e.setall(t, self.id.get(), values).expect("SETALL");
    }

    /// The process slots that are in use by a process.
    fn slots_of(&self, pid: u32) -> Vec<u64> {
        let high = self.arena.u32(offset_of!(Header, procs_high) as u64);
        let at = |i: u32| PROCS_AT + u64::from(i) * size_of::<ProcSlot>() as u64;
        let used = |at: &u64| {
            let w = ProcWord(self.arena.u64(*at));
            w.state() != SlotState::Free && w.by() == pid
        };
        (0..high).map(at).filter(used).collect()
    }

    /// From here on the arena has the actor as a parked process.
    pub fn disguise(&self, actor: &Actor) {
        for at in self.slots_of(std::process::id()) {
            let identity = self.disguises.borrow_mut().pop().expect("four at most");
            self.arena.put_u64(at, with_pid(self.arena.u64(at), identity.pid));
            self.arena.put_u64(at + offset_of!(ProcSlot, inode) as u64, identity.inode);
            actor.identity.set(identity);
        }
    }

    /// The pid of the process slot that a thread slot belongs to, if it is live.
    fn pid_of(&self, slot: u32) -> Option<u32> {
        let w = ThreadWord(self.arena.u64(THREAD_WORDS_AT + u64::from(slot) * 8));
        let proc = PROCS_AT + u64::from(w.by()) * size_of::<ProcSlot>() as u64;
        (w.state() == SlotState::Live).then(|| ProcWord(self.arena.u64(proc)).by())
    }
    /// Where a thread slot's control page lies.
    pub fn ctl(&self, slot: u32) -> u64 {
        let entry = offset_of!(Header, thread_extents) as u64 + u64::from(slot / THREADS_PER_EXTENT) * 4;
        let extent = u64::from(self.arena.u32(entry) - 1);
        EXTENTS_AT + extent * EXTENT + u64::from(slot % THREADS_PER_EXTENT) * THREAD_PAGES * PAGE + PAGE
    }
    /// The live thread slots of a process.
    pub fn threads_of(&self, pid: u32) -> Vec<u32> {
        let high = self.arena.u32(offset_of!(Header, threads_high) as u64);
        (0..high).filter(|&slot| self.pid_of(slot) == Some(pid)).collect()
    }
    fn asleep(&self, pid: u32) -> usize {
        const PARKED: u32 = 8;
        let state = |slot: u32| self.arena.u32(self.ctl(slot) + offset_of!(ThreadCtl, state) as u64);
        let sleeps = |slot: &u32| node::state(state(*slot)) == State::Queued && state(*slot) & PARKED != 0;
        self.threads_of(pid).into_iter().filter(sleeps).count()
    }

    /// Sends `n` threads of a process of their own to sleep in a call, and stops them there.
    pub fn sleepers(&self, n: usize, ops: &[SemBuf]) -> Pid {
        let (engine, id) = (self.checker.engine, self.id.get());
        let pid = child(|| {
            std::thread::scope(|s| {
                for _ in 1..n {
                    let sleep = move || engine.semop(&Thread::new(), id, ops, None);
                    std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(s, sleep).expect("a thread");
                }
                let _ = engine.semop(&Thread::new(), id, ops, None);
            });
        });
        while self.asleep(pid.as_raw() as u32) < n {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        kill(pid, Signal::SIGSTOP).expect("it is ours");
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it is ours");
        clock::pass(100_000);
        pid
    }
    /// One sleeper.
    pub fn sleeper(&self, ops: &[SemBuf]) {
        self.sleepers(1, ops);
    }
    /// A sleeper that is killed.
    pub fn dead_sleeper(&self, ops: &[SemBuf]) {
        let pid = self.sleepers(1, ops);
        kill(pid, Signal::SIGKILL).expect("it is ours");
        waitpid(pid, None).expect("it is ours");
    }
    /// A process that has done this and is about to die.
    pub fn holder_to_die(&self, calls: &[&[SemBuf]]) {
        let (engine, id) = (self.checker.engine, self.id.get());
        let pid = child(|| {
            let t = Thread::new();
            for ops in calls {
                let _ = engine.semop(&t, id, ops, None);
            }
            // SAFETY: takes a number; its parent waits for that.
            unsafe { libc::raise(libc::SIGSTOP) };
        });
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it is ours");
        self.doomed.set(Some(pid));
    }
    /// It dies.
    pub fn it_dies(&self) {
        let pid = self.doomed.take().expect("somebody is about to die");
        kill(pid, Signal::SIGKILL).expect("it is ours");
        waitpid(pid, None).expect("it is ours");
        self.dead_before.set(pid.as_raw() as u32);
    }

    /// The victim finds itself the child of a process that goes on living, holds a unit, and was forked in this thread: what it knows is the
    /// parent's, but for the page that a fork wipes.
    pub fn as_forked_child(&self) {
        let parent = Actor { t: self.victim.t, ..Actor::new(&self.path, Fairness::Strict) };
        parent.op(self.id.get(), &[op(0, -1, SEM_UNDO)]);
        self.disguise(&parent);
        robust::forget_all();
    }
    /// The victim finds itself in the image that its process has executed: the slot, with a unit that it holds, is there, the thread is gone.
    pub fn as_executed(&self) {
        let earlier = Actor::new(&self.path, Fairness::Strict);
        earlier.op(self.id.get(), &[op(0, -1, SEM_UNDO)]);
        for slot in self.threads_of(std::process::id()) {
            let word = self.ctl(slot) + offset_of!(ThreadCtl, robust) as u64;
            self.arena.put_u32(word, self.arena.u32(word) & robust::WAITERS | robust::OWNER_DIED);
        }
        robust::keep_apart();
    }

    /// What a semget comes to: this, or ENOSYS once the namespace has ended.
    pub fn unless_ended(&self, e: Errno) -> Errno {
        if self.arena.u32(offset_of!(Header, ended) as u64) == ENDED { Errno::ENOSYS } else { e }
    }

    /// The victim's call begins here: the others know what they know now.
    pub fn curtain(&self) {
        self.checker.engine.set_watcher(0);
        self.victim.save();
        self.checker.save();
        self.recoverer.save();
    }

    /// Writes an actor's death into an image: `word` is the offset of its robust word, if it is in its list.
    pub fn bury(&self, image: &mut Image, who: Identity, as_who: Identity, word: Option<u64>) {
        let high = image.u32(offset_of!(Header, procs_high) as u64);
        for i in 0..high {
            let at = PROCS_AT + u64::from(i) * size_of::<ProcSlot>() as u64;
            let w = image.u64(at);
            if ProcWord(w).state() != SlotState::Free && ProcWord(w).by() == who.pid {
                image.write(at, &with_pid(w, as_who.pid).to_le_bytes());
                let inode = at + offset_of!(ProcSlot, inode) as u64;
                if image.u64(inode) != 0 {
                    image.write(inode, &as_who.inode.to_le_bytes());
                }
            }
        }
        if let Some(at) = word {
            // handle_futex_death in kernel/futex/core.c: only a word with the thread's id; the id goes.
            let w = image.u32(at);
            if w & robust::TID_MASK == nix::unistd::gettid().as_raw() as u32 {
                image.write(at, &(w & robust::WAITERS | robust::OWNER_DIED).to_le_bytes());
            }
        }
    }
}

/// A process slot's word with another pid.
fn with_pid(w: u64, pid: u32) -> u64 {
    w & !(0x3f_ffff << 2) | u64::from(pid) << 2
}
