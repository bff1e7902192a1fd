//! dlopen. An object opened with RTLD_DEEPBIND looks for symbols in itself and its dependencies first, so it would find the C
//! library's semaphores; some programs open their plug-ins so. The flag is taken off for objects that use semaphores.

use core::ffi::{CStr, c_char, c_int};

use crate::arch::jump_after;
use crate::elf;
use crate::real::Real;

const RTLD_DEEPBIND: c_int = 8;

jump_after! {
    /// dlopen(3). Entered by a jump, because the real one looks at its return address to know in whose name it searches.
    dlopen, Real::Dlopen as usize, flags
}

/// The flags to open `file` with. Only a name with a slash says which file is meant.
pub(crate) extern "C" fn flags(file: *const c_char, flags: c_int) -> c_int {
    if flags & RTLD_DEEPBIND == 0 || file.is_null() {
        return flags;
    }
    // SAFETY: dlopen's first argument is null or a string.
    let file = unsafe { CStr::from_ptr(file) };
    if file.to_bytes().contains(&b'/') && elf::names_any(file, &[b"semget", b"semop", b"semtimedop", b"semctl"]) {
        flags & !RTLD_DEEPBIND
    } else {
        flags
    }
}
