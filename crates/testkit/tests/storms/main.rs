//! Storms: sixteen processes call at random on 64 sets while they are killed, one by one, in groups, and over recoveries, stopped, replaced,
//! forked and executed; while pids are used again, sets are removed and made again, the file system is full and the clock steps. Strict and
//! barging, with the watcher and without. All the while it is judged that units are constant, that nobody sleeps who could go on, that
//! timeouts are kept, that who came first is served first; at the end that everything has returned.
//!
//! Each storm has a PID namespace and file systems of its own, whose first process conducts it: nothing of it outlives that.
//!
//! `MANYWAY_STORM_SECONDS` sets how long they blow altogether (default 28), `MANYWAY_STORM_SEED` the seed, which is printed.

mod audit;
mod calls;
mod conductor;
mod ledger;
mod order;
mod sys;
mod worker;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio, exit};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_testkit::{preload_library, running_as_root};
use nix::sched::{CloneFlags, unshare};

use conductor::Weather;
use ledger::{COUNTS, Count};

/// The first argument of this program when it makes a PID namespace, and when it is the first in it.
const LAUNCHER: &str = "launcher-of-storms";
const CONDUCTOR: &str = "conductor-of-storms";

const STORMS: [(&str, bool, bool); 4] =
    [("strict", false, false), ("strict_watched", false, true), ("barging", true, false), ("barging_watched", true, true)];

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    match args.get(1).and_then(|a| a.to_str()) {
        Some(worker::WORKER) => {
            worker::main(worker::Orders::parse(&args[1..]));
            return ExitCode::SUCCESS;
        }
        Some(LAUNCHER) => launch(&args[2..]),
        Some(CONDUCTOR) => {
            let text: Vec<_> = args[2..].iter().map(|a| a.to_str().expect("ASCII").to_owned()).collect();
            conductor::main(&weather_of(&text));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    static SUMS: Mutex<[u64; COUNTS + 2]> = Mutex::new([0; COUNTS + 2]);
    static BLOWN: Mutex<usize> = Mutex::new(0);
    let number = |name, default| std::env::var(name).map_or(default, |s| s.parse().expect("a number"));
    let seconds: u64 = number("MANYWAY_STORM_SECONDS", 28);
    let seed: u64 = number("MANYWAY_STORM_SEED", fastrand::u64(..1 << 32));
    let length = Duration::from_millis(seconds * 1000 / STORMS.len() as u64);
    // They need both processors.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let trials = STORMS.into_iter().enumerate().map(|(i, (name, barging, watched))| {
        let run = move || {
            let counts = blow(seed + i as u64, length, barging, watched)?;
            let mut sums = SUMS.lock().expect("nobody panics here");
            for (at, (sum, n)) in sums.iter_mut().zip(counts).enumerate() {
                *sum = if at < COUNTS { *sum + n } else { (*sum).max(n) };
            }
            *BLOWN.lock().expect("nobody panics here") += 1;
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(!running_as_root())
    });
    let (listing, filtered) = (arguments.list, arguments.filter.is_some() || !arguments.skip.is_empty());
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if listing || *BLOWN.lock().expect("nobody panics here") == 0 {
        conclusion.exit();
    }
    let sums = SUMS.lock().expect("nobody panics here");
    let mut absent = Vec::new();
    let mut text = String::new();
    for (name, n) in Count::NAMES.iter().zip(*sums) {
        text.push_str(&format!("{n} {name}, "));
        // What need not, or cannot, come about everywhere.
        let wanted = *name != Count::NAMES[Count::PidsReused as usize] || conductor::few_pids();
        if n == 0 && wanted {
            absent.push(*name);
        }
    }
    let milliseconds = |at: usize| sums[COUNTS + at] / 1_000_000;
    println!(
        "proof: storms: seed {seed}, {seconds} s, {text}longest wait {} ms, latest timeout {} ms, {} violations",
        milliseconds(0),
        milliseconds(1),
        conclusion.num_failed
    );
    // A storm that did not do everything proves less than it says. (One of several was asked for: it does not do everything.)
    if !absent.is_empty() && !filtered && conclusion.num_failed == 0 && conclusion.num_ignored == 0 {
        println!("error: the storms had no {}", absent.join(", no "));
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// Runs one storm in a PID namespace of its own; returns what it counted.
fn blow(seed: u64, length: Duration, barging: bool, watched: bool) -> Result<[u64; COUNTS + 2], Failed> {
    let place = tempfile::tempdir().map_err(|e| e.to_string())?;
    let library = preload_library()?;
    let command = if watched { Some(the_command()?) } else { None };
    let weather = [seed.to_string(), length.as_millis().to_string(), u8::from(barging).to_string(), text(place.path()), text(library)];
    let mut launcher = Command::new("/proc/self/exe");
    launcher.arg(LAUNCHER).args(weather).args(command.iter().map(|c| text(c)));
    launcher.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = launcher.spawn().map_err(|e| e.to_string())?;
    let (mut out, mut err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let reads = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = err.read_to_string(&mut text);
        text
    });
    let deadline = Instant::now() + length + Duration::from_secs(150);
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the storm with seed {seed} does not end").into());
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let said = reads.join().unwrap_or_default();
    if !status.success() {
        return Err(format!("seed {seed}: {status}\n{said}").into());
    }
    let mut counts = String::new();
    out.read_to_string(&mut counts).map_err(|e| e.to_string())?;
    let counts = counts.strip_prefix("counts: ").ok_or("no counts")?;
    let counts: Vec<u64> = counts.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    Ok(counts.try_into().map_err(|_| "the counts are not as many as there should be")?)
}

fn text(path: &Path) -> String {
    path.to_str().expect("ASCII").to_owned()
}

fn weather_of(text: &[String]) -> Weather {
    let number = |i: usize| text[i].parse::<u64>().expect("a number");
    Weather {
        seed: number(0),
        length: Duration::from_millis(number(1)),
        barging: number(2) == 1,
        place: text[3].clone().into(),
        library: text[4].clone().into(),
        command: text.get(5).map(PathBuf::from),
    }
}

/// Makes the PID namespace, starts its first process, and ends as that does.
fn launch(weather: &[std::ffi::OsString]) -> ! {
    sys::die_with_parent();
    if let Err(e) = unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS) {
        eprintln!("no PID namespace: {e}");
        exit(2);
    }
    let mut conductor = Command::new("/proc/self/exe");
    conductor.arg(CONDUCTOR).args(weather);
    // SAFETY: a system call between fork and exec.
    unsafe {
        conductor.pre_exec(|| {
            sys::die_with_parent();
            Ok(())
        });
    }
    match conductor.status() {
        Ok(status) if status.success() => exit(0),
        Ok(status) => {
            eprintln!("the conductor: {status}");
            exit(1)
        }
        Err(e) => {
            eprintln!("the conductor: {e}");
            exit(2)
        }
    }
}

/// The command `manyway`, whose part the watcher is: as it was built beside this program, or built now.
fn the_command() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    if let Some(beside) = own.parent().and_then(Path::parent).map(|dir| dir.join("manyway")).filter(|p| p.exists()) {
        return Ok(beside);
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = workspace.join("target/preload");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&workspace).args(["build", "--quiet", "--package", "manyway", "--target-dir"]).arg(&target);
    let built = cargo.output().map_err(|e| format!("cannot run cargo to build the command: {e}"))?;
    if !built.status.success() {
        return Err(format!("the command does not build:\n{}", String::from_utf8_lossy(&built.stderr)));
    }
    Ok(target.join("debug/manyway"))
}
