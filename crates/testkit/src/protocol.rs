//! What a test and its workers say to each other: one JSON value a line, over a Unix socket.

use manyway_sem::Errno;
use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO, SemBuf};
use serde::{Deserialize, Serialize};

/// One operation of a semop call, built as `dec(0, 1).undo().nowait()`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// Semaphore.
    pub num: u16,
    /// Added to the value.
    pub op: i16,
    /// Flags.
    pub flg: i16,
}

/// Adds `op` to semaphore `num`: positive releases, negative takes, 0 waits for zero.
pub const fn add(num: u16, op: i16) -> Op {
    Op { num, op, flg: 0 }
}
/// Takes `by` units.
pub const fn dec(num: u16, by: i16) -> Op {
    add(num, -by)
}
/// Releases `by` units.
pub const fn inc(num: u16, by: i16) -> Op {
    add(num, by)
}
/// Waits until the value is 0.
pub const fn zero(num: u16) -> Op {
    add(num, 0)
}

impl Op {
    /// With SEM_UNDO.
    pub const fn undo(self) -> Op {
        Op { flg: self.flg | SEM_UNDO as i16, ..self }
    }
    /// With IPC_NOWAIT.
    pub const fn nowait(self) -> Op {
        Op { flg: self.flg | IPC_NOWAIT as i16, ..self }
    }
    /// As the C interface has it.
    pub const fn sembuf(self) -> SemBuf {
        SemBuf { num: self.num, op: self.op, flg: self.flg }
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}]{:+}", self.num, self.op)?;
        if self.flg & SEM_UNDO as i16 != 0 {
            f.write_str("u")?;
        }
        if self.flg & IPC_NOWAIT as i16 != 0 {
            f.write_str("n")?;
        }
        Ok(())
    }
}

/// Where a raw call's pointer leads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Pointer {
    /// To nothing.
    Null,
    /// To an address that is not mapped.
    Unmapped,
    /// To good memory.
    Valid,
}

/// What the user asks of a clone of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clone {
    /// `fork()`.
    Fork,
    /// `clone(CLONE_SYSVSEM)`: another process that shares the list of adjustments.
    ShareUndo,
    /// Another thread.
    Thread,
}

/// What `execve` gives the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewImage {
    /// The same environment.
    Same,
    /// An environment without LD_PRELOAD: the image knows nothing of Manyway.
    NotPreloaded,
}

/// What a worker is to do. Numbers are those of the C interface.
#[expect(missing_docs, reason = "the fields are named as the C functions' parameters are")]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// semget.
    Get { key: i32, nsems: i32, flags: i32 },
    /// semop; semtimedop when there is a timeout (seconds, nanoseconds).
    Op { id: i32, ops: Vec<Op>, timeout: Option<(i64, i64)> },
    /// semtimedop with any pointers; `nsops` copies of a zero operation when the pointer is good.
    RawOp { id: i32, ops: Pointer, nsops: usize, timeout: Option<Pointer> },
    /// semctl with a command that takes a number or nothing.
    Ctl { id: i32, num: i32, cmd: i32, val: i32 },
    /// semctl with any pointer.
    RawCtl { id: i32, num: i32, cmd: i32, arg: Pointer },
    /// GETALL of a set of `n` semaphores.
    GetAll { id: i32, n: usize },
    /// SETALL.
    SetAll { id: i32, vals: Vec<u16> },
    /// IPC_STAT.
    Stat { id: i32 },
    /// SEM_STAT, or SEM_STAT_ANY.
    StatIndex { index: i32, any: bool },
    /// IPC_SET.
    SetPerm { id: i32, uid: u32, gid: u32, mode: u32 },
    /// IPC_INFO, or SEM_INFO.
    Info { used: bool },
    /// Values, pids and counts of a set of `n`.
    Snapshot { id: i32, n: usize },
    /// The thread ids that sleep in a set, first come first.
    Sleepers { id: i32 },
    /// The same calls, one after the other, many times; stops at the first error.
    Repeat { id: i32, calls: Vec<Vec<Op>>, times: u32 },
    /// The same call by many threads at once; how many succeeded, when all have returned.
    Crowd { id: i32, ops: Vec<Op>, threads: u32 },
    /// Private sets of `nsems` semaphores until there is an error, or enough.
    GetMany { nsems: i32, most: u32 },
    /// GETALL many times; the smallest and the largest sum seen.
    SumRange { id: i32, n: usize, times: u32 },
    /// Becomes another user: effective, real and saved ids, and supplementary groups.
    SetUser { uid: u32, gid: u32, groups: Vec<u32> },
    /// Counts a signal in a handler; which may call semop itself.
    Handle { signal: i32, restart: bool, then: Option<(i32, Op)> },
    /// How many signals the handler has counted; the sum of its semop's results.
    Handled,
    /// Another process or thread, which connects by itself.
    Clone { how: Clone },
    /// execve of this program, which connects by itself.
    Exec { image: NewImage },
    /// waitpid.
    WaitPid { pid: i32 },
    /// unshare(CLONE_SYSVSEM).
    UnshareUndo,
    /// exit of the thread, or of the process.
    Exit { process: bool },
    /// A file's text.
    Read { path: String },
    /// Seconds since 1970.
    Now,
}

/// What a call returned besides its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Out {
    /// Nothing.
    #[default]
    None,
    /// GETALL.
    Values(Vec<u16>),
    /// IPC_STAT and kin.
    Stat(Stat),
    /// IPC_INFO, SEM_INFO.
    Info(Info),
    /// Values, pids and counts.
    Snapshot(Snapshot),
    /// Thread ids.
    Threads(Vec<i32>),
    /// Ids of sets, and the errno that ended their making (0: there are enough).
    Sets(Vec<i32>, i32),
    /// Smallest and largest.
    Range(u64, u64),
    /// A file.
    Text(String),
}

/// Answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The call's number, or its errno.
    pub ret: Result<i64, i32>,
    /// What else it returned.
    pub out: Out,
    /// How long it took, nanoseconds.
    pub ns: u64,
    /// False when the call changed the caller's timespec.
    pub timespec_kept: bool,
}

impl Reply {
    /// The number or the errno.
    pub fn res(&self) -> Res {
        self.ret.map_err(Errno)
    }
}

/// What a call returned.
pub type Res = Result<i64, Errno>;

/// The first thing a worker says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Its process.
    pub pid: i32,
    /// Its thread.
    pub tid: i32,
}

/// Status of a set.
#[allow(missing_docs)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    pub key: i32,
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    pub mode: u32,
    pub nsems: u64,
    pub otime: i64,
    pub ctime: i64,
}

/// Limits and use of a namespace.
#[allow(missing_docs)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub msl: i32,
    pub mns: i32,
    pub opm: i32,
    pub mni: i32,
    /// Sets in use (SEM_INFO).
    pub sets: i32,
    /// Semaphores in use (SEM_INFO).
    pub sems: i32,
}

/// All of a set that semctl shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Of each semaphore: value, pid, GETNCNT, GETZCNT.
    pub sems: Vec<[i32; 4]>,
}
