//! Threads on semaphores of their own, or in pairs: how far operations on different semaphores of one set get into each other's way.

use std::hint::black_box;

use clap::ValueEnum;
use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Kind, Sem, Set, Several};
use crate::contest::{self, Amount, Case, Common};
use crate::crowd::{Member, Outcome, Scene, Script, warm_up};
use crate::report::Unit;
use crate::{Env, Error, Report, machine};

/// What a thread does in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Waits for zero on its own semaphore, which is zero: never sleeps.
    Zero,
    /// Takes from its own semaphore and gives to its partner's. Odd threads begin with a unit.
    PingPong,
    /// Zero and +1 on its own semaphore in one call, then −1.
    Double,
}

/// A thread of the benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scale {
    /// What it does.
    pub mode: Mode,
    /// Semaphores from one thread's to the next one's.
    pub distance: u16,
    /// Bubble sorts after each operation.
    pub delay: u32,
    /// Each so many rounds of ping-pong are made by calls of two operations; 0: none.
    pub complex: u64,
}

impl Scale {
    fn num(&self, thread: usize) -> u16 {
        self.distance * (thread as u16 + 1) - 1
    }
    #[inline(always)]
    fn pause(&self) {
        for _ in 0..self.delay {
            bubble_sort();
        }
    }
}

/// Sorts twelve numbers that come in reverse.
fn bubble_sort() {
    let mut numbers = black_box([12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    for end in (1..numbers.len()).rev() {
        for at in 0..end {
            if numbers[at] > numbers[at + 1] {
                numbers.swap(at, at + 1);
            }
        }
    }
    black_box(numbers);
}

impl Script for Scale {
    fn sets(&self, tasks: usize) -> Vec<Vec<u16>> {
        let mut values = vec![0; tasks * usize::from(self.distance)];
        if self.mode == Mode::PingPong {
            (1..tasks).step_by(2).for_each(|thread| values[usize::from(self.num(thread))] = 1);
        }
        vec![values]
    }

    fn play<B: Backend>(&self, me: &mut Member<'_, B>) -> Result<(), Errno> {
        let set = me.set(0)?;
        let (num, partner) = (self.num(me.index), self.num(me.index ^ 1));
        let own = set.sem(num, false)?;
        warm_up(&own)?;
        match self.mode {
            Mode::Zero => {
                me.begin();
                while me.goes_on() {
                    own.wait_zero()?;
                    self.pause();
                    me.count += 1;
                }
            }
            Mode::Double => {
                let raise = set.several(&[(num, 0), (num, 1)])?;
                me.begin();
                while me.goes_on() {
                    raise.call()?;
                    self.pause();
                    own.take()?;
                    self.pause();
                    me.count += 1;
                }
            }
            Mode::PingPong => {
                let other = set.sem(partner, false)?;
                let double = if self.complex == 0 {
                    None
                } else {
                    Some((set.several(&[(num, -1), (num, 0)])?, set.several(&[(partner, 0), (partner, 1)])?))
                };
                me.begin();
                while me.goes_on() {
                    match &double {
                        Some((take, give)) if (me.count + me.index as u64).is_multiple_of(self.complex) => {
                            take.call()?;
                            self.pause();
                            give.call()?;
                        }
                        _ => {
                            own.take()?;
                            self.pause();
                            other.give()?;
                        }
                    }
                    self.pause();
                    me.count += 1;
                }
            }
        }
        Ok(())
    }
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// What the threads do; each is a case.
    #[arg(short, long, value_delimiter = ',', default_value = "zero,ping-pong,double")]
    pub mode: Vec<Mode>,
    /// How many threads; each number is a case. Ping-pong takes an even number.
    #[arg(short = 'p', long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Vec<u16>,
    /// CPUs from one group of threads to the next.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub interleave: u16,
    /// Threads of a group: they run on one CPU.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub group: u16,
    /// Bubble sorts of twelve numbers after each operation.
    #[arg(short, long, default_value_t = 0)]
    pub delay: u32,
    /// Semaphores from one thread's to the next one's.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub distance: u16,
    /// Each so many rounds of ping-pong are made by calls of two operations; 0: none.
    #[arg(short = 'x', long, default_value_t = 0)]
    pub complex: u64,
    /// Processes instead of threads.
    #[arg(long)]
    pub processes: bool,
    /// What all crowds have; `--pin` takes the place of `--interleave` and `--group`.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// The CPUs of the threads: from the first CPU, each group `interleave` further; behind the last one from the second, the third, …
fn cpus(threads: usize, group: usize, interleave: usize, count: usize) -> Vec<usize> {
    let (mut cpu, mut first) = (0, 0);
    let mut cpus = Vec::with_capacity(threads);
    for thread in 0..threads {
        if thread > 0 && thread.is_multiple_of(group) {
            cpu += interleave;
            if cpu >= count {
                first = (first + 1) % interleave.min(count);
                cpu = first;
            }
        }
        cpus.push(cpu);
    }
    cpus
}

/// Runs it: rounds of all threads per second.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let args = Args { common: args.common.clone().with_load(), ..args.clone() };
    let allowed = machine::allowed_cpus()?;
    let mut cases = Vec::new();
    for &mode in &args.mode {
        let mut seen = Vec::new();
        for &threads in &args.threads {
            let threads = if mode == Mode::PingPong { usize::from(threads).next_multiple_of(2) } else { threads.into() };
            if seen.contains(&threads) {
                continue;
            }
            seen.push(threads);
            let placed = cpus(threads, args.group.into(), args.interleave.into(), allowed.len());
            let scale = Scale { mode, distance: args.distance, delay: args.delay, complex: args.complex };
            let name = mode.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
            cases.push(Case {
                name: format!("{name} {threads}"),
                scene: Scene::Semscale(scale),
                tasks: threads,
                threads: !args.processes,
                cpus: args.common.pin.is_empty().then(|| placed.into_iter().map(|cpu| allowed[cpu]).collect()),
                amount: Amount::Timed,
                unit: Unit::PerSecond,
                score: Outcome::rate,
                kinds: if mode == Mode::PingPong && args.complex == 0 { |_| true } else { Kind::is_system_v },
            });
        }
    }
    contest::run("semscale", &args, &args.common, env, cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_round_the_cpus() {
        assert_eq!(cpus(5, 1, 1, 4), [0, 1, 2, 3, 0]);
        assert_eq!(cpus(6, 1, 2, 4), [0, 2, 1, 3, 0, 2]);
        assert_eq!(cpus(6, 2, 1, 2), [0, 0, 1, 1, 0, 0]);
        assert_eq!(cpus(3, 1, 8, 2), [0, 1, 0]);
    }
}
