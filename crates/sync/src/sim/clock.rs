//! The clock: a task that goes on only when nobody else can, and the scheduler that keeps to that.

extern crate std;

use core::time::Duration;
use std::vec::Vec;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use super::{World, begin, me, with};
use crate::Errno;

/// The clock is the first task that the main one spawns.
const CLOCK: usize = 1;
const MAIN: usize = 0;
/// Timeouts in one run after which somebody is held to be stuck.
const STUCK: u32 = 3000;

#[derive(Default)]
pub(super) struct State {
    closing: bool,
    /// The main task waits until nobody can go on, and so many looks about have been made.
    main_waits: Option<u32>,
    fired: u32,
}

impl World {
    fn can_go_on(&self, task: usize) -> bool {
        task != CLOCK && !self.sleeps(task) && !(task == MAIN && self.clock.main_waits.is_some())
    }
}

/// A scheduler under which who sleeps does not run, and the clock only when nobody else can.
#[derive(Debug)]
pub struct Clocked<S>(pub S);

impl<S: Scheduler> Scheduler for Clocked<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        let schedule = self.0.new_execution()?;
        begin();
        Some(schedule)
    }
    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        let able: Option<Vec<&Task>> = with(|w| {
            w.steps += 1;
            runnable.iter().copied().filter(|t| w.can_go_on(t.id().into())).collect()
        });
        match able {
            Some(able) if !able.is_empty() => self.0.next_task(&able, current, is_yielding),
            // Nobody but the clock.
            _ => runnable.iter().map(|t| t.id()).find(|&t| usize::from(t) == CLOCK).or_else(|| runnable.first().map(|t| t.id())),
        }
    }
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Begins the clock. The first thing that a run's main task does.
pub fn start_clock() -> shuttle::thread::JoinHandle<()> {
    shuttle::thread::spawn(|| {
        assert_eq!(me(), Some(CLOCK), "the clock is begun first");
        while with(tick) == Some(true) {
            shuttle::thread::sleep(Duration::ZERO);
        }
    })
}

/// The run is over: the clock ends.
pub fn closing() {
    with(|w| w.clock.closing = true);
}

/// Waits until nobody can go on, after so many looks about of sleepers. Called by the main task. Returns process and thread of those who wait.
pub fn wait_idle(ticks: u32) -> Vec<(u32, u32)> {
    with(|w| w.clock.main_waits = Some(ticks));
    while with(|w| w.clock.main_waits.is_some()) == Some(true) {
        shuttle::thread::sleep(Duration::ZERO);
    }
    with(|w| w.tasks.values().filter(|t| t.wait.is_some()).map(|t| (t.pid, t.tid)).collect()).unwrap_or_default()
}

/// Nobody can go on: the wait that ends first ends. False: the run is over.
fn tick(w: &mut World) -> bool {
    if w.clock.closing {
        return false;
    }
    let first = w.tasks.iter().filter_map(|(&task, t)| t.wait.as_ref().map(|wait| (wait.until, task, wait.tick))).min();
    // A deadline comes in any case; a look about only while one is left.
    let deadline = w.tasks.iter().filter_map(|(&task, t)| t.wait.as_ref().map(|wait| (wait.until, task, wait.tick))).find(|d| !d.2);
    let next = match (&mut w.clock.main_waits, deadline) {
        (Some(0), None) => None,
        (Some(left), None) if first.is_some() => {
            *left -= 1;
            first
        }
        (_, Some(_)) => deadline,
        (_, None) => first,
    };
    match next {
        Some((until, task, _)) => {
            w.clock.fired += 1;
            assert!(w.clock.fired < STUCK, "somebody waits for ever");
            w.now = w.now.max(until);
            if let Some(t) = w.tasks.get_mut(&task) {
                t.woken = Some(Err(Errno::ETIMEDOUT));
            }
        }
        None => assert!(w.clock.main_waits.take().is_some(), "nobody can go on"),
    }
    true
}
