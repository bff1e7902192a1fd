//! A worker: the test's program started again, doing what it is told over a socket.

use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Instant;

use manyway_sem::Errno;
use manyway_sem::abi::{GETNCNT, GETPID, GETVAL, GETZCNT, IPC_STAT, SEM_STAT, SEM_STAT_ANY};
use serde::{Deserialize, Serialize};

use crate::backend::{C, Calls, Direct, open_engine};
use crate::protocol::{Clone, Command, Hello, NewImage, Op, Out, Reply, Res, Snapshot};
use crate::sys;

const SWITCH: &str = "--manyway-worker";

/// How a worker is started: which calls it makes, and where it connects.
#[derive(std::clone::Clone)]
pub struct Start {
    /// The engine's calls in this namespace. None: C's functions.
    pub engine: Option<Namespace>,
    /// The test's socket (an abstract name).
    pub socket: String,
}

/// A namespace of Manyway's, made if it is not there.
#[derive(std::clone::Clone, Serialize, Deserialize)]
pub struct Namespace {
    /// Its directory.
    pub dir: PathBuf,
    /// SEMMSL, SEMMNS, SEMOPM, SEMMNI; None: the system's.
    pub limits: Option<[u32; 4]>,
    /// Newcomers may take what a sleeper was woken for.
    pub barging: bool,
}

impl Start {
    pub fn args(&self) -> Vec<String> {
        let engine = self.engine.iter().map(|e| serde_json::to_string(e).expect("plain data"));
        [SWITCH.to_owned(), self.socket.clone()].into_iter().chain(engine).collect()
    }
    fn from_args(args: &[String]) -> Start {
        let engine = args.get(1).map(|e| serde_json::from_str(e).expect("a namespace"));
        Start { engine, socket: args[0].clone() }
    }
}

/// To be called first in a test program's `main`: if this process was started as a worker, it works and does not return.
pub fn become_worker_if_asked() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == SWITCH) {
        let start = Start::from_args(&args[1..]);
        if let Some(namespace) = &start.engine {
            open_engine(namespace);
        }
        match Worker::new(&start).serve() {
            End::Process => std::process::exit(0),
            End::Thread => sys::exit_thread(),
        }
    }
}

/// The name of a test's socket as an address.
pub fn address(name: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(name).expect("a short name")
}

fn connect(name: &str) -> BufReader<UnixStream> {
    let stream = UnixStream::connect_addr(&address(name)).expect("the test listens");
    let hello = Hello { pid: std::process::id() as i32, tid: sys::gettid() };
    send(&stream, &hello);
    BufReader::new(stream)
}

pub fn send<T: serde::Serialize>(mut stream: &UnixStream, what: &T) {
    let mut line = serde_json::to_vec(what).expect("plain data");
    line.push(b'\n');
    // Nobody there any more: the reader finds the end of the stream next.
    let _ = stream.write_all(&line);
}

/// What ends when a worker has done its work.
enum End {
    Process,
    Thread,
}

struct Worker {
    start: Start,
    calls: &'static dyn Calls,
    stream: BufReader<UnixStream>,
}

impl Worker {
    fn new(start: &Start) -> Worker {
        let calls: &dyn Calls = if start.engine.is_some() { &Direct } else { &C };
        Worker { start: start.clone(), calls, stream: connect(&start.socket) }
    }

    /// Carries out commands until the test closes the stream, or until told to exit.
    fn serve(mut self) -> End {
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line).unwrap_or(0) == 0 {
                return End::Process;
            }
            let command: Command = serde_json::from_str(&line).expect("a command");
            if let Command::Exit { process } = command {
                if process {
                    std::process::exit(0);
                }
                return End::Thread;
            }
            let mut timespec_kept = true;
            let began = Instant::now();
            let done = self.carry_out(command, &mut timespec_kept);
            let ns = began.elapsed().as_nanos() as u64;
            // The child of a fork has connected anew and waits for its own commands.
            let Some(done) = done else { continue };
            let (ret, out) = match done {
                Ok((ret, out)) => (Ok(ret), out),
                Err(e) => (Err(e.0), Out::None),
            };
            send(self.stream.get_ref(), &Reply { ret, out, ns, timespec_kept });
        }
    }

    fn carry_out(&mut self, command: Command, timespec_kept: &mut bool) -> Option<Result<(i64, Out), Errno>> {
        let plain = |ret: Res| ret.map(|n| (n, Out::None));
        let c = self.calls;
        Some(match command {
            Command::Get { key, nsems, flags } => plain(c.get(key, nsems, flags)),
            Command::Op { id, ops, timeout } => {
                let (ret, kept) = c.op(id, &ops, timeout);
                *timespec_kept = kept;
                plain(ret)
            }
            Command::RawOp { id, ops, nsops, timeout } => plain(sys::raw_semop(id, ops, nsops, timeout)),
            Command::Ctl { id, num, cmd, val } => plain(c.ctl(id, num, cmd, val)),
            Command::RawCtl { id, num, cmd, arg } => plain(sys::raw_semctl(id, num, cmd, arg)),
            Command::GetAll { id, n } => c.get_all(id).map(|v| (0, Out::Values(v.into_iter().take(n).collect()))),
            Command::SetAll { id, vals } => plain(c.set_all(id, &vals)),
            Command::Stat { id } => c.stat(id, IPC_STAT).map(|(n, s)| (n, Out::Stat(s))),
            Command::StatIndex { index, any } => c.stat(index, if any { SEM_STAT_ANY } else { SEM_STAT }).map(|(n, s)| (n, Out::Stat(s))),
            Command::SetPerm { id, uid, gid, mode } => plain(c.set_perm(id, uid, gid, mode)),
            Command::Info { used } => c.info(used).map(|(n, i)| (n, Out::Info(i))),
            Command::Snapshot { id, n } => snapshot(c, id, n),
            Command::Sleepers { id } => c.sleepers(id).map(|t| (0, Out::Threads(t))),
            Command::Repeat { id, calls, times } => plain(repeat(c, id, &calls, times)),
            Command::Crowd { id, ops, threads } => plain(crowd(c, id, &ops, threads)),
            Command::GetMany { nsems, most } => {
                let made: Vec<Res> = (0..most)
                    .map(|_| c.get(0, nsems, 0o600))
                    .scan(false, |ended, r| (!std::mem::replace(ended, r.is_err())).then_some(r))
                    .collect();
                let errno = made.last().and_then(|r| r.err()).map_or(0, |e| e.0);
                let ids: Vec<i32> = made.iter().flatten().map(|id| *id as i32).collect();
                Ok((ids.len() as i64, Out::Sets(ids, errno)))
            }
            Command::SumRange { id, n, times } => sum_range(c, id, n, times),
            Command::SetUser { uid, gid, groups } => plain(c.become_user(uid, gid, &groups)),
            Command::Handle { signal, restart, then } => plain(sys::handle(signal, restart, then)),
            Command::Handled => {
                let (ran, failed) = sys::handled();
                Ok((i64::from(ran), Out::Range(u64::from(ran), u64::from(failed))))
            }
            Command::Clone { how: Clone::Thread } => {
                let start = self.start.clone();
                std::thread::spawn(move || Worker::new(&start).serve());
                Ok((0, Out::None))
            }
            Command::Clone { how } => {
                let ret = c.clone_process(how);
                if ret == Ok(0) {
                    self.stream = connect(&self.start.socket);
                    // The streams of the parent's other threads: the test waits for their end when the parent dies.
                    sys::close_all_but(self.stream.get_ref());
                    return None;
                }
                plain(ret)
            }
            Command::Exec { image } => Err(self.exec(image)),
            Command::WaitPid { pid } => plain(c.wait_pid(pid)),
            Command::UnshareUndo => plain(c.unshare_undo()),
            Command::Exit { .. } => unreachable!("handled by serve"),
            Command::Read { path } => match std::fs::read_to_string(&path) {
                Ok(text) => Ok((0, Out::Text(text))),
                Err(e) => Err(Errno(e.raw_os_error().unwrap_or(0))),
            },
            Command::Now => Ok((sys::seconds(), Out::None)),
        })
    }

    /// Returns only when it failed.
    fn exec(&self, image: NewImage) -> Errno {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.args(self.start.args());
        if image == NewImage::NotPreloaded {
            command.env_remove("LD_PRELOAD");
        }
        Errno(command.exec().raw_os_error().unwrap_or(0))
    }
}

fn snapshot(c: &dyn Calls, id: i32, n: usize) -> Result<(i64, Out), Errno> {
    let mut sems = Vec::with_capacity(n);
    for num in 0..n as i32 {
        let mut of = [0; 4];
        for (slot, cmd) in of.iter_mut().zip([GETVAL, GETPID, GETNCNT, GETZCNT]) {
            *slot = c.ctl(id, num, cmd, 0)? as i32;
        }
        sems.push(of);
    }
    Ok((0, Out::Snapshot(Snapshot { sems })))
}

fn repeat(c: &dyn Calls, id: i32, calls: &[Vec<Op>], times: u32) -> Res {
    for _ in 0..times {
        for ops in calls {
            c.op(id, ops, None).0?;
        }
    }
    Ok(i64::from(times))
}

fn crowd(c: &dyn Calls, id: i32, ops: &[Op], threads: u32) -> Res {
    let call = || c.op(id, ops, None).0.is_ok();
    let done = std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, call).expect("a thread");
        let threads: Vec<_> = (0..threads).map(spawn).collect();
        threads.into_iter().filter_map(|t| t.join().ok()).filter(|done| *done).count()
    });
    Ok(done as i64)
}

fn sum_range(c: &dyn Calls, id: i32, n: usize, times: u32) -> Result<(i64, Out), Errno> {
    let (mut least, mut most) = (u64::MAX, 0);
    for _ in 0..times {
        let sum = c.get_all(id)?.into_iter().take(n).map(u64::from).sum();
        least = least.min(sum);
        most = most.max(sum);
    }
    Ok((0, Out::Range(least, most)))
}
