//! The process that walks: one back end, a tree for each case that it has been asked to prepare.

use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use manyway_sync::atomic::{AtomicU32, Ordering};
use serde::{Deserialize, Serialize};

use super::backend::kernel::own_mounts;
use super::backend::{Bounded, Kind, Names, Unable, maps, with_names};
use super::tree::{Move, Tree};
use super::{Case, heap};
use crate::{Error, machine, process};

/// How a worker is started; its one argument, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Whose names.
    pub kind: Kind,
    /// A directory for what lies in files, which the worker removes at its end.
    pub dir: PathBuf,
    /// The CPU of each thread, in their order and from the begin again. Empty: wherever the system puts them.
    pub cpus: Vec<usize>,
}

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Make the tree of a case, and look at it.
    Prepare(Case),
    /// Walk, in so many threads, for about so long.
    Sample(Case, usize, Duration),
    /// Stop; when continued, do this so many times and stop again. For who looks at each instruction.
    Between(Case, Act, u64),
    /// Tell the bytes that an entry takes when so many are cached.
    Bytes(usize),
}

/// What a worker does between two stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Walk.
    Walk,
    /// Take the guard of a walk and give it back.
    Guard,
}

/// What a worker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It has done what it should.
    Done,
    /// This row is to be left out: why.
    LeftOut(String),
    /// What a walk took, or a rename.
    Took(Took),
    /// So many bytes.
    Bytes(f64),
}

/// Nanoseconds for one walk of all threads together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Took {
    /// By the clock on the wall.
    pub wall: f64,
    /// Of the threads' own time on the CPU: without what other programs took, and without waiting.
    pub cpu: f64,
}

/// Runs this process as a worker and ends it.
pub fn main(start: &str) -> ! {
    let start = serde_json::from_str::<Start>(start).map_err(|e| Error::io("a worker's argument")(e.into()));
    process::end(start.and_then(|start| {
        if start.kind == Kind::KernelExt4 {
            own_mounts();
        }
        // Of the trees, the mounts go before the directory that they lie in.
        let served = with_names!(start.kind, B => {
            let mut worker = Worker::<B> { start: &start, stages: HashMap::new(), fresh: 0 };
            process::serve(|command| worker.obey(command))
        });
        let removed = std::fs::remove_dir_all(&start.dir).map_err(Error::io(format!("cannot remove {}", start.dir.display())));
        served.and(removed)
    }))
}

struct Worker<'a, B> {
    start: &'a Start,
    stages: HashMap<Case, Stage<B>>,
    /// How often names that nobody has looked for yet have been made.
    fresh: u64,
}

/// A case's tree in the back end.
struct Stage<B> {
    names: B,
    tree: Tree,
    /// Where the next walk begins in the list of paths.
    at: usize,
}

impl<B: Names> Worker<'_, B> {
    fn obey(&mut self, command: Command) -> Result<Answer, Error> {
        let done = match command {
            Command::Prepare(case) => self.prepare(case).map(|()| Answer::Done),
            Command::Sample(case, threads, time) => self.sample(case, threads, time).map(Answer::Took),
            Command::Between(case, act, times) => self.between(case, act, times).map(|()| Answer::Done),
            Command::Bytes(entries) => bytes(self.start.kind, entries).map(Answer::Bytes),
        };
        match done {
            Ok(answer) => Ok(answer),
            Err(Unable::LeftOut(reason)) => Ok(Answer::LeftOut(reason)),
            Err(Unable::Failed(error)) => Err(error),
        }
    }

    fn prepare(&mut self, case: Case) -> Result<(), Unable> {
        let tree = tree(case, self.fresh)?;
        let dir = self.start.dir.join(case.name());
        std::fs::create_dir(&dir).map_err(Error::io(format!("cannot make {}", dir.display())))?;
        let mut names = B::build(&dir, &tree)?;
        // Every back end says the same of every path; afterwards all is cached.
        let found = tree.paths.iter().filter(|path| names.walk(path).is_some()).count();
        if found != tree.present() {
            let what = format!("{}: found {found} of {} files in the tree of {}", self.start.kind, tree.present(), case.name());
            return Err(Error::io(what)(std::io::ErrorKind::InvalidData.into()).into());
        }
        if case == Case::Cold {
            // Told now and not in the middle of the rounds when that is not possible.
            names.forget()?;
        }
        self.stages.insert(case, Stage { names, tree, at: 0 });
        Ok(())
    }

    fn stage(&mut self, case: Case) -> Result<&mut Stage<B>, Error> {
        let missing = || Error::io(format!("case {} was not prepared", case.name()))(std::io::ErrorKind::NotFound.into());
        self.stages.get_mut(&case).ok_or_else(missing)
    }

    fn sample(&mut self, case: Case, threads: usize, time: Duration) -> Result<Took, Unable> {
        let cpus = &self.start.cpus;
        self.fresh += 1;
        let fresh = self.fresh;
        let stage = self.stage(case)?;
        match case {
            Case::Cold => stage.names.forget()?,
            Case::Missing => stage.tree.paths = tree(case, fresh)?.paths,
            Case::RenameDir | Case::RenameDir100 => return Ok(stage.renames()?),
            _ => {}
        }
        Ok(stage.walks(case, threads, time, cpus)?)
    }

    /// A process that is stopped is looked at from outside; nothing else lies between the two stops.
    fn between(&mut self, case: Case, act: Act, times: u64) -> Result<(), Unable> {
        pin(&self.start.cpus, 0)?;
        let Stage { names, tree, .. } = self.stage(case)?;
        let paths: Vec<&CString> = tree.paths.iter().cycle().take(times as usize).collect();
        let walk = |path: &&CString| _ = std::hint::black_box(names.walk(path));
        // Whatever is done at the first times only has been done.
        paths.iter().for_each(walk);
        stop()?;
        match act {
            Act::Walk => paths.iter().for_each(walk),
            Act::Guard => (0..times).for_each(|_| names.guard()),
        }
        stop()?;
        Ok(())
    }
}

fn tree(case: Case, fresh: u64) -> Result<Tree, Error> {
    Tree::of(case, fresh).ok_or_else(|| Error::io(format!("case {} has no tree", case.name()))(std::io::ErrorKind::InvalidInput.into()))
}

fn stop() -> Result<(), Error> {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::STOP).map_err(|errno| Error::io("kill")(errno.into()))
}

/// What one thread has done.
struct Part {
    walks: u64,
    wall: Duration,
    cpu: u64,
}

impl<B: Names> Stage<B> {
    /// All threads begin at one moment and go through the same paths, or where each path can be walked but once, share them.
    fn walks(&mut self, case: Case, threads: usize, time: Duration, cpus: &[usize]) -> Result<Took, Error> {
        let (names, paths) = (&self.names, &self.tree.paths);
        let moving = if case == Case::Rename { self.tree.moving.as_ref() } else { None };
        let once = matches!(case, Case::Cold | Case::Missing);
        let barrier = Barrier::new(threads + usize::from(moving.is_some()));
        let over = AtomicU32::new(0);
        let start = self.at;
        let share = paths.len().div_ceil(threads);
        let walker = |index: usize| {
            pin(cpus, index)?;
            let mine = &paths[(share * index).min(paths.len())..(share * (index + 1)).min(paths.len())];
            barrier.wait();
            Ok(if once { Part::of(names, mine) } else { Part::for_time(names, paths, start, time) })
        };
        let mover = |moved: &Move| {
            pin(cpus, threads)?;
            barrier.wait();
            back_and_forth(names, moved, &over)
        };
        let (parts, moves) = std::thread::scope(|scope| {
            // The first one is this thread: alone, a back end has no other.
            let others: Vec<_> = (1..threads).map(|index| scope.spawn(move || walker(index))).collect();
            let mover = moving.map(|moved| scope.spawn(move || mover(moved)));
            let first = walker(0);
            let mut parts = vec![first];
            parts.extend(others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))));
            over.store(1, Ordering::Relaxed);
            (parts, mover.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
        });
        moves.unwrap_or(Ok(()))?;
        let parts = parts.into_iter().collect::<Result<Vec<Part>, Error>>()?;
        self.at = (start + 1009) % self.tree.paths.len();
        // Walks of each in its own time: they begin together, but none waits for the last.
        let rate: f64 = parts.iter().map(|part| part.walks as f64 / part.wall.as_nanos().max(1) as f64).sum();
        let (cpu, walks) = parts.iter().fold((0, 0), |(cpu, walks), part| (cpu + part.cpu, walks + part.walks));
        Ok(Took { wall: 1.0 / rate, cpu: cpu as f64 / walks as f64 })
    }

    /// Renames there and back; then all that was cached below still is.
    fn renames(&mut self) -> Result<Took, Error> {
        const TIMES: u32 = 32;
        let Some(Move { from, to }) = &self.tree.moving else {
            return Err(Error::io("a tree without a directory to move")(std::io::ErrorKind::InvalidData.into()));
        };
        let (begin, cpu) = (Instant::now(), machine::thread_cpu_ns());
        for _ in 0..TIMES {
            self.names.rename(from, to)?;
            self.names.rename(to, from)?;
        }
        let (cpu, wall) = (machine::thread_cpu_ns() - cpu, begin.elapsed());
        let asked = self.names.store_calls();
        let found = self.tree.paths.iter().step_by(97).filter(|path| self.names.walk(path).is_some()).count();
        if found != self.tree.paths.len().div_ceil(97) || asked != self.names.store_calls() {
            return Err(Error::io("after the renames not all was cached")(std::io::ErrorKind::InvalidData.into()));
        }
        let each = |ns: u64| ns as f64 / f64::from(2 * TIMES);
        Ok(Took { wall: each(wall.as_nanos() as u64), cpu: each(cpu) })
    }
}

impl Part {
    fn of<B: Names>(names: &B, paths: &[CString]) -> Part {
        let (begin, cpu) = (Instant::now(), machine::thread_cpu_ns());
        paths.iter().for_each(|path| _ = std::hint::black_box(names.walk(path)));
        Part { walks: paths.len() as u64, cpu: machine::thread_cpu_ns() - cpu, wall: begin.elapsed() }
    }

    fn for_time<B: Names>(names: &B, paths: &[CString], start: usize, time: Duration) -> Part {
        // Between two looks at the clock: long enough that the clock is lost in it.
        const BATCH: usize = 2048;
        let (begin, cpu, mut walks, mut at) = (Instant::now(), machine::thread_cpu_ns(), 0, start);
        loop {
            let mut left = BATCH;
            while left > 0 {
                let next = &paths[at..(at + left).min(paths.len())];
                next.iter().for_each(|path| _ = std::hint::black_box(names.walk(path)));
                left -= next.len();
                at = (at + next.len()) % paths.len();
            }
            walks += BATCH as u64;
            let wall = begin.elapsed();
            if wall >= time {
                return Part { walks, wall, cpu: machine::thread_cpu_ns() - cpu };
            }
        }
    }
}

/// Renames a directory until it is over, at a rate that is the same for all back ends as far as they can.
fn back_and_forth<B: Names>(names: &B, moved: &Move, over: &AtomicU32) -> Result<(), Error> {
    const EACH: Duration = Duration::from_micros(20);
    let mut next = Instant::now();
    while over.load(Ordering::Relaxed) == 0 {
        for (from, to) in [(&moved.from, &moved.to), (&moved.to, &moved.from)] {
            while Instant::now() < next {
                std::hint::spin_loop();
            }
            names.rename(from, to)?;
            next = Instant::now() + EACH;
        }
    }
    Ok(())
}

fn pin(cpus: &[usize], index: usize) -> Result<(), Error> {
    if cpus.is_empty() { Ok(()) } else { machine::pin(cpus[index % cpus.len()]) }
}

/// Bytes of the allocator for each entry, when as many are cached as there may be; the table's among them.
fn bytes(kind: Kind, entries: usize) -> Result<f64, Unable> {
    use super::backend::dcache::Dcache;
    match kind {
        Kind::Dcache => full::<Dcache>(entries),
        Kind::MutexHashmap => full::<maps::Peer<maps::MutexMap>>(entries),
        Kind::RwlockHashmap => full::<maps::Peer<maps::RwLockMap>>(entries),
        Kind::Dashmap => full::<maps::Peer<maps::Dash>>(entries),
        Kind::Papaya => full::<maps::Peer<maps::Papaya>>(entries),
        Kind::Moka => full::<maps::Peer<maps::Moka>>(entries),
        _ => Err(Unable::LeftOut("it has no memory of its own that could be counted".to_owned())),
    }
}

fn full<B: Bounded>(entries: usize) -> Result<f64, Unable> {
    let untold = || Unable::LeftOut("this C library does not tell what is allocated".to_owned());
    let before = heap::in_use().ok_or_else(untold)?;
    let mut cache = B::bounded(entries);
    cache.fill((0..entries).map(|n| format!("name-{n:011}")))?;
    let entries = cache.entries();
    Ok((heap::in_use().ok_or_else(untold)? - before) as f64 / entries as f64)
}
