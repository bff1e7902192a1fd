//! Help, exit codes, completions, manual pages.

#[allow(dead_code)]
mod common;

use std::fs;
use std::process::{Output, Stdio};

use common::{Namespace, manyway, stderr, stdout};

const SUBCOMMANDS: [&str; 11] = ["run", "ls", "show", "rm", "doctor", "ns", "env", "bench", "devel", "completions", "man"];

fn output(arguments: &[&str]) -> Output {
    manyway().args(arguments).output().unwrap()
}

#[test]
fn help_names_every_subcommand_and_each_has_examples() {
    let help = output(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for name in SUBCOMMANDS {
        assert!(stdout(&help).contains(&format!("\n  {name} ")), "{name}");
        let help = output(&[name, "--help"]);
        assert_eq!(help.status.code(), Some(0), "{name}");
        assert!(stdout(&help).contains("Examples:"), "{name}");
        assert!(!stdout(&help).contains('\x1b'), "{name}: colour in a pipe");
    }
}

#[test]
fn wrong_usage_is_2_and_of_run_125() {
    for arguments in [
        &["nonsense"][..],
        &["ls", "--bogus"],
        &["ls", "--dir", "/x", "--ns", "y"],
        &["show"],
        &["show", "one"],
        &["rm"],
        &["rm", "1", "--all"],
        &["rm", "--key", "0"],
        &["completions", "cmd"],
        &["ns"],
        &["ns", "rm"],
        &["ns", "set"],
        &["env", "--format", "csh"],
    ] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
    for arguments in [
        &["run"][..],
        &["run", "--bogus", "--", "true"],
        &["run", "--limits", "1,2,3", "--", "true"],
        &["run", "--private", "--ns", "x", "true"],
    ] {
        assert_eq!(output(arguments).status.code(), Some(125), "{arguments:?}");
    }
}

#[test]
fn a_namespace_that_does_not_exist_is_1_and_says_what_to_do() {
    let namespace = Namespace::new();
    for arguments in [&["ls"][..], &["show", "0"], &["rm", "--all"]] {
        let output = namespace.output(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains("there is no namespace in /dev/shm/"), "{}", stderr(&output));
        assert!(stderr(&output).contains("manyway run"), "{}", stderr(&output));
        assert!(!namespace.dir().exists(), "{arguments:?} made it");
    }
}

#[test]
fn a_name_that_cannot_be_one_is_refused() {
    let output = output(&["ls", "--ns", "../etc"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not a namespace's name"));
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = output(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(SUBCOMMANDS.iter().all(|name| stdout(&output).contains(name)), "{shell}");
        assert!(!stdout(&output).contains("__watcher"), "{shell}");
    }
}

#[test]
fn manual_pages() {
    let output_of_one = output(&["man"]);
    assert_eq!(output_of_one.status.code(), Some(0));
    assert!(stdout(&output_of_one).contains(".TH manyway 1"));

    let namespace = Namespace::new();
    let dir = namespace.dir().to_str().unwrap();
    assert_eq!(output(&["man", dir]).status.code(), Some(1), "there is no such directory");
    fs::create_dir(dir).unwrap();
    assert_eq!(output(&["man", dir]).status.code(), Some(0));
    for name in SUBCOMMANDS {
        assert!(fs::read_to_string(format!("{dir}/manyway-{name}.1")).unwrap().contains(".SH"), "{name}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut child = manyway().arg("man").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}
