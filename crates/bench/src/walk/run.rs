//! The coordinator's side.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use super::backend::Kind;
use super::worker::{Answer, Command, Start, Took};
use super::{Args, Case, trace};
use crate::process::Process;
use crate::report::{Ratio, Unit};
use crate::rounds::{Series, interleave};
use crate::{Env, Error, Report, lab};

/// A worker that has one back end. It removes its directory when it is dropped, or its coordinator is killed.
pub type Walker = Process<Command, Answer>;

/// Rounds that are thrown away.
const WARM_UP: usize = 2;

impl Walker {
    /// Starts one. Its threads run on these CPUs, or on any when there are none.
    pub fn start(env: &Env, kind: Kind, cpus: &[usize]) -> Result<Walker, Error> {
        let Some((program, args)) = env.worker.split_first() else {
            return Err(Error::io("cannot start a worker")(std::io::ErrorKind::NotFound.into()));
        };
        let dir = lab::new_dir()?;
        let start = Start { kind, dir: dir.path().to_owned(), cpus: cpus.to_vec() };
        let json = serde_json::to_string(&start).map_err(|e| Error::io("a worker's argument")(e.into()))?;
        let mut command = std::process::Command::new(program);
        // An own process group: an interrupt from the terminal ends the coordinator, and the workers at the end of their input.
        command.args(args).arg("walker").arg(json).process_group(0).env_remove("LD_PRELOAD");
        let walker = Process::spawn(command, kind.name(), true)?;
        // From here on the worker removes it.
        let _ = dir.keep();
        Ok(walker)
    }
}

/// One row of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    case: Case,
    threads: usize,
    kind: Kind,
}

impl Row {
    fn name(&self) -> String {
        if self.threads == 1 { self.case.name().to_owned() } else { format!("{}-{}", self.case.name(), self.threads) }
    }

    fn unit(&self) -> Unit {
        if self.case.is_walked() { Unit::Ns } else { Unit::Us }
    }

    /// One thread alone does not wait, so its own time is taken, and what other programs took is left out. Several threads, and one that is
    /// disturbed, may wait for each other: that is to be seen.
    fn of(&self, took: Took) -> f64 {
        let ns = if self.threads == 1 && self.case != Case::Rename { took.cpu } else { took.wall };
        if self.unit() == Unit::Us { ns / 1000.0 } else { ns }
    }
}

/// Runs it.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    if let Some(walks) = args.trace {
        return trace::run(args, env, walks.into());
    }
    let cpus = args.pin.in_order()?;
    let mut notes = Vec::new();
    let mut workers = HashMap::new();
    let mut rows = Vec::new();
    for &case in args.case.iter().filter(|&&case| case != Case::Bytes) {
        let mut able = Vec::new();
        for &kind in args.backend.iter().filter(|kind| kind.can(case)) {
            if let Entry::Vacant(entry) = workers.entry(kind) {
                entry.insert(Walker::start(env, kind, &cpus)?);
            }
            match ask(&mut workers, kind, &Command::Prepare(case))? {
                Answer::LeftOut(reason) => notes.push(format!("{} on {kind} is left out: {reason}", case.name())),
                _ => able.push(kind),
            }
        }
        let threads: &[usize] = if case.is_walked() { &args.threads } else { &[1] };
        rows.extend(threads.iter().flat_map(|&threads| able.iter().map(move |&kind| Row { case, threads, kind })));
    }
    let time = Duration::from_secs_f64(args.secs / args.rounds as f64);
    let mut series: Vec<Series> = rows.iter().map(|row| Series::new(row.name(), row.kind, row.unit())).collect();
    let mut walls = series.clone();
    interleave(&mut series, WARM_UP, args.rounds, |index, _| {
        let row = rows[index];
        match ask(&mut workers, row.kind, &Command::Sample(row.case, row.threads, time))? {
            Answer::Took(took) => {
                walls[index].samples.push(took.wall);
                Ok(row.of(took))
            }
            other => Err(workers[&row.kind].surprised(&other)),
        }
    })?;
    walls.iter_mut().for_each(|wall| _ = wall.samples.drain(..WARM_UP));
    drop(workers);
    if args.case.contains(&Case::Bytes) {
        series.extend(bytes(args, env, &mut notes)?);
    }
    if series.is_empty() {
        return Err(Error::NothingToDo);
    }
    let mut report = Report::over(Kind::KernelTmpfs.name(), "walk", args, &series);
    report.ratios.extend(ratios(&rows, &series, &walls));
    report.notes = notes;
    Ok(report)
}

fn ask(workers: &mut HashMap<Kind, Walker>, kind: Kind, command: &Command) -> Result<Answer, Error> {
    let worker = workers.get_mut(&kind).ok_or(Error::NothingToDo)?;
    worker.ask(command)
}

/// What else is compared: the cache with its floor and with ext4, many threads with one, names that are not there with names that are, and many
/// descendants with few.
fn ratios(rows: &[Row], series: &[Series], walls: &[Series]) -> Vec<Ratio> {
    let find = |wanted: Row| rows.iter().position(|&row| row == wanted);
    let mut ratios = Vec::new();
    for (index, &row) in rows.iter().enumerate() {
        let over = |of: &[Series], other: Row, name: &str| find(other).and_then(|at| Ratio::of(&of[index], &of[at], name));
        if row.kind == Kind::Dcache {
            let others = [Kind::KernelExt4, Kind::Floor];
            ratios.extend(others.into_iter().filter_map(|kind| over(series, Row { kind, ..row }, kind.name())));
        }
        if row.threads != 1 {
            let one = Row { threads: 1, ..row };
            ratios.extend(over(walls, one, &one.name()));
        }
        let other = match row.case {
            Case::Negative => Row { case: Case::Hot, ..row },
            Case::RenameDir => Row { case: Case::RenameDir100, ..row },
            _ => continue,
        };
        ratios.extend(over(series, other, &other.name()));
    }
    ratios
}

/// Each sample is a process of its own, which has allocated nothing else. It does not depend on the moment.
fn bytes(args: &Args, env: &Env, notes: &mut Vec<String>) -> Result<Vec<Series>, Error> {
    let mut all = Vec::new();
    for &kind in args.backend.iter().filter(|kind| kind.can(Case::Bytes)) {
        let mut series = Series::new(Case::Bytes.name(), kind, Unit::Bytes);
        for _ in 0..args.rounds.min(3) {
            let mut worker = Walker::start(env, kind, &[])?;
            match worker.ask(&Command::Bytes(args.entries as usize))? {
                Answer::Bytes(bytes) => series.samples.push(bytes),
                Answer::LeftOut(reason) => {
                    notes.push(format!("{} on {kind} is left out: {reason}", series.case));
                    break;
                }
                other => return Err(worker.surprised(&other)),
            }
        }
        if !series.samples.is_empty() {
            all.push(series);
        }
    }
    Ok(all)
}

/// A worker on these CPUs with the tree of a case.
pub(super) fn prepared(env: &Env, kind: Kind, case: Case, cpus: &[usize]) -> Result<Walker, Error> {
    let mut worker = Walker::start(env, kind, cpus)?;
    match worker.ask(&Command::Prepare(case))? {
        Answer::Done => Ok(worker),
        other => Err(worker.surprised(&other)),
    }
}
