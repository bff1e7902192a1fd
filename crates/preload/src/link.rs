//! What `manyway.h` declares beyond the standard names: for programs that are linked with the library (`-lmanyway`) instead of started with it.

use core::ffi::{CStr, c_char, c_int, c_void};

use manyway_sem::abi::{SemBuf, Timespec};
use manyway_sync::Errno;

use crate::{arch, errno, exports, start};

const CREATE: c_int = 1;

/// `manyway_open`: gives the program the namespace in a directory, if it has none yet.
#[unsafe(no_mangle)]
pub extern "C" fn manyway_open(dir: *const c_char, flags: c_int) -> c_int {
    let open = || {
        if flags & !CREATE != 0 {
            return Err(Errno::EINVAL);
        }
        if dir.is_null() {
            // What MANYWAY_DIR names was opened at the start, or cannot be.
            return start::engine().map(|_| 0);
        }
        // SAFETY: the caller's string.
        let dir = unsafe { CStr::from_ptr(dir) };
        // What the program executes may have another working directory.
        if dir.to_bytes().first() != Some(&b'/') {
            return Err(Errno::EINVAL);
        }
        start::open_late(dir, flags & CREATE != 0).map(|()| 0)
    };
    open().unwrap_or_else(errno::fail)
}

/// `manyway_semget`: semget(2), also where another library's comes first.
#[unsafe(no_mangle)]
pub extern "C" fn manyway_semget(key: c_int, nsems: c_int, flags: c_int) -> c_int {
    arch::when_cancelled!(exports::cancelled);
    exports::semget(key, nsems, flags)
}

/// `manyway_semop`: semop(2).
#[unsafe(no_mangle)]
pub extern "C" fn manyway_semop(id: c_int, ops: *const SemBuf, nsops: usize) -> c_int {
    arch::when_cancelled!(exports::cancelled);
    exports::semop(id, ops, nsops)
}

/// `manyway_semtimedop`: semtimedop(2).
#[unsafe(no_mangle)]
pub extern "C" fn manyway_semtimedop(id: c_int, ops: *const SemBuf, nsops: usize, timeout: *const Timespec) -> c_int {
    arch::when_cancelled!(exports::cancelled);
    exports::semtimedop(id, ops, nsops, timeout)
}

/// `manyway_semctl`: semctl(2).
#[unsafe(no_mangle)]
pub extern "C" fn manyway_semctl(id: c_int, num: c_int, cmd: c_int, arg: *mut c_void) -> c_int {
    arch::when_cancelled!(exports::cancelled);
    exports::semctl(id, num, cmd, arg)
}
