//! What the families share: an arena with a set, processes on it, and the looks at what came of it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use manyway_sem::abi::{IPC_PRIVATE, SEM_UNDO, SEMVMX, SemBuf};
use manyway_sem::check::Severity;
use manyway_sem::id::{INDEX_BITS, IdEntry};
use manyway_sem::slotword::{ProcWord, SlotState, ThreadWord};
use manyway_sem::word::{self, holders};
use manyway_sem::{Engine, Fairness, Limits, OpenOptions, Thread};
use manyway_shm::Arena;
use manyway_shm::alloc::Kind;
use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU64, Ordering::Relaxed};
use manyway_sync::sim;
use shuttle::rand::{Rng, thread_rng};

/// A number below `n`.
pub fn draw(n: usize) -> usize {
    thread_rng().gen_range(0..n)
}
/// True once in `n` times.
pub fn once_in(n: usize) -> bool {
    draw(n) == 0
}

pub fn op(num: usize, op: i16, flg: i32) -> SemBuf {
    SemBuf { num: num as u16, op, flg: flg as i16 }
}

/// The main task's process.
const MAIN: u32 = 1;

/// An arena, the main task's place in it, and a set.
pub struct Stage {
    dir: tempfile::TempDir,
    pub engine: Engine,
    pub t: Thread,
    arena: Arena,
    pub id: i32,
    pub nsems: usize,
    rules: sim::Rules,
}

/// A thread of a process, which has an engine of its own on the same arena.
pub struct Process {
    pub engine: Arc<Engine>,
    pub t: Thread,
}

fn open(dir: &std::path::Path, fairness: Option<Fairness>, sets: Option<u32>) -> Engine {
    let path = CString::new(dir.as_os_str().as_bytes()).expect("a path");
    let limits = sets.map(|mni| Limits { msl: 32, mns: 1000, opm: 32, mni });
    let how = OpenOptions { create: fairness.is_some(), fairness, limits, ..OpenOptions::default() };
    sim::quietly(|| Engine::open(&path, &how).expect("an arena"))
}

/// Where processes find the arena.
#[derive(Clone)]
pub struct Place(Arc<std::path::PathBuf>);

impl Place {
    pub fn process(&self) -> Process {
        self.image().thread()
    }
    pub fn image(&self) -> Image {
        Image(Arc::new(open(&self.0, None, None)))
    }
}

/// A process's engine, for its threads.
#[derive(Clone)]
pub struct Image(Arc<Engine>);

impl Image {
    pub fn thread(&self) -> Process {
        Process { engine: self.0.clone(), t: Thread::new() }
    }
}

impl Stage {
    /// With a private set of these values.
    pub fn new(values: &[u16], fairness: Fairness, rules: sim::Rules) -> Stage {
        Stage::with_room(values, fairness, rules, 1000)
    }
    /// The same with room for so many sets: ids are used again soon.
    pub fn with_room(values: &[u16], fairness: Fairness, rules: sim::Rules, sets: u32) -> Stage {
        sim::set_rules(rules);
        sim::become_process(MAIN);
        let dir = tempfile::tempdir_in("/dev/shm").expect("room");
        let engine = open(dir.path(), Some(fairness), Some(sets));
        let path = CString::new(dir.path().as_os_str().as_bytes()).expect("a path");
        let t = Thread::new();
        sim::quietly(|| {
            let arena = Arena::open(&path, &OpenOptions::default()).expect("an arena");
            let id = engine.semget(&t, IPC_PRIVATE, values.len() as i32, 0o600).expect("a set");
            engine.setall(&t, id, values).expect("its values");
            Stage { dir, engine, t, arena, id, nsems: values.len(), rules }
        })
    }
    pub fn place(&self) -> Place {
        Place(Arc::new(self.dir.path().to_owned()))
    }

    /// Waits until all others have ended or sleep, and everything that the dead left has been found by who looks about.
    pub fn idle(&self) {
        let asleep = sim::wait_idle(0);
        if sim::deaths() == 0 {
            // No waker has died: nobody may need its own look about to find that it was woken.
            self.check_asleep(&asleep);
        }
        if sim::ends() > 0 {
            self.check_asleep(&sim::wait_idle(40));
        }
    }
    /// Who waits for a wake-up is in a queue.
    fn check_asleep(&self, asleep: &[(u32, u32)]) {
        let mut queued = vec![];
        sim::quietly(|| {
            let mut sets = vec![];
            self.engine.for_each_set(&self.t, &mut |s, _| sets.push(s.id));
            // (A look at one may carry the removal of the next one through.)
            for id in sets {
                self.engine.for_each_sleeper(&self.t, id, &mut |s, _| queued.push((s.pid, s.tid))).unwrap_or_default();
            }
        });
        let late = asleep.iter().find(|a| !queued.contains(a));
        assert_eq!(late, None, "a process and thread that sleep through the end of their call");
    }

    pub fn values(&self) -> Vec<i32> {
        let mut all = vec![0; self.nsems];
        sim::quietly(|| self.engine.getall(&self.t, self.id, &mut all)).expect("values");
        all.into_iter().map(i32::from).collect()
    }
    /// {process, semaphore, adjustment} of each that is not 0.
    pub fn adjustments(&self) -> Vec<(u32, usize, i32)> {
        let mut all = vec![];
        sim::quietly(|| self.engine.for_each_holder(&self.t, self.id, &mut |h| all.push((h.pid, h.num as usize, h.adj as i32))))
            .expect("holders");
        all
    }
    /// Process, thread and operations of each sleeper, in order of arrival.
    pub fn sleepers(&self) -> Vec<((u32, u32), Vec<SemBuf>)> {
        let mut all = vec![];
        sim::quietly(|| self.engine.for_each_sleeper(&self.t, self.id, &mut |s, ops| all.push(((s.pid, s.tid), ops.to_vec()))))
            .expect("sleepers");
        all
    }

    /// What must hold when nobody moves: values in range, no lock left, no sleeper that could go on, holders counted, and no slot of
    /// anybody who has ended, once the next caller has looked.
    pub fn check(&self) {
        let sleepers = self.sleepers();
        let values = self.values();
        for (who, ops) in sleepers.iter().filter(|s| sim::thread_lives(s.0.1)) {
            assert!(!can_proceed(&values, ops), "{who:?} sleeps though it could go on: {ops:?} on {values:?}");
        }
        sim::quietly(|| self.engine.reap(&self.t, None));
        // (Of one who left no mark nobody knows but who waits for what it holds, and who asks after all.)
        assert!(self.values() == values || self.rules.no_marks, "an undo was missing: {values:?}, then {:?}", self.values());
        let values = self.values();
        let (adjustments, sleepers) = (self.adjustments(), self.sleepers());
        // Nobody here writes what the engine does not: what it takes for damage, and mends, it has done itself.
        assert_eq!(self.engine.damage(), None, "damage");
        // (To look at everything takes as long as the rest.)
        if once_in(4) {
            let damage = sim::quietly(|| self.engine.check()).into_iter().find(|f| f.severity == Severity::Damage);
            assert_eq!(damage, None, "what `doctor` finds");
        }
        sim::quietly(|| {
            let header = self.arena.header();
            assert_eq!(header.registry.load(Relaxed), 0, "the registry is locked");
            let entry = IdEntry::find(self.arena.at(IDS_AT + (self.id as u64 & ((1 << INDEX_BITS) - 1)) * 8).expect("an id"));
            let head: &SetHead = self.arena.at(entry.at()).expect("a set");
            assert_eq!(head.lock.load(Relaxed), word::tag_bits(entry.tag()), "the set is locked");
            for (num, &value) in values.iter().enumerate() {
                let cell: &Cell = self.arena.at(entry.at() + 128 + num as u64 * 64).expect("a cell");
                let w = cell.word.load(Relaxed);
                assert_eq!((w & word::LOCKED, word::tag(w)), (0, entry.tag()), "semaphore {num} is locked");
                assert!((0..=SEMVMX).contains(&value));
                let held = adjustments.iter().filter(|a| a.1 == num).count() as u32;
                assert_eq!(holders::count(cell.holders.load(Relaxed)), held, "holders of semaphore {num}");
                let named = sleepers.iter().any(|(_, ops)| ops.iter().any(|o| o.num as usize == num));
                assert!(named || word::is_free(w, entry.tag()), "semaphore {num} keeps newcomers off the fast path for nobody: {w:#x}");
                let complex = sleepers.iter().filter(|(_, ops)| ops.len() > 1 && ops.iter().any(|o| o.num as usize == num)).count() as u32;
                assert_eq!((cell.ncomplex.load(Relaxed), w & word::COMPLEX != 0), (complex, complex > 0), "complex sleepers of {num}");
            }
        });
    }

    /// Everybody else has ended: nothing of theirs is left.
    pub fn check_alone(&self) {
        sim::quietly(|| {
            self.engine.reap(&self.t, None);
            let header = self.arena.header();
            let live = |word: &AtomicU64, state: fn(u64) -> SlotState| (state(word.load(Relaxed)) != SlotState::Free) as u32;
            let procs: u32 = (0..header.procs_high.load(Relaxed) as u64)
                .map(|i| live(&self.arena.at::<ProcSlot>(PROCS_AT + i * 256).expect("a slot").word, |w| ProcWord(w).state()))
                .sum();
            let threads: u32 = (0..header.threads_high.load(Relaxed) as u64)
                .map(|i| live(self.arena.at::<AtomicU64>(THREAD_WORDS_AT + i * 8).expect("a slot"), |w| ThreadWord(w).state()))
                .sum();
            assert_eq!((procs, threads), (1, 1), "slots of processes and threads in use");
            assert_eq!(self.engine.damage(), None, "damage");
            if once_in(4) {
                assert_eq!(self.engine.check(), [], "what `doctor` finds");
            }
            assert_eq!(header.registry.load(Relaxed), 0, "the registry is locked");
        });
    }

    /// Objects in use in the arena: of sets, of undo records.
    pub fn objects(&self) -> (u32, u32) {
        let header = self.arena.header();
        let mut used = (0, 0);
        sim::quietly(|| {
            for e in 0..header.extents.load(Relaxed) as u64 {
                let kind = self.arena.at::<AtomicU64>(EXTENT_TABLE_AT + e * 8).expect("an entry").load(Relaxed) as u8;
                let bits = || {
                    (0..512)
                        .map(|i| self.arena.at::<AtomicU64>(EXTENTS_AT + e * EXTENT + i * 8).expect("a map").load(Relaxed).count_ones())
                        .sum::<u32>()
                };
                match kind {
                    k if (Kind::Set1 as u8..=Kind::Set1023 as u8).contains(&k) => used.0 += bits(),
                    k if k >= Kind::Undo64 as u8 => used.1 += bits(),
                    _ => {}
                }
            }
        });
        used
    }

    /// Removes the set: whoever sleeps on it gets EIDRM.
    pub fn remove(&self) {
        sim::quietly(|| self.engine.remove(&self.t, self.id)).expect("the set");
    }
}

/// True when all operations can be carried out on these values.
fn can_proceed(values: &[i32], ops: &[SemBuf]) -> bool {
    let mut now = values.to_vec();
    ops.iter().all(|op| {
        let v = &mut now[op.num as usize];
        let fits = if op.op == 0 { *v == 0 } else { *v + op.op as i32 >= 0 };
        *v += op.op as i32;
        fits
    })
}

/// The part of a call that counts for one who lives (`undone` false), or that its end leaves.
pub fn effect(ops: &[SemBuf], nsems: usize, undone: bool) -> Vec<i32> {
    let mut sum = vec![0; nsems];
    for op in ops.iter().filter(|op| !undone || op.flg as i32 & SEM_UNDO == 0) {
        sum[op.num as usize] += op.op as i32;
    }
    sum
}
