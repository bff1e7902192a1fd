//! The rules of semaphores as programs. Each asserts what its rule says, and leaves a trace that is compared with the kernel's.

mod args;
mod control;
mod faults;
mod order;
mod perm;
mod status;
mod times;
mod undo;

use std::time::{Duration, Instant};

use manyway_sem::Errno;

use crate::protocol::Res;
use crate::world::{Backend, World};

/// One program.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its test's name: the rule and what it is about.
    pub name: &'static str,
    /// The program.
    pub run: fn(&World),
    /// It passes pointers, reads /proc or has handlers that call semop: C's functions only.
    pub c_only: bool,
    /// It takes several users, or limits of its own.
    pub root: bool,
    /// Limits of its namespace.
    pub limits: Option<[u32; 4]>,
    /// It asserts the kernel's order of handing over, which a barging namespace of Manyway's has not.
    pub strict: bool,
    /// Manyway does not keep the rule: the program says what it does instead, so the traces differ.
    pub differs: bool,
}

impl Scenario {
    const fn c_only(self) -> Scenario {
        Scenario { c_only: true, ..self }
    }
    const fn root(self) -> Scenario {
        Scenario { root: true, ..self }
    }
    const fn limits(self, limits: [u32; 4]) -> Scenario {
        Scenario { limits: Some(limits), root: true, ..self }
    }
    const fn strict(self) -> Scenario {
        Scenario { strict: true, ..self }
    }
    const fn differs(self) -> Scenario {
        Scenario { differs: true, ..self }
    }
    /// True when it can be executed on this backend at all.
    pub fn fits(&self, backend: Backend) -> bool {
        !(self.c_only && backend == Backend::Engine)
    }
}

const fn scenario(name: &'static str, run: fn(&World)) -> Scenario {
    Scenario { name, run, c_only: false, root: false, limits: None, strict: false, differs: false }
}

/// Every scenario.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    [args::ALL, undo::ALL, perm::ALL, control::ALL, order::ALL, times::ALL, status::ALL, faults::ALL].into_iter().flatten()
}

const DONE: Res = Ok(0);
const EAGAIN: Res = Err(Errno::EAGAIN);
const EINVAL: Res = Err(Errno::EINVAL);
const ERANGE: Res = Err(Errno::ERANGE);
const EINTR: Res = Err(Errno::EINTR);
const EIDRM: Res = Err(Errno::EIDRM);
const EACCES: Res = Err(Errno::EACCES);
const EPERM: Res = Err(Errno::EPERM);
const EFAULT: Res = Err(Errno::EFAULT);
const EFBIG: Res = Err(Errno::EFBIG);
const E2BIG: Res = Err(Errno::E2BIG);
const EEXIST: Res = Err(Errno::EEXIST);
const ENOENT: Res = Err(Errno::ENOENT);
const ENOSPC: Res = Err(Errno::ENOSPC);

/// Long enough that no step of a test outlasts it.
const LONG: Duration = Duration::from_secs(600);

/// Waits until a condition holds that nothing announces.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
