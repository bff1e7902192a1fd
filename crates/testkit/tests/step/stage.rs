//! Where the cases play: a namespace with one set, sleepers that can be sent to sleep, and what must hold after each death.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use manyway_sem::abi::{IPC_NOWAIT, IPC_PRIVATE, SEM_UNDO, SemBuf};
use manyway_sem::{Engine, Errno, OpenOptions, Thread};
use manyway_testkit::step::Stepped;
use nix::unistd::{Whence, lseek};

/// What is not done by then is lost.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// An operation.
pub const fn op(num: u16, op: i16, flags: i32) -> SemBuf {
    SemBuf { num, op, flg: flags as i16 }
}

/// The calling side of a stepped child.
pub struct Child {
    pub engine: &'static Engine,
    pub t: Thread,
    pub id: i32,
    /// A process that the child knows to be dead.
    pub victim: u32,
}

impl Child {
    /// A call whose result does not matter: it may be refused.
    pub fn op(&self, ops: &[SemBuf]) {
        let _ = self.engine.semop(&self.t, self.id, ops, None);
    }
    /// Takes a slot and a place for adjustments, by a call that nobody can notice.
    pub fn settle_in(&self) {
        self.op(&[op(0, 1, SEM_UNDO), op(0, -1, SEM_UNDO)]);
    }
}

/// A namespace and this test's own threads in it.
pub struct Stage {
    /// Lives as long as the process: a call that hangs must not pull the test down with it.
    pub engine: &'static Engine,
    pub me: Thread,
    pub id: Cell<i32>,
    /// Counts the rounds: even ones learn of the death as wait(2) would tell, odd ones by themselves.
    pub round: Cell<usize>,
    pub victim: Cell<u32>,
    /// Another set.
    pub neighbour: Cell<i32>,
    sleepers: RefCell<Vec<Sleeper>>,
    recording: Cell<bool>,
    /// Which of them sleep, in order.
    sleeping: RefCell<Vec<usize>>,
    arena: File,
    _dir: tempfile::TempDir,
}

impl Stage {
    /// An empty namespace.
    pub fn new() -> Stage {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let path = CString::new(dir.path().as_os_str().as_bytes()).expect("no NUL in it");
        let engine = Engine::open(&path, &OpenOptions { create: true, ..Default::default() }).expect("a new namespace");
        Stage {
            engine: Box::leak(Box::new(engine)),
            me: Thread::new(),
            id: Cell::new(0),
            round: Cell::new(0),
            victim: Cell::new(0),
            sleepers: RefCell::default(),
            sleeping: RefCell::default(),
            recording: Cell::new(false),
            neighbour: Cell::new(0),
            arena: File::open(dir.path().join("arena-v1")).expect("the arena"),
            _dir: dir,
        }
    }

    /// Makes sure of a set with these values, each semaphore stamped by an operation in this second: the fast paths are taken then.
    pub fn set(&self, values: &[u16]) {
        let (e, t) = (self.engine, &self.me);
        if e.array_len(t, self.id.get(), false) != Ok(values.len()) {
            self.id.set(e.semget(t, IPC_PRIVATE, values.len() as i32, 0o600).expect("a set"));
        }
        for num in 0..values.len() as u16 {
            e.setval(t, self.id.get(), num as i32, 0).expect("SETVAL");
            self.op(&[op(num, 1, 0)]).expect("room for one more");
        }
        e.setall(t, self.id.get(), values).expect("SETALL");
    }

    /// A child that has done `setup` and stands in front of `call`.
    pub fn stepped(&self, setup: fn(&Child), call: fn(&Child)) -> Stepped {
        let child = Child { engine: self.engine, t: Thread::new(), id: self.id.get(), victim: self.victim.get() };
        Stepped::start(
            || {
                setup(&child);
                &child
            },
            call,
        )
    }
    /// While a call is recorded, which takes long, sleepers leave it to others to look for the dead.
    pub fn record(&self, on: bool) {
        self.recording.set(on);
        if !on {
            self.engine.set_watcher(0);
        }
    }

    /// A call of this process; it never sleeps for long.
    pub fn op(&self, ops: &[SemBuf]) -> Result<(), Errno> {
        let patience = manyway_sem::abi::Timespec { sec: PATIENCE.as_secs() as i64, nsec: 0 };
        self.engine.semop(&self.me, self.id.get(), ops, Some(patience))
    }
    pub fn values(&self) -> Vec<u16> {
        let mut all = vec![0; self.engine.array_len(&self.me, self.id.get(), false).expect("the set is there")];
        self.engine.getall(&self.me, self.id.get(), &mut all).expect("GETALL");
        all
    }
    /// GETNCNT and GETZCNT.
    pub fn counts(&self, num: i32) -> (i32, i32) {
        let (e, t, id) = (self.engine, &self.me, self.id.get());
        (e.getncnt(t, id, num).expect("GETNCNT"), e.getzcnt(t, id, num).expect("GETZCNT"))
    }
    /// Semaphore, adjustment and life of each holder.
    pub fn holders(&self) -> Vec<(u16, i16, bool)> {
        let mut all = Vec::new();
        let id = self.id.get();
        self.engine.for_each_holder(&self.me, id, &mut |h| all.push((h.num, h.adj, h.alive))).expect("the set is there");
        all
    }

    /// What wait(2), interposed, does when it reports a death; in odd rounds nobody says a word.
    pub fn hear_of(&self, dead: u32) {
        if self.round.get().is_multiple_of(2) {
            self.engine.reap(&self.me, Some(dead));
        }
    }

    /// After a death is dealt with: nobody holds or waits, ordinary calls of all kinds go through, and the dead one has left nothing.
    pub fn works(&self) {
        let before = self.values();
        assert_eq!(self.holders(), [], "holders");
        for (num, &value) in before.iter().enumerate() {
            assert_eq!(self.counts(num as i32), (0, 0), "sleepers of semaphore {num}");
            let n = num as u16;
            assert_eq!(self.op(&[op(n, 1, SEM_UNDO)]), Ok(()));
            assert_eq!(self.op(&[op(n, 0, IPC_NOWAIT)]), Err(Errno::EAGAIN));
            assert_eq!(self.op(&[op(n, -1 - value as i16, 0)]), Ok(()));
            assert_eq!(self.op(&[op(n, -1, IPC_NOWAIT)]), Err(Errno::EAGAIN));
            assert_eq!(self.op(&[op(n, 0, 0), op(n, 1 + value as i16, 0)]), Ok(()));
            assert_eq!(self.op(&[op(n, -1, SEM_UNDO)]), Ok(()));
        }
        assert_eq!(self.values(), before);
        assert_eq!(self.holders(), [], "holders");
        self.engine.reap(&self.me, None);
        let mut processes = Vec::new();
        self.engine.for_each_process(&mut |pid| processes.push(pid));
        assert_eq!(processes, [std::process::id()], "processes with a slot");
    }

    /// What the arena holds now: its allocated ranges.
    pub fn arena(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut at = 0;
        while let Ok(data) = lseek(self.arena.as_fd(), at, Whence::SeekData) {
            let end = lseek(self.arena.as_fd(), data, Whence::SeekHole).expect("a hole at the end");
            let from = all.len();
            all.extend_from_slice(&data.to_le_bytes());
            all.resize(from + 8 + (end - data) as usize, 0);
            self.arena.read_exact_at(&mut all[from + 8..], data as u64).expect("the arena is readable");
            at = end;
        }
        all
    }

    /// Sends a thread of this process into a call that blocks, and waits until it is queued.
    pub fn send_to_sleep(&self, ops: &[SemBuf]) {
        let mut sleepers = self.sleepers.borrow_mut();
        let i = (0..sleepers.len()).find(|i| !self.sleeping.borrow().contains(i)).unwrap_or(sleepers.len());
        if i == sleepers.len() {
            sleepers.push(Sleeper::new(self.engine));
        }
        if self.recording.get() {
            self.engine.set_watcher(std::process::id());
        }
        sleepers[i].orders.send((self.id.get(), ops.to_vec())).expect("the sleeper lives");
        self.sleeping.borrow_mut().push(i);
        let deadline = Instant::now() + PATIENCE;
        while !self.queued(sleepers[i].tid) {
            assert!(Instant::now() < deadline, "the sleeper does not sleep");
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    fn queued(&self, tid: u32) -> bool {
        let mut found = false;
        // The set may be gone.
        let _ = self.engine.for_each_sleeper(&self.me, self.id.get(), &mut |s, _| found |= s.tid == tid);
        found
    }
    /// For each sleeper in order whether it is still queued. To be asked after a call on its semaphore.
    pub fn still_queued(&self) -> Vec<bool> {
        let sleepers = self.sleepers.borrow();
        self.sleeping.borrow().iter().map(|&i| self.queued(sleepers[i].tid)).collect()
    }
    /// What the sleepers' calls return, in order.
    pub fn results(&self) -> Vec<Result<(), Errno>> {
        let sleepers = self.sleepers.borrow();
        let result = |i: usize| match sleepers[i].results.recv_timeout(PATIENCE) {
            Ok(r) => r,
            Err(RecvTimeoutError::Timeout) => panic!("a sleeper that should have been completed does not come back"),
            Err(RecvTimeoutError::Disconnected) => panic!("a sleeper panicked"),
        };
        self.sleeping.take().into_iter().map(result).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.engine.detach_thread(&self.me);
    }
}

/// A thread of this process that carries out calls that block.
struct Sleeper {
    tid: u32,
    orders: Sender<(i32, Vec<SemBuf>)>,
    results: Receiver<Result<(), Errno>>,
}

impl Sleeper {
    fn new(engine: &'static Engine) -> Sleeper {
        let (orders, taken) = channel::<(i32, Vec<SemBuf>)>();
        let (done, results) = channel();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let t = Thread::new();
            tell.send(nix::unistd::gettid().as_raw() as u32).expect("the stage waits");
            for (id, ops) in taken {
                if done.send(engine.semop(&t, id, &ops, None)).is_err() {
                    break;
                }
            }
            engine.detach_thread(&t);
        });
        Sleeper { tid: told.recv().expect("the sleeper starts"), orders, results }
    }
}
