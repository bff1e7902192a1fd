//! `manyway doctor`: is this machine fit, is the namespace sound, and will a program run on Manyway's semaphores? It reads and changes nothing.

mod machine;
mod program;

use std::path::PathBuf;
use std::time::Duration;

use manyway_sem::check::{Finding, Severity};
use manyway_sem::{Engine, OpenOptions};
use serde::Serialize;

use crate::args::Doctor;
use crate::exit::{Failure, Result};
use crate::layouts;
use crate::namespace::{Intent, Place};
use crate::output::{Field, Report, Sheet, emit};

/// How one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Good,
    /// Worth knowing; nothing is wrong.
    Note,
    /// Not as it should be.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Look {
    /// What was looked at.
    subject: String,
    state: State,
    /// What was seen.
    what: String,
    /// What to do about it; empty when nothing is to be done.
    advice: String,
}

/// All that was looked at.
#[derive(Serialize)]
struct Diagnosis {
    namespace: PathBuf,
    /// Nothing is bad.
    sound: bool,
    machine: Vec<Look>,
    arena: Vec<Look>,
    /// The program that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<program::Program>,
}

impl Report for Diagnosis {
    fn draw(&self, sheet: &mut Sheet) {
        sheet.heading("Machine");
        draw(sheet, &self.machine);
        sheet.heading(&format!("Namespace {}", self.namespace.display()));
        draw(sheet, &self.arena);
        if let Some(program) = &self.program {
            program.draw(sheet);
        }
    }
}

fn draw(sheet: &mut Sheet, looks: &[Look]) {
    let word = |state| match state {
        State::Good => "good",
        State::Note => "note",
        State::Bad => "BAD",
    };
    sheet.table(
        ["", "subject", "what was seen"],
        looks.iter().map(|look| {
            let advice = if look.advice.is_empty() { String::new() } else { format!(" — {}", look.advice) };
            [
                Field::alarm(word(look.state), look.state == State::Bad),
                Field::from(&look.subject),
                Field::from(format!("{}{advice}", look.what)),
            ]
        }),
    );
}

fn look(subject: &str, state: State, what: impl Into<String>, advice: &str) -> Look {
    let advice = if state == State::Good { "" } else { advice };
    Look { subject: subject.into(), state, what: what.into(), advice: advice.into() }
}

pub fn run(args: &Doctor) -> Result<()> {
    let place = Place::find(&args.namespace, Intent::Find, None);
    let dir = place.as_ref().map_or_else(|_| PathBuf::from("/dev/shm"), |p| p.dir.clone());
    let mut machine = machine::looks(&dir);
    let program = args.program.split_first().map(|(name, arguments)| {
        machine.extend(machine::process());
        program::examine(name, arguments)
    });
    let mut arena = match place.and_then(|p| p.open(&OpenOptions::FIND)) {
        Ok(engine) => arena(&engine),
        // The program's first run makes it.
        Err(failure) if program.is_some() && !dir.join("arena-v1").exists() => {
            vec![look("arena", State::Note, failure.what(), failure.advice())]
        }
        Err(failure) => vec![look("arena", State::Bad, failure.what(), failure.advice())],
    };
    arena.extend(layouts::beside(&dir).iter().map(|other| {
        let (state, advice) = match other.processes.is_empty() {
            true => (State::Note, "remove the file when no program of that version is left"),
            false => (State::Bad, "start them anew with this version, or give one of the two another namespace"),
        };
        look("other layout", state, other.to_string(), advice)
    }));
    let looks = machine.iter().chain(&arena).chain(program.iter().flat_map(|p| &p.looks));
    let bad = looks.filter(|l| l.state == State::Bad).count();
    emit(&Diagnosis { namespace: dir, sound: bad == 0, machine, arena, program }, args.json)?;
    match bad {
        0 => Ok(()),
        n => Err(Failure::new(format!("{n} {} not as it should be", if n == 1 { "thing is" } else { "things are" }))),
    }
}

/// How many findings are shown.
const SHOWN: usize = 40;

fn arena(engine: &Engine) -> Vec<Look> {
    let mut found = engine.check();
    // What changes while it is looked at may look wrong for a moment: what is there is found again.
    for _ in 0..2 {
        if found.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
        let again = engine.check();
        found.retain(|f| again.contains(f));
    }
    let mut looks: Vec<Look> = found.iter().rev().take(SHOWN).map(told).collect();
    if found.len() > SHOWN {
        looks.push(look("more", State::Bad, format!("{} findings are not shown", found.len() - SHOWN), "mend these first"));
    }
    if looks.iter().all(|l| l.state != State::Bad) {
        let i = engine.info();
        looks.insert(0, look("structures", State::Good, format!("sound: {} sets of {} semaphores", i.sets, i.sems), ""));
    }
    looks
}

fn told(f: &Finding) -> Look {
    let subject = f.set.map_or_else(|| "namespace".into(), |id| format!("set {id}"));
    let (state, advice) = match (f.severity, f.set) {
        (Severity::Left, _) => (State::Note, "the next call that meets it clears it away".into()),
        (Severity::Damage, Some(id)) => (State::Bad, format!("`manyway rm {id}` removes the set, whatever its state")),
        (Severity::Damage, None) => (State::Bad, "end the programs that use the namespace and remove its directory".into()),
    };
    Look { subject, state, what: f.what.clone(), advice }
}
