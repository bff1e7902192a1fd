//! Workers that sleep each on a semaphore of its own, and one who wakes those that are ready by calls on many semaphores.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Duration;

use manyway_sem::Errno;
use rustix::thread::futex;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Kind, Sem, Set};
use crate::contest::{self, Amount, Case, Common, Load, Placement};
use crate::crowd::{Member, Outcome, Scene, Script, warm_up};
use crate::report::Unit;
use crate::{Env, Error, Report};

/// Semaphores of a set.
const SET: usize = 250;
/// Operations of a call.
const CALL: usize = 64;

/// How the workers sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// In a call without a timeout.
    Semaphores,
    /// The same, but those of every fifth set with a timeout of a nanosecond, again and again.
    Timeouts,
    /// On a futex, without a semaphore: what sleeping and waking cost at the least.
    Futex,
}

/// A worker, or the conductor who wakes them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Burns {
    /// How many are woken at once at the most.
    pub wake: usize,
    /// How they sleep.
    pub way: Way,
}

/// What a worker's own word says.
mod word {
    pub const BUSY: u32 = 0;
    pub const READY: u32 = 1;
}

impl Script for Burns {
    fn sets(&self, tasks: usize) -> Vec<Vec<u16>> {
        (0..tasks.div_ceil(SET)).map(|n| vec![0; (tasks - n * SET).min(SET)]).collect()
    }
    fn has_conductor(&self) -> bool {
        true
    }

    fn play<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno> {
        if me.index == me.tasks {
            return self.conduct(me);
        }
        let set = me.index / SET;
        let sem = me.set(set)?.sem((me.index % SET) as u16, false)?;
        let ready = &me.line(me.index).own;
        warm_up(&sem)?;
        let short = self.way == Way::Timeouts && set.is_multiple_of(5);
        me.begin();
        while !me.is_over() {
            ready.store(word::READY, Release);
            match self.way {
                Way::Futex => wait(ready, || me.is_over()),
                _ if short => while sem.take_for(Duration::from_nanos(1)) == Err(Errno::EAGAIN) && !me.is_over() {},
                _ => sem.take()?,
            }
            me.count += 1;
        }
        Ok(())
    }
}

impl Burns {
    fn conduct<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno> {
        let sets: Vec<B::Set> = (0..me.tasks.div_ceil(SET)).map(|n| me.set(n)).collect::<Result<_, _>>()?;
        let (mut next, mut chosen) = (0, Vec::with_capacity(self.wake));
        me.begin();
        while !me.is_over() {
            chosen.clear();
            // Goes on where the last look ended, so that each has its turn.
            for _ in 0..me.tasks {
                if me.line(next).own.load(Acquire) == word::READY {
                    chosen.push(next);
                }
                next = (next + 1) % me.tasks;
                if chosen.len() == self.wake {
                    break;
                }
            }
            if chosen.is_empty() {
                std::thread::sleep(Duration::from_micros(1));
                continue;
            }
            chosen.sort_unstable();
            for &worker in &chosen {
                me.line(worker).own.store(word::BUSY, Release);
            }
            if self.way == Way::Futex {
                chosen.iter().for_each(|&worker| wake(&me.line(worker).own));
                continue;
            }
            for of_a_set in chosen.chunk_by(|a, b| a / SET == b / SET) {
                for part in of_a_set.chunks(CALL) {
                    let mut nums = [0; CALL];
                    nums.iter_mut().zip(part).for_each(|(num, worker)| *num = (worker % SET) as u16);
                    sets[part[0] / SET].give_each(&nums[..part.len()])?;
                }
            }
        }
        (0..me.tasks).for_each(|worker| wake(&me.line(worker).own));
        Ok(())
    }
}

fn wait(ready: &AtomicU32, over: impl Fn() -> bool) {
    // A slice of the time: the last wake may come before the last wait.
    let slice = futex::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while ready.load(Acquire) == word::READY && !over() {
        // It is looked again whatever came of it.
        let _ = futex::wait(ready, futex::Flags::empty(), word::READY, Some(&slice));
    }
}

fn wake(ready: &AtomicU32) {
    // Fails for no good address.
    let _ = futex::wake(ready, futex::Flags::empty(), 1);
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// How many workers; each number is a case.
    #[arg(short, long, value_delimiter = ',', default_value = "64,256", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: Vec<u16>,
    /// How many are woken at once at the most.
    #[arg(short, long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub wake: u16,
    /// How the workers sleep; each is a case.
    #[arg(short, long, value_delimiter = ',', default_value = "semaphores,futex")]
    pub operation: Vec<Way>,
    /// What all crowds have.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// Runs it: workers woken per second.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let args = Args { common: args.common.clone().with(&[Placement::Spread], &[Load::Idle]), ..args.clone() };
    let mut cases = Vec::new();
    for &way in &args.operation {
        for &threads in &args.threads {
            let name = match way {
                Way::Semaphores => format!("{threads} {}", args.wake),
                Way::Timeouts => format!("{threads} {}, timeouts", args.wake),
                Way::Futex => format!("{threads} {}, futex", args.wake),
            };
            cases.push(Case {
                name,
                scene: Scene::Sembench(Burns { wake: args.wake.into(), way }),
                tasks: threads.into(),
                threads: true,
                cpus: None,
                amount: Amount::Timed,
                unit: Unit::PerSecond,
                score: Outcome::rate,
                kinds: if way == Way::Futex { |kind| kind == Kind::Kernel } else { |_| true },
            });
        }
    }
    contest::run("sembench", &args, &args.common, env, cases)
}
