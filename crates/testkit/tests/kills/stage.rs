//! One stage: a process that plays all cases with one way to die, and tells what it has seen.

use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use manyway_sem::abi::{IPC_CREAT, SEM_UNDO};
use manyway_sem::{Engine, Thread};
use manyway_testkit::manyway_command;
use manyway_testkit::step::{At, Stepped};

use crate::cases::{ALL, Case};
use crate::death::{self, Death, Means};
use crate::deaths;
use crate::live::{HANG, KEY, Living, SEMS, Sems, nap};

/// What a stage counted.
#[derive(Debug, Default)]
pub struct Tally {
    pub deaths: usize,
    /// Those who died otherwise than meant: their memory was taken too late.
    pub late: usize,
    /// The longest times from a death until the contender had gone on, and until the sleeper had.
    pub contender: Duration,
    pub sleeper: Duration,
}

/// After a call that was cut the contender has so long to come to the lock that the victim may hold.
const TO_THE_LOCK: u64 = 150;

pub struct Stage {
    sems: Sems,
    me: Thread,
    means: &'static Means,
    dir: std::path::PathBuf,
}

impl Stage {
    pub fn new(sems: Sems, death: Death, dir: &Path) -> Result<Stage, String> {
        death::stay_here();
        if death == Death::Reaped {
            death::take_precedence()?;
        }
        let means = Box::leak(Box::new(Means::new(death, sems, dir)?));
        Ok(Stage { sems, me: Thread::new(), means, dir: dir.to_owned() })
    }

    fn engine(&self) -> &'static Engine {
        self.sems.engine
    }

    /// All cases whose names contain `filter`.
    pub fn play(&self, filter: &str) -> Result<Tally, String> {
        let mut tally = Tally::default();
        for case in ALL.iter().filter(|c| c.name.contains(filter)) {
            // Who lives on as another program must hold something that tells that it does, and a set to hold it in.
            if !self.means.death.is_exec() || case.help.is_none() {
                self.play_case(case, &mut tally).map_err(|e| format!("{}: {e}", case.name))?;
            }
        }
        Ok(tally)
    }

    fn play_case(&self, case: &Case, tally: &mut Tally) -> Result<(), String> {
        let id = self.new_set()?;
        let living = Living::start(self.sems, id, case.contest, case.sleep);
        // Alone, to see how long it is; then everywhere, without a watcher and with one.
        let length = self.round(case, &living, usize::MAX, tally)?;
        let step = (length / deaths()).max(1);
        for watched in [false, true] {
            let watcher = if watched { Some(self.start_watcher()?) } else { None };
            // Where every instruction has its death, one half of them has a watcher, the other none.
            let (offset, step) = (usize::from(watched) * step.div_ceil(2), step.max(1 + usize::from(step == 1)));
            // A call that meets others is longer than one that is alone.
            for k in (offset..length + length / 8 + 1).step_by(step) {
                self.round(case, &living, k, tally).map_err(|e| {
                    format!("after {k} of about {length} instructions, {} watcher: {e}", if watched { "with a" } else { "without" })
                })?;
            }
            drop(watcher);
            self.engine().set_watcher(0);
        }
        drop(living);
        let id = self.new_set()?;
        self.engine().remove(&self.me, id).map_err(|e| format!("IPC_RMID: {e}"))
    }

    /// One death after `k` instructions. How many there were.
    fn round(&self, case: &Case, living: &Living, k: usize, tally: &mut Tally) -> Result<usize, String> {
        let page = living.page;
        let id = self.set_up(case, living)?;
        let (sems, means) = (self.sems, self.means);
        let victim = Stepped::start(
            || {
                means.prepare(page);
                // A place in the namespace, whatever is held.
                let _ = sems.op(id, &[crate::cases::op(3, 1, SEM_UNDO), crate::cases::op(3, -1, SEM_UNDO)]);
                if !case.hold.is_empty() {
                    let _ = sems.op(id, case.hold);
                }
            },
            |()| (case.call)(sems, id),
        );
        living.order_sleep();
        living.until("the sleeper does not sleep", || self.sleepers(id, case) == 1)?;
        // In this second others have been here: what they leave to be done once a second is done.
        living.go()?;
        let alone = k == usize::MAX;
        if alone {
            living.pause()?;
        }
        let (at, n) = victim.advance(k);
        if alone {
            living.go()?;
        }
        if at != At::End {
            nap(TO_THE_LOCK);
        }
        let rounds = living.rounds();
        let as_meant = means.inflict(&victim, page)?;
        let contender = living.until("the contender does not go on", || living.rounds() >= rounds.saturating_add(2))?;
        if means.death.is_exec() {
            self.lives_on(case, living, &victim, id)?;
            victim.kill();
        }
        let asleep = || !living.has_slept();
        if let Some(help) = case.help
            && self.engine().getncnt(&self.me, id, 0).is_ok_and(|n| n == 1)
            && asleep()
        {
            help(Sems { via: crate::live::Via::Crate, ..sems }, id);
        }
        let sleeper =
            living.until("the sleeper does not come back", || !asleep())? + if case.help.is_none() { contender } else { Duration::ZERO };
        living.pause()?;
        let dead = victim.pid();
        drop(victim);
        self.all_is_well(case, id, living, dead)?;
        tally.deaths += 1;
        tally.late += usize::from(!as_meant);
        tally.contender = tally.contender.max(contender);
        tally.sleeper = tally.sleeper.max(sleeper);
        Ok(n)
    }

    /// The set with the case's values, and nobody in it.
    fn set_up(&self, case: &Case, living: &Living) -> Result<i32, String> {
        let id = if case.removes { self.new_set()? } else { living.page.id.load(SeqCst) };
        living.page.id.store(id, SeqCst);
        self.engine().setall(&self.me, id, &case.values).map_err(|e| format!("SETALL: {e}"))?;
        Ok(id)
    }
    fn new_set(&self) -> Result<i32, String> {
        self.engine().semget(&self.me, KEY, SEMS as i32, IPC_CREAT | 0o600).map_err(|e| format!("semget: {e}"))
    }

    /// How many sleep where the case's sleeper does.
    fn sleepers(&self, id: i32, case: &Case) -> i32 {
        let first = case.sleep[0];
        let count = if first.op == 0 { Engine::getzcnt } else { Engine::getncnt };
        count(self.engine(), &self.me, id, first.num.into()).unwrap_or(0)
    }

    /// After execve: what was held is held still, by a process that waits for nothing.
    fn lives_on(&self, case: &Case, living: &Living, victim: &Stepped, id: i32) -> Result<(), String> {
        if self.means.death == Death::Exec {
            living
                .until("the new program does not use its semaphores", || self.engine().getval(&self.me, id, 3).is_ok_and(|v| v >= 100))?;
        }
        living.pause()?;
        // (A wait for zero may have been over in between.)
        if living.has_slept() && case.sleep[0].op != 0 {
            return Err("the sleeper got units of a process that lives".into());
        }
        let sleepers = self.sleepers(id, case);
        if sleepers != 1 && case.sleep[0].op != 0 {
            return Err(format!("{sleepers} sleep, 1 lives"));
        }
        let (mut units, mut holds) = (self.values(id)?.map(i32::from), false);
        let holder = &mut |h: manyway_sem::Holder| {
            units[h.num as usize] += i32::from(h.adj);
            holds |= h.pid == victim.pid();
        };
        self.engine().for_each_holder(&self.me, id, holder).map_err(|e| format!("holders: {e}"))?;
        if !holds || !case.finals.iter().any(|f| f.map(i32::from) == units) {
            return Err(format!(
                "values and adjustments are {units:?} together, expected one of {:?}; held by the new program: {holds}",
                case.finals
            ));
        }
        living.go()
    }

    fn values(&self, id: i32) -> Result<[u16; SEMS], String> {
        let mut values = [0; SEMS];
        self.engine().getall(&self.me, id, &mut values).map_err(|e| format!("GETALL: {e}"))?;
        Ok(values)
    }

    /// In the end: no unit too many or too few, nobody holds or waits, and only the living have a slot.
    fn all_is_well(&self, case: &Case, id: i32, living: &Living, dead: u32) -> Result<(), String> {
        if case.removes {
            return match self.engine().getval(&self.me, id, 0) {
                Err(_) => Ok(()),
                Ok(v) => Err(format!("the set is still there, with the value {v}")),
            };
        }
        if self.means.death == Death::Reaped {
            // Nothing marks this end, so that whoever waits for the process must say so, as the preloaded wait(2) does.
            self.engine().reap(&self.me, Some(dead));
        }
        let values = self.values(id)?;
        if !case.finals.contains(&values) {
            return Err(format!("values {values:?}, expected one of {:?}", case.finals));
        }
        let mut wrong = String::new();
        let mut hold = |h: manyway_sem::Holder| _ = write!(wrong, " {h:?}");
        self.engine().for_each_holder(&self.me, id, &mut hold).map_err(|e| format!("holders: {e}"))?;
        for num in 0..SEMS as i32 {
            let counts = (self.engine().getncnt(&self.me, id, num), self.engine().getzcnt(&self.me, id, num));
            if counts != (Ok(0), Ok(0)) {
                let _ = write!(wrong, " sleepers of {num}: {counts:?}");
            }
        }
        if !wrong.is_empty() {
            return Err(format!("left:{wrong}"));
        }
        // Somebody else may be about to recover it.
        living.until("the dead one keeps its slot", || {
            self.engine().reap(&self.me, Some(dead));
            let mut there = false;
            self.engine().for_each_process(&mut |pid| there |= pid == dead);
            !there
        })?;
        Ok(())
    }

    fn start_watcher(&self) -> Result<Watcher, String> {
        let mut command = Command::new(manyway_command()?);
        command.args(["__watcher", "--reap", "--stay"]).arg(&self.dir).env_clear().stdin(Stdio::null());
        let watcher = Watcher(command.spawn().map_err(|e| e.to_string())?);
        // It has marked the namespace when it has a slot: sleepers then leave it to the watcher.
        let deadline = std::time::Instant::now() + HANG;
        let pid = watcher.0.id();
        while !self.dir.join("watcher.lock").exists() || !has_namespace(pid, &self.dir) {
            if std::time::Instant::now() > deadline {
                return Err("the watcher does not start".into());
            }
            nap(200);
        }
        Ok(watcher)
    }
}

/// True when the process has the arena mapped.
fn has_namespace(pid: u32, dir: &Path) -> bool {
    let name = dir.join("arena-v1");
    std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(&*name.to_string_lossy()))
}

/// The command's watcher. Dropped, it is killed.
struct Watcher(Child);

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
