//! Why a benchmark could not run, and what to do.

use std::path::PathBuf;

use manyway_sem::Errno;

use crate::backend::Kind;

/// Why a benchmark could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A semaphore call of a back end failed.
    #[error("{backend}: {call}: {errno}{}", hint(*.backend, *.errno))]
    Call {
        /// Which back end.
        backend: Kind,
        /// Which call.
        call: &'static str,
        /// How it failed.
        errno: Errno,
    },
    /// A namespace could not be opened.
    #[error(transparent)]
    Namespace(#[from] manyway_sem::NamespaceError),
    /// Something of the operating system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// How it failed.
        source: std::io::Error,
    },
    /// A worker reported that it could not do its part.
    #[error("worker {pid}: {what}")]
    Worker {
        /// The worker's process id.
        pid: u32,
        /// What it said.
        what: String,
    },
    /// A worker ended, or wrote what is no answer.
    #[error("worker {pid} of back end {backend} {what}; run it again, and if it persists look at `dmesg` for a killed process")]
    Lost {
        /// The worker's process id.
        pid: u32,
        /// Its back end.
        backend: &'static str,
        /// How it was lost.
        what: String,
    },
    /// The back end lacks what the workload needs.
    #[error("back end {backend} cannot do {what}; leave it out of --backend")]
    Unsupported {
        /// Which back end.
        backend: Kind,
        /// What it lacks.
        what: &'static str,
    },
    /// The library to preload is not there.
    #[error(
        "no library to preload: build it with `cargo rustc --release -p manyway-preload --crate-type cdylib`, or choose others with --backend"
    )]
    NoLibrary,
    /// The library was named but the loader did not use it.
    #[error("{}: was not loaded into the worker, which still uses the kernel's semaphores; see what `LD_DEBUG=libs` says", .0.display())]
    NotPreloaded(PathBuf),
    /// The workload needs more CPUs.
    #[error("needs {needed} CPUs, and --pin or the process's affinity leave {have}")]
    Cpus {
        /// How many it needs.
        needed: usize,
        /// How many there are.
        have: usize,
    },
    /// The back ends chosen leave nothing to measure.
    #[error("none of the back ends in --backend can run this workload")]
    NothingToDo,
}

impl Error {
    /// For `map_err` on system calls: says what was tried.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { what: what.into(), source }
    }
}

/// What to do about the failures that a machine's set-up explains.
fn hint(backend: Kind, errno: Errno) -> &'static str {
    match (backend, errno) {
        (Kind::Kernel, Errno::ENOSYS) => "; this system has no System V semaphores: leave kernel out of --backend",
        (Kind::Kernel, Errno::ENOSPC) => "; the kernel's limits are used up: see `ipcs -s` and `sysctl kernel.sem`",
        _ => "",
    }
}
