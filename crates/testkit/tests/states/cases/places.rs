//! Slots, ends of processes and threads, recovery.

use manyway_sem::abi::{SEM_UNDO, SemBuf};

use super::{Case, HOLD, HOLD_BOTH, Outcome, Plain, TAKE, TAKE_BOTH, ZERO, ZERO_BOTH, settle, victim};
use crate::clock;
use crate::next::Touches;
use crate::stage::{Stage, op};

pub fn all() -> Vec<Case> {
    [coming(), going(), reaping()].into_iter().flatten().collect()
}

const TAKE_NINE: &[SemBuf] = &[op(0, -9, 0)];
const ZERO_SECOND: &[SemBuf] = &[op(1, 0, 0)];
const ZERO_TWICE: &[SemBuf] = &[op(1, 0, 0), op(1, 0, 0)];

fn plain(
    name: &'static str,
    sleepers: &'static str,
    entry: &'static [&'static str],
    (values, asleep): (&'static [u16], &'static [&'static [SemBuf]]),
    (setup, call): super::Calls,
    none: Outcome,
    all: Outcome,
) -> Case {
    Plain { name, sleepers, entry, values, asleep, setup, call, none, all }.case()
}

/// The first call of a process: slots are claimed, the robust word is linked.
fn coming() -> Vec<Case> {
    const SEMOP: &[&str] = &["semop"];
    let nothing: fn(&Stage) = |_| {};
    let take: fn(&Stage) = |s| victim(s, TAKE);
    let hold: fn(&Stage) = |s| victim(s, HOLD);
    let slow: fn(&Stage) = |_| clock::next_second();
    let five: (&[u16], &[&[SemBuf]]) = (&[5], &[]);
    let released: fn(&Stage) = |s| {
        settle(s);
        s.victim.engine.detach_thread(s.victim.t);
    };
    vec![
        plain("the process's first call", "none", SEMOP, five, (nothing, take), (&[5], 0), (&[4], 0)).and(slow).newcomer(),
        plain("the process's first call, undo", "none", SEMOP, five, (nothing, hold), (&[5], 0), (&[5], 0)).newcomer(),
        plain("the process's first call", "zero", SEMOP, (&[1], &[ZERO]), (nothing, take), (&[1], 1), (&[0], 0)).newcomer(),
        plain("the process's first call, undo", "alter", SEMOP, (&[1], &[super::TAKE_TWO_UNITS]), (nothing, hold), (&[1], 1), (&[1], 1))
            .newcomer(),
        plain("the process's first call", "complex", SEMOP, (&[2, 0], &[TAKE_BOTH]), (nothing, take), (&[2, 0], 1), (&[1, 0], 1))
            .newcomer(),
        plain("a forked child's first call", "none", SEMOP, five, (Stage::as_forked_child, hold), (&[4], 0), (&[4], 0)).newcomer(),
        plain("the first call after execve", "none", SEMOP, five, (Stage::as_executed, hold), (&[5], 0), (&[5], 0)).newcomer(),
        plain("a thread's first call", "none", SEMOP, five, (released, hold), (&[5], 0), (&[5], 0)),
        plain("a process's first undo on a set", "alter", SEMOP, (&[5], &[TAKE_NINE]), (|s| s.victim.attach(), hold), (&[5], 1), (&[5], 1)),
    ]
}

/// Ends in good order.
fn going() -> Vec<Case> {
    const OWN: &[&str] = &["apply_own_undo"];
    let detach: fn(&Stage) = |s| s.victim.engine.detach_thread(s.victim.t);
    let own: fn(&Stage) = |s| s.victim.engine.apply_own_undo(s.victim.t);
    let hold: fn(&Stage) = |s| {
        settle(s);
        victim(s, HOLD);
    };
    // On another set too.
    let hold_two: fn(&Stage) = |s| {
        settle(s);
        victim(s, &[op(0, -2, SEM_UNDO), op(1, 1, SEM_UNDO)]);
        s.victim.op(s.neighbour, &[op(0, -1, SEM_UNDO)]);
    };
    let one: Outcome = (&[1], 0);
    vec![
        plain("detach of a thread", "none", &["detach_thread"], (&[1], &[]), (hold, detach), one, one),
        plain("own undo", "none", OWN, (&[1], &[]), (hold, own), one, one),
        plain("own undo, two sets", "none", OWN, (&[5, 0], &[]), (hold_two, own), (&[5, 0], 0), (&[5, 0], 0)),
        plain("own undo", "alter", OWN, (&[1], &[super::TAKE_TWO_UNITS]), (hold, own), (&[1], 1), (&[1], 1)),
        plain("own undo grants", "zero", OWN, (&[0], &[]), (given, own), (&[0], 0), (&[0], 0)),
        plain("own undo grants", "alter", OWN, (&[1], &[]), (taken, own), (&[0], 1), (&[0], 1)),
        plain("own undo grants", "complex", OWN, (&[1, 1], &[]), (taken_both, own), (&[0, 0], 1), (&[0, 0], 1)),
    ]
}

/// What the victim holds keeps others asleep.
fn given(s: &Stage) {
    settle(s);
    victim(s, &[op(0, 1, SEM_UNDO)]);
    s.sleeper(ZERO);
    s.sleeper(ZERO);
}
fn taken(s: &Stage) {
    settle(s);
    victim(s, HOLD);
    s.sleeper(HOLD);
    s.sleeper(TAKE);
}
fn taken_both(s: &Stage) {
    settle(s);
    victim(s, HOLD);
    s.sleeper(HOLD_BOTH);
    s.sleeper(TAKE_BOTH);
}

/// Recovery of those who died before.
fn reaping() -> Vec<Case> {
    const REAP: &[&str] = &["reap"];
    let elsewhere: fn(&Stage) = |s| s.victim.attach();
    let reap: fn(&Stage) = |s| {
        s.victim.engine.reap(s.victim.t, None);
    };
    let told: fn(&Stage) = |s| {
        s.victim.engine.reap(s.victim.t, Some(s.dead_before.get()));
    };
    let list: fn(&Stage) = |s| {
        let _ = s.victim.engine.for_each_sleeper(s.victim.t, s.id.get(), &mut |_, _| {});
    };
    let count: fn(&Stage) = |s| {
        let _ = s.victim.engine.getncnt(s.victim.t, s.id.get(), 0);
    };
    // Takes both units of the first semaphore and adds one to the second, before anybody sleeps.
    let dead = |values: &'static [u16], name, sleepers, asleep: &'static [&'static [SemBuf]], call, after: Outcome| {
        let case = plain(name, sleepers, REAP, (values, &[]), (elsewhere, call), after, after);
        let before = case.before;
        Case {
            before: Box::new(move |s| {
                before(s);
                s.holder_to_die(&[&[op(0, -2, SEM_UNDO)], &[op(1, 1, SEM_UNDO)]]);
                asleep.iter().for_each(|ops| s.sleeper(ops));
                s.it_dies();
            }),
            touches: Touches::Nothing,
            ..case
        }
    };
    vec![
        dead(&[2, 5], "reap of a holder, told", "none", &[], told, (&[2, 5], 0)),
        dead(&[2, 5], "reap of a holder", "none", &[], reap, (&[2, 5], 0)),
        dead(&[2, 0], "reap of a holder", "zero", &[ZERO_SECOND], reap, (&[2, 0], 0)),
        dead(&[2, 5], "reap of a holder", "alter", &[HOLD, TAKE, TAKE], reap, (&[0, 5], 1)),
        dead(&[2, 5], "reap of a holder", "complex", &[HOLD_BOTH, TAKE_BOTH, TAKE_BOTH], reap, (&[0, 3], 1)),
        dead(&[2, 0], "reap of a holder", "complex, zero", &[ZERO_TWICE, TAKE], reap, (&[1, 0], 0)),
        dead(&[2, 5], "take, which finds it", "none", &[], |s| victim(s, HOLD), (&[2, 5], 0)),
        plain("list of sleepers, one dead", "alter", &["for_each_sleeper"], (&[0], &[]), (elsewhere, list), (&[0], 1), (&[0], 1)).and(
            |s| {
                s.dead_sleeper(TAKE);
                s.sleeper(HOLD);
            },
        ),
        plain(
            "list of sleepers, one dead",
            "complex",
            &["for_each_sleeper"],
            (&[0, 1], &[]),
            (elsewhere, list),
            (&[0, 1], 1),
            (&[0, 1], 1),
        )
        .and(|s| {
            s.dead_sleeper(HOLD_BOTH);
            s.sleeper(ZERO_BOTH);
        }),
        plain("GETNCNT, one dead", "alter", &["getncnt"], (&[0], &[]), (elsewhere, count), (&[0], 1), (&[0], 1)).and(|s| {
            s.dead_sleeper(TAKE);
            s.sleeper(HOLD);
        }),
    ]
}
