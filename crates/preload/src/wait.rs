//! The wait family: when it reports a death, the undo of the dead is done, as with the kernel's semaphores.

use core::ffi::c_int;

use crate::arch::call_then;
use crate::real::Real;
use crate::{start, tls};

call_then! {
    /// wait(2).
    wait, Real::Wait as usize, waited
}
call_then! {
    /// waitpid(2).
    waitpid, Real::Waitpid as usize, waited
}
call_then! {
    /// wait3(2).
    wait3, Real::Wait3 as usize, waited
}
call_then! {
    /// wait4(2).
    wait4, Real::Wait4 as usize, waited
}
call_then! {
    /// waitid(2).
    waitid, Real::Waitid as usize, waited_id
}

/// After one that returns a process id. A process that only stopped is found alive.
pub(crate) extern "C" fn waited(pid: c_int, _: usize, _: usize, _: usize) {
    if let (1.., Some(e)) = (pid, start::opened()) {
        e.reap(&tls::block().thread, Some(pid as u32));
    }
}

/// The beginning of a `siginfo_t` about a child.
#[repr(C)]
pub(crate) struct ChildInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    pad: c_int,
    pid: c_int,
}

/// After waitid, whose third argument tells the process; with a null there, which Linux allows, nothing does.
pub(crate) extern "C" fn waited_id(result: c_int, _: usize, _: usize, info: *const ChildInfo) {
    let (0, Some(e)) = (result, start::opened()) else { return };
    // SAFETY: null or filled by the call before.
    let pid = unsafe { info.as_ref() }.map(|i| i.pid as u32);
    if pid != Some(0) {
        e.reap(&tls::block().thread, pid);
    }
}
