//! What a hot walk writes, and which locks it takes: from a look at every instruction, and not from counters in the code.

#[cfg(target_arch = "x86_64")]
mod steps;

use std::collections::HashMap;

use super::backend::Kind;
use super::run::{Walker, prepared};
use super::worker::{Act, Answer, Command};
use super::{Args, Case};
use crate::report::Unit;
use crate::rounds::Series;
use crate::{Env, Error, Report, machine};

/// A word that an instruction has written, or might have: a conditional write counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its address, a multiple of 8.
    pub word: u64,
    /// What was there before and behind the instruction, when it locked the bus; else it is not looked at.
    pub locked: Option<(u64, u64)>,
}

/// What a worker did between two stops.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Instructions.
    pub instructions: u64,
    /// Words that were written outside the thread's own stack and thread-local storage.
    pub writes: Vec<Write>,
}

/// What a hot walk does, on the mean of many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Locks taken: a locked instruction that finds a word as it was at the begin, free, and changes it.
    pub locks: f64,
    /// Locked instructions, the guard's left out.
    pub locked: f64,
    /// Words written outside the thread's own stack and thread-local storage, the guard's left out.
    pub writes: f64,
    /// Words that the guard writes each time: the thread's own in the collector.
    pub guard_writes: f64,
    /// Words that the guard writes now and then: the collector's.
    pub collector_writes: f64,
    /// Instructions, the loop's among them.
    pub instructions: f64,
}

/// Looks at so many hot walks of a back end.
pub fn profile(env: &Env, kind: Kind, case: Case, walks: u64) -> Result<Profile, Error> {
    // Both on one CPU: they take turns, and to wake another CPU for each instruction would take a hundred times as long.
    let cpu = machine::allowed_cpus()?.last().copied().unwrap_or(0);
    let mut worker = prepared(env, kind, case, &[cpu])?;
    let both = |worker: &mut Walker| {
        let guard = steps(worker, case, Act::Guard, walks)?;
        let walk = steps(worker, case, Act::Walk, walks)?;
        Ok(Profile::of(&walk, &guard, walks))
    };
    machine::while_pinned(cpu, || ahead_of_others(worker.pid(), || both(&mut worker)))
}

/// Runs `work` with this thread and the worker ahead of others, where that is allowed: for each instruction one waits for the other, and on a busy
/// machine both would wait for everybody else too.
fn ahead_of_others<T>(worker: u32, work: impl FnOnce() -> T) -> T {
    const FIRST: i32 = -20;
    let own = Some(rustix::thread::gettid());
    let before = rustix::process::getpriority_process(own).unwrap_or(0);
    // What is not allowed takes longer.
    let _ = rustix::process::setpriority_process(own, FIRST);
    let _ = rustix::process::Pid::from_raw(worker as i32).map(|pid| rustix::process::setpriority_process(Some(pid), FIRST));
    let done = work();
    let _ = rustix::process::setpriority_process(own, before);
    done
}

/// The report of `bench walk --trace`.
pub fn run(args: &Args, env: &Env, walks: u64) -> Result<Report, Error> {
    let mut series = Vec::new();
    for &kind in args.backend.iter().filter(|kind| kind.in_process()) {
        let p = profile(env, kind, Case::Hot, walks)?;
        let rows = [
            ("locks", p.locks),
            ("locked-instructions", p.locked),
            ("shared-writes", p.writes),
            ("guard-writes", p.guard_writes),
            ("collector-writes", p.collector_writes),
            ("instructions", p.instructions),
        ];
        series.extend(rows.map(|(case, count)| Series { samples: vec![count], ..Series::new(case, kind, Unit::Count) }));
    }
    if series.is_empty() {
        return Err(Error::NothingToDo);
    }
    Ok(Report::new("walk", args, &series))
}

impl Profile {
    fn of(walk: &Steps, guard: &Steps, walks: u64) -> Profile {
        // How often the guard alone writes a word: each time its own, now and then the collector's.
        let mut guards: HashMap<u64, u64> = HashMap::new();
        guard.writes.iter().for_each(|write| *guards.entry(write.word).or_default() += 1);
        let is_own = |write: &&Write| guards.get(&write.word).is_some_and(|&times| times >= walks);
        let is_guard = |write: &&Write| guards.contains_key(&write.word);
        let mut free: HashMap<u64, u64> = HashMap::new();
        let (mut locks, mut locked, mut writes) = (0, 0, 0);
        for write in walk.writes.iter().filter(|write| !is_guard(write)) {
            writes += 1;
            if let Some((before, behind)) = write.locked {
                locked += 1;
                let at_first = *free.entry(write.word).or_insert(before);
                locks += u64::from(before == at_first && behind != before);
            }
        }
        let each = |count: u64| count as f64 / walks as f64;
        let count = |of: &dyn Fn(&&Write) -> bool| each(walk.writes.iter().filter(|write| of(write)).count() as u64);
        Profile {
            locks: each(locks),
            locked: each(locked),
            writes: each(writes),
            guard_writes: count(&is_own),
            collector_writes: count(&|write| is_guard(write) && !is_own(write)),
            instructions: each(walk.instructions),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn steps(worker: &mut Walker, case: Case, act: Act, times: u64) -> Result<Steps, Error> {
    let tracee = steps::Tracee::attach(worker.pid())?;
    worker.send(&Command::Between(case, act, times))?;
    let steps = tracee.between_stops()?;
    match worker.receive()? {
        Answer::Done => Ok(steps),
        other => Err(worker.surprised(&other)),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn steps(_: &mut Walker, _: Case, _: Act, _: u64) -> Result<Steps, Error> {
    Err(Error::io("a trace of instructions, on another processor than an x86-64")(std::io::ErrorKind::Unsupported.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(writes: &[(u64, Option<(u64, u64)>)]) -> Steps {
        Steps { instructions: 100, writes: writes.iter().map(|&(word, locked)| Write { word, locked }).collect() }
    }

    #[test]
    fn a_lock_counts_once_and_its_release_as_a_write() {
        // Two walks: a mutex, given back by an exchange, and a counter.
        let lock = [(8, Some((0, 1))), (16, None), (8, Some((1, 0)))];
        let walk = steps(&[&lock[..], &[(64, Some((5, 6)))], &lock[..], &[(64, Some((6, 7)))]].concat());
        let p = Profile::of(&walk, &Steps::default(), 2);
        // The counter has been a free lock in one of its states, at the first time.
        assert_eq!((p.locks, p.locked, p.writes), (1.5, 3.0, 4.0));
        assert_eq!(p.instructions, 50.0);
    }

    #[test]
    fn what_the_guard_writes_is_listed_apart() {
        let guard = steps(&[(8, Some((0, 1))), (8, None), (8, Some((0, 1))), (8, None), (128, None)]);
        let walk = steps(&[(8, Some((0, 1))), (8, None), (72, None), (8, Some((0, 1))), (8, None), (128, None)]);
        let p = Profile::of(&walk, &guard, 2);
        assert_eq!((p.locks, p.locked, p.writes, p.guard_writes, p.collector_writes), (0.0, 0.0, 0.5, 2.0, 0.5));
    }

    #[test]
    fn a_lock_that_is_a_bit_of_a_pointer_is_seen() {
        let p = Profile::of(&steps(&[(8, Some((0x7000, 0x7001))), (8, None)]), &Steps::default(), 1);
        assert_eq!((p.locks, p.locked, p.writes), (1.0, 1.0, 2.0));
    }
}
