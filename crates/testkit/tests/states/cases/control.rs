//! semctl and semget.

use super::{Case, HOLD, HOLD_BOTH, Outcome, Plain, TAKE, TAKE_BOTH, ZERO, ZERO_BOTH, settle};
use crate::stage::Stage;

pub fn all() -> Vec<Case> {
    [setval(), setall()].into_iter().flatten().map(Plain::case).collect()
}

fn control(
    name: &'static str,
    sleepers: &'static str,
    entry: &'static [&'static str],
    (values, asleep): (&'static [u16], &'static [&'static [manyway_sem::abi::SemBuf]]),
    call: fn(&Stage),
    none: Outcome,
    all: Outcome,
) -> Plain {
    Plain { name, sleepers, entry, values, asleep, setup: settle, call, none, all }
}

fn setval() -> Vec<Plain> {
    const SETVAL: &[&str] = &["setval"];
    let to_two: fn(&Stage) = |s| {
        let _ = s.victim.engine.setval(s.victim.t, s.id.get(), 0, 2);
    };
    let to_zero: fn(&Stage) = |s| {
        let _ = s.victim.engine.setval(s.victim.t, s.id.get(), 0, 0);
    };
    vec![
        control("SETVAL", "none", SETVAL, (&[1], &[]), to_two, (&[1], 0), (&[2], 0)),
        control("SETVAL to 0", "zero", SETVAL, (&[1], &[ZERO, ZERO]), to_zero, (&[1], 2), (&[0], 0)),
        control("SETVAL", "alter", SETVAL, (&[0], &[TAKE, HOLD, TAKE]), to_two, (&[0], 3), (&[0], 1)),
        control("SETVAL", "complex", SETVAL, (&[0, 1], &[HOLD_BOTH, TAKE]), to_two, (&[0, 1], 2), (&[0, 0], 0)),
        control("SETVAL to 0", "complex", SETVAL, (&[1, 0], &[ZERO_BOTH, TAKE_BOTH]), to_zero, (&[1, 0], 2), (&[0, 0], 1)),
    ]
}

fn setall() -> Vec<Plain> {
    const SETALL: &[&str] = &["setall"];
    let up: fn(&Stage) = |s| {
        let _ = s.victim.engine.setall(s.victim.t, s.id.get(), &[2, 3, 4]);
    };
    let down: fn(&Stage) = |s| {
        let _ = s.victim.engine.setall(s.victim.t, s.id.get(), &[0, 0, 4]);
    };
    vec![
        control("SETALL", "none", SETALL, (&[1, 1, 1], &[]), up, (&[1, 1, 1], 0), (&[2, 3, 4], 0)),
        control("SETALL", "zero", SETALL, (&[1, 1, 1], &[ZERO, ZERO]), down, (&[1, 1, 1], 2), (&[0, 0, 4], 0)),
        control("SETALL", "alter", SETALL, (&[0, 0, 1], &[HOLD, TAKE]), up, (&[0, 0, 1], 2), (&[0, 3, 4], 0)),
        control("SETALL", "complex", SETALL, (&[0, 0, 1], &[HOLD_BOTH, TAKE, TAKE_BOTH]), up, (&[0, 0, 1], 3), (&[0, 2, 4], 1)),
        control("SETALL", "complex, zero", SETALL, (&[1, 1, 1], &[ZERO_BOTH, ZERO]), down, (&[1, 1, 1], 2), (&[0, 0, 4], 0)),
    ]
}
