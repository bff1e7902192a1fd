//! Carries a random program out, step by step, and tells what everybody saw.

use std::collections::BTreeMap;
use std::time::Duration;

use manyway_sem::Errno;

use super::program::{Act, Program, Step, Timeout};
use crate::agent::Agent;
use crate::protocol::{Clone, Command, NewImage, Op, Res};
use crate::world::{Set, Setup, World};

const SHORT: Duration = Duration::from_millis(3);
/// So many workers at most.
const MOST: usize = 7;
const LONG: Duration = Duration::from_secs(600);

/// How often what happened.
pub type Marks = BTreeMap<&'static str, u32>;

/// A namespace and workers that carry out one program after another.
pub struct Stage {
    world: World,
    workers: Vec<Worker>,
    /// Workers that the current program has no use for yet.
    idle: Vec<Agent>,
    /// Never sleeps and never dies: acts when all others sleep.
    helper: Agent,
    sets: Vec<Set>,
    /// The text of the current step.
    text: Vec<String>,
    marks: Marks,
    /// How many workers the current program has at least.
    wanted: usize,
    born: u32,
    /// Order in which sleepers fell asleep.
    clock: u32,
}

struct Worker {
    agent: Agent,
    /// Not its process's first thread.
    thread: bool,
    asleep: Option<Asleep>,
}

struct Asleep {
    since: u32,
    ops: Vec<Op>,
    set: usize,
}

impl Stage {
    /// A stage on a namespace of its own.
    pub fn new(setup: Setup) -> Stage {
        let world = World::new(setup);
        let helper = world.worker("helper");
        let (marks, text) = Default::default();
        Stage { world, workers: Vec::new(), idle: Vec::new(), helper, sets: Vec::new(), text, marks, wanted: 0, born: 0, clock: 0 }
    }

    /// Carries out a program: what was seen after each step. Counts what happened in `marks`.
    pub fn run(&mut self, program: &Program, marks: &mut Marks) -> Vec<String> {
        self.marks.clear();
        // Names are the program's, so that the same program leaves the same text. Who lived through the last one takes part again.
        self.idle.extend(self.workers.drain(..).filter(|w| !w.thread).map(|w| w.agent));
        self.born = 0;
        self.wanted = program.workers;
        self.complete();
        self.sets = program.sets.iter().map(|n| self.world.set(&self.helper, *n)).collect();
        let seen = program.steps.iter().map(|step| self.step(step)).collect();
        for set in std::mem::take(&mut self.sets) {
            self.helper.remove(set).expect("own set");
        }
        for w in &self.workers {
            if w.asleep.is_some() {
                w.agent.finish().expect("EIDRM");
            }
        }
        for (what, n) in &self.marks {
            *marks.entry(what).or_default() += n;
        }
        seen
    }

    /// Starts workers until there are as many as wanted.
    fn complete(&mut self) {
        while self.workers.len() < self.wanted {
            let new = self.new_worker();
            self.workers.push(new);
        }
    }
    fn name(&mut self) -> String {
        self.born += 1;
        format!("W{}", self.born)
    }
    fn new_worker(&mut self) -> Worker {
        let name = self.name();
        let agent = match self.idle.pop() {
            Some(agent) => self.world.rename(agent, &name),
            None => self.world.worker(&name),
        };
        agent.handle(libc::SIGUSR1, true);
        Worker { agent, thread: false, asleep: None }
    }

    fn mark(&mut self, what: &'static str) {
        *self.marks.entry(what).or_default() += 1;
    }

    /// Index of the `who`th worker that sleeps, or that does not.
    fn pick(&self, who: usize, asleep: bool) -> Option<usize> {
        let fit: Vec<usize> = (0..self.workers.len()).filter(|i| self.workers[*i].asleep.is_some() == asleep).collect();
        (!fit.is_empty()).then(|| fit[who % fit.len()])
    }

    fn step(&mut self, step: &Step) -> String {
        self.text.clear();
        let before: Vec<_> = self.sets.iter().map(|s| self.world.snapshot(*s)).collect();
        let served = self.act(step);
        let counts = |snapshots: &[crate::Snapshot]| -> Vec<[i32; 2]> {
            snapshots.iter().flat_map(|s| s.sems.iter().map(|x| [x[2], x[3]])).collect()
        };
        let after: Vec<_> = self.sets.iter().map(|s| self.world.snapshot(*s)).collect();
        let asleep = self.workers.iter().filter(|w| w.asleep.is_some()).count();
        if served == 0 && matches!(step.act, Act::SetVal { .. }) && asleep > 0 && counts(&before) != counts(&after) {
            self.mark("blocker moves");
        }
        if asleep >= 2 {
            self.mark("two sleep");
        }
        if asleep >= 3 {
            self.mark("three sleep");
        }
        for (set, snapshot) in self.sets.iter().zip(&after) {
            let sems: Vec<String> =
                snapshot.sems.iter().map(|s| format!("{} by {} {}/{}", s[0], self.world.who(i64::from(s[1])), s[2], s[3])).collect();
            let used = self.helper.stat(*set).is_ok_and(|s| s.otime != 0);
            self.text.push(format!("{}{}", sems.join(", "), if used { "" } else { " (unused)" }));
        }
        self.text.join(" | ")
    }

    /// Carries out one step; how many sleepers it served.
    fn act(&mut self, step: &Step) -> u32 {
        match &step.act {
            Act::Op { set, ops, timeout } => self.op(step.who, *set, ops, *timeout),
            Act::SetVal { set, num, val } => {
                let agent = self.actor(step.who);
                let s = self.sets[*set % self.sets.len()];
                let ret = agent.setval(s, i32::from(*num) % s.n as i32, i32::from(*val));
                self.text.push(format!("{} SETVAL [{num}]={val}: {ret:?}", agent.name()));
                self.settle("SETVAL serves")
            }
            Act::SetAll { set, vals } => {
                let agent = self.actor(step.who);
                let s = self.sets[*set % self.sets.len()];
                let ret = agent.set_all(s, &vals[..s.n]);
                self.text.push(format!("{} SETALL {:?}: {ret:?}", agent.name(), &vals[..s.n]));
                self.settle("SETALL serves")
            }
            Act::Remove { set } => {
                let agent = self.actor(step.who);
                let at = *set % self.sets.len();
                let ret = agent.remove(self.sets[at]);
                self.text.push(format!("{} IPC_RMID {at}: {ret:?}", agent.name()));
                let served = self.settle("IPC_RMID serves");
                self.sets[at] = self.world.set(&self.helper, self.sets[at].n);
                served
            }
            Act::Kill => {
                let i = step.who % self.workers.len();
                if self.workers[i].asleep.is_some() {
                    self.mark("death of a sleeper");
                }
                self.text.push(format!("{} is killed", self.workers[i].agent.name()));
                self.world.kill(&self.workers[i].agent);
                self.buried(i)
            }
            Act::Signal => {
                let Some(i) = self.pick(step.who, true) else { return 0 };
                self.workers[i].agent.signal(libc::SIGUSR1);
                let reply = self.workers[i].agent.finish().expect("a signal ends the sleep");
                self.text.push("signal".to_owned());
                self.woken(i, reply.res());
                self.settle("a signal serves")
            }
            Act::ThreadExit => {
                let threads: Vec<usize> =
                    (0..self.workers.len()).filter(|i| self.workers[*i].thread && self.workers[*i].asleep.is_none()).collect();
                if threads.is_empty() {
                    return 0;
                }
                self.mark("thread exits");
                let gone = self.workers.remove(threads[step.who % threads.len()]);
                self.text.push(format!("{} ends", gone.agent.name()));
                self.world.exit_thread(&gone.agent);
                self.complete();
                self.settle("a thread's end serves")
            }
            Act::Exit | Act::Exec | Act::Unshare | Act::Fork | Act::Thread => {
                self.pick(step.who, false).map_or(0, |i| self.process_act(i, &step.act))
            }
        }
    }

    /// What a process does with itself.
    fn process_act(&mut self, i: usize, act: &Act) -> u32 {
        let agent = self.workers[i].agent.clone();
        let me = agent.name().to_owned();
        let alone = self.workers.iter().filter(|w| w.agent.pid() == agent.pid()).count() == 1;
        match act {
            Act::Exit => {
                self.mark("exit");
                self.text.push(format!("{me} exits"));
                self.world.exit(&agent);
                self.buried(i)
            }
            Act::Exec => {
                self.mark("execve");
                self.text.push(format!("{me} executes"));
                let agent = self.world.exec(&agent, NewImage::Same, &me);
                agent.handle(libc::SIGUSR1, true);
                // The process's other threads are gone.
                self.workers.retain(|w| w.agent.pid() != agent.pid());
                self.workers.push(Worker { agent, thread: false, asleep: None });
                self.complete();
                self.look();
                self.settle("execve serves")
            }
            // With several threads the kernel gives one a list of its own: not kept.
            Act::Unshare if alone => {
                self.mark("unshare");
                let ret = agent.call(Command::UnshareUndo).res();
                self.text.push(format!("{me} unshares: {ret:?}"));
                self.settle("unshare serves")
            }
            Act::Fork | Act::Thread if self.workers.len() < MOST => {
                let thread = matches!(act, Act::Thread);
                self.mark(if thread { "thread" } else { "fork" });
                let name = self.name();
                let how = if thread { Clone::Thread } else { Clone::Fork };
                self.text.push(format!("{me} makes {name} by {how:?}"));
                let agent = self.world.clone(&agent, how, &name);
                self.workers.push(Worker { agent, thread, asleep: None });
                0
            }
            _ => 0,
        }
    }

    /// Who does what cannot sleep: a worker that is awake, or the helper.
    fn actor(&self, who: usize) -> Agent {
        self.pick(who, false).map_or_else(|| self.helper.clone(), |i| self.workers[i].agent.clone())
    }

    fn op(&mut self, who: usize, set: usize, ops: &[Op], timeout: Timeout) -> u32 {
        let set = set % self.sets.len();
        let s = self.sets[set];
        let ops: Vec<Op> = ops.iter().map(|o| Op { num: o.num % s.n as u16, ..*o }).collect();
        let slept_on =
            self.workers.iter().filter_map(|w| w.asleep.as_ref()).any(|a| a.set == set && a.ops.iter().any(|o| o.num == ops[0].num));
        let Some(i) = self.pick(who, false) else {
            let ops: Vec<Op> = ops.into_iter().map(Op::nowait).collect();
            let ret = self.helper.op(s, &ops);
            self.text.push(format!("helper {set}{ops:?}: {ret:?}"));
            self.mark_return(&ops, ret, false);
            return self.settle("an operation serves");
        };
        let agent = self.workers[i].agent.clone();
        let reply = match timeout {
            Timeout::None => {
                agent.start_op(s, &ops, None);
                self.world.settle(&agent)
            }
            Timeout::Long => {
                agent.start_op(s, &ops, Some(LONG));
                self.world.settle(&agent)
            }
            Timeout::Short => {
                agent.start_op(s, &ops, Some(SHORT));
                agent.finish()
            }
        };
        let Some(reply) = reply else {
            self.text.push(format!("{} {set}{ops:?}: sleeps", agent.name()));
            self.mark(match (ops.len(), ops[0].op) {
                (1, 0) => "zero sleeps",
                (1, _) => "simple sleeps",
                _ => "complex sleeps",
            });
            self.clock += 1;
            self.workers[i].asleep = Some(Asleep { since: self.clock, ops, set });
            return 0;
        };
        self.text.push(format!("{} {set}{ops:?}: {:?}", agent.name(), reply.res()));
        self.mark_return(&ops, reply.res(), timeout == Timeout::Short);
        if slept_on && reply.res().is_ok() && ops.iter().any(|o| o.op < 0) {
            self.mark("newcomer overtakes sleeper");
        }
        self.settle("an operation serves")
    }

    fn mark_return(&mut self, ops: &[Op], ret: Res, short: bool) {
        let undo = ops.iter().any(|o| *o == Op { flg: 0, ..*o }.undo());
        match ret {
            Ok(_) => {
                self.mark(match (ops.len(), ops[0].op) {
                    (1, 0) => "zero done",
                    (1, _) => "simple done",
                    _ => "complex done",
                });
                if undo {
                    self.mark("undo done");
                }
            }
            Err(Errno::EAGAIN) if short && ops.iter().all(|o| *o != o.nowait()) => self.mark("EAGAIN by timeout"),
            Err(Errno::EAGAIN) => self.mark("EAGAIN by IPC_NOWAIT"),
            Err(Errno::ERANGE) => self.mark("ERANGE"),
            Err(_) => {}
        }
    }

    /// A process died: looks what that changed, and completes the workers.
    fn buried(&mut self, i: usize) -> u32 {
        let pid = self.workers[i].agent.pid();
        let before = self.workers.len();
        self.workers.retain(|w| w.agent.pid() != pid);
        if before - self.workers.len() > 1 {
            self.mark("death of several threads");
        }
        self.look();
        self.complete();
        self.settle("death serves")
    }

    /// On Manyway it is whoever looks next that finds the dead.
    fn look(&self) {
        for s in &self.sets {
            self.world.snapshot(*s);
        }
    }

    /// Waits until each worker has returned or sleeps; how many were served.
    fn settle(&mut self, by: &'static str) -> u32 {
        let mut served = 0;
        let first = self.workers.iter().filter_map(|w| w.asleep.as_ref()).map(|a| a.since).min();
        let mut latest_served = None;
        for i in 0..self.workers.len() {
            let Some(asleep) = &self.workers[i].asleep else { continue };
            let since = asleep.since;
            let Some(reply) = self.world.settle(&self.workers[i].agent) else {
                continue;
            };
            if reply.res().is_ok() {
                served += 1;
                latest_served = latest_served.max(Some(since));
            }
            self.woken(i, reply.res());
        }
        if served > 0 {
            self.mark(by);
        }
        if served > 1 {
            self.mark("one step serves two");
        }
        let still = self.workers.iter().filter_map(|w| w.asleep.as_ref()).map(|a| a.since).min();
        if latest_served.is_some_and(|l| still == first && still < Some(l)) {
            self.mark("sleeper overtakes sleeper");
        }
        served
    }

    fn woken(&mut self, i: usize, ret: Res) {
        self.workers[i].asleep = None;
        self.text.push(format!("{} returns {ret:?}", self.workers[i].agent.name()));
        match ret {
            Ok(_) => self.mark("sleeper served"),
            Err(Errno::EAGAIN) => self.mark("sleeper EAGAIN"),
            Err(Errno::ERANGE) => self.mark("sleeper ERANGE"),
            Err(Errno::EINTR) => self.mark("EINTR"),
            Err(Errno::EIDRM) => self.mark("EIDRM"),
            Err(_) => {}
        }
    }
}
