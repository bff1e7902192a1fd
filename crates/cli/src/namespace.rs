//! Choosing a namespace and opening it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use manyway_sem::{Engine, OpenOptions, Share};

use crate::exit::{Failure, Result};
use crate::explain;
use crate::places::Surroundings;

/// Environment variable with the directory; `run` sets it for the program.
pub const DIR_VARIABLE: &str = "MANYWAY_DIR";
/// The one with the number of the directory's owner, where that may be somebody else than the program's user.
pub const OWNER_VARIABLE: &str = "MANYWAY_OWNER";

/// The options that choose a namespace.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Choice {
    /// Directory of the namespace [env: MANYWAY_DIR]
    #[arg(long, value_name = "DIR", conflicts_with = "ns", help_heading = "Namespace")]
    pub dir: Option<PathBuf>,
    /// Name of one of your namespaces, or OWNER/NAME for one that another user shares [env: MANYWAY_NS] [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Namespace")]
    pub ns: Option<String>,
}

/// Whether the directories above a namespace are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To use what exists.
    Find,
    /// To make it.
    Make,
}

/// A namespace's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it is.
    pub dir: PathBuf,
    /// Whose it may be, besides the caller's own and root's.
    pub owner: Option<u32>,
}

impl Place {
    /// The place that the options mean; with whom the one who asks wants to share it.
    pub fn find(choice: &Choice, intent: Intent, share: Option<Share>) -> Result<Place> {
        Surroundings::real().place(choice, intent, share)
    }

    /// Opens the namespace.
    pub fn open(&self, how: &OpenOptions) -> Result<Engine> {
        let name = CString::new(self.dir.as_os_str().as_bytes()).map_err(|e| Failure::io(self.dir.display(), e))?;
        Engine::open(&name, &OpenOptions { owner: self.owner, ..*how }).map_err(|error| explain::open_error(&self.dir, &error))
    }
}
