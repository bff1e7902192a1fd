//! Walks of paths: Manyway's dentry cache, the kernel's, what authors put together from maps, and what it is set against on its own table.
//!
//! A worker is a process with one back end and the trees of its cases ([`tree`], [`backend`]); its threads walk ([`worker`]). The coordinator
//! takes one sample of each case and back end in turn, as all workloads do.

pub mod backend;
mod heap;
mod run;
pub mod trace;
pub mod tree;
pub mod worker;

pub use run::{Walker, run};

use serde::{Deserialize, Serialize};

use crate::cli::Pin;
use backend::Kind;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// 64 paths of four components, all cached.
    Hot,
    /// 8,192 paths, each walked once in a cache that has been emptied.
    Cold,
    /// Last names that nobody has looked for yet and that do not exist.
    Missing,
    /// Last names that do not exist, as is known.
    Negative,
    /// Paths of sixteen components.
    Deep,
    /// 65,536 files of one directory.
    Wide,
    /// As `hot`, while a directory that an eighth of the paths lead through is renamed every 20 µs.
    Rename,
    /// Rename of a directory with 100,000 cached descendants.
    RenameDir,
    /// Rename of a directory with 100.
    #[value(name = "rename-dir-100")]
    #[serde(rename = "rename-dir-100")]
    RenameDir100,
    /// Memory of a full cache for each entry.
    Bytes,
}

impl Case {
    /// As the command line and the report spell it.
    pub fn name(self) -> &'static str {
        match self {
            Case::Hot => "hot",
            Case::Cold => "cold",
            Case::Missing => "missing",
            Case::Negative => "negative",
            Case::Deep => "deep",
            Case::Wide => "wide",
            Case::Rename => "rename",
            Case::RenameDir => "rename-dir",
            Case::RenameDir100 => "rename-dir-100",
            Case::Bytes => "bytes",
        }
    }

    /// True when its walks can be made by many threads at once.
    fn is_walked(self) -> bool {
        !matches!(self, Case::RenameDir | Case::RenameDir100 | Case::Bytes)
    }

    /// True when all that is asked is cached, and nothing changes.
    fn is_steady(self) -> bool {
        matches!(self, Case::Hot | Case::Negative | Case::Deep | Case::Wide)
    }
}

impl Kind {
    /// False for what the back end has no way to do.
    fn can(self, case: Case) -> bool {
        match self {
            Kind::Floor | Kind::GlobalLock | Kind::Fastwalk => case.is_steady(),
            Kind::DcacheCounted => case != Case::Bytes,
            Kind::KernelTmpfs => !matches!(case, Case::Cold | Case::Bytes),
            Kind::KernelExt4 => case != Case::Bytes,
            _ => true,
        }
    }
}

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// Whose names.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "dcache,floor,global-lock,fastwalk,kernel-tmpfs,kernel-ext4,mutex-hashmap,rwlock-hashmap,dashmap,papaya,moka"
    )]
    pub backend: Vec<Kind>,
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_value = "hot,cold,missing,negative,deep,wide,rename,rename-dir,rename-dir-100,bytes")]
    pub case: Vec<Case>,
    /// Numbers of threads; each makes a case of its own, `hot-2` for two.
    #[arg(long, value_delimiter = ',', default_value = "1,2,8", value_parser = crate::cli::rounds)]
    pub threads: Vec<usize>,
    /// Seconds for each case on each back end.
    #[arg(long, default_value_t = 0.2)]
    pub secs: f64,
    /// Samples for each case on each back end.
    #[arg(long, default_value_t = 15, value_parser = crate::cli::rounds)]
    pub rounds: usize,
    /// CPUs to use, one thread each in this order, or `none` to leave it to the system.
    #[arg(long, default_value_t)]
    pub pin: Pin,
    /// Entries of the full cache of `bytes`.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(64..))]
    pub entries: u32,
    /// Instead of times: locks, written lines and instructions of a hot walk, from a look at each instruction of so many walks.
    #[arg(long, value_name = "WALKS", num_args = 0..=1, default_missing_value = "256", value_parser = clap::value_parser!(u32).range(1..))]
    pub trace: Option<u32>,
}
