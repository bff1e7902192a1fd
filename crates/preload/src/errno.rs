//! The program's errno.

use core::ffi::{c_int, c_long};

use manyway_sync::Errno;

use crate::arch::weak;

/// Stores an error number where the program's C library keeps it.
pub(crate) fn set(e: Errno) {
    let location = weak!("__errno_location");
    if location.is_null() {
        return; // A program without a C library cannot look at errno either.
    }
    // SAFETY: both glibc and musl define it with this signature, and it returns the calling thread's errno.
    unsafe {
        let location = core::mem::transmute::<*const (), extern "C" fn() -> *mut c_int>(location);
        *location() = e.0;
    }
}

/// What is stored there.
pub(crate) fn get() -> Errno {
    let location = weak!("__errno_location");
    if location.is_null() {
        return Errno(0);
    }
    // SAFETY: as above.
    unsafe { Errno(*core::mem::transmute::<*const (), extern "C" fn() -> *mut c_int>(location)()) }
}

/// What a C function returns for an error: −1, with errno set.
#[cold]
#[inline(never)]
pub(crate) fn fail(e: Errno) -> c_int {
    set(e);
    -1
}

/// The same for syscall(2), where assembly jumps to it.
#[cold]
pub(crate) extern "C" fn fail_long(e: c_int) -> c_long {
    set(Errno(e));
    -1
}
