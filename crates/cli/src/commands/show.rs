//! `manyway show`: one set in full.

use std::path::PathBuf;

use serde::Serialize;

use super::ls::draw_sets;
use crate::args::Show;
use crate::exit::Result;
use crate::output::{Field, Report, Sheet, duration, emit};
use crate::survey::{Detail, Step, Survey};

/// One set and the wait-for cycles it has a part in.
#[derive(Serialize)]
struct Portrait {
    namespace: PathBuf,
    #[serde(flatten)]
    detail: Detail,
    cycles: Vec<Vec<Step>>,
}

impl Report for Portrait {
    fn draw(&self, sheet: &mut Sheet) {
        draw_sets(sheet, std::slice::from_ref(&self.detail.set));
        self.draw_semaphores(sheet);
        self.draw_waiting(sheet);
        self.draw_cycles(sheet);
    }
}

impl Portrait {
    fn draw_semaphores(&self, sheet: &mut Sheet) {
        sheet.heading("Semaphores");
        let semaphores = &self.detail.semaphores;
        sheet.table(
            ["num>", "value>", "last used by", "ncnt>", "zcnt>", "holders (adjustment)"],
            semaphores.iter().map(|sem| {
                let holders: Vec<String> = sem.holders.iter().map(|h| format!("{} {:+}", h.process, h.adj)).collect();
                let dead = sem.holders.iter().any(|h| !h.process.alive);
                let last = sem.last.as_ref().map(ToString::to_string).unwrap_or_default();
                [sem.num.into(), sem.value.into(), last.into(), sem.ncnt.into(), sem.zcnt.into(), Field::alarm(holders.join(", "), dead)]
            }),
        );
    }

    fn draw_waiting(&self, sheet: &mut Sheet) {
        if self.detail.waiting.is_empty() {
            return;
        }
        sheet.heading("Sleepers, in order of arrival");
        sheet.table(
            ["process", "thread>", "for>", "blocked by", "call"],
            self.detail.waiting.iter().map(|sleeper| {
                let all: Vec<String> = sleeper.operations.iter().map(ToString::to_string).collect();
                [
                    Field::from(&sleeper.process),
                    sleeper.tid.into(),
                    duration(sleeper.age_ms).into(),
                    Field::from(&sleeper.blocker),
                    all.join(", ").into(),
                ]
            }),
        );
    }

    fn draw_cycles(&self, sheet: &mut Sheet) {
        for cycle in &self.cycles {
            sheet.heading("Wait-for cycle");
            for (step, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                sheet.line(format!("{} sleeps for semaphore {} of set {}, held by {}", step.process, step.num, step.set, next.process));
            }
        }
    }
}

pub fn run(args: &Show) -> Result<()> {
    let survey = Survey::open(&args.namespace)?;
    let detail = survey.detail(args.id)?;
    let cycles = survey.cycles(args.id);
    emit(&Portrait { namespace: survey.dir().to_owned(), detail, cycles }, args.json)
}
