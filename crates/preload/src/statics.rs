//! The static data of the program and of the libraries that it was started with: memory that is there as long as the process.

use core::ffi::{CStr, c_char, c_int, c_void};

use manyway_sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::arch::weak;
use crate::real;
use crate::user::KNOWN;

/// A piece of memory: its first address and the first one behind it.
struct Piece(AtomicUsize, AtomicUsize);

/// The largest number of objects that are remembered.
const MOST: usize = 64;

/// The program's own piece first. Empty where nothing is known.
static PIECES: [Piece; MOST] = [const { Piece(AtomicUsize::new(usize::MAX), AtomicUsize::new(KNOWN)) }; MOST];
static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// True when the [`KNOWN`] bytes from `p` on are the program's own.
#[inline(always)]
pub(crate) fn in_program(p: usize) -> bool {
    let Piece(start, end) = &PIECES[0];
    p <= end.load(Relaxed) - KNOWN && p >= start.load(Relaxed)
}

/// True when an address lies behind the program's static data: up to the program's break, that is its heap.
pub(crate) fn behind_program(p: usize) -> bool {
    let end = PIECES[0].1.load(Relaxed);
    end > KNOWN && p >= end
}

/// True when the bytes are the program's or a library's.
pub(crate) fn contain(p: usize, len: usize) -> bool {
    let last = p.saturating_add(len);
    let known = &PIECES[..NUMBER.load(Relaxed).min(MOST)];
    known.iter().any(|Piece(start, end)| p >= start.load(Relaxed) && last <= end.load(Relaxed))
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

/// The beginning of `struct dl_phdr_info`.
#[repr(C)]
struct Object {
    base: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    headers_n: u16,
}

/// The file that this library was loaded from, as the dynamic linker names it.
pub(crate) fn library() -> Option<&'static CStr> {
    let mut found: *const c_char = core::ptr::null();
    visit(is_library, (&raw mut found).cast());
    // SAFETY: a name that the dynamic linker keeps as long as the library is loaded, which is for ever.
    (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) })
}

extern "C" fn is_library(object: &Object, _: usize, found: *mut c_void) -> c_int {
    const PT_DYNAMIC: u32 = 2;
    if object.headers.is_null() || object.name.is_null() {
        return 0;
    }
    // SAFETY: what the dynamic linker says of a loaded object.
    let headers = unsafe { core::slice::from_raw_parts(object.headers, object.headers_n.into()) };
    let own = real::dynamic_section() as usize;
    let is_own = headers.iter().any(|h| h.kind == PT_DYNAMIC && object.base.wrapping_add(h.vaddr as usize) == own);
    if is_own {
        // SAFETY: `found` is the pointer that `library` waits for.
        unsafe { *found.cast::<*const c_char>() = object.name };
    }
    is_own.into()
}

type Visit = extern "C" fn(&Object, usize, *mut c_void) -> c_int;

/// Notes all objects that are loaded now. Called once, when the program starts.
pub(crate) fn find() {
    visit(note, core::ptr::null_mut());
}

/// Calls `each` with the loaded objects, the program first, until it returns something else than 0.
fn visit(each: Visit, argument: *mut c_void) {
    let iterate = weak!("dl_iterate_phdr");
    if !iterate.is_null() {
        // SAFETY: glibc and musl define it so.
        let iterate = unsafe { core::mem::transmute::<*const (), extern "C" fn(Visit, *mut c_void) -> c_int>(iterate) };
        iterate(each, argument);
    }
}

/// Notes an object's last segments, as far as they are one piece of readable memory.
extern "C" fn note(object: &Object, _: usize, _: *mut c_void) -> c_int {
    const PT_LOAD: u32 = 1;
    const READ: u32 = 4;
    const PAGE: usize = 4096;
    let n = NUMBER.load(Relaxed);
    if n == MOST || object.headers.is_null() {
        return 1;
    }
    // SAFETY: what the dynamic linker says of a loaded object.
    let headers = unsafe { core::slice::from_raw_parts(object.headers, object.headers_n.into()) };
    let (mut low, mut high) = (0, 0);
    for h in headers.iter().rev().filter(|h| h.kind == PT_LOAD) {
        let start = object.base.wrapping_add(h.vaddr as usize);
        let end = start.wrapping_add(h.memsz as usize).next_multiple_of(PAGE);
        if h.flags & READ == 0 || (high != 0 && end != low & !(PAGE - 1)) {
            break;
        }
        low = start;
        high = high.max(end);
    }
    if high != 0 {
        PIECES[n].0.store(low, Relaxed);
        PIECES[n].1.store(high, Relaxed);
    }
    NUMBER.store(n + 1, Relaxed);
    0
}
