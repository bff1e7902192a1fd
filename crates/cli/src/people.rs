//! Names of processes and users.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;

/// A process that a namespace speaks of. Its number was read from shared memory: it is looked at, never signalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Its name, while it lives.
    pub comm: Option<String>,
    /// Whether there is a process with this id now.
    pub alive: bool,
}

impl Process {
    /// Looks at process `pid`.
    pub fn look(pid: u32) -> Process {
        let alive = is_alive(pid);
        let comm = if alive { fs::read_to_string(format!("/proc/{pid}/comm")).ok() } else { None };
        Process { pid, comm: comm.map(|name| printable(name.trim_end())), alive }
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.comm {
            Some(comm) => write!(f, "{} ({comm})", self.pid),
            None if self.alive => write!(f, "{}", self.pid),
            None => write!(f, "{} (dead)", self.pid),
        }
    }
}

/// Whether a process with this id lives: a zombie does not, a zombie leader whose threads go on does.
pub fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => {
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            !matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
        }
        // Where pidfds are missing, /proc answers.
        Err(rustix::io::Errno::NOSYS) => fs::exists(format!("/proc/{}", pid.as_raw_nonzero())).unwrap_or(false),
        Err(_) => false,
    }
}

/// Names looked up so far: thousands of semaphores have few users. For one view of a namespace; the next one looks again.
pub struct Names {
    processes: HashMap<u32, Process>,
    users: HashMap<u32, String>,
}

impl Names {
    /// Knows the users, and no process yet.
    pub fn new() -> Names {
        Names { processes: HashMap::new(), users: users(&fs::read_to_string("/etc/passwd").unwrap_or_default()) }
    }

    /// The process with this id.
    pub fn process(&mut self, pid: u32) -> Process {
        self.processes.entry(pid).or_insert_with(|| Process::look(pid)).clone()
    }

    /// A user's name, or the number when /etc/passwd has none.
    pub fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

/// The number of the user with this name, or that is this number.
pub fn user_id(user: &str) -> Option<u32> {
    id("passwd", user)
}
/// The number of the group with this name, or that is this number.
pub fn group_id(group: &str) -> Option<u32> {
    id("group", group)
}
/// A group's name, or the number when there is none.
pub fn group_name(gid: u32) -> String {
    users(&fs::read_to_string("/etc/group").unwrap_or_default()).remove(&gid).unwrap_or_else(|| gid.to_string())
}

fn id(database: &str, name: &str) -> Option<u32> {
    // A name may look like a number; -1 is nobody's.
    let known = |text: &str| users(text).into_iter().find(|(_, known)| known == name).map(|(id, _)| id);
    known(&fs::read_to_string(format!("/etc/{database}")).unwrap_or_default())
        .or_else(|| name.parse().ok().filter(|&id| id != u32::MAX))
        // Users and groups of a directory service.
        .or_else(|| known(&String::from_utf8_lossy(&Command::new("getent").arg(database).arg(name).output().ok()?.stdout)))
}

/// Names by their numbers; of groups likewise.
fn users(passwd: &str) -> HashMap<u32, String> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, printable(name)))
    };
    // The first of several names is the one that other programs show.
    passwd.lines().rev().filter_map(entry).collect()
}

/// A process chooses its name freely: control characters in it must not reach the terminal.
pub fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn life_and_death() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(0));
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        // A zombie, until it is waited for, is dead too.
        let fd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
        assert!(!is_alive(pid));
        child.wait().unwrap();
        assert!(!is_alive(pid));
    }

    #[test]
    fn names() {
        let users = users("root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1000:1000::/:/bin/sh\n");
        assert_eq!(users.get(&1000).map(String::as_str), Some("ann"));
        assert_eq!(users.get(&1001), None);
        assert_eq!(
            (user_id("root"), group_id("root"), user_id("1234567"), group_id("1234567")),
            (Some(0), Some(0), Some(1234567), Some(1234567))
        );
        assert_eq!((user_id(""), user_id("4294967295"), user_id("no-such-user-at-all")), (None, None, None));
        assert_eq!(printable("a\x1b[2Jb"), "a?[2Jb");
    }
}
