//! Which names an object's dynamic string table contains, read from its file.

use core::ffi::CStr;

use manyway_sync::Errno;
use manyway_sync::sys::{Fd, flags, openat};

use crate::sys::pread;

/// True when one of the names is in the object's dynamic string table. False for what cannot be read as a 64-bit object: the
/// dynamic linker will find that itself.
pub(crate) fn names_any(file: &CStr, names: &[&[u8]]) -> bool {
    let found = openat(flags::AT_FDCWD, file, flags::O_RDONLY, 0).and_then(|fd| {
        let Some(table) = string_table(&fd)? else { return Ok(false) };
        search(&fd, table, names)
    });
    found.unwrap_or(false)
}

/// A part of the file.
#[derive(Clone, Copy)]
struct Part {
    start: u64,
    len: u64,
}

/// Reads exactly `N` words.
fn words<const N: usize>(fd: &Fd, at: u64) -> Result<[u64; N], Errno> {
    const { assert!(N <= 16) };
    let mut bytes = [0; 128];
    let n = pread(fd, &mut bytes[..8 * N], at)?;
    if n < 8 * N {
        return Err(Errno::ENOEXEC);
    }
    Ok(core::array::from_fn(|i| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[8 * i..8 * i + 8]);
        u64::from_ne_bytes(word)
    }))
}

/// Where the dynamic string table is: the dynamic section names its address, the loaded segments say where in the file that is.
fn string_table(fd: &Fd) -> Result<Option<Part>, Errno> {
    const MAGIC: &[u8] = b"\x7fELF\x02";
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    const DT_STRTAB: u64 = 5;
    const DT_STRSZ: u64 = 10;

    let header = words::<8>(fd, 0)?;
    if !header[0].to_ne_bytes().starts_with(MAGIC) {
        return Ok(None);
    }
    // e_phoff; e_phnum is the first half-word of the last word that was read. Each program header has 7 words.
    let headers = (0..header[7] & 0xffff).map(|i| header[4].wrapping_add(56 * i));
    let mut dynamic = None;
    for at in headers.clone() {
        let h = words::<7>(fd, at)?;
        if h[0] as u32 == PT_DYNAMIC {
            dynamic = Some(Part { start: h[1], len: h[4] });
        }
    }
    let Some(dynamic) = dynamic else { return Ok(None) };
    let (mut address, mut len) = (None, 0);
    for i in 0..dynamic.len / 16 {
        match words::<2>(fd, dynamic.start.wrapping_add(16 * i))? {
            [0, _] => break,
            [DT_STRTAB, v] => address = Some(v),
            [DT_STRSZ, v] => len = v,
            _ => {}
        }
    }
    let Some(address) = address else { return Ok(None) };
    for at in headers {
        // Type and flags, offset, address, physical address, size in the file.
        let h = words::<7>(fd, at)?;
        if h[0] as u32 == PT_LOAD && address >= h[2] && address - h[2] < h[4] {
            return Ok(Some(Part { start: h[1].wrapping_add(address - h[2]), len }));
        }
    }
    Ok(None)
}

/// Looks for a name as a whole string in the table, a piece at a time.
fn search(fd: &Fd, table: Part, names: &[&[u8]]) -> Result<bool, Errno> {
    /// Longer than any name with the zeros around it.
    const OVERLAP: usize = 16;
    let mut piece = [0; 4096];
    let mut at = 0;
    while at < table.len {
        let n = pread(fd, &mut piece, table.start.wrapping_add(at))?.min((table.len - at) as usize);
        let whole =
            |name: &&[u8]| piece[..n].windows(name.len() + 2).any(|w| w[0] == 0 && w[w.len() - 1] == 0 && &w[1..w.len() - 1] == *name);
        if names.iter().any(whole) {
            return Ok(true);
        }
        if n < piece.len() {
            break;
        }
        at += (n - OVERLAP) as u64;
    }
    Ok(false)
}
