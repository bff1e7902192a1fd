//! One case: a script, run without Manyway and with it.

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Failed, Trial};
use manyway_testkit::manyway_command;
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than this no case takes, by far.
const DEADLINE_SECONDS: &str = "300";
/// The system's programs, not those that a developer has put before them.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where a PostgreSQL with System V semaphores is installed: see postgres-sysv.sh beside the cases.
const POSTGRES: &str = "MANYWAY_POSTGRES";

/// Cases that ended alike.
static ALIKE: AtomicUsize = AtomicUsize::new(0);
/// Cases that did not.
static OTHERS: AtomicUsize = AtomicUsize::new(0);
/// Those alike that used semaphores.
static WITH_SEMAPHORES: AtomicUsize = AtomicUsize::new(0);

/// One line for the proof.
pub fn tell() {
    let [alike, with, others] = [&ALIKE, &WITH_SEMAPHORES, &OTHERS].map(|count| count.load(Ordering::Relaxed));
    if alike + others > 0 {
        println!("proof: everyday: {alike} programs alike with and without Manyway, {with} of them on its semaphores, {others} violations");
    }
}

struct Case {
    name: String,
    script: PathBuf,
    /// Program and Debian package.
    needs: Vec<(String, String)>,
    sample: bool,
    semaphores: bool,
    /// Others than the user who runs it execute programs in it.
    share: bool,
}

/// The cases, all or the sample.
pub fn trials(all: bool) -> Vec<Trial> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/everyday/cases");
    let mut scripts: Vec<_> = fs::read_dir(&dir).expect("the cases").map(|entry| entry.expect("a case").path()).collect();
    scripts.sort();
    scripts.into_iter().map(Case::read).filter(|case| all || case.sample).map(Case::into_trial).collect()
}

impl Case {
    fn read(script: PathBuf) -> Case {
        let text = fs::read_to_string(&script).expect("a case");
        let marks = |mark: &str| text.lines().any(|line| line == format!("# {mark}"));
        let needs = text.lines().filter_map(|line| line.strip_prefix("# needs: ")).flat_map(str::split_whitespace);
        let needs = needs.map(|need| need.split_once('=').unwrap_or((need, need))).map(|(a, b)| (a.into(), b.into())).collect();
        let name = script.file_stem().expect("a name").to_string_lossy().into_owned();
        Case { name, needs, sample: marks("sample"), semaphores: marks("semaphores"), share: marks("share"), script }
    }

    fn into_trial(self) -> Trial {
        let absent = self.needs.iter().find(|(program, _)| !is_there(program));
        // What is built by hand is never demanded.
        let required = env::var_os("MANYWAY_REQUIRE_ALL").is_some_and(|v| v == "1")
            && self.needs.iter().all(|(program, _)| program != "postgres-sysv");
        match absent.map(|(_, package)| package.clone()) {
            None => Trial::test(self.name.clone(), move || {
                self.judge().inspect_err(|_| {
                    OTHERS.fetch_add(1, Ordering::Relaxed);
                })
            }),
            Some(package) => {
                let why = format!("needs {package}");
                Trial::test(self.name.clone(), {
                    let why = why.clone();
                    move || Err(why.into())
                })
                .with_kind(why)
                .with_ignored_flag(!required)
            }
        }
    }

    fn judge(&self) -> Result<(), Failed> {
        // The kernel's semaphores of others are none of its business, where that can be had.
        let _ = unshare(CloneFlags::CLONE_NEWIPC);
        let namespace = tempfile::Builder::new().prefix("manyway-everyday-").tempdir_in("/dev/shm")?;
        let manyway = manyway_command()?;
        // The same place for both: what names it in its output names the same.
        let top = TempDir::new()?;
        let place = top.path().join("place");
        let plain = self.run(&place, Command::new("sh"))?;
        if plain.0 != "exit 0" {
            return Err(format!("without Manyway: {}\n{}", plain.0, plain.1).into());
        }
        if plain.1.is_empty() {
            return Err("it says nothing".into());
        }
        let mut command = Command::new(manyway);
        command.args(["run", "--share", if self.share { "all" } else { "none" }, "--dir"]).arg(namespace.path()).args(["--", "sh"]);
        let other = self.run(&place, command)?;
        if plain != other {
            let differs = plain.1.lines().zip(other.1.lines()).position(|(a, b)| a != b);
            return Err(format!(
                "it differs, first in line {differs:?}.\nwithout Manyway, {}:\n{}\nwith, {}:\n{}",
                plain.0, plain.1, other.0, other.1
            )
            .into());
        }
        let listing = Command::new(manyway).args(["ls", "--json", "--dir"]).arg(namespace.path()).output()?;
        let counted = serde_json::from_slice::<Value>(&listing.stdout)?["operations"].as_u64().unwrap_or(0);
        if self.semaphores && counted == 0 {
            return Err("it used no semaphores".into());
        }
        ALIKE.fetch_add(1, Ordering::Relaxed);
        WITH_SEMAPHORES.fetch_add(usize::from(counted > 0), Ordering::Relaxed);
        Ok(())
    }

    /// Runs the script in a fresh directory at `place`; how it ended, and what it and all that it started said.
    fn run(&self, place: &Path, shell: Command) -> Result<(String, String), Failed> {
        if place.exists() {
            fs::remove_dir_all(place)?;
        }
        fs::create_dir(place)?;
        let said = tempfile::NamedTempFile::new()?;
        let append = || fs::OpenOptions::new().append(true).open(said.path());
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", DEADLINE_SECONDS]).arg(shell.get_program()).args(shell.get_args()).arg("-eu").arg(&self.script);
        command.current_dir(place).stdin(Stdio::null()).stdout(append()?).stderr(append()?);
        command.env_clear().envs([("PATH", PATH), ("LC_ALL", "C.UTF-8"), ("TZ", "UTC"), ("TERM", "xterm"), ("USER", "root")]);
        command.env(POSTGRES, env::var_os(POSTGRES).unwrap_or_default());
        command.env("HOME", place).env("TMPDIR", place).env("PYTHON", python().unwrap_or_default());
        let status = command.status()?;
        let ended = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit {code}"),
            (None, signal) => format!("signal {signal:?}"),
        };
        Ok((ended, String::from_utf8_lossy(&fs::read(said.path())?).into_owned()))
    }
}

fn is_there(program: &str) -> bool {
    match program {
        "python-tests" => python().is_some(),
        "postgres-sysv" => env::var_os(POSTGRES).is_some(),
        // A path, of which the end may have a version's number.
        _ if program.starts_with('/') => {
            let (dir, name) = program.rsplit_once('/').unwrap_or_default();
            let begins = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(name);
            fs::read_dir(dir).is_ok_and(|entries| entries.flatten().any(begins))
        }
        _ => PATH.split(':').any(|dir| Path::new(dir).join(program).exists()),
    }
}

/// A Python that has its own tests.
fn python() -> Option<String> {
    let own = "import sys, test.test_os; print(sys.executable)";
    ["/usr/bin/python3", "python3"].iter().find_map(|name| {
        let output = Command::new(name).args(["-c", own]).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    })
}
