//! The C interface's constants and structures, as `<sys/sem.h>` and `linux/sem.h` have them on 64-bit machines.

/// One operation of a semop call (`struct sembuf`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SemBuf {
    /// Index of the semaphore in its set.
    pub num: u16,
    /// Added to the value; negative: wait until it can be subtracted; 0: wait until the value is 0.
    pub op: i16,
    /// `IPC_NOWAIT`, `SEM_UNDO`.
    pub flg: i16,
}

macro_rules! consts { ($($(#[$m:meta])* $n:ident = $v:expr;)*) => { $($(#[$m])* #[allow(missing_docs)] pub const $n: i32 = $v;)* } }
consts! {
    IPC_PRIVATE = 0;
    IPC_CREAT = 0o1000;
    IPC_EXCL = 0o2000;
    IPC_NOWAIT = 0o4000;
    SEM_UNDO = 0x1000;
    IPC_RMID = 0;
    IPC_SET = 1;
    IPC_STAT = 2;
    IPC_INFO = 3;
    GETPID = 11;
    GETVAL = 12;
    GETALL = 13;
    GETNCNT = 14;
    GETZCNT = 15;
    SETVAL = 16;
    SETALL = 17;
    SEM_STAT = 18;
    SEM_INFO = 19;
    SEM_STAT_ANY = 20;
    /// The largest value of a semaphore.
    SEMVMX = 32767;
    /// The largest adjustment; the smallest is −SEMAEM − 1.
    SEMAEM = 32767;
}

/// A relative timeout (`struct timespec`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: i64,
}

impl Timespec {
    /// True when it is a time: not negative, nanoseconds below a second.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.sec >= 0 && self.nsec >= 0 && self.nsec < 1_000_000_000
    }
}

/// What IPC_STAT reports of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetStat {
    /// The set's id.
    pub id: i32,
    /// Key, `IPC_PRIVATE` (0) when it has none.
    pub key: i32,
    /// Owner's user id.
    pub uid: u32,
    /// Owner's group id.
    pub gid: u32,
    /// Creator's user id.
    pub cuid: u32,
    /// Creator's group id.
    pub cgid: u32,
    /// Low nine bits of the mode.
    pub mode: u32,
    /// Sequence number of the id.
    pub seq: u32,
    /// Number of semaphores.
    pub nsems: u32,
    /// Time of the last semop, seconds since 1970; 0: none yet.
    pub otime: i64,
    /// Time of creation or of the last semctl that changes the set, seconds since 1970.
    pub ctime: i64,
}

/// What IPC_INFO and SEM_INFO report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SemInfo {
    /// Limit: semaphores in a set (SEMMSL).
    pub msl: i32,
    /// Limit: semaphores in the namespace (SEMMNS).
    pub mns: i32,
    /// Limit: operations in a call (SEMOPM).
    pub opm: i32,
    /// Limit: sets (SEMMNI).
    pub mni: i32,
    /// Sets in use (SEM_INFO's semusz).
    pub sets: i32,
    /// Semaphores in use (SEM_INFO's semaem).
    pub sems: i32,
    /// The highest index in use; 0 when there is none.
    pub highest: i32,
}

/// The id and command of a semctl(2) that means nothing to the kernel (EINVAL): with MANYWAY_REPORT in the environment, a process that
/// takes its place in a namespace makes it, for the one who listens to its semaphore calls.
pub const REPORT_ID: i32 = 0x7f4d_574d;
/// See [`REPORT_ID`].
pub const REPORT_COMMAND: i32 = 0x4d57;
