//! The kernel's notice of a thread's end: a word in the thread's robust list.
//!
//! When a thread ends (also by SIGKILL, or because another thread called execve) the kernel sets FUTEX_OWNER_DIED in each word of its
//! robust list, before anybody can learn the death by wait(2). The list's head is the C library's (get_robust_list, never
//! set_robust_list). The kernel finds the word at a fixed distance before its list node. The node must be in private memory, or a
//! peer that can write the shared word could steer the C library's list operations; so a *region* of two pages is made: the shared
//! page, aliased, and right behind it a private page with the node; the word is 24 bytes before the boundary.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

use syscalls::{Sysno, syscall};

use crate::Errno;
use crate::atomic::AtomicU32;
use crate::memory::{self, PAGE};
use crate::sys;

/// Set by the kernel when the thread has ended.
pub const OWNER_DIED: u32 = 0x4000_0000;
/// Makes the kernel wake one waiter when it sets OWNER_DIED; without it the word would still be marked.
pub const WAITERS: u32 = 0x8000_0000;
/// The thread id's bits.
pub const TID_MASK: u32 = 0x3fff_ffff;

/// `struct robust_list_head` (`linux/futex.h`).
#[repr(C)]
struct Head {
    first: AtomicPtr<u8>,
    futex_offset: isize,
    pending: AtomicPtr<u8>,
}

/// A node as glibc links it: pointers in the list point at `next`, and `prev` lies before it.
#[repr(C)]
struct Node {
    prev: AtomicPtr<u8>,
    next: AtomicPtr<u8>,
}

/// Distance from the page's end to the robust word; the node that belongs to it is at [`NODE_AT`] behind the end.
pub const WORD_BEFORE_END: usize = 24;
const GLIBC_OFFSET: isize = -32;
const NODE_AT: usize = 0;

/// A shared page and a private one behind it, reserved in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region(*mut u8);

impl Region {
    /// Reserves a region.
    pub fn reserve() -> Result<Region, Errno> {
        memory::map_private(2 * PAGE).map(Region)
    }
    /// The region's address, to keep; 0 is none.
    pub fn address(self) -> u64 {
        self.0 as u64
    }
    /// A region from its kept address.
    ///
    /// # Safety
    /// `address` came from [`Region::address`] in this process or in one that it was forked from.
    pub unsafe fn from_address(address: u64) -> Option<Region> {
        (address != 0).then_some(Region(address as *mut u8))
    }

    /// The robust word, in whatever page the first one of the region is an alias of.
    pub fn word(&self) -> &AtomicU32 {
        // SAFETY: the region's first page is mapped and the word lies in it, 4-aligned.
        unsafe { &*(self.0.add(PAGE - WORD_BEFORE_END) as *const AtomicU32) }
    }
    /// Words of the private page that are the user's to keep things in.
    pub fn notes(&self) -> &[crate::atomic::AtomicU64; 3] {
        // SAFETY: the private page is mapped while the region lives; the node takes less than its first 64 bytes.
        unsafe { &*(self.0.add(PAGE + 64) as *const [crate::atomic::AtomicU64; 3]) }
    }

    /// Links `word`, which lies [`WORD_BEFORE_END`] bytes before the end of the page at `page`, into the calling thread's robust list,
    /// so that its end is marked there. False: this thread's list cannot take it (none, or another C library's distance).
    ///
    /// # Safety
    /// `page` is a page of a shared file mapping; the region is not linked by a living thread of this process.
    pub unsafe fn link(self, page: *mut u8) -> Result<bool, Errno> {
        let mut head: *mut Head = ptr::null_mut();
        let mut len = 0usize;
        // SAFETY: the kernel writes the two results.
        let asked = unsafe { syscall!(Sysno::get_robust_list, 0, &raw mut head, &raw mut len) };
        // A sandbox may refuse it: then others must ask for this thread's existence.
        if asked.is_err() || head.is_null() || len != size_of::<Head>() {
            return Ok(false);
        }
        // SAFETY: the head is this thread's own, registered by its C library and alive as long as the thread.
        let head = unsafe { &*head };
        if head.futex_offset != GLIBC_OFFSET {
            return Ok(false);
        }
        // SAFETY: by the caller; the region's first page holds nothing but an older alias.
        match unsafe { memory::alias_page(page, self.0) } {
            Ok(()) => {}
            // Not every machine can map a page twice without its descriptor (valgrind's cannot).
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM) => return Ok(false),
            Err(e) => return Err(e),
        }
        // SAFETY: the private page is ours; the node's `next` lies 32 bytes behind the word.
        let node = unsafe { &*(self.0.add(PAGE + NODE_AT) as *const Node) };
        let me = (&raw const node.next) as *mut u8;
        debug_assert_eq!(me as usize - 32, self.0 as usize + PAGE - WORD_BEFORE_END);
        // SAFETY: the word lies in the aliased page, 4-aligned.
        let word = unsafe { &*(self.0.add(PAGE - WORD_BEFORE_END) as *const AtomicU32) };
        // The protocol of futex(2)'s robust lists: announce, mark, link, withdraw the announcement. A death in between finds the word
        // either announced or linked.
        head.pending.store(me, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        word.store(sys::gettid() | WAITERS, Ordering::Release);
        let first = head.first.load(Ordering::Relaxed);
        node.next.store(first, Ordering::Relaxed);
        node.prev.store(ptr::from_ref(head) as *mut u8, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let head_at = ptr::from_ref(head) as *mut u8;
        let first_next = (first as usize & !1) as *mut u8;
        if first_next != head_at {
            // SAFETY: glibc's nodes have `prev` before `next`; the list is this thread's own.
            unsafe { *(first_next.sub(size_of::<usize>()) as *mut *mut u8) = me };
        } else {
            // The head's own `prev` lies before it in glibc's thread structure (`robust_prev`).
            // SAFETY: as above: glibc's list is circular through the head.
            unsafe { *(head_at.sub(size_of::<usize>()) as *mut *mut u8) = me };
        }
        head.first.store(me, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        head.pending.store(ptr::null_mut(), Ordering::Relaxed);
        Ok(true)
    }

    /// Takes the calling thread's node out of its robust list again.
    ///
    /// # Safety
    /// This thread linked it with [`Region::link`].
    pub unsafe fn unlink(self) {
        // SAFETY: the private page is ours and linked by this thread.
        let node = unsafe { &*(self.0.add(PAGE + NODE_AT) as *const Node) };
        let next = node.next.load(Ordering::Relaxed);
        let prev = node.prev.load(Ordering::Relaxed);
        if next.is_null() || prev.is_null() {
            return;
        }
        // SAFETY: neighbours are this thread's own list: glibc's nodes, or the head, whose `next` is its first word.
        unsafe {
            *((next as usize & !1) as *mut u8).sub(size_of::<usize>()).cast::<*mut u8>() = prev;
            *((prev as usize & !1) as *mut *mut u8) = next;
        }
        node.next.store(ptr::null_mut(), Ordering::Relaxed);
        node.prev.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Puts a page of zeros where the shared one was. False: there is no memory for that.
    ///
    /// # Safety
    /// The region is not linked.
    pub unsafe fn forget_page(self) -> bool {
        // SAFETY: the region's first page is an alias that, by the caller, nobody looks at.
        unsafe { memory::clear_page(self.0) }.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_lies_where_the_kernel_looks() {
        let node_next = PAGE + NODE_AT + size_of::<usize>();
        assert_eq!(node_next as isize + GLIBC_OFFSET, (PAGE - WORD_BEFORE_END) as isize);
    }
}
