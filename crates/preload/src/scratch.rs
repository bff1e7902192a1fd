//! Memory for one call: what a program hands over is copied before anybody looks at it, since other threads may change it.

use core::mem::MaybeUninit;

use manyway_sync::Errno;

use crate::sys;
use crate::user::Plain;

/// Up to so many bytes lie on the stack.
const SMALL: usize = 4096;

#[repr(align(8))]
struct Small(MaybeUninit<[u8; SMALL]>);

/// Calls `f` with `n` values, all zero.
#[inline(never)]
pub(crate) fn with<T: Plain, R>(n: usize, f: impl FnOnce(&mut [T]) -> Result<R, Errno>) -> Result<R, Errno> {
    const { assert!(align_of::<T>() <= 8) };
    let bytes = n * size_of::<T>();
    if bytes <= SMALL {
        let mut small = Small(MaybeUninit::uninit());
        // SAFETY: large and aligned enough; zeroed, and zero is a T.
        f(unsafe { zeroed(small.0.as_mut_ptr().cast(), n) })
    } else {
        let p = sys::map(bytes)?;
        // SAFETY: as above; a new mapping starts at a page.
        let r = f(unsafe { zeroed(p.cast(), n) });
        // SAFETY: `f` got a borrow, which has ended.
        unsafe { sys::unmap(p, bytes) };
        r
    }
}

/// # Safety
/// `p` must have room for `n` values, be aligned for them, and nobody else may use it for `'a`.
unsafe fn zeroed<'a, T: Plain>(p: *mut T, n: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise; zero is a T.
    unsafe {
        p.write_bytes(0, n);
        core::slice::from_raw_parts_mut(p, n)
    }
}
