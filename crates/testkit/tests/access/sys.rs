//! The unsafe code of these tests: system calls that change who a process or a thread is, and C's semaphore functions.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{c_int, c_long, c_void};
use manyway_sem::abi::{self, SemBuf};

fn check(ret: c_long) -> io::Result<c_long> {
    if ret == -1 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// Through which door credentials are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Via {
    /// The C library's functions: all threads.
    C,
    /// syscall(2): the calling thread.
    Number,
}

unsafe extern "C" {
    fn capset(header: *const u32, data: *const u32) -> c_int;
}

pub fn set_groups(via: Via, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the array lives over the call.
    check(unsafe {
        match via {
            Via::C => libc::setgroups(groups.len(), groups.as_ptr()).into(),
            Via::Number => libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()),
        }
    })
    .map(drop)
}
pub fn set_gids(via: Via, [real, effective, saved]: [u32; 3]) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe {
        match via {
            Via::C => libc::setresgid(real, effective, saved).into(),
            Via::Number => libc::syscall(libc::SYS_setresgid, real, effective, saved),
        }
    })
    .map(drop)
}
pub fn set_uids(via: Via, [real, effective, saved]: [u32; 3]) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe {
        match via {
            Via::C => libc::setresuid(real, effective, saved).into(),
            Via::Number => libc::syscall(libc::SYS_setresuid, real, effective, saved),
        }
    })
    .map(drop)
}
pub fn set_fsuid(via: Via, uid: u32) {
    // SAFETY: takes numbers only.
    unsafe {
        match via {
            Via::C => libc::setfsuid(uid).into(),
            Via::Number => libc::syscall(libc::SYS_setfsuid, uid),
        }
    };
}
pub fn set_fsgid(via: Via, gid: u32) {
    // SAFETY: takes numbers only.
    unsafe {
        match via {
            Via::C => libc::setfsgid(gid).into(),
            Via::Number => libc::syscall(libc::SYS_setfsgid, gid),
        }
    };
}

/// Makes `mask` the effective, permitted and inheritable capabilities.
pub fn set_capabilities(via: Via, mask: u64) -> io::Result<()> {
    let header = [0x2008_0522u32, 0];
    let (low, high) = (mask as u32, (mask >> 32) as u32);
    let data = [low, low, low, high, high, high];
    // SAFETY: the structures of capset(2), which the kernel reads.
    check(unsafe {
        match via {
            Via::C => capset(header.as_ptr(), data.as_ptr()).into(),
            Via::Number => libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()),
        }
    })
    .map(drop)
}
/// The permitted capabilities.
pub fn capabilities() -> u64 {
    let header = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    // SAFETY: the structures of capget(2), which the kernel fills.
    unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) };
    u64::from(data[1]) | u64::from(data[4]) << 32
}

fn prctl(option: c_int, a: c_int, b: u32) -> io::Result<()> {
    // SAFETY: for options that take numbers.
    check(unsafe { libc::prctl(option, a, b, 0, 0) }.into()).map(drop)
}
/// Capabilities outlive the next setuid.
pub fn keep_capabilities() -> io::Result<()> {
    prctl(libc::PR_SET_KEEPCAPS, 1, 0)
}
/// A capability that the next execve gives an ordinary user.
pub fn raise_ambient(capability: u32) -> io::Result<()> {
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability)
}
/// A capability that no execve gives any more.
pub fn drop_from_bounding(capability: u32) -> io::Result<()> {
    prctl(libc::PR_CAPBSET_DROP, capability as c_int, 0)
}

/// A process that has changed its user owns its files in /proc only when it says so.
pub fn own_proc_files() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 1, 0)
}

pub fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: what it unshares is not used through descriptors of this process.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no NUL in it")
}

pub fn mknod(path: &Path, mode: u32, device: (u32, u32)) -> io::Result<()> {
    // SAFETY: the path lives over the call.
    check(unsafe { libc::mknod(c_string(path).as_ptr(), mode, libc::makedev(device.0, device.1)) }.into()).map(drop)
}

pub fn mount(source: &CStr, target: &Path, kind: &CStr, flags: u64, data: &CStr) -> io::Result<()> {
    // SAFETY: the strings live over the call.
    check(unsafe { libc::mount(source.as_ptr(), c_string(target).as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) }.into()).map(drop)
}

/// Exchanges two directories.
pub fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    let (a, b) = (c_string(a), c_string(b));
    // SAFETY: the paths live over the call.
    check(unsafe { libc::renameat2(libc::AT_FDCWD, a.as_ptr(), libc::AT_FDCWD, b.as_ptr(), libc::RENAME_EXCHANGE) }.into()).map(drop)
}

/// Sets or clears the immutable flag of a file.
pub fn set_immutable(file: &std::fs::File, on: bool) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    const FS_IMMUTABLE_FL: c_int = 0x10;
    let mut flags: c_int = 0;
    // SAFETY: the argument is the integer that these requests fill and read.
    unsafe {
        check(libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags).into())?;
        flags = if on { flags | FS_IMMUTABLE_FL } else { flags & !FS_IMMUTABLE_FL };
        check(libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags).into()).map(drop)
    }
}

pub fn set_xattr(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: all live over the call.
    check(unsafe { libc::setxattr(c_string(path).as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) }.into()).map(drop)
}

pub fn umask(mask: u32) {
    // SAFETY: takes a number.
    unsafe { libc::umask(mask) };
}

/// A call's result as text: the errno's number, or what succeeded.
pub fn outcome(ret: c_int, good: impl FnOnce(c_int) -> String) -> String {
    if ret == -1 { format!("errno {}", io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { good(ret) }
}

unsafe extern "C" {
    fn semtimedop(id: c_int, ops: *mut SemBuf, nsops: usize, timeout: *const libc::timespec) -> c_int;
}

pub fn semget(key: i32, nsems: i32, flags: i32) -> c_int {
    // SAFETY: takes numbers only.
    unsafe { libc::semget(key, nsems, flags) }
}
pub fn semop(id: i32, ops: &[(u16, i16, i32)], timed: bool) -> c_int {
    let mut ops: Vec<_> = ops.iter().map(|&(num, op, flags)| SemBuf { num, op, flg: flags as i16 }).collect();
    let time = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    // SAFETY: array and time live over the call.
    unsafe { semtimedop(id, ops.as_mut_ptr(), ops.len(), if timed { &raw const time } else { std::ptr::null() }) }
}
pub fn semctl(id: i32, num: i32, cmd: i32, value: i32) -> c_int {
    // SAFETY: for commands that take a number or nothing.
    unsafe { libc::semctl(id, num, cmd, value) }
}
pub fn semctl_array(id: i32, cmd: i32, values: &mut [u16; 2]) -> c_int {
    // SAFETY: the sets of these tests have two semaphores.
    unsafe { libc::semctl(id, 0, cmd, values.as_mut_ptr().cast::<c_void>()) }
}
/// IPC_STAT and kin; what they say of the owners and the mode.
pub fn semctl_stat(id: i32, cmd: i32) -> (c_int, [u32; 5]) {
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut ds: libc::semid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: the structure that these commands fill.
    let ret = unsafe { libc::semctl(id, 0, cmd, &raw mut ds) };
    let p = &ds.sem_perm;
    (ret, [p.uid, p.gid, p.cuid, p.cgid, u32::from(p.mode)])
}
pub fn semctl_set(id: i32, uid: u32, gid: u32, mode: u32) -> c_int {
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut ds: libc::semid_ds = unsafe { std::mem::zeroed() };
    ds.sem_perm.uid = uid;
    ds.sem_perm.gid = gid;
    ds.sem_perm.mode = mode as _;
    // SAFETY: the structure that the command reads.
    unsafe { libc::semctl(id, 0, abi::IPC_SET, &raw mut ds) }
}
