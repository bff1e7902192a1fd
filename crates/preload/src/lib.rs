//! System V semaphores of Manyway as a library to be preloaded: `semget`, `semop`, `semtimedop` and `semctl` of the C library
//! are answered from a namespace in shared memory instead of by the kernel.
//!
//! The path of one call, a file each: `exports` (the C functions) → `user` (is the caller's memory there?) and `decode`
//! (what do the bytes mean) → the engine. Around it, what a program must not notice: `signal` and `trampoline` (handlers
//! never run in a locked section), `wait` (a reaped process's undo is done), `credentials`, `fork`, `dlopen`, `syscall`,
//! `exec` (an environment of the program's own making still leads to the namespace) and `procfs` (what ipcs and lsipc read).
//!
//! The library needs no other: it is `no_std`, makes system calls itself, and takes from the program's C library only memcpy
//! and its kin and, where they exist, `time`, `clock_gettime`, `__errno_location`, `environ`, `setenv`, `dlsym`, `_r_debug` and
//! `dl_iterate_phdr`. One file serves glibc and musl. It allocates nothing, starts no thread and keeps no descriptor.
//!
//! What it cannot do, and what a program gets instead:
//! - A handler that was set by a system call of the program's own, not by a function of the C library, runs at once, also in a
//!   locked section: it must not use semaphores nor jump out. The same holds for an object opened with RTLD_DEEPBIND that sets
//!   handlers and uses no semaphores (for one that does, see `dlopen`).
//! - A child of vfork gets ENOSYS from semaphore calls, except those of semctl that only look: it has nothing of its own to keep an
//!   adjustment in.
//! - system(3), pclose(3) and their kind wait inside the C library, unseen: the undo of such a child is done when somebody next
//!   looks at what it held (each call that would block or fail does) instead of before they return.
//! - A program that clears its own environment and then calls system(3) or popen(3) starts a child on the kernel's semaphores.
//! - What /proc/sysvipc/sem shows is a memory file: fstat(2) of it is not what stat(2) says of the path.
//! - Threads made by a bare clone(2), without the C library's thread-local storage, must not use semaphores.
#![no_std]
// For who depends on the source only: a panic handler cannot be where std is.
#![cfg(feature = "library")]

mod arch;
mod bus;
mod credentials;
mod decode;
mod dlopen;
mod elf;
mod errno;
mod exec;
mod exports;
mod fork;
mod link;
mod linkmap;
mod procfs;
mod real;
mod sanitizer;
mod scratch;
mod signal;
mod start;
mod statics;
mod sys;
mod syscall;
mod tls;
mod trampoline;
mod user;
mod wait;

/// A fault in the engine. Shared memory may be in the middle of a change, and the program's own handlers must not run on top of it:
/// the process ends as a kill would end it, and its peers recover.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    start::say(format_args!("{info}"));
    signal::make_fatal(signal::SIGILL);
    arch::trap()
}
