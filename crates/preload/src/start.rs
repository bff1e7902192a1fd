//! The namespace: opened when the program starts, before it gives up privileges or changes its root.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;

use manyway_sem::{Engine, OpenError, OpenOptions};
use manyway_sync::Errno;
use manyway_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::arch::weak;
use crate::{real, sys, trampoline, user};

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

/// The program's static data: its first address, and the last one from which on [`KNOWN`](user::KNOWN) bytes are in it.
static STATIC_DATA: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));

/// True when the [`KNOWN`](user::KNOWN) bytes from `p` on are the program's own static data, which is there as long as the program.
#[inline(always)]
pub(crate) fn in_static_data(p: usize) -> bool {
    p <= STATIC_DATA.1.load(Ordering::Relaxed) && p >= STATIC_DATA.0.load(Ordering::Relaxed)
}

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
    open(environment());
    while NAMESPACE.state.load(Ordering::Acquire) == BUSY {
        manyway_sync::sys::nap(100_000);
    }
    if let Some(e) = opened() {
        return Ok(e);
    }
    if NAMESPACE.said.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: the state is FAILED: written before, constant since.
        match unsafe { &*NAMESPACE.why.get() } {
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
    // What musl leaves in the registers will hardly look like this.
    if argc > 0 && argc as usize * 8 + 8 == (envp as usize).wrapping_sub(argv as usize) {
        // SAFETY: this is the block that the kernel put on the stack: arguments, environment, auxiliary vector.
        unsafe { find_static_data(envp) };
        open(envp);
    } else {
        open(environment());
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

/// The C library's `environ`.
fn environment() -> *const *const c_char {
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
    let how = OpenOptions { create: false, limits: None, fairness: None };
    let state = match dir.map(|dir| Engine::open(dir, &how)) {
        Some(Ok(mut e)) => {
            e.set_deferred_hook(trampoline::deferred);
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
}

/// The value of a variable; `name` ends with the equals sign.
///
/// # Safety
/// `env` must be null or an array of strings that ends with a null.
unsafe fn variable<'a>(mut env: *const *const c_char, name: &[u8]) -> Option<&'a CStr> {
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

/// `Elf64_Phdr`.
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    paddr: u64,
    filesz: u64,
    memsz: u64,
    align: u64,
}

/// Finds the program's last segments, as far as they are one piece of readable memory.
///
/// # Safety
/// `envp` must be the one on the stack that the kernel made.
unsafe fn find_static_data(mut envp: *const *const c_char) {
    const AT_PHDR: usize = 3;
    const AT_PHNUM: usize = 5;
    const PT_LOAD: u32 = 1;
    const PT_PHDR: u32 = 6;
    const READ: u32 = 4;
    let (mut headers, mut n) = (0, 0);
    // SAFETY: the auxiliary vector follows the environment and ends with type 0.
    unsafe {
        while !(*envp).is_null() {
            envp = envp.add(1);
        }
        let mut aux = envp.add(1).cast::<[usize; 2]>();
        while (*aux)[0] != 0 {
            match *aux {
                [AT_PHDR, v] => headers = v,
                [AT_PHNUM, v] => n = v,
                _ => {}
            }
            aux = aux.add(1);
        }
    }
    if headers == 0 {
        return;
    }
    // SAFETY: where the kernel says that the program's headers are.
    let headers = unsafe { core::slice::from_raw_parts(headers as *const ProgramHeader, n) };
    // Without a PT_PHDR nothing says where the program was loaded.
    let Some(own) = headers.iter().find(|h| h.kind == PT_PHDR) else {
        return;
    };
    let base = (headers.as_ptr() as usize).wrapping_sub(own.vaddr as usize);
    let (mut low, mut high) = (0, 0);
    for h in headers.iter().rev().filter(|h| h.kind == PT_LOAD) {
        let start = base.wrapping_add(h.vaddr as usize);
        let end = start + h.memsz as usize;
        if h.flags & READ == 0 || high != 0 && end.next_multiple_of(4096) != low & !4095 {
            break;
        }
        low = start;
        high = high.max(end);
    }
    if high == 0 {
        return;
    }
    STATIC_DATA.0.store(low, Ordering::Relaxed);
    STATIC_DATA.1.store(high.next_multiple_of(4096) - user::KNOWN, Ordering::Relaxed);
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
