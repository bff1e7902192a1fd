//! The process that makes the semaphore calls: joins a place, then does what it is told through its standard input.
//!
//! A worker ends with its input, and removes the sets that it made.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::backend::{Backend, Place, Sem, Set, SetId, with_backend};
use crate::crowd::{Crowd, Outcome};
use crate::workloads::{attach, kill, sets, uncontended, undo, wait_undo};
use crate::{machine, process};

/// How a worker is started; its one argument, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Where to join.
    pub place: Place,
    /// The only CPU to run on.
    pub cpu: Option<usize>,
    /// The first of its lab, who makes the sets and removes the place at the end. The others die with the coordinator.
    pub keeper: bool,
}

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Make a set with these values.
    Create(Vec<u16>),
    /// Tell how many sleep on a semaphore.
    Sleepers(SetId, u16),
    /// Call in a loop.
    Loop(uncontended::Loop),
    /// Go through a case's calls so many times.
    Repeat(SetId, uncontended::Case, u64),
    /// Take one unit with SEM_UNDO, and keep it.
    Hold(kill::Hold),
    /// Take one unit, tell when, and give it back.
    Take(SetId),
    /// Let a child die that holds a unit, and tell whether the next call had its undo.
    Death(SetId),
    /// Let a crowd play.
    Crowd(Crowd),
    /// Make the first call.
    First(attach::First),
    /// Call on many sets.
    Many(undo::Many),
    /// Make, find, use, list and remove sets beside others.
    Census(sets::Census),
}

/// What a worker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It has done what it should.
    Done,
    /// The set it made.
    Set(SetId),
    /// How many.
    Count(u64),
    /// What a loop took.
    Looped(uncontended::Looped),
    /// When it happened, nanoseconds of the monotonic clock.
    At(u64),
    /// What came of a crowd.
    Crowd(Outcome),
    /// What a first call took.
    First(attach::Took),
    /// What a call costs, nanoseconds.
    Cost(f64),
    /// What calls cost.
    Costs(sets::Costs),
    /// Whether it held.
    Held(bool),
}

/// Runs this process as a worker and ends it.
pub fn main(start: &str) -> ! {
    let served = serde_json::from_str(start).map_err(|e| Error::io("a worker's argument")(e.into())).and_then(|start: Start| {
        let kind = start.place.kind;
        with_backend!(kind, B => serve::<B>(&start))
    });
    process::end(served)
}

fn serve<B: Backend>(start: &Start) -> Result<(), Error> {
    let place = &start.place;
    if !start.keeper {
        let signal = rustix::process::Signal::KILL;
        rustix::process::set_parent_process_death_signal(Some(signal)).map_err(|e| Error::io("prctl(PR_SET_PDEATHSIG)")(e.into()))?;
    }
    start.cpu.map_or(Ok(()), machine::pin)?;
    let backend = B::join(place)?;
    let mut made = Vec::new();
    process::serve(|command| obey(start, &backend, command, &mut made))?;
    for id in made {
        backend.remove(id)?;
    }
    if start.keeper {
        std::fs::remove_dir_all(&place.dir).map_err(Error::io(format!("cannot remove {}", place.dir.display())))?;
    }
    Ok(())
}

fn obey<B: Backend>(start: &Start, backend: &B, command: Command, made: &mut Vec<SetId>) -> Result<Answer, Error> {
    let failed = |call| move |errno| Error::Call { backend: start.place.kind, call, errno };
    Ok(match command {
        Command::Create(values) => {
            let id = backend.create(&values)?;
            made.push(id);
            Answer::Set(id)
        }
        Command::Sleepers(id, num) => {
            let sleepers = backend.open(id)?.sem(num, false).and_then(|sem| sem.sleepers()).map_err(failed("semctl(GETNCNT)"))?;
            Answer::Count(sleepers.into())
        }
        Command::Loop(role) => Answer::Looped(role.run(&backend.open(role.set)?).map_err(failed("semop"))?),
        Command::Repeat(id, case, times) => {
            Answer::Count(uncontended::repeat(&backend.open(id)?, 0, case, times).map_err(failed("semop"))?)
        }
        Command::Hold(role) => {
            role.run(&backend.open(role.set)?).map_err(failed("semop"))?;
            Answer::Done
        }
        Command::Take(id) => Answer::At(kill::take(&backend.open(id)?).map_err(failed("semop"))?),
        Command::Crowd(crowd) => Answer::Crowd(crowd.run(backend)?),
        Command::First(role) => Answer::First(role.run(backend)?),
        Command::Many(role) => Answer::Cost(role.run(backend, made)?),
        Command::Census(role) => Answer::Costs(role.run(backend, made)?),
        Command::Death(id) => Answer::Held(wait_undo::death(start, id, &backend.open(id)?)?),
    })
}
