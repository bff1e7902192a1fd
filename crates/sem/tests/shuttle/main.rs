//! The whole engine under shuttle's schedulers: several processes on one real arena in a simulated machine (`manyway_sync::sim`), where
//! anybody may die before any access to shared memory, get a signal, or run out of time. `just shuttle` runs it.
//!
//! `MANYWAY_SHUTTLE_ITERATIONS` schedules (a default otherwise), half of them by a uniform random walk, half by PCT. A failure names its
//! family, scheduler and seed (`MANYWAY_SHUTTLE_FIRST` is the first one's, for the same ones again); `MANYWAY_SHUTTLE_SEED=family:scheduler:seed` runs that one again, step by step the same, and
//! tells what happens.

#[cfg(shuttle)]
mod barging;
#[cfg(shuttle)]
mod comings;
#[cfg(shuttle)]
mod heirs;
#[cfg(shuttle)]
mod ledger;
#[cfg(shuttle)]
mod nested;
#[cfg(shuttle)]
mod onward;
#[cfg(shuttle)]
mod queue;
#[cfg(shuttle)]
mod removal;
#[cfg(shuttle)]
mod run;
#[cfg(shuttle)]
mod stage;
#[cfg(shuttle)]
mod values;

fn main() {
    #[cfg(shuttle)]
    run::main();
}
