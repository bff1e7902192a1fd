//! What the kernel calls instead of the program's signal handlers.
//!
//! Three cases. The signal interrupts a **locked section**: it is queued again and all signals are blocked in the interrupted
//! context; the section's end puts the mask back, and the signal comes then. It interrupts a **sleep** in semop: the thread is
//! taken out of the queue first, since for the handler, as with the kernel's semaphores, that call is over: it may call semop
//! itself or jump out. Anything else: the handler is simply called.

use core::ffi::{c_int, c_void};

use manyway_sem::{Engine, Thread};
use manyway_sync::atomic::{AtomicU64, Ordering};

use crate::sys::{self, KernelAction};
use crate::{arch, bus, signal, start, tls};

/// The program's handler for each signal.
///
/// One word, so that a delivery on another thread never sees half of an update. It changes only when a handler is set: whether a
/// handler or SIG_DFL or SIG_IGN is in force, and with what mask, the kernel knows.
static HANDLERS: [AtomicU64; signal::COUNT] = [const { AtomicU64::new(0) }; signal::COUNT];

/// A program's handler with those of its flags that the kernel is not told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handler(u64);

impl Handler {
    /// SA_SIGINFO, which the kernel is always told.
    const INFO: u64 = 1 << 62;
    /// SA_RESETHAND, which it is never told: a deferred signal must find its handler when it comes again.
    const RESET: u64 = 1 << 63;
    /// A signal has used the handler up, as RESET says.
    const SPENT: u64 = 1 << 61;
    const ADDRESS: u64 = Self::SPENT - 1;

    /// A handler's address and flags.
    pub(crate) fn new(address: usize, flags: u64) -> Handler {
        let info = if flags & signal::SA_SIGINFO != 0 { Self::INFO } else { 0 };
        let reset = if flags & signal::SA_RESETHAND != 0 { Self::RESET } else { 0 };
        Handler(address as u64 & Self::ADDRESS | info | reset)
    }
    /// Its address.
    pub(crate) fn address(self) -> usize {
        (self.0 & Self::ADDRESS) as usize
    }
    /// The flags that [`new`](Self::new) was given, as far as they are kept here.
    pub(crate) fn flags(self) -> u64 {
        let info = if self.0 & Self::INFO != 0 { signal::SA_SIGINFO } else { 0 };
        let reset = if self.0 & Self::RESET != 0 { signal::SA_RESETHAND } else { 0 };
        info | reset
    }
}

/// The handler set last for a signal.
pub(crate) fn handler(sig: c_int) -> Handler {
    Handler(HANDLERS[sig as usize].load(Ordering::Acquire))
}

/// Sets the handler for a signal; the kernel is told afterwards, so that the trampoline never finds none. Returns the one before.
pub(crate) fn set_handler(sig: c_int, h: Handler) -> Handler {
    Handler(HANDLERS[sig as usize].swap(h.0, Ordering::AcqRel))
}

/// The address that the kernel is given.
pub(crate) fn address() -> usize {
    trampoline as *const () as usize
}

/// The beginning of a `siginfo_t`.
#[repr(C)]
struct Info {
    signo: c_int,
    errno: c_int,
    code: c_int,
}

extern "C" fn trampoline(sig: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: these are the arguments of a signal handler.
    if unsafe { bus::is_done(sig, info) } {
        return;
    }
    let t = &tls::block().thread;
    let in_section = Engine::in_section(t);
    // SAFETY: the kernel's siginfo_t: the trampoline is installed with SA_SIGINFO.
    if in_section && !unsafe { raised_by_instruction(sig, info.cast()) } {
        // SAFETY: these are the arguments of a signal handler.
        return unsafe { defer(t, sig, info, context) };
    }
    let Some(h) = take(sig) else {
        // SAFETY: as above.
        return unsafe { sys::queue_again(sig, info) };
    };
    // SAFETY: the program set it for this signal. One that expects less than three arguments ignores the others.
    let call = || unsafe {
        let f = core::mem::transmute::<usize, extern "C" fn(c_int, *mut c_void, *mut c_void)>(h.address());
        f(sig, info, context);
    };
    match start::opened() {
        Some(e) if !in_section => {
            let token = e.before_handler(t);
            // It may jump out and never return: nothing but `token` is kept over the call.
            call();
            e.after_handler(t, token);
        }
        _ => call(),
    }
}

/// True for a signal that the interrupted instruction itself caused: when the handler returns, the instruction runs again, so it
/// cannot wait.
///
/// # Safety
/// `info` must point to the signal's `siginfo_t`.
unsafe fn raised_by_instruction(sig: c_int, info: *const Info) -> bool {
    const SIGTRAP: c_int = 5;
    const SIGBUS: c_int = 7;
    const SIGFPE: c_int = 8;
    const SIGSEGV: c_int = 11;
    const SIGSYS: c_int = 31;
    // SAFETY: the caller's promise. Codes above 0 come from the kernel, not from a process.
    matches!(sig, signal::SIGILL | SIGTRAP | SIGBUS | SIGFPE | SIGSEGV | SIGSYS) && unsafe { (*info).code } > 0
}

/// Puts the signal off to the section's end.
///
/// Another signal may interrupt this function until everything is blocked. Its trampoline then does the same, completely, and this
/// one goes on with everything blocked; it stores last, and its mask is the section's.
///
/// # Safety
/// The arguments must be those of a signal handler.
unsafe fn defer(t: &Thread, sig: c_int, info: *const c_void, context: *mut c_void) {
    sys::set_mask(sys::ALL);
    // SAFETY: the caller's promise; a ucontext_t has the mask at this place.
    unsafe {
        sys::queue_again(sig, info);
        let mask = context.byte_add(arch::SIGMASK_IN_CONTEXT).cast::<u64>();
        tls::block().deferred_mask.set(*mask);
        // A fault that the section itself meets is looked at all the same: see `bus`.
        *mask = sys::ALL & !(1 << (signal::SIGBUS - 1));
    }
    Engine::defer(t);
}

/// The engine calls it at the end of a section in which a signal was deferred: it is pending now, and comes at once.
pub(crate) fn deferred(_: &Thread) {
    sys::set_mask(tls::block().deferred_mask.get());
}

/// The handler to call. None: the signal's one call (SA_RESETHAND) has been taken on another thread, and the default action is in
/// force.
fn take(sig: c_int) -> Option<Handler> {
    let word = &HANDLERS[sig as usize];
    let mut seen = word.load(Ordering::Acquire);
    loop {
        if seen & Handler::RESET == 0 {
            return Some(Handler(seen));
        }
        let first = seen & Handler::SPENT == 0;
        if first {
            match word.compare_exchange(seen, seen | Handler::SPENT, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {}
                Err(now) => {
                    seen = now;
                    continue;
                }
            }
        }
        // Also when not the first: the first may not have come to this line yet.
        reset(sig, Handler(seen));
        return first.then_some(Handler(seen));
    }
}

/// Sets a signal's default action, and keeps its flags and mask, as the kernel does for SA_RESETHAND.
fn reset(sig: c_int, h: Handler) {
    // SAFETY: SIG_DFL is no address, and the rest is what the kernel has.
    unsafe {
        let Ok(now) = sys::sigaction(sig, None) else { return };
        if now.handler == address() {
            let flags = now.flags & !signal::SA_SIGINFO | h.flags();
            let _ = sys::sigaction(sig, Some(&KernelAction { handler: signal::SIG_DFL, flags, ..now }));
        }
    }
}
