//! Mappings. The unsafe floor of the shared segment: lengths and offsets are checked by `manyway-shm`.

use syscalls::{Sysno, syscall};

use crate::Errno;
use crate::sys::Fd;

/// Bytes in a page.
pub const PAGE: usize = 4096;

const PROT_RW: i32 = 3;
const MAP_SHARED: i32 = 1;
const MAP_PRIVATE: i32 = 2;
const MAP_ANONYMOUS: i32 = 0x20;
const MAP_NORESERVE: i32 = 0x4000;
const MREMAP_MAYMOVE: i32 = 1;
const MREMAP_FIXED: i32 = 2;
const MADV_REMOVE: i32 = 9;
const MADV_WIPEONFORK: i32 = 18;
const MADV_DONTDUMP: i32 = 16;
const MADV_POPULATE_WRITE: i32 = 23;

fn map(len: usize, flags: i32, fd: i32) -> Result<*mut u8, Errno> {
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    unsafe { syscall!(Sysno::mmap, 0, len, PROT_RW, flags, fd, 0) }.map(|p| p as *mut u8).map_err(|e| Errno(e.into_raw()))
}

/// Maps the first `len` bytes of a file, shared.
pub fn map_shared(fd: &Fd, len: usize) -> Result<*mut u8, Errno> {
    let p = map(len, MAP_SHARED | MAP_NORESERVE, fd.raw())?;
    advise(p, len, MADV_DONTDUMP)?;
    #[cfg(shuttle)]
    crate::sim::mapped(p as usize, len);
    Ok(p)
}
/// Maps `len` bytes of private zeroed memory.
pub fn map_private(len: usize) -> Result<*mut u8, Errno> {
    map(len, MAP_PRIVATE | MAP_ANONYMOUS, -1)
}
/// Maps a page that a fork child finds zeroed (MADV_WIPEONFORK).
pub fn map_wiped_on_fork() -> Result<*mut u8, Errno> {
    let p = map_private(PAGE)?;
    advise(p, PAGE, MADV_WIPEONFORK)?;
    Ok(p)
}

fn advise(p: *mut u8, len: usize, advice: i32) -> Result<(), Errno> {
    // SAFETY: none of the pieces of advice used here changes what valid memory of this process's own mappings holds, but for
    // MADV_REMOVE, whose caller says so.
    unsafe { syscall!(Sysno::madvise, p, len, advice) }.map(drop).map_err(|e| Errno(e.into_raw()))
}

/// A second, larger mapping of the same file from the same offset, without a descriptor (mremap with an old length of 0).
///
/// # Safety
/// `old` is the start of a shared file mapping.
pub unsafe fn remap_larger(old: *mut u8, len: usize) -> Result<*mut u8, Errno> {
    // SAFETY: by the caller; the old mapping stays.
    let p = unsafe { syscall!(Sysno::mremap, old, 0, len, MREMAP_MAYMOVE) }.map(|p| p as *mut u8).map_err(|e| Errno(e.into_raw()))?;
    advise(p, len, MADV_DONTDUMP)?;
    #[cfg(shuttle)]
    crate::sim::mapped(p as usize, len);
    Ok(p)
}

/// Puts a second mapping of the shared page at `page` over the page at `to`.
///
/// # Safety
/// `page` lies in a shared file mapping; the page at `to` belongs to the caller and holds nothing of use.
pub unsafe fn alias_page(page: *mut u8, to: *mut u8) -> Result<(), Errno> {
    // SAFETY: by the caller.
    unsafe { syscall!(Sysno::mremap, page, 0, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) }.map(drop).map_err(|e| Errno(e.into_raw()))
}

/// Puts a page of private zeroed memory over the page at `to`.
///
/// # Safety
/// The page at `to` belongs to the caller and holds nothing of use.
pub unsafe fn clear_page(to: *mut u8) -> Result<(), Errno> {
    // SAFETY: by the caller.
    unsafe { clear(to, PAGE) }
}

/// Puts private zeroed memory over the `len` bytes at `to`. May be called by a signal's handler.
///
/// # Safety
/// They are whole pages, belong to the caller, and hold nothing of use: others that look there find zeros.
pub unsafe fn clear(to: *mut u8, len: usize) -> Result<(), Errno> {
    const MAP_FIXED: i32 = 0x10;
    // SAFETY: by the caller.
    unsafe { syscall!(Sysno::mmap, to, len, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1isize, 0) }
        .map(drop)
        .map_err(|e| Errno(e.into_raw()))
}

/// Removes a mapping.
///
/// # Safety
/// Nothing refers to it any more.
pub unsafe fn unmap(p: *mut u8, len: usize) {
    #[cfg(shuttle)]
    crate::sim::unmapped(p as usize);
    // SAFETY: by the caller.
    let _ = unsafe { syscall!(Sysno::munmap, p, len) };
}

/// Allocates the pages behind a shared mapping, so that no later access can fail: ENOSPC when the file system is full, ENOMEM when a
/// memory limit says no.
///
/// # Safety
/// The range lies in a mapping of this process.
pub unsafe fn populate(p: *mut u8, len: usize) -> Result<(), Errno> {
    loop {
        match advise(p, len, MADV_POPULATE_WRITE) {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // The kernel reports the SIGBUS that an access would have met as EFAULT.
            Err(Errno::EFAULT) => return Err(Errno::ENOSPC),
            r => return r,
        }
    }
}

/// Gives the pages behind a shared mapping back to the file system; they read as zero afterwards.
///
/// # Safety
/// The range lies in a shared mapping of this process and holds nothing of use to anybody.
pub unsafe fn release(p: *mut u8, len: usize) {
    let _ = advise(p, len, MADV_REMOVE);
}

// loom's atomics cannot lie in a page.
#[cfg(loom)]
use core::sync::atomic::AtomicU64 as Word;

#[cfg(not(loom))]
use crate::atomic::AtomicU64 as Word;

/// A private page of words that a fork child finds zeroed.
#[derive(Debug)]
pub struct WipedPage(*mut u8);

// SAFETY: the page is made of atomics, reached by shared reference only.
unsafe impl Send for WipedPage {}
// SAFETY: as above.
unsafe impl Sync for WipedPage {}

impl WipedPage {
    /// Maps one.
    pub fn new() -> Result<WipedPage, Errno> {
        map_wiped_on_fork().map(WipedPage)
    }
    /// Its first words.
    #[inline]
    pub fn words(&self) -> &[Word; 8] {
        // SAFETY: a page of this process, mapped while `self` lives, larger than 64 bytes and aligned.
        unsafe { &*(self.0 as *const [Word; 8]) }
    }
}

impl Drop for WipedPage {
    fn drop(&mut self) {
        // SAFETY: the page is this value's own.
        unsafe { unmap(self.0, PAGE) };
    }
}
