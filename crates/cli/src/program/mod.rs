//! Can this program be run with a preloaded library?
//!
//! The dynamic loader ignores LD_PRELOAD for a static program and for one that gains privileges. Such a program would run on the
//! kernel's semaphores while its partners are on Manyway's, which breaks mutual exclusion without a word; so it is refused.

pub mod elf;
pub mod loader;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::process::{getgid, getuid};

use crate::exit::{Failure, Result, Status};

/// Scripts whose interpreter is a script, and so on: the kernel's limit is four of them; as many again by `env`.
const MAX_FILES: usize = 10;

/// Finds `program` as execvp(3) does and makes sure that it can be preloaded; returns its path.
pub fn find(program: &OsStr) -> Result<PathBuf> {
    let path = locate(program)?;
    follow(&path, &mut Vec::new())?;
    Ok(path)
}

/// The file of `program` and, of a script, its interpreter and so on; the last is what the kernel executes. With it why that cannot be
/// preloaded, if it cannot.
pub fn chain(program: &OsStr) -> (Vec<PathBuf>, Result<()>) {
    let mut files = Vec::new();
    let outcome = locate(program).and_then(|path| follow(&path, &mut files));
    (files, outcome)
}

/// Why no library can be preloaded into the program at `path`, if none can.
pub fn obstacle(path: &Path) -> Option<String> {
    let failure = follow(path, &mut Vec::new()).err()?;
    let what = failure.what();
    Some(what.split_once("is refused: ").map_or(what, |(_, why)| why).to_owned())
}

fn locate(program: &OsStr) -> Result<PathBuf> {
    locate_in(program, env::var_os("PATH").as_deref())
}

fn locate_in(program: &OsStr, search: Option<&OsStr>) -> Result<PathBuf> {
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

/// Looks into the file at `path`; of a script, into its interpreter; of one that `env` starts, into what that finds. Notes each file.
fn follow(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    files.push(path.to_owned());
    if files.len() > MAX_FILES {
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
        return check_elf(path, &file);
    }
    // Without `#!`, execvp(3) has the shell read it.
    let (interpreter, argument) = interpreter(&start).unwrap_or((OsStr::new("/bin/sh"), OsStr::new("")));
    let interpreter = Path::new(interpreter);
    if !interpreter.exists() {
        return Err(not_executable(path, io::Error::other(format!("its interpreter {} does not exist", interpreter.display()))));
    }
    follow(interpreter, files)?;
    if interpreter.file_name() == Some(OsStr::new("env"))
        && let Some(name) = started_by_env(argument)
    {
        return follow(&locate(name)?, files);
    }
    Ok(())
}

/// The interpreter that the first line of a script names, and the one argument that it is given.
fn interpreter(start: &[u8]) -> Option<(&OsStr, &OsStr)> {
    let line = start.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let (name, argument) = line.split_at(end);
    (!name.is_empty()).then(|| (OsStr::from_bytes(name), OsStr::from_bytes(argument.trim_ascii_start())))
}

/// The program that env(1) starts, told `argument` in a script's first line; None where it would not start one.
fn started_by_env(argument: &OsStr) -> Option<&OsStr> {
    let text = argument.as_bytes();
    let split = [&b"-S"[..], b"--split-string=", b"--split-string", b"-vS"].iter().find_map(|option| text.strip_prefix(*option));
    // Without -S all of it is one word.
    let words = match split {
        Some(rest) => rest.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty()).collect(),
        None => vec![text],
    };
    program_among(words.into_iter())
}

/// The program that `file`, if it is env(1), starts with these arguments.
pub fn target_of_env<'a>(file: &Path, arguments: &'a [OsString]) -> Option<&'a OsStr> {
    let is_env = file.file_name() == Some(OsStr::new("env"));
    program_among(arguments.iter().map(|word| word.as_bytes())).filter(|_| is_env)
}

/// The first word that is neither one of env's options nor a variable.
fn program_among<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<&'a OsStr> {
    while let Some(word) = words.next() {
        match word {
            // Of these options the next word is the value.
            b"-u" | b"-C" | b"--unset" | b"--chdir" => drop(words.next()),
            _ if word.starts_with(b"-") || word.contains(&b'=') => {}
            _ => return Some(OsStr::from_bytes(word)).filter(|name| !name.is_empty()),
        }
    }
    None
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

fn check_elf(path: &Path, file: &File) -> Result<()> {
    let header = elf::header(file).ok_or_else(|| not_executable(path, io::Error::other("it is a damaged ELF file")))?;
    if !header.wide {
        return Err(refused(path, "it is a 32-bit program, and the library is a 64-bit one").advise("Use a 64-bit build of the program."));
    }
    if header.machine != MACHINE {
        return Err(refused(path, format!("it is for another machine (ELF number {})", header.machine))
            .advise(format!("Use a build of the program for {}.", env::consts::ARCH)));
    }
    if header.interpreter.is_none() {
        return Err(refused(path, "it is statically linked, so no library can be preloaded into it")
            .advise("Use a dynamically linked build, or the crate `manyway-sem` in its source."));
    }
    Ok(())
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
    fn what_env_starts_counts() {
        let top = TestDir::exec();
        let program = file(&top, "static", &changed(56, 0), 0o755);
        let name = program.display();
        for line in [format!("env {name}"), format!("env -S A=b -u HOME {name} -x"), format!("env -S-i {name}")] {
            assert_refused(&file(&top, "script", format!("#!/usr/bin/{line}\n").as_bytes(), 0o755), Status::NotRun, "statically linked");
        }
        let script = file(&top, "script", b"#!/usr/bin/env no-such-program-anywhere\n", 0o755);
        assert_refused(&script, Status::NotFound, "on PATH");
        let script = file(&top, "script", b"#! /usr/bin/env sh \n", 0o755);
        let (files, outcome) = chain(script.as_os_str());
        assert_eq!((files.len(), outcome), (3, Ok(())), "{files:?}");
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
        assert_eq!(locate_in(OsStr::new("tool"), Some(OsStr::new(&search))).unwrap(), top.path().join("b/tool"));
        let failure = locate_in(OsStr::new("tool"), Some(top.path().join("a").as_os_str())).unwrap_err();
        assert_eq!(failure.code(), Status::NotExecutable);
    }
}
