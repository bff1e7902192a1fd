//! `manyway completions`: a shell's completion script.

use crate::args::{self, Completions};
use crate::exit::Result;
use crate::output::print;

pub fn run(args: &Completions) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::definition(), "manyway", &mut script);
    print(&String::from_utf8_lossy(&script))
}
