//! Benchmarks: each workload is written once and runs on every back end, interleaved in one run.
//!
//! A run is a coordinator and its **workers**. A worker is a process of its own that has joined one back end ([`backend`]) and carries
//! out, command by command, what the coordinator writes into its pipe ([`process`], [`worker`]); the coordinator touches no semaphore itself.
//! So the preloaded C symbols are measured like everything else: they are the kernel's back end in a worker that was started with
//! the library in `LD_PRELOAD`. A [`lab`] is one back end's place (namespace, shared file) with its workers; [`rounds`] takes one
//! sample of every case and back end in turn, so that whatever disturbs the machine disturbs all of them; [`report`] holds what
//! came out. Workloads are in [`workloads`], a file each, and their command line in [`cli`].
//!
//! [`walk`] is about another subject, walks of paths, with back ends and a worker of its own.
//!
//! How each figure is taken and how to read it: docs/benchmarks.md.
#![deny(unsafe_code)]

pub mod backend;
pub mod busy;
pub mod cli;
pub mod contest;
pub mod crowd;
mod error;
pub mod lab;
pub mod machine;
pub mod process;
pub mod report;
pub mod rounds;
pub mod stats;
#[cfg(feature = "walk")]
pub mod walk;
pub mod worker;
pub mod workloads;

pub use error::Error;
pub use report::Report;

use std::ffi::OsString;
use std::path::PathBuf;

/// What a benchmark needs to know of the program that runs it.
#[derive(Clone, Debug)]
pub struct Env {
    /// A command line that reaches [`cli::run`]; the workers are started by appending `worker …` to it (for example `manyway bench`).
    pub worker: Vec<OsString>,
    /// The library to preload; without it nothing can be measured through the C symbols.
    pub preload: Option<PathBuf>,
    /// A command line that watches a namespace until it is killed, to which the namespace's directory is appended.
    pub watcher: Option<Vec<OsString>>,
}
