//! /proc/sysvipc/sem and /proc/sys/kernel/sem: what ipcs, lsipc, sysctl and installers read about semaphores.
//!
//! The program's own open goes first, so that a path that leads nowhere is the kernel's to refuse; then the descriptor is made to show the
//! namespace. What is shown is the state at the time of the open, in a sealed memory file: writing to it is EPERM, since
//! limits belong to the namespace.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::{self, Write};

use manyway_sem::Engine;
use manyway_sync::Errno;

use crate::arch::call_answered;
use crate::real::{self, Real};
use crate::{errno, start, sys, tls};

type Text = *const c_char;

/// The files that are answered.
#[derive(Clone, Copy)]
enum File {
    /// The list of sets.
    Sets,
    /// SEMMSL, SEMMNS, SEMOPM, SEMMNI.
    Limits,
}

const SETS: &[u8] = b"/proc/sysvipc/sem";
const LIMITS: &[u8] = b"/proc/sys/kernel/sem";

fn named(path: &[u8]) -> Option<File> {
    match path {
        SETS => Some(File::Sets),
        LIMITS => Some(File::Limits),
        _ => None,
    }
}

call_answered! {
    /// open(2).
    open, Real::Open as usize, opened
}
call_answered! {
    /// open64(3).
    open64, Real::Open64 as usize, opened
}
call_answered! {
    /// open(2) as the compiler's fortification calls it.
    __open_2, Real::OpenChecked as usize, opened
}
call_answered! {
    /// open64(3) as the compiler's fortification calls it.
    __open64_2, Real::Open64Checked as usize, opened
}
call_answered! {
    /// openat(2).
    openat, Real::Openat as usize, opened_at
}
call_answered! {
    /// openat64(3).
    openat64, Real::Openat64 as usize, opened_at
}
call_answered! {
    /// openat(2) as the compiler's fortification calls it.
    __openat_2, Real::OpenatChecked as usize, opened_at
}
call_answered! {
    /// openat64(3) as the compiler's fortification calls it.
    __openat64_2, Real::Openat64Checked as usize, opened_at
}
call_answered! {
    /// fopen(3).
    fopen, Real::Fopen as usize, stream_opened
}
call_answered! {
    /// fopen64(3).
    fopen64, Real::Fopen64 as usize, stream_opened
}

/// After open: the descriptor that the program gets.
pub(crate) extern "C" fn opened(fd: c_int, path: Text, _: usize, _: usize) -> c_int {
    descriptor(fd, path)
}

/// After openat.
pub(crate) extern "C" fn opened_at(fd: c_int, _: usize, path: Text, _: usize) -> c_int {
    descriptor(fd, path)
}

fn descriptor(fd: c_int, path: Text) -> c_int {
    let Some((engine, file)) = asked_for(fd, fd < 0, path) else { return fd };
    let shown = show(engine, file);
    match shown {
        Ok(new) if fd < 0 => new,
        Ok(new) => {
            sys::replace(fd, new);
            fd
        }
        // Rather nothing than the kernel's.
        Err(e) => {
            if fd >= 0 {
                sys::close(fd);
            }
            errno::fail(e)
        }
    }
}

/// After fopen: the stream that the program gets.
pub(crate) extern "C" fn stream_opened(stream: *mut c_void, path: Text, mode: Text, _: usize) -> *mut c_void {
    let fd = if stream.is_null() { -1 } else { descriptor_of(stream) };
    let Some((engine, file)) = asked_for(fd, stream.is_null(), path) else { return stream };
    match show(engine, file) {
        Ok(new) if stream.is_null() => stream_of(new, mode),
        Ok(new) => {
            sys::replace(fd, new);
            stream
        }
        // The stream stays the kernel's: it cannot be closed here without the C library's knowledge. An empty file says nothing wrong.
        Err(_) => {
            if fd >= 0 {
                sys::replace_by_nothing(fd);
            }
            stream
        }
    }
}

/// Which file the program has opened, or would have if the kernel had it.
fn asked_for(fd: c_int, failed: bool, path: Text) -> Option<(&'static Engine, File)> {
    let engine = start::opened()?;
    // The kernel has read the path if it says that the file is not there.
    if failed && errno::get() != Errno::ENOENT {
        return None;
    }
    // SAFETY: the kernel has read it, so it is a string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !path.ends_with(b"sem") {
        return None;
    }
    let mut buffer = [0; 64];
    let file = match failed {
        true => named(path),
        // By whatever name it came there. Without /proc at its place the name is all there is.
        false => sys::path_of(fd, &mut buffer).map_or_else(|_| named(path), named),
    }?;
    Some((engine, file))
}

/// A new descriptor of a file that shows the namespace.
fn show(engine: &Engine, file: File) -> Result<c_int, Errno> {
    let mut sheet = Sheet { fd: sys::memory_file(c"sem")?, text: [0; 1024], len: 0, failed: None };
    // A Sheet keeps its error.
    let _ = match file {
        File::Limits => {
            let l = engine.limits();
            writeln!(sheet, "{}\t{}\t{}\t{}", l.msl, l.mns, l.opm, l.mni)
        }
        File::Sets => {
            let head = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n";
            let head = sheet.write_str(head);
            // proc_ipc_sem in ipc/sem.c.
            engine.for_each_set(&tls::block().thread, &mut |s, _| {
                let (id, mode, nsems, otime, ctime) = (s.id, s.mode, s.nsems, s.otime, s.ctime);
                let _ = write!(sheet, "{:10} {id:10}  {mode:4o} {nsems:10} ", s.key);
                let _ = writeln!(sheet, "{:5} {:5} {:5} {:5} {otime:10} {ctime:10}", s.uid, s.gid, s.cuid, s.cgid);
            });
            head
        }
    };
    sheet.finish()
}

/// Text on its way into a descriptor, which is closed when it fails.
struct Sheet {
    fd: c_int,
    text: [u8; 1024],
    len: usize,
    failed: Option<Errno>,
}

impl Sheet {
    fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = sys::write_whole(self.fd, &self.text[..self.len]).err();
        }
        self.len = 0;
    }

    /// Sealed, and at its beginning.
    fn finish(mut self) -> Result<c_int, Errno> {
        self.flush();
        match self.failed.map_or_else(|| sys::seal_and_rewind(self.fd), Err) {
            Ok(()) => Ok(self.fd),
            Err(e) => {
                sys::close(self.fd);
                Err(e)
            }
        }
    }
}

impl Write for Sheet {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for part in s.as_bytes().chunks(self.text.len()) {
            if self.len + part.len() > self.text.len() {
                self.flush();
            }
            self.text[self.len..self.len + part.len()].copy_from_slice(part);
            self.len += part.len();
        }
        Ok(())
    }
}

fn descriptor_of(stream: *mut c_void) -> c_int {
    // SAFETY: the C library's function; the stream is the program's, just opened.
    unsafe { core::mem::transmute::<usize, extern "C" fn(*mut c_void) -> c_int>(real::address(Real::Fileno))(stream) }
}

fn stream_of(fd: c_int, mode: Text) -> *mut c_void {
    // SAFETY: as above; the mode is the program's own.
    let stream = unsafe { core::mem::transmute::<usize, extern "C" fn(c_int, Text) -> *mut c_void>(real::address(Real::Fdopen))(fd, mode) };
    if stream.is_null() {
        sys::close(fd);
    }
    stream
}
