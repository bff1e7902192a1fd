//! A program of its own that becomes a caller, before or after it was started, tries everything, and prints how it went.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manyway_sem::abi::*;
use serde::{Deserialize, Serialize};

use crate::callers::{self, Below, CREATOR, CREATORS, Caller, GROUP, OWNER};
use crate::sys::{self, Via, outcome, semctl, semget, semop};

const SWITCH: &str = "--probe";

/// When the program becomes the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// It is started as the caller.
    Before,
    /// It is started by root, opens its namespace, and then becomes the caller.
    After(Via),
}

/// What is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Make the sets, as their creator, and give them to their owner.
    Make,
    /// All calls on all sets; on the last ones the removal.
    Try(Sets),
    /// Open the file for writing, then make a set.
    Enter(PathBuf),
    /// Two threads, one of which becomes the caller.
    Threads(Caller, Sets),
}

/// Sets by their ids.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sets {
    /// One for each of [`modes`], with key [`KEY`] plus its place.
    pub tried: Vec<i32>,
    /// To be removed.
    pub victims: Vec<i32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Spec {
    caller: Option<Caller>,
    after: Option<Via>,
    task: Task,
}

pub const KEY: i32 = 0x00ac_0000;
/// Sets that are there to be removed: one for each caller and time.
pub const VICTIMS: usize = 100;

/// Every combination of reading and altering for owner, group and others, and some with the bit that has no meaning.
pub fn modes() -> Vec<u32> {
    let bits = [0, 2, 4, 6];
    let mut modes: Vec<u32> = bits.iter().flat_map(|u| bits.iter().flat_map(move |g| bits.map(|o| u << 6 | g << 3 | o))).collect();
    modes.extend([0o111, 0o100, 0o010, 0o001, 0o777, 0o715]);
    modes
}

/// Manyway's side: the library and the namespace.
pub struct Preload<'a> {
    pub library: &'a Path,
    pub dir: &'a Path,
    /// MANYWAY_OWNER.
    pub owner: Option<u32>,
}

/// Starts the program and returns what it printed.
pub fn run(on: Option<&Preload>, caller: Option<&Caller>, when: When, task: &Task) -> Vec<String> {
    let after = match when {
        When::Before => None,
        When::After(via) => Some(via),
    };
    // What it is before and what it becomes afterwards.
    let (before, then) = match (caller.cloned(), when) {
        (caller, When::Before) => (caller, None),
        // A number is known from before it is lost.
        (Some(caller), _) if caller.below == Some(Below::Nobody) => (Some(Caller { below: None, ..caller.clone() }), Some(caller)),
        (caller, _) => (None, caller),
    };
    let spec = Spec { caller: then, after, task: task.clone() };
    let mut command = Command::new("/proc/self/exe");
    command.arg(SWITCH).arg(serde_json::to_string(&spec).expect("plain data"));
    command.env_remove("LD_PRELOAD").env_remove("MANYWAY_DIR").env_remove("MANYWAY_OWNER").stdin(Stdio::null());
    if let Some(on) = on {
        command.env("LD_PRELOAD", on.library).env("MANYWAY_DIR", on.dir);
        if let Some(owner) = on.owner {
            command.env("MANYWAY_OWNER", owner.to_string());
        }
    }
    if let Some(before) = before {
        let become_it = move || before.become_it(Via::C, true);
        // SAFETY: system calls and small files only; this program has one thread, so that allocation works in the child.
        unsafe { command.pre_exec(become_it) };
    }
    let name = caller.map_or("maker", |c| &c.name);
    let output = command.output().unwrap_or_else(|e| panic!("{name}: cannot be started: {e}"));
    assert!(output.status.success(), "{name}, {when:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

/// To be called first in `main`.
pub fn become_probe_if_asked() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == SWITCH) {
        let spec: Spec = serde_json::from_str(&args[1]).expect("a task");
        let lines = carry_out(&spec).unwrap_or_else(|e| {
            eprintln!("probe: {e}");
            std::process::exit(1)
        });
        println!("{}", lines.join("\n"));
        std::process::exit(0)
    }
}

fn carry_out(spec: &Spec) -> io::Result<Vec<String>> {
    if let Task::Make = spec.task {
        // Opened as root; what is made afterwards is the creator's.
        Caller::new("creator", CREATOR, CREATORS).become_it(Via::C, false)?;
        return make();
    }
    if let (Some(caller), Some(via)) = (&spec.caller, spec.after) {
        // Something is known of root by then, and must be forgotten.
        semop(first(&spec.task), &[(0, 1, 0), (0, -1, 0)], false);
        match caller.below {
            Some(below @ Below::Nobody) => callers::enter_below(below, caller.uids[1], caller.gids[1])?,
            _ => caller.become_it(via, false)?,
        }
    }
    Ok(match &spec.task {
        Task::Make => unreachable!("above"),
        Task::Try(sets) => try_all(sets),
        Task::Enter(file) => {
            let opened = fs::OpenOptions::new().read(true).write(true).open(file);
            let opened = opened.map_or_else(|e| format!("errno {}", e.raw_os_error().unwrap_or(0)), |_| "open".into());
            vec![opened, outcome(semget(IPC_PRIVATE, 1, 0o600), |_| "made".into())]
        }
        Task::Threads(other, sets) => threads(other, sets)?,
    })
}

fn first(task: &Task) -> i32 {
    match task {
        Task::Try(sets) | Task::Threads(_, sets) => sets.tried[0],
        _ => 0,
    }
}

fn make() -> io::Result<Vec<String>> {
    let failed = |what: &str| io::Error::other(format!("{what}: {}", io::Error::last_os_error()));
    let mut ids = Vec::new();
    let modes = modes();
    let victims = std::iter::repeat_n(0o600, VICTIMS);
    for (n, mode) in modes.iter().copied().chain(victims).enumerate() {
        let key = if n < modes.len() { KEY + n as i32 } else { IPC_PRIVATE };
        let id = semget(key, 2, IPC_CREAT | 0o600);
        if id == -1 || semctl(id, 0, SETVAL, 1) == -1 || sys::semctl_set(id, OWNER, GROUP, mode) == -1 {
            return Err(failed("a set"));
        }
        ids.push(id.to_string());
    }
    Ok(ids)
}

fn try_all(sets: &Sets) -> Vec<String> {
    let modes = modes();
    let mut lines: Vec<String> = sets
        .tried
        .iter()
        .enumerate()
        .map(|(n, &id)| format!("{:03o}: {}", modes[n], try_set(id, KEY + n as i32, modes[n]).join("; ")))
        .collect();
    lines.push(format!("removal: {}", outcome(semctl(sets.victims[0], 0, IPC_RMID, 0), |_| "done".into())));
    lines
}

/// Every call, in forms that leave the set as it is: its values are 1 and 0.
fn try_set(id: i32, key: i32, mode: u32) -> Vec<String> {
    let done = |r| outcome(r, |_| "done".into());
    let number = |r| outcome(r, |n| n.to_string());
    let mut all = Vec::new();
    let mut note = |what: &str, result: String| all.push(format!("{what} {result}"));
    for flags in [0, 0o400, 0o200, 0o100, 0o040, 0o020, 0o004, 0o002, 0o001, 0o600, 0o060, 0o006, 0o666, 0o777, 0o111] {
        note(&format!("semget {flags:o}"), done(semget(key, 0, flags)));
    }
    note("semget create", done(semget(key, 2, IPC_CREAT | 0o600)));
    note("semget new", done(semget(key, 2, IPC_CREAT | IPC_EXCL | 0o600)));
    note("semget more", done(semget(key, 3, 0o600)));

    type Ops = &'static [(u16, i16, i32)];
    const CALLS: [(&str, Ops, Ops); 11] = [
        ("take", &[(0, -1, 0)], &[(0, 1, 0)]),
        ("take undo", &[(0, -1, SEM_UNDO)], &[(0, 1, SEM_UNDO)]),
        ("give", &[(1, 1, 0)], &[(1, -1, 0)]),
        ("too much", &[(0, -2, IPC_NOWAIT)], &[]),
        ("zero", &[(1, 0, 0)], &[]),
        ("zero undo", &[(1, 0, SEM_UNDO)], &[]),
        ("not zero", &[(0, 0, IPC_NOWAIT)], &[]),
        ("zeros", &[(1, 0, 0), (1, 0, 0)], &[]),
        ("two", &[(0, -1, 0), (1, 1, 0)], &[(1, -1, 0), (0, 1, 0)]),
        ("two undo", &[(0, -1, SEM_UNDO), (1, 1, SEM_UNDO)], &[(1, -1, SEM_UNDO), (0, 1, SEM_UNDO)]),
        ("zero and give", &[(1, 0, 0), (1, 1, 0), (1, -1, 0)], &[]),
    ];
    for timed in [false, true] {
        for (name, forth, back) in CALLS {
            let result = semop(id, forth, timed);
            note(name, done(result));
            if result == 0 && !back.is_empty() {
                note("back", done(semop(id, back, timed)));
            }
        }
    }
    note("no such semaphore", done(semop(id, &[(9, 1, 0)], false)));

    note("GETVAL", number(semctl(id, 0, GETVAL, 0)));
    note("GETVAL 9", number(semctl(id, 9, GETVAL, 0)));
    note("GETPID", done(semctl(id, 0, GETPID, 0)));
    note("GETNCNT", number(semctl(id, 0, GETNCNT, 0)));
    note("GETZCNT", number(semctl(id, 0, GETZCNT, 0)));
    let mut values = [7, 7];
    note("GETALL", done(sys::semctl_array(id, GETALL, &mut values)));
    note("values", format!("{values:?}"));
    note("SETVAL", done(semctl(id, 0, SETVAL, 1)));
    note("SETVAL 9", done(semctl(id, 9, SETVAL, 1)));
    note("SETALL", done(sys::semctl_array(id, SETALL, &mut [1, 0])));
    for (name, cmd, of) in [("IPC_STAT", IPC_STAT, id), ("SEM_STAT", SEM_STAT, id & 0x7fff), ("SEM_STAT_ANY", SEM_STAT_ANY, id & 0x7fff)] {
        let (result, says) = sys::semctl_stat(of, cmd);
        note(name, outcome(result, |_| format!("{says:?}")));
    }
    note("IPC_SET", done(sys::semctl_set(id, OWNER, GROUP, mode)));
    note("IPC_SET to no user", done(sys::semctl_set(id, u32::MAX, GROUP, mode)));
    all
}

/// The first thread stays what it is; the second becomes `other`, by system calls of its own. They take turns.
fn threads(other: &Caller, sets: &Sets) -> io::Result<Vec<String>> {
    let (to_second, turns) = std::sync::mpsc::channel::<i32>();
    let (answers, results) = std::sync::mpsc::channel();
    let other = other.clone();
    let second = std::thread::spawn(move || {
        answers.send(other.become_it(Via::Number, false).map(|()| String::new())).expect("the first thread waits");
        for id in turns {
            answers.send(Ok(short(id))).expect("the first thread waits");
        }
    });
    let mut lines = Vec::new();
    let before: Vec<String> = sets.tried.iter().map(|&id| short(id)).collect();
    results.recv().map_err(io::Error::other)??;
    for (&id, before) in sets.tried.iter().zip(before) {
        let first = short(id);
        to_second.send(id).map_err(io::Error::other)?;
        let second = results.recv().map_err(io::Error::other)??;
        // Once more, lest the second one's verdict is taken for the first one's, and the other way round.
        let again = short(id);
        to_second.send(id).map_err(io::Error::other)?;
        let second_again = results.recv().map_err(io::Error::other)??;
        lines.push(format!("{before}|{first}|{second}|{again}|{second_again}"));
    }
    drop(to_second);
    second.join().map_err(|_| io::Error::other("the second thread panicked"))?;
    Ok(lines)
}

/// A few calls of each kind.
fn short(id: i32) -> String {
    let done = |r| outcome(r, |_| "done".into());
    let undo = semop(id, &[(0, -1, SEM_UNDO)], false);
    let mut all = vec![done(undo)];
    if undo == 0 {
        all.push(done(semop(id, &[(0, 1, SEM_UNDO)], false)));
    }
    all.push(done(semop(id, &[(1, 0, 0)], false)));
    all.push(done(semctl(id, 0, GETVAL, 0)));
    all.push(done(semctl(id, 0, SETVAL, 1)));
    all.push(done(sys::semctl_set(id, u32::MAX, GROUP, 0o600)));
    all.join(" ")
}
