//! The namespace: opened when the program starts, before it gives up privileges or changes its root.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;

use manyway_sem::{Engine, OpenError, OpenOptions};
use manyway_sync::Errno;
use manyway_sync::atomic::{AtomicU32, Ordering};

use crate::arch::weak;
use crate::{bus, exec, real, statics, sys, trampoline};

const UNTRIED: u32 = 0;
const BUSY: u32 = 1;
const OPEN: u32 = 2;
const FAILED: u32 = 3;

/// The namespace, the only one of this process.
struct Namespace {
    state: AtomicU32,
    /// Written by the one who took `state` to BUSY; valid and constant from OPEN on, which is the last state.
    engine: UnsafeCell<MaybeUninit<Engine>>,
    /// Written by the one who took `state` from UNTRIED to BUSY; constant from FAILED on: why, and the directory's name, empty when the environment has none.
    why: UnsafeCell<(Option<OpenError>, [u8; DIR])>,
    /// The failure has been said.
    said: AtomicU32,
}

/// The longest directory name that a message shows.
const DIR: usize = 200;

// SAFETY: `engine` and `why` are written once, before `state` says so (see there); an Engine may be used by all threads.
unsafe impl Sync for Namespace {}

static NAMESPACE: Namespace = Namespace {
    state: AtomicU32::new(UNTRIED),
    engine: UnsafeCell::new(MaybeUninit::uninit()),
    why: UnsafeCell::new((None, [0; DIR])),
    said: AtomicU32::new(0),
};

/// The namespace, or ENOSYS.
#[inline]
pub(crate) fn engine() -> Result<&'static Engine, Errno> {
    match opened() {
        Some(e) => Ok(e),
        None => late(),
    }
}

/// The namespace if it is open.
#[inline]
pub(crate) fn opened() -> Option<&'static Engine> {
    if NAMESPACE.state.load(Ordering::Acquire) == OPEN {
        // SAFETY: written before OPEN was stored (Release), constant since.
        Some(unsafe { (*NAMESPACE.engine.get()).assume_init_ref() })
    } else {
        None
    }
}

/// A call before the constructor (from another library's), or without a namespace.
#[cold]
#[inline(never)]
fn late() -> Result<&'static Engine, Errno> {
    open(trusted(environment()));
    while NAMESPACE.state.load(Ordering::Acquire) == BUSY {
        manyway_sync::sys::nap(100_000);
    }
    if let Some(e) = opened() {
        return Ok(e);
    }
    if NAMESPACE.said.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: the state is FAILED: written before, constant since.
        match unsafe { &*NAMESPACE.why.get() } {
            (None, _) if manyway_sync::sys::is_secure_execution() => {
                say(format_args!("a set-user-id or otherwise privileged program does not listen to MANYWAY_DIR, so it has no namespace"));
            }
            (None, _) => say(format_args!("MANYWAY_DIR is not set, so there is no namespace; start the program with `manyway run`")),
            (Some(e), dir) => {
                let dir = CStr::from_bytes_until_nul(dir).ok().and_then(|d| d.to_str().ok()).unwrap_or("?");
                say(format_args!("cannot open namespace {dir}: {e}"));
            }
        }
    }
    Err(Errno::ENOSYS)
}

/// Runs before the program. glibc hands over main's arguments, musl nothing.
extern "C" fn constructor(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
    real::resolve_all();
    statics::find();
    // What musl leaves in the registers will hardly look like this.
    let passed = argc > 0 && argc as usize * 8 + 8 == (envp as usize).wrapping_sub(argv as usize);
    let env = trusted(if passed { envp } else { environment() });
    // SAFETY: the program's environment, or null; nothing else runs yet.
    unsafe { exec::keep(env) };
    open(env);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

/// The environment, or none: whoever starts a set-user-id program chooses its environment, which must lead neither that program nor those
/// that it starts into a namespace of his.
fn trusted(env: *const *const c_char) -> *const *const c_char {
    if manyway_sync::sys::is_secure_execution() { core::ptr::null() } else { env }
}

/// The C library's `environ`.
pub(crate) fn environment() -> *const *const c_char {
    let p = weak!("environ").cast::<*const *const c_char>();
    if p.is_null() {
        return core::ptr::null();
    }
    // SAFETY: a symbol of this name is the environment.
    unsafe { *p }
}

/// Opens the namespace that the environment names, unless that was tried before.
fn open(env: *const *const c_char) {
    if NAMESPACE.state.compare_exchange(UNTRIED, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: an environment, or null.
    let dir = unsafe { variable(env, b"MANYWAY_DIR=") };
    // SAFETY: as above.
    let owner = unsafe { variable(env, b"MANYWAY_OWNER=") }.and_then(|uid| uid.to_str().ok()?.parse().ok());
    let how = OpenOptions { owner, ..OpenOptions::FIND };
    let state = match dir.map(|dir| Engine::open(dir, &how)) {
        Some(Ok(mut e)) => {
            // SAFETY: as above.
            if unsafe { variable(env, exec::REPORT) }.is_some() {
                e.set_attached_hook(sys::tell_listener);
            }
            enter(e);
            OPEN
        }
        Some(Err(e)) => {
            let mut name = [0; DIR];
            let bytes = dir.map_or(&[][..], CStr::to_bytes);
            let n = bytes.len().min(DIR - 1);
            name[..n].copy_from_slice(&bytes[..n]);
            // SAFETY: as above.
            unsafe { *NAMESPACE.why.get() = (Some(e), name) };
            FAILED
        }
        None => FAILED,
    };
    NAMESPACE.state.store(state, Ordering::Release);
    if state == OPEN {
        bus::guard();
    }
}

/// Opens the namespace in `dir` for a program that was started without one. The program's environment says whose it may be.
pub(crate) fn open_late(dir: &CStr, create: bool) -> Result<(), Errno> {
    // SAFETY: an environment, or null.
    let owner = unsafe { variable(trusted(environment()), b"MANYWAY_OWNER=") }.and_then(|uid| uid.to_str().ok()?.parse().ok());
    let how = OpenOptions { owner, create, ..OpenOptions::FIND };
    loop {
        let before = match NAMESPACE.state.load(Ordering::Acquire) {
            // It may be this one.
            OPEN => return opened().map_or(Err(Errno::EBUSY), |e| same(e, dir, &how)),
            BUSY => {
                manyway_sync::sys::nap(100_000);
                continue;
            }
            before => before,
        };
        if NAMESPACE.state.compare_exchange(before, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            break;
        }
    }
    let opened = Engine::open(dir, &how);
    let state = match &opened {
        Ok(_) => OPEN,
        Err(_) => FAILED,
    };
    let result = opened.map(enter).map_err(|e| {
        say(format_args!("cannot open namespace {}: {e}", dir.to_str().unwrap_or("?")));
        number(e)
    });
    NAMESPACE.state.store(state, Ordering::Release);
    if state == OPEN {
        bus::guard();
        // SAFETY: only one call finds the state other than OPEN and leaves it OPEN.
        unsafe { exec::keep_opened(dir) };
    }
    result
}

/// Whether the directory is that of the namespace that is open.
fn same(e: &Engine, dir: &CStr, how: &OpenOptions) -> Result<(), Errno> {
    let other = Engine::open(dir, &OpenOptions { create: false, ..*how }).map_err(number)?;
    if other.file() == e.file() { Ok(()) } else { Err(Errno::EBUSY) }
}

/// For a program that sees error numbers only.
fn number(e: OpenError) -> Errno {
    match e {
        OpenError::Os(_, e) => e,
        OpenError::Foreign { .. } | OpenError::Untrusted(_) | OpenError::OtherPidNamespace | OpenError::OtherUserNamespace => Errno::EACCES,
        _ => Errno::EINVAL,
    }
}

/// Takes a namespace into use. The state must be BUSY by this thread's doing.
fn enter(mut e: Engine) {
    e.set_deferred_hook(trampoline::deferred);
    // SAFETY: BUSY is ours alone.
    unsafe { (*NAMESPACE.engine.get()).write(e) };
}

/// The value of a variable; `name` ends with the equals sign.
///
/// # Safety
/// `env` must be null or an array of strings that ends with a null.
pub(crate) unsafe fn variable<'a>(mut env: *const *const c_char, name: &[u8]) -> Option<&'a CStr> {
    if env.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        while !(*env).is_null() {
            let entry = CStr::from_ptr(*env);
            if entry.to_bytes().starts_with(name) {
                return CStr::from_bytes_with_nul(&entry.to_bytes_with_nul()[name.len()..]).ok();
            }
            env = env.add(1);
        }
    }
    None
}

/// One line on standard error: whose library this is, which program it is in, and what it has to say.
#[cold]
pub(crate) fn say(what: fmt::Arguments<'_>) {
    let mut name = [0; 16];
    let name = core::str::from_utf8(sys::name(&mut name)).unwrap_or("?");
    let mut line = Line { text: [0; 512], len: 0 };
    // A Line takes what fits and never fails.
    let _ = write!(line, "manyway: {name}: {what}");
    let _ = line.write_str("\n");
    sys::write_error(&line.text[..line.len]);
}

/// A line of text, cut where it gets too long.
struct Line {
    text: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // Room for the end of the line is kept.
        let room = self.text.len() - self.len - usize::from(s != "\n");
        let n = s.len().min(room);
        self.text[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}
