//! All states that a case can leave behind, each recovered by whoever comes next; and all that a recovery can leave that dies itself.

use std::collections::HashSet;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use manyway_shm::layout::ThreadCtl;
use manyway_testkit::image::Image;
use manyway_testkit::invariants::{self, Meaning};
use manyway_testkit::trace::{Event, Trace, Tracer, Watch, What};
use serde::{Deserialize, Serialize};

use crate::cases::Case;
use crate::stage::Stage;
use crate::{clock, next, robust};

/// A line of the table.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Row {
    pub instructions: u64,
    pub stores: usize,
    /// Distinct states that the call passes through, and how many of them were recovered.
    pub states: usize,
    pub recovered: usize,
    /// Recoveries that were cut at every store.
    pub recoveries: usize,
    /// Their distinct states, of those that were not among the others.
    pub second: usize,
    pub seconds: f64,
}

/// Where the search is, for who finds it hanging: level, image, further image.
pub static PROGRESS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

/// How much of a case is looked at: of how many of the call's states, of how many of them the recovery is cut, and how many states of such a
/// recovery.
struct Effort {
    states: usize,
    recoveries: usize,
    further: usize,
    /// Every kind of next caller comes to each state of the call.
    all_kinds: bool,
}

impl Effort {
    fn of(case: &Case) -> Effort {
        match (everything(), case.large) {
            (false, false) => Effort { states: 120, recoveries: 12, further: 60, all_kinds: false },
            (false, true) => Effort { states: 40, recoveries: 3, further: 16, all_kinds: false },
            (true, false) => Effort { states: usize::MAX, recoveries: usize::MAX, further: usize::MAX, all_kinds: true },
            (true, true) => Effort { states: 4000, recoveries: 20, further: 400, all_kinds: false },
        }
    }
}

/// True when cost does not matter.
pub fn everything() -> bool {
    manyway_testkit::asks_for_all("MANYWAY_STATES")
}

/// Which of `n` are looked at: all, or the ends and a spread.
fn sample(n: usize, most: usize) -> Vec<usize> {
    if n <= most {
        return (0..n).collect();
    }
    let ends = most / 4;
    let middle = most - 2 * ends;
    let spread = (0..middle).map(|i| ends + i * (n - 2 * ends) / middle);
    let mut all: Vec<usize> = (0..ends).chain(spread).chain(n - ends..n).collect();
    all.dedup();
    all
}

/// The search over one case.
struct Search<'a> {
    case: &'a Case,
    stage: &'a Stage,
    tracer: Tracer,
    /// Hashes of the images that were recovered.
    seen: HashSet<u128>,
    /// The recoverer's thread slot, and its robust word.
    recoverers_slot: u32,
    recoverers_word: u64,
    /// The clock when the call began.
    mark: i64,
    allowed: Vec<Meaning>,
    row: Row,
}

/// Explores a case.
pub fn explore(case: &Case) -> Result<Row, String> {
    let began = clock::real();
    clock::stop();
    let stage = Stage::new(case.fairness);
    (case.before)(&stage);
    (case.setup)(&stage);
    if !case.newcomer {
        stage.disguise(&stage.victim);
    }
    stage.curtain();
    let slot = stage.threads_of(stage.recoverer.identity.get().pid)[0];
    let mut search = Search {
        case,
        stage: &stage,
        tracer: Tracer::new(stage.arena.file()).map_err(|e| e.to_string())?,
        seen: HashSet::new(),
        recoverers_slot: slot,
        recoverers_word: stage.ctl(slot) + offset_of!(ThreadCtl, robust) as u64,
        mark: clock::mark(),
        allowed: Vec::new(),
        row: Row::default(),
    };
    search.run()?;
    search.row.seconds = clock::real() - began;
    Ok(search.row)
}

/// Behind an event the image, or what the kernel would mark in it, is another one.
fn changes(trace: &Trace, e: &Event, probe_before: Option<u64>) -> bool {
    e.probe != probe_before || (e.what == What::Stored && trace.before(e) != trace.behind(e)) || e.what == What::Punched
}

fn apply(image: &mut Image, trace: &Trace, e: &Event) {
    match e.what {
        What::Stored => image.write(e.at, trace.behind(e)),
        What::Punched => image.punch(e.at, e.len),
        What::Watched => {}
    }
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), String> {
        let base = Image::of(&self.stage.arena);
        let first_probe = self.tracer.offset_of(robust::word_found());
        let trace = self.traced(&base, first_probe)?;
        let states = self.states(&base, &trace, first_probe)?;
        self.row.instructions = trace.instructions;
        self.row.stores = trace.stores();
        self.row.states = states.len();
        // What a death before the call and one behind it come to: nothing else may come of one in the middle.
        let (none, all) = (&states[0], &states[states.len() - 1]);
        let mut image = base.clone();
        let before = self.recover(&self.die(&image, none.1), 0).map_err(|e| format!("dead before the call: {e}"))?;
        trace.events.iter().for_each(|e| apply(&mut image, &trace, e));
        let behind = self.recover(&self.die(&image, all.1), 0).map_err(|e| format!("dead behind the call: {e}"))?;
        (self.case.expected)(self.stage, &before, &behind).map_err(|e| format!("{e}; before: {before:?}; behind: {behind:?}"))?;
        self.allowed = self.case.between.map_or_else(Vec::new, |between| between(self.stage, &before, &behind));
        self.allowed.extend([before, behind]);
        self.seen.clear();
        let effort = Effort::of(self.case);
        let chosen: HashSet<usize> = sample(states.len(), effort.states).into_iter().collect();
        let cut: HashSet<usize> = sample(states.len(), effort.recoveries).into_iter().collect();
        let mut image = base;
        let mut applied = 0;
        for (n, &(upto, probe)) in states.iter().enumerate() {
            trace.events[applied..upto].iter().for_each(|e| apply(&mut image, &trace, e));
            applied = upto;
            if !chosen.contains(&n) && !cut.contains(&n) {
                continue;
            }
            let place = || {
                let e = upto.checked_sub(1).map(|i| &trace.events[i]);
                e.map_or("before the first store".to_owned(), |e| format!("behind state {n}, {}", place_of(e)))
            };
            let dead = self.die(&image, probe);
            if self.seen.insert(dead.hash()) {
                self.row.recovered += 1;
                PROGRESS[0].store(1, Relaxed);
                PROGRESS[1].store(n as u32, Relaxed);
                for kind in if effort.all_kinds { 0..next::kinds() } else { n..n + 1 } {
                    self.recover_and_compare(&dead, kind).map_err(|e| format!("{}: {e}", place()))?;
                }
            }
            if cut.contains(&n) {
                self.cut_recovery(&dead, n).map_err(|e| format!("{}: {e}", place()))?;
            }
        }
        Ok(())
    }

    /// The victim's call.
    fn traced(&mut self, base: &Image, probe: Option<u64>) -> Result<Trace, String> {
        let (case, stage) = (self.case, self.stage);
        if case.large || case.by_protection {
            let mut trace = self.tracer.trace_stores(&stage.arena, || (case.call)(stage)).map_err(|e| e.to_string())?;
            trace.events.iter_mut().for_each(|e| e.probe = probe);
            return Ok(trace);
        }
        let watch = Watch { ranges: robust::places(), probe: Some(robust::word_found) };
        let stepped = self.tracer.trace(watch, || (case.call)(stage));
        // The other way to trace must find the same: by it recoveries are traced. (Who comes but once cannot come again.)
        if !case.newcomer {
            let end = Image::of(&stage.arena);
            base.put_back(&stage.arena);
            stage.victim.restore();
            clock::set_back(self.mark);
            let again = self.tracer.trace_stores(&stage.arena, || (case.call)(stage)).map_err(|e| e.to_string())?;
            if !again.is_like(&stepped) {
                return Err(format!(
                    "traced by protection, the call makes other stores: {} instead of {}",
                    again.stores(),
                    stepped.stores()
                ));
            }
            end.put_back(&stage.arena);
        }
        Ok(stepped)
    }

    /// The distinct states of a trace in order: how many events they are behind, and the probe. Makes sure that the trace has all.
    fn states(&self, base: &Image, trace: &Trace, first_probe: Option<u64>) -> Result<Vec<(usize, Option<u64>)>, String> {
        let mut image = base.clone();
        let mut states = vec![(0, first_probe)];
        let mut known = HashSet::from([(image.hash(), first_probe)]);
        let mut probe = first_probe;
        for (i, e) in trace.events.iter().enumerate() {
            let changed = changes(trace, e, probe);
            apply(&mut image, trace, e);
            probe = e.probe;
            if changed && known.insert((image.hash(), probe)) {
                states.push((i + 1, probe));
            }
        }
        if let Some(at) = image.differs(&self.stage.arena) {
            return Err(format!("the trace has missed a store at {at:#x}"));
        }
        Ok(states)
    }

    /// The image after the victim's death.
    fn die(&self, image: &Image, probe: Option<u64>) -> Image {
        let mut dead = image.clone();
        self.stage.bury(&mut dead, self.stage.victim.identity.get(), self.stage.dead[0], probe);
        dead
    }

    /// Puts an image back and lets the `n`th kind of next caller come, then everybody be reaped. What the arena means then.
    fn recover(&self, image: &Image, n: usize) -> Result<Meaning, String> {
        let stage = self.stage;
        image.put_back(&stage.arena);
        stage.checker.restore();
        clock::set_back(self.mark);
        let told = next::call(stage, &stage.checker, n, self.case.touches);
        stage.checker.engine.reap(stage.checker.t, None);
        let _ = stage.checker.engine.for_each_sleeper(stage.checker.t, stage.neighbour, &mut |_, _| {});
        let dead = [stage.dead[0].pid, stage.dead[1].pid, stage.dead_before.get()];
        let mut meaning = invariants::check(&stage.arena, &|pid, _| !dead.contains(&pid)).map_err(|e| format!("{}: {e}", told.kind))?;
        told.agrees(stage, &meaning)?;
        // Its own node comes and goes with it.
        meaning.nodes.remove(&self.recoverers_slot);
        Ok(meaning)
    }

    fn recover_and_compare(&self, image: &Image, n: usize) -> Result<(), String> {
        let meaning = self.recover(image, n)?;
        if self.allowed.contains(&meaning) {
            return Ok(());
        }
        let kind = next::kind(n, self.case.touches);
        Err(format!(
            "neither what was before, nor what is behind, nor between two parts, next caller {kind}: {meaning:?}; these: {:?}",
            self.allowed
        ))
    }

    /// Lets the recoverer recover the image and die at each of its stores.
    fn cut_recovery(&mut self, image: &Image, n: usize) -> Result<(), String> {
        let stage = self.stage;
        self.row.recoveries += 1;
        image.put_back(&stage.arena);
        stage.recoverer.restore();
        clock::set_back(self.mark);
        PROGRESS[0].store(2, Relaxed);
        PROGRESS[2].store(u32::MAX, Relaxed);
        let trace = self.tracer.trace_stores(&stage.arena, || {
            // Told of the death more often than not: that is the longest recovery.
            next::cuttable(stage, &stage.recoverer, if n.is_multiple_of(2) { 0 } else { n });
        });
        let trace = trace.map_err(|e| e.to_string())?;
        let states = self.states(image, &trace, None)?;
        let chosen: HashSet<usize> = sample(states.len(), Effort::of(self.case).further).into_iter().collect();
        let mut image = image.clone();
        let mut applied = 0;
        for (m, &(upto, _)) in states.iter().enumerate() {
            trace.events[applied..upto].iter().for_each(|e| apply(&mut image, &trace, e));
            applied = upto;
            if !chosen.contains(&m) {
                continue;
            }
            let mut dead = image.clone();
            stage.bury(&mut dead, stage.recoverer.identity.get(), stage.dead[1], Some(self.recoverers_word));
            if self.seen.insert(dead.hash()) {
                self.row.second += 1;
                PROGRESS[2].store(m as u32, Relaxed);
                self.recover_and_compare(&dead, n + m).map_err(|e| {
                    let place = upto.checked_sub(1).map_or("before its first store".to_owned(), |i| place_of(&trace.events[i]));
                    format!("and its recovery's state {m}, {place}: {e}")
                })?;
            }
        }
        Ok(())
    }
}

/// The line of source of a store.
fn place_of(e: &Event) -> String {
    let mut lines = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(e.ip as usize), |symbol| {
        let file = symbol.filename().and_then(|f| f.file_name()).unwrap_or_default().to_string_lossy().into_owned();
        let name = symbol.name().map(|n| n.to_string()).unwrap_or_default();
        lines.push(format!("{name} ({file}:{})", symbol.lineno().unwrap_or(0)));
    });
    format!("instruction {} at {:#x}, {:?} {:#x}+{}, {}", e.step, e.ip, e.what, e.at, e.len, lines.join(" in "))
}
