//! This thread's robust list, as the kernel would find it at the thread's end.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

pub const OWNER_DIED: u32 = 0x4000_0000;
pub const WAITERS: u32 = 0x8000_0000;
pub const TID_MASK: u32 = 0x3fff_ffff;

/// `struct robust_list_head` (`linux/futex.h`).
#[repr(C)]
struct Head {
    first: usize,
    offset: isize,
    pending: usize,
}

static HEAD: AtomicPtr<Head> = AtomicPtr::new(ptr::null_mut());
/// Nodes of those whose end is not looked at.
static OTHERS: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

fn head() -> *const Head {
    if HEAD.load(Relaxed).is_null() {
        let (mut head, mut len) = (ptr::null_mut::<Head>(), 0usize);
        // SAFETY: the kernel writes the two results.
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
        HEAD.store(head, Relaxed);
    }
    HEAD.load(Relaxed)
}

/// The addresses of the list's nodes, and of the one that is announced.
fn nodes() -> impl Iterator<Item = usize> {
    let head = head();
    // SAFETY: the C library's head of this thread lives as long as the thread.
    let (mut next, pending) = unsafe { ((*head).first, (*head).pending) };
    let list = std::iter::from_fn(move || {
        let node = next & !1;
        if node == 0 || node == head.addr() {
            return None;
        }
        // SAFETY: a node of this thread's list begins with its link.
        next = unsafe { *ptr::with_exposed_provenance::<usize>(node) };
        Some(node)
    });
    list.take(64).chain((pending & !1 != 0).then_some(pending & !1))
}

/// The nodes that are there now are not the victim's.
pub fn keep_apart() {
    for (slot, node) in OTHERS.iter().zip(nodes()) {
        slot.store(node, Relaxed);
    }
}

/// Empties the list, as a fork does in the child.
pub fn forget_all() {
    let head = head().cast_mut();
    // SAFETY: this thread's own list. Its nodes stay where they are, and nobody needs the kernel to mark their words.
    unsafe {
        (*head).first = head.expose_provenance();
        *head.cast::<usize>().sub(1) = head.expose_provenance();
    }
}

/// The address of the victim's robust word, if the kernel would find it now; 0 else. Called behind single instructions too.
pub fn word_found() -> u64 {
    let mine = nodes().find(|n| OTHERS.iter().all(|o| o.load(Relaxed) != *n));
    mine.map_or(0, |n| n as u64 - 32)
}

/// The memory whose changes change the list: the head, and the links of the nodes.
pub fn places() -> Vec<(u64, u64)> {
    let mut all = vec![(head().addr() as u64 - 8, 8 + size_of::<Head>() as u64)];
    all.extend(nodes().map(|n| (n as u64 - 8, 16)));
    all
}
