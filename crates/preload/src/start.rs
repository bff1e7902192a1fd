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
    /// Written by the one who took `state` from UNTRIED to BUSY; valid and constant from OPEN on.
    engine: UnsafeCell<MaybeUninit<Engine>>,
    /// The same for FAILED: why, and the directory's name, empty when the environment has none.
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
            e.set_deferred_hook(trampoline::deferred);
            // SAFETY: as above.
            if unsafe { variable(env, exec::REPORT) }.is_some() {
                e.set_attached_hook(sys::tell_listener);
            }
            // SAFETY: BUSY is ours alone.
            unsafe { (*NAMESPACE.engine.get()).write(e) };
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
