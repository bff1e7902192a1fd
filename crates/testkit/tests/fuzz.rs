//! The fuzzers' targets (`manyway_testkit::fuzz`, `fuzz/`) with a deterministic stream of inputs: what any change must pass.
//!
//! `MANYWAY_FUZZ_SECONDS` sets for how long each runs (3), `MANYWAY_FUZZ_SEED` the first input's seed: a failure names its input's.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_testkit::{fuzz, preload_library};

const TARGET: &str = "target-of-fuzz";
const TARGETS: [&str; 3] = ["decoder", "arena", "program"];
/// An input that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|a| a == TARGET) {
        return target(&args[2], Path::new(&args[3]));
    }
    let trials = TARGETS.map(|name| Trial::test(name, move || run(name)));
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v}: not a number")))
}

/// In a process of its own: inputs until the time is up; notes each before it is tried.
fn target(name: &str, notes: &Path) {
    let end = Instant::now() + Duration::from_secs(number("MANYWAY_FUZZ_SECONDS", 3));
    let (mut seed, mut inputs, mut calls) = (number("MANYWAY_FUZZ_SEED", 1), 0u64, 0u64);
    while Instant::now() < end {
        std::fs::write(notes, format!("{seed} {inputs} {calls}")).expect("a file");
        let mut r = fastrand::Rng::with_seed(seed);
        let input: Vec<u8> = (0..r.usize(0..400)).map(|_| if r.bool() { r.u8(..) } else { r.u8(0..8) }).collect();
        calls += match name {
            "decoder" => fuzz::decoder(&input),
            "arena" => fuzz::arena(&input),
            _ => fuzz::program(&input).unwrap_or(0),
        };
        inputs += 1;
        seed += 1;
    }
    std::fs::write(notes, format!("{seed} {inputs} {calls}")).expect("a file");
}

fn run(name: &'static str) -> Result<(), Failed> {
    let dir = tempfile::tempdir_in("/dev/shm").map_err(|e| e.to_string())?;
    let notes = dir.path().join("notes");
    let mut child = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    child.arg(TARGET).arg(name).arg(&notes).stdin(Stdio::null()).stdout(Stdio::null());
    let namespace = dir.path().join("namespace");
    if name == "decoder" {
        let path = std::ffi::CString::new(namespace.to_str().ok_or("a path of text")?).map_err(|e| e.to_string())?;
        let how = manyway_sem::OpenOptions { create: true, ..Default::default() };
        manyway_sem::Engine::open(&path, &how).map_err(|e| e.to_string())?;
        child.env("LD_PRELOAD", preload_library()?).env("MANYWAY_DIR", &namespace);
    }
    let mut child = child.spawn().map_err(|e| e.to_string())?;
    let (mut seen, mut since) = (String::new(), Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
        let now = std::fs::read_to_string(&notes).unwrap_or_default();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() > HANG {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{name}: seed {seen} hangs").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let last = std::fs::read_to_string(&notes).unwrap_or_default();
    let numbers: Vec<u64> = last.split(' ').filter_map(|n| n.parse().ok()).collect();
    match numbers[..] {
        [_, inputs, calls] if status.success() => {
            println!("proof: fuzz {name}: {inputs} inputs, {calls} calls, 0 crashes, 0 hangs");
            if inputs == 0 { Err("no input was tried".into()) } else { Ok(()) }
        }
        _ => Err(format!("{name}: {status} at seed {last}").into()),
    }
}
