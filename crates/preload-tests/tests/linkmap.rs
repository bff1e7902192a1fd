//! The search for a function without dlsym, against dlsym.

use std::ffi::{CStr, c_char, c_void};

#[path = "../../preload/src/linkmap.rs"]
mod linkmap;

unsafe extern "C" {
    static _r_debug: linkmap::Debug;
    static _DYNAMIC: [usize; 2];
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// RTLD_NEXT: after this program.
const NEXT: *mut c_void = -1isize as *mut c_void;

fn both(name: &CStr) -> (usize, usize) {
    // SAFETY: the dynamic linker's list, which does not change here; dlsym with a string.
    unsafe { (linkmap::find_after(&raw const _r_debug, &raw const _DYNAMIC, name), dlsym(NEXT, name.as_ptr()) as usize) }
}

#[test]
fn finds_what_dlsym_finds() {
    for name in [
        c"wait",
        c"waitpid",
        c"wait3",
        c"wait4",
        c"waitid",
        c"vfork",
        c"unshare",
        c"setuid",
        c"setresgid",
        c"initgroups",
        c"capset",
        c"getpid",
        c"_Unwind_Backtrace",
        c"pthread_create",
    ] {
        let (found, expected) = both(name);
        assert!(found != 0 && found == expected, "{name:?}: {found:x}, {expected:x}");
    }
}

#[test]
fn finds_nothing_where_there_is_nothing() {
    for name in [c"", c"semantics", c"manyway_no_such_function", c"main"] {
        assert_eq!(both(name), (0, 0), "{name:?}");
    }
}
