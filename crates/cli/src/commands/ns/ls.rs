//! `manyway ns ls`.

use serde::Serialize;

use crate::args::NsLs;
use crate::exit::Result;
use crate::output::{Field, Report, Sheet, emit};
use crate::places::Surroundings;
use crate::portrait::{Portrait, size};

/// Namespaces.
#[derive(Serialize)]
struct Listing {
    namespaces: Vec<Portrait>,
}

impl Report for Listing {
    fn draw(&self, sheet: &mut Sheet) {
        let columns = ["name", "owner", "shared with", "sets>", "semaphores>", "processes>", "size>", "fairness", "limits", "directory"];
        sheet.table(
            columns,
            self.namespaces.iter().map(|one| {
                let inside = |number: fn(&crate::portrait::Inside) -> String| one.inside.as_ref().map(number).unwrap_or_else(|| "?".into());
                [
                    Field::from(&one.name),
                    Field::from(&one.owner),
                    inside(|i| i.share.clone()).into(),
                    inside(|i| i.sets.to_string()).into(),
                    inside(|i| i.semaphores.to_string()).into(),
                    inside(|i| i.processes.to_string()).into(),
                    size(one.bytes).into(),
                    inside(|i| i.fairness.into()).into(),
                    inside(|i| i.limits.clone()).into(),
                    Field::from(one.dir.display()),
                ]
            }),
        );
        for one in &self.namespaces {
            if let Some(error) = &one.error {
                sheet.line(format!("{}: {error}", one.name));
            }
        }
    }
}

pub fn run(args: &NsLs) -> Result<()> {
    let namespaces = Surroundings::real().list(args.all).into_iter().map(|(name, place)| Portrait::of(name, &place)).collect();
    emit(&Listing { namespaces }, args.json)
}
