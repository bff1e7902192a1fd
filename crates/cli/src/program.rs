//! Can this program be run with a preloaded library?
//!
//! The dynamic loader ignores LD_PRELOAD for a static program and for one that gains privileges. Such a program would run on the
//! kernel's semaphores while its partners are on Manyway's, which breaks mutual exclusion without a word; so it is refused.

use std::env;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::process::{getgid, getuid};

use crate::exit::{Failure, Result, Status};

/// Scripts whose interpreter is a script, and so on: the kernel's limit.
const MAX_INTERPRETERS: u32 = 5;

/// Finds `program` as execvp(3) does and makes sure that it can be preloaded; returns its path.
pub fn find(program: &OsStr) -> Result<PathBuf> {
    let path = locate(program, env::var_os("PATH").as_deref())?;
    check(&path, 0)?;
    Ok(path)
}

/// Why no library can be preloaded into the program at `path`, if none can.
pub fn obstacle(path: &Path) -> Option<String> {
    let failure = check(path, 0).err()?;
    let what = failure.what();
    Some(what.split_once("is refused: ").map_or(what, |(_, why)| why).to_owned())
}

fn locate(program: &OsStr, search: Option<&OsStr>) -> Result<PathBuf> {
    let shown = program.to_string_lossy();
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(e) if e.kind() == ErrorKind::NotFound => Err(not_found(format!("there is no {shown}"))),
            Err(e) => Err(not_executable(&path, e)),
        };
    }
    let mut denied = None;
    if !program.is_empty() {
        for dir in env::split_paths(search.unwrap_or(OsStr::new("/bin:/usr/bin"))) {
            // An empty entry of PATH is the working directory.
            let path = if dir.as_os_str().is_empty() { Path::new(".").join(program) } else { dir.join(program) };
            match executable(&path) {
                Ok(()) => return Ok(path),
                Err(e) if e.kind() == ErrorKind::PermissionDenied => denied = denied.or(Some((path, e))),
                Err(_) => {}
            }
        }
    }
    Err(match denied {
        Some((path, e)) => not_executable(&path, e),
        None => not_found(format!("there is no program {shown:?} on PATH")).advise("Check the name, or give its path."),
    })
}

fn executable(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_dir() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(access(path, Access::EXEC_OK)?)
}

fn not_found(what: String) -> Failure {
    Failure::new(what).status(Status::NotFound)
}

fn not_executable(path: &Path, error: io::Error) -> Failure {
    Failure::io(format!("cannot execute {}", path.display()), error).status(Status::NotExecutable)
}

fn refused(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{} is refused: {why}", path.display())).status(Status::NotRun)
}

/// Looks into the file at `path`; of a script, into its interpreter.
fn check(path: &Path, depth: u32) -> Result<()> {
    if depth > MAX_INTERPRETERS {
        return Err(refused(path, "its interpreters are scripts without end"));
    }
    let file = match File::open(path) {
        Ok(file) => file,
        // It may be executed and not read: its mode is all there is to see.
        Err(e) if e.kind() == ErrorKind::PermissionDenied => return check_privileges(path),
        Err(e) => return Err(not_executable(path, e)),
    };
    let mut start = Vec::new();
    Read::by_ref(&mut (&file).take(512)).read_to_end(&mut start).map_err(|e| not_executable(path, e))?;
    if start.starts_with(b"\x7fELF") {
        check_privileges(path)?;
        return check_elf(path, &file, &start);
    }
    // Without `#!`, execvp(3) has the shell read it.
    let interpreter = interpreter(&start).unwrap_or(OsStr::new("/bin/sh"));
    let interpreter = Path::new(interpreter);
    if !interpreter.exists() {
        return Err(not_executable(path, io::Error::other(format!("its interpreter {} does not exist", interpreter.display()))));
    }
    check(interpreter, depth + 1)
}

/// The interpreter that the first line of a script names.
fn interpreter(start: &[u8]) -> Option<&OsStr> {
    let line = start.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?.trim_ascii_start();
    let name = line.split(|b| matches!(b, b' ' | b'\t')).next().filter(|name| !name.is_empty())?;
    Some(OsStr::from_bytes(name))
}

fn check_privileges(path: &Path) -> Result<()> {
    let meta = path.metadata().map_err(|e| not_executable(path, e))?;
    match gains_privileges(path, &meta) {
        Some(why) => Err(refused(path, why).advise("The loader preloads nothing into it. Start the program that it runs, as that user.")),
        None => Ok(()),
    }
}

/// Why the loader would run the program in secure mode.
fn gains_privileges(path: &Path, meta: &Metadata) -> Option<String> {
    let nosuid = statvfs(path).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID));
    if nosuid || rustix::thread::no_new_privs().unwrap_or(false) {
        return None;
    }
    if meta.mode() & libc::S_ISUID != 0 && meta.uid() != getuid().as_raw() {
        return Some(format!("it is set-user-id (user {})", meta.uid()));
    }
    let setgid = libc::S_ISGID | libc::S_IXGRP;
    if meta.mode() & setgid == setgid && meta.gid() != getgid().as_raw() {
        return Some(format!("it is set-group-id (group {})", meta.gid()));
    }
    let mut value = [0u8; 64];
    if !getuid().is_root() && rustix::fs::getxattr(path, c"security.capability", &mut value).is_ok_and(|len| len > 0) {
        return Some("it has file capabilities".into());
    }
    None
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = libc::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = libc::EM_AARCH64;

/// Size of an ELF64 file header and of a program header.
const ELF_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

fn check_elf(path: &Path, file: &File, start: &[u8]) -> Result<()> {
    let damaged = || not_executable(path, io::Error::other("it is a damaged ELF file"));
    let (Some(&class), Some(machine)) = (start.get(4), u16_at(start, 18)) else {
        return Err(damaged());
    };
    if class != libc::ELFCLASS64 {
        return Err(refused(path, "it is a 32-bit program, and the library is a 64-bit one").advise("Use a 64-bit build of the program."));
    }
    if machine != MACHINE {
        return Err(refused(path, format!("it is for another machine (ELF number {machine})"))
            .advise(format!("Use a build of the program for {}.", env::consts::ARCH)));
    }
    let header = start.get(..ELF_HEADER).ok_or_else(damaged)?;
    let offset = u64_at(header, 32).ok_or_else(damaged)?;
    let count = usize::from(u16_at(header, 56).ok_or_else(damaged)?);
    let mut table = vec![0; count * PROGRAM_HEADER];
    file.read_exact_at(&mut table, offset).map_err(|_| damaged())?;
    let dynamic = table.chunks_exact(PROGRAM_HEADER).any(|header| header[..4] == libc::PT_INTERP.to_ne_bytes());
    if !dynamic {
        return Err(refused(path, "it is statically linked, so no library can be preloaded into it")
            .advise("Use a dynamically linked build, or the crate `manyway-sem` in its source."));
    }
    Ok(())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn file(top: &TestDir, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = top.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn outcome(path: &Path) -> Option<(Status, String)> {
        find(path.as_os_str()).err().map(|failure| (failure.code(), failure.what().to_owned()))
    }

    #[track_caller]
    fn assert_refused(path: &Path, status: Status, words: &str) {
        let (code, what) = outcome(path).expect("not refused");
        assert_eq!(code, status, "{what}");
        assert!(what.contains(words), "{what}");
    }

    /// This machine's `sh` with the 16-bit number at `at` changed.
    fn changed(at: usize, value: u16) -> Vec<u8> {
        let mut elf = fs::read("/bin/sh").unwrap();
        elf[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        elf
    }

    #[test]
    fn ordinary_programs_and_scripts() {
        let top = TestDir::exec();
        assert_eq!(outcome(Path::new("sh")), None);
        assert_eq!(outcome(&file(&top, "script", b"#! /bin/sh -e\ntrue\n", 0o755)), None);
        assert_eq!(outcome(&file(&top, "bare", b"true\n", 0o755)), None);
    }

    #[test]
    fn absent_and_not_executable() {
        let top = TestDir::exec();
        assert_refused(&top.path().join("none"), Status::NotFound, "there is no");
        assert_refused(Path::new("no-such-program-anywhere"), Status::NotFound, "on PATH");
        assert_refused(Path::new(""), Status::NotFound, "on PATH");
        assert_refused(&file(&top, "plain", b"true\n", 0o644), Status::NotExecutable, "cannot execute");
        assert_refused(top.path(), Status::NotExecutable, "cannot execute");
        assert_refused(&file(&top, "orphan", b"#!/no/such/interpreter\n", 0o755), Status::NotExecutable, "interpreter /no/such");
    }

    #[test]
    fn programs_that_cannot_be_preloaded() {
        let top = TestDir::exec();
        // No program header at all: nothing names a dynamic loader.
        assert_refused(&file(&top, "static", &changed(56, 0), 0o755), Status::NotRun, "statically linked");
        assert_refused(&file(&top, "foreign", &changed(18, libc::EM_S390), 0o755), Status::NotRun, "another machine");
        let mut elf = fs::read("/bin/sh").unwrap();
        elf[4] = libc::ELFCLASS32;
        assert_refused(&file(&top, "narrow", &elf, 0o755), Status::NotRun, "32-bit");
        assert_refused(&file(&top, "short", &changed(4, 0x0102)[..40], 0o755), Status::NotExecutable, "damaged");
        let loop_path = top.path().join("loop");
        let script = format!("#!{}\n", loop_path.display());
        assert_refused(&file(&top, "loop", script.as_bytes(), 0o755), Status::NotRun, "without end");
    }

    #[test]
    fn what_a_script_is_run_by_counts() {
        let top = TestDir::exec();
        let interpreter = file(&top, "static", &changed(56, 0), 0o755);
        let script = file(&top, "script", format!("#!{}\n", interpreter.display()).as_bytes(), 0o755);
        assert_refused(&script, Status::NotRun, "statically linked");
    }

    #[test]
    fn set_user_id_counts_only_when_the_user_changes() {
        let top = TestDir::exec();
        let path = file(&top, "setuid", &fs::read("/bin/sh").unwrap(), 0o4755);
        assert_eq!(outcome(&path), None, "our own set-user-id program stays ours");
    }

    #[test]
    fn search_order() {
        let top = TestDir::exec();
        for dir in ["a", "b", "c"] {
            fs::create_dir(top.path().join(dir)).unwrap();
        }
        file(&top, "a/tool", b"", 0o644);
        file(&top, "b/tool", b"", 0o755);
        file(&top, "c/tool", b"", 0o755);
        let search = ["a", "b", "c"].map(|dir| top.path().join(dir).display().to_string()).join(":");
        assert_eq!(locate(OsStr::new("tool"), Some(OsStr::new(&search))).unwrap(), top.path().join("b/tool"));
        let failure = locate(OsStr::new("tool"), Some(top.path().join("a").as_os_str())).unwrap_err();
        assert_eq!(failure.code(), Status::NotExecutable);
    }
}
