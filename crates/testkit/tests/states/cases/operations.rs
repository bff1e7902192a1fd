//! semop and semtimedop: the fast paths, the locked ones, grants.

use manyway_sem::Fairness;
use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO, SemBuf};

use super::{Calls, Case, GIVE, HOLD, HOLD_BOTH, Plain, TAKE, TAKE_BOTH, TAKE_TWO_UNITS, ZERO, ZERO_BOTH, settle, victim};
use crate::clock;
use crate::next::Touches;
use crate::stage::{Stage, op};

const TAKE_SECOND: &[SemBuf] = &[op(1, -1, 0)];
const TAKE_FAR: &[SemBuf] = &[op(3, -3, 0), op(4, -1, 0)];
const ZERO_LAST: &[SemBuf] = &[op(9, 0, 0)];
const SEMOP: &[&str] = &["semop", "try_one"];

pub fn all() -> Vec<Case> {
    let all = [take(), give(), several(), refused()].into_iter().flatten().map(Plain::case);
    all.chain([to_the_dead(), barging(), in_order_of_arrival()]).collect()
}

/// A sleeper came before others that name other semaphores; then a call that names its own and theirs makes it a sleeper of the whole set: in front
/// of them. (What is cut leaves the queues alone: they are as they were linked.)
fn in_order_of_arrival() -> Case {
    const TAKE_THIRD_AND_SECOND: &[SemBuf] = &[op(2, -1, 0), op(1, -1, 0)];
    const GIVE_LAST: &[SemBuf] = &[op(3, 1, 0)];
    const ASLEEP: &[&[SemBuf]] = &[TAKE, TAKE_THIRD_AND_SECOND, TAKE_BOTH];
    let call: Calls = (settle_none, |s| victim(s, GIVE_LAST));
    semop("give, another one", "order of arrival", (&[0, 0, 0, 1], ASLEEP), call, (&[0, 0, 0, 1], 3), (&[0, 0, 0, 2], 3)).case()
}

/// The first in the queue is dead: no unit goes to it.
fn to_the_dead() -> Case {
    let plain = semop("give", "dead, alter", (&[0], &[]), (settle_none, |s| victim(s, GIVE)), (&[0], 1), (&[0], 0));
    plain.case().and(|s| {
        s.dead_sleeper(TAKE);
        s.sleeper(HOLD);
    })
}

/// A sleeper is nudged: a newcomer may be faster.
fn barging() -> Case {
    let plain = semop("give, barging", "alter", (&[0], &[TAKE, HOLD]), (settle_none, |s| victim(s, GIVE)), (&[0], 2), (&[1], 2));
    Case { fairness: Fairness::Barging, touches: Touches::Nothing, ..plain.case() }
}

/// A new second: the next operation on a cell stores the time, by the locked path.
fn settle_earlier(s: &Stage) {
    settle(s);
    clock::next_second();
}
fn hold_one(s: &Stage) {
    settle(s);
    victim(s, HOLD);
}

fn semop(
    name: &'static str,
    sleepers: &'static str,
    (values, asleep): (&'static [u16], &'static [&'static [SemBuf]]),
    (setup, call): Calls,
    none: super::Outcome,
    all: super::Outcome,
) -> Plain {
    Plain { name, sleepers, entry: SEMOP, values, asleep, setup, call, none, all }
}

fn take() -> Vec<Plain> {
    let take: Calls = (settle, |s| victim(s, TAKE));
    let hold: Calls = (settle, |s| victim(s, HOLD));
    let zero: Calls = (settle, |s| victim(s, ZERO));
    vec![
        semop("take", "none", (&[5], &[]), take, (&[5], 0), (&[4], 0)),
        semop("take, a new second", "none", (&[5], &[]), (settle_earlier, take.1), (&[5], 0), (&[4], 0)),
        semop("take", "zero", (&[1], &[ZERO, ZERO]), take, (&[1], 2), (&[0], 0)),
        semop("take", "alter", (&[1], &[TAKE_TWO_UNITS, TAKE_TWO_UNITS]), take, (&[1], 2), (&[0], 2)),
        semop("take", "complex", (&[1, 0], &[TAKE_BOTH, ZERO_BOTH]), take, (&[1, 0], 2), (&[0, 0], 1)),
        semop("take undo", "none", (&[5], &[]), hold, (&[5], 0), (&[5], 0)),
        semop("take undo, a new second", "none", (&[5], &[]), (settle_earlier, hold.1), (&[5], 0), (&[5], 0)),
        semop("take undo, a further one", "none", (&[5], &[]), (hold_one, hold.1), (&[5], 0), (&[5], 0)),
        semop("take undo", "zero", (&[1], &[ZERO, ZERO]), hold, (&[1], 2), (&[1], 0)),
        semop("take undo", "alter", (&[1], &[TAKE_TWO_UNITS, TAKE_TWO_UNITS]), hold, (&[1], 2), (&[1], 2)),
        semop("take undo", "complex", (&[1, 0], &[TAKE_BOTH, ZERO_BOTH]), hold, (&[1, 0], 2), (&[1, 0], 1)),
        semop("zero", "none", (&[0], &[]), zero, (&[0], 0), (&[0], 0)),
        semop("zero", "alter", (&[0], &[TAKE, HOLD]), zero, (&[0], 2), (&[0], 2)),
        semop("zero", "complex", (&[0, 1], &[TAKE_BOTH, ZERO_BOTH]), zero, (&[0, 1], 2), (&[0, 1], 2)),
    ]
}

fn give() -> Vec<Plain> {
    let give: Calls = (settle, |s| victim(s, GIVE));
    let give_undo: Calls = (settle, |s| victim(s, &[op(0, 1, SEM_UNDO)]));
    let give_two: Calls = (settle, |s| victim(s, &[op(0, 2, 0)]));
    vec![
        semop("give", "none", (&[5], &[]), give, (&[5], 0), (&[6], 0)),
        semop("give", "zero", (&[1], &[ZERO, ZERO]), give, (&[1], 2), (&[2], 2)),
        semop("give two", "alter", (&[0], &[TAKE, HOLD]), give_two, (&[0], 2), (&[0], 0)),
        semop("give", "alter", (&[0], &[TAKE, HOLD, TAKE]), give, (&[0], 3), (&[0], 2)),
        semop("give", "complex", (&[0, 1], &[HOLD_BOTH]), give, (&[0, 1], 1), (&[0, 0], 0)),
        semop("give two", "complex", (&[0, 1], &[HOLD_BOTH, TAKE, TAKE_BOTH]), give_two, (&[0, 1], 3), (&[0, 0], 1)),
        semop("give undo", "none", (&[5], &[]), give_undo, (&[5], 0), (&[5], 0)),
        semop("give undo, the last one back", "none", (&[5], &[]), (hold_one, give_undo.1), (&[5], 0), (&[5], 0)),
        // The dead one's undo takes a unit that is not there: the value stops at 0.
        semop("give undo", "alter", (&[0], &[HOLD, TAKE]), give_undo, (&[0], 2), (&[0], 1)),
        semop("give undo", "complex", (&[0, 1], &[HOLD_BOTH]), give_undo, (&[0, 1], 1), (&[0, 0], 0)),
    ]
}

fn several() -> Vec<Plain> {
    let pair: Calls = (settle, |s| victim(s, &[op(0, -1, 0), op(1, 2, 0)]));
    let pair_undo: Calls = (settle, |s| victim(s, &[op(1, 2, SEM_UNDO), op(0, -1, SEM_UNDO)]));
    let both: Calls = (settle, |s| victim(s, &[op(0, 1, 0), op(1, 1, 0)]));
    let ten: fn(&Stage) = |s| victim(s, &std::array::from_fn::<_, 10, _>(|n| op(n as u16, -2, 0)));
    let ten_undo: fn(&Stage) = |s| victim(s, &std::array::from_fn::<_, 10, _>(|n| op(n as u16, -2, SEM_UNDO)));
    vec![
        semop("two semaphores", "none", (&[5, 5], &[]), pair, (&[5, 5], 0), (&[4, 7], 0)),
        semop("two semaphores, a new second", "none", (&[5, 5], &[]), (settle_earlier, pair.1), (&[5, 5], 0), (&[4, 7], 0)),
        semop("two semaphores", "zero", (&[1, 5], &[ZERO, ZERO]), pair, (&[1, 5], 2), (&[0, 7], 0)),
        semop("two semaphores", "alter", (&[1, 0], &[TAKE_TWO_UNITS, TAKE_SECOND]), pair, (&[1, 0], 2), (&[0, 1], 1)),
        semop("two semaphores", "complex", (&[2, 0], &[TAKE_BOTH, ZERO_BOTH]), pair, (&[2, 0], 2), (&[0, 1], 1)),
        semop("two semaphores, undo", "none", (&[5, 5], &[]), pair_undo, (&[5, 5], 0), (&[5, 5], 0)),
        semop("two semaphores, undo", "zero", (&[1, 5], &[ZERO, ZERO]), pair_undo, (&[1, 5], 2), (&[1, 5], 0)),
        semop("two semaphores, undo", "alter", (&[1, 0], &[TAKE_SECOND]), pair_undo, (&[1, 0], 1), (&[1, 0], 0)),
        semop("two semaphores, undo", "complex", (&[2, 0], &[TAKE_BOTH]), pair_undo, (&[2, 0], 1), (&[1, 0], 0)),
        semop("give both", "complex", (&[0, 0], &[HOLD_BOTH, TAKE_BOTH]), both, (&[0, 0], 2), (&[0, 0], 1)),
        semop("ten semaphores", "none", (&[5; 10], &[]), (settle, ten), (&[5; 10], 0), (&[3; 10], 0)),
        semop("ten semaphores, undo", "none", (&[5; 10], &[]), (settle, ten_undo), (&[5; 10], 0), (&[5; 10], 0)),
        semop("ten semaphores", "complex", (&[2; 10], &[ZERO_BOTH, TAKE_FAR, ZERO_LAST]), (settle, ten), (&[2; 10], 3), (&[0; 10], 1)),
    ]
}

fn refused() -> Vec<Plain> {
    vec![
        semop(
            "take refused by IPC_NOWAIT",
            "none",
            (&[0], &[]),
            (settle, |s| victim(s, &[op(0, -1, SEM_UNDO | IPC_NOWAIT)])),
            (&[0], 0),
            (&[0], 0),
        ),
        semop(
            "take refused by IPC_NOWAIT",
            "complex",
            (&[0, 1], &[TAKE_BOTH]),
            (settle, |s| victim(s, &[op(0, -1, IPC_NOWAIT), op(1, -1, 0)])),
            (&[0, 1], 1),
            (&[0, 1], 1),
        ),
        semop("give refused, ERANGE", "none", (&[32767], &[]), (settle_none, |s| victim(s, GIVE)), (&[32767], 0), (&[32767], 0)),
    ]
}

/// The victim takes its slot elsewhere.
fn settle_none(s: &Stage) {
    s.victim.attach();
}
