//! C programs that are linked with the library by what `manyway.h` and the linker promise, and started without Manyway.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use manyway_preload_tests::{CC, Scratch, compile, library, run_command};
use manyway_sem::{Engine, OpenOptions};

/// A program linked with the library, which lies under its names in `dir`.
fn linked(dir: &Scratch) -> PathBuf {
    let lib = dir.path().join("lib");
    fs::create_dir(&lib).expect("own directory");
    fs::copy(library(), lib.join("libmanyway.so.0")).expect("room");
    symlink("libmanyway.so.0", lib.join("libmanyway.so")).expect("own directory");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/include");
    let (include, lib) = (format!("-I{}", include.display()), lib.display().to_string());
    compile(CC, dir, "linked", &[&include, "-Wl,--as-needed", &format!("-L{lib}"), "-lmanyway", &format!("-Wl,-rpath,{lib}")])
}

fn command(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_remove("MANYWAY_DIR").env_remove("LD_PRELOAD");
    command
}

fn namespace() -> Scratch {
    let dir = Scratch::new();
    let name = CString::new(dir.path().as_os_str().as_bytes()).expect("no zero in a path");
    Engine::open(&name, &OpenOptions::CREATE).expect("a new namespace");
    dir
}

/// What the program sees in a namespace, whichever way it got there.
const SEEN: &str = "\
manyway_semctl(id, 0, SETVAL, 3) = 0
manyway_semop(id, &down, 1) = 0
semop(id, &zero, 1) = 0
semctl(id, 0, GETVAL) = 2
manyway_semtimedop(id, &down, 1, &soon): EAGAIN
manyway_semget(0x6d776c6b, 0, 0) == id = 1
semctl(id, 0, GETVAL) = 2
listed(\"grep -c 1836543083 /proc/sysvipc/sem\") = 1
listed(\"exec env -i grep -c 1836543083 /proc/sysvipc/sem\") = 1
1
";

#[test]
fn opens_a_namespace_of_its_own() {
    let dir = Scratch::new();
    let program = linked(&dir);
    let namespace = dir.path().join("namespace");
    let said = run_command(&mut command(&program, &["with", namespace.to_str().expect("ASCII")]));
    let (opened, rest) = said.split_at(said.find("manyway_semctl").expect("the calls"));
    let (others, opened): (Vec<_>, Vec<_>) = opened.lines().partition(|line| line.starts_with("manyway: "));
    assert_eq!(
        opened,
        [
            "manyway_open(dir, MANYWAY_CREATE): ok",
            "manyway_open(NULL, 0): ok",
            "manyway_open(dir, 0): ok",
            // /dev/shm can be written by others.
            "manyway_open(\"/dev/shm\", 0): EACCES",
        ]
    );
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(rest, SEEN);
}

#[test]
fn takes_the_one_that_the_environment_names() {
    let dir = Scratch::new();
    let program = linked(&dir);
    let namespace = namespace();
    let seen = format!("manyway_open(NULL, 0): ok\n{SEEN}");
    // The environment alone: what exec(3) and posix_spawn(3) start has the library, too; what popen(3) starts has not.
    let alone = run_command(command(&program, &["with"]).env("MANYWAY_DIR", namespace.path()));
    assert_eq!(alone, seen.replace("sem\") = 1", "sem\") = 0"));
    // As `manyway run` starts it. The preloaded library is the one that the program asks for by its name: it is there once.
    let preloaded = run_command(command(&program, &["with"]).env("MANYWAY_DIR", namespace.path()).env("LD_PRELOAD", library()));
    assert_eq!(preloaded, seen);
}

#[test]
fn without_a_namespace_it_is_told() {
    let dir = Scratch::new();
    let program = linked(&dir);
    let said = run_command(&mut command(&program, &["without"]));
    let (line, calls) = said.split_once('\n').expect("a line");
    assert!(line.contains("MANYWAY_DIR is not set"), "{line}");
    let calls: Vec<_> = calls.lines().collect();
    assert_eq!(calls.len(), 3, "{said}");
    assert!(calls.iter().all(|call| call.ends_with(": ENOSYS")), "{said}");

    let said = run_command(&mut command(&program, &["refused"]));
    let (lines, calls): (Vec<_>, Vec<_>) = said.lines().partition(|line| line.starts_with("manyway: "));
    assert!(lines.len() == 1 && lines[0].contains("cannot open namespace /nonexistent/namespace: "), "{said}");
    let errors: Vec<_> = calls.iter().filter_map(|call| call.rsplit(": ").next()).collect();
    assert_eq!(errors, ["EINVAL", "EINVAL", "ENOENT"], "{said}");
}

#[test]
fn is_there_once_when_it_is_also_preloaded() {
    let dir = Scratch::new();
    let program = linked(&dir);
    // So the loader lists what it would load, and runs nothing.
    let loaded = |preload: &Path| run_command(command(&program, &[]).env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_PRELOAD", preload));
    for preload in [library(), Path::new("")] {
        let loaded = loaded(preload);
        assert_eq!(loaded.lines().filter(|line| line.contains("libmanyway")).count(), 1, "{loaded}");
    }
}
