//! What is cut, and what the living do meanwhile.

use manyway_sem::abi::{SEM_UNDO, SemBuf};

use crate::live::{Contest, SEMS, Sems};

pub const fn op(num: u16, op: i16, flags: i32) -> SemBuf {
    SemBuf { num, op, flg: flags as i16 }
}

/// A call that is cut by the death of its caller.
pub struct Case {
    pub name: &'static str,
    /// The values from which it starts.
    pub values: [u16; SEMS],
    /// What the dying one holds beforehand.
    pub hold: &'static [SemBuf],
    /// What is cut.
    pub call: fn(Sems, i32),
    /// What the contender does all the time.
    pub contest: Contest,
    /// What the sleeper waits for.
    pub sleep: &'static [SemBuf],
    /// The values in the end, when nobody holds anything any more.
    pub finals: &'static [[u16; SEMS]],
    /// None: the death alone ends the sleep. Else what another process does, should the call not have come so far as to end it.
    pub help: Option<fn(Sems, i32)>,
    /// The call removes the set.
    pub removes: bool,
}

impl Case {
    /// A call of a process that holds units which the sleeper waits for.
    const fn holder(name: &'static str, call: fn(Sems, i32), finals: &'static [[u16; SEMS]]) -> Case {
        Case { name, values: [5, 5, 1, 0], hold: HOLD_TWO, call, contest: TAKE_GIVE, sleep: TAKE_FIVE, finals, help: None, removes: false }
    }
    /// The same; the sleeper waits elsewhere, so that the call and the contender take the fast paths.
    const fn beside(name: &'static str, call: fn(Sems, i32), finals: &'static [[u16; SEMS]]) -> Case {
        Case { hold: HOLD_ELSEWHERE, sleep: HOLD_ELSEWHERE, ..Case::holder(name, call, finals) }
    }
    /// The same; the sleeper waits for two semaphores at once.
    const fn complex(name: &'static str, call: fn(Sems, i32), finals: &'static [[u16; SEMS]]) -> Case {
        Case { hold: HOLD_TWO_EACH, sleep: TAKE_FIVE_EACH, contest: TAKE_GIVE_BOTH, ..Case::holder(name, call, finals) }
    }
    /// A call that completes the sleeper.
    const fn granting(name: &'static str, call: fn(Sems, i32), sleep: &'static [SemBuf], finals: &'static [[u16; SEMS]]) -> Case {
        let contest = GIVE_TAKE_AT_ONCE;
        Case { values: [0, 0, 1, 0], hold: HOLD_ELSEWHERE, sleep, help: Some(call), contest, ..Case::holder(name, call, finals) }
    }
}

const HOLD_TWO: &[SemBuf] = &[op(0, -2, SEM_UNDO)];
const HOLD_TWO_EACH: &[SemBuf] = &[op(0, -2, SEM_UNDO), op(1, -2, SEM_UNDO)];
const HOLD_ELSEWHERE: &[SemBuf] = &[op(2, -1, SEM_UNDO)];
const TAKE_FIVE: &[SemBuf] = &[op(0, -5, SEM_UNDO)];
const TAKE_FIVE_EACH: &[SemBuf] = &[op(0, -5, SEM_UNDO), op(1, -5, 0)];
const TAKE_GIVE: Contest = [&[op(0, -1, SEM_UNDO)], &[op(0, 1, SEM_UNDO)]];
const TAKE_GIVE_BOTH: Contest = [&[op(0, -1, SEM_UNDO), op(1, -1, SEM_UNDO)], &[op(1, 1, SEM_UNDO), op(0, 1, SEM_UNDO)]];
const GIVE_TAKE: Contest = [&[op(0, 1, SEM_UNDO)], &[op(0, -1, SEM_UNDO)]];
/// Nothing is held between calls.
const GIVE_TAKE_AT_ONCE: Contest = [&[op(0, 1, SEM_UNDO), op(0, -1, SEM_UNDO)], &[]];

const FIVE: &[[u16; SEMS]] = &[[5, 5, 1, 0]];
const FIVE_OR_FOUR: &[[u16; SEMS]] = &[[5, 5, 1, 0], [4, 5, 1, 0]];
const FIVE_OR_SIX: &[[u16; SEMS]] = &[[5, 5, 1, 0], [6, 5, 1, 0]];

fn call(s: Sems, id: i32, ops: &[SemBuf]) {
    // It may be refused: then nothing has happened.
    let _ = s.op(id, ops);
}
fn take_undo(s: Sems, id: i32) {
    call(s, id, &[op(0, -1, SEM_UNDO)]);
}
fn give_undo(s: Sems, id: i32) {
    call(s, id, &[op(0, 1, SEM_UNDO)]);
}
fn take(s: Sems, id: i32) {
    call(s, id, &[op(0, -1, 0)]);
}
fn give(s: Sems, id: i32) {
    call(s, id, &[op(0, 1, 0)]);
}
fn two_undo(s: Sems, id: i32) {
    call(s, id, &[op(0, -1, SEM_UNDO), op(1, -1, SEM_UNDO)]);
}
fn two(s: Sems, id: i32) {
    call(s, id, &[op(0, -1, 0), op(1, 1, 0)]);
}
fn many(s: Sems, id: i32) {
    call(s, id, &[op(0, 1, SEM_UNDO), op(1, 3, SEM_UNDO), op(3, 1, SEM_UNDO), op(0, -1, SEM_UNDO), op(3, -1, SEM_UNDO)]);
}
fn to_sleep(s: Sems, id: i32) {
    call(s, id, &[op(0, -9, SEM_UNDO)]);
}
fn both_to_sleep(s: Sems, id: i32) {
    call(s, id, &[op(0, -9, SEM_UNDO), op(1, -9, SEM_UNDO)]);
}
fn zero_to_sleep(s: Sems, id: i32) {
    call(s, id, &[op(1, 0, 0)]);
}
fn set_value(s: Sems, id: i32) {
    let _ = s.set_value(id, 7);
}
fn set_all(s: Sems, id: i32) {
    let _ = s.set_all(id, &[7, 8, 9, 10]);
}
fn remove(s: Sems, id: i32) {
    let _ = s.remove(id);
}

/// Every case.
pub const ALL: &[Case] = &[
    Case::beside("take", take, FIVE_OR_FOUR),
    Case::beside("take undo", take_undo, FIVE),
    Case::beside("give undo", give_undo, FIVE),
    Case::beside("two semaphores", two, &[[5, 5, 1, 0], [4, 6, 1, 0]]),
    Case::beside("two semaphores, undo", two_undo, FIVE),
    Case { values: [6, 5, 1, 0], ..Case::holder("take, a sleeper there", take, &[[6, 5, 1, 0], [5, 5, 1, 0]]) },
    Case::holder("give, a sleeper there", give, FIVE_OR_SIX),
    Case::holder("take undo, a sleeper there", take_undo, FIVE),
    Case::holder("give undo, a sleeper there", give_undo, FIVE),
    Case::holder("five operations, a sleeper there", many, FIVE),
    Case::complex("two semaphores, undo, a complex sleeper there", two_undo, FIVE),
    Case::complex("take undo, a complex sleeper there", take_undo, FIVE),
    Case::holder("going to sleep", to_sleep, FIVE),
    Case::holder("going to sleep for two", both_to_sleep, FIVE),
    Case::complex("going to sleep for two, a complex sleeper there", both_to_sleep, FIVE),
    Case::holder("going to sleep for zero", zero_to_sleep, FIVE),
    Case {
        values: [0, 5, 1, 0],
        hold: &[op(0, 2, SEM_UNDO)],
        sleep: &[op(0, 0, 0)],
        contest: GIVE_TAKE,
        ..Case::holder("give undo, a sleeper waits for zero", give_undo, &[[0, 5, 1, 0]])
    },
    Case::granting("granting", give, &[op(0, -1, SEM_UNDO)], &[[1, 0, 1, 0]]),
    Case {
        values: [0; SEMS],
        hold: &[],
        ..Case::granting("granting a complex sleeper", give, &[op(0, -1, SEM_UNDO), op(2, 0, 0)], &[[1, 0, 0, 0]])
    },
    Case { values: [5, 5, 1, 0], ..Case::granting("SETVAL", set_value, &[op(0, -7, SEM_UNDO)], &[[7, 5, 1, 0]]) },
    Case { values: [5, 5, 1, 0], ..Case::granting("SETALL", set_all, &[op(0, -7, SEM_UNDO)], &[[7, 8, 9, 10]]) },
    Case { values: [5, 5, 1, 0], removes: true, ..Case::granting("IPC_RMID", remove, &[op(0, -7, SEM_UNDO)], &[]) },
];
