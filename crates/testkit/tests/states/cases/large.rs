//! Calls of many stores: a thousand sleepers, a set of the largest size.

use manyway_sem::abi::{IPC_CREAT, SEM_UNDO, SemBuf};

use super::control::told_removed;
use super::{Case, Outcome, Plain, TAKE, ZERO, outcome, settle, victim};
use crate::next::Touches;
use crate::stage::{Stage, op};

/// Who are granted at once.
const THOUSAND: usize = 1000;
/// Semaphores of the largest set.
const LARGEST: usize = 32_000;

pub fn all() -> Vec<Case> {
    thousand().into_iter().chain(largest()).map(Case::large).collect()
}

fn crowd(
    name: &'static str,
    sleepers: &'static str,
    entry: &'static [&'static str],
    (values, ops): (&'static [u16], &'static [SemBuf]),
    call: fn(&Stage),
    (none, all): (Outcome, Outcome),
) -> Case {
    let plain = Plain { name, sleepers, entry, values, asleep: &[], setup: settle, call, none, all };
    let case = plain.case().and(|_| {});
    let before = case.before;
    Case {
        before: Box::new(move |s| {
            before(s);
            s.sleepers(THOUSAND, ops);
        }),
        touches: Touches::Nothing,
        ..case
    }
}

fn thousand() -> Vec<Case> {
    const BOTH: &[SemBuf] = &[op(0, -1, 0), op(1, 0, 0)];
    let give: fn(&Stage) = |s| victim(s, &[op(0, 1000, 0)]);
    let setval: fn(&Stage) = |s| {
        let _ = s.victim.engine.setval(s.victim.t, s.id.get(), 0, 1000);
    };
    let all: Outcome = (&[0], 0);
    vec![
        crowd("give a thousand", "1,000 alter", &["semop"], (&[0], TAKE), give, ((&[0], THOUSAND), all)),
        crowd("take", "1,000 zero", &["semop"], (&[1], ZERO), |s| victim(s, TAKE), ((&[1], THOUSAND), all)),
        crowd("SETVAL", "1,000 alter", &["setval"], (&[0], TAKE), setval, ((&[0], THOUSAND), all)),
        crowd("give a thousand", "1,000 complex", &["semop"], (&[0, 0], BOTH), give, ((&[0, 0], THOUSAND), (&[0, 0], 0))),
    ]
}

fn filled(value: u16) -> &'static [u16] {
    vec![value; LARGEST].leak()
}

fn largest() -> Vec<Case> {
    let (ones, twos) = (filled(1), filled(2));
    let setall: fn(&Stage) = |s| {
        let _ = s.victim.engine.setall(s.victim.t, s.id.get(), filled(2));
    };
    let remove: fn(&Stage) = |s| {
        let _ = s.victim.engine.remove(s.victim.t, s.id.get());
    };
    let make: fn(&Stage) = |s| {
        let _ = s.victim.engine.semget(s.victim.t, KEY, LARGEST as i32, IPC_CREAT | 0o600);
    };
    // Somebody who lives has adjustments, which SETALL clears.
    let held: fn(&Stage) = |s| {
        for num in [0, 5, 31_999] {
            s.checker.op(s.id.get(), &[op(num, -1, SEM_UNDO)]);
            s.checker.op(s.id.get(), &[op(num, 1, 0)]);
        }
    };
    const KEY: i32 = 0x3e8;
    const WAITS: &[SemBuf] = &[op(31_999, -2, 0)];
    let plain = |name, sleepers, entry, asleep, call, none, all| Plain {
        name,
        sleepers,
        entry,
        values: ones,
        asleep,
        setup: |s| s.victim.attach(),
        call,
        none,
        all,
    };
    let mut granted = vec![2; LARGEST];
    granted[LARGEST - 1] = 0;
    let created = Plain { values: &[1], ..plain("semget, new, 32,000", "none", &["semget"], &[], make, (&[1], 0), (&[1], 0)) };
    vec![
        plain("SETALL, 32,000", "none", &["setall"], &[], setall, (ones, 0), (twos, 0)).case().and(held),
        plain("SETALL, 32,000", "alter", &["setall"], &[WAITS], setall, (ones, 1), (granted.leak(), 0)).case().and(held),
        plain("IPC_RMID, 32,000", "alter", &["remove"], &[WAITS], remove, (ones, 1), (&[], 0)).case().and(held).expects(
            move |s, none, all| {
                outcome(s, none, (ones, 1))?;
                let (there, told) = (all.sets.contains_key(&s.id.get()), told_removed(all));
                if there || told != 1 { Err(format!("there: {there}, told of the removal: {told}")) } else { Ok(()) }
            },
        ),
        created.case().expects(|_, none, all| {
            let made = |m: &manyway_testkit::invariants::Meaning| m.sets.values().filter(|s| s.key == KEY && s.values == filled(0)).count();
            if (made(none), made(all)) == (0, 1) { Ok(()) } else { Err("the set is not there, or was before".to_owned()) }
        }),
    ]
}
