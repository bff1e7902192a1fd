//! `manyway ns set`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use manyway_sem::{Engine, OpenOptions, Share};

use crate::args::NsSet;
use crate::commands::ns::rm::own;
use crate::exit::{Failure, Result};
use crate::explain;
use crate::namespace::{Intent, Place};
use crate::output::{Report, Sheet, emit};
use crate::places::Surroundings;
use crate::portrait::Portrait;
use crate::users::{self, Gate};
use crate::watcher;

impl Report for Portrait {
    fn draw(&self, sheet: &mut Sheet) {
        let Some(inside) = &self.inside else { return };
        sheet.line(format!("{}: shared with {}, fairness {}, limits {}", self.dir.display(), inside.share, inside.fairness, inside.limits));
    }
}

pub fn run(args: &NsSet) -> Result<()> {
    let place = Place::find(&args.namespace, Intent::Find, None)?;
    own(&place)?;
    let explained = |error| explain::open_error(&place.dir, &error);
    let engine = place.open(&OpenOptions::FIND)?;
    // What can be refused comes first, so that nothing is done by half.
    let _closed = match args.settings.fairness {
        Some(fairness) if engine.fairness() != fairness.into() => Some(unused(&place, &engine)?),
        _ => None,
    };
    if let Some(limits) = args.settings.limits {
        engine.set_limits(limits).map_err(explained)?;
    }
    if let Some(share) = args.settings.share {
        let name = CString::new(place.dir.as_os_str().as_bytes()).map_err(|e| Failure::io(place.dir.display(), e))?;
        let how = OpenOptions { owner: place.owner, ..OpenOptions::FIND };
        Engine::set_share(&name, &how, share).map_err(explained)?;
        watcher::share(&place.dir, share).map_err(|e| Failure::io(format!("cannot share the watcher of {}", place.dir.display()), e))?;
        if share != Share::Nobody {
            Surroundings::real().let_through(&place.dir)?;
        }
    }
    if let Some(fairness) = args.settings.fairness {
        engine.set_fairness(fairness.into());
    }
    emit(&Portrait::of(place.dir.display().to_string(), &place), args.json)
}

/// Makes sure that nobody uses the namespace, nor begins to while the result lives.
fn unused(place: &Place, engine: &Engine) -> Result<Gate> {
    let dir = place.dir.canonicalize().map_err(|e| Failure::io(place.dir.display(), e))?;
    let in_use = |by: String| {
        Failure::new(format!("{} is in use{by}, and its fairness cannot be changed", dir.display()))
            .advise("Who sleeps under one rule may not be woken under the other: let its programs end first, or choose another namespace.")
    };
    let gate = Gate::close_soon(&dir).map_err(|_| in_use(String::new()))?;
    match users::of(&dir, engine).as_slice() {
        [] => Ok(gate),
        found => Err(in_use(format!(" by {}", found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")))),
    }
}
