//! Who still uses a namespace, beyond those that have a slot in it: whoever was started by `manyway run` may use it at any time.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use manyway_sem::Engine;
use rustix::fs::{FlockOperation, flock};

use crate::namespace::DIR_VARIABLE;
use crate::people::Process;
use crate::portrait::processes;
use crate::watcher;

/// A lock on the namespace's directory between those who are about to use it and the one who finds that nobody does.
///
/// `run` holds it open (shared) until it has become the program; from then on the program's environment tells. A watcher closes it
/// (exclusive) before it looks whether anybody is left, so that nobody is between the two.
pub struct Gate {
    _directory: File,
}

impl Gate {
    /// For one who is about to use the namespace.
    pub fn hold_open(dir: &Path) -> io::Result<Gate> {
        Gate::lock(dir, FlockOperation::LockShared)
    }

    /// Waits until nobody holds it open, and keeps it closed.
    pub fn close(dir: &Path) -> io::Result<Gate> {
        Gate::lock(dir, FlockOperation::LockExclusive)
    }

    /// Closes it, if nobody holds it open.
    pub fn try_close(dir: &Path) -> io::Result<Gate> {
        Gate::lock(dir, FlockOperation::NonBlockingLockExclusive)
    }

    /// The same, but waits a little: a watcher that is about to end keeps it closed for a moment.
    pub fn close_soon(dir: &Path) -> io::Result<Gate> {
        for _ in 0..200 {
            if let Ok(gate) = Gate::try_close(dir) {
                return Ok(gate);
            }
            sleep(Duration::from_millis(10));
        }
        Gate::try_close(dir)
    }

    fn lock(dir: &Path, operation: FlockOperation) -> io::Result<Gate> {
        let how = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let directory = fs::OpenOptions::new().read(true).custom_flags(how).open(dir)?;
        flock(&directory, operation)?;
        // Who had it closed may have removed it: then this is a lock on nothing.
        let (locked, there) = (directory.metadata()?, fs::metadata(dir)?);
        if (locked.dev(), locked.ino()) != (there.dev(), there.ino()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Gate { _directory: directory })
    }
}

/// Processes, other than the caller, that were started with the namespace in `dir` or have it mapped.
pub fn find(dir: &Path) -> Vec<u32> {
    search(|| processes_of_proc().collect(), |pid| uses(pid, dir))
}

/// Those of a changing list of processes of which `uses` is true.
fn search(mut list: impl FnMut() -> Vec<u32>, mut uses: impl FnMut(u32) -> bool) -> Vec<u32> {
    // Pids begin again at the lowest now and then. A child born then lies behind the place where the list of /proc is, or has a pid that was looked
    // at before. So that nobody is there is believed when it was seen twice.
    let users = search_once(&mut list, &mut uses);
    if users.is_empty() { search_once(&mut list, &mut uses) } else { users }
}

/// One that has ended when it is looked at may have left a child that was born after the list was made. So it is made again until nobody
/// new is there: whoever lives then was looked at, and what a process was started with it has from its birth.
fn search_once(list: &mut impl FnMut() -> Vec<u32>, uses: &mut impl FnMut(u32) -> bool) -> Vec<u32> {
    // On a machine that starts more processes than can be looked at, what was found must do.
    const ROUNDS: usize = 1_000;
    let (mut seen, mut users) = (HashSet::new(), Vec::new());
    for _ in 0..ROUNDS {
        let new: Vec<u32> = list().into_iter().filter(|&pid| seen.insert(pid)).collect();
        if new.is_empty() {
            break;
        }
        users.extend(new.into_iter().filter(|&pid| uses(pid)));
    }
    users
}

/// All but the caller.
fn processes_of_proc() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = std::process::id();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(move |&pid| pid != own)
}

/// Those, and the living processes that have a slot in it.
pub fn of(dir: &Path, engine: &Engine) -> Vec<Process> {
    let mut pids = find(dir);
    pids.extend(processes(engine));
    pids.sort();
    pids.dedup();
    // A watcher has a slot when it has given something back. One that is ending has no command line any more to be known by, but no memory
    // either, in this order.
    pids.retain(|&pid| !watcher::is_one(pid) && has_memory(pid));
    pids.into_iter().map(Process::look).collect()
}

fn uses(pid: u32, dir: &Path) -> bool {
    // What may not be read belongs to somebody else, who cannot use the namespace either, unless it is shared: then he counts from when
    // he has a slot in it.
    let Some(environment) = environment(pid) else { return false };
    if has_entry(&environment, dir) {
        return true;
    }
    // Daemons that write their state where `ps` shows it overwrite their environment.
    !environment.is_empty() && !is_intact(&environment) && maps(pid, dir)
}

/// False: it has ended, or is about to, and uses nothing any more.
fn has_memory(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/statm")).is_ok_and(|pages| !pages.starts_with("0 "))
}

fn has_entry(environment: &[u8], dir: &Path) -> bool {
    let value = |entry: &[u8]| entry.strip_prefix(DIR_VARIABLE.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    environment.split(|b| *b == 0).any(|entry| value(entry).is_some_and(|value| value == dir.as_os_str().as_bytes()))
}

fn is_intact(environment: &[u8]) -> bool {
    let first = environment.split(|b| *b == 0).next().unwrap_or_default();
    let name = first.split(|b| *b == b'=').next().unwrap_or_default();
    name.len() < first.len() && !name.is_empty() && name.iter().all(|b| b.is_ascii_graphic())
}

fn maps(pid: u32, dir: &Path) -> bool {
    let wanted = dir.join("arena-v");
    let wanted = wanted.as_os_str().as_bytes();
    any_mapping(pid, |line| line.windows(wanted.len()).any(|part| part == wanted))
}

/// Processes, other than the caller, that have this file mapped.
pub fn mapping(file: &Path) -> Vec<u32> {
    let Ok(file) = file.canonicalize() else { return Vec::new() };
    let name = file.as_os_str().as_bytes();
    // A space stands before the name, and it ends the line.
    let is_it = |line: &[u8]| line.strip_suffix(name).is_some_and(|rest| rest.ends_with(b" "));
    processes_of_proc().filter(|&pid| any_mapping(pid, is_it)).collect()
}

fn any_mapping(pid: u32, is_it: impl Fn(&[u8]) -> bool) -> bool {
    fs::read(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.split(|b| *b == b'\n').any(is_it))
}

/// The environment with which the process was executed; none when it cannot be read.
fn environment(pid: u32) -> Option<Vec<u8>> {
    let path = format!("/proc/{pid}/environ");
    // While execve sets up the new program, its environment reads as empty for some microseconds.
    for _ in 0..1_000 {
        let environment = fs::read(&path).ok()?;
        if !environment.is_empty() {
            return Some(environment);
        }
        if !is_in_execve(pid) {
            // Since it was read, execve may have come to its end.
            return fs::read(&path).ok();
        }
        sleep(Duration::from_micros(100));
    }
    None
}

/// Whether the process has a program whose environment's place is not known yet.
fn is_in_execve(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| shows_execve(&stat))
}

fn shows_execve(stat: &str) -> bool {
    const EXITING: u64 = 0x4;
    const KERNEL_THREAD: u64 = 0x0020_0000;
    // The name, in parentheses, may have anything in it; the third field of proc_pid_stat(5) follows.
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
    let flags: u64 = field(9).parse().unwrap_or(EXITING);
    !matches!(field(3), "Z" | "X") && flags & (EXITING | KERNEL_THREAD) == 0 && field(51) == "0"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;
    use std::process::{Child, Command, Stdio};

    fn start(dir: &Path) -> Child {
        Command::new("sleep").arg("60").env(DIR_VARIABLE, dir).stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_gate_to_what_was_removed_meanwhile_is_none() {
        let top = TestDir::exec();
        let dir = top.path().join("namespace");
        fs::create_dir(&dir).unwrap();
        let closed = Gate::close(&dir).unwrap();
        let waits = std::thread::spawn({
            let dir = dir.clone();
            move || Gate::hold_open(&dir).map(drop)
        });
        // It has opened the directory, and waits.
        while !fs::read_to_string("/proc/locks").unwrap().contains("->") {
            sleep(Duration::from_millis(1));
        }
        fs::remove_dir(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        drop(closed);
        assert_eq!(waits.join().unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(Gate::hold_open(&dir).is_ok());
    }

    #[test]
    fn who_is_ending_has_no_memory() {
        let mut child = start(Path::new("/nowhere"));
        assert!(has_memory(child.id()) && has_memory(std::process::id()));
        child.kill().unwrap();
        // It is there until it is waited for.
        while has_memory(child.id()) {
            sleep(Duration::from_millis(1));
        }
        assert!(Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().unwrap();
    }

    #[test]
    fn found_by_environment() {
        let top = TestDir::new();
        let (mut one, mut other) = (start(top.path()), start(Path::new("/nowhere")));
        // spawn() returns when the new program is on its way in; the search waits for the rest.
        assert_eq!(find(top.path()), [one.id()]);
        for child in [&mut one, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(find(top.path()).is_empty());
    }

    /// A chain of processes: each starts the next one and ends at once.
    #[test]
    fn found_though_its_parent_has_just_ended() {
        let (top, namespace) = (TestDir::exec(), TestDir::new());
        let hop = top.path().join("hop");
        fs::write(&hop, "[ -d \"$1\" ] && [ $2 -gt 0 ] && sh \"$0\" \"$1\" $(($2 - 1)) &\n").unwrap();
        let mut first = Command::new("sh");
        first.arg(&hop).arg(top.path()).arg("5000").env(DIR_VARIABLE, namespace.path());
        assert!(first.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
        for n in 0..40 {
            assert!(!find(namespace.path()).is_empty(), "not found at look {n}");
        }
    }

    #[test]
    fn found_though_pids_begin_again() {
        // 30,000 has left a child when it is looked at, and that one has a lower pid than the list has come to.
        let mut lists = [vec![7, 30_000], vec![7, 30_000], vec![7, 300]].into_iter();
        let mut last = Vec::new();
        let list = || {
            last = lists.next().unwrap_or(last.clone());
            last.clone()
        };
        assert_eq!(search(list, |pid| pid == 300), [300]);
        // Its child has the pid of another one, which was looked at.
        let mut looks = 0;
        let reused = |pid| {
            looks += u32::from(pid == 7);
            pid == 7 && looks == 2
        };
        assert_eq!(search(|| vec![7, 30_000], reused), [7]);
    }

    #[test]
    fn the_gate_is_closed_only_when_nobody_holds_it_open() {
        let top = TestDir::new();
        let open = Gate::hold_open(top.path()).unwrap();
        Gate::hold_open(top.path()).unwrap();
        assert!(Gate::try_close(top.path()).is_err());
        drop(open);
        let closed = Gate::close(top.path()).unwrap();
        assert!(Gate::try_close(top.path()).is_err());
        drop(closed);
        Gate::try_close(top.path()).unwrap();
    }

    #[test]
    fn environments() {
        let dir = Path::new("/a/b");
        assert!(has_entry(b"X=1\0MANYWAY_DIR=/a/b\0", dir));
        assert!(!has_entry(b"MANYWAY_DIR=/a/bc\0NOT_MANYWAY_DIR=/a/b\0", dir));
        assert!(is_intact(b"PATH=/bin\0"));
        assert!(!is_intact(b"\0\0\0"));
        assert!(!is_intact(b"postgres: idle"));
    }

    #[test]
    fn the_moment_within_execve() {
        let stat = |state, flags, env_end| {
            let mut fields = vec!["0"; 50];
            (fields[0], fields[6], fields[48]) = (state, flags, env_end);
            format!("7 (a) b) {}", fields.join(" "))
        };
        assert!(shows_execve(&stat("R", "4194304", "0")));
        assert!(!shows_execve(&stat("R", "4194304", "140")));
        assert!(!shows_execve(&stat("Z", "4194304", "0")));
        assert!(!shows_execve(&stat("R", "4194308", "0")));
        assert!(!shows_execve(&stat("S", "2129984", "0")));
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(!shows_execve(&own));
    }
}
