//! The exec family and posix_spawn: a program that hands on an environment of its own making (`env -i`, a service manager, an interpreter's
//! `env={}`) would start one that is on the kernel's semaphores while its partners are on Manyway's. So what `manyway run` has put into the
//! environment is put in again where it is missing. A MANYWAY_DIR that is there and empty is left alone: that is how a program says that
//! another one is to have the kernel's semaphores.
//!
//! What the C library executes by itself (system, popen) has the program's `environ`, and these two variables with it unless the program
//! cleared it.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};

use manyway_sync::Errno;
use manyway_sync::atomic::{AtomicUsize, Ordering};

use crate::arch::{variadic, weak};
use crate::real::{self, Real};
use crate::user::Plain;
use crate::{errno, scratch, start, statics};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const DIR: &[u8] = b"MANYWAY_DIR=";
/// Goes with the directory, when that is another user's.
const OWNER: &[u8] = b"MANYWAY_OWNER=";
pub(crate) const REPORT: &[u8] = b"MANYWAY_REPORT=";
/// How the file name of every library of this kind begins.
const OURS: &[u8] = b"libmanyway";
/// The longest of either variable that is handed on.
const LONGEST: usize = 4096;

/// A string, or null: what argument lists and environments are made of.
type Text = *const c_char;

// SAFETY: null is a pointer; what was zeroed is overwritten before it is used.
unsafe impl Plain for Text {}
// SAFETY: an integer.
unsafe impl Plain for u8 {}

/// The variables as they were when the program started (it may write over its own environment), or as `manyway_open` chose them.
struct Start {
    dir: UnsafeCell<[u8; LONGEST]>,
    /// Room for a number of 32 bits; empty when there is none.
    owner: UnsafeCell<[u8; 32]>,
    preload: UnsafeCell<[u8; LONGEST]>,
    /// Somebody wants to be told who uses the namespace.
    report: UnsafeCell<bool>,
}

// SAFETY: each is written once, before `CHOSEN` names it; constant since.
unsafe impl Sync for Start {}

impl Start {
    const fn new() -> Start {
        Start {
            dir: UnsafeCell::new([0; LONGEST]),
            owner: UnsafeCell::new([0; 32]),
            preload: UnsafeCell::new([0; LONGEST]),
            report: UnsafeCell::new(false),
        }
    }

    /// # Safety
    /// The caller alone has it, and `CHOSEN` has never named it. Directory and library must have room.
    unsafe fn set(&self, dir: &CStr, owner: Option<&CStr>, library: &[u8], report: bool) {
        // SAFETY: the caller's promise; the last byte stays 0.
        unsafe {
            write(&mut *self.dir.get(), &[DIR, dir.to_bytes()]);
            if let Some(owner) = owner.filter(|owner| OWNER.len() + owner.count_bytes() < 32) {
                write(&mut *self.owner.get(), &[OWNER, owner.to_bytes()]);
            }
            write(&mut *self.preload.get(), &[PRELOAD, library]);
            *self.report.get() = report;
        }
    }
}

/// The constructor's, and `manyway_open`'s.
static STARTS: [Start; 2] = [const { Start::new() }; 2];
/// Number of the one that counts, plus 1.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

fn fits(dir: &CStr, library: &[u8]) -> bool {
    !dir.is_empty() && DIR.len() + dir.count_bytes() < LONGEST && PRELOAD.len() + library.len() < LONGEST
}

/// Keeps the variables of the environment that the program was started with. The caller has made sure that the environment is not an
/// attacker's: a set-user-id program hands on none of it.
///
/// # Safety
/// As for [`start::variable`]; and only the constructor may call it.
pub(crate) unsafe fn keep(env: *const Text) {
    // SAFETY: the caller's promise.
    let (dir, owner, list) = unsafe { (start::variable(env, DIR), start::variable(env, OWNER), start::variable(env, PRELOAD)) };
    // A program that is linked with the library was started without it.
    let library = list.and_then(|l| ours(l.to_bytes())).or_else(library);
    let (Some(dir), Some(library)) = (dir, library) else { return };
    if fits(dir, library) {
        // SAFETY: the constructor is the only one, and runs once.
        unsafe { STARTS[0].set(dir, owner, library, start::variable(env, REPORT).is_some()) };
        CHOSEN.store(1, Ordering::Release);
    }
}

/// Makes what the program executes from now on open the namespace in `dir`, as this one has, and puts it into the program's environment:
/// system(3) and popen(3) hand that on.
///
/// # Safety
/// Only who has opened the namespace after the start may call it, once.
pub(crate) unsafe fn keep_opened(dir: &CStr) {
    if manyway_sync::sys::is_secure_execution() {
        return;
    }
    // SAFETY: the program's environment.
    let (owner, list) = unsafe { (start::variable(start::environment(), OWNER), start::variable(start::environment(), PRELOAD)) };
    let Some(library) = library().filter(|library| fits(dir, library)) else { return };
    // SAFETY: the caller's promise.
    unsafe { STARTS[1].set(dir, owner, library, false) };
    CHOSEN.store(2, Ordering::Release);
    set_variable(c"MANYWAY_DIR", dir);
    if list.is_some_and(|l| ours(l.to_bytes()).is_some()) {
        return;
    }
    let list = list.unwrap_or(c"");
    let joined = scratch::with(library.len() + 1 + list.count_bytes() + 1, |text: &mut [u8]| {
        write(text, &[library, if list.is_empty() { b"" } else { b":" }, list.to_bytes()]);
        if let Ok(text) = CStr::from_bytes_until_nul(text) {
            set_variable(c"LD_PRELOAD", text);
        }
        Ok(())
    });
    // Without memory for it: what exec(3) starts has the library all the same.
    let _ = joined;
}

/// setenv(3), where the C library has it.
fn set_variable(name: &CStr, value: &CStr) {
    let setenv = weak!("setenv");
    if !setenv.is_null() {
        // SAFETY: the C library's function of that name has this signature; it copies both texts.
        let setenv = unsafe { core::mem::transmute::<*const (), extern "C" fn(Text, Text, c_int) -> c_int>(setenv) };
        setenv(name.as_ptr(), value.as_ptr(), 1);
    }
}

/// Where this library is, if LD_PRELOAD can name it.
fn library() -> Option<&'static [u8]> {
    let path = statics::library()?.to_bytes();
    let fit = path.first() == Some(&b'/') && !path.iter().any(|b| b.is_ascii_whitespace() || *b == b':');
    fit.then_some(path)
}

fn write(out: &mut [u8], parts: &[&[u8]]) {
    let mut at = 0;
    for part in parts {
        out[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

/// The entry of an LD_PRELOAD list that is this library.
fn ours(list: &[u8]) -> Option<&[u8]> {
    let mut entries = list.split(|b| matches!(b, b' ' | b':'));
    entries.find(|entry| entry.rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(OURS)))
}

/// Calls `exec` with the environment `env` and what is missing in it. Without memory for that it is not called.
fn complete(env: *const Text, exec: impl FnOnce(*const Text) -> c_int) -> Result<c_int, Errno> {
    let Some(start) = CHOSEN.load(Ordering::Acquire).checked_sub(1).and_then(|i| STARTS.get(i)) else { return Ok(exec(env)) };
    // SAFETY: see `Start`.
    let (dir, owner, preload, report) = unsafe { (&*start.dir.get(), &*start.owner.get(), &*start.preload.get(), *start.report.get()) };
    // SAFETY: the program's environment, which exec would read just the same.
    let (has_dir, list) = unsafe { (start::variable(env, DIR), start::variable(env, PRELOAD)) };
    let other = list.filter(|l| ours(l.to_bytes()).is_none());
    if has_dir.is_some_and(CStr::is_empty) || (has_dir.is_some() && list.is_some() && other.is_none()) {
        return Ok(exec(env));
    }
    let joined = other.map_or(0, |l| terminated(preload).len() + 1 + l.count_bytes() + 1);
    // SAFETY: as above.
    let n = unsafe { length(env) };
    scratch::with(joined, |text: &mut [u8]| {
        if let Some(l) = other {
            write(text, &[terminated(preload), b":", l.to_bytes()]);
        }
        scratch::with(n + 5, |all: &mut [Text]| {
            let mut len = 0;
            let mut add = |entry: Text| {
                all[len] = entry;
                len += 1;
            };
            for i in 0..n {
                // SAFETY: as above: one of its `n` strings.
                let entry = unsafe { *env.add(i) };
                // SAFETY: as above.
                if list.is_none() || !unsafe { CStr::from_ptr(entry) }.to_bytes().starts_with(PRELOAD) {
                    add(entry);
                }
            }
            if has_dir.is_none() {
                add(dir.as_ptr().cast());
                if owner[0] != 0 {
                    add(owner.as_ptr().cast());
                }
                if report {
                    add(c"MANYWAY_REPORT=1".as_ptr());
                }
            }
            match (list, other) {
                (_, Some(_)) => add(text.as_ptr().cast()),
                (None, _) => add(preload.as_ptr().cast()),
                // It has this library already.
                (Some(l), None) => add(l.to_bytes().as_ptr().wrapping_sub(PRELOAD.len()).cast()),
            }
            Ok(exec(all.as_ptr()))
        })
    })
}

/// The text before the first zero.
fn terminated(text: &[u8]) -> &[u8] {
    text.split(|b| *b == 0).next().unwrap_or(text)
}

/// # Safety
/// `list` must be null or end with a null.
unsafe fn length(list: *const Text) -> usize {
    if list.is_null() {
        return 0;
    }
    let mut n = 0;
    // SAFETY: the caller's promise.
    while unsafe { !(*list.add(n)).is_null() } {
        n += 1;
    }
    n
}

/// Calls real function number `which` with these arguments.
macro_rules! call {
    ($which:expr, $($arg:expr => $type:ty),*) => {{
        let address = real::address($which);
        // SAFETY: the C library's function of that name has this signature; the arguments are the program's own.
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address)($($arg),*) }
    }};
}

/// execve(2).
#[unsafe(no_mangle)]
pub extern "C" fn execve(path: Text, argv: *const Text, env: *const Text) -> c_int {
    complete(env, |env| call!(Real::Execve, path => Text, argv => *const Text, env => *const Text)).unwrap_or_else(errno::fail)
}

/// execv(3).
#[unsafe(no_mangle)]
pub extern "C" fn execv(path: Text, argv: *const Text) -> c_int {
    execve(path, argv, start::environment())
}

/// execvpe(3).
#[unsafe(no_mangle)]
pub extern "C" fn execvpe(file: Text, argv: *const Text, env: *const Text) -> c_int {
    complete(env, |env| call!(Real::Execvpe, file => Text, argv => *const Text, env => *const Text)).unwrap_or_else(errno::fail)
}

/// execvp(3).
#[unsafe(no_mangle)]
pub extern "C" fn execvp(file: Text, argv: *const Text) -> c_int {
    execvpe(file, argv, start::environment())
}

/// fexecve(3).
#[unsafe(no_mangle)]
pub extern "C" fn fexecve(fd: c_int, argv: *const Text, env: *const Text) -> c_int {
    complete(env, |env| call!(Real::Fexecve, fd => c_int, argv => *const Text, env => *const Text)).unwrap_or_else(errno::fail)
}

/// execveat(2).
#[unsafe(no_mangle)]
pub extern "C" fn execveat(dir: c_int, path: Text, argv: *const Text, env: *const Text, flags: c_int) -> c_int {
    complete(env, |env| call!(Real::Execveat, dir => c_int, path => Text, argv => *const Text, env => *const Text, flags => c_int))
        .unwrap_or_else(errno::fail)
}

/// Where posix_spawn(3) puts the process id, and its other arguments, which are only handed on.
type Pid = *mut c_int;
type Opaque = *const u8;

/// posix_spawn(3).
#[unsafe(no_mangle)]
pub extern "C" fn posix_spawn(pid: Pid, path: Text, actions: Opaque, attributes: Opaque, argv: *const Text, env: *const Text) -> c_int {
    spawn(Real::PosixSpawn, pid, path, actions, attributes, argv, env)
}

/// posix_spawnp(3).
#[unsafe(no_mangle)]
pub extern "C" fn posix_spawnp(pid: Pid, file: Text, actions: Opaque, attributes: Opaque, argv: *const Text, env: *const Text) -> c_int {
    spawn(Real::PosixSpawnp, pid, file, actions, attributes, argv, env)
}

fn spawn(which: Real, pid: Pid, path: Text, actions: Opaque, attributes: Opaque, argv: *const Text, env: *const Text) -> c_int {
    // It returns the error's number.
    complete(
        env,
        |env| call!(which, pid => Pid, path => Text, actions => Opaque, attributes => Opaque, argv => *const Text, env => *const Text),
    )
    .unwrap_or_else(|e| e.0)
}

variadic! {
    /// execl(3).
    execl, list
}
variadic! {
    /// execlp(3).
    execlp, list_in_path
}
variadic! {
    /// execle(3).
    execle, list_and_environment
}

/// A variable argument list: the first ones as they came in registers, the others on the stack.
#[repr(C)]
pub(crate) struct Variadic {
    in_registers: *const Text,
    registers: usize,
    on_stack: *const Text,
}

impl Variadic {
    /// # Safety
    /// The list must have so many.
    unsafe fn get(&self, i: usize) -> Text {
        // SAFETY: the caller's promise.
        unsafe { if i < self.registers { *self.in_registers.add(i) } else { *self.on_stack.add(i - self.registers) } }
    }

    /// Calls `exec` with the list up to its null as an array, and what comes behind the null.
    fn collect(&self, exec: impl FnOnce(*const Text, usize) -> c_int) -> c_int {
        let mut n = 0;
        // SAFETY: the program's promise: a null ends the list.
        while unsafe { !self.get(n).is_null() } {
            n += 1;
        }
        let called = scratch::with(n + 1, |all: &mut [Text]| {
            for (i, arg) in all.iter_mut().enumerate() {
                // SAFETY: as above.
                *arg = unsafe { self.get(i) };
            }
            Ok::<_, Errno>(exec(all.as_ptr(), n + 1))
        });
        called.unwrap_or_else(errno::fail)
    }
}

pub(crate) extern "C" fn list(path: Text, args: &Variadic) -> c_int {
    args.collect(|argv, _| execv(path, argv))
}

pub(crate) extern "C" fn list_in_path(file: Text, args: &Variadic) -> c_int {
    args.collect(|argv, _| execvp(file, argv))
}

pub(crate) extern "C" fn list_and_environment(path: Text, args: &Variadic) -> c_int {
    // SAFETY: execle's environment follows the null.
    args.collect(|argv, behind| execve(path, argv, unsafe { args.get(behind) }.cast()))
}
