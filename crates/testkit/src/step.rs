//! Executing a call in a child process instruction by instruction, to kill it after any of them.
//!
//! The first execution of a call is stepped through from its begin to its end and gives its [`Path`]. A later one comes to the k-th
//! instruction quickly: by a breakpoint at the last instruction before it that the path meets for the first time, and single steps from there.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use libc::user_regs_struct;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// Rounds of a loop in which the state is looked at after each instruction.
const LOOK: u32 = 64;
/// Farther than this a breakpoint is quicker than single steps.
const FAR: usize = 8;
/// A child that does not come to a breakpoint by then sleeps.
const PATIENCE: Duration = Duration::from_secs(1);
/// A child that does not come back from the kernel by then sleeps.
const MOMENT: Duration = Duration::from_millis(2);
/// One byte: INT3.
const BREAKPOINT: i64 = 0xcc;

/// Where a child stands after some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// In the call.
    Inside,
    /// The call has returned.
    End,
    /// Asleep in the kernel, within its last step.
    Asleep,
}

/// A child process, stopped somewhere in a call. The thread that forked it is the one that may move it. Dropped, it is killed and reaped.
#[derive(Debug)]
pub struct Stepped {
    pid: Pid,
}

impl Stepped {
    /// Forks a child that calls `setup` and stops in front of `call`.
    ///
    /// Other threads of this process may hold the allocator's lock at that moment: what the child calls must not allocate.
    pub fn start<T>(setup: impl FnOnce() -> T, call: impl FnOnce(T)) -> Stepped {
        // SAFETY: the child runs the two functions, which keep off what other threads may have locked, and ends by _exit.
        match unsafe { fork() }.expect("fork") {
            ForkResult::Child => child(setup, call),
            ForkResult::Parent { child: pid } => {
                let child = Stepped { pid };
                child.wait();
                ptrace::setoptions(pid, Options::PTRACE_O_EXITKILL).expect("the child is ours and stopped");
                child
            }
        }
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw() as u32
    }

    /// Executes one instruction.
    pub fn step(&self) {
        ptrace::step(self.pid, None).expect("the child is stopped");
        self.wait();
    }

    /// Executes so many instructions of the call, if it has them and does not go to sleep before; and how many it was. To be called once, in
    /// front of the call.
    pub fn advance(&self, instructions: usize) -> (At, usize) {
        let mut regs = self.registers();
        let end = regs.rip;
        for n in 1..=instructions {
            if self.goes_to_sleep(&regs) {
                ptrace::step(self.pid, None).expect("the child is stopped");
                if !self.wait_for(MOMENT) {
                    return (At::Asleep, n);
                }
            } else {
                self.step();
            }
            regs = self.registers();
            if regs.rip == end {
                return (At::End, n);
            }
        }
        (At::Inside, instructions)
    }

    /// Kills the child where it stands, and leaves it to be reaped.
    pub fn kill(&self) {
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    fn registers(&self) -> user_regs_struct {
        ptrace::getregs(self.pid).expect("the child is stopped")
    }

    /// True when the next instruction is futex(FUTEX_WAIT).
    fn goes_to_sleep(&self, regs: &user_regs_struct) -> bool {
        const SYSCALL: i64 = 0x050f;
        (regs.rax, regs.rsi) == (libc::SYS_futex as u64, libc::FUTEX_WAIT as u64)
            && ptrace::read(self.pid, regs.rip as ptrace::AddressType).is_ok_and(|code| code & 0xffff == SYSCALL)
    }

    /// Executes up to the instruction at `address`, exclusive. False: the call ended without meeting it.
    fn run_to(&self, address: u64) -> bool {
        let at = address as ptrace::AddressType;
        let code = ptrace::read(self.pid, at).expect("the path's instructions are there");
        ptrace::write(self.pid, at, code & !0xff | BREAKPOINT).expect("code can be changed");
        ptrace::cont(self.pid, None).expect("the child is stopped");
        if !self.wait_for(PATIENCE) {
            return false;
        }
        ptrace::write(self.pid, at, code).expect("as before");
        let mut regs = self.registers();
        if regs.rip != address + 1 {
            return false;
        }
        regs.rip = address;
        ptrace::setregs(self.pid, regs).expect("the child is stopped");
        true
    }

    /// Executes the whole call, or as much of it as is done in this time.
    pub fn run(&self, time: Duration) {
        ptrace::cont(self.pid, None).expect("the child is stopped");
        self.wait_for(time);
    }

    fn wait(&self) {
        match waitpid(self.pid, None).expect("the child is ours") {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            other => panic!("the child should have been stopped by a trap: {other:?}"),
        }
    }

    /// The same, in vain when the child sleeps.
    fn wait_for(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)).expect("the child is ours") {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => return true,
                WaitStatus::StillAlive => std::thread::sleep(Duration::from_micros(20)),
                other => panic!("the child should have been stopped by a trap: {other:?}"),
            }
        }
        false
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

fn child<T>(setup: impl FnOnce() -> T, call: impl FnOnce(T)) -> ! {
    let run = || {
        ptrace::traceme().expect("a parent that traces");
        let made = setup();
        breakpoint();
        call(made);
        breakpoint();
    };
    let status = if catch_unwind(AssertUnwindSafe(run)).is_ok() { 0 } else { 101 };
    // SAFETY: ends the child without running what belongs to its parent.
    unsafe { libc::_exit(status) }
}

/// True for the executable's own code: libraries are mapped far away.
fn in_this_program(address: u64) -> bool {
    address.abs_diff(breakpoint as *const () as u64) < 1 << 30
}

#[inline(never)]
fn breakpoint() {
    // SAFETY: stops the process; its tracer lets it go on.
    unsafe { std::arch::asm!("int3") };
}

/// The instructions of a call.
#[derive(Debug, Default)]
pub struct Path {
    /// The address of each one.
    at: Vec<u64>,
    /// For each, the last one up to it whose address the path meets for the first time.
    landmark: Vec<usize>,
    /// For each, how often the path has met its address, itself included.
    visits: Vec<u32>,
    /// Whether the state was another one after so many instructions than one earlier.
    changed: Vec<bool>,
}

impl Path {
    /// Steps through a whole call (or until it has slept once). `state` tells what the call is there to change.
    pub fn record<S: PartialEq>(child: Stepped, mut state: impl FnMut() -> S) -> Path {
        let mut path = Path::default();
        let mut seen = HashMap::new();
        let mut last = state();
        let mut regs = child.registers();
        // Behind the breakpoint, where the second one stops the child too.
        let end = regs.rip;
        let mut slept = false;
        loop {
            let k = path.at.len();
            let visits = *seen.entry(regs.rip).and_modify(|n| *n += 1).or_insert(1);
            // The vDSO's clocks take another path each time.
            let landmark = in_this_program(regs.rip) && visits == 1;
            path.landmark.push(if landmark || k == 0 { k } else { path.landmark[k - 1] });
            path.at.push(regs.rip);
            path.visits.push(visits);
            // What a loop changes late is put down to the instruction behind it: to look is what takes the time.
            let now = (visits <= LOOK).then(&mut state);
            path.changed.push(now.is_some_and(|now| std::mem::replace(&mut last, now) != last));
            if slept {
                return path;
            }
            slept = child.goes_to_sleep(&regs);
            child.step();
            regs = child.registers();
            if regs.rip == end {
                return path;
            }
        }
    }

    /// The number of instructions.
    pub fn len(&self) -> usize {
        self.at.len()
    }
    /// A call has at least one instruction.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }
    /// True when the state after `k` instructions is not the one after `k` − 1.
    pub fn changed(&self, k: usize) -> bool {
        self.changed[k]
    }
    /// How often the instruction behind the first `k` has been met up to there: in a loop, the number of its round.
    pub fn visits(&self, k: usize) -> u32 {
        self.visits[k]
    }
    /// The address of the instruction behind the first `k`.
    pub fn at(&self, k: usize) -> u64 {
        self.at[k]
    }

    /// Brings a child that stands in front of the call behind its first `k` instructions. False: it took another path (a second has
    /// passed, and there is a time to store or none).
    #[must_use]
    pub fn walk(&self, child: &Stepped, k: usize) -> bool {
        let mark = self.landmark[k];
        let mut done = 0;
        if mark > FAR {
            if !child.run_to(self.at[mark]) {
                return false;
            }
            done = mark;
        }
        for _ in done..k {
            child.step();
        }
        child.registers().rip == self.at[k]
    }
}
