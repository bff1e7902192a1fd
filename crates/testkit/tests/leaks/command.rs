//! `manyway run --private`: neither namespaces nor watchers stay, and of the library one file, however often it is run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::footprint::Place;

/// The first argument of this program when it is to run programs.
const RUNNER: &str = "runner-of-leaks";
/// Where the command keeps namespaces and its library.
const PLACES: [&str; 2] = ["/run", "/dev/shm"];

/// The command as it was built beside this program.
fn command() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let beside = own.parent()?.parent()?.join("manyway");
    beside.exists().then_some(beside)
}

/// True when it was built, and this user may mount.
pub fn possible() -> bool {
    manyway_testkit::running_as_root() && command().is_some()
}

/// In a process of its own, which alone sees its /run and /dev/shm.
pub fn programs(_: &Place, n: usize) {
    let ran = Command::new("/proc/self/exe").args([RUNNER, &n.to_string()]).status().expect("this program can be started");
    assert!(ran.success(), "the runner says why");
}

/// Does what the command line says, if it is the runner's.
pub fn act_if_asked() -> bool {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_none_or(|a| a != RUNNER) {
        return false;
    }
    let n: usize = args[2].parse().expect("a number");
    unshare(CloneFlags::CLONE_NEWNS).expect("root may");
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).expect("root may");
    for place in PLACES {
        mount(Some("tmpfs"), place, Some("tmpfs"), MsFlags::empty(), Some("mode=0755")).expect("root may");
    }
    run();
    let before = settled(|left| left.iter().all(|f| f.file_name().is_none_or(|name| name != "arena-v1")));
    let libraries = before.iter().filter(|f| f.extension().is_some_and(|e| e == "so")).count();
    assert_eq!(libraries, 1, "one library for all: {before:?}");
    for _ in 1..n {
        run();
    }
    settled(|left| *left == before);
    true
}

/// What is left once it is as it should be: watchers remove a private namespace after the program.
fn settled(good: impl Fn(&Vec<PathBuf>) -> bool) -> Vec<PathBuf> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left = left();
        if good(&left) {
            return left;
        }
        assert!(Instant::now() < deadline, "left: {left:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn run() {
    let script = "use IPC::SysV qw(IPC_PRIVATE S_IRUSR S_IWUSR SEM_UNDO); my $s = semget(IPC_PRIVATE, 2, S_IRUSR | S_IWUSR) or die; \
                  semop($s, pack('s3', 0, 1, SEM_UNDO)) or die";
    let mut run = Command::new(command().expect("it was there"));
    run.args(["run", "--private", "--", "perl", "-e", script]).env_remove("LD_PRELOAD").env_remove("MANYWAY_DIR").env_remove("MANYWAY_NS");
    let ran = run.status().expect("it can be started");
    assert!(ran.success(), "{ran}");
}

/// All files and directories in the two places.
fn left() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for place in PLACES {
        list(Path::new(place), &mut all);
    }
    all.sort();
    all
}

fn list(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            list(&path, all);
        }
        all.push(path);
    }
}
