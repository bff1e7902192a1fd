//! Functions that change what a permission check looks at: the engine asks again at the next call.
//!
//! The C library changes all threads where POSIX says so; setfsuid, setfsgid and capset, and every system call that a program makes by
//! its number (`syscall`), change the calling thread alone.
//!
//! prctl is not among them: nothing that it sets takes part in a permission check before one of these calls or an execve.

use core::ffi::c_int;

use crate::arch::call_then;
use crate::real::Real;
use crate::start;

call_then! {
    /// setuid(2).
    setuid, Real::Setuid as usize, changed
}
call_then! {
    /// setgid(2).
    setgid, Real::Setgid as usize, changed
}
call_then! {
    /// seteuid(2).
    seteuid, Real::Seteuid as usize, changed
}
call_then! {
    /// setegid(2).
    setegid, Real::Setegid as usize, changed
}
call_then! {
    /// setreuid(2).
    setreuid, Real::Setreuid as usize, changed
}
call_then! {
    /// setregid(2).
    setregid, Real::Setregid as usize, changed
}
call_then! {
    /// setresuid(2).
    setresuid, Real::Setresuid as usize, changed
}
call_then! {
    /// setresgid(2).
    setresgid, Real::Setresgid as usize, changed
}
call_then! {
    /// setfsuid(2).
    setfsuid, Real::Setfsuid as usize, thread_changed
}
call_then! {
    /// setfsgid(2).
    setfsgid, Real::Setfsgid as usize, group_changed
}
call_then! {
    /// setgroups(2).
    setgroups, Real::Setgroups as usize, changed
}
call_then! {
    /// initgroups(3).
    initgroups, Real::Initgroups as usize, changed
}
call_then! {
    /// capset(2).
    capset, Real::Capset as usize, thread_changed
}
call_then! {
    /// setns(2): who enters a user namespace has all capabilities there.
    setns, Real::Setns as usize, changed
}

/// After one of them, failed or not: some report failure by their old value only.
pub(crate) extern "C" fn changed(_: c_int, _: usize, _: usize, _: usize) {
    if let Some(e) = start::opened() {
        e.forget_credentials();
    }
}

/// After one that changes the calling thread.
pub(crate) extern "C" fn thread_changed(_: c_int, _: usize, _: usize, _: usize) {
    if let Some(e) = start::opened() {
        e.forget_credentials_of_thread();
    }
}

/// After setfsgid.
pub(crate) extern "C" fn group_changed(_: c_int, _: usize, _: usize, _: usize) {
    if let Some(e) = start::opened() {
        e.forget_group_of_thread();
    }
}
