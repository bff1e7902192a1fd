//! What the tasks of a crowd share, and how they come into being: the one place of the benchmarks that forks.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use rustix::io::Errno;
use rustix::thread::futex;

use crate::Error;

/// Pairs {value, count} that a task's histogram can have at most: two digits up to a minute.
pub const PAIRS: usize = 8192;

/// The words that all tasks look at.
#[repr(C, align(64))]
pub struct Head {
    /// Tasks that are ready to begin.
    pub ready: Word,
    /// 1: begin.
    pub gate: Word,
    /// Tasks that have ended.
    pub ended: Word,
    /// 1: no more.
    pub stop: Word,
    /// When the time began, monotonic nanoseconds.
    pub began: AtomicU64,
    /// For the script's own use.
    pub own: Word,
}

/// A word on a line of its own that can be waited for.
#[repr(C, align(64))]
pub struct Word(AtomicU32);

impl Word {
    /// Its value.
    #[inline(always)]
    pub fn get(&self) -> u32 {
        self.0.load(Acquire)
    }
    /// The word, for atomic operations.
    pub fn atomic(&self) -> &AtomicU32 {
        &self.0
    }
    /// Adds one and wakes all who wait.
    pub fn raise(&self) {
        self.0.fetch_add(1, AcqRel);
        self.wake();
    }
    /// Stores a value and wakes all who wait.
    pub fn set(&self, value: u32) {
        self.0.store(value, Release);
        self.wake();
    }
    /// Wakes all who wait.
    pub fn wake(&self) {
        // Fails for no good address.
        let _ = futex::wake(&self.0, futex::Flags::empty(), i32::MAX as u32);
    }
    /// Waits until the value fulfils the condition; `until` (monotonic nanoseconds) ends it: false.
    pub fn wait_until(&self, until: Option<u64>, good: impl Fn(u32) -> bool) -> bool {
        loop {
            let now = self.get();
            if good(now) {
                return true;
            }
            let left = until.map(|at| at.saturating_sub(crate::machine::now_ns()));
            if left == Some(0) {
                return false;
            }
            // A slice of the time: whoever should change the word may be gone.
            let slice = left.unwrap_or(u64::MAX).min(100_000_000);
            let slice = futex::Timespec { tv_sec: 0, tv_nsec: slice as _ };
            match futex::wait(&self.0, futex::Flags::empty(), now, Some(&slice)) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(e) => panic!("futex: {e}"),
            }
        }
    }
}

/// What a task leaves.
#[repr(C, align(64))]
pub struct Line {
    /// What it counted.
    pub count: AtomicU64,
    /// When it ended, monotonic nanoseconds.
    pub ended: AtomicU64,
    /// 0, or why it failed: errno.
    pub error: AtomicI32,
    /// For the script's own use, and to wait for.
    pub own: AtomicU32,
    /// What it used of the CPU, nanoseconds.
    pub cpu: AtomicU64,
    /// How often it slept, and how often it was taken off its CPU.
    pub switches: [AtomicU64; 2],
    /// How many pairs of the histogram there are.
    pub pairs: AtomicU64,
    /// The pairs: value, count.
    pub histogram: [AtomicU64; 2 * PAIRS],
}

/// The shared memory of a crowd, all zero at first. Pages that nobody touches cost nothing.
pub struct Stage {
    at: NonNull<Head>,
    tasks: usize,
}

// SAFETY: all that is reached through it is atomic.
unsafe impl Sync for Stage {}
// SAFETY: as above; the mapping belongs to no thread.
unsafe impl Send for Stage {}

impl Stage {
    fn bytes(tasks: usize) -> usize {
        size_of::<Head>() + tasks * size_of::<Line>()
    }

    /// Memory for so many tasks.
    pub fn new(tasks: usize) -> Result<Stage, Error> {
        // SAFETY: a new mapping at a place of the system's choice.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Stage::bytes(tasks),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        match NonNull::new(at) {
            Some(at) if at.as_ptr() != libc::MAP_FAILED => Ok(Stage { at: at.cast(), tasks }),
            _ => Err(Error::io("cannot map memory for a crowd")(std::io::Error::last_os_error())),
        }
    }

    /// The lines, one of each task.
    pub fn lines(&self) -> &[Line] {
        // SAFETY: they follow the head in the mapping, which lives as long as `self`, and zero is a value of each of their fields; all are
        // atomic.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(1).cast(), self.tasks) }
    }
}

impl Deref for Stage {
    type Target = Head;
    fn deref(&self) -> &Head {
        // SAFETY: the mapping begins with it, and zero is a value of each of its fields; all are atomic.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), Stage::bytes(self.tasks)) };
    }
}

/// What a thread has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Of the CPU, nanoseconds.
    pub cpu: u64,
    /// How often it slept, and how often it was taken off its CPU.
    pub switches: [u64; 2],
}

impl Used {
    /// Of the calling thread.
    pub fn now() -> Used {
        // SAFETY: zero is a value of a rusage, which the call fills.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` outlives the call.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        Used { cpu: crate::machine::thread_cpu_ns(), switches: [usage.ru_nvcsw as u64, usage.ru_nivcsw as u64] }
    }
}

/// A child of this process. Killed and waited for when dropped.
pub struct Child(libc::pid_t);

impl Child {
    /// Forks a child that does `work` and exits with what it returns. It dies with the thread that calls this.
    pub fn start(work: impl FnOnce() -> i32) -> Result<Child, Error> {
        // SAFETY: a worker has one thread only when it starts a crowd of processes, so the child may do whatever its parent may.
        match unsafe { libc::fork() } {
            -1 => Err(Error::io("cannot fork a task")(std::io::Error::last_os_error())),
            0 => {
                let signal = rustix::process::Signal::KILL;
                let code = if rustix::process::set_parent_process_death_signal(Some(signal)).is_ok() { work() } else { 125 };
                // SAFETY: ends this process, without running what its parent would run at its end.
                unsafe { libc::_exit(code) }
            }
            pid => Ok(Child(pid)),
        }
    }

    /// Waits for its end: its exit status, or None when a signal killed it.
    pub fn wait(mut self) -> Option<i32> {
        self.reap()
    }

    /// True when it has ended, by whatever; it is not waited for.
    pub fn has_ended(&self) -> bool {
        // SAFETY: zero is a value of a siginfo_t, which the call fills.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` outlives the call; WNOWAIT leaves the child to be waited for.
        let r = unsafe { libc::waitid(libc::P_PID, self.0 as libc::id_t, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) };
        // SAFETY: waitid fills this field, or leaves it 0 when the child lives.
        r == 0 && unsafe { info.si_pid() } == self.0
    }

    fn reap(&mut self) -> Option<i32> {
        if self.0 == 0 {
            return None;
        }
        let mut status = 0;
        // SAFETY: the status outlives the call.
        while unsafe { libc::waitpid(self.0, &raw mut status, 0) } == -1
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
        {}
        self.0 = 0;
        libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.0 != 0 {
            // SAFETY: a child that has not been waited for, so the number is its.
            unsafe { libc::kill(self.0, libc::SIGKILL) };
            self.reap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_does_is_seen() {
        let stage = Stage::new(2).unwrap();
        let child = Child::start(|| {
            stage.lines()[1].count.store(7, Relaxed);
            stage.ready.raise();
            i32::from(!stage.gate.wait_until(None, |gate| gate == 1))
        });
        let child = child.unwrap();
        assert!(stage.ready.wait_until(None, |ready| ready == 1));
        stage.gate.set(1);
        assert_eq!(child.wait(), Some(0));
        assert_eq!(stage.lines()[1].count.load(Relaxed), 7);
    }
}
