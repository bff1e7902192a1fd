//! The test's side: a namespace, its workers, and the trace of what they saw.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use manyway_sem::abi::{IPC_CREAT, IPC_RMID};

use crate::agent::{Agent, HANG};
use crate::preload::preload_library;
use crate::protocol::{Clone as CloneHow, Command, Hello, NewImage, Op, Out, Reply, Res, Snapshot};
use crate::sys;
use crate::worker::{Namespace, Start, address};

/// The ordinary user and group that tests become.
pub const NOBODY: u32 = 65534;

/// Whose semaphores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The kernel's, by C's functions.
    Kernel,
    /// Manyway's, by the engine's functions.
    Engine,
    /// Manyway's, by C's functions with the library preloaded.
    Preload,
}

/// What a world is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// Whose semaphores.
    pub backend: Backend,
    /// Workers start as an ordinary user (needs root to become one).
    pub as_user: bool,
    /// SEMMSL, SEMMNS, SEMOPM, SEMMNI; None: the system's.
    pub limits: Option<[u32; 4]>,
    /// A namespace of Manyway's in which newcomers may take what a sleeper was woken for.
    pub barging: bool,
}

impl Setup {
    /// This backend as the user that runs the tests, with the usual limits and order.
    pub fn of(backend: Backend) -> Setup {
        Setup { backend, as_user: false, limits: None, barging: false }
    }
}

/// True when the kernel has System V semaphores to compare with.
pub fn kernel_has_semaphores() -> bool {
    sys::semget(1, 0, 0).err() != Some(manyway_sem::Errno::ENOSYS)
}

/// True when the tests may make IPC namespaces of the kernel's: root may, outside containers.
pub fn kernel_namespaces() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| sys::new_ipc_namespace(None).is_ok())
}

/// True when the tests may become other users.
pub fn running_as_root() -> bool {
    sys::effective_uid() == 0
}

/// A set of semaphores, made by a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its id.
    pub id: i32,
    /// How many semaphores.
    pub n: usize,
}

/// One namespace with its workers. Dropping it ends them and removes the sets.
pub struct World {
    setup: Setup,
    key: i32,
    start: Start,
    listener: UnixListener,
    /// Keeps the kernel's namespace.
    namespace: Option<OwnedFd>,
    /// Manyway's namespace directory.
    dir: Option<PathBuf>,
    /// Removes it at the end.
    _temporary: Option<tempfile::TempDir>,
    /// Keeps the library's copy that an ordinary user can read.
    lib: OnceCell<tempfile::TempDir>,
    children: RefCell<HashMap<i32, Child>>,
    names: RefCell<HashMap<i32, String>>,
    made: RefCell<Vec<i32>>,
    observer: Option<Agent>,
    trace: RefCell<Vec<String>>,
}

impl World {
    /// A fresh namespace without workers.
    pub fn new(setup: Setup) -> World {
        if setup.backend == Backend::Kernel {
            return World::made(setup, None, None);
        }
        let dir = tempfile::Builder::new().prefix("manyway-test-").tempdir_in("/dev/shm").expect("/dev/shm is writable");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).expect("own directory");
        if setup.as_user {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("root may give directories away");
        }
        let path = dir.path().to_owned();
        World::made(setup, Some(path), Some(dir))
    }
    /// Manyway's namespace in a directory of the caller's.
    pub fn within(setup: Setup, dir: &Path) -> World {
        World::made(setup, Some(dir.to_owned()), None)
    }

    fn made(setup: Setup, dir: Option<PathBuf>, temporary: Option<tempfile::TempDir>) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("manyway-testkit-{}-{number}", std::process::id());
        let key = 0x4000_0000 | (std::process::id() as i32 & 0x1fff) << 17 | (number as i32 & 0xfff) << 4;
        let listener = UnixListener::bind_addr(&address(&socket)).expect("an abstract socket");
        listener.set_nonblocking(true).expect("a socket");
        let kernel = dir.is_none();
        let namespace = (kernel && kernel_namespaces()).then(|| sys::new_ipc_namespace(setup.limits).expect("they can be made"));
        let engine = dir.clone().map(|dir| Namespace { dir, limits: setup.limits, barging: setup.barging });
        let start = Start { engine, socket };
        let mut world = World {
            setup,
            key,
            start,
            listener,
            namespace,
            dir,
            _temporary: temporary,
            lib: OnceCell::new(),
            children: RefCell::default(),
            names: RefCell::default(),
            made: RefCell::default(),
            observer: None,
            trace: RefCell::default(),
        };
        // The observer makes Manyway's namespace; with the engine's functions, which know who sleeps.
        world.observer = Some(world.start_process("observer", kernel));
        world
    }

    /// Whose semaphores.
    pub fn backend(&self) -> Backend {
        self.setup.backend
    }
    /// True when the rule's text speaks of the kernel's, not of Manyway's.
    pub fn is_kernel(&self) -> bool {
        self.setup.backend == Backend::Kernel
    }
    /// User and group of the workers.
    pub fn user(&self) -> (u32, u32) {
        if self.setup.as_user { (NOBODY, NOBODY) } else { (sys::effective_uid(), sys::effective_uid()) }
    }
    /// True when workers may override modes.
    pub fn privileged(&self) -> bool {
        !self.setup.as_user && running_as_root()
    }

    /// Starts worker processes.
    pub fn workers<const N: usize>(&self, names: [&str; N]) -> [Agent; N] {
        names.map(|name| self.worker(name))
    }
    /// Starts a worker process.
    pub fn worker(&self, name: &str) -> Agent {
        self.start_process(name, self.setup.backend != Backend::Engine)
    }

    fn start_process(&self, name: &str, c: bool) -> Agent {
        let start = Start { engine: self.start.engine.clone().filter(|_| !c), ..self.start.clone() };
        let mut process = Process::new("/proc/self/exe");
        process.args(start.args()).env_remove("LD_PRELOAD");
        if c && let Some(dir) = &self.dir {
            process.env("MANYWAY_DIR", dir).env("LD_PRELOAD", self.library());
        }
        sys::start_in(&mut process, self.namespace.as_ref(), self.setup.as_user.then_some((NOBODY, NOBODY)));
        let child = process.spawn().expect("starting a worker");
        self.children.borrow_mut().insert(child.id() as i32, child);
        self.accept(name)
    }

    /// The library to preload. An ordinary user may not be able to reach the build's directory: it gets a copy.
    fn library(&self) -> PathBuf {
        let built = preload_library().unwrap_or_else(|e| panic!("{e}"));
        if !self.setup.as_user {
            return built.to_owned();
        }
        let dir = self.lib.get_or_init(|| {
            let dir = tempfile::tempdir().expect("a temporary directory");
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("own directory");
            std::fs::copy(built, dir.path().join("libmanyway.so")).expect("room for a copy of the library");
            dir
        });
        dir.path().join("libmanyway.so")
    }

    /// The next worker that connects.
    pub fn accept(&self, name: &str) -> Agent {
        let began = Instant::now();
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) => assert!(began.elapsed() < HANG, "worker {name} does not come up"),
            }
            if let Some(end) = self.children.borrow_mut().values_mut().find_map(|c| c.try_wait().ok().flatten()) {
                panic!("a worker ended at once: {end}");
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        stream.set_nonblocking(false).expect("a socket");
        let agent = Agent::greet(name, stream);
        // A thread has its process's name. A process may have the number of one that is dead.
        if agent.identity().tid == agent.pid() {
            self.names.borrow_mut().insert(agent.pid(), name.to_owned());
        }
        agent
    }

    /// The worker that watches: it takes no part.
    pub fn observer(&self) -> &Agent {
        self.observer.as_ref().expect("started first")
    }

    /// Gives a worker another name.
    pub fn rename(&self, a: Agent, name: &str) -> Agent {
        self.names.borrow_mut().insert(a.pid(), name.to_owned());
        a.renamed(name)
    }
    /// Name of the worker with this process id.
    pub fn who(&self, pid: i64) -> String {
        if pid == 0 {
            return "nobody".to_owned();
        }
        self.names.borrow().get(&(pid as i32)).cloned().unwrap_or_else(|| format!("stranger {pid}"))
    }

    /// A new private set with all values 0.
    pub fn set(&self, by: &Agent, n: usize) -> Set {
        self.keyed_set(by, 0, n)
    }
    /// A new set with a key; its mode is 0600.
    pub fn keyed_set(&self, by: &Agent, key: i32, n: usize) -> Set {
        let id = by.get(key, n as i32, IPC_CREAT | 0o600).expect("a new set") as i32;
        self.made.borrow_mut().push(id);
        Set { id, n }
    }
    /// A new private set with these values.
    pub fn set_of(&self, by: &Agent, vals: &[u16]) -> Set {
        let set = self.set(by, vals.len());
        by.set_all(set, vals).expect("own set");
        set
    }
    /// A key that no other world uses: without root all share the kernel's only namespace.
    pub fn key(&self) -> i32 {
        self.key
    }
    /// Has the set removed at the end, on the kernel.
    pub fn remember(&self, id: i32) {
        self.made.borrow_mut().push(id);
    }

    /// Notes in the trace what was seen, and asserts that it is what the rule says.
    #[track_caller]
    pub fn check<T: Debug + PartialEq>(&self, what: &str, seen: T, rule: T) {
        self.note(what, &seen);
        assert!(seen == rule, "{what}: saw {seen:?}, the rule says {rule:?}\n{}", self.story());
    }
    /// Notes in the trace what was seen, to be compared with the kernel's.
    pub fn note<T: Debug>(&self, what: &str, seen: &T) {
        self.trace.borrow_mut().push(format!("{what}: {seen:?}"));
    }
    /// Notes values, pids and counts of a set, and asserts its values.
    #[track_caller]
    pub fn values(&self, what: &str, set: Set, rule: &[i32]) {
        let snapshot = self.snapshot(set);
        let vals: Vec<i32> = snapshot.sems.iter().map(|s| s[0]).collect();
        let text: Vec<String> =
            snapshot.sems.iter().map(|s| format!("{} by {}, {}<, {}=0", s[0], self.who(i64::from(s[1])), s[2], s[3])).collect();
        self.note(what, &text);
        assert!(vals == rule, "{what}: values {vals:?}, the rule says {rule:?}\n{}", self.story());
    }
    /// Values, pids and counts as the observer sees them.
    #[track_caller]
    pub fn snapshot(&self, set: Set) -> Snapshot {
        match self.observer().call(Command::Snapshot { id: set.id, n: set.n }).out {
            Out::Snapshot(s) => s,
            _ => panic!("the observer cannot read the set\n{}", self.story()),
        }
    }
    /// Asserts GETNCNT and GETZCNT of every semaphore.
    #[track_caller]
    pub fn counts(&self, what: &str, set: Set, rule: &[(i32, i32)]) {
        let seen: Vec<(i32, i32)> = self.snapshot(set).sems.iter().map(|s| (s[2], s[3])).collect();
        self.check(what, seen, rule.to_vec());
    }

    /// Starts an operation that has to sleep, and waits until it does.
    #[track_caller]
    pub fn sleeps(&self, a: &Agent, set: Set, ops: &[Op]) {
        self.sleeps_for(a, set, ops, None);
    }
    /// The same with a timeout (of the tests, never so short that it ends by itself before the step does).
    #[track_caller]
    pub fn sleeps_for(&self, a: &Agent, set: Set, ops: &[Op], timeout: Option<Duration>) {
        a.start_op(set, ops, timeout);
        self.note(a.name(), &format!("sleeps in {ops:?}"));
        if let Some(reply) = self.settle(a) {
            panic!("{} should sleep in {ops:?} but returned {:?}\n{}", a.name(), reply.res(), self.story());
        }
    }
    /// Asserts that these still sleep.
    #[track_caller]
    pub fn asleep(&self, agents: &[&Agent]) {
        for a in agents {
            if let Some(reply) = self.settle(a) {
                panic!("{} should still sleep but returned {:?}\n{}", a.name(), reply.res(), self.story());
            }
            self.note(a.name(), &"still sleeps");
        }
    }
    /// Notes and asserts what a sleeper's call returned.
    #[track_caller]
    pub fn returns(&self, a: &Agent, rule: Res) {
        let seen = a.finish().unwrap_or_else(|| panic!("{} still sleeps\n{}", a.name(), self.story())).res();
        self.check(&format!("{} returns", a.name()), seen, rule);
    }

    /// Waits until the worker has answered (then its answer) or sleeps in semop (None).
    #[track_caller]
    pub fn settle(&self, a: &Agent) -> Option<Reply> {
        let began = Instant::now();
        let mut wait = Duration::from_micros(20);
        loop {
            if let Some(reply) = a.poll(wait) {
                return Some(reply);
            }
            if self.sleeps_in_semop(a) {
                return None;
            }
            assert!(began.elapsed() < HANG, "{} neither returns nor sleeps\n{}", a.name(), self.story());
            wait = (wait * 2).min(Duration::from_millis(1));
        }
    }

    fn sleeps_in_semop(&self, a: &Agent) -> bool {
        let Hello { pid, tid } = a.identity();
        if self.is_kernel() {
            // "running" unless the thread is off its processor; so with the call's number it is blocked in it. A line says
            // nothing of a thread that is about to run: the state does.
            let task = format!("/proc/{pid}/task/{tid}");
            let call = std::fs::read_to_string(format!("{task}/syscall")).unwrap_or_default();
            let number = call.split(' ').next().and_then(|n| n.parse::<i64>().ok());
            let in_semop = number.is_some_and(|n| n == libc::SYS_semop || n == libc::SYS_semtimedop);
            let stat = std::fs::read_to_string(format!("{task}/stat")).unwrap_or_default();
            return in_semop && stat.rsplit(") ").next().is_some_and(|s| s.starts_with('S'));
        }
        let id = a.sleeping_set();
        matches!(self.observer().call(Command::Sleepers { id }).out, Out::Threads(t) if t.contains(&tid))
    }

    /// Has a worker make a thread or a process of its own.
    pub fn clone(&self, a: &Agent, how: CloneHow, name: &str) -> Agent {
        let reply = a.call(Command::Clone { how });
        assert!(reply.ret.is_ok(), "{how:?}: {:?}", reply.res());
        self.accept(name)
    }

    /// Kills a worker process (SIGKILL) and waits for its death; of a worker's child the parent waits.
    pub fn kill(&self, a: &Agent) {
        sys::signal_process(a.pid(), libc::SIGKILL);
        self.await_death(a);
    }
    /// Has a worker process exit, and waits for its death.
    pub fn exit(&self, a: &Agent) {
        a.start(Command::Exit { process: true });
        self.await_death(a);
    }
    /// Has one thread of a worker exit, and waits until it is gone.
    pub fn exit_thread(&self, a: &Agent) {
        a.start(Command::Exit { process: false });
        assert!(a.gone(), "{} lives", a.name());
        let Hello { pid, tid } = a.identity();
        let stat = format!("/proc/{pid}/task/{tid}/stat");
        let began = Instant::now();
        // The first thread stays as a zombie while others live.
        while std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z ")) {
            assert!(began.elapsed() < HANG, "{} lives", a.name());
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    /// Has a worker execute its program again.
    pub fn exec(&self, a: &Agent, image: NewImage, name: &str) -> Agent {
        a.start(Command::Exec { image });
        let new = self.accept(name);
        assert!(new.pid() == a.pid(), "execve keeps the process");
        new
    }
    /// Waits for a process's death: until wait(2) could report it.
    pub fn await_death(&self, a: &Agent) {
        if let Some(mut child) = self.children.borrow_mut().remove(&a.pid()) {
            child.wait().expect("own child");
        }
        assert!(a.gone(), "{} lives", a.name());
        let process = format!("/proc/{}", a.pid());
        let began = Instant::now();
        // A worker's child is its parent's to wait for, or init's: its end is a zombie without other threads, or nothing.
        while std::fs::read_to_string(format!("{process}/stat")).is_ok_and(|s| !s.contains(") Z "))
            || std::fs::read_dir(format!("{process}/task")).is_ok_and(|tasks| tasks.count() > 1)
        {
            assert!(began.elapsed() < HANG, "{} lives", a.name());
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// What has happened so far.
    pub fn story(&self) -> String {
        self.trace.borrow().iter().fold("so far:\n".to_owned(), |mut s, line| {
            let _ = writeln!(s, "  {line}");
            s
        })
    }
    /// The trace.
    pub fn into_trace(self) -> Vec<String> {
        self.trace.take()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let in_own_namespace = self.namespace.is_some();
        if self.is_kernel() && !in_own_namespace {
            for id in self.made.borrow().iter() {
                let _ = sys::semctl3(*id, 0, IPC_RMID);
            }
        }
        // Workers' own children; the command line tells them from a stranger that got the number since.
        for pid in self.names.borrow().keys() {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if line.split('\0').any(|a| a == self.start.socket) {
                sys::signal_process(*pid, libc::SIGKILL);
            }
        }
        for (_, mut child) in self.children.borrow_mut().drain() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
