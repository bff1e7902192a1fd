//! Many tasks wait for one semaphore to be zero, and it falls to zero and is raised again.

use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Kind, Sem, Set};
use crate::contest::{self, Amount, Case, Common, Load, Placement};
use crate::crowd::{Member, Outcome, Scene, Script, warm_up};
use crate::report::Unit;
use crate::{Env, Error, Report};

/// One of those who sleep. Whoever comes last lets the value fall, when all others sleep, and raises it again: so no hand-over between the tasks
/// is measured but that of the semaphore. Two semaphores take turns: on a single one somebody could come back before it is raised.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Crossings;

impl Script for Crossings {
    fn sets(&self, _: usize) -> Vec<Vec<u16>> {
        vec![vec![1, 1]]
    }

    fn play<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno> {
        let set = me.set(0)?;
        let sems = [set.sem(0, false)?, set.sem(1, false)?];
        let arrived = me.shared().own.atomic();
        let tasks = me.tasks as u32;
        warm_up(&sems[0])?;
        me.begin();
        for sem in sems.iter().cycle() {
            if me.is_over() {
                break;
            }
            if !(arrived.fetch_add(1, AcqRel) + 1).is_multiple_of(tasks) {
                sem.wait_zero()?;
                continue;
            }
            let mut looks = 0u32;
            while sem.zero_sleepers()? + 1 < tasks && !me.is_over() {
                looks += 1;
                // A look takes the lock that the last of them need.
                for _ in 0..200 {
                    std::hint::spin_loop();
                }
                if looks.is_multiple_of(64) {
                    std::thread::sleep(Duration::from_micros(1));
                }
            }
            sem.take()?;
            sem.give()?;
            me.count += u64::from(tasks) - 1;
        }
        Ok(())
    }
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// How many sleep; each number is a case.
    #[arg(value_delimiter = ',', default_value = "2,16,64,256", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub sleepers: Vec<u16>,
    /// Processes instead of threads.
    #[arg(long)]
    pub processes: bool,
    /// What all crowds have.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// Runs it: times that the value was zero × sleepers, per second.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let args = Args { common: args.common.clone().with(&[Placement::Spread], &[Load::Idle]), ..args.clone() };
    let case = |&sleepers: &u16| Case {
        name: sleepers.to_string(),
        scene: Scene::WaitForZero(Crossings),
        tasks: usize::from(sleepers) + 1,
        threads: !args.processes,
        cpus: None,
        amount: Amount::Timed,
        unit: Unit::PerSecond,
        score: Outcome::rate,
        kinds: Kind::is_system_v,
    };
    contest::run("waitforzero", &args, &args.common, env, args.sleepers.iter().map(case).collect())
}
