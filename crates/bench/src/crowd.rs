//! Crowds: many processes or threads that meet on the semaphores of one back end.
//!
//! A worker starts a crowd by itself, so that hundreds of tasks begin at one moment, and lets it play a [`Script`]: what each task does,
//! written once for all back ends. The tasks of a crowd of processes are forks of the worker, as the processes of the
//! programs are that these workloads come from; they use the place that it has joined.

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use hdrhistogram::Histogram;
use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

mod scene;
mod stage;

pub use scene::Scene;
pub(crate) use stage::{Child, Stage};
use stage::{Head, Line, PAIRS, Used};

use crate::backend::{Backend, Sem, SetId};
use crate::{Error, machine};

/// The longest time that a histogram tells from longer ones: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// A histogram of nanoseconds of two digits.
pub fn histogram() -> Histogram<u64> {
    let bounds = Histogram::new_with_bounds(1, LONGEST_NS, 2);
    bounds.unwrap_or_else(|e| unreachable!("the bounds are constants: {e}"))
}

/// A crowd as it is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Crowd {
    /// What they do.
    pub scene: Scene,
    /// How many; a conductor, where the script has one, comes on top.
    pub tasks: usize,
    /// Threads of one process instead of processes.
    pub threads: bool,
    /// The CPUs that they are pinned to, in turn; none: wherever the system puts them.
    pub cpus: Vec<usize>,
    /// When it is over.
    pub limit: Limit,
}

/// When a crowd has done enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Limit {
    /// When so much time has passed.
    Time(Duration),
    /// When each task has gone so many times through its loop.
    Loops(u64),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// From the beginning to the end, nanoseconds.
    pub elapsed: u64,
    /// What all tasks counted.
    pub count: u64,
    /// The times that the script recorded: nanoseconds, and how often.
    pub times: Vec<(u64, u64)>,
    /// What all tasks used of the CPU, nanoseconds.
    pub cpu: u64,
    /// How often they slept, and how often they were taken off their CPU.
    pub switches: [u64; 2],
}

impl Outcome {
    /// Counts per second.
    pub fn rate(&self) -> f64 {
        self.count as f64 * 1e9 / self.elapsed.max(1) as f64
    }
    /// Microseconds for each count.
    pub fn us(&self) -> f64 {
        self.elapsed as f64 / 1e3 / self.count.max(1) as f64
    }
    /// Adds the times to a histogram.
    pub fn add_times(&self, histogram: &mut Histogram<u64>) {
        for &(ns, times) in &self.times {
            histogram.saturating_record_n(ns, times);
        }
    }
}

/// What a crowd does.
pub trait Script: Sync {
    /// The values of the sets that it needs.
    fn sets(&self, tasks: usize) -> Vec<Vec<u16>>;
    /// True when one more task, of index `tasks`, conducts the others.
    fn has_conductor(&self) -> bool {
        false
    }
    /// One task's part. [`Member::begin`] is where the time begins. When the time is over the sets are removed, which ends every sleep: an
    /// error then is none.
    fn play<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno>;
}

/// A task, as its script sees it.
pub struct Member<'a, B: Backend> {
    /// Its number.
    pub index: usize,
    /// How many there are.
    pub tasks: usize,
    /// What it has counted.
    pub count: u64,
    stage: &'a Stage,
    backend: &'a B,
    ids: &'a [SetId],
    loops: u64,
    times: Histogram<u64>,
    used: Used,
}

impl<'a, B: Backend> Member<'a, B> {
    /// One of the script's sets.
    pub fn set(&self, n: usize) -> Result<B::Set, Errno> {
        self.backend.open(self.ids[n]).map_err(told)
    }
    /// Ready: waits until all are.
    pub fn begin(&mut self) {
        self.stage.ready.raise();
        self.stage.gate.wait_until(None, |gate| gate == 1);
        self.used = Used::now();
    }
    /// The time begins only now: for a conductor.
    pub fn began(&self) {
        self.stage.began.store(machine::now_ns(), Relaxed);
    }
    /// True until the crowd has done enough.
    #[inline(always)]
    pub fn goes_on(&self) -> bool {
        self.count < self.loops && self.stage.stop.get() == 0
    }
    /// True when the time is over.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.stage.stop.get() != 0
    }
    /// How often each task is to go through its loop.
    pub fn loops(&self) -> u64 {
        self.loops
    }
    /// Notes how long something took.
    pub fn record(&mut self, ns: u64) {
        self.times.saturating_record(ns.max(1));
    }
    /// The time that `call` takes is noted.
    #[inline(always)]
    pub fn timed<T>(&mut self, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let start = machine::now_ns();
        let result = call()?;
        self.record(machine::now_ns() - start);
        Ok(result)
    }
    /// The words that all tasks share.
    pub fn shared(&self) -> &'a Head {
        self.stage
    }
    /// Task `n`'s own word.
    pub fn line(&self, n: usize) -> &'a Line {
        &self.stage.lines()[n]
    }

    /// Leaves what it has counted and recorded.
    fn leave(&self, played: Result<(), Errno>) {
        let line = self.line(self.index);
        let gone = |e| e == Errno::EIDRM || e == Errno::EINVAL;
        match played {
            Err(e) if !(self.is_over() && gone(e)) => line.error.store(e.0, Relaxed),
            _ => {}
        }
        let pairs = self.times.iter_recorded().take(PAIRS);
        let mut n = 0;
        for (value, room) in pairs.zip(line.histogram.chunks_exact(2)) {
            room[0].store(value.value_iterated_to(), Relaxed);
            room[1].store(value.count_at_value(), Relaxed);
            n += 1;
        }
        line.pairs.store(n, Relaxed);
        let (from, to) = (self.used, Used::now());
        line.cpu.store(to.cpu - from.cpu, Relaxed);
        line.switches.iter().enumerate().for_each(|(i, s)| s.store(to.switches[i] - from.switches[i], Relaxed));
        line.count.store(self.count, Relaxed);
    }
}

/// A first call, before the time begins: what a process or thread must have is made for it. The value stays as it is.
pub fn warm_up(sem: &impl Sem) -> Result<(), Errno> {
    match sem.try_take() {
        Ok(()) => sem.give(),
        Err(Errno::EAGAIN) => Ok(()),
        Err(e) => Err(e),
    }
}

/// An error of a back end in a task, which has no other way to tell more.
fn told(error: Error) -> Errno {
    match error {
        Error::Call { errno, .. } => errno,
        other => {
            eprintln!("manyway-bench: {other}");
            Errno::EIO
        }
    }
}

impl Crowd {
    /// Plays it.
    pub fn run<B: Backend>(&self, backend: &B) -> Result<Outcome, Error> {
        scene::with_scene!(&self.scene, script => self.play(backend, script))
    }

    fn play<B: Backend, S: Script>(&self, backend: &B, script: &S) -> Result<Outcome, Error> {
        let all = self.tasks + usize::from(script.has_conductor());
        let stage = Stage::new(all)?;
        let mut ids = Vec::new();
        for values in script.sets(self.tasks) {
            ids.push(backend.create(&values)?);
        }
        let task = |index| self.task(backend, script, &stage, &ids, index);
        let outcome = if self.threads {
            std::thread::scope(|scope| {
                let tasks: Vec<_> = (0..all).map(|index| scope.spawn(move || task(index))).collect();
                self.conduct(backend, &stage, &ids, || tasks.iter().filter(|t| t.is_finished()).count())
            })
        } else {
            let mut children = Vec::with_capacity(all);
            for index in 0..all {
                children.push(Child::start(|| task(index))?);
            }
            let outcome = self.conduct(backend, &stage, &ids, || children.iter().filter(|c| c.has_ended()).count());
            // Those of a crowd that failed are killed.
            if outcome.is_ok() {
                for child in children.drain(..) {
                    let _ = child.wait();
                }
            }
            outcome
        };
        outcome.and_then(|elapsed| Self::gather(backend, &stage, elapsed))
    }

    /// A task; its exit status.
    fn task<B: Backend, S: Script>(&self, backend: &B, script: &S, stage: &Stage, ids: &[SetId], index: usize) -> i32 {
        let loops = match self.limit {
            Limit::Time(_) => u64::MAX,
            Limit::Loops(loops) => loops,
        };
        let mut me = Member { index, tasks: self.tasks, count: 0, stage, backend, ids, loops, times: histogram(), used: Used::default() };
        let cpu = self.cpus.get(index % self.cpus.len().max(1));
        let played = match cpu.map_or(Ok(()), |&cpu| machine::pin(cpu)) {
            Ok(()) => script.play(&mut me),
            Err(error) => Err(told(error)),
        };
        me.line(index).ended.store(machine::now_ns(), Relaxed);
        me.leave(played);
        stage.ended.raise();
        i32::from(played.is_err())
    }

    /// Opens the gate and waits for the end: the time that it took. `gone` counts the tasks that exist no more.
    fn conduct<B: Backend>(&self, backend: &B, stage: &Stage, ids: &[SetId], gone: impl Fn() -> usize) -> Result<u64, Error> {
        let all = stage.lines().len() as u32;
        // Until all tasks are so far, or some has failed; or until it is time.
        let wait = |word: &stage::Word, until: Option<u64>| loop {
            let slice = machine::now_ns() + 500_000_000;
            let slice = until.map_or(slice, |until| until.min(slice));
            if word.wait_until(Some(slice), |n| n >= all) || Self::has_failed(stage) || until.is_some_and(|u| machine::now_ns() >= u) {
                return Ok(());
            }
            // Who ends in order says so before.
            if gone() > stage.ended.get() as usize {
                return Err(backend.failed("a task died", Errno(libc::ECHILD)));
            }
        };
        let ready = wait(&stage.ready, None);
        stage.began.store(machine::now_ns(), Relaxed);
        stage.gate.set(1);
        let done = ready.and_then(|()| match self.limit {
            Limit::Time(time) => wait(&stage.ended, Some(machine::now_ns() + time.as_nanos() as u64)),
            Limit::Loops(_) => wait(&stage.ended, None),
        });
        let stopped = machine::now_ns();
        stage.stop.set(1);
        // Whoever sleeps in them returns.
        for &id in ids {
            backend.remove(id)?;
        }
        done.and_then(|()| wait(&stage.ended, None))?;
        let end = match self.limit {
            Limit::Time(_) => stopped,
            Limit::Loops(_) => stage.lines().iter().map(|l| l.ended.load(Relaxed)).max().unwrap_or(stopped),
        };
        Ok(end.saturating_sub(stage.began.load(Relaxed)))
    }

    fn has_failed(stage: &Stage) -> bool {
        stage.lines().iter().any(|l| l.error.load(Relaxed) != 0)
    }

    fn gather<B: Backend>(backend: &B, stage: &Stage, elapsed: u64) -> Result<Outcome, Error> {
        let mut times = histogram();
        let (mut count, mut cpu, mut switches) = (0, 0, [0; 2]);
        for line in stage.lines() {
            if let error @ 1.. = line.error.load(Relaxed) {
                return Err(backend.failed("a task's call", Errno(error)));
            }
            count += line.count.load(Relaxed);
            cpu += line.cpu.load(Relaxed);
            switches.iter_mut().zip(&line.switches).for_each(|(sum, s)| *sum += s.load(Relaxed));
            let pairs = line.histogram.chunks_exact(2).take(line.pairs.load(Relaxed) as usize);
            pairs.for_each(|p| times.saturating_record_n(p[0].load(Relaxed), p[1].load(Relaxed)));
        }
        let times = times.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
        Ok(Outcome { elapsed, count, times, cpu, switches })
    }
}
