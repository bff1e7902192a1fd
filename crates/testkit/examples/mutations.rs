//! Breaks the engine in one way after another and demands that the test named for each finds it.
//!
//!     cargo run -p manyway-testkit --example mutations [-- NAME…]        # all, or those named; `loom`, `shuttle`, `test`: all of that instrument
//!     cargo run -p manyway-testkit --example mutations -- --sample 3     # three, others each day
//!
//! The list is `mutations.txt`. The changes are made in a copy of the workspace, `target/mutations`; what is built lies beside it, for the
//! instruments that the checks of a change build in any case in their directories.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use manyway_testkit::mutations::{Instrument, Mutation, all, workspace};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A test that has not ended by then has found something, too.
const LIMIT: Duration = Duration::from_secs(300);
/// Schedules for shuttle at most; it ends at the first that fails.
const SCHEDULES: &str = "20000";

enum Verdict {
    Found,
    Hangs,
    Missed,
    Wrong(String),
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut chosen = all();
    match &args[..] {
        [] => {}
        [flag, n] if flag == "--sample" => chosen = sample(chosen, n.parse().expect("how many")),
        names => chosen.retain(|m| names.iter().any(|n| *n == m.name || *n == m.by.name())),
    }
    let workspace = workspace();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), Into::into);
    let copy = target.join("mutations/tree");
    copy_tracked(&workspace, &copy);
    // What fails without any change finds nothing.
    let mut sound = vec![];
    for m in &chosen {
        let by = (m.by, m.tests_of(), &m.program, &m.test);
        if sound.contains(&by) {
            continue;
        }
        if !matches!(test(m, &copy, &target, "1000"), Verdict::Missed) {
            println!("without any change, {} {} fails already", m.program, m.test);
            return ExitCode::FAILURE;
        }
        sound.push(by);
    }
    println!("{} tests pass without any change", sound.len());
    let (mut caught, mut wrong) = (0, 0);
    for m in &chosen {
        let began = Instant::now();
        let verdict = try_one(m, &copy, &target);
        let text = match &verdict {
            Verdict::Found => format!("found by {} {}", m.program, m.test),
            Verdict::Hangs => format!("found by {} {}, which does not end", m.program, m.test),
            Verdict::Missed => format!("MISSED by {} {}", m.program, m.test),
            Verdict::Wrong(what) => format!("WRONG: {what}"),
        };
        caught += matches!(verdict, Verdict::Found | Verdict::Hangs) as u32;
        wrong += matches!(verdict, Verdict::Wrong(_)) as u32;
        println!("{:36} {text} ({:.0} s)", m.name, began.elapsed().as_secs_f32());
    }
    let missed = chosen.len() as u32 - caught;
    let of = |by: Instrument| format!("{} by {}", chosen.iter().filter(|m| m.by == by).count(), by.name());
    println!(
        "proof: mutations: {} tried ({}), {caught} caught, {} missed, {wrong} that could not be tried",
        chosen.len(),
        [Instrument::Loom, Instrument::Shuttle, Instrument::Test].map(of).join(", "),
        missed - wrong
    );
    if missed == 0 && !chosen.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// So many of them, spread over the list, others each day.
fn sample(mutations: Vec<Mutation>, n: usize) -> Vec<Mutation> {
    let day = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs() / 86_400) as usize;
    let each = (mutations.len() / n.max(1)).max(1);
    mutations.into_iter().skip(day % each).step_by(each).take(n).collect()
}

/// Copies what git knows of; files that are the same keep their time, so that little is built again.
fn copy_tracked(workspace: &Path, copy: &Path) {
    let listed = Command::new("git").arg("-C").arg(workspace).args(["ls-files", "-z"]).output().expect("git");
    for file in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
        let Ok(content) = std::fs::read(workspace.join(file)) else { continue };
        let to = copy.join(file);
        if std::fs::read(&to).ok().as_ref() != Some(&content) {
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("room");
            std::fs::write(&to, content).expect("room");
        }
    }
}

fn try_one(m: &Mutation, copy: &Path, target: &Path) -> Verdict {
    let path = copy.join(&m.file);
    let source = match std::fs::read_to_string(&path) {
        Ok(s) => s,
        Err(e) => return Verdict::Wrong(format!("{}: {e}", m.file.display())),
    };
    let changed = match m.apply(&source) {
        Ok(s) => s,
        Err(e) => return Verdict::Wrong(e),
    };
    std::fs::write(&path, changed).expect("own copy");
    let verdict = test(m, copy, target, SCHEDULES);
    std::fs::write(&path, source).expect("own copy");
    verdict
}

fn test(m: &Mutation, copy: &Path, target: &Path, schedules: &str) -> Verdict {
    let cargo = |what: &[&str]| {
        let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        c.current_dir(copy).env("CARGO_INCREMENTAL", "1").env("MANYWAY_RANDOM_CASES", "100").env("MANYWAY_SHUTTLE_ITERATIONS", schedules);
        c.args(["test", "--quiet", "--test", &m.program]);
        let (flags, dir) = match m.by {
            Instrument::Loom => ("--cfg loom", "loom"),
            Instrument::Shuttle => ("--cfg shuttle", "shuttle"),
            Instrument::Test => ("", "mutations/build"),
        };
        c.env("CARGO_TARGET_DIR", target.join(dir)).args(["-p", &format!("manyway-{}", m.tests_of())]);
        if m.by == Instrument::Test {
            c.env("CARGO_PROFILE_DEV_DEBUG", "0").env("MANYWAY_DCACHE_HISTORIES", "200");
        } else {
            // Built for a quick build more than for a quick run.
            c.env("RUSTFLAGS", flags).arg("--release");
            c.env("CARGO_PROFILE_RELEASE_LTO", "off")
                .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
                .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
        }
        c.args(what);
        c
    };
    let built = cargo(&["--no-run"]).output().expect("cargo");
    if !built.status.success() {
        let log = String::from_utf8_lossy(&built.stderr);
        let error = log.lines().find(|l| l.starts_with("error")).unwrap_or("an error").to_owned();
        return Verdict::Wrong(format!("it does not build: {error}"));
    }
    let mut run = cargo(&["--", &m.test]);
    let mut run = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().expect("cargo");
    let began = Instant::now();
    loop {
        match run.try_wait().expect("a child") {
            Some(status) if status.success() => return Verdict::Missed,
            Some(_) => return Verdict::Found,
            None if began.elapsed() > LIMIT => {
                // And what it has started.
                let _ = killpg(Pid::from_raw(run.id() as i32), Signal::SIGKILL);
                let _ = run.wait();
                return Verdict::Hangs;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
