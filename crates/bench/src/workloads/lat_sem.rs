//! Two processes exchange a token by calls that take from one's own semaphore and give to the other's at once.

use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Kind, Set, Several};
use crate::contest::{self, Amount, Case, Common, Load, Placement};
use crate::crowd::{Member, Outcome, Scene, Script, warm_up};
use crate::report::Unit;
use crate::{Env, Error, Report};

/// One of two who exchange.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange;

impl Script for Exchange {
    fn sets(&self, _: usize) -> Vec<Vec<u16>> {
        vec![vec![1, 0]]
    }

    fn play<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno> {
        let set = me.set(0)?;
        let (own, other) = if me.index == 0 { (0, 1) } else { (1, 0) };
        let exchange = set.several(&[(own, -1), (other, 1)])?;
        warm_up(&set.sem(own, false)?)?;
        me.begin();
        while me.goes_on() {
            me.timed(|| exchange.call())?;
            me.count += 1;
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

/// Runs it: microseconds of a call.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let args = Args { common: args.common.clone().with(&[Placement::One, Placement::Spread], &[Load::Idle]) };
    let case = Case {
        name: "call".to_owned(),
        scene: Scene::LatSem(Exchange),
        tasks: 2,
        threads: false,
        cpus: None,
        amount: Amount::Fixed,
        unit: Unit::Us,
        score: Outcome::us,
        kinds: Kind::is_system_v,
    };
    contest::run("lat-sem", &args, &args.common, env, vec![case])
}
