//! Raw system calls, as typed functions. Errors are the kernel's, never errno.

use core::ffi::CStr;
use core::fmt::Write;

use syscalls::{Sysno, syscall};

use crate::Errno;
use crate::path::Path;

fn err(e: syscalls::Errno) -> Errno {
    Errno(e.into_raw())
}

macro_rules! call {
    ($($a:expr),* $(,)?) => {
        // SAFETY: each wrapper below passes arguments that the kernel checks itself, and pointers only to memory that it borrows for
        // the call.
        unsafe { syscall!($($a),*) }.map_err(err)
    };
}

/// Open flags (`fcntl.h`), x86-64 and aarch64 where they differ.
#[allow(missing_docs)]
pub mod flags {
    pub const O_RDONLY: i32 = 0;
    pub const O_RDWR: i32 = 2;
    pub const O_CREAT: i32 = 0o100;
    pub const O_EXCL: i32 = 0o200;
    pub const O_NOCTTY: i32 = 0o400;
    pub const O_NONBLOCK: i32 = 0o4000;
    pub const O_PATH: i32 = 0o10000000;
    pub const O_CLOEXEC: i32 = 0o2000000;
    #[cfg(target_arch = "x86_64")]
    pub const O_DIRECTORY: i32 = 0o200000;
    #[cfg(target_arch = "x86_64")]
    pub const O_NOFOLLOW: i32 = 0o400000;
    #[cfg(target_arch = "aarch64")]
    pub const O_DIRECTORY: i32 = 0o40000;
    #[cfg(target_arch = "aarch64")]
    pub const O_NOFOLLOW: i32 = 0o100000;
    pub const AT_FDCWD: i32 = -100;
}

/// A file descriptor that is closed when dropped.
#[derive(Debug)]
pub struct Fd(i32);

impl Fd {
    /// The descriptor's number.
    pub fn raw(&self) -> i32 {
        self.0
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        let _ = call!(Sysno::close, self.0);
    }
}

/// What `stat` tells that this crate's users need.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Type and mode bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    pub blocks: u64,
    /// Links; of a directory: two more than it has directories.
    pub links: u32,
}

/// `struct statx`, of which the kernel fills the fields that [`Stat`] has and more.
#[repr(C)]
struct Statx {
    mask: u32,
    blksize: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    _pad: u16,
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    times: [u64; 8],
    rdev: [u32; 2],
    dev: [u32; 2],
    rest: [u64; 15],
}

const STATX_BASIC_STATS: u32 = 0x7ff;
const AT_EMPTY_PATH: i32 = 0x1000;

fn statx(dir: i32, path: &CStr, at: i32) -> Result<Stat, Errno> {
    // SAFETY: Statx is plain integers, for which zero is a value.
    let mut s: Statx = unsafe { core::mem::zeroed() };
    call!(Sysno::statx, dir, path.as_ptr(), at, STATX_BASIC_STATS, &raw mut s)?;
    let dev = (s.dev[0] as u64) << 32 | s.dev[1] as u64;
    Ok(Stat { dev, ino: s.ino, mode: s.mode as u32, uid: s.uid, gid: s.gid, size: s.size, blocks: s.blocks, links: s.nlink })
}

/// fstat(2).
pub fn fstat(fd: &Fd) -> Result<Stat, Errno> {
    statx(fd.raw(), c"", AT_EMPTY_PATH)
}
/// stat(2).
pub fn stat(path: &CStr) -> Result<Stat, Errno> {
    statx(flags::AT_FDCWD, path, 0)
}
/// openat(2). O_CLOEXEC is always set.
pub fn openat(dir: i32, path: &CStr, flags: i32, mode: u32) -> Result<Fd, Errno> {
    call!(Sysno::openat, dir, path.as_ptr(), flags | flags::O_CLOEXEC, mode).map(|fd| Fd(fd as i32))
}
/// mkdir(2).
pub fn mkdir(path: &CStr, mode: u32) -> Result<(), Errno> {
    call!(Sysno::mkdirat, flags::AT_FDCWD, path.as_ptr(), mode).map(drop)
}
/// unlinkat(2) of a file.
pub fn unlinkat(dir: &Fd, path: &CStr) -> Result<(), Errno> {
    call!(Sysno::unlinkat, dir.raw(), path.as_ptr(), 0).map(drop)
}
/// renameat(2) within one directory.
pub fn rename_in(dir: &Fd, from: &CStr, to: &CStr) -> Result<(), Errno> {
    call!(Sysno::renameat, dir.raw(), from.as_ptr(), dir.raw(), to.as_ptr()).map(drop)
}
/// fchown(2).
pub fn fchown(fd: &Fd, uid: u32, gid: u32) -> Result<(), Errno> {
    call!(Sysno::fchown, fd.raw(), uid, gid).map(drop)
}
/// Sets a file's mode whatever the umask; a descriptor made with O_PATH will do.
pub fn fchmod(fd: &Fd, mode: u32) -> Result<(), Errno> {
    match call!(Sysno::fchmod, fd.raw(), mode) {
        Err(Errno::EBADF) => {
            // fchmodat2(2) is younger (6.6) than O_PATH.
            let mut path = Path::new();
            let _ = write!(path, "/proc/self/fd/{}", fd.raw());
            call!(Sysno::fchmodat, flags::AT_FDCWD, path.as_c_str()?.as_ptr(), mode).map(drop)
        }
        r => r.map(drop),
    }
}
/// ftruncate(2).
pub fn ftruncate(fd: &Fd, len: u64) -> Result<(), Errno> {
    call!(Sysno::ftruncate, fd.raw(), len).map(drop)
}
/// flock(2), exclusive; waits.
pub fn flock_exclusive(fd: &Fd) -> Result<(), Errno> {
    loop {
        match call!(Sysno::flock, fd.raw(), 2) {
            Err(Errno::EINTR) => {}
            r => return r.map(drop),
        }
    }
}
/// read(2).
pub fn read(fd: &Fd, buf: &mut [u8]) -> Result<usize, Errno> {
    call!(Sysno::read, fd.raw(), buf.as_mut_ptr(), buf.len())
}

/// The content of a small file; the part of `buf` that was filled.
pub fn read_file<'a>(path: &CStr, buf: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let fd = openat(flags::AT_FDCWD, path, flags::O_RDONLY, 0)?;
    let mut n = 0;
    while n < buf.len() {
        match read(&fd, &mut buf[n..]) {
            Ok(0) => break,
            Ok(k) => n += k,
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(&buf[..n])
}

/// The number that a decimal file such as those of /proc/sys begins with, skipping `skip` fields.
pub fn read_numbers<const N: usize>(path: &CStr) -> Result<[u64; N], Errno> {
    let mut buf = [0u8; 256];
    let text = read_file(path, &mut buf)?;
    let mut out = [0u64; N];
    let mut fields = text.split(|b| b.is_ascii_whitespace()).filter(|f| !f.is_empty());
    for o in &mut out {
        let f = fields.next().ok_or(Errno::EINVAL)?;
        *o = core::str::from_utf8(f).ok().and_then(|s| s.parse().ok()).ok_or(Errno::EINVAL)?;
    }
    Ok(out)
}

/// getpid(2).
pub fn getpid() -> u32 {
    #[cfg(shuttle)]
    if let Some((pid, _)) = crate::sim::who() {
        return pid;
    }
    call!(Sysno::getpid).unwrap_or(0) as u32
}
/// gettid(2).
pub fn gettid() -> u32 {
    #[cfg(shuttle)]
    if let Some((_, tid)) = crate::sim::who() {
        return tid;
    }
    call!(Sysno::gettid).unwrap_or(0) as u32
}
/// True unless the calling process is known to have one thread only.
pub fn has_threads() -> bool {
    #[cfg(shuttle)]
    if crate::sim::is_running() {
        return crate::sim::has_threads();
    }
    stat(c"/proc/self/task").map_or(true, |s| s.links != 3)
}
/// The ids of who cannot find out its own: a sandbox may refuse even that. Never 0, whose ids may do everything.
const NOBODY: usize = 65534;

/// geteuid(2).
pub fn geteuid() -> u32 {
    call!(Sysno::geteuid).unwrap_or(NOBODY) as u32
}
/// getegid(2).
pub fn getegid() -> u32 {
    call!(Sysno::getegid).unwrap_or(NOBODY) as u32
}
/// The group that the kernel takes for the caller's when it asks for permission. It is the effective one until the thread has called
/// setfsgid(2).
pub fn fsgid() -> u32 {
    // An id that cannot be set leaves the old one, which is what the call returns.
    call!(Sysno::setfsgid, u32::MAX).unwrap_or(NOBODY) as u32
}

/// Calls `f` with the caller's supplementary groups. More than 1,024 (the kernel's limit is 65,536) are not looked at: then with none.
pub fn with_groups<R>(f: impl FnOnce(&[u32]) -> R) -> R {
    let mut groups = [0u32; 1024];
    let n = call!(Sysno::getgroups, groups.len(), groups.as_mut_ptr()).unwrap_or(0);
    f(&groups[..n.min(groups.len())])
}

/// True when the program was executed with more rights than its caller has (AT_SECURE: set-user-id, set-group-id, file capabilities): then
/// the caller's environment is not to be believed.
pub fn is_secure_execution() -> bool {
    const PR_GET_AUXV: i32 = 0x4155_5856;
    const AT_SECURE: u64 = 23;
    let mut vector = [0u64; 128];
    let told = call!(Sysno::prctl, PR_GET_AUXV, vector.as_mut_ptr(), size_of_val(&vector), 0, 0).is_ok() || {
        // Before Linux 6.4. Such a program may not read its own file, unless it has become root.
        let mut bytes = [0u8; 1024];
        match read_file(c"/proc/self/auxv", &mut bytes) {
            Ok(read) => {
                for (word, bytes) in vector.iter_mut().zip(read.chunks_exact(8)) {
                    *word = u64::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]);
                }
                true
            }
            Err(Errno::EACCES | Errno::EPERM) => return true,
            Err(_) => false,
        }
    };
    if told {
        return vector.as_chunks::<2>().0.iter().any(|&[key, value]| key == AT_SECURE && value != 0);
    }
    let id = |number| call!(number).unwrap_or(usize::MAX);
    id(Sysno::getuid) != id(Sysno::geteuid) || id(Sysno::getgid) != id(Sysno::getegid)
}

/// The inode of the caller's user namespace; 0 when it cannot be found out.
pub fn user_namespace() -> u64 {
    stat(c"/proc/self/ns/user").map_or(0, |s| s.ino)
}

/// Capabilities (`linux/capability.h`).
#[allow(missing_docs)]
pub mod cap {
    pub const IPC_OWNER: u32 = 15;
    pub const SYS_ADMIN: u32 = 21;
}

/// True when the capability is in the calling thread's effective set.
pub fn has_capability(cap: u32) -> bool {
    let header: [u32; 2] = [0x2008_0522, 0];
    let mut data = [0u32; 6];
    call!(Sysno::capget, header.as_ptr(), data.as_mut_ptr()).is_ok() && data[(cap / 32) as usize * 3] >> (cap % 32) & 1 == 1
}

/// Sleeps about so long. True: a signal's handler has run, which ends it early.
pub fn nap(ns: u64) -> bool {
    #[cfg(shuttle)]
    if crate::sim::is_running() {
        crate::sim::nap(ns);
        return false;
    }
    let ts = [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
    call!(Sysno::nanosleep, ts.as_ptr(), 0) == Err(Errno::EINTR)
}

/// True when the thread exists (signal 0 is only asked about, never sent).
pub fn thread_exists(pid: u32, tid: u32) -> bool {
    #[cfg(shuttle)]
    if crate::sim::is_running() {
        return crate::sim::thread_exists(pid, tid);
    }
    !matches!(call!(Sysno::tgkill, pid, tid, 0), Err(Errno::ESRCH))
}

/// pidfd_open(2).
pub fn pidfd_open(pid: u32) -> Result<Fd, Errno> {
    call!(Sysno::pidfd_open, pid, 0).map(|fd| Fd(fd as i32))
}

/// True when the descriptor is readable now; of a pidfd: the process has ended.
pub fn readable(fd: &Fd) -> Result<bool, Errno> {
    let mut p = [fd.raw() as u32 as u64 | 1 << 32];
    let now = [0i64; 2];
    loop {
        match call!(Sysno::ppoll, p.as_mut_ptr(), 1, now.as_ptr(), 0, 8) {
            Err(Errno::EINTR) => {}
            r => return r.map(|n| n > 0),
        }
    }
}

/// The type of the file system that a descriptor belongs to (`f_type` of fstatfs(2)).
pub fn fs_type(fd: &Fd) -> Result<u64, Errno> {
    let mut buf = [0u64; 32];
    call!(Sysno::fstatfs, fd.raw(), buf.as_mut_ptr())?;
    Ok(buf[0])
}
