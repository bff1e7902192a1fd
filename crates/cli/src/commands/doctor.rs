//! `manyway doctor`: is this machine fit, and is the namespace sound? It reads and changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use manyway_sem::check::{Finding, Severity};
use manyway_sem::{Engine, OpenOptions};
use rustix::fs::statvfs;
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use serde::Serialize;

use crate::args::Doctor;
use crate::dirs;
use crate::exit::{Failure, Result};
use crate::namespace::{Intent, Place};
use crate::output::{Field, Report, Sheet, emit};

/// How one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Good,
    /// Worth knowing; nothing is wrong.
    Note,
    /// Not as it should be.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Look {
    /// What was looked at.
    subject: String,
    state: State,
    /// What was seen.
    what: String,
    /// What to do about it; empty when nothing is to be done.
    advice: String,
}

/// All that was looked at.
#[derive(Serialize)]
struct Diagnosis {
    namespace: PathBuf,
    /// Nothing is bad.
    sound: bool,
    machine: Vec<Look>,
    arena: Vec<Look>,
}

impl Report for Diagnosis {
    fn draw(&self, sheet: &mut Sheet) {
        sheet.heading("Machine");
        draw(sheet, &self.machine);
        sheet.heading(&format!("Namespace {}", self.namespace.display()));
        draw(sheet, &self.arena);
    }
}

fn draw(sheet: &mut Sheet, looks: &[Look]) {
    let word = |state| match state {
        State::Good => "good",
        State::Note => "note",
        State::Bad => "BAD",
    };
    sheet.table(
        ["", "subject", "what was seen"],
        looks.iter().map(|look| {
            let advice = if look.advice.is_empty() { String::new() } else { format!(" — {}", look.advice) };
            [
                Field::alarm(word(look.state), look.state == State::Bad),
                Field::from(&look.subject),
                Field::from(format!("{}{advice}", look.what)),
            ]
        }),
    );
}

fn look(subject: &str, state: State, what: impl Into<String>, advice: &str) -> Look {
    let advice = if state == State::Good { "" } else { advice };
    Look { subject: subject.into(), state, what: what.into(), advice: advice.into() }
}

pub fn run(args: &Doctor) -> Result<()> {
    let place = Place::find(&args.namespace, Intent::Find, None);
    let dir = place.as_ref().map_or_else(|_| PathBuf::from("/dev/shm"), |p| p.dir.clone());
    let machine = machine(&dir);
    let arena = match place.and_then(|p| p.open(&OpenOptions::FIND)) {
        Ok(engine) => arena(&engine),
        Err(failure) => vec![look("arena", State::Bad, failure.what(), failure.advice())],
    };
    let bad = machine.iter().chain(&arena).filter(|l| l.state == State::Bad).count();
    emit(&Diagnosis { namespace: dir, sound: bad == 0, machine, arena }, args.json)?;
    match bad {
        0 => Ok(()),
        n => Err(Failure::new(format!("{n} {} not as it should be", if n == 1 { "thing is" } else { "things are" }))),
    }
}

/// Kernel and limits.
fn machine(dir: &Path) -> Vec<Look> {
    let mut looks = vec![kernel()];
    looks.push(match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => look("pidfd", State::Good, "a process can be watched", ""),
        Err(e) => look("pidfd", State::Bad, format!("a process cannot be watched: {e}"), "allow pidfd_open(2) in this sandbox"),
    });
    looks.push(match fs::metadata("/proc/self/ns/pid").and(fs::read("/proc/sys/kernel/random/boot_id")) {
        Ok(_) => look("/proc", State::Good, "it is mounted", ""),
        Err(e) => look(
            "/proc",
            State::Note,
            format!("it does not tell of this process: {e}"),
            "an arena of another boot is not told from this one's",
        ),
    });
    looks.push(file_system(dir));
    let space = getrlimit(Resource::As).current;
    looks.push(match space {
        Some(bytes) if bytes < 1 << 30 => {
            look("address space", State::Note, format!("limited to {} MiB", bytes >> 20), "a namespace takes 64 MiB of it, large ones more")
        }
        _ => look("address space", State::Good, "enough", ""),
    });
    if let Some((used, most)) = memory_limit() {
        let tight = most - used.min(most) < 16 << 20;
        let state = if tight { State::Note } else { State::Good };
        looks.push(look(
            "memory",
            state,
            format!("{} of {} MiB that the control group allows", used >> 20, most >> 20),
            "new sets may fail with ENOMEM",
        ));
    }
    looks
}

fn kernel() -> Look {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0u32));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let state = if version >= (5, 16) { State::Good } else { State::Bad };
    look("kernel", state, format!("Linux {release}"), "5.16 or later is needed")
}

/// Where the namespace is, or would be.
fn file_system(dir: &Path) -> Look {
    let there = dir.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let subject = there.display().to_string();
    if let Err(unfit) = dirs::check_memory(there) {
        return look(&subject, State::Note, unfit.to_string(), "semaphores are slower on a disk; /dev/shm is a good place");
    }
    match statvfs(there) {
        Ok(fs) => {
            let (free, all) = (fs.f_bavail * fs.f_frsize, fs.f_blocks * fs.f_frsize);
            let state = if free < 1 << 20 { State::Bad } else { State::Good };
            look(
                &subject,
                state,
                format!("in memory, {} of {} MiB free", free >> 20, all >> 20),
                "free space there, or new sets fail with ENOMEM",
            )
        }
        Err(e) => look(&subject, State::Bad, e.to_string(), "name another directory with --dir"),
    }
}

/// Memory used by and allowed to this control group.
fn memory_limit() -> Option<(u64, u64)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|l| l.strip_prefix("0::"))?;
    let number = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")).ok()?.trim().parse().ok();
    Some((number("memory.current")?, number("memory.max")?))
}

/// How many findings are shown.
const SHOWN: usize = 40;

fn arena(engine: &Engine) -> Vec<Look> {
    let mut found = engine.check();
    // What changes while it is looked at may look wrong for a moment: what is there is found again.
    for _ in 0..2 {
        if found.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
        let again = engine.check();
        found.retain(|f| again.contains(f));
    }
    let mut looks: Vec<Look> = found.iter().rev().take(SHOWN).map(told).collect();
    if found.len() > SHOWN {
        looks.push(look("more", State::Bad, format!("{} findings are not shown", found.len() - SHOWN), "mend these first"));
    }
    if looks.iter().all(|l| l.state != State::Bad) {
        let i = engine.info();
        looks.insert(0, look("structures", State::Good, format!("sound: {} sets of {} semaphores", i.sets, i.sems), ""));
    }
    looks
}

fn told(f: &Finding) -> Look {
    let subject = f.set.map_or_else(|| "namespace".into(), |id| format!("set {id}"));
    let (state, advice) = match (f.severity, f.set) {
        (Severity::Left, _) => (State::Note, "the next call that meets it clears it away".into()),
        (Severity::Damage, Some(id)) => (State::Bad, format!("`manyway rm {id}` removes the set, whatever its state")),
        (Severity::Damage, None) => (State::Bad, "end the programs that use the namespace and remove its directory".into()),
    };
    Look { subject, state, what: f.what.clone(), advice }
}
