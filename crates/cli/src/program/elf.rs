//! What an ELF file says about itself: for whom it is, who loads it, and what it takes from libraries.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use memchr::memmem;
use object::elf::{DT_RPATH, DT_RUNPATH, FileHeader32, FileHeader64, Machine, PF_X, SHN_UNDEF};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, Sym};
use object::{Endianness, FileKind, ReadCache, ReadRef, SymbolIndex};

/// The first look: what the kernel decides by.
#[derive(Debug)]
pub struct Header {
    /// 64 bits, not 32.
    pub wide: bool,
    /// For which processor.
    pub machine: u16,
    /// The dynamic loader; a program without one is static.
    pub interpreter: Option<PathBuf>,
}

/// Reads the header; None when the file is damaged.
pub fn header(file: &File) -> Option<Header> {
    let cache = ReadCache::new(file);
    match FileKind::parse(&cache).ok()? {
        FileKind::Elf64 => header_of::<FileHeader64<Endianness>, _>(&cache, true),
        FileKind::Elf32 => header_of::<FileHeader32<Endianness>, _>(&cache, false),
        _ => None,
    }
}

fn header_of<'data, H: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(data: R, wide: bool) -> Option<Header> {
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let Machine(machine) = header.e_machine(endian);
    let mut found = Header { wide, machine, interpreter: None };
    // Of a program for another machine, no more than that is asked.
    if let Ok(segments) = header.program_headers(endian, data) {
        let name = segments.iter().find_map(|s| s.interpreter(endian, data).ok()?);
        found.interpreter = name.map(path);
    } else if wide {
        return None;
    }
    Some(found)
}

fn path(name: &[u8]) -> PathBuf {
    OsString::from_vec(name.to_vec()).into()
}

/// A program or library in full, as far as its file tells.
#[derive(Debug, Default)]
pub struct Object {
    /// Functions and variables that it takes from others.
    pub imports: BTreeSet<String>,
    /// Functions that it offers to others, as far as they are semaphore calls.
    pub defines: BTreeSet<String>,
    /// The highest glibc version that it asks for, as numbers.
    pub glibc: Option<Version>,
    /// Where it looks for its libraries before others.
    pub paths: Vec<String>,
    /// A Go program.
    pub go: bool,
    /// Places in its code where the bytes of a system-call instruction stand.
    pub own_calls: usize,
    /// The semaphore calls whose numbers are loaded right before one of them.
    pub own_semaphore_calls: BTreeSet<&'static str>,
}

/// Of a library: major, minor.
pub type Version = (u32, u32);

/// Reads the whole object; None when it is none or has no tables.
pub fn object(path: &Path) -> Option<Object> {
    let file = File::open(path).ok()?;
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let endian = elf.endian();
    let mut found = Object::default();
    let symbols = elf.elf_dynamic_symbol_table();
    for (index, symbol) in symbols.enumerate() {
        let Ok(name) = symbol.name(endian, symbols.strings()) else { continue };
        if index == SymbolIndex(0) || name.is_empty() {
            continue;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        if symbol.st_shndx(endian) == SHN_UNDEF {
            found.imports.insert(name);
        } else if SEMAPHORE_CALLS.contains(&name.as_str()) {
            found.defines.insert(name);
        }
    }
    let sections = elf.elf_section_table();
    if let Ok(Some((mut needs, link))) = sections.gnu_verneed(endian, &cache) {
        let strings = sections.strings(endian, &cache, link).ok()?;
        while let Ok(Some((_, mut versions))) = needs.next() {
            while let Ok(Some(version)) = versions.next() {
                let name = version.name(endian, strings).unwrap_or_default();
                found.glibc = found.glibc.max(glibc_version(name));
            }
        }
    }
    found.go = sections.section_by_name(endian, b".go.buildinfo").is_some();
    if let Ok(dynamic) = elf.elf_dynamic_table() {
        for entry in &dynamic {
            if matches!(entry.tag, DT_RPATH | DT_RUNPATH) {
                found.paths.push(String::from_utf8_lossy(dynamic.string(entry).unwrap_or_default()).into_owned());
            }
        }
    }
    for segment in elf.elf_program_headers() {
        if segment.p_flags(endian).contains(PF_X)
            && let Ok(code) = segment.data(endian, &cache)
        {
            find_calls(code, &mut found);
        }
    }
    Some(found)
}

/// `GLIBC_2.34` as numbers.
fn glibc_version(name: &[u8]) -> Option<Version> {
    let mut parts = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The calls of System V semaphores.
pub const SEMAPHORE_CALLS: [&str; 4] = ["semget", "semop", "semtimedop", "semctl"];

/// Looks for instructions by which code enters the kernel itself. Data among the code may look like one, and a number may come from far
/// away: none found is certain, one found is a suspicion.
fn find_calls(code: &[u8], found: &mut Object) {
    /// The number is loaded hardly farther before the call.
    const NEAR: usize = 48;
    for at in memmem::find_iter(code, &arch::CALL) {
        if !arch::is_aligned(at) {
            continue;
        }
        found.own_calls += 1;
        let before = &code[at.saturating_sub(NEAR)..at];
        for (name, number) in SEMAPHORE_CALLS.into_iter().zip(arch::NUMBERS) {
            // The last number that is loaded counts.
            if arch::number_loaded(before) == Some(number) {
                found.own_semaphore_calls.insert(name);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use memchr::memmem;

    /// `syscall`.
    pub const CALL: [u8; 2] = [0x0f, 0x05];
    /// semget, semop, semtimedop, semctl.
    pub const NUMBERS: [u32; 4] = [64, 65, 220, 66];

    /// Instructions begin anywhere.
    pub fn is_aligned(_: usize) -> bool {
        true
    }

    /// The constant of the last `mov $n, %eax` (also of the form that names %rax), as far as it is a small number.
    pub fn number_loaded(before: &[u8]) -> Option<u32> {
        let constant = |at: usize| {
            let bytes = before.get(at..at + 4)?.try_into().ok()?;
            Some((at, u32::from_le_bytes(bytes))).filter(|(_, n)| *n < 1024)
        };
        let short = memmem::rfind_iter(before, &[0xb8]).find_map(|at| constant(at + 1));
        let long = memmem::rfind_iter(before, &[0x48, 0xc7, 0xc0]).find_map(|at| constant(at + 3));
        short.max(long).map(|(_, n)| n)
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    /// `svc #0`.
    pub const CALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];
    /// semget, semop, semtimedop, semctl.
    pub const NUMBERS: [u32; 4] = [190, 193, 192, 191];

    /// Instructions are words.
    pub fn is_aligned(at: usize) -> bool {
        at.is_multiple_of(4)
    }

    /// The constant of the last `mov x8, #n` or `mov w8, #n`.
    pub fn number_loaded(before: &[u8]) -> Option<u32> {
        let words = before.rchunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap_or_default()));
        words.into_iter().find(|w| w & 0x7fe0_001f == 0x5280_0008).map(|w| w >> 5 & 0xffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(glibc_version(b"GLIBC_2.34"), Some((2, 34)));
        assert_eq!(glibc_version(b"GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(glibc_version(b"GLIBC_PRIVATE"), None);
    }

    #[test]
    fn the_shell_is_an_object_and_a_text_is_none() {
        let sh = object(Path::new("/bin/sh")).expect("an object");
        assert!(sh.imports.iter().any(|name| name.starts_with("exec")), "{sh:?}");
        assert!(sh.defines.is_empty() && !sh.go, "{sh:?}");
        assert!(object(Path::new("/etc/passwd")).is_none());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn numbers_before_a_call() {
        let mut found = Object::default();
        // mov $65, %eax; nop; syscall; mov $65, %eax; mov $39, %rax; syscall; syscall far from any number
        let code = [0xb8, 65, 0, 0, 0, 0x90, 0x0f, 0x05, 0xb8, 65, 0, 0, 0, 0x48, 0xc7, 0xc0, 39, 0, 0, 0, 0x0f, 0x05];
        find_calls(&code, &mut found);
        assert_eq!((found.own_calls, found.own_semaphore_calls.len()), (2, 1), "{found:?}");
        assert!(found.own_semaphore_calls.contains("semop"));
    }
}
