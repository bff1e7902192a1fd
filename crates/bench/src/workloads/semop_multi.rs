//! Threads that take and give, several on each semaphore of one set.

use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Sem, Set};
use crate::contest::{self, Amount, Case, Common, Load, Placement};
use crate::crowd::{Member, Outcome, Scene, Script, warm_up};
use crate::report::Unit;
use crate::{Env, Error, Report};

/// Each takes from the semaphore of its number and gives it back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Multi {
    /// How many semaphores.
    pub sems: u16,
}

impl Script for Multi {
    fn sets(&self, _: usize) -> Vec<Vec<u16>> {
        vec![vec![1; self.sems.into()]]
    }

    fn play<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno> {
        let own = me.set(0)?.sem((me.index % usize::from(self.sems)) as u16, false)?;
        warm_up(&own)?;
        me.begin();
        while me.goes_on() {
            own.take()?;
            own.give()?;
            me.count += 2;
        }
        Ok(())
    }
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// How many threads.
    #[arg(default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: u16,
    /// How many semaphores.
    #[arg(default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub sems: u16,
    /// Processes instead of threads.
    #[arg(long)]
    pub processes: bool,
    /// What all crowds have.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// Runs it: calls per second.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let args = Args { common: args.common.clone().with(&[Placement::Spread], &[Load::Idle]), ..args.clone() };
    let case = Case {
        name: format!("{} {}", args.threads, args.sems),
        scene: Scene::SemopMulti(Multi { sems: args.sems }),
        tasks: args.threads.into(),
        threads: !args.processes,
        cpus: None,
        amount: Amount::Timed,
        unit: Unit::PerSecond,
        score: Outcome::rate,
        kinds: |_| true,
    };
    contest::run("semop-multi", &args, &args.common, env, vec![case])
}
