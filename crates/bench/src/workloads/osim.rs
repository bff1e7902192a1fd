//! Many processes on few semaphores, all begun by one SETALL: locks of a database, simulated.

use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Kind, Sem, Set};
use crate::busy::Busy;
use crate::contest::{self, Amount, Case, Common, Load, Placement};
use crate::crowd::{Member, Outcome, Scene, Script, warm_up};
use crate::report::Unit;
use crate::{Env, Error, Report};

/// Each task takes the semaphore of its number, works, gives, works. The conductor begins by setting all to one, and waits until each task
/// has taken one from the last semaphore.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Simulation {
    /// How many semaphores.
    pub sems: u16,
    /// The work with one taken.
    pub inside: Busy,
    /// The work without.
    pub outside: Busy,
}

impl Script for Simulation {
    fn sets(&self, _: usize) -> Vec<Vec<u16>> {
        vec![vec![0; usize::from(self.sems) + 1]]
    }
    fn has_conductor(&self) -> bool {
        true
    }

    fn play<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno> {
        let set = me.set(0)?;
        let last = set.sem(self.sems, false)?;
        if me.index == me.tasks {
            let sems: Vec<_> = (0..self.sems).map(|num| set.sem(num, false)).collect::<Result<_, _>>()?;
            me.begin();
            // The children sleep first.
            while sems.iter().try_fold(0, |sum, sem| Ok(sum + sem.sleepers()? as usize))? < me.tasks && !me.is_over() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let mut values = vec![1; self.sems.into()];
            values.push(me.tasks as u16);
            me.began();
            set.set_values(&values)?;
            return last.wait_zero();
        }
        let own = set.sem((me.index % usize::from(self.sems)) as u16, false)?;
        warm_up(&own)?;
        me.begin();
        while me.goes_on() {
            own.take()?;
            self.inside.run();
            own.give()?;
            self.outside.run();
            me.count += 1;
        }
        last.take()
    }
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// How many semaphores.
    #[arg(default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub sems: u16,
    /// How many processes.
    #[arg(default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub tasks: u16,
    /// Loops of all processes together; 0: as many as take about the time of a round.
    #[arg(default_value_t = 0)]
    pub loops: u64,
    /// Turns of an empty loop with a semaphore taken.
    #[arg(default_value_t = 0)]
    pub busy_in: u64,
    /// Turns of an empty loop without.
    #[arg(default_value_t = 0)]
    pub busy_out: u64,
    /// What all crowds have.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// Runs it: microseconds of a loop, which is two calls.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let args = Args { common: args.common.clone().with(&[Placement::None], &[Load::Idle]), ..args.clone() };
    let (inside, outside) = (Busy(args.busy_in), Busy(args.busy_out));
    let case = Case {
        name: format!("{} {}", args.sems, args.tasks),
        scene: Scene::Osim(Simulation { sems: args.sems, inside, outside }),
        tasks: args.tasks.into(),
        threads: false,
        cpus: None,
        amount: if args.loops == 0 { Amount::Fixed } else { Amount::Loops(args.loops.div_ceil(args.tasks.into())) },
        unit: Unit::Us,
        score: Outcome::us,
        kinds: Kind::is_system_v,
    };
    contest::run("osim", &args, &args.common, env, vec![case])
}
