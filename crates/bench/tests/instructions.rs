//! Instructions per call of the fast paths, counted by single-stepping a worker: unlike times they are the same on a busy machine, so
//! a limit can hold them.

mod optimised;

use std::collections::HashMap;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_bench::backend::{Kind, SetId};
use manyway_bench::lab::{Lab, Worker};
use manyway_bench::worker::{Answer, Command};
use manyway_bench::workloads::uncontended::{Case, VALUES};
use manyway_bench::{Env, machine};
use manyway_testkit::preload_library;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use optimised::optimised;

/// Rounds of the loop that are stepped through; in some a second passes on the clock that stamps the operations.
const TIMES: u64 = 9;

/// What is counted, and the most that it may be: lowered when a fast path becomes shorter.
const LIMITS: [(&str, Kind, Case, f64); 6] = [
    ("inc-dec", Kind::Manyway, Case::IncDec, 50.0),
    ("zero", Kind::Manyway, Case::Zero, 50.0),
    ("undo", Kind::Manyway, Case::Undo, 125.0),
    ("two", Kind::Manyway, Case::Two, 160.0),
    ("preload-inc-dec", Kind::ManywayPreload, Case::IncDec, 155.0),
    ("preload-undo", Kind::ManywayPreload, Case::Undo, 300.0),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The measured programs are built once.
    arguments.test_threads = Some(1);
    let trials =
        LIMITS.map(|(name, kind, case, limit)| Trial::test(format!("instructions::{name}"), move || check(name, kind, case, limit)));
    let mut trials = Vec::from(trials);
    #[cfg(all(feature = "walk", target_arch = "x86_64"))]
    trials.push(Trial::test("instructions::walk-hot", check_walk));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The most instructions of a walk of four components, guard and loop included.
#[cfg(all(feature = "walk", target_arch = "x86_64"))]
const WALK_LIMIT: f64 = 780.0;

#[cfg(all(feature = "walk", target_arch = "x86_64"))]
fn check_walk() -> Result<(), Failed> {
    use manyway_bench::walk::{Case, backend, trace};
    let env = Env { worker: vec![optimised()?.into()], preload: None, watcher: None };
    let count = |kind| trace::profile(&env, kind, Case::Hot, 160).map(|profile| profile.instructions);
    let (walk, floor) = (count(backend::Kind::Dcache)?, count(backend::Kind::Floor)?);
    println!("walk-hot: {walk:.1} instructions per walk, at most {WALK_LIMIT}; its floor {floor:.1}");
    if walk > WALK_LIMIT {
        return Err(format!("{walk:.1} instructions per walk, more than {WALK_LIMIT}").into());
    }
    Ok(())
}

fn check(name: &str, kind: Kind, case: Case, limit: f64) -> Result<(), Failed> {
    let preload = if kind == Kind::ManywayPreload { Some(preload_library()?.to_owned()) } else { None };
    let env = Env { worker: vec![optimised()?.into()], preload, watcher: None };
    // Both on one CPU: they take turns.
    let cpu = *machine::allowed_cpus()?.last().ok_or("no CPU is allowed")?;
    machine::pin(cpu)?;
    let mut lab = Lab::open(&env, kind, Some(cpu))?;
    let set = lab.create(&VALUES)?;
    // The first calls attach the thread and resolve symbols.
    lab.keeper().ask(&Command::Repeat(set, case, 2))?;
    let (addresses, calls) = step(lab.keeper(), set, case)?;
    let round = period(&addresses).ok_or("the loop was not found")?;
    let each = round as f64 / (calls / TIMES) as f64;
    println!("{name}: {each:.1} instructions per call, at most {limit}");
    if each > limit {
        return Err(format!("{each:.1} instructions per call, more than {limit}").into());
    }
    Ok(())
}

/// Where the worker was after each instruction while it went through the case, and how many calls those were.
fn step(worker: &mut Worker, set: SetId, case: Case) -> Result<(Vec<u64>, u64), Failed> {
    let pid = Pid::from_raw(worker.pid() as i32);
    ptrace::attach(pid)?;
    waitpid(pid, None)?;
    worker.send(&Command::Repeat(set, case, TIMES))?;
    let mut addresses = Vec::new();
    while !worker.has_answered() {
        ptrace::step(pid, None)?;
        match waitpid(pid, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => addresses.push(counter(&ptrace::getregs(pid)?)),
            other => return Err(format!("the worker stopped otherwise: {other:?}").into()),
        }
    }
    ptrace::detach(pid, None)?;
    match worker.receive()? {
        Answer::Count(calls) => Ok((addresses, calls)),
        other => Err(worker.surprised(&other).into()),
    }
}

#[cfg(target_arch = "x86_64")]
fn counter(registers: &libc::user_regs_struct) -> u64 {
    registers.rip
}
#[cfg(target_arch = "aarch64")]
fn counter(registers: &libc::user_regs_struct) -> u64 {
    registers.pc
}

/// Instructions of one round of the loop: the least distance between two visits of an address that is visited once in each. Other
/// loops, in the command's parser, may be as frequent; none is as long.
fn period(addresses: &[u64]) -> Option<usize> {
    let mut visits: HashMap<u64, Vec<usize>> = HashMap::new();
    for (at, &address) in addresses.iter().enumerate() {
        visits.entry(address).or_default().push(at);
    }
    let once_a_round = visits.values().filter(|at| at.len() as u64 == TIMES);
    once_a_round.filter_map(|at| at.windows(2).map(|pair| pair[1] - pair[0]).min()).max()
}
