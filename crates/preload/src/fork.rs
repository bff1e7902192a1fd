//! vfork and unshare. (fork needs nothing: the engine finds by itself that it is in a child.)

use core::ffi::c_int;

use crate::arch::{call_then, jump_after};
use crate::real::Real;
use crate::{start, tls};

jump_after! {
    /// vfork(2). The child borrows its parent's memory and stack, so that the real one must return to the caller itself.
    vfork, Real::Vfork as usize, before_vfork
}

/// The child will find its parent's block in its memory, and the parent then what the child made of it.
pub(crate) extern "C" fn before_vfork(_: usize, second: usize) -> usize {
    if let Some(e) = start::opened() {
        e.distrust_context();
    }
    second
}

call_then! {
    /// unshare(2).
    unshare, Real::Unshare as usize, unshared
}

/// After unshare: who leaves the list of adjustments, or the IPC namespace, has its adjustments applied at once.
pub(crate) extern "C" fn unshared(result: c_int, flags: usize, _: usize, _: usize) {
    const CLONE_SYSVSEM: usize = 0x0004_0000;
    const CLONE_NEWIPC: usize = 0x0800_0000;
    if let (0, Some(e)) = (result, start::opened()) {
        if flags & (CLONE_SYSVSEM | CLONE_NEWIPC) != 0 {
            e.apply_own_undo(&tls::block().thread);
        }
        // A new user namespace brings all capabilities in it, and none outside.
        e.forget_capabilities();
    }
}
