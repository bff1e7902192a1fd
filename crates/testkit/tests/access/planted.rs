//! What an attacker puts where a victim's namespace should be, and directories that are not fit for one. The victim must be refused in no
//! time, with the reason, and nothing that was there may be touched.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use manyway_sem::{Engine, Errno, OpenError, OpenOptions, Share, Thread};

use crate::callers::{GROUP, OTHER, OWNER as VICTIM, STRANGER as ATTACKER};
use crate::sys::{self, Via};
use crate::{ATTEMPTS, PLANTED, Test, open_directory};

pub const TESTS: &[Test] = &[
    ("planted_things_are_not_opened", || with_protection(planted)),
    ("a_directory_that_changes_under_the_caller", exchanged),
    ("modes_whatever_the_umask", umasks),
    ("file_systems_that_cannot", file_systems),
];

/// Runs `f` in a thread that is another user.
fn as_user<R: Send>(uid: u32, groups: &[u32], f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|s| {
        let thread = s.spawn(|| {
            sys::set_groups(Via::Number, groups).expect("root may");
            sys::set_gids(Via::Number, [OTHER; 3]).expect("root may");
            sys::set_uids(Via::Number, [uid; 3]).expect("root may");
            f()
        });
        thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

fn open(dir: &Path, how: &OpenOptions) -> Result<Engine, OpenError> {
    let path = CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it");
    Engine::open(&path, how)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("own file");
}

/// With fs.protected_* as they are, and with all of them on.
fn with_protection(f: fn(&Path)) {
    const SWITCHES: [(&str, &str); 4] = [("regular", "2"), ("fifos", "2"), ("symlinks", "1"), ("hardlinks", "1")];
    let file = |name: &str| format!("/proc/sys/fs/protected_{name}");
    let was = SWITCHES.map(|(name, _)| fs::read_to_string(file(name)).unwrap_or_default());
    let base = open_directory(Path::new("/dev/shm"));
    set_mode(base.path(), 0o1777);
    f(base.path());
    let on = SWITCHES.iter().zip(&was).all(|((_, full), was)| was.trim() == *full);
    // A container may not let us.
    if !on && SWITCHES.iter().all(|(name, full)| fs::write(file(name), full).is_ok()) {
        let second = open_directory(Path::new("/dev/shm"));
        set_mode(second.path(), 0o1777);
        let outcome = std::panic::catch_unwind(|| f(second.path()));
        for ((name, _), was) in SWITCHES.iter().zip(&was) {
            fs::write(file(name), was.trim()).expect("as before");
        }
        outcome.unwrap_or_else(|e| std::panic::resume_unwind(e));
    }
}

/// What the victim finds.
struct Place {
    /// Where its namespace should be.
    dir: PathBuf,
    /// Room for other things, the attacker's and the victim's.
    attackers: PathBuf,
    victims: PathBuf,
}

impl Place {
    fn arena(&self) -> PathBuf {
        self.dir.join("arena-v1")
    }
    /// The victim's directory, into which anybody could once write.
    fn own_directory(&self) {
        as_user(VICTIM, &[], || fs::create_dir(&self.dir).expect("a sticky directory lets all"));
        set_mode(&self.dir, 0o777);
    }
    fn close(&self) {
        set_mode(&self.dir, 0o700);
    }
    /// Does it as the attacker while the victim's directory is open to all.
    fn plant(&self, what: impl FnOnce() + Send) {
        self.own_directory();
        as_user(ATTACKER, &[], what);
        self.close();
    }
    /// An arena of the attacker's that everybody may write.
    fn attackers_namespace(&self) -> PathBuf {
        let dir = self.attackers.join("namespace");
        as_user(ATTACKER, &[], || open(&dir, &OpenOptions { share: Some(Share::All), ..OpenOptions::CREATE }).map(drop)).expect("its own");
        dir
    }
    fn victims_namespace(&self) -> PathBuf {
        let dir = self.victims.join("namespace");
        as_user(VICTIM, &[], || open(&dir, &OpenOptions::CREATE).map(drop)).expect("its own");
        dir
    }
}

/// What is planted, and whether the error is the right one.
type Case = (&'static str, fn(&Place), fn(&OpenError) -> bool);

fn foreign(e: &OpenError) -> bool {
    matches!(e, OpenError::Foreign { owner: ATTACKER, .. })
}
fn untrusted(e: &OpenError) -> bool {
    matches!(e, OpenError::Untrusted(_))
}
fn not_an_arena(e: &OpenError) -> bool {
    matches!(e, OpenError::NotAnArena(_))
}
fn not_followed(e: &OpenError) -> bool {
    matches!(e, OpenError::Os(_, Errno::ELOOP | Errno::ENOTDIR))
}

const FIFO: u32 = libc::S_IFIFO | 0o666;
const DEVICE: u32 = libc::S_IFCHR | 0o666;

const CASES: &[Case] = &[
    ("a directory of the attacker's, with a good arena", |p| copy_namespace(&p.attackers_namespace(), &p.dir), foreign),
    ("the attacker's empty directory", |p| as_user(ATTACKER, &[], || fs::create_dir(&p.dir).expect("anybody may")), foreign),
    ("a link to the attacker's namespace", |p| as_user(ATTACKER, &[], || link(p.attackers.join("namespace"), &p.dir)), not_followed),
    ("a link to another namespace of the victim's", |p| link_by_attacker(p.victims_namespace(), &p.dir), not_followed),
    ("a link to nothing", |p| link_by_attacker("/nowhere".into(), &p.dir), not_followed),
    ("a file for a directory", |p| as_user(ATTACKER, &[], || drop(File::create(&p.dir).expect("anybody may"))), not_followed),
    ("a pipe for a directory", |p| as_user(ATTACKER, &[], || pipe(&p.dir)), not_followed),
    ("a socket for a directory", |p| as_user(ATTACKER, &[], || socket(&p.dir)), not_followed),
    ("the victim's own directory, writable by all", |p| p.own_directory(), untrusted),
    ("the victim's own directory, writable by its group", |p| (p.own_directory(), set_mode(&p.dir, 0o770)).1, untrusted),
    ("a directory above that lets all rename", |p| (p.own_directory(), p.close(), set_mode(p.above(), 0o777)).2, untrusted),
    ("the attacker's arena", |p| p.plant_file(), foreign),
    ("a link to the attacker's arena", |p| plant_link(p, p.attackers_namespace().join("arena-v1")), not_followed),
    ("a link to an arena of the victim's", |p| plant_link(p, p.victims_namespace().join("arena-v1")), not_followed),
    ("a link to a file that is to be made", |p| plant_link(p, p.attackers.join("to-be-made")), not_followed),
    ("another name for an arena of the victim's", |p| plant_name(p, p.victims_namespace().join("arena-v1")), untrusted),
    ("another name for a file of the victim's", |p| plant_name(p, p.victims.join("secret")), untrusted),
    ("another name for the attacker's arena", |p| plant_name(p, p.attackers_namespace().join("arena-v1")), foreign),
    ("a pipe", |p| p.plant(|| pipe(&p.arena())), not_an_arena),
    ("a socket", |p| p.plant(|| socket(&p.arena())), |e| matches!(e, OpenError::Os(_, Errno::ENXIO))),
    ("a directory", |p| p.plant(|| fs::create_dir(p.arena()).expect("anybody may")), |e| matches!(e, OpenError::Os(_, Errno(21)))),
    ("the zero device", |p| p.plant_device((1, 5)), not_an_arena),
    ("the null device", |p| p.plant_device((1, 3)), not_an_arena),
    ("the victim's own file, too short", |p| p.own_arena(|f| f.set_len(100)), not_an_arena),
    ("the victim's own file, of another size", |p| p.own_arena(|f| f.set_len(1 << 20)), not_an_arena),
    ("the victim's own file, of the right size only", |p| p.own_arena(|f| (f.set_len(0)?, f.set_len(256 << 30)).1), not_an_arena),
    ("another layout's", |p| p.own_arena(|f| f.write_all_at(&9u32.to_le_bytes(), 8)), |e| matches!(e, OpenError::OtherLayout(9))),
    ("another layout's under this one's number", |p| p.own_arena(|f| f.write_all_at(&9u32.to_le_bytes(), 12)), not_an_arena),
    ("an arena open to all in a closed directory", |p| p.own_arena(|f| f.set_permissions(Permissions::from_mode(0o666))), untrusted),
    ("an arena open to its group in a closed directory", |p| p.own_arena(|f| f.set_permissions(Permissions::from_mode(0o660))), untrusted),
    ("an arena open to all that nobody meant to share", |p| p.own_arena(|f| open_to_all(p, f)), untrusted),
    ("a shared arena that is root's in a directory of the victim's", |p| p.shared_arena(|p| chown(p.arena(), Some(0), None)), untrusted),
    ("an arena open to others but its group", |p| p.own_arena(|f| f.set_permissions(Permissions::from_mode(0o606))), untrusted),
    (
        "an arena that was given away",
        |p| p.own_arena(|_| chown(p.arena(), Some(ATTACKER), None)),
        |e| matches!(e, OpenError::Os(_, Errno::EACCES)),
    ),
];

/// One that the victim may open, and would wait for.
fn pipe(at: &Path) {
    sys::mknod(at, FIFO, (0, 0)).expect("anybody may");
    set_mode(at, 0o666);
}
fn socket(at: &Path) {
    drop(UnixListener::bind(at).expect("anybody may"));
    set_mode(at, 0o666);
}
fn link(to: PathBuf, at: &Path) {
    symlink(to, at).expect("anybody may");
}
fn link_by_attacker(to: PathBuf, at: &Path) {
    as_user(ATTACKER, &[], || link(to, at));
}
fn plant_link(p: &Place, to: PathBuf) {
    p.plant(|| link(to, &p.arena()));
}
/// A hard link. Where fs.protected_hardlinks forbids it to the attacker, root makes it: it may be older than that.
fn plant_name(p: &Place, of: PathBuf) {
    p.own_directory();
    let made = as_user(ATTACKER, &[], || fs::hard_link(&of, p.arena()).is_ok());
    if !made {
        fs::hard_link(&of, p.arena()).expect("root may");
    }
    p.close();
}
/// The attacker's own copy of a namespace, at another place. Holes stay holes.
fn copy_namespace(from: &Path, to: &Path) {
    as_user(ATTACKER, &[], || {
        fs::create_dir(to).expect("anybody may");
        set_mode(to, 0o755);
        copy_arena(&from.join("arena-v1"), &to.join("arena-v1"));
    });
}
fn copy_arena(from: &Path, to: &Path) {
    let (from, to) = (File::open(from).expect("an arena"), File::create(to).expect("anybody may"));
    let mut head = vec![0; 32 << 10];
    from.read_exact_at(&mut head, 0).expect("its header");
    to.write_all_at(&head, 0).expect("room");
    to.set_len(from.metadata().expect("an arena").len()).expect("a hole");
    to.set_permissions(Permissions::from_mode(0o666)).expect("own file");
}

impl Place {
    fn above(&self) -> &Path {
        self.dir.parent().expect("it is in the test's directory")
    }
    fn plant_file(&self) {
        let from = self.attackers_namespace().join("arena-v1");
        self.plant(|| copy_arena(&from, &self.arena()));
    }
    /// Only root can make one; it belongs to the victim, so that the owner does not tell.
    fn plant_device(&self, device: (u32, u32)) {
        self.plant(|| {});
        sys::mknod(&self.arena(), DEVICE, device).expect("root may");
        chown(self.arena(), Some(VICTIM), None).expect("root may");
    }
    /// A namespace that the victim shares with all, spoilt.
    fn shared_arena(&self, spoil: impl FnOnce(&Place) -> io::Result<()>) {
        let how = OpenOptions { share: Some(Share::All), ..OpenOptions::CREATE };
        as_user(VICTIM, &[], || open(&self.dir, &how).map(drop)).expect("its own");
        spoil(self).expect("root may");
    }
    /// The victim's own arena, spoilt.
    fn own_arena(&self, spoil: impl FnOnce(&File) -> io::Result<()>) {
        as_user(VICTIM, &[], || open(&self.dir, &OpenOptions::CREATE).map(drop)).expect("its own");
        let file = File::options().read(true).write(true).open(self.arena()).expect("root may");
        spoil(&file).expect("root may");
    }
}

/// As a shared namespace is, but for what its maker meant.
fn open_to_all(p: &Place, arena: &File) -> io::Result<()> {
    set_mode(&p.dir, 0o755);
    arena.set_permissions(Permissions::from_mode(0o666))
}

/// Everything below a directory: name, inode, owner, mode, size, and the first bytes.
fn inventory(top: &Path) -> Vec<(PathBuf, u64, u32, u32, u64, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(top).expect("root may") {
        let path = entry.expect("root may").path();
        let meta = path.symlink_metadata().expect("nobody else is here");
        let mut start = vec![0; 4096];
        let read = if meta.is_file() { File::open(&path).and_then(|f| f.read_at(&mut start, 0)).expect("root may") } else { 0 };
        start.truncate(read);
        all.push((path.clone(), meta.ino(), meta.uid(), meta.mode(), meta.len(), start));
        if meta.is_dir() {
            all.extend(inventory(&path));
        }
    }
    all.sort();
    all
}

fn planted(base: &Path) {
    for (n, (what, plant, right)) in CASES.iter().enumerate() {
        let top = base.join(n.to_string());
        fs::create_dir(&top).expect("a new directory");
        let place = Place { dir: top.join("place/here"), attackers: top.join("attackers"), victims: top.join("victims") };
        for (dir, owner, mode) in [(&top.join("place"), 0, 0o1777), (&place.attackers, ATTACKER, 0o755), (&place.victims, VICTIM, 0o755)] {
            fs::create_dir(dir).expect("a new directory");
            set_mode(dir, mode);
            chown(dir, Some(owner), None).expect("root may");
        }
        fs::write(place.victims.join("secret"), "secret").expect("root may");
        chown(place.victims.join("secret"), Some(VICTIM), None).expect("root may");
        plant(&place);
        let before = inventory(&top);
        for how in [OpenOptions::FIND, OpenOptions::CREATE, OpenOptions { share: Some(Share::All), ..OpenOptions::CREATE }] {
            let began = Instant::now();
            let opened = as_user(VICTIM, &[], || open(&place.dir, &how).map(|e| e.semget(&Thread::new(), 0, 1, 0o600)));
            let Err(error) = opened else { panic!("{what}: the victim got in, with {how:?}: {opened:?}") };
            assert!(right(&error), "{what}, with {how:?}: {error:?}: {error}");
            assert!(began.elapsed() < Duration::from_secs(20), "{what}: waited for {:?}", began.elapsed());
            ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        }
        assert!(inventory(&top) == before, "{what}: something was touched");
        PLANTED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Two directories change places all the time, the victim's and one that the attacker has shared with all: what is opened is the victim's,
/// directory and arena, or nothing.
fn exchanged() {
    let base = open_directory(Path::new("/dev/shm"));
    set_mode(base.path(), 0o1777);
    let [mine, theirs] = ["mine", "theirs"].map(|name| base.path().join(name));
    let own = as_user(VICTIM, &[], || open(&mine, &OpenOptions::CREATE).map(|e| e.file())).expect("its own");
    let shared = OpenOptions { share: Some(Share::All), ..OpenOptions::CREATE };
    as_user(ATTACKER, &[], || open(&theirs, &shared).map(drop)).expect("its own");
    let (stop, exchanges) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    let (mut got, mut refused) = (0, 0);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                sys::exchange(&mine, &theirs).expect("root may");
                exchanges.fetch_add(1, Ordering::Relaxed);
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        while (got < 300 || refused < 300) && Instant::now() < deadline {
            let opened = as_user(VICTIM, &[], || (0..50).map(|_| open(&mine, &OpenOptions::FIND).map(|e| e.file())).collect::<Vec<_>>());
            for one in opened {
                match one {
                    Ok(file) => {
                        assert_eq!(file, own, "the attacker's");
                        got += 1;
                    }
                    Err(e) => {
                        assert!(foreign(&e), "{e:?}");
                        refused += 1;
                    }
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(got >= 300 && refused >= 300, "{got} and {refused} of {} exchanges prove nothing", exchanges.into_inner());
    ATTEMPTS.fetch_add(got + refused, Ordering::Relaxed);
    PLANTED.fetch_add(1, Ordering::Relaxed);
}

/// The modes are those that are meant.
fn umasks() {
    let base = open_directory(Path::new("/dev/shm"));
    set_mode(base.path(), 0o1777);
    for mask in [0, 0o022, 0o077, 0o277, 0o777] {
        for share in [Share::Nobody, Share::Group(GROUP), Share::All] {
            let dir = base.path().join(format!("{mask:o}-{share:?}"));
            let how = OpenOptions { share: Some(share), ..OpenOptions::CREATE };
            as_user(VICTIM, &[GROUP], || {
                sys::unshare(libc::CLONE_FS).expect("anybody may");
                sys::umask(mask);
                open(&dir, &how).unwrap_or_else(|e| panic!("umask {mask:o}, {share:?}: {e}"));
                assert_eq!(open(&dir, &OpenOptions::FIND).expect("it is there").share(), share);
            });
            let (d, a) = (dir.metadata().expect("made"), dir.join("arena-v1").metadata().expect("made"));
            assert_eq!((d.mode() & 0o7777, a.mode() & 0o7777), (share.directory_mode(), share.file_mode()), "umask {mask:o}, {share:?}");
            let gid = if matches!(share, Share::Group(_)) { GROUP } else { OTHER };
            assert_eq!((d.uid(), a.uid(), a.gid()), (VICTIM, VICTIM, gid), "umask {mask:o}, {share:?}");
            let stranger = as_user(ATTACKER, &[], || File::options().write(true).open(dir.join("arena-v1")).is_ok());
            assert_eq!(stranger, share == Share::All, "umask {mask:o}, {share:?}");
        }
    }
    // A group that one is no member of cannot be shared with.
    let how = OpenOptions { share: Some(Share::Group(GROUP)), ..OpenOptions::CREATE };
    let dir = base.path().join("not-a-member");
    let e = as_user(VICTIM, &[], || open(&dir, &how).map(drop)).expect_err("not a member");
    assert!(matches!(e, OpenError::Os(_, Errno::EPERM)), "{e:?}");
}

/// Read-only, full, immutable, over its quota: the error says so, and nothing half-made stays.
fn file_systems() {
    let base = open_directory(Path::new("/tmp"));
    let top = base.path();
    // In a mount namespace of this thread's own, which ends with it.
    std::thread::scope(|s| {
        let test = || {
            sys::unshare(libc::CLONE_FS | libc::CLONE_NEWNS).expect("root may");
            sys::mount(c"none", Path::new("/"), c"", libc::MS_REC | libc::MS_PRIVATE, c"").expect("root may");
            let mounted = |name: &str, data| {
                let at = top.join(name);
                fs::create_dir(&at).expect("a new directory");
                sys::mount(c"none", &at, c"tmpfs", 0, data).map(|()| at)
            };
            let outcome = |dir: &Path, how: &OpenOptions| open(dir, how).map(drop).expect_err("it cannot");
            let is = |e: OpenError, errnos: &[Errno]| assert!(matches!(e, OpenError::Os(_, e) if errnos.contains(&e)), "{e:?}");

            let full = mounted("full", c"size=8k,mode=755").expect("root may");
            is(outcome(&full.join("ns"), &OpenOptions::CREATE), &[Errno::ENOSPC, Errno::ENOMEM]);
            assert_eq!(fs::read_dir(full.join("ns")).expect("the directory was made").count(), 0, "something half-made");

            let read_only = mounted("read-only", c"mode=755").expect("root may");
            open(&read_only.join("ns"), &OpenOptions::CREATE).expect("still writable");
            sys::mount(c"none", &read_only, c"", libc::MS_REMOUNT | libc::MS_RDONLY, c"").expect("root may");
            is(outcome(&read_only.join("ns"), &OpenOptions::FIND), &[Errno::EROFS]);
            is(outcome(&read_only.join("ns"), &OpenOptions::CREATE), &[Errno::EROFS]);
            is(outcome(&read_only.join("other"), &OpenOptions::CREATE), &[Errno::EROFS]);

            let rigid = mounted("immutable", c"mode=755").expect("root may").join("ns");
            fs::create_dir(&rigid).expect("writable");
            let dir = File::open(&rigid).expect("a directory");
            // Since Linux 6.6.
            if sys::set_immutable(&dir, true).is_ok() {
                is(outcome(&rigid, &OpenOptions::CREATE), &[Errno::EPERM]);
                sys::set_immutable(&dir, false).expect("root may");
                open(&rigid, &OpenOptions::CREATE).expect("as any other");
                let arena = File::open(rigid.join("arena-v1")).expect("made");
                sys::set_immutable(&arena, true).expect("root may");
                is(outcome(&rigid, &OpenOptions::FIND), &[Errno::EPERM]);
                sys::set_immutable(&arena, false).expect("root may");
            }

            // A kernel may be without.
            if let Ok(quota) = mounted("quota", c"mode=1777,usrquota,usrquota_block_hardlimit=8k") {
                let e = as_user(VICTIM, &[], || outcome(&quota.join("ns"), &OpenOptions::CREATE));
                is(e, &[Errno::EDQUOT, Errno::ENOSPC, Errno::ENOMEM]);
            }
            ATTEMPTS.fetch_add(7, Ordering::Relaxed);
        };
        s.spawn(test).join().unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
}
