//! The program's memory. A pointer that leads nowhere is EFAULT, as from the kernel, not a crash.
//!
//! The kernel is asked (about 200 ns) before memory is touched, except for three kinds: the callers' part of the stack, as far as it was
//! asked about before, and static data, which cannot be missing; and the page of the heap (brk) that this thread asked about last:
//! interpreters keep their operations there, and would pay for the question each time. (Who gives that page back with brk(2) and passes a
//! pointer into it all the same meets SIGSEGV instead of EFAULT.)

use manyway_sem::abi::{SemBuf, Timespec};
use manyway_sync::Errno;

use crate::decode::{SemidDs, Seminfo};
use crate::sys::KernelAction;
use crate::{arch, statics, sys, tls};

/// The smallest page of the supported machines; on larger pages some questions are asked twice.
const PAGE: usize = 4096;
/// How far above the stack pointer an address is taken for one on the stack.
const NEAR: usize = 64 << 10;
/// What is known is known of so many bytes from an address on, so that one comparison tells.
pub(crate) const KNOWN: usize = 16;

/// Types that any bytes are a value of.
///
/// # Safety
/// No bit pattern may be invalid.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers.
unsafe impl Plain for u16 {}
// SAFETY: integers without padding.
unsafe impl Plain for SemBuf {}
// SAFETY: integers without padding.
unsafe impl Plain for Timespec {}
// SAFETY: integers without padding.
unsafe impl Plain for KernelAction {}
// SAFETY: integers without padding.
unsafe impl Plain for SemidDs {}
// SAFETY: integers without padding.
unsafe impl Plain for Seminfo {}

/// Reads an operation from the program's memory if that is known to be there: number, operation, flags. Each part by itself: a program
/// has just stored them one by one, and a wider load would wait for those stores to leave the store buffer (5 ns).
#[inline(always)]
pub(crate) fn read_known(p: *const SemBuf) -> Option<(u16, i16, i16)> {
    const { assert!(size_of::<SemBuf>() <= KNOWN) };
    if !known(p as usize) {
        return None;
    }
    // SAFETY: the bytes can be read, and any bytes are a SemBuf; no reference is made, since `p` may be unaligned.
    unsafe { Some(((&raw const (*p).num).read_unaligned(), (&raw const (*p).op).read_unaligned(), (&raw const (*p).flg).read_unaligned())) }
}

/// Reads a value from the program's memory.
pub(crate) fn read<T: Plain>(p: *const T) -> Result<T, Errno> {
    check_readable(p as usize, size_of::<T>())?;
    // SAFETY: the bytes can be read, and any bytes are a T.
    Ok(unsafe { p.read_unaligned() })
}

/// Reads values from the program's memory.
pub(crate) fn read_all<T: Plain>(p: *const T, out: &mut [T]) -> Result<(), Errno> {
    check_readable(p as usize, size_of_val(out))?;
    // SAFETY: the bytes can be read, `out` is the library's own, and any bytes are a T. By bytes, since `p` may be unaligned.
    unsafe { core::ptr::copy_nonoverlapping(p.cast::<u8>(), out.as_mut_ptr().cast(), size_of_val(out)) };
    Ok(())
}

/// Writes values to the program's memory.
///
/// # Safety
/// The program must have given `p` for these values to be written to.
pub(crate) unsafe fn write_all<T: Plain>(p: *mut T, values: &[T]) -> Result<(), Errno> {
    let len = size_of_val(values);
    // SAFETY: the question overwrites a byte of each page, all of them bytes that are written next.
    if !each_page(p as usize, len, |at| unsafe { sys::writable(at) }) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the bytes can be written and the caller may have them written. By bytes, since `p` may be unaligned.
    unsafe { core::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), p.cast(), len) };
    Ok(())
}

fn check_readable(p: usize, len: usize) -> Result<(), Errno> {
    if len <= KNOWN && known(p) { Ok(()) } else { ask(p, len, arch::stack_pointer()) }
}

/// True when the [`KNOWN`] bytes from `p` on cannot be missing.
#[inline(always)]
fn known(p: usize) -> bool {
    let b = tls::block();
    let sp = arch::stack_pointer();
    (sp >= b.stack_low.get() && p >= sp && p <= b.stack_last.get())
        || statics::in_program(p)
        || (b.page.get() != 0 && p.wrapping_sub(b.page.get()) <= PAGE - KNOWN)
}

#[cold]
#[inline(never)]
fn ask(p: usize, len: usize, sp: usize) -> Result<(), Errno> {
    if statics::contain(p, len) {
        return Ok(());
    }
    if !each_page(p, len, sys::readable) {
        return Err(Errno::EFAULT);
    }
    if p >= sp && p - sp < NEAR {
        remember(sp, p + KNOWN);
    } else if statics::behind_program(p) && p < sys::program_break() {
        tls::block().page.set(p & !(PAGE - 1));
    }
    Ok(())
}

/// Remembers that the stack can be read from `sp` to `end`, if that is so. It stays so while the stack pointer is not above: the
/// callers' frames cannot go away.
fn remember(sp: usize, end: usize) {
    let (mut low, mut high) = (sp & !(PAGE - 1), end.next_multiple_of(PAGE));
    if !each_page(low, high - low, sys::readable) {
        return;
    }
    let b = tls::block();
    let known_high = b.stack_last.get() + KNOWN;
    if low <= known_high && b.stack_low.get() <= high {
        low = low.min(b.stack_low.get());
        high = high.max(known_high);
    }
    b.stack_low.set(low);
    b.stack_last.set(high - KNOWN);
}

/// Asks about one address of each page that has a byte of the given ones.
fn each_page(p: usize, len: usize, ask: impl Fn(usize) -> bool) -> bool {
    let Some(end) = p.checked_add(len) else { return false };
    let mut at = p;
    while at < end {
        if at < PAGE || !ask(at) {
            return false;
        }
        at = (at & !(PAGE - 1)) + PAGE;
    }
    true
}
