//! Arenas that are not what they should be: each is refused with the reason; and one that somebody scribbles over harms nobody outside.

use std::ffi::CString;
use std::fs::{File, OpenOptions as FileOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_sem::{Engine, Limits, OpenError, OpenOptions, Thread};
use manyway_testkit::{Backend, Command, Set, Setup, World, add, become_worker_if_asked, dec, inc, zero};
use nix::unistd::{Whence, lseek};

fn main() {
    become_worker_if_asked();
    let args = Arguments::from_args();
    let tests = [
        ("truncated", truncated as fn()),
        ("foreign", foreign),
        ("other_version", other_version),
        ("other_boot", other_boot),
        ("other_pid_namespace", other_pid_namespace),
        ("other_limits", other_limits),
        ("open_to_others", open_to_others),
        ("symbolic_link", symbolic_link),
        ("scribbled_over::engine", || scribbled_over(Backend::Engine)),
        ("scribbled_over::preload", || scribbled_over(Backend::Preload)),
    ];
    let trials = tests.map(|(name, run)| Trial::test(name, move || carried_out(run)));
    libtest_mimic::run(&args, trials.into()).exit();
}

fn carried_out(run: fn()) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|e| {
        let text = e.downcast_ref::<String>().cloned().or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        text.unwrap_or_else(|| "panicked".to_owned()).into()
    })
}

const KEY: i32 = 0x4d57;

/// A namespace with one set in it, closed again.
struct Closed(tempfile::TempDir);

impl Closed {
    fn new() -> Closed {
        let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable");
        let closed = Closed(dir);
        let engine = closed.open().expect("a new namespace");
        engine.semget(&Thread::new(), KEY, 1, 0o1600).expect("a set");
        closed
    }
    fn open(&self) -> Result<Engine, OpenError> {
        self.open_with(None)
    }
    fn open_with(&self, limits: Option<Limits>) -> Result<Engine, OpenError> {
        let dir = CString::new(self.0.path().to_str().expect("ASCII")).expect("no NUL");
        Engine::open(&dir, &OpenOptions { limits, ..OpenOptions::CREATE })
    }
    fn arena(&self) -> PathBuf {
        self.0.path().join("arena-v1")
    }
    fn file(&self) -> File {
        FileOptions::new().read(true).write(true).open(self.arena()).expect("the arena")
    }
    /// The error of opening it.
    fn refused(&self) -> OpenError {
        match self.open() {
            Ok(_) => panic!("it was opened"),
            Err(e) => e,
        }
    }
}

fn truncated() {
    for len in [4096, 100, 8, 0] {
        let ns = Closed::new();
        ns.file().set_len(len).expect("own file");
        let e = ns.refused();
        assert!(matches!(e, OpenError::NotAnArena(_)), "{len} bytes: {e:?}");
    }
}

fn foreign() {
    let ns = Closed::new();
    ns.file().write_all_at(b"not ours", 0).expect("own file");
    let e = ns.refused();
    assert!(matches!(e, OpenError::NotAnArena(_)), "{e:?}");
    let ns = Closed::new();
    std::fs::remove_file(ns.arena()).expect("own file");
    std::fs::create_dir(ns.arena()).expect("own directory");
    let e = ns.refused();
    assert!(matches!(e, OpenError::NotAnArena(_) | OpenError::Os(..)), "{e:?}");
}

// The header, as docs/segment.md has it: magic 8, version 4, hash 4, boot id 16, PID namespace 8.
const VERSION: u64 = 8;
const BOOT: u64 = 16;
const PID_NAMESPACE: u64 = 32;

fn other_version() {
    let ns = Closed::new();
    ns.file().write_all_at(&77u32.to_le_bytes(), VERSION).expect("own file");
    let e = ns.refused();
    assert!(matches!(e, OpenError::OtherLayout(77)), "{e:?}");
    assert!(e.to_string().contains("77"), "{e}");
}

fn other_boot() {
    let ns = Closed::new();
    let found = |ns: &Closed| ns.open().expect("opens").semget(&Thread::new(), KEY, 0, 0).is_ok();
    assert!(found(&ns), "the set is there after reopening");
    ns.file().write_all_at(&[0x5a; 16], BOOT).expect("own file");
    assert!(!found(&ns), "another boot's arena is replaced by an empty one");
}

fn other_pid_namespace() {
    let ns = Closed::new();
    ns.file().write_all_at(&1u64.to_le_bytes(), PID_NAMESPACE).expect("own file");
    let e = ns.refused();
    assert!(matches!(e, OpenError::OtherPidNamespace), "{e:?}");
}

fn other_limits() {
    let ns = Closed::new();
    let has = ns.open().expect("opens").limits();
    assert!(ns.open_with(Some(has)).is_ok(), "the same limits");
    match ns.open_with(Some(Limits { msl: has.msl - 1, ..has })) {
        Err(OpenError::LimitsDiffer(l)) => assert_eq!(l, has),
        Err(e) => panic!("{e:?}"),
        Ok(_) => panic!("it was opened"),
    }
}

fn open_to_others() {
    let ns = Closed::new();
    std::fs::set_permissions(ns.arena(), Permissions::from_mode(0o666)).expect("own file");
    let e = ns.refused();
    assert!(matches!(e, OpenError::Untrusted(_)), "{e:?}");
    let ns = Closed::new();
    std::fs::set_permissions(ns.0.path(), Permissions::from_mode(0o777)).expect("own directory");
    let e = ns.refused();
    assert!(matches!(e, OpenError::Untrusted(_)), "{e:?}");
}

fn symbolic_link() {
    let (ns, other) = (Closed::new(), Closed::new());
    std::fs::remove_file(ns.arena()).expect("own file");
    symlink(other.arena(), ns.arena()).expect("own directory");
    ns.refused();
}

/// Random words all over what is allocated: calls may return anything, but each returns, and no worker ends.
fn scribbled_over(backend: Backend) {
    let number = |name, default| std::env::var(name).map_or(default, |v| v.parse().expect("a number"));
    let first = number("MANYWAY_SCRIBBLE_SEED", 1);
    for seed in first..first + number("MANYWAY_SCRIBBLES", 12) {
        let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable");
        let w = World::within(Setup::of(backend), dir.path());
        let [a, b, c] = w.workers(["A", "B", "C"]);
        let sets = [w.set_of(&a, &[1]), w.set_of(&a, &[0, 1, 2, 3])];
        for s in sets {
            b.op(s, &[inc(0, 2).undo()]).expect("own set");
        }
        w.sleeps(&c, sets[1], &[dec(0, 9), dec(1, 9)]);
        scribble(&dir.path().join("arena-v1"), seed);
        let within = (0, 20_000_000);
        for worker in [&a, &b] {
            for s in sets {
                let all = [inc(0, 1), dec(0, 1), zero(0), inc(0, 1).undo(), dec(0, 1).undo()];
                for op in all {
                    let _ = worker.timed_op(s, &[op], within);
                }
                let _ = worker.timed_op(s, &[inc(0, 1).undo(), add(s.n as u16 - 1, 1)], within);
                let _ = worker.getncnt(s, 0);
                let _ = worker.get_all(s);
                let _ = worker.stat(s);
                let _ = worker.setval(s, 0, 5);
                let _ = worker.set_all(s, &[3; 4][..s.n]);
            }
            let _ = worker.call(Command::GetMany { nsems: 3, most: 20 });
            let _ = worker.info(true);
            let _ = worker.remove(sets[0]);
        }
        w.kill(&c);
        let _ = a.get_all(sets[1]);
        let _ = a.remove(Set { id: sets[1].id, n: 4 });
    }
}

fn scribble(arena: &Path, seed: u64) {
    let file = FileOptions::new().read(true).write(true).open(arena).expect("the arena");
    let mut r = fastrand::Rng::with_seed(seed);
    // Behind the header's first line, which is looked at when a process opens the file only.
    let pages = allocated(&file);
    for _ in 0..[3, 30, 300][r.usize(0..3)] {
        let page = pages[r.usize(0..pages.len())];
        let word = [0, u64::MAX, r.u64(..), 1 << r.u32(0..64), r.u64(0..64)][r.usize(0..5)];
        let at = (page * 4096 + 8 * r.u64(0..512)).max(64);
        file.write_all_at(&word.to_le_bytes(), at).expect("own file");
    }
}

/// The pages of the file that hold something.
fn allocated(file: &File) -> Vec<u64> {
    let mut pages = Vec::new();
    let mut at: i64 = 0;
    while let Ok(data) = lseek(file, at, Whence::SeekData) {
        let hole = lseek(file, data, Whence::SeekHole).expect("a hole at the end");
        pages.extend(data as u64 / 4096..hole as u64 / 4096);
        at = hole;
    }
    pages
}
