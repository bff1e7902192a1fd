//! What an arena costs, who is served first of a thousand, and which files are refused, each with its reason.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions as FileOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use manyway_sem::abi::{IPC_PRIVATE, SEM_UNDO, SemBuf};
use manyway_sem::{Engine, Errno, Fairness, Limits, OpenError, OpenOptions, Thread};

const fn op(num: u16, op: i16, flags: i32) -> SemBuf {
    SemBuf { num, op, flg: flags as i16 }
}

fn open(dir: &Path, how: OpenOptions) -> Result<Engine, OpenError> {
    Engine::open(&CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it"), &how)
}
fn why_not(dir: &Path) -> OpenError {
    match open(dir, CREATE) {
        Ok(_) => panic!("it was opened"),
        Err(e) => e,
    }
}
const CREATE: OpenOptions = OpenOptions::CREATE;
const FIND: OpenOptions = OpenOptions::FIND;

/// A namespace's directory, with its arena made by the engine.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir_in("/dev/shm").expect("a directory in memory"));
        open(place.dir(), CREATE).expect("a new namespace");
        place
    }
    fn dir(&self) -> &Path {
        self.0.path()
    }
    fn arena(&self) -> PathBuf {
        self.dir().join("arena-v1")
    }
    fn file(&self) -> File {
        FileOptions::new().read(true).write(true).open(self.arena()).expect("the arena")
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        self.file().write_all_at(bytes, at).expect("the arena is ours");
    }
    /// Bytes that the arena occupies.
    fn cost(&self) -> u64 {
        fs::metadata(self.arena()).expect("the arena").blocks() * 512
    }
}

// docs/segment.md: the header's first fields.
const VERSION_AT: u64 = 8;
const HASH_AT: u64 = 12;
const BOOT_AT: u64 = 16;
const PID_NS_AT: u64 = 32;
const LIMITS_AT: u64 = 40;

#[test]
fn sets_occupy_what_was_in_use_at_once() {
    let place = Place::new();
    let (engine, t) = (open(place.dir(), CREATE).expect("the namespace"), Thread::new());
    let make = |n: usize| -> Vec<i32> { (0..n).map(|_| engine.semget(&t, IPC_PRIVATE, 1, 0o600).expect("room")).collect() };
    // More than an extent holds: those that are made anew must find the places in the first one.
    let ids = make(1500);
    let most = place.cost();
    let mut first = ids[..1000].to_vec();
    for _ in 0..3 {
        first.iter().for_each(|&id| engine.remove(&t, id).expect("it is there"));
        first = make(1000);
        assert!(place.cost() <= most, "{} bytes, and {most} at first", place.cost());
    }
}

#[test]
fn an_arena_that_was_cut_short_is_refused() {
    let place = Place::new();
    for size in [0, 100, 4095, 4096, 1 << 20, (256 << 30) - 1] {
        place.file().set_len(size).expect("it can be cut");
        let e = why_not(place.dir());
        assert!(matches!(e, OpenError::NotAnArena(why) if why.contains("short")), "{size} bytes: {e}");
    }
}

#[test]
fn a_foreign_file_is_refused() {
    let place = Place::new();
    place.write(0, b"\x7fELF");
    assert_eq!(why_not(place.dir()), OpenError::NotAnArena("it does not begin with MANYWAY1"));
    fs::remove_file(place.arena()).expect("it is ours");
    fs::write(place.arena(), "notes").expect("a small file");
    assert!(matches!(why_not(place.dir()), OpenError::NotAnArena(_)));
    fs::remove_file(place.arena()).expect("it is ours");
    fs::create_dir(place.arena()).expect("a directory");
    let e = why_not(place.dir());
    assert!(matches!(e, OpenError::Os(_, Errno(libc::EISDIR)) | OpenError::NotAnArena(_)), "{e}");
}

#[test]
fn another_layout_is_refused() {
    let place = Place::new();
    place.write(VERSION_AT, &2u32.to_le_bytes());
    assert_eq!(why_not(place.dir()), OpenError::OtherLayout(2));
    assert!(why_not(place.dir()).to_string().contains("version 2"));
    place.write(VERSION_AT, &1u32.to_le_bytes());
    place.write(HASH_AT, &0u32.to_le_bytes());
    assert!(matches!(why_not(place.dir()), OpenError::NotAnArena(why) if why.contains("layout")));
}

#[test]
fn impossible_limits_are_refused() {
    let place = Place::new();
    place.write(LIMITS_AT + 8, &u32::MAX.to_le_bytes());
    assert_eq!(why_not(place.dir()), OpenError::NotAnArena("its limits are impossible"));
    let fresh = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let none = Limits { msl: 0, ..Limits::of_kernel() };
    assert!(matches!(open(fresh.path(), OpenOptions { limits: Some(none), ..CREATE }), Err(OpenError::BadLimits(_))));
    assert!(!fresh.path().join("arena-v1").exists(), "nothing is left of a namespace that was not made");
}

#[test]
fn what_others_may_write_is_not_trusted() {
    let place = Place::new();
    let allow = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    for mode in [0o666, 0o660, 0o602] {
        allow(&place.arena(), mode);
        assert!(matches!(why_not(place.dir()), OpenError::Untrusted(why) if why.contains("arena") && why.contains("chmod")), "{mode:o}");
    }
    allow(&place.arena(), 0o600);
    for mode in [0o777, 0o770, 0o1777] {
        allow(place.dir(), mode);
        assert!(matches!(why_not(place.dir()), OpenError::Untrusted(why) if why.contains("directory")), "{mode:o}");
    }
    allow(place.dir(), 0o700);
    open(place.dir(), FIND).expect("as it was");
}

#[test]
fn links_are_not_followed() {
    let place = Place::new();
    let real = place.dir().join("elsewhere");
    fs::rename(place.arena(), &real).expect("it is ours");
    symlink(&real, place.arena()).expect("a link");
    assert!(matches!(why_not(place.dir()), OpenError::Os(_, Errno::ELOOP)), "{}", why_not(place.dir()));
    let link = place.dir().join("link");
    symlink(place.dir(), &link).expect("a link");
    assert!(matches!(why_not(&link), OpenError::Os(what, _) if what.contains("directory")), "{}", why_not(&link));
}

#[test]
fn an_earlier_boots_arena_is_empty() {
    let place = Place::new();
    let t = Thread::new();
    open(place.dir(), FIND).expect("it is there").semget(&t, IPC_PRIVATE, 1, 0o600).expect("a set");
    place.write(BOOT_AT, &[7; 16]);
    assert!(matches!(open(place.dir(), FIND), Err(OpenError::Os(_, Errno::ENOENT))));
    assert_eq!(open(place.dir(), CREATE).expect("a new one").info().sets, 0);
    assert_eq!(open(place.dir(), FIND).expect("the new one").info().sets, 0);
}

#[test]
fn another_pid_namespaces_arena_is_refused() {
    let place = Place::new();
    place.write(PID_NS_AT, &1u64.to_le_bytes());
    assert_eq!(why_not(place.dir()), OpenError::OtherPidNamespace);
}

#[test]
fn what_an_existing_namespace_has_is_not_changed() {
    let place = Place::new();
    let has = open(place.dir(), FIND).expect("it is there").limits();
    let other = Limits { mni: has.mni - 1, ..has };
    assert!(matches!(open(place.dir(), OpenOptions { limits: Some(other), ..FIND }), Err(OpenError::LimitsDiffer(l)) if l == has));
    let barging = OpenOptions { fairness: Some(Fairness::Barging), ..FIND };
    assert!(matches!(open(place.dir(), barging), Err(OpenError::FairnessDiffers(Fairness::Strict))));
    assert!(open(place.dir(), OpenOptions { limits: Some(has), fairness: Some(Fairness::Strict), ..FIND }).is_ok());
}

#[test]
fn a_maker_that_died_is_no_hindrance() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    fs::write(dir.path().join("arena-v1.new"), "half").expect("a small file");
    open(dir.path(), CREATE).expect("a new namespace");
    assert!(!dir.path().join("arena-v1.new").exists());
}

#[test]
fn an_empty_namespace_costs_256_kib_and_a_set_8() {
    let place = Place::new();
    let (e, t) = (open(place.dir(), FIND).expect("it is there"), Thread::new());
    // Once everything has been used.
    let id = e.semget(&t, IPC_PRIVATE, 1, 0o600).expect("a set");
    assert_eq!(e.semop(&t, id, &[op(0, 1, SEM_UNDO), op(0, -1, SEM_UNDO)], None), Ok(()));
    assert_eq!(e.remove(&t, id), Ok(()));
    let empty = place.cost();
    assert!(empty <= 256 << 10, "an empty namespace costs {empty} bytes");
    let ids: Vec<i32> = (0..100).map(|_| e.semget(&t, IPC_PRIVATE, 1, 0o600).expect("a set")).collect();
    for id in &ids {
        assert_eq!(e.semop(&t, *id, &[op(0, 1, SEM_UNDO)], None), Ok(()));
    }
    let each = (place.cost() - empty) / ids.len() as u64;
    assert!(each <= 8 << 10, "a set costs {each} bytes");
    for id in ids {
        assert_eq!(e.remove(&t, id), Ok(()));
    }
    // What they had is there for the next ones; `full.rs` sees it go back.
    let cost = place.cost();
    for _ in 0..100 {
        e.semget(&t, IPC_PRIVATE, 1, 0o600).expect("a set");
    }
    assert_eq!(place.cost(), cost, "new sets cost nothing that is new");
}

#[test]
fn a_thousand_sleepers_are_served_in_order() {
    const CROWD: i32 = 1000;
    let place = Place::new();
    let (e, t) = (open(place.dir(), FIND).expect("it is there"), Thread::new());
    let id = e.semget(&t, IPC_PRIVATE, 1, 0o600).expect("a set");
    let (done, served) = channel();
    std::thread::scope(|scope| {
        for n in 0..CROWD {
            let (e, done) = (&e, done.clone());
            let sleeper = move || {
                let t = Thread::new();
                let r = e.semop(&t, id, &[op(0, -1, 0)], None);
                let _ = done.send((n, r));
                e.detach_thread(&t);
            };
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, sleeper).expect("a thread");
            while e.getncnt(&t, id, 0) != Ok(n + 1) {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        for n in 0..CROWD {
            assert_eq!(e.semop(&t, id, &[op(0, 1, 0)], None), Ok(()));
            assert_eq!(served.recv_timeout(Duration::from_secs(5)), Ok((n, Ok(()))), "the first to come");
            assert_eq!((e.getval(&t, id, 0), e.getncnt(&t, id, 0)), (Ok(0), Ok(CROWD - 1 - n)));
        }
    });
}
