//! One worker thread, as the test drives it.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use manyway_sem::abi::{GETNCNT, GETPID, GETVAL, GETZCNT, IPC_RMID, SETVAL};

use crate::protocol::{Command, Hello, Info, Op, Out, Reply, Res, Stat};
use crate::sys;
use crate::worker::send;
use crate::world::Set;

/// After this long without an answer a call hangs.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// One thread of a worker process. Its calls are C's, by name; those that may sleep are [`World`](crate::World)'s.
#[derive(Clone)]
pub struct Agent(Rc<Inner>);

struct Inner {
    name: String,
    identity: Hello,
    stream: RefCell<BufReader<UnixStream>>,
    /// What arrived of the next line so far.
    partial: RefCell<Vec<u8>>,
    /// The set in which its unfinished operation may sleep.
    pending: Cell<Option<i32>>,
}

impl Agent {
    /// Takes a new worker's first words.
    pub(crate) fn greet(name: &str, stream: UnixStream) -> Agent {
        let mut stream = BufReader::new(stream);
        stream.get_ref().set_read_timeout(Some(HANG)).expect("a socket");
        let mut line = String::new();
        stream.read_line(&mut line).unwrap_or_else(|e| panic!("worker {name} does not speak: {e}"));
        let identity = serde_json::from_str(&line).unwrap_or_else(|_| panic!("worker {name} ended at once"));
        stream.get_ref().set_nonblocking(true).expect("a socket");
        Agent(Rc::new(Inner {
            name: name.to_owned(),
            identity,
            stream: RefCell::new(stream),
            partial: RefCell::default(),
            pending: Cell::new(None),
        }))
    }

    /// The same worker under another name; this must be the only handle.
    pub(crate) fn renamed(self, name: &str) -> Agent {
        let inner = Rc::into_inner(self.0).expect("no other handle");
        Agent(Rc::new(Inner { name: name.to_owned(), ..inner }))
    }
    /// Its name in the trace.
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// Its process.
    pub fn pid(&self) -> i32 {
        self.0.identity.pid
    }
    pub(crate) fn identity(&self) -> Hello {
        self.0.identity
    }
    pub(crate) fn sleeping_set(&self) -> i32 {
        self.0.pending.get().unwrap_or(-1)
    }
    /// True while a started call has not been finished.
    pub fn busy(&self) -> bool {
        self.0.pending.get().is_some()
    }

    /// Sends a command without waiting for its end.
    pub fn start(&self, command: Command) {
        assert!(!self.busy(), "{} is still in a call", self.name());
        send(self.0.stream.borrow().get_ref(), &command);
    }
    /// Starts semop, or semtimedop, without waiting for its end.
    pub fn start_op(&self, set: Set, ops: &[Op], timeout: Option<Duration>) {
        let timeout = timeout.map(|t| (t.as_secs() as i64, i64::from(t.subsec_nanos())));
        self.start(Command::Op { id: set.id, ops: ops.to_vec(), timeout });
        self.0.pending.set(Some(set.id));
    }
    /// The answer, if it comes within this time.
    pub(crate) fn poll(&self, wait: Duration) -> Option<Reply> {
        let line = self.line(wait)?;
        assert!(!line.is_empty(), "worker {} ended", self.name());
        self.0.pending.set(None);
        Some(serde_json::from_slice(&line).expect("a reply"))
    }
    /// The next line, if it comes within this time; empty at the stream's end.
    fn line(&self, wait: Duration) -> Option<Vec<u8>> {
        let began = Instant::now();
        let mut stream = self.0.stream.borrow_mut();
        let mut partial = self.0.partial.borrow_mut();
        loop {
            match stream.read_until(b'\n', &mut partial) {
                Ok(_) => return Some(std::mem::take(&mut *partial)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Some(Vec::new()),
            }
            // Not a timeout of the socket's: those are rounded up to a tick.
            sys::wait_readable(stream.get_ref(), wait.checked_sub(began.elapsed())?);
        }
    }
    /// The answer to what was started, or None when it does not come.
    pub fn finish(&self) -> Option<Reply> {
        self.poll(HANG)
    }
    /// Carries out a command to its end.
    #[track_caller]
    pub fn call(&self, command: Command) -> Reply {
        self.start(command.clone());
        self.finish().unwrap_or_else(|| panic!("{} hangs in {command:?}", self.name()))
    }
    /// True when the worker's stream has ended, at the latest after a while.
    pub(crate) fn gone(&self) -> bool {
        while let Some(line) = self.line(HANG) {
            if line.is_empty() {
                return true;
            }
        }
        false
    }

    /// semget.
    #[track_caller]
    pub fn get(&self, key: i32, nsems: i32, flags: i32) -> Res {
        self.call(Command::Get { key, nsems, flags }).res()
    }
    /// semop that is expected to return.
    #[track_caller]
    pub fn op(&self, set: Set, ops: &[Op]) -> Res {
        self.call(Command::Op { id: set.id, ops: ops.to_vec(), timeout: None }).res()
    }
    /// semtimedop that is expected to return.
    #[track_caller]
    pub fn timed_op(&self, set: Set, ops: &[Op], timeout: (i64, i64)) -> Reply {
        self.call(Command::Op { id: set.id, ops: ops.to_vec(), timeout: Some(timeout) })
    }
    /// semctl with a command that takes a number or nothing.
    #[track_caller]
    pub fn ctl(&self, id: i32, num: i32, cmd: i32, val: i32) -> Res {
        self.call(Command::Ctl { id, num, cmd, val }).res()
    }
    /// GETVAL.
    #[track_caller]
    pub fn getval(&self, set: Set, num: i32) -> Res {
        self.ctl(set.id, num, GETVAL, 0)
    }
    /// GETPID.
    #[track_caller]
    pub fn getpid(&self, set: Set, num: i32) -> Res {
        self.ctl(set.id, num, GETPID, 0)
    }
    /// GETNCNT.
    #[track_caller]
    pub fn getncnt(&self, set: Set, num: i32) -> Res {
        self.ctl(set.id, num, GETNCNT, 0)
    }
    /// GETZCNT.
    #[track_caller]
    pub fn getzcnt(&self, set: Set, num: i32) -> Res {
        self.ctl(set.id, num, GETZCNT, 0)
    }
    /// SETVAL.
    #[track_caller]
    pub fn setval(&self, set: Set, num: i32, val: i32) -> Res {
        self.ctl(set.id, num, SETVAL, val)
    }
    /// SETALL.
    #[track_caller]
    pub fn set_all(&self, set: Set, vals: &[u16]) -> Res {
        self.call(Command::SetAll { id: set.id, vals: vals.to_vec() }).res()
    }
    /// GETALL.
    #[track_caller]
    pub fn get_all(&self, set: Set) -> Result<Vec<u16>, manyway_sem::Errno> {
        let reply = self.call(Command::GetAll { id: set.id, n: set.n });
        reply.res()?;
        match reply.out {
            Out::Values(v) => Ok(v),
            other => panic!("GETALL returned {other:?}"),
        }
    }
    /// IPC_RMID.
    #[track_caller]
    pub fn remove(&self, set: Set) -> Res {
        self.ctl(set.id, 0, IPC_RMID, 0)
    }
    /// IPC_STAT.
    #[track_caller]
    pub fn stat(&self, set: Set) -> Result<Stat, manyway_sem::Errno> {
        self.stat_by(Command::Stat { id: set.id }).map(|(_, s)| s)
    }
    /// Any command that fills a status.
    #[track_caller]
    pub fn stat_by(&self, command: Command) -> Result<(i64, Stat), manyway_sem::Errno> {
        let reply = self.call(command);
        let ret = reply.res()?;
        match reply.out {
            Out::Stat(s) => Ok((ret, s)),
            other => panic!("a status command returned {other:?}"),
        }
    }
    /// IPC_INFO, SEM_INFO.
    #[track_caller]
    pub fn info(&self, used: bool) -> (i64, Info) {
        let reply = self.call(Command::Info { used });
        let highest = reply.res().expect("needs no permission");
        match reply.out {
            Out::Info(i) => (highest, i),
            other => panic!("an info command returned {other:?}"),
        }
    }
    /// IPC_SET.
    #[track_caller]
    pub fn set_perm(&self, set: Set, uid: u32, gid: u32, mode: u32) -> Res {
        self.call(Command::SetPerm { id: set.id, uid, gid, mode }).res()
    }
    /// Changes all its user and group ids.
    #[track_caller]
    pub fn become_user(&self, uid: u32, gid: u32, groups: &[u32]) {
        self.call(Command::SetUser { uid, gid, groups: groups.to_vec() }).res().expect("root may become anybody");
    }
    /// Installs a counting handler.
    #[track_caller]
    pub fn handle(&self, signal: i32, restart: bool) {
        self.call(Command::Handle { signal, restart, then: None }).res().expect("a handler");
    }
    /// Sends the worker's thread a signal.
    pub fn signal(&self, signal: i32) {
        sys::signal_thread(self.pid(), self.0.identity.tid, signal);
    }
    /// Seconds since 1970 by the clock of the semaphores' times.
    #[track_caller]
    pub fn now(&self) -> i64 {
        self.call(Command::Now).res().expect("a clock")
    }
}
