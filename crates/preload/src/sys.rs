//! The system calls that only the C interface needs; all others are in `manyway_sync::sys`.

use core::ffi::{CStr, c_int, c_void};

use manyway_sync::{Errno, sys::Fd};
use syscalls::{Sysno, syscall};

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct KernelAction {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

/// All signals.
pub(crate) const ALL: u64 = !0;

const SIG_BLOCK: c_int = 0;
const SIG_UNBLOCK: c_int = 1;
const SIG_SETMASK: c_int = 2;
/// Bytes of a signal mask.
const MASK: usize = 8;

fn err(e: syscalls::Errno) -> Errno {
    Errno(e.into_raw())
}

/// rt_sigaction(2).
///
/// # Safety
/// The action's handler and restorer must be what they claim to be.
pub(crate) unsafe fn sigaction(sig: c_int, act: Option<&KernelAction>) -> Result<KernelAction, Errno> {
    let mut old = KernelAction::default();
    let act = act.map_or(core::ptr::null(), |a| a as *const KernelAction);
    // SAFETY: both structures are the kernel's and live through the call; the rest is the caller's promise.
    unsafe { syscall!(Sysno::rt_sigaction, sig, act, &raw mut old, MASK) }.map_err(err)?;
    Ok(old)
}

fn sigprocmask(how: c_int, set: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both masks live through the call. It cannot fail with these arguments.
    let _ = unsafe { syscall!(Sysno::rt_sigprocmask, how, &raw const set, &raw mut old, MASK) };
    old
}

/// Makes `mask` the calling thread's signal mask.
pub(crate) fn set_mask(mask: u64) {
    sigprocmask(SIG_SETMASK, mask);
}
/// Blocks signals; returns the mask before.
pub(crate) fn block(mask: u64) -> u64 {
    sigprocmask(SIG_BLOCK, mask)
}
/// Unblocks signals; returns the mask before.
pub(crate) fn unblock(mask: u64) -> u64 {
    sigprocmask(SIG_UNBLOCK, mask)
}

/// Sends a signal that was delivered to the calling thread to it once more, with all that was said about it.
///
/// # Safety
/// `info` must be the `siginfo_t` that came with the signal.
pub(crate) unsafe fn queue_again(sig: c_int, info: *const c_void) {
    let (pid, tid) = (manyway_sync::sys::getpid(), manyway_sync::sys::gettid());
    // SAFETY: the kernel only reads `info`.
    unsafe {
        // A process may send itself anything. The queue for real-time signals may be full: then at least the signal.
        if syscall!(Sysno::rt_tgsigqueueinfo, pid, tid, sig, info).is_err() {
            let _ = syscall!(Sysno::tgkill, pid, tid, sig);
        }
    }
}

/// True when the eight bytes at `p & !7` can be read. The kernel looks at the mask before it finds that −1 is no operation.
pub(crate) fn readable(p: usize) -> bool {
    const NOTHING: c_int = -1;
    // SAFETY: the kernel itself reads, and changes nothing.
    let r = unsafe { syscall!(Sysno::rt_sigprocmask, NOTHING, p & !7, 0, MASK) };
    r.map_err(err) == Err(Errno::EINVAL)
}

/// Where the heap ends now (brk(2)).
pub(crate) fn program_break() -> usize {
    // SAFETY: a break of 0 is no request; the kernel answers with the one there is.
    unsafe { syscall!(Sysno::brk, 0) }.unwrap_or(0)
}

/// True when the byte at `p` can be written; it is overwritten.
///
/// # Safety
/// The program must have given this byte to be written.
pub(crate) unsafe fn writable(p: usize) -> bool {
    // SAFETY: the kernel itself writes, one byte of the set of pending signals.
    unsafe { syscall!(Sysno::rt_sigpending, p, 1) }.is_ok()
}

/// pread(2).
pub(crate) fn pread(fd: &Fd, buf: &mut [u8], at: u64) -> Result<usize, Errno> {
    // SAFETY: the buffer is borrowed for the call.
    unsafe { syscall!(Sysno::pread64, fd.raw(), buf.as_mut_ptr(), buf.len(), at) }.map_err(err)
}

/// Writes to standard error, as far as it takes it.
pub(crate) fn write_error(text: &[u8]) {
    // SAFETY: the text is borrowed for the call.
    let _ = unsafe { syscall!(Sysno::write, 2, text.as_ptr(), text.len()) };
}

/// The calling thread's name, 15 bytes at most (prctl(PR_GET_NAME)).
pub(crate) fn name(buf: &mut [u8; 16]) -> &[u8] {
    const PR_GET_NAME: c_int = 16;
    // SAFETY: the kernel writes 16 bytes, the last of them 0.
    let _ = unsafe { syscall!(Sysno::prctl, PR_GET_NAME, buf.as_mut_ptr()) };
    let end = buf.iter().position(|&b| b == 0).unwrap_or(buf.len());
    &buf[..end]
}

/// Memory of `len` bytes, zero, at a page boundary.
pub(crate) fn map(len: usize) -> Result<*mut u8, Errno> {
    const PROT_READ_WRITE: c_int = 3;
    const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let p = unsafe { syscall!(Sysno::mmap, 0, len, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1isize, 0) };
    p.map(|p| p as *mut u8).map_err(err)
}

/// Gives back what [`map`] returned.
///
/// # Safety
/// Nothing may refer to it.
pub(crate) unsafe fn unmap(p: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { syscall!(Sysno::munmap, p, len) };
}

/// Any system call, for syscall(2).
///
/// # Safety
/// As the program's own.
pub(crate) unsafe fn raw(number: Sysno, a: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { syscall!(number, a[0], a[1], a[2], a[3], a[4], a[5]) }.map_err(err)
}

/// A descriptor of a new file in memory; closed on exec.
pub(crate) fn memory_file(name: &CStr) -> Result<c_int, Errno> {
    const MFD_CLOEXEC: u32 = 1;
    const MFD_ALLOW_SEALING: u32 = 2;
    // SAFETY: the kernel reads the name.
    unsafe { syscall!(Sysno::memfd_create, name.as_ptr(), MFD_CLOEXEC | MFD_ALLOW_SEALING) }.map(|fd| fd as c_int).map_err(err)
}

/// Writes all of `text`.
pub(crate) fn write_whole(fd: c_int, mut text: &[u8]) -> Result<(), Errno> {
    while !text.is_empty() {
        // SAFETY: the text is borrowed for the call.
        match unsafe { syscall!(Sysno::write, fd, text.as_ptr(), text.len()) } {
            Ok(n) => text = &text[n.min(text.len())..],
            Err(syscalls::Errno::EINTR) => {}
            Err(e) => return Err(err(e)),
        }
    }
    Ok(())
}

/// From now on a memory file can only be read; it is read from its beginning.
pub(crate) fn seal_and_rewind(fd: c_int) -> Result<(), Errno> {
    const F_ADD_SEALS: c_int = 1033;
    const SEAL_SHRINK_GROW_WRITE: c_int = 1 | 2 | 4 | 8;
    // SAFETY: neither call touches memory.
    unsafe {
        syscall!(Sysno::fcntl, fd, F_ADD_SEALS, SEAL_SHRINK_GROW_WRITE).map_err(err)?;
        syscall!(Sysno::lseek, fd, 0, 0).map_err(err)?;
    }
    Ok(())
}

/// `fd` becomes `new`, which is closed; whether it is closed on exec stays as it is.
pub(crate) fn replace(fd: c_int, new: c_int) {
    const F_GETFD: c_int = 1;
    const FD_CLOEXEC: usize = 1;
    const O_CLOEXEC: c_int = 0o2000000;
    // SAFETY: both descriptors are the program's own and of this library, just opened.
    unsafe {
        let closed_on_exec = syscall!(Sysno::fcntl, fd, F_GETFD).is_ok_and(|flags| flags & FD_CLOEXEC != 0);
        let _ = syscall!(Sysno::dup3, new, fd, if closed_on_exec { O_CLOEXEC } else { 0 });
    }
    close(new);
}

/// `fd` becomes an empty file.
pub(crate) fn replace_by_nothing(fd: c_int) {
    if let Ok(nothing) = manyway_sync::sys::openat(manyway_sync::sys::flags::AT_FDCWD, c"/dev/null", 0, 0) {
        // SAFETY: as in `replace`.
        let _ = unsafe { syscall!(Sysno::dup3, nothing.raw(), fd, 0) };
    }
}

/// close(2).
pub(crate) fn close(fd: c_int) {
    // SAFETY: the callers' own descriptor.
    let _ = unsafe { syscall!(Sysno::close, fd) };
}

/// The path of an open file, as far as the buffer takes it.
pub(crate) fn path_of(fd: c_int, buffer: &mut [u8]) -> Result<&[u8], Errno> {
    use core::fmt::Write;
    struct Name([u8; 32], usize);
    impl Write for Name {
        fn write_str(&mut self, s: &str) -> core::fmt::Result {
            let room = self.0.get_mut(self.1..self.1 + s.len()).ok_or(core::fmt::Error)?;
            room.copy_from_slice(s.as_bytes());
            self.1 += s.len();
            Ok(())
        }
    }
    let mut name = Name([0; 32], 0);
    write!(name, "/proc/self/fd/{fd}\0").map_err(|_| Errno::EINVAL)?;
    let at = manyway_sync::sys::flags::AT_FDCWD;
    // SAFETY: the kernel reads the name, which ends with a zero, and writes into the buffer.
    let n = unsafe { syscall!(Sysno::readlinkat, at, name.0.as_ptr(), buffer.as_mut_ptr(), buffer.len()) }.map_err(err)?;
    Ok(&buffer[..n])
}

/// Tells whoever listens to this process's semaphore calls that it has taken a place in a namespace.
pub(crate) fn tell_listener() {
    use manyway_sem::abi::{REPORT_COMMAND, REPORT_ID};
    // SAFETY: nothing but numbers. Without a listener the kernel says EINVAL, or a filter ENOSYS.
    let _ = unsafe { syscall!(Sysno::semctl, REPORT_ID, 0, REPORT_COMMAND, 0) };
}
