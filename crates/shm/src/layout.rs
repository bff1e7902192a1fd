//! What lies where in the arena. Every structure is made of atomics, so that any bit pattern is a value and any writer is possible.

use manyway_sync::atomic::{AtomicI16, AtomicU16, AtomicU32, AtomicU64};

/// Bytes in a page; page offsets count these.
pub const PAGE: u64 = 4096;
/// "MANYWAY1", little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MANYWAY1");
/// "ENDS", little-endian: no stray write makes it of nothing.
pub const ENDED: u32 = u32::from_le_bytes(*b"ENDS");
/// The layout's version; also in the file's name.
pub const VERSION: u32 = 1;
/// The file's name.
pub const FILE_NAME: &core::ffi::CStr = c"arena-v1";
/// The file's apparent size.
pub const FILE_BYTES: u64 = 256 << 30;

/// Buckets of the key hash.
pub const KEY_BUCKETS: usize = 8192;
/// Offset of the key hash: u16 set index + 1.
pub const KEY_HASH_AT: u64 = 4096;
/// Ids: at most IPCMNI (32,768) sets.
pub const MAX_SETS: u32 = 32768;
/// Offset of the id table.
pub const IDS_AT: u64 = 32 << 10;
/// Thread and process slots, each.
pub const MAX_SLOTS: u32 = 65536;
/// Offset of the thread-slot words.
pub const THREAD_WORDS_AT: u64 = 320 << 10;
/// Offset of the process slots.
pub const PROCS_AT: u64 = 2 << 20;
/// Offset of the extent table.
pub const EXTENT_TABLE_AT: u64 = 20 << 20;
/// Offset of the first extent.
pub const EXTENTS_AT: u64 = 32 << 20;
/// Bytes in an extent.
pub const EXTENT: u64 = 4 << 20;
/// Extents in the file.
pub const MAX_EXTENTS: u32 = ((FILE_BYTES - EXTENTS_AT) / EXTENT) as u32;
/// Thread slots in an extent of them.
pub const THREADS_PER_EXTENT: u32 = (EXTENT / (THREAD_PAGES * PAGE)) as u32;
/// Pages of a thread slot: operations, control.
pub const THREAD_PAGES: u64 = 2;
/// The largest SEMOPM: a sleeper's operations fit one page.
pub const MAX_OPM: u32 = (PAGE / 8) as u32;
/// The largest SEMMSL: the largest set object holds its head and so many cells.
pub const MAX_MSL: u32 = ((1023 * PAGE - 128) / 64) as u32;

/// A type that may lie in shared memory: only atomics (or padding), no pointer, no destructor, every bit pattern valid.
///
/// # Safety
/// The implementor promises the above.
pub unsafe trait Shared: Sized {}

macro_rules! shared { ($($t:ty),*) => { $(
    // SAFETY: made of atomics and plain padding only.
    unsafe impl Shared for $t {}
)* } }
shared!(AtomicU16, AtomicI16, AtomicU32, AtomicU64, Header, SetHead, Cell, ThreadCtl, ProcSlot, Directory, UndoHead);

/// The first page.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Hash of this module's constants and sizes.
    pub hash: AtomicU32,
    /// /proc/sys/kernel/random/boot_id; 0 unknown.
    pub boot: [AtomicU64; 2],
    /// Inode of the PID namespace; 0 unknown.
    pub pid_ns: AtomicU64,
    /// SEMMSL, SEMMNS, SEMOPM, SEMMNI.
    pub limits: [AtomicU32; 4],
    /// 0 strict, 1 barging.
    pub fairness: AtomicU32,
    /// Pid of the watcher; 0 none.
    pub watcher: AtomicU32,

    /// Line 1: slots. Attachments so far; each process's is its epoch.
    pub attached: AtomicU64,
    /// Thread-slot words that are allocated.
    pub threads_ready: AtomicU32,
    /// Thread slots ever used are below this.
    pub threads_high: AtomicU32,
    /// Process slots that are allocated.
    pub procs_ready: AtomicU32,
    /// Process slots ever used are below this.
    pub procs_high: AtomicU32,
    /// Extents given to a kind so far.
    pub extents: AtomicU32,
    /// Entries of the extent table that are allocated.
    pub extents_ready: AtomicU32,
    /// Futex: changes when a process takes a slot.
    pub doorbell: AtomicU32,
    /// Inode of the user namespace whose numbers of users and groups the sets have; 0 unknown.
    pub user_ns: AtomicU32,
    /// The arena's owner when it was made, by those numbers.
    pub owner: AtomicU32,
    /// Who was meant to share it: 0 nobody, 1 the arena's group, 2 all. Modes that let more in are a mistake.
    pub share: AtomicU32,
    /// [`ENDED`]: the namespace has been removed.
    pub ended: AtomicU32,
    _pad1: [u32; 3],

    /// Line 2: registry. Its lock word.
    pub registry: AtomicU64,
    /// Operations counted in sets that are removed.
    pub operations: AtomicU64,
    /// Ids that are allocated in the table.
    pub ids_ready: AtomicU32,
    /// Index given out last, plus 1.
    pub last_index: AtomicU32,
    /// Sequence number given out last.
    pub last_seq: AtomicU32,
    /// Incarnation tag given out last.
    pub last_tag: AtomicU32,
    /// Sets.
    pub sets: AtomicU32,
    /// Semaphores.
    pub sems: AtomicU32,
    /// Damage that was met last: {kind 8 | set's index 16, or 65,535 | pid 22}; see `manyway_sem::engine::Damage`.
    pub damage: AtomicU64,
    /// When, seconds since 1970.
    pub damage_time: AtomicU64,
    /// How often any was met.
    pub damages: AtomicU32,
    /// 1: freed objects may have kept their pages.
    pub kept: AtomicU32,

    /// Extents of thread slots, plus 1: slot i lies in entry i / THREADS_PER_EXTENT.
    pub thread_extents: [AtomicU32; (MAX_SLOTS / THREADS_PER_EXTENT) as usize],
    /// Per kind: the first extent that may have room, plus 1.
    pub hints: [AtomicU32; 16],
}

/// Two lines before a set's cells.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SetHead {
    /// Incarnation tag.
    pub tag: AtomicU32,
    /// Semaphores.
    pub nsems: AtomicU32,
    /// Low nine bits of the mode.
    pub mode: AtomicU32,
    /// Owner.
    pub uid: AtomicU32,
    /// Owner's group.
    pub gid: AtomicU32,
    /// Creator.
    pub cuid: AtomicU32,
    /// Creator's group.
    pub cgid: AtomicU32,
    /// Key.
    pub key: AtomicU32,
    /// Index in the id table.
    pub index: AtomicU32,
    /// Sequence number of the id.
    pub seq: AtomicU32,
    /// Changes with every IPC_SET: a permission verdict is good for one generation.
    pub mode_gen: AtomicU32,
    /// Pid of the creator.
    pub creator: AtomicU32,
    _pad0: [u32; 4],

    /// Line 1: the set lock.
    pub lock: AtomicU64,
    /// Creation, or the last semctl that changes the set; seconds.
    pub ctime: AtomicU64,
    /// Complex altering sleepers, and simple ones on COMPLEX cells; by ticket.
    pub alter: Queue,
    /// Complex sleepers that wait for zeros only.
    pub consts: Queue,
    /// Complex sleepers.
    pub complex: AtomicU32,
    /// Next set of the same key bucket, index + 1.
    pub next_key: AtomicU32,
    _pad1: [u32; 6],
}

/// A doubly linked list of thread slots, each + 1; 0 ends it.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct Queue {
    /// First.
    pub head: AtomicU32,
    /// Last.
    pub tail: AtomicU32,
}

/// One semaphore.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct Cell {
    /// Value, flags, pid, tag or owner: see `manyway_sem::word`.
    pub word: AtomicU64,
    /// {tag 22 | seconds 42} of the last operation.
    pub otime: AtomicU64,
    /// Simple sleepers that wait for zero.
    pub zero: Queue,
    /// Simple sleepers that want to subtract (while the cell is not COMPLEX).
    pub alter: Queue,
    /// A multi-operation's final value and adjustment for this cell, before its commit.
    pub staged: AtomicU64,
    /// {count 32 | xor of process slots 32} of nonzero adjustments.
    pub holders: AtomicU64,
    /// Futex of all zero-sleepers: changes when they are released.
    pub zepoch: AtomicU32,
    /// Complex sleepers that name this cell.
    pub ncomplex: AtomicU32,
    /// Operations carried out here; racing ones may be lost.
    pub operations: AtomicU64,
}

/// The control page of a thread slot.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct ThreadCtl {
    /// Journal: what the slot is about to lock or has locked.
    pub head: AtomicU64,
    /// Journal: final value, adjustment and pid of a step.
    pub fin: AtomicU64,
    /// Journal: the committed step, 0 none.
    pub step: AtomicU64,
    /// Journal: process slot + 1 whose adjustment the step changes; 0 none.
    pub target: AtomicU32,
    /// Journal: counts multi-cell steps; stamps what they stage.
    pub stamp: AtomicU32,
    /// 1: the robust word is not linked, the thread's existence is asked for instead.
    pub unlinked: AtomicU32,
    /// 1: this slot has been named as a recoverer; look for its name before recycling it.
    pub recovered: AtomicU32,
    /// Journal: the two cells of a pair, {number 16 | value 15} each.
    pub pair: AtomicU64,
    _pad0: [u32; 4],

    /// Node: {sequence 28 | PARKED | state 3}; its thread's futex.
    pub state: AtomicU32,
    /// Node: next in its queue, slot + 1.
    pub next: AtomicU32,
    /// Node: previous in its queue, slot + 1.
    pub prev: AtomicU32,
    /// Node: which queue it is linked in, 0 none.
    pub linked: AtomicU32,
    /// Node: page offset of the set.
    pub set: AtomicU32,
    /// Node: tag of the set.
    pub set_tag: AtomicU32,
    /// Node: process slot, plus 1.
    pub proc: AtomicU32,
    /// Node: process id.
    pub pid: AtomicU32,
    /// Thread id.
    pub tid: AtomicU32,
    /// Node: number of operations.
    pub nops: AtomicU32,
    /// Node: index of the operation that blocks it.
    pub blocker: AtomicU32,
    /// Node, barging: when there was first a unit for it, in microseconds of CLOCK_MONOTONIC; 0: not yet.
    pub offered: AtomicU32,
    /// Node: when it went to sleep, CLOCK_MONOTONIC nanoseconds, made increasing within a queue: the order of arrival.
    pub ticket: AtomicU64,
    /// Node: its operation, when there is one.
    pub op: AtomicU64,

    #[cfg(not(loom))]
    _rest: [u64; (4096 - 24 - 64 - 64) / 8],
    /// Marked by the kernel when the thread ends.
    pub robust: AtomicU32,
    _tail: [u32; 5],
}

/// A process.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ProcSlot {
    /// {generation 20 | recoverer + 1, 20 | pid 22 | state 2}.
    pub word: AtomicU64,
    /// Inode of its pidfd; 0 unknown.
    pub inode: AtomicU64,
    /// Start time; 0 unknown.
    pub start: AtomicU64,
    /// A thread slot of this process, + 1, to look at first.
    pub thread_hint: AtomicU32,
    _pad: u32,
    /// Page offsets of undo directories: set index / 1,024.
    pub dirs: [AtomicU32; 32],
    _rest: [u64; 12],
}

/// An undo directory: set index % 1,024 → undo record's offset in units of 64 bytes.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Directory(pub [AtomicU32; 1024]);

/// The head of an undo record; nsems adjustments (i16) follow.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct UndoHead {
    /// Tag of the set's incarnation it belongs to.
    pub tag: AtomicU32,
    /// Number of adjustments.
    pub nsems: AtomicU32,
    /// The first adjustments; the others follow the structure.
    pub adj: [AtomicI16; 28],
}

/// Bytes before the adjustments.
pub const UNDO_ADJ_AT: u64 = 8;

// (loom's atomics have other sizes.)
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() <= PAGE as usize);
    assert!(core::mem::offset_of!(Header, attached) == 64);
    assert!(core::mem::offset_of!(Header, registry) == 128);
    assert!(core::mem::offset_of!(Header, thread_extents) == 192);
    assert!(size_of::<SetHead>() == 128);
    assert!(core::mem::offset_of!(SetHead, lock) == 64);
    assert!(size_of::<Cell>() == 64);
    assert!(size_of::<ThreadCtl>() == PAGE as usize);
    assert!(core::mem::offset_of!(ThreadCtl, state) == 64);
    assert!(core::mem::offset_of!(ThreadCtl, robust) == PAGE as usize - manyway_sync::robust::WORD_BEFORE_END);
    assert!(size_of::<ProcSlot>() == 256);
    assert!(size_of::<UndoHead>() == 64);
    assert!(THREADS_PER_EXTENT as u64 * THREAD_PAGES * PAGE == EXTENT);
    assert!(IDS_AT + MAX_SETS as u64 * 8 <= THREAD_WORDS_AT);
    assert!(THREAD_WORDS_AT + MAX_SLOTS as u64 * 8 <= PROCS_AT);
    assert!(PROCS_AT + MAX_SLOTS as u64 * 256 <= EXTENT_TABLE_AT);
    assert!(EXTENT_TABLE_AT + MAX_EXTENTS as u64 * 8 <= EXTENTS_AT);
};

/// A number that changes when the layout does, for files whose version was not raised (development builds).
pub const fn layout_hash() -> u32 {
    let parts = [
        size_of::<Header>() as u64,
        size_of::<SetHead>() as u64,
        core::mem::offset_of!(ThreadCtl, ticket) as u64,
        core::mem::offset_of!(Cell, staged) as u64,
        core::mem::offset_of!(ProcSlot, dirs) as u64,
        EXTENT,
        EXTENTS_AT,
        THREAD_WORDS_AT,
        FILE_BYTES,
    ];
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    let mut i = 0;
    while i < parts.len() {
        h = (h ^ parts[i]).wrapping_mul(0x100_0000_01b3);
        i += 1;
    }
    (h >> 32) as u32 ^ h as u32
}
