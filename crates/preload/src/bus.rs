//! SIGBUS in the namespace's memory: its owner has cut the arena's file short under the program, or a full file system cannot fill a hole that
//! somebody made in it. No program that uses semaphores expects to die of that, so the library handles this one signal, as other users of shared files
//! do: it puts zeros in the memory's place, and calls fail with EIO from then on. A SIGBUS of any other kind is the program's own, as if
//! nobody had looked at it. It cannot help a thread that blocks SIGBUS, nor a program that ignores it or sets a handler by a system
//! call instruction of its own.

use core::ffi::c_int;

use manyway_sync::atomic::{AtomicU32, Ordering::*};

use crate::sys::{self, KernelAction};
use crate::{arch, signal, start, trampoline};

/// 1: the kernel has the trampoline where the program has the default action.
static GUARDED: AtomicU32 = AtomicU32::new(0);
/// 1: and the program has never said what it wants.
static UNTOUCHED: AtomicU32 = AtomicU32::new(0);

/// Begins to look at SIGBUS, when the program starts, unless it is ignored.
pub(crate) fn guard() {
    let (restorer_flag, restorer) = arch::restorer();
    // SAFETY: the trampoline is a handler.
    unsafe {
        if sys::sigaction(signal::SIGBUS, None).is_ok_and(|a| a.handler == signal::SIG_DFL) {
            let flags = restorer_flag | signal::SA_SIGINFO;
            let action = KernelAction { handler: trampoline::address(), flags, restorer, mask: 0 };
            if sys::sigaction(signal::SIGBUS, Some(&action)).is_ok() {
                UNTOUCHED.store(1, Relaxed);
                GUARDED.store(1, Relaxed);
            }
        }
    }
}

/// True when the default action for a signal is to be the trampoline's.
pub(crate) fn is_guarded(sig: c_int) -> bool {
    sig == signal::SIGBUS && GUARDED.load(Relaxed) != 0
}

/// True when the program has not set an action for the signal before; with `sets` it does so now.
pub(crate) fn is_untouched(sig: c_int, sets: bool) -> bool {
    sig == signal::SIGBUS && if sets { UNTOUCHED.swap(0, Relaxed) } else { UNTOUCHED.load(Relaxed) } != 0
}

/// The beginning of a `siginfo_t` of a fault.
#[repr(C)]
struct Fault {
    signo: c_int,
    errno: c_int,
    code: c_int,
    pad: c_int,
    address: usize,
}

/// Looks at a signal before the program does. True: there is nothing left to do.
///
/// # Safety
/// The arguments must be those of a signal handler.
pub(crate) unsafe fn is_done(sig: c_int, info: *const core::ffi::c_void) -> bool {
    if sig != signal::SIGBUS {
        return false;
    }
    // SAFETY: a siginfo_t, by the caller.
    let Fault { code, address, .. } = unsafe { info.cast::<Fault>().read() };
    let by_instruction = code > 0;
    if by_instruction && start::opened().is_some_and(|e| e.replace_lost(address)) {
        return true;
    }
    let by_default = trampoline::handler(sig).address() == signal::SIG_DFL;
    if by_default {
        signal::make_fatal(sig);
        if !by_instruction {
            // It comes again behind this handler; an instruction that is repeated causes it by itself.
            // SAFETY: as above.
            unsafe { sys::queue_again(sig, info) };
        }
    }
    by_default
}
