//! `manyway man`: the manual pages.

use crate::args::{self, Man};
use crate::exit::{Failure, Result};
use crate::output::print;

pub fn run(args: &Man) -> Result<()> {
    let definition = args::definition();
    match &args.dir {
        Some(dir) => clap_mangen::generate_to(definition, dir)
            .map_err(|e| Failure::io(format!("cannot write manual pages to {}", dir.display()), e).advise("The directory must exist.")),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(definition).render(&mut page).map_err(|e| Failure::io("cannot make the manual page", e))?;
            print(&String::from_utf8_lossy(&page))
        }
    }
}
