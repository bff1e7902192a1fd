//! What the library keeps of each thread.

use core::cell::Cell;

use manyway_sem::Thread;

/// One thread's own memory, all zero when the thread starts; only that thread and its signal handlers use it.
#[repr(C, align(64))]
pub(crate) struct Block {
    /// The engine's part.
    pub thread: Thread,
    /// The signal mask to put back at the end of the locked section in which a signal was deferred.
    pub deferred_mask: Cell<u64>,
    /// The part of the stack that was seen to be readable: its lowest address …
    pub stack_low: Cell<usize>,
    /// … and the last one from which on [`KNOWN`](crate::user::KNOWN) bytes are in it.
    pub stack_last: Cell<usize>,
    /// The page of the heap that was asked about last and was readable; 0: none.
    pub page: Cell<usize>,
}

/// The calling thread's block.
#[inline(always)]
pub(crate) fn block<'a>() -> &'a Block {
    // SAFETY: the block is as large and as aligned as a `Block`, which is valid when all zero, and lives as long as the thread; a
    // caller keeps the reference on its own stack.
    unsafe { &*crate::arch::thread_block() }
}
