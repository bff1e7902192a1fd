//! sigaction and the older functions that set signal handlers: the kernel gets the trampoline, the program sees its own handler.

use core::ffi::c_int;

use manyway_sync::Errno;
use manyway_sync::atomic::{AtomicU64, Ordering};

use crate::sys::{self, KernelAction};
use crate::trampoline::{self, Handler};
use crate::{arch, bus, errno, user};

/// Signals are numbered from 1; 0 is none.
pub(crate) const COUNT: usize = 65;

pub(crate) const SA_SIGINFO: u64 = 4;
pub(crate) const SA_RESETHAND: u64 = 0x8000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESTART: u64 = 0x1000_0000;
/// Means nothing on Linux; sysv_signal sets it.
const SA_INTERRUPT: u64 = 0x2000_0000;

pub(crate) const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;
/// For sigset: block the signal.
const SIG_HOLD: usize = 2;
const SIG_ERR: usize = usize::MAX;

pub(crate) const SIGILL: c_int = 4;
pub(crate) const SIGBUS: c_int = 7;
const SIGKILL: c_int = 9;
const SIGSTOP: c_int = 19;

/// `struct sigaction` of glibc and musl.
#[repr(C)]
pub struct CAction {
    handler: usize,
    /// The kernel's 64 signals, and room for more.
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

/// Takes a signal's handler away, so that it ends the process.
pub(crate) fn make_fatal(sig: c_int) {
    // SAFETY: SIG_DFL needs nothing. It cannot fail for a signal that exists.
    let _ = unsafe { sys::sigaction(sig, Some(&KernelAction { handler: SIG_DFL, ..KernelAction::default() })) };
}

/// What the program asks for, or is told.
struct Action {
    handler: usize,
    flags: u64,
    mask: u64,
}

/// The signals for which siginterrupt(3) asked that signal(3) lets them interrupt system calls.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

fn bit(sig: c_int) -> u64 {
    1 << (sig - 1)
}

/// The C libraries keep two or three signals to themselves; 32 and 33 are so in both.
fn check(sig: c_int) -> Result<(), Errno> {
    match sig {
        1..=31 | 34..=64 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// sigaction(2) in the program's terms.
fn change(sig: c_int, new: Option<Action>) -> Result<Action, Errno> {
    check(sig)?;
    let mut before = trampoline::handler(sig);
    let untouched = bus::is_untouched(sig, new.is_some());
    let (restorer_flag, restorer) = arch::restorer();
    let new = match new {
        None => None,
        Some(_) if sig == SIGKILL || sig == SIGSTOP => return Err(Errno::EINVAL),
        Some(Action { handler, flags, mask }) => {
            let flags = flags | restorer_flag;
            Some(if handler == SIG_IGN || (handler == SIG_DFL && !bus::is_guarded(sig)) {
                KernelAction { handler, flags, restorer, mask }
            } else {
                before = trampoline::set_handler(sig, Handler::new(handler, flags));
                KernelAction { handler: trampoline::address(), flags: flags & !SA_RESETHAND | SA_SIGINFO, restorer, mask }
            })
        }
    };
    // SAFETY: the trampoline is a handler, and calls the program's.
    let old = unsafe { sys::sigaction(sig, new.as_ref()) }?;
    Ok(if untouched {
        Action { handler: SIG_DFL, flags: 0, mask: 0 }
    } else if old.handler == trampoline::address() {
        Action { handler: before.address(), flags: old.flags & !SA_SIGINFO | before.flags(), mask: old.mask }
    } else {
        Action { handler: old.handler, flags: old.flags, mask: old.mask }
    })
}

/// sigaction(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(sig: c_int, new: *const CAction, old: *mut CAction) -> c_int {
    // SAFETY: null or a struct sigaction.
    let new = unsafe { new.as_ref() }.map(|a| Action { handler: a.handler, flags: a.flags as u32 as u64, mask: a.mask[0] });
    match change(sig, new) {
        Err(e) => errno::fail(e),
        Ok(a) => {
            // SAFETY: null or room for a struct sigaction.
            if let Some(old) = unsafe { old.as_mut() } {
                let restorer = arch::restorer().1;
                let mut mask = [0; 16];
                mask[0] = a.mask;
                *old = CAction { handler: a.handler, mask, flags: a.flags as c_int, restorer };
            }
            0
        }
    }
}

/// rt_sigaction(2) by syscall(2): a handler that is set so meets the middle of a call like any other.
pub(crate) fn rt_sigaction(sig: c_int, new: *const KernelAction, old: *mut KernelAction, mask_bytes: usize) -> c_int {
    let result = (|| {
        if mask_bytes != size_of::<u64>() {
            return Err(Errno::EINVAL);
        }
        let new = if new.is_null() { None } else { Some(user::read(new)?) };
        let before = if check(sig).is_ok() {
            let new = new.map(|KernelAction { handler, flags, mask, .. }| Action { handler, flags, mask });
            let Action { handler, flags, mask } = change(sig, new)?;
            let (restorer_flag, restorer) = arch::restorer();
            KernelAction { handler, flags, restorer: if flags & restorer_flag == 0 { 0 } else { restorer }, mask }
        } else {
            // The C library's own signals.
            // SAFETY: the program's own call.
            unsafe { sys::sigaction(sig, new.as_ref()) }?
        };
        // SAFETY: the program gave it to be written to.
        if old.is_null() { Ok(()) } else { unsafe { user::write_all(old, &[before]) } }
    })();
    result.map_or_else(errno::fail, |()| 0)
}

/// glibc's other name for sigaction.
///
/// # Safety
/// As sigaction's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(sig: c_int, new: *const CAction, old: *mut CAction) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { sigaction(sig, new, old) }
}

/// What the functions of signal's kind return: the handler before, or SIG_ERR.
fn old_handler(r: Result<Action, Errno>) -> usize {
    r.map_or_else(
        |e| {
            errno::set(e);
            SIG_ERR
        },
        |a| a.handler,
    )
}

/// signal(2), as BSD has it: the handler stays, system calls are restarted.
#[unsafe(no_mangle)]
pub extern "C" fn signal(sig: c_int, handler: usize) -> usize {
    old_handler(check(sig).and_then(|()| {
        if handler == SIG_ERR {
            return Err(Errno::EINVAL);
        }
        let mask = bit(sig);
        let flags = if INTERRUPTING.load(Ordering::Relaxed) & mask != 0 { 0 } else { SA_RESTART };
        change(sig, Some(Action { handler, flags, mask }))
    }))
}

/// Another name for signal.
#[unsafe(no_mangle)]
pub extern "C" fn bsd_signal(sig: c_int, handler: usize) -> usize {
    signal(sig, handler)
}

/// Another name for signal.
#[unsafe(no_mangle)]
pub extern "C" fn ssignal(sig: c_int, handler: usize) -> usize {
    signal(sig, handler)
}

/// signal as System V has it: good for one signal, which is not blocked meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn sysv_signal(sig: c_int, handler: usize) -> usize {
    if handler == SIG_ERR {
        return old_handler(Err(Errno::EINVAL));
    }
    old_handler(change(sig, Some(Action { handler, flags: SA_RESETHAND | SA_NODEFER | SA_INTERRUPT, mask: 0 })))
}

/// Another name for sysv_signal, which signal means in programs compiled for strict XPG conformance.
#[unsafe(no_mangle)]
pub extern "C" fn __sysv_signal(sig: c_int, handler: usize) -> usize {
    sysv_signal(sig, handler)
}

/// sigset(3): sets a handler and unblocks the signal, or blocks it. Returns SIG_HOLD if it was blocked.
#[unsafe(no_mangle)]
pub extern "C" fn sigset(sig: c_int, disposition: usize) -> usize {
    let result = check(sig).and_then(|()| match disposition {
        SIG_ERR => Err(Errno::EINVAL),
        SIG_HOLD => {
            let before = sys::block(bit(sig));
            change(sig, None).map(|old| (before, old))
        }
        handler => {
            let old = change(sig, Some(Action { handler, flags: 0, mask: 0 }))?;
            Ok((sys::unblock(bit(sig)), old))
        }
    });
    match result {
        Ok((before, _)) if before & bit(sig) != 0 => SIG_HOLD,
        other => old_handler(other.map(|(_, old)| old)),
    }
}

/// siginterrupt(3): whether the signal interrupts system calls, now and after a later signal(2).
#[unsafe(no_mangle)]
pub extern "C" fn siginterrupt(sig: c_int, interrupt: c_int) -> c_int {
    let result = change(sig, None).and_then(|old| {
        let flags = if interrupt != 0 {
            INTERRUPTING.fetch_or(bit(sig), Ordering::Relaxed);
            old.flags & !SA_RESTART
        } else {
            INTERRUPTING.fetch_and(!bit(sig), Ordering::Relaxed);
            old.flags | SA_RESTART
        };
        change(sig, Some(Action { flags, ..old }))
    });
    match result {
        Ok(_) => 0,
        Err(e) => errno::fail(e),
    }
}
