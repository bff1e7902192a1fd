//! What a namespace costs in memory: the blocks of its files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use crate::backend::Kind;
use crate::lab::Lab;
use crate::report::Unit;
use crate::rounds::{Series, interleave};
use crate::{Env, Error, Report};

/// Its command line.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Args {
    /// Sets of one semaphore to spread the cost of tables over.
    #[arg(long, default_value_t = 256, value_parser = crate::cli::rounds)]
    pub sets: usize,
    /// Namespaces to look at.
    #[arg(long, default_value_t = 3, value_parser = crate::cli::rounds)]
    pub rounds: usize,
}

const EMPTY: &str = "empty-namespace";
const SET: &str = "set-of-one";

/// Runs it, on the crate: what lies in the namespace is the same through the C symbols.
pub fn run(args: &Args, env: &Env) -> Result<Report, Error> {
    let mut series = [EMPTY, SET].map(|case| Series::new(case, Kind::Manyway, Unit::Bytes));
    interleave(&mut series, 0, args.rounds, |_, series| {
        let mut lab = Lab::open(env, Kind::Manyway, None)?;
        let empty = allocated(lab.dir())?;
        if series.case == EMPTY {
            return Ok(empty as f64);
        }
        for _ in 0..args.sets {
            lab.create(&[0])?;
        }
        Ok((allocated(lab.dir())? - empty) as f64 / args.sets as f64)
    })?;
    Ok(Report::new("footprint", args, &series))
}

/// Bytes that the files of a directory occupy.
fn allocated(dir: &Path) -> Result<u64, Error> {
    let look = || -> std::io::Result<u64> {
        let mut blocks = 0;
        for entry in fs::read_dir(dir)? {
            blocks += entry?.metadata()?.blocks();
        }
        Ok(blocks * 512)
    };
    look().map_err(Error::io(format!("cannot look into {}", dir.display())))
}
