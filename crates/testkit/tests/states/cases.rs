//! The cases: an entry point × who sleeps, where it starts, and what a death before it and one behind it come to.

mod control;
mod large;
mod operations;
mod places;
mod sleeping;

use manyway_sem::Fairness;
use manyway_sem::abi::{SEM_UNDO, SemBuf};
use manyway_testkit::invariants::Meaning;

use crate::next::Touches;
use crate::stage::{Stage, op};

/// What the victim does.
pub type Call = fn(&Stage);
/// What it does beforehand, and its call that is cut.
pub type Calls = (Call, Call);
type Expected = dyn Fn(&Stage, &Meaning, &Meaning) -> Result<(), String>;
/// What a death between two parts of a call may come to, in order, from what one before it and one behind it come to.
pub type Between = fn(&Stage, &Meaning, &Meaning) -> Vec<Meaning>;

/// A call that is cut at every store.
pub struct Case {
    pub name: String,
    /// Who sleeps.
    pub sleepers: &'static str,
    /// The engine's functions that it is a case of.
    pub entry: &'static [&'static str],
    pub fairness: Fairness,
    pub touches: Touches,
    /// Of many stores: traced by protection, and sampled.
    pub large: bool,
    /// Traced by protection: a handler of a signal does a part of it, or it executes very many instructions for few stores.
    pub by_protection: bool,
    /// The victim takes its place in the call that is cut.
    pub newcomer: bool,
    /// Makes the state from which it starts.
    pub before: Box<dyn Fn(&Stage)>,
    /// What the victim does beforehand.
    pub setup: fn(&Stage),
    /// What is cut.
    pub call: fn(&Stage),
    /// What a death before the call, and one behind it, must come to.
    pub expected: Box<Expected>,
    /// For a call that is several, each of them whole.
    pub between: Option<Between>,
}

impl Case {
    pub fn large(self) -> Case {
        Case { large: true, ..self }
    }
    pub fn newcomer(self) -> Case {
        Case { newcomer: true, ..self }
    }
    pub fn by_protection(self) -> Case {
        Case { by_protection: true, ..self }
    }
    /// Makes more of the state from which it starts, behind the sleepers.
    pub fn and(self, more: fn(&Stage)) -> Case {
        let before = self.before;
        Case {
            before: Box::new(move |s| {
                before(s);
                more(s);
            }),
            ..self
        }
    }
    /// Another expectation.
    pub fn expects(self, expected: impl Fn(&Stage, &Meaning, &Meaning) -> Result<(), String> + 'static) -> Case {
        Case { expected: Box::new(expected), ..self }
    }
}

/// Every case.
pub fn all() -> Vec<Case> {
    [operations::all(), control::all(), sleeping::all(), places::all(), large::all()].into_iter().flatten().collect()
}

pub const TAKE: &[SemBuf] = &[op(0, -1, 0)];
pub const TAKE_TWO_UNITS: &[SemBuf] = &[op(0, -2, 0)];
pub const HOLD: &[SemBuf] = &[op(0, -1, SEM_UNDO)];
pub const ZERO: &[SemBuf] = &[op(0, 0, 0)];
pub const GIVE: &[SemBuf] = &[op(0, 1, 0)];
pub const TAKE_BOTH: &[SemBuf] = &[op(0, -1, 0), op(1, -1, 0)];
pub const HOLD_BOTH: &[SemBuf] = &[op(0, -1, SEM_UNDO), op(1, -1, SEM_UNDO)];
pub const ZERO_BOTH: &[SemBuf] = &[op(0, 0, 0), op(1, 0, 0)];

/// The values of the case's set and how many sleep on it.
pub type Outcome = (&'static [u16], usize);

/// A call that meets these sleepers; a death before it comes to `none`, one behind it to `all`.
pub struct Plain {
    pub name: &'static str,
    pub sleepers: &'static str,
    pub entry: &'static [&'static str],
    pub values: &'static [u16],
    pub asleep: &'static [&'static [SemBuf]],
    pub setup: fn(&Stage),
    pub call: fn(&Stage),
    pub none: Outcome,
    pub all: Outcome,
}

impl Plain {
    pub fn case(self) -> Case {
        let Plain { values, asleep, none, all, .. } = self;
        let touches = match (asleep.iter().any(|ops| ops[0].op == 0), asleep.iter().any(|ops| ops[0].op < 0)) {
            (false, _) => Touches::TakeAndGive,
            (true, false) => Touches::GiveAndTake,
            (true, true) => Touches::Nothing,
        };
        Case {
            name: self.name.to_owned(),
            sleepers: self.sleepers,
            entry: self.entry,
            fairness: Fairness::Strict,
            touches,
            large: false,
            by_protection: false,
            newcomer: false,
            before: Box::new(move |s| {
                s.set(values);
                asleep.iter().for_each(|ops| s.sleeper(ops));
            }),
            setup: self.setup,
            call: self.call,
            between: None,
            expected: Box::new(move |s, before, behind| {
                outcome(s, before, none).map_err(|e| format!("before: {e}"))?;
                outcome(s, behind, all).map_err(|e| format!("behind: {e}"))
            }),
        }
    }
}

/// The case's set has these values and so many sleepers.
pub fn outcome(s: &Stage, meaning: &Meaning, (values, asleep): Outcome) -> Result<(), String> {
    let Some(set) = meaning.sets.get(&s.id.get()) else {
        return Err("the set is gone".to_owned());
    };
    let is = (set.values.as_slice(), set.sleepers.len());
    if is == (values, asleep) { Ok(()) } else { Err(format!("values and sleepers are {is:?}, should be {:?}", (values, asleep))) }
}

/// The victim takes its slot and a place for adjustments on the case's set, by a call that nobody can notice.
pub fn settle(s: &Stage) {
    s.victim.op(s.id.get(), &[op(0, 1, SEM_UNDO), op(0, -1, SEM_UNDO)]);
}
/// The victim's call.
pub fn victim(s: &Stage, ops: &[SemBuf]) {
    s.victim.op(s.id.get(), ops);
}
