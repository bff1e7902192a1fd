//! Caller × mode of the set × call, on the kernel and on Manyway; and caller × sharing of the namespace.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::Ordering;

use manyway_sem::{Engine, OpenOptions, Share};

use crate::callers::{self, Below, Caller, DAC_OVERRIDE, GROUP, MEMBER, OTHER, OWNER, STRANGER};
use crate::probe::{Preload, Sets, Task, VICTIMS, When, run};
use crate::sys::Via;
use crate::{ATTEMPTS, REFUSED, Test, library, open_directory};

pub const TESTS: &[Test] = &[
    ("what_the_sets_modes_say_is_what_the_kernel_says", modes_of_sets),
    ("threads_that_differ_are_told_apart", threads_that_differ),
    ("only_those_get_in_whom_the_files_mode_lets_in", modes_of_files),
];

/// One side of the comparison, with its sets.
struct Side<'a> {
    on: Option<Preload<'a>>,
    sets: Vec<i32>,
}

impl<'a> Side<'a> {
    fn new(on: Option<Preload<'a>>) -> Side<'a> {
        let ids = run(on.as_ref(), None, When::After(Via::C), &Task::Make);
        Side { on, sets: ids.iter().map(|id| id.parse().expect("an id")).collect() }
    }
    /// The sets, with the `n`th victim.
    fn sets(&self, n: usize) -> Sets {
        let (tried, victims) = self.sets.split_at(self.sets.len() - VICTIMS);
        Sets { tried: tried.into(), victims: vec![victims[n]] }
    }
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        if self.on.is_none() {
            for &id in &self.sets {
                crate::sys::semctl(id, 0, manyway_sem::abi::IPC_RMID, 0);
            }
        }
    }
}

fn compare(kernel: &[String], manyway: &[String], who: &str) {
    assert_eq!(kernel.len(), manyway.len(), "{who}");
    for (k, m) in kernel.iter().zip(manyway) {
        let differences: Vec<String> =
            k.split("; ").zip(m.split("; ")).filter(|(k, m)| k != m).map(|(k, m)| format!("kernel: {k}, Manyway: {m}")).collect();
        assert!(k == m, "{who}, {}: {differences:?}", &k[..k.len().min(4)]);
        let calls = k.split([';', '|']).count();
        let refused = k.matches("errno 13").count() + k.matches("errno 1;").count() + usize::from(k.ends_with("errno 1"));
        ATTEMPTS.fetch_add(calls as u64, Ordering::Relaxed);
        REFUSED.fetch_add(refused as u64, Ordering::Relaxed);
    }
}

fn modes_of_sets() {
    let dir = open_directory(Path::new("/dev/shm"));
    let namespace = dir.path().join("all");
    make(&namespace, Share::All, 0);
    let manyway = Side::new(Some(Preload { library: library(), dir: &namespace, owner: None }));
    let kernel = Side::new(None);
    let mut n = 0;
    for caller in callers::all() {
        for when in [When::Before, When::After(Via::C), When::After(Via::Number)] {
            if when == When::Before && !caller.survives_exec() {
                continue;
            }
            let of = |side: &Side| run(side.on.as_ref(), Some(&caller), when, &Task::Try(side.sets(n)));
            compare(&of(&kernel), &of(&manyway), &format!("{} ({when:?})", caller.name));
            n += 1;
        }
    }
}

fn threads_that_differ() {
    let dir = open_directory(Path::new("/dev/shm"));
    let namespace = dir.path().join("all");
    make(&namespace, Share::All, 0);
    let manyway = Side::new(Some(Preload { library: library(), dir: &namespace, owner: None }));
    let kernel = Side::new(None);
    let first = [Caller::new("root", 0, 0)];
    let unmapped = |c: &Caller| c.below.is_none();
    for (n, second) in callers::all().into_iter().filter(unmapped).enumerate() {
        let of = |side: &Side| run(side.on.as_ref(), Some(&first[0]), When::Before, &Task::Threads(second.clone(), side.sets(n)));
        compare(&of(&kernel), &of(&manyway), &format!("a thread that becomes {}", second.name));
    }
}

/// Makes a namespace of `owner`'s.
fn make(dir: &Path, share: Share, owner: u32) {
    fs::create_dir(dir).expect("a new directory");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).expect("own directory");
    chown(dir, Some(owner), None).expect("root may");
    let path = CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it");
    // Root makes it: it is the owner's all the same.
    Engine::open(&path, &OpenOptions { share: Some(share), owner: Some(owner), ..OpenOptions::CREATE }).expect("a new namespace");
    let (dir, arena) = (dir.metadata().expect("made"), dir.join("arena-v1").metadata().expect("made"));
    assert_eq!((dir.uid(), arena.uid()), (owner, owner));
    assert_eq!((dir.mode() & 0o777, arena.mode() & 0o777), (share.directory_mode(), share.file_mode()));
}

/// The kernel's judgement on open(2) of the arena is the oracle; and without the owner being named, only one's own and root's is opened.
fn modes_of_files() {
    let dir = open_directory(Path::new("/dev/shm"));
    let of = Caller::new;
    let callers = [
        of("owner", OWNER, OTHER),
        of("member of the group", MEMBER, GROUP),
        Caller { groups: vec![GROUP], ..of("member by a supplementary group", MEMBER, OTHER) },
        of("stranger", STRANGER, OTHER),
        of("root", 0, 0),
        Caller { without: vec![DAC_OVERRIDE, 2], ..of("root without CAP_DAC_OVERRIDE", 0, 0) },
        Caller { with: Some(DAC_OVERRIDE), ..of("stranger with CAP_DAC_OVERRIDE", STRANGER, OTHER) },
        Caller { with: Some(callers::IPC_OWNER), ..of("stranger with CAP_IPC_OWNER", STRANGER, OTHER) },
        Caller { below: Some(Below::As(0)), ..of("owner as root of a user namespace", OWNER, OTHER) },
        Caller { below: Some(Below::As(0)), ..of("stranger as root of a user namespace", STRANGER, OTHER) },
        Caller { below: Some(Below::As(OWNER)), ..of("stranger with the owner's number in a user namespace", STRANGER, OTHER) },
    ];
    let mut n = 0;
    for owner in [OWNER, 0] {
        for share in [Share::Nobody, Share::Group(GROUP), Share::All] {
            n += 1;
            let namespace = dir.path().join(n.to_string());
            make(&namespace, share, owner);
            let arena = namespace.join("arena-v1");
            for caller in &callers {
                let enter = |named: Option<u32>| {
                    let on = Preload { library: library(), dir: &namespace, owner: named };
                    let seen = run(Some(&on), Some(caller), When::Before, &Task::Enter(arena.clone()));
                    ATTEMPTS.fetch_add(1, Ordering::Relaxed);
                    REFUSED.fetch_add(u64::from(seen[1] != "made"), Ordering::Relaxed);
                    (seen[0] == "open", seen[1].clone())
                };
                let who = format!("{} into a namespace of {owner}, shared with {share:?}", caller.name);
                let own = caller.uids[0] == owner;
                // In a user namespace of its own the owner is named by the number that the caller sees, if there is one.
                let below = caller.below.is_some();
                let (by_mode, named) = enter(if below && !own { Some(65534) } else { Some(owner) });
                assert!(!own || by_mode || caller.without.contains(&DAC_OVERRIDE), "{who}: its own");
                // Who cannot tell whom 65534 means is not let in; the root user of a user namespace is trusted for its own numbers only.
                let expected = if by_mode && (own || !below) { "made" } else { "errno 38" };
                assert_eq!(named, expected, "{who}: by the file's mode {by_mode}");
                let (_, unnamed) = enter(None);
                let trusted = own || (owner == 0 && !below);
                assert_eq!(unnamed, if by_mode && trusted { "made" } else { "errno 38" }, "{who}, who is not named");
            }
        }
    }
    // Two below: the numbers in between are not told.
    let twice = Caller { below: Some(Below::Twice), ..of("owner as root of a user namespace in another", OWNER, OTHER) };
    refused(&dir.path().join("1"), &twice, Some(OWNER));
    // An arena that does not tell whose numbers it has, of somebody who has no number here.
    let untold = dir.path().join("3");
    forget_user_namespace(&untold.join("arena-v1"));
    refused(&untold, &callers[9], Some(65534));
}

/// Must not get in.
fn refused(namespace: &Path, caller: &Caller, owner: Option<u32>) {
    let on = Preload { library: library(), dir: namespace, owner };
    let seen = run(Some(&on), Some(caller), When::Before, &Task::Enter(namespace.join("arena-v1")));
    assert_eq!(seen, ["open", "errno 38"], "{}", caller.name);
    ATTEMPTS.fetch_add(1, Ordering::Relaxed);
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// Takes the user namespace's number out of an arena's header.
fn forget_user_namespace(arena: &Path) {
    let here = fs::metadata("/proc/self/ns/user").expect("a namespace").ino() as u32;
    let file = fs::File::options().read(true).write(true).open(arena).expect("root may");
    let mut header = [0; 192];
    file.read_exact_at(&mut header, 0).expect("a header");
    let at = header.chunks(4).position(|word| word == here.to_le_bytes()).expect("it is there");
    file.write_all_at(&[0; 4], at as u64 * 4).expect("root may");
}
