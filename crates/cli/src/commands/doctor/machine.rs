//! The machine: its kernel, its limits, and what confines the calling process and with it the programs that it runs.

use std::fs;
use std::path::Path;

use rustix::fs::statvfs;
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

use super::{Look, State, look};
use crate::dirs;

/// Kernel and limits.
pub fn looks(dir: &Path) -> Vec<Look> {
    let mut looks = vec![kernel()];
    looks.push(match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => look("pidfd", State::Good, "a process can be watched", ""),
        Err(e) => look("pidfd", State::Bad, format!("a process cannot be watched: {e}"), "allow pidfd_open(2) in this sandbox"),
    });
    looks.push(match fs::metadata("/proc/self/ns/pid").and(fs::read("/proc/sys/kernel/random/boot_id")) {
        Ok(_) => look("/proc", State::Good, "it is mounted", ""),
        Err(e) => look(
            "/proc",
            State::Note,
            format!("it does not tell of this process: {e}"),
            "an arena of another boot is not told from this one's",
        ),
    });
    looks.push(file_system(dir));
    let space = getrlimit(Resource::As).current;
    looks.push(match space {
        Some(bytes) if bytes < 1 << 30 => {
            look("address space", State::Note, format!("limited to {} MiB", bytes >> 20), "a namespace takes 64 MiB of it, large ones more")
        }
        _ => look("address space", State::Good, "enough", ""),
    });
    if let Some((used, most)) = memory_limit() {
        let tight = most - used.min(most) < 16 << 20;
        let state = if tight { State::Note } else { State::Good };
        looks.push(look(
            "memory",
            state,
            format!("{} of {} MiB that the control group allows", used >> 20, most >> 20),
            "new sets may fail with ENOMEM",
        ));
    }
    looks
}

fn kernel() -> Look {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0u32));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let state = if version >= (5, 16) { State::Good } else { State::Bad };
    look("kernel", state, format!("Linux {release}"), "5.16 or later is needed")
}

/// Where the namespace is, or would be.
fn file_system(dir: &Path) -> Look {
    let there = dir.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let subject = there.display().to_string();
    if let Err(unfit) = dirs::check_memory(there) {
        return look(&subject, State::Note, unfit.to_string(), "semaphores are slower on a disk; /dev/shm is a good place");
    }
    match statvfs(there) {
        Ok(fs) => {
            let (free, all) = (fs.f_bavail * fs.f_frsize, fs.f_blocks * fs.f_frsize);
            let state = if free < 1 << 20 { State::Bad } else { State::Good };
            look(
                &subject,
                state,
                format!("in memory, {} of {} MiB free", free >> 20, all >> 20),
                "free space there, or new sets fail with ENOMEM",
            )
        }
        Err(e) => look(&subject, State::Bad, e.to_string(), "name another directory with --dir"),
    }
}

/// Memory used by and allowed to this control group.
fn memory_limit() -> Option<(u64, u64)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|l| l.strip_prefix("0::"))?;
    let number = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")).ok()?.trim().parse().ok();
    Some((number("memory.current")?, number("memory.max")?))
}

/// What the programs that this process starts inherit from it.
pub fn process() -> Vec<Look> {
    let mut looks = vec![kernel_semaphores()];
    if rustix::thread::no_new_privs().unwrap_or(false) {
        looks.push(look(
            "privileges",
            State::Note,
            "no_new_privs is set: set-user-id programs gain nothing, and are given the library like others",
            "what needs their privileges (sudo) fails, with and without Manyway",
        ));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
    match field("Seccomp:").as_deref() {
        None | Some("0") => looks.push(look("seccomp", State::Good, "no filter of system calls", "")),
        Some(_) => looks.push(look(
            "seccomp",
            State::Note,
            format!("{} filters of system calls are in force", field("Seccomp_filters:").unwrap_or_else(|| "some".into())),
            "they must allow what docs/limits.md lists, futex(2) above all; a semaphore call that they end is not made",
        )),
    }
    let label = fs::read_to_string("/proc/self/attr/current").unwrap_or_default();
    let label = label.trim_end_matches(['\0', '\n']);
    if fs::read_to_string("/sys/fs/selinux/enforce").is_ok_and(|word| word.trim() == "1") {
        looks.push(look(
            "SELinux",
            State::Note,
            format!("enforced; this process is {label}"),
            "a program that changes its domain when it is executed is given no library, unless the policy says noatsecure",
        ));
    } else if Path::new("/sys/kernel/security/apparmor").exists() || label.ends_with(')') {
        match label {
            "" | "unconfined" => looks.push(look(
                "AppArmor",
                State::Note,
                "this process is not confined; a program with a profile of its own will be",
                "such a profile must allow the library (mr) and the namespace's arena (rw)",
            )),
            _ => looks.push(look(
                "AppArmor",
                State::Note,
                format!("this process is confined by {label}"),
                "the profile must allow the library (mr) and the namespace's arena (rw)",
            )),
        }
    }
    looks
}

/// Whether a program that slips past would find the kernel's semaphores.
fn kernel_semaphores() -> Look {
    const SUBJECT: &str = "kernel's semaphores";
    // The file is there where the kernel has them, in every namespace.
    match fs::read_to_string("/proc/sysvipc/sem") {
        Ok(table) => {
            let sets = table.lines().count().saturating_sub(1);
            look(
                SUBJECT,
                State::Note,
                format!("there are some, {sets} sets: what does not run on Manyway runs on them"),
                "`manyway run --no-kernel` makes it fail aloud, `--report` names it",
            )
        }
        Err(_) => look(SUBJECT, State::Note, "there are none: what does not run on Manyway fails", "`manyway run --report` names it"),
    }
}
