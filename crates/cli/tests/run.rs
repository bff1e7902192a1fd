//! `manyway run`: what it refuses, how it becomes the program, and what its watcher does.

#[allow(dead_code)]
mod common;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Namespace, Program, eventually, manyway, semtool, stderr, stdout};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

/// Whether the namespace has a watcher: it holds a lock.
fn is_watched(dir: &Path) -> bool {
    let Ok(file) = File::open(dir.join("watcher.lock")) else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

/// SIGKILL for the namespace's watcher.
fn kill_watcher(dir: &Path) {
    let is_watcher = |pid: u32| {
        let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.contains("\0__watcher\0") && arguments.contains(dir.to_str().unwrap())
    };
    let entries = fs::read_dir("/proc").unwrap();
    let mut pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let pid: u32 = pids.find(|pid| is_watcher(*pid)).expect("a watcher");
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    eventually(|| !is_watched(dir));
}

#[test]
fn refusals() {
    let namespace = Namespace::new();
    let expect = |code, words: &str, arguments: &[&str]| {
        let output = namespace.output(&[&["run"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    expect(127, "no program \"no-such-program\" on PATH", &["--", "no-such-program"]);
    expect(127, "there is no /no/such/program", &["--", "/no/such/program"]);
    expect(126, "cannot execute /etc/passwd", &["--", "/etc/passwd"]);
    expect(126, "cannot execute /tmp", &["--", "/tmp"]);
    assert!(!namespace.dir().exists(), "a refusal made a namespace");
    expect(125, "limits are not possible", &["--limits", "0,0,0,0", "--", "true"]);
}

#[test]
fn a_static_program_is_refused() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
    let source = path.with_extension("c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    assert!(Command::new(cc).args(["-static", "-nostdlib", "-Wl,--entry=main", "-o"]).args([&path, &source]).status().unwrap().success());
    let output = Namespace::new().output(&["run", "--", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("statically linked"), "{}", stderr(&output));
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let namespace = Namespace::new();
    fs::create_dir(namespace.dir()).unwrap();
    fs::set_permissions(namespace.dir(), Permissions::from_mode(0o777)).unwrap();
    let output = namespace.output(&["run", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("cannot be trusted"), "{}", stderr(&output));
}

#[test]
fn becomes_the_program() {
    let namespace = Namespace::new();
    let mut program = Program::start(namespace.command(&["run", "--", "sh", "-c", "echo $$ $0 $1; exit 7", "zero", "one"]));
    assert_eq!(program.line(), format!("{} zero one", program.pid()), "another process");
    assert_eq!(program.end(), Some(7));
}

#[test]
fn the_program_has_neither_children_nor_descriptors_that_it_did_not_open() {
    let namespace = Namespace::new();
    assert_eq!(namespace.semtool(&["childless", "get", "0", "1", "childless"]).end(), Some(0));
    let plain = Command::new("ls").arg("/proc/self/fd").stdin(Stdio::null()).output().unwrap();
    assert_eq!(namespace.ok(&["run", "--", "ls", "/proc/self/fd"]), stdout(&plain));
}

#[test]
fn programs_share_the_semaphores_of_a_namespace_and_of_no_other() {
    let (one, two) = (Namespace::new(), Namespace::new());
    let mut owner = one.semtool(&["get", "0x77", "1", "op", "0", "5", "wait"]);
    let id = owner.line();
    assert_eq!(owner.line(), "done");
    let mut partner = one.semtool(&["get", "0x77", "1", "op", "0", "-5"]);
    assert_eq!((partner.line(), partner.line()), (id, "done".into()));
    two.ok(&["run", "--", "true"]);
    assert_eq!(two.json(&["ls"])["sets"], serde_json::json!([]));
}

#[test]
fn what_the_program_starts_is_in_the_same_namespace() {
    let namespace = Namespace::new();
    let inner = env!("CARGO_BIN_EXE_manyway");
    let shown = namespace.ok(&["run", "--", "sh", "-c", "echo $MANYWAY_DIR; exec \"$0\" run -- sh -c 'echo $MANYWAY_DIR'", inner]);
    assert_eq!(shown, format!("{0}\n{0}\n", namespace.dir().display()));
    // One library, however often it is nested.
    let list = namespace.ok(&["run", "--", inner, "run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    assert_eq!(list.matches("libmanyway-").count(), 1, "{list}");
}

#[test]
fn a_namespace_keeps_its_limits_and_fairness() {
    let namespace = Namespace::new();
    namespace.ok(&["run", "--limits", "250,32000,32,128", "--fairness", "barging", "--", "true"]);
    namespace.ok(&["run", "--", "true"]);
    namespace.ok(&["run", "--limits", "250,32000,32,128", "--fairness", "barging", "--", "true"]);
    for (options, words) in
        [(["--limits", "1,2,3,4"], "has the limits 250,32000,32,128"), (["--fairness", "strict"], "its fairness is barging")]
    {
        let output = namespace.output(&[&["run"], &options[..], &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

#[test]
fn one_watcher_while_a_program_lives() {
    let namespace = Namespace::new();
    let mut one = namespace.semtool(&["get", "1", "1", "op", "0", "1", "wait"]);
    one.line();
    eventually(|| is_watched(namespace.dir()));
    let mut two = namespace.semtool(&["get", "1", "1", "wait"]);
    two.line();
    one.end();
    assert!(is_watched(namespace.dir()), "gone with the program that started it");
    two.end();
    eventually(|| !is_watched(namespace.dir()));
}

#[test]
fn the_next_run_replaces_a_watcher_that_was_killed() {
    let namespace = Namespace::new();
    let mut one = namespace.semtool(&["say", "ready", "wait"]);
    one.line();
    eventually(|| is_watched(namespace.dir()));
    kill_watcher(namespace.dir());
    namespace.ok(&["run", "--", "true"]);
    eventually(|| is_watched(namespace.dir()));
    one.end();
    eventually(|| !is_watched(namespace.dir()));
}

#[test]
fn no_watcher_when_none_is_wanted() {
    let namespace = Namespace::new();
    let mut program =
        Program::start(namespace.command(&["run", "--no-watcher", "--", semtool().to_str().unwrap(), "get", "1", "1", "wait"]));
    program.line();
    assert!(!namespace.dir().join("watcher.lock").exists());
}

/// A pipe that a program of the namespace had open is closed with that program, though the watcher that it started lives on.
#[test]
fn the_watcher_holds_no_pipe() {
    let namespace = Namespace::new();
    let mut starter = namespace.semtool(&["say", "ready", "wait"]);
    assert_eq!(starter.line(), "ready");
    let mut other = namespace.semtool(&["say", "ready", "wait"]);
    assert_eq!(other.line(), "ready");
    eventually(|| is_watched(namespace.dir()));
    starter.end();
    assert_eq!(starter.line(), "", "the end of the output");
    assert!(is_watched(namespace.dir()));
}

#[test]
fn the_undo_of_a_killed_holder_wakes_its_sleeper() {
    for options in [&["run"][..], &["run", "--no-watcher"]] {
        let namespace = Namespace::new();
        let start = |arguments: &[&str]| {
            let tool = ["--", semtool().to_str().unwrap()];
            Program::start(namespace.command(&[options, &tool, arguments].concat()))
        };
        let mut holder = start(&["get", "1", "1", "set", "0", "1", "op", "0", "-1", "undo", "wait"]);
        let id = holder.line();
        assert_eq!(holder.line(), "done");
        let mut sleeper = start(&["get", "1", "1", "op", "0", "-1"]);
        sleeper.line();
        eventually(|| namespace.json(&["show", &id])["sleepers"] == 1);
        holder.kill();
        assert_eq!(sleeper.line(), "done");
        assert_eq!(sleeper.end(), Some(0));
    }
}

/// With a watcher and without, a private namespace is there for all that its program started, and gone afterwards.
#[test]
fn a_private_namespace_ends_with_its_last_process() {
    for options in [&["run", "--private"][..], &["run", "--private", "--no-watcher"]] {
        let mut command = manyway();
        let script = "\"$0\" get 1 1 wait & echo $MANYWAY_DIR";
        // The shell ends at once; the program in the background has its input and lives on.
        command.args(options).args(["--", "sh", "-c", &format!("exec 3<&0; {}", script.replace("wait &", "wait <&3 &"))]).arg(semtool());
        let mut program = Program::start(command);
        let lines = [program.line(), program.line()];
        let dir = PathBuf::from(lines.iter().find(|line| line.starts_with('/')).expect("a directory"));
        assert!(dir.join("arena-v1").exists());
        assert_eq!(program.end(), Some(0));
        eventually(|| !dir.exists());
    }
}

/// If the one that was to remove it was killed, the next private one sweeps it away.
#[test]
fn an_abandoned_private_namespace_is_removed_by_the_next() {
    let start = || {
        let mut command = manyway();
        command.args(["run", "--private", "--", "sh", "-c", "echo $MANYWAY_DIR; read line"]);
        let mut program = Program::start(command);
        let dir = PathBuf::from(program.line());
        (program, dir)
    };
    let (mut one, abandoned) = start();
    eventually(|| is_watched(&abandoned));
    kill_watcher(&abandoned);
    let (_other, dir) = start();
    assert!(abandoned.exists(), "removed under its program");
    one.end();
    let (_another, other_dir) = start();
    assert!(!abandoned.exists() && dir.exists() && other_dir.exists());
}
