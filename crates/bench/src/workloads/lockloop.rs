//! Processes that take one lock in turn: the table of 2009.

use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Sem, Set};
use crate::busy::Busy;
use crate::contest::{self, Amount, Case, Common, Load, Placement};
use crate::crowd::{Member, Outcome, Scene, Script, warm_up};
use crate::report::Unit;
use crate::{Env, Error, Report};

/// Takes the lock, works with it, gives it back, works without it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lock {
    /// The work with the lock.
    pub inside: Busy,
    /// The work without it.
    pub outside: Busy,
}

impl Script for Lock {
    fn sets(&self, _: usize) -> Vec<Vec<u16>> {
        vec![vec![1]]
    }

    fn play<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno> {
        let lock = me.set(0)?.sem(0, false)?;
        warm_up(&lock)?;
        me.begin();
        while me.goes_on() {
            me.timed(|| lock.take())?;
            self.inside.run();
            lock.give()?;
            me.count += 1;
            self.outside.run();
        }
        Ok(())
    }
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// How many processes; each number is a case.
    #[arg(value_delimiter = ',', default_value = "1,2,4,16,32,64,256,1024", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub procs: Vec<u16>,
    /// Nanoseconds of work with the lock.
    #[arg(long, default_value_t = 1_000)]
    pub inside: u64,
    /// Nanoseconds of work without it.
    #[arg(long, default_value_t = 10_000)]
    pub outside: u64,
    /// What all crowds have.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// Runs it: nanoseconds of a loop, all loops of all processes counted; the times are those of the waits for the lock.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let args = Args { common: args.common.clone().with(&[Placement::None], &[Load::Idle]), ..args.clone() };
    let (inside, outside) = (Busy::of(args.inside), Busy::of(args.outside));
    let case = |&procs: &u16| Case {
        name: procs.to_string(),
        scene: Scene::Lockloop(Lock { inside, outside }),
        tasks: procs.into(),
        threads: false,
        cpus: None,
        amount: Amount::Fixed,
        unit: Unit::Ns,
        score: |outcome: &Outcome| outcome.us() * 1e3,
        kinds: |_| true,
    };
    contest::run("lockloop", &args, &args.common, env, args.procs.iter().map(case).collect())
}
