//! Seeds faults in the engine, one by one, and demands that the tests find each.
//!
//!     cargo run -p manyway-testkit --example seeded_faults [-- NAME…]
//!
//! The faults are in `seeded-faults.txt`: a name, a file, lines that are there once (`- `) and what takes their place (`+ `). They are put
//! into a copy of the workspace, in `target/seeded`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

struct Fault {
    name: String,
    file: PathBuf,
    from: String,
    to: String,
}

fn main() -> ExitCode {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace");
    let copy = workspace.join("target/seeded/tree");
    let only: Vec<String> = std::env::args().skip(1).collect();
    let mut faults = parse(include_str!("../seeded-faults.txt"));
    faults.retain(|f| only.is_empty() || only.contains(&f.name));
    copy_tracked(&workspace, &copy);
    if let Some(test) = found_by(&copy) {
        println!("without any fault, {test} fails already");
        return ExitCode::FAILURE;
    }
    let mut missed = 0;
    for fault in &faults {
        let path = copy.join(&fault.file);
        let source = std::fs::read_to_string(&path).expect("a source file");
        let verdict = match source.matches(&fault.from).count() {
            1 => {
                std::fs::write(&path, source.replace(&fault.from, &fault.to)).expect("own copy");
                let found = found_by(&copy);
                std::fs::write(&path, source).expect("own copy");
                found.ok_or("MISSED".to_owned())
            }
            n => Err(format!("its lines are there {n} times: bring seeded-faults.txt up to date")),
        };
        missed += verdict.is_err() as u32;
        println!("{:32} {}", fault.name, verdict.map_or_else(|e| e, |by| format!("found by {by}")));
    }
    println!("{} faults, {missed} not found", faults.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The faults of the list.
fn parse(text: &str) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fault ") {
            faults.push(Fault { name: name.to_owned(), file: PathBuf::new(), from: String::new(), to: String::new() });
        }
        let Some(fault) = faults.last_mut() else { continue };
        let lines = match line.split_at_checked(2) {
            Some(("- ", _)) => &mut fault.from,
            Some(("+ ", _)) => &mut fault.to,
            _ => {
                if let Some(file) = line.strip_prefix("in ") {
                    fault.file = file.into();
                }
                continue;
            }
        };
        *lines += &line[2..];
        lines.push('\n');
    }
    faults
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

/// The test that fails, if one does: random programs first, which find most faults within seconds.
fn found_by(copy: &Path) -> Option<&'static str> {
    let test = |name: &str, filter: &str| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(copy).env("CARGO_TARGET_DIR", copy.join("../build")).env("MANYWAY_RANDOM_CASES", "100");
        cargo.args(["test", "--quiet", "-p", "manyway-testkit", "--test", name]);
        let build = cargo.arg("--no-run").stderr(Stdio::inherit()).status().expect("cargo");
        assert!(build.success(), "a seeded fault must build");
        let mut run = Command::new(cargo.get_program());
        run.current_dir(copy).env("CARGO_TARGET_DIR", copy.join("../build")).env("MANYWAY_RANDOM_CASES", "100");
        run.args(["test", "--quiet", "-p", "manyway-testkit", "--test", name, "--", filter]).stdout(Stdio::null()).stderr(Stdio::null());
        run.status().expect("cargo").success()
    };
    if !test("random", "engine") {
        return Some("random");
    }
    (!test("rules", "::engine")).then_some("rules")
}
