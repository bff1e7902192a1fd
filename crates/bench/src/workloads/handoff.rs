//! Two processes hand a token to and fro, taking and giving by separate calls.

use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Sem, Set};
use crate::contest::{self, Amount, Case, Common, Load, Placement};
use crate::crowd::{Member, Outcome, Scene, Script, warm_up};
use crate::report::Unit;
use crate::{Env, Error, Report};

/// Each takes from its own semaphore and gives to the other's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turns;

impl Script for Turns {
    fn sets(&self, _: usize) -> Vec<Vec<u16>> {
        vec![vec![0, 0]]
    }

    fn play<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno> {
        let set = me.set(0)?;
        let first = me.index == 0;
        let (own, other) = (set.sem(u16::from(!first), false)?, set.sem(u16::from(first), false)?);
        warm_up(&own)?;
        me.begin();
        let mut turns = 0;
        while turns < me.loops() && !me.is_over() {
            if first {
                me.timed(|| other.give().and_then(|()| own.take()))?;
                me.count += 1;
            } else {
                own.take()?;
                other.give()?;
            }
            turns += 1;
        }
        Ok(())
    }
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// What all crowds have.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// Runs it: microseconds of a round trip, two hand-offs.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let args = Args { common: args.common.clone().with(&[Placement::One, Placement::Spread], &[Load::Idle, Load::Hogs]) };
    let scene = Scene::Handoff(Turns);
    let case = Case {
        name: "round trip".to_owned(),
        scene,
        tasks: 2,
        threads: false,
        cpus: None,
        amount: Amount::Fixed,
        unit: Unit::Us,
        score: Outcome::us,
        kinds: |_| true,
    };
    contest::run("handoff", &args, &args.common, env, vec![case])
}
