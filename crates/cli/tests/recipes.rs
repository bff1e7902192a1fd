//! The recipes of docs/recipes.md, as far as they need no server.

#[allow(dead_code)]
mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::cast::can;
use common::{Namespace, manyway, semtool, stderr, stdout};

fn shell(command: &mut Command, script: &str) -> Output {
    command.args(["sh", "-c", script, env!("CARGO_BIN_EXE_manyway"), semtool().to_str().unwrap()]).output().unwrap()
}

/// A container's /dev/shm has 64 MiB. Sets are made until no more fit: an error at semget says so, nobody dies by SIGBUS, what is there goes on
/// working. What a removed set leaves is kept for others in its place while anybody is in the namespace, and room again when nobody is: hence
/// more than one attempt.
#[test]
fn a_container_with_a_small_dev_shm() {
    if !can() {
        return;
    }
    let script = "
        mount -t tmpfs -o size=64m none /dev/shm
        export MANYWAY_DIR=/dev/shm/ns
        \"$0\" run --limits 32000,1024000000,500,32000 -- \"$1\" get 7 1 op 0 1
        n=0
        while [ $n -lt 60 ]; do
            \"$0\" run -- \"$1\" get $((n + 100)) 32000 >/dev/null 2>err || break
            n=$((n + 1))
        done
        echo \"sets $n\"
        cat err
        \"$0\" run -- \"$1\" get 7 1 op 0 1 op 0 -2
        \"$0\" rm --key 100 >/dev/null
        \"$0\" run -- \"$1\" get 900 32000 >/dev/null && echo room
        \"$0\" doctor --json | grep -c '\"state\": \"bad\"'";
    let top = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).current_dir(top).env_remove("LD_PRELOAD");
    let output = shell(&mut command, script);
    let said = stdout(&output);
    let sets: u32 = said.lines().find_map(|line| line.strip_prefix("sets ")?.parse().ok()).unwrap_or(0);
    // 32,000 semaphores of 64 bytes are two megabytes.
    assert!((20..=32).contains(&sets), "{said}{}", stderr(&output));
    assert!(said.contains("Cannot allocate memory") || said.contains("No space left on device"), "{said}");
    assert!(said.contains("done\ndone\nroom\n"), "{said}{}", stderr(&output));
}

/// Jobs side by side use the same key, each in a namespace of its own, which is gone afterwards.
#[test]
fn ci_jobs_with_a_namespace_for_each() {
    let job =
        "for i in 1 2 3; do \"$0\" get 77 1 op 0 1 >/dev/null || exit 1; done; \"$0\" get 77 1 op 0 -3 >/dev/null && echo $MANYWAY_DIR";
    let jobs: Vec<_> = (0..4)
        .map(|_| {
            let mut command = manyway();
            command.args(["run", "--private", "--", "sh", "-c", job, semtool().to_str().unwrap()]);
            std::thread::spawn(move || command.output().unwrap())
        })
        .collect();
    let mut dirs: Vec<String> = jobs
        .into_iter()
        .map(|job| {
            let output = job.join().unwrap();
            // Each counts to three by itself; together they would not.
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            stdout(&output).trim().to_owned()
        })
        .collect();
    dirs.sort();
    dirs.dedup();
    assert_eq!(dirs.len(), 4, "{dirs:?}");
    for dir in dirs {
        common::eventually(|| !Path::new(&dir).exists());
    }
}

/// What a systemd unit, a container or a shell needs beside the program: nothing of `run`.
#[test]
fn a_service_that_is_started_by_somebody_else() {
    let namespace = Namespace::new();
    let said = namespace.ok(&["env", "--format", "systemd"]);
    let variables: Vec<(String, String)> = said
        .lines()
        .filter_map(|line| line.strip_prefix("Environment="))
        .map(|line| line.trim_matches('"').split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).expect("a variable"))
        .collect();
    assert!(variables.iter().any(|(name, _)| name == "LD_PRELOAD"), "{said}");
    let output = Command::new(semtool()).args(["get", "77", "1", "op", "0", "1"]).env_clear().envs(variables).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(namespace.json(&["ls"])["sets"].as_array().unwrap().len(), 1);
}
