//! `manyway rm`: removes sets.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Serialize;

use super::ls::draw_sets;
use crate::args::Rm;
use crate::exit::{Failure, Result};
use crate::output::{Report, Sheet, emit};
use crate::survey::{Set, Survey};

/// What was removed, or would be.
#[derive(Serialize)]
struct Removal {
    namespace: PathBuf,
    /// Sets that --stale or --all chose, as they were.
    chosen: Vec<Set>,
    /// Ids of the sets that are gone.
    removed: Vec<i32>,
    /// Ids of the sets that are not, and why.
    failed: Vec<Refusal>,
}

#[derive(Serialize)]
struct Refusal {
    id: i32,
    reason: String,
}

impl Report for Removal {
    fn draw(&self, sheet: &mut Sheet) {
        if !self.chosen.is_empty() {
            draw_sets(sheet, &self.chosen);
        }
        for id in &self.removed {
            sheet.line(format!("removed {id}"));
        }
    }
}

pub fn run(args: &Rm) -> Result<()> {
    let survey = Survey::open(&args.namespace)?;
    let mut removal = Removal { namespace: survey.dir().to_owned(), chosen: Vec::new(), removed: Vec::new(), failed: Vec::new() };
    if args.stale || args.all {
        removal.chosen = survey.sets();
        removal.chosen.retain(|set| args.all || survey.is_stale(set));
        if args.yes {
            removal.remove_chosen(&survey, args.stale);
        }
    } else if let Some(key) = args.key {
        let id = survey.by_key(key).ok_or_else(|| {
            Failure::new(format!("there is no set with key 0x{key:08x}")).advise("`manyway ls` lists the keys of this namespace.")
        })?;
        removal.remove(&survey, id);
    } else {
        args.ids.iter().for_each(|&id| removal.remove(&survey, id));
    }
    emit(&removal, args.json)?;
    if !removal.chosen.is_empty() && !args.yes {
        eprintln!("manyway: nothing has been removed; repeat the command with --yes to do it");
    }
    removal.outcome()
}

impl Removal {
    fn remove(&mut self, survey: &Survey, id: i32) {
        match survey.remove(id) {
            Ok(()) => self.removed.push(id),
            Err(failure) => self.failed.push(Refusal { id, reason: failure.what().into() }),
        }
    }

    /// A stale set is looked at again, lest somebody has begun to use it since it was listed.
    fn remove_chosen(&mut self, survey: &Survey, stale: bool) {
        let now: HashMap<i32, Set> = survey.sets().into_iter().map(|set| (set.id, set)).collect();
        for id in self.chosen.iter().map(|set| set.id).collect::<Vec<_>>() {
            match now.get(&id) {
                Some(set) if !stale || survey.is_stale(set) => self.remove(survey, id),
                Some(_) => self.failed.push(Refusal { id, reason: format!("set {id} is in use again") }),
                // Gone is what was wanted.
                None => {}
            }
        }
    }

    fn outcome(&self) -> Result<()> {
        match self.failed.as_slice() {
            [] => Ok(()),
            failed => {
                let reasons: Vec<&str> = failed.iter().map(|refusal| refusal.reason.as_str()).collect();
                Err(Failure::new(reasons.join("\nmanyway: ")).advise("`manyway ls` lists the sets of this namespace."))
            }
        }
    }
}
