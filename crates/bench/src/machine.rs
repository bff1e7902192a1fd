//! What the figures were taken on.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// CPUs that are on line.
    pub cpus: usize,
    /// CPUs that this process may use.
    pub allowed: usize,
    /// Its instruction set.
    pub arch: String,
    /// True when a hypervisor is underneath: absolute times mean little.
    pub virtual_machine: bool,
    /// The kernel's release.
    pub kernel: String,
    /// Runnable tasks, averaged over the minute before the run.
    pub load: f64,
}

impl Machine {
    /// Looks at this machine.
    pub fn here() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|l| l.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let uname = rustix::system::uname();
        Machine {
            cpu: field("model name").or_else(|| field("CPU part")).unwrap_or_else(|| "unknown".to_owned()),
            cpus: cpuinfo.lines().filter(|l| l.starts_with("processor")).count().max(1),
            allowed: allowed_cpus().map_or(1, |c| c.len()),
            arch: std::env::consts::ARCH.to_owned(),
            virtual_machine: field("flags").is_some_and(|f| f.split(' ').any(|flag| flag == "hypervisor")),
            kernel: uname.release().to_string_lossy().into_owned(),
            load: load(),
        }
    }
}

/// The numbers of the CPUs that this process may use.
pub fn allowed_cpus() -> Result<Vec<usize>, Error> {
    let set = rustix::thread::sched_getaffinity(None).map_err(|e| Error::io("sched_getaffinity")(e.into()))?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Keeps the calling thread on one CPU.
pub fn pin(cpu: usize) -> Result<(), Error> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu < rustix::thread::CpuSet::MAX_CPU {
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| Error::io(format!("cannot run on CPU {cpu}"))(e.into()))
}

/// Runs `work` with the calling thread on one CPU.
pub fn while_pinned<T>(cpu: usize, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let before = rustix::thread::sched_getaffinity(None).map_err(|e| Error::io("sched_getaffinity")(e.into()))?;
    pin(cpu)?;
    let done = work();
    rustix::thread::sched_setaffinity(None, &before).map_err(|e| Error::io("sched_setaffinity")(e.into()))?;
    done
}

/// Nanoseconds of the monotonic clock, comparable between processes.
pub fn now_ns() -> u64 {
    clock_ns(rustix::time::ClockId::Monotonic)
}

/// Nanoseconds that the calling thread has run.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(rustix::time::ClockId::ThreadCPUTime)
}

fn clock_ns(clock: rustix::time::ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}
