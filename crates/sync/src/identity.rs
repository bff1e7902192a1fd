//! Who a process is, so that a recycled pid is not taken for it.

use core::fmt::Write;

use crate::path::Path;
use crate::{Errno, sys};

/// What tells a process from a later one with the same pid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Inode of its pidfd on pidfs (Linux 6.9), unique since boot; 0 when there is none.
    pub inode: u64,
    /// Start time in clock ticks since boot (field 22 of /proc/PID/stat); 0 when unknown.
    pub start: u64,
}

const PIDFS_MAGIC: u64 = 0x5049_4446;

/// Start time and state letter of a process, from /proc/PID/stat.
fn proc_stat(pid: u32) -> Result<(u64, u8), Errno> {
    let mut path = Path::new();
    let _ = write!(path, "/proc/{pid}/stat");
    let mut buf = [0u8; 1024];
    let text = sys::read_file(path.as_c_str()?, &mut buf)?;
    // The name in parentheses may contain anything; fields count from the last ')'.
    let after = text.iter().rposition(|&b| b == b')').ok_or(Errno::EINVAL)? + 1;
    let mut fields = text[after..].split(|&b| b == b' ').filter(|f| !f.is_empty());
    let state = fields.next().and_then(|f| f.first()).copied().ok_or(Errno::EINVAL)?;
    let start = fields.nth(18).and_then(|f| core::str::from_utf8(f).ok()).and_then(|s| s.parse().ok()).ok_or(Errno::EINVAL)?;
    Ok((start, state))
}

fn pidfs_inode(fd: &sys::Fd) -> u64 {
    match sys::fs_type(fd) {
        Ok(PIDFS_MAGIC) => sys::fstat(fd).map_or(0, |s| s.ino),
        _ => 0,
    }
}

impl Identity {
    /// The identity of a process that runs now.
    pub fn of(pid: u32) -> Identity {
        #[cfg(shuttle)]
        if let Some(inode) = crate::sim::inode_of(pid) {
            return Identity { inode, start: 0 };
        }
        let inode = sys::pidfd_open(pid).map_or(0, |fd| pidfs_inode(&fd));
        // The start time costs an open, a read and a close: only where pidfs does not answer.
        let start = if inode == 0 { proc_stat(pid).map_or(0, |s| s.0) } else { 0 };
        Identity { inode, start }
    }

    /// True when the process `pid` of this identity has ended (all its threads have; a zombie has ended, a zombie *leader* of living
    /// threads has not). False when that cannot be found out.
    pub fn is_gone(self, pid: u32) -> bool {
        #[cfg(shuttle)]
        if crate::sim::is_running() {
            return crate::sim::is_gone(pid, self.inode);
        }
        match sys::pidfd_open(pid) {
            Err(Errno::ESRCH) => true,
            // The number is a thread's now, no process's (EINVAL before Linux 6.15).
            Err(Errno::EINVAL | Errno::ENOENT) => true,
            Err(_) => match proc_stat(pid) {
                Ok((start, state)) => (self.start != 0 && start != self.start) || state == b'X',
                Err(Errno::ENOENT) => !sys::thread_exists(pid, pid),
                Err(_) => false,
            },
            Ok(fd) => {
                if sys::readable(&fd) == Ok(true) {
                    return true;
                }
                if self.inode != 0 {
                    let now = pidfs_inode(&fd);
                    return now != 0 && now != self.inode;
                }
                self.start != 0 && proc_stat(pid).is_ok_and(|(start, _)| start != self.start)
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn a_number_that_is_a_threads_is_no_process() {
        let own = std::process::id();
        let identity = Identity::of(own);
        assert!(!identity.is_gone(own));
        let tid = std::thread::spawn(move || {
            let tid = sys::gettid();
            // Of a process that had this number before.
            (tid, identity.is_gone(tid))
        });
        let (tid, gone) = tid.join().expect("it does not panic");
        assert!(tid != own && gone);
    }
}
