//! What a namespace and this process have, counted.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Acquire;

use manyway_sem::{Engine, Limits, OpenOptions, Thread};
use manyway_shm::alloc::Kind;
use manyway_shm::layout::{MAX_MSL, PROCS_AT, ProcSlot, THREAD_WORDS_AT};
use manyway_shm::{Arena, OpenOptions as ArenaOptions};

/// A namespace of a test's own.
pub struct Place {
    pub engine: Engine,
    pub t: Thread,
    arena: Arena,
    pub dir: tempfile::TempDir,
}

pub fn c_path(dir: &Path) -> CString {
    CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it")
}

/// The largest sets that the layout has, whatever the kernel's limit is.
pub fn how(create: bool) -> OpenOptions {
    let limits = Limits { msl: MAX_MSL, mns: i32::MAX as u32, opm: 500, mni: 32_000 };
    OpenOptions { create, limits: Some(limits), ..OpenOptions::default() }
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        Place::within(dir)
    }
    pub fn within(dir: tempfile::TempDir) -> Place {
        let path = c_path(dir.path());
        let engine = Engine::open(&path, &how(true)).expect("a namespace");
        let arena = Arena::open(&path, &ArenaOptions::default()).expect("the same one");
        Place { engine, t: Thread::new(), arena, dir }
    }
    /// A set without a key.
    pub fn set(&self, nsems: i32) -> i32 {
        self.engine.semget(&self.t, manyway_sem::abi::IPC_PRIVATE, nsems, 0o600).expect("a set")
    }
    /// Extents that were begun.
    pub fn extents(&self) -> u32 {
        self.arena.header().extents.load(Acquire)
    }
    pub fn remove(&self, id: i32) {
        self.engine.remove(&self.t, id).expect("own set");
    }
}

/// What is counted. What a namespace keeps by design (pages of slots and of small records, for the next ones) is there after a few cycles.
#[derive(Debug)]
pub struct Footprint {
    /// Bytes of the arena on its file system.
    arena: u64,
    /// Files in the namespace's directory.
    files: Vec<PathBuf>,
    /// Resident bytes of this process.
    resident: u64,
    mappings: usize,
    descriptors: usize,
    sets: i32,
    semaphores: i32,
    /// Slots that are not free.
    processes: u32,
    threads: u32,
    /// Slots that were ever used.
    processes_ever: u32,
    threads_ever: u32,
    /// Undo directories and records.
    records: u64,
    /// Objects of sets.
    objects: u64,
    extents: u32,
}

/// What the C library's allocator may keep.
const ALLOCATOR: u64 = 1 << 20;
/// The dead threads of living processes are looked for when the table would grow by as many.
const BATCH: u32 = 64;

const RECORDS: [Kind; 8] =
    [Kind::Directories, Kind::Undo64, Kind::Undo256, Kind::Undo1K, Kind::Undo4K, Kind::Undo16K, Kind::Undo64K, Kind::Undo256K];
const SETS: [Kind; 6] = [Kind::Set1, Kind::Set4, Kind::Set16, Kind::Set64, Kind::Set256, Kind::Set1023];

impl Footprint {
    /// After the dead have been cleared away.
    pub fn of(place: &Place) -> Footprint {
        // Whoever lists the sleepers of a set buries threads; a call does it now and then.
        let id = place.set(1);
        place.engine.reap(&place.t, None);
        place.engine.for_each_sleeper(&place.t, id, &mut |_, _| ()).expect("own set");
        place.remove(id);
        let (arena, info) = (&place.arena, place.engine.info());
        let h = arena.header();
        let (processes_ever, threads_ever) = (h.procs_high.load(Acquire), h.threads_high.load(Acquire));
        let thread = |i: u32| arena.at::<manyway_sync::atomic::AtomicU64>(THREAD_WORDS_AT + u64::from(i) * 8);
        let process = |i: u32| arena.at::<ProcSlot>(PROCS_AT + u64::from(i) * size_of::<ProcSlot>() as u64);
        let in_use = |kinds: &[Kind]| kinds.iter().map(|k| arena.in_use(*k)).sum();
        let dir = place.dir.path();
        let mut files: Vec<_> = entries(dir).collect();
        files.sort();
        Footprint {
            arena: fs::metadata(dir.join("arena-v1")).expect("the arena").blocks() * 512,
            files,
            resident: resident(),
            mappings: fs::read_to_string("/proc/self/maps").expect("/proc").lines().count(),
            descriptors: entries(Path::new("/proc/self/fd")).count(),
            sets: info.sets,
            semaphores: info.sems,
            processes: (0..processes_ever).filter(|&i| process(i).is_some_and(|p| p.word.load(Acquire) & 3 != 0)).count() as u32,
            threads: (0..threads_ever).filter(|&i| thread(i).is_some_and(|w| w.load(Acquire) & 3 != 0)).count() as u32,
            processes_ever,
            threads_ever,
            records: in_use(&RECORDS),
            objects: in_use(&SETS),
            extents: h.extents.load(Acquire),
        }
    }

    /// What this one has more of than an earlier one, if anything.
    pub fn more_than(&self, was: &Footprint) -> Option<String> {
        // The first batch of each table may not have been used up before.
        let (thread, process) = (2 * 4096, size_of::<ProcSlot>() as u64);
        let tables = u64::from(BATCH)
            * (if self.threads_ever > was.threads_ever { thread } else { 0 }
                + if self.processes_ever > was.processes_ever { process } else { 0 });
        let more = [
            ("the arena grew", self.arena > was.arena + tables),
            ("files are left", self.files != was.files),
            ("the process grew", self.resident > was.resident + ALLOCATOR + tables),
            ("mappings are left", self.mappings > was.mappings),
            ("descriptors are left", self.descriptors > was.descriptors),
            ("sets are left", self.sets > was.sets || self.semaphores > was.semaphores || self.objects > was.objects),
            ("process slots are left", self.processes > was.processes),
            ("thread slots are left", self.threads > was.threads),
            ("the table of processes grew", self.processes_ever > was.processes_ever + BATCH),
            ("the table of threads grew", self.threads_ever > was.threads_ever.next_multiple_of(BATCH) + BATCH),
            ("undo records are left", self.records > was.records),
            ("extents were used up", self.extents > was.extents),
        ];
        let found: Vec<_> = more.into_iter().filter_map(|(what, is)| is.then_some(what)).collect();
        (!found.is_empty()).then(|| found.join(", "))
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).expect("a directory").filter_map(|e| Some(e.ok()?.path()))
}

fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("numbers");
    pages * 4096
}
