//! An arena of the released layout, as programs of that time left it, is what programs of today find.
//!
//! `tests/data/arena-vN.txt` is one, recorded by `MANYWAY_RECORD=1 cargo test -p manyway-testkit --test upgrades` when layout N was new, and never
//! again: while the layout has this number, what is recorded must be read. Each page that was allocated begins with `page NUMBER`; of the 32 bytes
//! at OFFSET, unless all are 0, a line tells. What names the machine (boot, PID and user namespace, user) is written over with today's.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Write;
use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_sem::abi::{IPC_CREAT, SemBuf};
use manyway_sem::{Engine, Errno, LAYOUT, Limits, OpenOptions, Thread};
use manyway_shm::layout::{EXTENT, EXTENTS_AT, FILE_BYTES, Header, THREAD_PAGES, THREADS_PER_EXTENT, ThreadCtl};
use manyway_testkit::image::{Mapped, PAGE};
use manyway_testkit::invariants::{self, Meaning, SetMeaning};
use manyway_testkit::{Backend, Set, Setup, World, add, become_worker_if_asked, dec, inc};

const LIMITS: Limits = Limits { msl: 1200, mns: 5000, opm: 20, mni: 40 };
const SMALL: i32 = 0x4d57_0001;
const LARGE: i32 = 0x4d57_0002;
const LARGE_SEMS: usize = 200;
const LAST: usize = LARGE_SEMS - 1;
const REMOVED: i32 = 0x4d57_0003;

/// FUTEX_OWNER_DIED.
const OWNER_DIED: u32 = 0x4000_0000;

/// Value of a semaphore of the large set.
fn large(i: usize) -> u16 {
    (i * 37 % 32768) as u16
}

fn main() {
    become_worker_if_asked();
    let args = Arguments::from_args();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/arena-v{LAYOUT}.txt"));
    if std::env::var_os("MANYWAY_RECORD").is_some() {
        assert!(!data.exists(), "{} is there: a layout is recorded once", data.display());
        fs::write(&data, record()).expect("the directory is there");
    }
    let tests = [("recorded_arena_means_what_it_meant", meaning as fn(&Recorded)), ("recorded_arena_is_used", used)];
    let trials = tests.map(|(name, run)| {
        let data = data.clone();
        Trial::test(name, move || {
            let recorded = Recorded::lay_out(&data)?;
            run(&recorded);
            Ok(())
        })
    });
    libtest_mimic::run(&args, trials.into()).exit();
}

/// What the arena is to hold: sets of several sizes and modes, a hole where one was removed, adjustments of a process and a simple and a complex
/// sleeper, all of which end without having the time to give anything back.
fn record() -> String {
    let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable");
    let limits = Some([LIMITS.msl, LIMITS.mns, LIMITS.opm, LIMITS.mni]);
    let w = World::within(Setup { limits, ..Setup::of(Backend::Engine) }, dir.path());
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let make = |key, n: usize, mode| Set { id: a.get(key, n as i32, IPC_CREAT | mode).expect("a new set") as i32, n };
    let small = make(SMALL, 3, 0o666);
    let removed = make(REMOVED, 7, 0o600);
    let large_set = make(LARGE, LARGE_SEMS, 0o644);
    let private = make(0, 1, 0o666);
    a.set_all(small, &[3, 0, 32767]).expect("own set");
    a.set_all(large_set, &(0..LARGE_SEMS).map(large).collect::<Vec<_>>()).expect("own set");
    a.setval(private, 0, 17).expect("own set");
    a.remove(removed).expect("own set");
    b.op(small, &[dec(0, 1).undo(), inc(1, 5).undo()]).expect("own set");
    b.op(large_set, &[add(LAST as u16, -3).undo()]).expect("own set");
    w.sleeps(&c, small, &[dec(0, 9)]);
    w.sleeps(&d, small, &[dec(0, 9), dec(1, 9)]);
    // The sleepers first: they would find the holder's death.
    for worker in [&c, &d, &b, &a] {
        w.kill(worker);
    }
    let arena = Mapped::open(&dir.path().join(format!("arena-v{LAYOUT}"))).expect("the arena");
    let mut text = String::new();
    for number in arena.allocated() {
        let mut page = [0; PAGE];
        arena.file().read_exact_at(&mut page, u64::from(number) * PAGE as u64).expect("own file");
        let _ = writeln!(text, "page {number}");
        for (i, line) in page.chunks(32).enumerate().filter(|(_, line)| line.iter().any(|b| *b != 0)) {
            let hex = line.iter().fold(String::new(), |hex, b| hex + &format!("{b:02x}"));
            let _ = writeln!(text, "{} {hex}", i * 32);
        }
    }
    text
}

/// The recorded arena in a directory of its own.
struct Recorded(tempfile::TempDir);

impl Recorded {
    fn lay_out(data: &Path) -> Result<Recorded, Failed> {
        let text = fs::read_to_string(data).map_err(|e| {
            format!("{}: {e}: a new layout is recorded with MANYWAY_RECORD=1, by the program that is to be released", data.display())
        })?;
        let recorded = Recorded(tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable"));
        // A fresh one knows today's machine.
        recorded.open(&OpenOptions::CREATE);
        let file = fs::OpenOptions::new().read(true).write(true).open(recorded.arena()).expect("just made");
        let mut fresh = [0; 112];
        file.read_exact_at(&mut fresh, 0).expect("own file");
        file.set_len(0).and_then(|()| file.set_len(FILE_BYTES)).expect("own file");
        let mut page = None;
        for line in text.lines() {
            let (first, second) = line.split_once(' ').ok_or("a line of one word")?;
            if first == "page" {
                let at = second.parse::<u64>()? * PAGE as u64;
                file.write_all_at(&[0; PAGE], at).expect("own file");
                page = Some(at);
                continue;
            }
            let bytes: Result<Vec<u8>, _> = (0..second.len() / 2).map(|i| u8::from_str_radix(&second[2 * i..2 * i + 2], 16)).collect();
            file.write_all_at(&bytes?, page.ok_or("no page yet")? + first.parse::<u64>()?).expect("own file");
        }
        // docs/segment.md: boot and PID namespace; user namespace and owner.
        for place in [16..40, 100..108] {
            file.write_all_at(&fresh[place.clone()], place.start as u64).expect("own file");
        }
        Ok(recorded)
    }

    fn arena(&self) -> PathBuf {
        self.0.path().join(format!("arena-v{LAYOUT}"))
    }

    fn open(&self, how: &OpenOptions) -> Engine {
        let dir = CString::new(self.0.path().to_str().expect("ASCII")).expect("no zero");
        Engine::open(&dir, how).unwrap_or_else(|e| panic!("{e}"))
    }

    /// What it meant when its programs lived, read without the engine.
    fn meaning(&self) -> BTreeMap<i32, SetMeaning> {
        let arena = Mapped::open(&self.arena()).expect("the arena");
        // Their threads carry the kernel's mark of death: it is taken away to look, and put back.
        let marks: Vec<_> = robust_words(&arena).into_iter().map(|at| (at, arena.u32(at))).collect();
        marks.iter().for_each(|&(at, word)| arena.put_u32(at, word & !OWNER_DIED));
        let Meaning { mut sets, .. } = invariants::check(&arena, &|_, _| true).unwrap_or_else(|wrong| panic!("{wrong}"));
        marks.iter().for_each(|&(at, word)| arena.put_u32(at, word));
        // Slots are numbers that depend on who came first.
        for set in sets.values_mut() {
            set.adjustments.iter_mut().for_each(|adjustment| adjustment.0 = 0);
            set.sleepers.fill(0);
        }
        sets
    }
}

/// Where the kernel marks the end of threads: in each slot that was ever used.
fn robust_words(arena: &Mapped) -> Vec<u64> {
    let header = |offset| arena.u32(offset as u64);
    let slot = |i: u32| {
        let extent = header(offset_of!(Header, thread_extents) + 4 * (i / THREADS_PER_EXTENT) as usize) - 1;
        let slot = EXTENTS_AT + u64::from(extent) * EXTENT + u64::from(i % THREADS_PER_EXTENT) * THREAD_PAGES * PAGE as u64;
        slot + (THREAD_PAGES - 1) * PAGE as u64 + offset_of!(ThreadCtl, robust) as u64
    };
    (0..header(offset_of!(Header, threads_high))).map(slot).collect()
}

/// By key, which is all that tells sets apart in any version.
fn of_key(sets: &BTreeMap<i32, SetMeaning>, key: i32) -> (i32, &SetMeaning) {
    let mut found = sets.iter().filter(|(_, set)| set.key == key);
    let (id, set) = found.next().unwrap_or_else(|| panic!("no set of key {key:#x}"));
    assert!(found.next().is_none(), "two sets of key {key:#x}");
    (*id, set)
}

/// Read alone, without the engine: values, adjustments and sleepers are as at the moment when the programs ended.
fn meaning(recorded: &Recorded) {
    let sets = recorded.meaning();
    assert_eq!(sets.len(), 3);
    let (_, small) = of_key(&sets, SMALL);
    assert_eq!(small.values, [2, 5, 32767]);
    assert_eq!(small.adjustments, [(0, 0, 1), (0, 1, -5)]);
    assert_eq!((small.access.0, small.sleepers.len()), (0o666, 2));
    let (_, set) = of_key(&sets, LARGE);
    assert_eq!((set.access.0, set.values.len()), (0o644, LARGE_SEMS));
    assert!(set.values.iter().enumerate().all(|(i, &v)| v == large(i) - if i == LAST { 3 } else { 0 }), "{:?}", set.values);
    assert_eq!(set.adjustments, [(0, LAST as u16, 3)]);
    let (_, private) = of_key(&sets, 0);
    assert_eq!((&private.values[..], private.adjustments.len()), (&[17][..], 0));
}

/// Programs of today find the sets, give back what the dead held, and go on.
fn used(recorded: &Recorded) {
    let ids = recorded.meaning().iter().map(|(&id, set)| (set.key, id)).collect::<BTreeMap<i32, i32>>();
    let (engine, t) = (recorded.open(&OpenOptions::FIND), Thread::new());
    assert_eq!(engine.limits(), LIMITS);
    let (small, large_set) = (ids[&SMALL], ids[&LARGE]);
    assert_eq!(engine.semget(&t, SMALL, 3, 0), Ok(small));
    assert_eq!(engine.semget(&t, LARGE, 0, 0), Ok(large_set));
    assert_eq!(engine.semget(&t, REMOVED, 0, 0), Err(Errno::ENOENT));
    assert!(ids.values().all(|id| engine.getval(&t, *id, 0).is_ok()));
    assert_eq!([0, 1, 2].map(|i| engine.getval(&t, small, i)), [Ok(3), Ok(0), Ok(32767)]);
    assert_eq!(engine.getval(&t, large_set, LAST as i32), Ok(large(LAST).into()));
    assert_eq!(engine.getval(&t, ids[&0], 0), Ok(17));
    assert_eq!([0, 1].map(|i| engine.getncnt(&t, small, i)), [Ok(0), Ok(0)]);

    let down = [SemBuf { num: 0, op: -1, flg: 0x1000 }];
    engine.semop(&t, small, &down, None).expect("a unit is there");
    assert_eq!(engine.getval(&t, small, 0), Ok(2));
    let new = engine.semget(&t, REMOVED, 5, IPC_CREAT | 0o600).expect("room");
    assert!(!ids.values().any(|&id| id == new));
    engine.reap(&t, None);
    let wrong: Vec<_> = engine.check().into_iter().map(|finding| finding.what).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    println!("proof: recorded layouts: 1 layout, {} sets, 0 violations", ids.len());
}
