//! What a namespace holds, as serde types: sets, semaphores, holders, sleepers, and wait-for cycles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO, SemBuf, SetStat};
use manyway_sem::{Engine, Errno, Holder, OpenOptions, Sleeper, Thread};
use serde::Serialize;

use crate::exit::Result;
use crate::explain;
use crate::namespace::{Choice, Intent, Place};
use crate::people::{Names, Process, is_alive};
use crate::waitfor::{self, Edge};

/// An opened namespace and what is asked of it.
pub struct Survey {
    dir: PathBuf,
    engine: Engine,
    thread: Thread,
}

/// A set, as a line of `ls`.
#[derive(Clone, Debug, Serialize)]
pub struct Set {
    /// Id.
    pub id: i32,
    /// Key in hexadecimal; 0x00000000 for IPC_PRIVATE.
    pub key: String,
    /// Owner's name.
    pub owner: String,
    /// Owner's user id.
    pub uid: u32,
    /// Owner's group id.
    pub gid: u32,
    /// Permission bits, octal.
    pub perms: String,
    /// Number of semaphores.
    pub nsems: u32,
    /// The process that made it.
    pub creator: Process,
    /// Processes whose adjustment is not 0.
    pub holders: usize,
    /// Threads that sleep in semop.
    pub sleepers: usize,
    /// Last semop, seconds since 1970; 0 before the first.
    pub otime: i64,
    /// Last change, seconds since 1970.
    pub ctime: i64,
}

/// One semaphore.
#[derive(Clone, Debug, Serialize)]
pub struct Semaphore {
    /// Index in the set.
    pub num: u16,
    /// Value.
    pub value: u16,
    /// The process that used it last.
    pub last: Option<Process>,
    /// Threads that wait for it to rise.
    pub ncnt: i32,
    /// Threads that wait for it to be zero.
    pub zcnt: i32,
    /// Processes with an adjustment.
    pub holders: Vec<Adjustment>,
}

/// A process's adjustment of a semaphore.
#[derive(Clone, Debug, Serialize)]
pub struct Adjustment {
    /// The process.
    pub process: Process,
    /// What its death adds to the value.
    pub adj: i16,
}

/// A thread that sleeps in semop.
#[derive(Clone, Debug, Serialize)]
pub struct Waiting {
    /// Its process.
    pub process: Process,
    /// Thread id.
    pub tid: u32,
    /// How long it has slept.
    pub age_ms: u64,
    /// The operation that blocks it.
    pub blocker: Operation,
    /// All operations of its call.
    pub operations: Vec<Operation>,
}

/// One operation of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// Semaphore.
    pub num: u16,
    /// What is added to the value; 0 waits for zero.
    pub op: i16,
    /// IPC_NOWAIT.
    pub nowait: bool,
    /// SEM_UNDO.
    pub undo: bool,
}

impl From<SemBuf> for Operation {
    fn from(buf: SemBuf) -> Operation {
        let has = |flag: i32| i32::from(buf.flg) & flag != 0;
        Operation { num: buf.num, op: buf.op, nowait: has(IPC_NOWAIT), undo: has(SEM_UNDO) }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.op {
            0 => write!(f, "{}: zero", self.num)?,
            op => write!(f, "{}: {op:+}", self.num)?,
        }
        if self.undo { write!(f, " undo") } else { Ok(()) }
    }
}

/// A set with all there is to know about it.
#[derive(Clone, Debug, Serialize)]
pub struct Detail {
    /// The set.
    #[serde(flatten)]
    pub set: Set,
    /// Its semaphores.
    pub semaphores: Vec<Semaphore>,
    /// Who sleeps, in order of arrival.
    pub waiting: Vec<Waiting>,
}

/// One step of a wait-for cycle.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The process that sleeps.
    pub process: Process,
    /// The set's id.
    pub set: i32,
    /// The semaphore it sleeps for, which the next step's process holds.
    pub num: u16,
}

impl Survey {
    /// Opens the namespace that `choice` means.
    pub fn open(choice: &Choice) -> Result<Survey> {
        let place = Place::find(choice, Intent::Find, None)?;
        let engine = place.open(&OpenOptions::FIND)?;
        Ok(Survey { dir: place.dir, engine, thread: Thread::new() })
    }

    /// The namespace's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Operations carried out in the namespace so far; a few of those that raced may be missing.
    pub fn operations(&self) -> u64 {
        self.engine.operations(&self.thread)
    }

    /// All sets.
    pub fn sets(&self) -> Vec<Set> {
        let mut found = Vec::new();
        self.engine.for_each_set(&self.thread, &mut |stat, creator| found.push((stat, creator)));
        let mut names = Names::new();
        // A set that is removed meanwhile is left out.
        found.iter().filter_map(|(stat, creator)| self.describe(stat, *creator, &mut names).ok()).collect()
    }

    /// The set with this id.
    pub fn detail(&self, id: i32) -> Result<Detail> {
        self.try_detail(id).map_err(|error| explain::set_error(id, error))
    }

    /// The id of the set with this key.
    pub fn by_key(&self, key: i32) -> Option<i32> {
        let mut id = None;
        self.engine.for_each_set(&self.thread, &mut |stat, _| {
            if stat.key == key {
                id = Some(stat.id);
            }
        });
        id
    }

    /// Removes a set.
    pub fn remove(&self, id: i32) -> Result<()> {
        self.engine.remove(&self.thread, id).map_err(|error| explain::set_error(id, error))
    }

    /// Whether nobody alive uses the set: its creator is dead, nobody holds it or sleeps for it, and no living process used one of
    /// its semaphores last. A process that has taken a dead one's number keeps a set, never the other way round.
    pub fn is_stale(&self, set: &Set) -> bool {
        !set.creator.alive && set.holders == 0 && set.sleepers == 0 && (0..set.nsems).all(|num| !self.used_by_living(set.id, num))
    }

    fn used_by_living(&self, id: i32, num: u32) -> bool {
        // What cannot be read is taken as used.
        self.engine.getpid(&self.thread, id, num as i32).map_or(true, |pid| is_alive(pid as u32))
    }

    /// The wait-for cycles in which the set has a part. The circle may lead through other sets, so all are looked at.
    pub fn cycles(&self, id: i32) -> Vec<Vec<Step>> {
        let mut ids = Vec::new();
        self.engine.for_each_set(&self.thread, &mut |stat, _| ids.push(stat.id));
        let mut edges = Vec::new();
        for set in ids {
            if let (Ok(holders), Ok(sleepers)) = (self.holders(set), self.sleepers(set)) {
                edges.extend(sleepers.iter().flat_map(|(sleeper, _)| waits(set, sleeper, &holders)));
            }
        }
        let mut cycles = waitfor::cycles(&edges);
        cycles.retain(|cycle| cycle.iter().any(|edge| edge.set == id));
        let step = |edge: &Edge| Step { process: Process::look(edge.waiter), set: edge.set, num: edge.num };
        cycles.iter().map(|cycle| cycle.iter().map(step).collect()).collect()
    }

    fn holders(&self, id: i32) -> std::result::Result<Vec<Holder>, Errno> {
        let mut holders = Vec::new();
        self.engine.for_each_holder(&self.thread, id, &mut |holder| holders.push(holder))?;
        Ok(holders)
    }

    fn sleepers(&self, id: i32) -> std::result::Result<Vec<(Sleeper, Vec<SemBuf>)>, Errno> {
        let mut sleepers = Vec::new();
        self.engine.for_each_sleeper(&self.thread, id, &mut |sleeper, ops| sleepers.push((sleeper, ops.to_vec())))?;
        Ok(sleepers)
    }

    fn describe(&self, stat: &SetStat, creator: u32, names: &mut Names) -> std::result::Result<Set, Errno> {
        let holders: BTreeSet<u32> = self.holders(stat.id)?.iter().map(|holder| holder.pid).collect();
        Ok(Set {
            id: stat.id,
            key: format!("0x{:08x}", stat.key),
            owner: names.user(stat.uid),
            uid: stat.uid,
            gid: stat.gid,
            perms: format!("{:o}", stat.mode),
            nsems: stat.nsems,
            creator: names.process(creator),
            holders: holders.len(),
            sleepers: self.sleepers(stat.id)?.len(),
            otime: stat.otime,
            ctime: stat.ctime,
        })
    }

    fn try_detail(&self, id: i32) -> std::result::Result<Detail, Errno> {
        let stat = self.engine.stat(&self.thread, id)?;
        let mut creator = 0;
        self.engine.for_each_set(&self.thread, &mut |other, pid| {
            if other.id == id {
                creator = pid;
            }
        });
        let mut values = vec![0; self.engine.array_len(&self.thread, id, false)?];
        self.engine.getall(&self.thread, id, &mut values)?;
        let mut names = Names::new();
        let mut semaphores = Vec::with_capacity(values.len());
        for (num, value) in (0u16..).zip(values) {
            semaphores.push(self.semaphore(id, num, value, &mut names)?);
        }
        for holder in self.holders(id)? {
            if let Some(semaphore) = semaphores.get_mut(usize::from(holder.num)) {
                semaphore.holders.push(Adjustment { process: names.process(holder.pid), adj: holder.adj });
            }
        }
        let waiting = self.sleepers(id)?.into_iter().map(|(sleeper, ops)| Waiting {
            process: names.process(sleeper.pid),
            tid: sleeper.tid,
            age_ms: sleeper.age_ns / 1_000_000,
            blocker: sleeper.blocker.into(),
            operations: ops.into_iter().map(Operation::from).collect(),
        });
        let waiting = waiting.collect();
        Ok(Detail { set: self.describe(&stat, creator, &mut names)?, semaphores, waiting })
    }

    /// One semaphore, its holders left to the caller.
    fn semaphore(&self, id: i32, num: u16, value: u16, names: &mut Names) -> std::result::Result<Semaphore, Errno> {
        let (t, index) = (&self.thread, i32::from(num));
        let last = self.engine.getpid(t, id, index)? as u32;
        Ok(Semaphore {
            num,
            value,
            last: (last != 0).then(|| names.process(last)),
            ncnt: self.engine.getncnt(t, id, index)?,
            zcnt: self.engine.getzcnt(t, id, index)?,
            holders: Vec::new(),
        })
    }
}

/// For whom a sleeper of `set` waits.
fn waits<'a>(set: i32, sleeper: &'a Sleeper, holders: &'a [Holder]) -> impl Iterator<Item = Edge> + 'a {
    let blocker = sleeper.blocker;
    let gives = move |holder: &Holder| if blocker.op == 0 { holder.adj < 0 } else { holder.adj > 0 };
    let of_this = holders.iter().filter(move |holder| holder.num == blocker.num && gives(holder));
    of_this.map(move |holder| Edge { waiter: sleeper.pid, set, num: blocker.num, holder: holder.pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: u32, num: u16, adj: i16) -> Holder {
        Holder { pid, num, adj, alive: true }
    }

    fn sleeper(num: u16, op: i16) -> Sleeper {
        Sleeper { pid: 1, tid: 1, blocker: SemBuf { num, op, flg: 0 }, nops: 1, age_ns: 0 }
    }

    #[test]
    fn a_decrement_waits_for_takers_and_zero_for_givers() {
        let holders = [holder(7, 0, 1), holder(8, 0, -1), holder(9, 1, 1)];
        let of = |sleeper: Sleeper| waits(5, &sleeper, &holders).map(|edge| edge.holder).collect::<Vec<_>>();
        assert_eq!(of(sleeper(0, -1)), [7]);
        assert_eq!(of(sleeper(0, 0)), [8]);
        assert_eq!(of(sleeper(1, -2)), [9]);
        assert!(of(sleeper(2, -1)).is_empty());
    }

    #[test]
    fn operations_as_text() {
        let text = |num, op, flg: i32| Operation::from(SemBuf { num, op, flg: flg as i16 }).to_string();
        assert_eq!(text(3, -2, SEM_UNDO), "3: -2 undo");
        assert_eq!(text(0, 1, IPC_NOWAIT), "0: +1");
        assert_eq!(text(12, 0, 0), "12: zero");
    }
}
