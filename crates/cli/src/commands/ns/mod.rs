//! `manyway ns`: namespaces as wholes.

mod ls;
mod rm;
mod set;

use crate::args::{Ns, NsCommand};
use crate::exit::Result;

pub fn run(args: &Ns) -> Result<()> {
    match &args.command {
        NsCommand::Ls(args) => ls::run(args),
        NsCommand::Set(args) => set::run(args),
        NsCommand::Rm(args) => rm::run(args),
    }
}
