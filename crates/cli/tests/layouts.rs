//! Arenas of two layouts in one directory: neither version touches the other's, and whoever looks is told who is on the other side.

#[allow(dead_code)]
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use common::{Namespace, Program, semtool, stderr};

/// An arena as the next version may leave it, in the namespace's directory.
fn next_arena(namespace: &Namespace) -> PathBuf {
    let mut content = vec![0x5a; 1 << 16];
    content[..8].copy_from_slice(b"MANYWAY1");
    content[8..12].copy_from_slice(&2u32.to_le_bytes());
    let file = namespace.dir().join("arena-v2");
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// A program of the next version: it has that arena mapped.
fn next_program(namespace: &Namespace) -> Program {
    let mut command = Command::new(semtool());
    command.arg("map").arg(namespace.dir().join("arena-v2")).arg("wait");
    let mut program = Program::start(command);
    assert_eq!(program.line(), "mapped");
    program
}

#[test]
fn who_is_on_another_layout_is_named() {
    let namespace = Namespace::new();
    let mut old = namespace.semtool(&["get", "0x4d57", "2", "set", "0", "3", "op", "0", "-1", "undo", "wait"]);
    let id = old.line();
    assert_eq!(old.line(), "done");
    let file = next_arena(&namespace);
    let before = fs::read(&file).unwrap();

    // A file that nobody uses is worth a note, no alarm.
    let look = |subject: &str| {
        let output = namespace.output(&["doctor", "--json"]);
        let diagnosis: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        diagnosis["arena"].as_array().unwrap().iter().find(|look| look["subject"] == subject).unwrap().clone()
    };
    assert_eq!(look("other layout")["state"], "note");
    assert!(
        namespace.ok(&["ls"]).contains("arena-v2 has layout 2, of another version of Manyway (this one has 1); nobody is seen to use it")
    );
    assert!(stderr(&namespace.output(&["run", "--", "true"])).is_empty());

    let mut new = next_program(&namespace);
    let who = format!("{} (", new.pid());
    let looked = look("other layout");
    assert_eq!(looked["state"], "bad");
    assert!(looked["what"].as_str().unwrap().contains(&who), "{looked}");
    assert_eq!(namespace.output(&["doctor"]).status.code(), Some(1));
    let listed = namespace.ok(&["ls"]);
    assert!(listed.contains(&who) && listed.contains("do not see each other's semaphores"), "{listed}");
    let other = &namespace.json(&["ls"])["other_layouts"][0];
    assert_eq!((&other["layout"], &other["processes"][0]["pid"]), (&2.into(), &new.pid().into()));
    // `run` says it, and runs.
    let said = stderr(&namespace.output(&["run", "--", semtool().to_str().unwrap(), "get", "0x4d57", "2", "op", "1", "1"]));
    assert!(said.starts_with("manyway: ") && said.contains(&who) && said.lines().count() == 1, "{said}");

    // Each has kept what it had.
    assert!(fs::read(&file).unwrap() == before, "it was written to");
    let set = namespace.json(&["show", &id]);
    assert_eq!((&set["semaphores"][0]["value"], &set["semaphores"][1]["value"]), (&2.into(), &1.into()));
    assert_eq!(old.end(), Some(0));
    assert_eq!(namespace.json(&["show", &id])["semaphores"][0]["value"], 3);
    assert_eq!(new.end(), Some(0));
    assert!(stderr(&namespace.output(&["run", "--", "true"])).is_empty());
}

#[test]
fn a_directory_of_another_version_only_is_no_namespace_of_this_one() {
    let namespace = Namespace::new();
    fs::create_dir(namespace.dir()).unwrap();
    fs::set_permissions(namespace.dir(), fs::Permissions::from_mode(0o700)).unwrap();
    let file = next_arena(&namespace);
    let before = fs::read(&file).unwrap();
    let output = namespace.output(&["ls"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("no namespace of this version") && said.contains("arena-v2 has layout 2"), "{said}");
    // The first `run` makes one beside it.
    namespace.ok(&["run", "--", "true"]);
    assert_eq!(namespace.json(&["ls"])["sets"], serde_json::json!([]));
    assert!(fs::read(&file).unwrap() == before, "it was written to");
}

#[test]
fn a_file_of_this_name_and_another_layout_is_refused_and_kept() {
    let namespace = Namespace::new();
    namespace.ok(&["run", "--no-watcher", "--", semtool().to_str().unwrap(), "get", "0x4d57", "1"]);
    let arena = namespace.dir().join("arena-v1");
    let file = fs::OpenOptions::new().write(true).open(&arena).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &7u32.to_le_bytes(), 8).unwrap();
    let head = || {
        let mut bytes = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(&arena).unwrap(), &mut bytes, 0).unwrap();
        bytes
    };
    let before = head();
    for (arguments, code) in [(&["ls"][..], 1), (&["run", "--", "true"], 125), (&["rm", "--all", "--yes"], 1), (&["doctor"], 1)] {
        let output = namespace.output(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let said = stderr(&output) + &common::stdout(&output);
        assert!(said.contains("has layout 7, which this version does not know"), "{arguments:?}: {said}");
    }
    assert!(head() == before, "it was written to");
}
