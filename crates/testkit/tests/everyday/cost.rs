//! What the start of a program costs more: of each child that has the library, and of `manyway run` itself.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use manyway_testkit::manyway_command;
use serde_json::Value;

/// No start may cost more than this.
const BAR: Duration = Duration::from_millis(2);

const PROGRAMS: [&[&str]; 4] = [&["/bin/true"], &["/bin/sh", "-c", ":"], &["/usr/bin/perl", "-e", "1"], &["/bin/ls", "/"]];

pub fn trials() -> Vec<Trial> {
    vec![Trial::test("start_up_cost", cost)]
}

/// The ways of starting, in turn so that all have the same weather. The least of many is what the start itself takes: a busy machine only adds to
/// it. A command built for debugging is told of, not judged.
fn cost() -> Result<(), Failed> {
    let manyway = manyway_command()?;
    let rounds = env::var("MANYWAY_STARTS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let judged = Path::new(manyway).parent().is_some_and(|dir| dir.ends_with("release"));
    let namespace = tempfile::Builder::new().prefix("manyway-cost-").tempdir_in("/dev/shm")?;
    let said = Command::new(manyway).args(["env", "--format", "json", "--dir"]).arg(namespace.path()).output()?;
    let variables: Value = serde_json::from_slice(&said.stdout)?;
    let variables: Vec<_> = variables["env"]
        .as_object()
        .ok_or("no variables")?
        .iter()
        .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
        .collect();
    let in_run = |arguments: &[&str], program: &[&str]| {
        let mut command = Command::new(manyway);
        command.arg("run").args(arguments).arg("--dir").arg(namespace.path()).arg("--").args(program);
        command
    };
    for program in PROGRAMS {
        let mut taken: [Vec<Duration>; 4] = Default::default();
        for _ in 0..rounds {
            let plain = || {
                let mut command = Command::new(program[0]);
                command.args(&program[1..]);
                command
            };
            let mut preloaded = plain();
            preloaded.envs(variables.iter().cloned());
            let ways = [plain(), preloaded, in_run(&["--no-watcher"], program), in_run(&[], program)];
            for (mut command, taken) in ways.into_iter().zip(&mut taken) {
                command.stdin(Stdio::null()).stdout(Stdio::null());
                let begun = Instant::now();
                if !command.status()?.success() {
                    return Err(format!("{program:?} fails").into());
                }
                taken.push(begun.elapsed());
            }
        }
        let [plain, preloaded, bare, run] = taken.map(|mut all| {
            all.sort();
            (all[0], all[all.len() / 2])
        });
        let more = |way: (Duration, Duration)| (way.0.saturating_sub(plain.0), way.1.saturating_sub(plain.1));
        println!(
            "{}: {:?}; preloaded +{:?}, run --no-watcher +{:?}, run +{:?} (medians {:?} +{:?} +{:?} +{:?})",
            program.join(" "),
            plain.0,
            more(preloaded).0,
            more(bare).0,
            more(run).0,
            plain.1,
            more(preloaded).1,
            more(bare).1,
            more(run).1
        );
        if more(preloaded).0 > BAR || judged && more(run).0 > BAR {
            return Err(format!("{program:?} starts more than {BAR:?} later").into());
        }
    }
    Ok(())
}
