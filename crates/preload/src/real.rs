//! The functions of the C library behind those that this library defines under the same names.

use core::ffi::{CStr, c_char, c_int, c_void};

use manyway_sync::Errno;
use manyway_sync::atomic::{AtomicUsize, Ordering};

use crate::arch::weak;
use crate::{errno, linkmap};

macro_rules! functions {
    ($($id:ident = $name:literal,)*) => {
        /// A number for each of them.
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub(crate) enum Real { $($id,)* }

        const NAMES: &[&CStr] = &[$($name,)*];
    };
}

functions! {
    Wait = c"wait",
    Waitpid = c"waitpid",
    Wait3 = c"wait3",
    Wait4 = c"wait4",
    Waitid = c"waitid",
    Vfork = c"vfork",
    Unshare = c"unshare",
    Dlopen = c"dlopen",
    Setuid = c"setuid",
    Setgid = c"setgid",
    Seteuid = c"seteuid",
    Setegid = c"setegid",
    Setreuid = c"setreuid",
    Setregid = c"setregid",
    Setresuid = c"setresuid",
    Setresgid = c"setresgid",
    Setfsuid = c"setfsuid",
    Setfsgid = c"setfsgid",
    Setgroups = c"setgroups",
    Initgroups = c"initgroups",
    Capset = c"capset",
    Setns = c"setns",
    Execve = c"execve",
    Execvpe = c"execvpe",
    Fexecve = c"fexecve",
    Execveat = c"execveat",
    PosixSpawn = c"posix_spawn",
    PosixSpawnp = c"posix_spawnp",
    Open = c"open",
    Open64 = c"open64",
    Openat = c"openat",
    Openat64 = c"openat64",
    OpenChecked = c"__open_2",
    Open64Checked = c"__open64_2",
    OpenatChecked = c"__openat_2",
    Openat64Checked = c"__openat64_2",
    Fopen = c"fopen",
    Fopen64 = c"fopen64",
    Fdopen = c"fdopen",
    Fileno = c"fileno",
}

/// Their addresses, 0 where not looked for yet. Assembly reads it.
pub(crate) static TABLE: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Looks for all of them: once, when the program starts, so that no later call has to (it may be in a signal handler).
pub(crate) fn resolve_all() {
    for i in 0..NAMES.len() {
        resolve(i);
    }
}

/// The address of function number `index`, of the next library that defines it after this one.
pub(crate) extern "C" fn resolve(index: usize) -> usize {
    let found = next(NAMES[index]);
    let address = if found == 0 { missing as *const () as usize } else { found };
    TABLE[index].store(address, Ordering::Relaxed);
    address
}

/// The address of one of them, for a call from Rust.
pub(crate) fn address(which: Real) -> usize {
    match TABLE[which as usize].load(Ordering::Relaxed) {
        0 => resolve(which as usize),
        address => address,
    }
}

fn next(name: &CStr) -> usize {
    const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
    let dlsym = weak!("dlsym");
    if !dlsym.is_null() {
        // SAFETY: glibc and musl define it so. It may be called here: not from a signal handler, and it does not call this library.
        let dlsym = unsafe { core::mem::transmute::<*const (), extern "C" fn(*mut c_void, *const c_char) -> *mut c_void>(dlsym) };
        return dlsym(RTLD_NEXT, name.as_ptr()) as usize;
    }
    let debug = weak!("_r_debug").cast::<linkmap::Debug>();
    if debug.is_null() {
        return 0;
    }
    // SAFETY: the dynamic linker's own; at start, or when first called, nobody unloads libraries that this program needs.
    unsafe { linkmap::find_after(debug, &raw const _DYNAMIC, name) }
}

unsafe extern "C" {
    /// This library's dynamic section; the linker defines it.
    static _DYNAMIC: [usize; 2];
}

/// The address of this library's dynamic section.
pub(crate) fn dynamic_section() -> *const u8 {
    (&raw const _DYNAMIC).cast()
}

/// Stands for a function that the program's C library does not have.
extern "C" fn missing() -> c_int {
    errno::fail(Errno::ENOSYS)
}
