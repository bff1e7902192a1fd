//! `manyway ls`: the sets of a namespace.

use std::path::PathBuf;

use serde::Serialize;

use crate::args::Ls;
use crate::exit::Result;
use crate::layouts::{self, OtherLayout};
use crate::output::{Field, Report, Sheet, emit};
use crate::survey::{Set, Survey};

/// The sets of a namespace.
#[derive(Serialize)]
struct Listing {
    namespace: PathBuf,
    /// Carried out so far, by programs that have ended too.
    operations: u64,
    sets: Vec<Set>,
    /// Of other versions of Manyway, in the same directory.
    other_layouts: Vec<OtherLayout>,
}

impl Report for Listing {
    fn draw(&self, sheet: &mut Sheet) {
        draw_sets(sheet, &self.sets);
        for other in &self.other_layouts {
            sheet.line(other.to_string());
        }
    }
}

/// Draws sets in the columns of `ipcs -s`, and what the kernel does not tell after them.
pub fn draw_sets(sheet: &mut Sheet, sets: &[Set]) {
    let columns = ["key", "semid>", "owner", "perms", "nsems>", "creator", "holders>", "sleepers>"];
    sheet.table(
        columns,
        sets.iter().map(|set| {
            [
                Field::from(&set.key),
                set.id.into(),
                Field::from(&set.owner),
                Field::from(&set.perms),
                set.nsems.into(),
                Field::alarm(&set.creator, !set.creator.alive),
                set.holders.into(),
                set.sleepers.into(),
            ]
        }),
    );
}

pub fn run(args: &Ls) -> Result<()> {
    let survey = Survey::open(&args.namespace)?;
    let listing = Listing {
        namespace: survey.dir().to_owned(),
        operations: survey.operations(),
        sets: survey.sets(),
        other_layouts: layouts::beside(survey.dir()),
    };
    emit(&listing, args.json)
}
