//! `manyway doctor PROGRAM`: each verdict, on real programs.

#[allow(dead_code)]
mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::cast::{self, Cast};
use common::{Namespace, manyway, semtool, stderr, stdout};
use serde_json::Value;

/// A place for programs of a test.
struct Bench(PathBuf);

impl Bench {
    fn new(name: &str) -> Bench {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("doctor-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Bench(dir)
    }
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }
    /// Compiles a C program.
    fn compile(&self, compiler: &str, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let (text, path) = (self.0.join(format!("{name}.c")), self.0.join(name));
        fs::write(&text, source).unwrap();
        let status = Command::new(compiler).arg("-o").arg(&path).arg(&text).args(flags).status();
        assert!(status.expect("a C compiler is needed").success(), "{name}");
        path
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cc() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".into())
}

/// What the doctor says of a program: its exit code and all that it says.
fn asked(mut command: Command) -> (Option<i32>, Value) {
    let output = command.output().unwrap();
    let said = serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {}{}", stdout(&output), stderr(&output)));
    (output.status.code(), said)
}

fn doctor(program: &Path) -> (Option<i32>, Value) {
    asked(Namespace::new().command(&["doctor", "--json", "--", program.to_str().unwrap()]))
}

/// State and text of what was said on a subject.
#[track_caller]
fn on<'a>(said: &'a Value, part: &str, subject: &str) -> (&'a str, String) {
    let looks = said["program"].get(part).or(said.get(part)).and_then(Value::as_array).unwrap_or_else(|| panic!("no {part}: {said:#}"));
    let look = looks.iter().find(|look| look["subject"] == subject).unwrap_or_else(|| panic!("nothing on {subject:?}: {said:#}"));
    let text = |field: &str| look[field].as_str().unwrap().to_owned();
    (look["state"].as_str().unwrap(), format!("{} — {}", text("what"), text("advice")))
}

/// It must be said in this state, with these words.
#[track_caller]
fn expect(said: &Value, subject: &str, state: &str, words: &[&str]) {
    let (is, text) = on(said, "looks", subject);
    assert!(is == state && words.iter().all(|word| text.contains(word)), "{subject}: {is}: {text}");
}

#[track_caller]
fn refused(program: &Path, words: &str) {
    let (code, said) = doctor(program);
    assert_eq!((code, &said["program"]["fit"]), (Some(1), &Value::Bool(false)), "{said:#}");
    expect(&said, "verdict", "bad", &[words]);
}

#[test]
fn a_program_that_uses_semaphores() {
    let namespace = Namespace::new();
    let (code, said) = asked(namespace.command(&["doctor", "--json", "--", semtool().to_str().unwrap()]));
    assert_eq!((code, &said["program"]["fit"]), (Some(0), &Value::Bool(true)), "{said:#}");
    expect(&said, "semaphores", "good", &["semctl, semget, semop", "semtool", "answered by Manyway"]);
    expect(&said, "loader", "good", &["glibc", "puts the library before"]);
    assert!(said["program"]["libraries"].as_array().unwrap().iter().any(|file| file.as_str().unwrap().contains("libc.so")), "{said:#}");
    // It is no fault that the first run has not been yet; and asking is not running.
    assert_eq!(on(&said, "arena", "arena").0, "note", "{said:#}");
    assert!(!namespace.dir().exists(), "the doctor made a namespace");
    // What it says is so.
    assert_eq!(namespace.semtool(&["get", "77", "1", "op", "0", "1"]).end(), Some(0));
    assert_eq!(asked(namespace.command(&["doctor", "--json", "--", "sh"])).0, Some(0));
    let text = namespace.ok(&["doctor", "sh"]);
    assert!(text.contains("\nProgram sh: runs on Manyway\n") && !text.contains('\x1b'), "{text}");
}

#[test]
fn what_cannot_be_preloaded() {
    let bench = Bench::new("refused");
    let source = "int main(void) { return 0; }\n";
    refused(&bench.compile(&cc(), "static", source, &["-static"]), "statically linked");
    refused(&bench.compile(&cc(), "static-pie", source, &["-static-pie"]), "statically linked");
    // A 32-bit program, and one for another machine, as far as the kernel looks.
    let mut elf = fs::read("/bin/sh").unwrap();
    elf[4] = 1;
    refused(&bench.file("narrow", &elf), "32-bit");
    elf[4] = 2;
    elf[18..20].copy_from_slice(&22u16.to_ne_bytes());
    refused(&bench.file("foreign", &elf), "another machine (ELF number 22)");
    refused(&bench.file("damaged", &elf[..40]), "damaged");
    refused(Path::new("/no/such/program"), "there is no /no/such/program");
    refused(Path::new("no-such-program"), "no program \"no-such-program\" on PATH");
    refused(&bench.file("orphan", b"#!/no/such/interpreter\n"), "interpreter /no/such/interpreter does not exist");
}

#[test]
fn a_script_is_what_executes_it() {
    let bench = Bench::new("script");
    let program = bench.compile(&cc(), "static", "int main(void) { return 0; }\n", &["-static"]);
    let (code, said) = doctor(&bench.file("plain", b"#!/bin/sh -e\n"));
    assert_eq!((code, said["program"]["chain"].as_array().unwrap().len()), (Some(0), 2), "{said:#}");
    expect(&said, "file", "good", &["/plain leads to /bin/sh"]);
    let script = bench.file("by-env", format!("#!/usr/bin/env -S A=1 {}\n", program.display()).as_bytes());
    refused(&script, "statically linked");
    let (_, said) = doctor(&script);
    assert_eq!(said["program"]["chain"].as_array().unwrap().len(), 3, "{said:#}");
    // The same as arguments.
    let command = Namespace::new().command(&["doctor", "--json", "env", "A=1", program.to_str().unwrap(), "-x"]);
    let (code, said) = asked(command);
    assert_eq!((code, &said["program"]["fit"]), (Some(1), &Value::Bool(false)), "{said:#}");
}

/// Who gains rights is given no library; who has them already is.
#[test]
fn programs_with_privileges() {
    if !cast::can() {
        return;
    }
    let cast = Cast::new();
    let copy = |name: &str| {
        let path = cast.top.join(name);
        assert!(Command::new("cp").arg(semtool()).arg(&path).status().unwrap().success());
        path
    };
    let said_to = |user, program: &Path| asked(cast.command(user, &["doctor", "--json", "--", program.to_str().unwrap()]));
    let program = copy("set-user-id");
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    let (code, said) = said_to(cast.member(), &program);
    assert_eq!(code, Some(1));
    expect(&said, "verdict", "bad", &["set-user-id (user 0)", "Start the program that it runs, as that user"]);
    let (code, said) = said_to(cast::ROOT, &program);
    assert_eq!((code, &said["program"]["fit"]), (Some(0), &Value::Bool(true)), "{said:#}");
    expect(&said, "set-id bits", "note", &["mode 4755", "it depends on who starts"]);

    let program = copy("capable");
    // Version 2, permitted: CAP_NET_RAW.
    let value = [0x01, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    rustix::fs::setxattr(&program, "security.capability", &value, rustix::fs::XattrFlags::empty()).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let (_, said) = said_to(cast.member(), &program);
    expect(&said, "verdict", "bad", &["file capabilities"]);

    // Executable and not readable: its mode is all there is.
    let program = copy("unreadable");
    fs::set_permissions(&program, Permissions::from_mode(0o711)).unwrap();
    let (code, said) = said_to(cast.member(), &program);
    assert_eq!(code, Some(0), "{said:#}");
    expect(&said, "loader", "note", &["cannot be read"]);
}

#[test]
fn a_program_of_another_c_library() {
    let bench = Bench::new("musl");
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        assert!(std::env::var_os("MANYWAY_REQUIRE_ALL").is_none(), "needs musl-tools");
        return eprintln!("ignored: needs musl-tools");
    }
    let source = "#include <sys/sem.h>\nint main(void) { return semget(1, 1, 0) == 7; }\n";
    let program = bench.compile("musl-gcc", "musl", source, &[]);
    let (code, said) = doctor(&program);
    assert_eq!(code, Some(0), "{said:#}");
    expect(&said, "loader", "good", &["musl", "puts the library before"]);
    expect(&said, "semaphores", "good", &["semget called by"]);
}

#[test]
fn what_is_missing() {
    let bench = Bench::new("missing");
    let library = bench.compile(&cc(), "libabsent.so", "int absent(void) { return 0; }\n", &["-shared", "-fPIC"]);
    let source = "int absent(void); int main(void) { return absent(); }\n";
    let program = bench.compile(&cc(), "program", source, &[library.to_str().unwrap(), "-Wl,-soname,x"]);
    fs::remove_file(library).unwrap();
    let (code, said) = doctor(&program);
    assert_eq!(code, Some(1), "{said:#}");
    expect(&said, "loader", "bad", &["libabsent.so", "install what is missing"]);

    // A glibc that has not been yet: the version that main's start asks for, renamed.
    let mut elf = fs::read(semtool()).unwrap();
    let at = elf.windows(11).position(|bytes| bytes == b"GLIBC_2.34\0").expect("the version since which main is started otherwise");
    elf[at + 8] = b'9';
    let (code, said) = doctor(&bench.file("later", &elf));
    assert_eq!(code, Some(1), "{said:#}");
    expect(&said, "loader", "bad", &["GLIBC_2.94"]);
}

#[test]
fn what_is_suspected() {
    let bench = Bench::new("suspected");
    #[cfg(target_arch = "x86_64")]
    let call = "long r; __asm__ volatile(\"mov $65, %%eax; syscall\" : \"=a\"(r) : : \"rcx\", \"r11\", \"memory\"); return (int) r;";
    #[cfg(target_arch = "aarch64")]
    let call = "__asm__ volatile(\"mov x8, #193; svc #0\" : : : \"x0\", \"x8\", \"memory\"); return 0;";
    let (code, said) = doctor(&bench.compile(&cc(), "own", &format!("int main(void) {{ {call} }}\n"), &[]));
    assert_eq!(code, Some(0), "a suspicion is no fault: {said:#}");
    expect(&said, "own calls", "note", &["/own seems to call the kernel's semop itself", "--no-kernel"]);

    let (_, said) = doctor(&bench.compile(&cc(), "none", "int main(void) { return 0; }\n", &[]));
    expect(&said, "own calls", "good", &["all goes through the C library"]);
    expect(&said, "semaphores", "good", &["neither it nor its libraries name them"]);

    let source = "#include <stdlib.h>\nint main(void) { clearenv(); return system(\"true\"); }\n";
    let (_, said) = doctor(&bench.compile(&cc(), "clears", source, &[]));
    expect(&said, "environment", "note", &["/clears can clear the environment", "system(3)"]);
    expect(&said, "other programs", "note", &["/clears can execute others", "--report"]);

    let source = "#include <dlfcn.h>\nint main(void) { return dlopen(\"x\", 2) || dlmopen(-1, \"x\", 2); }\n";
    let (_, said) = doctor(&bench.compile(&cc(), "opens", source, &["-ldl"]));
    expect(&said, "plug-ins", "note", &["/opens can load others at run time", "CDLL"]);
    expect(&said, "link maps", "note", &["dlmopen"]);

    let source = "long syscall(long, ...); int semop(void) { return 7; } int main(void) { return (int) syscall(39) == semop(); }\n";
    let (code, said) = doctor(&bench.compile(&cc(), "defines", source, &["-rdynamic", "-fno-builtin", "-w"]));
    assert_eq!(code, Some(1), "{said:#}");
    expect(&said, "semaphores", "bad", &["/defines defines semop itself"]);
    expect(&said, "syscall(2)", "good", &["/defines", "by number"]);
}

/// A loader that whoever built the program chose is not run.
#[test]
fn a_loader_that_is_not_the_systems() {
    let bench = Bench::new("loader");
    let mark = bench.0.join("was-run");
    let loader = bench.file("ld-linux-own.so", format!("#!/bin/sh\ntouch {}\n", mark.display()).as_bytes());
    fs::set_permissions(&loader, Permissions::from_mode(0o777)).unwrap();
    let flag = format!("-Wl,--dynamic-linker={}", loader.display());
    let (_, said) = doctor(&bench.compile(&cc(), "program", "int main(void) { return 0; }\n", &[&flag]));
    expect(&said, "loader", "note", &["is not the system's"]);
    assert!(!mark.exists(), "it was run");
}

#[test]
fn what_the_program_inherits() {
    let namespace = Namespace::new();
    let inner = env!("CARGO_BIN_EXE_manyway");
    // Without privileges, a filter has no_new_privs with it; with privileges it is a filter all the same.
    let out = namespace.output(&["run", "--no-kernel", "--", "setpriv", "--no-new-privs", inner, "doctor", "--json", "sh"]);
    let said: Value = serde_json::from_str(&stdout(&out)).unwrap_or_else(|e| panic!("{e}: {}", stderr(&out)));
    assert_eq!(out.status.code(), Some(0), "{said:#}");
    assert!(on(&said, "machine", "seccomp").1.contains("filters of system calls are in force"), "{said:#}");
    assert!(on(&said, "machine", "privileges").1.contains("no_new_privs is set"), "{said:#}");
    assert!(on(&said, "machine", "kernel's semaphores").1.contains("--no-kernel"), "{said:#}");

    let mut command = manyway();
    command.args(["doctor", "--json", "sh"]).env("LD_PRELOAD", "libm.so.6");
    let (_, said) = asked(command);
    expect(&said, "other preloads", "good", &["libm.so.6: kept, behind the library"]);
    expect(&said, "loader", "good", &["puts the library before"]);
}
