//! semctl and semget.

use manyway_sem::Limits;
use manyway_sem::abi::{IPC_CREAT, IPC_EXCL, IPC_PRIVATE, SEM_UNDO, SemBuf};
use manyway_sem::node::{self, Outcome as End, State};
use manyway_sem::{Engine, OpenOptions, Share};
use manyway_testkit::invariants::{Meaning, SetMeaning};

use super::{Between, Call, Case, HOLD, HOLD_BOTH, Outcome, Plain, TAKE, TAKE_BOTH, ZERO, ZERO_BOTH, outcome, settle};
use crate::stage::{NEIGHBOUR_KEY, Stage, op};

pub fn all() -> Vec<Case> {
    let plain = [setval(), setall(), reading()].into_iter().flatten().map(Plain::case);
    plain.chain(of_what_is_held()).chain(creation()).chain(removal()).chain(ending()).chain(access()).collect()
}

fn control(
    name: &'static str,
    sleepers: &'static str,
    entry: &'static [&'static str],
    (values, asleep): (&'static [u16], &'static [&'static [SemBuf]]),
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

/// Somebody who lives holds a unit, which it holds no more behind the call: its adjustment goes with the value.
fn of_what_is_held() -> Vec<Case> {
    let setval: fn(&Stage) = |s| {
        let _ = s.victim.engine.setval(s.victim.t, s.id.get(), 0, 5);
    };
    let setall: fn(&Stage) = |s| {
        let _ = s.victim.engine.setall(s.victim.t, s.id.get(), &[5, 6]);
    };
    let case = |name, entry, call, all: &'static [u16]| {
        let case = control(name, "none, a unit held", entry, (&[2, 2], &[]), call, (&[1, 2], 0), (all, 0)).case();
        let case = case.and(|s| s.checker.op(s.id.get(), HOLD));
        case.expects(move |s, before, behind| {
            for (meaning, values, held) in [(before, &[1, 2][..], 1), (behind, all, 0)] {
                outcome(s, meaning, (values, 0))?;
                let is = meaning.sets[&s.id.get()].adjustments.len();
                if is != held {
                    return Err(format!("{is} adjustments, should be {held}"));
                }
            }
            Ok(())
        })
    };
    vec![case("SETVAL", &["setval"], setval, &[5, 2]), case("SETALL", &["setall"], setall, &[5, 6])]
}

/// Commands that change nothing: on cells that a complex sleeper names they lock the set.
fn reading() -> Vec<Plain> {
    type Read = (&'static str, &'static [&'static str], Call);
    let reads: [Read; 6] = [
        ("GETVAL", &["getval"], |s| {
            let _ = s.victim.engine.getval(s.victim.t, s.id.get(), 0);
        }),
        ("GETPID", &["getpid"], |s| {
            let _ = s.victim.engine.getpid(s.victim.t, s.id.get(), 0);
        }),
        ("GETNCNT", &["getncnt"], |s| {
            let _ = s.victim.engine.getncnt(s.victim.t, s.id.get(), 0);
        }),
        ("GETZCNT", &["getzcnt"], |s| {
            let _ = s.victim.engine.getzcnt(s.victim.t, s.id.get(), 0);
        }),
        ("GETALL", &["getall"], |s| {
            let _ = s.victim.engine.getall(s.victim.t, s.id.get(), &mut [0; 2]);
        }),
        ("IPC_STAT", &["stat"], |s| {
            let _ = s.victim.engine.stat(s.victim.t, s.id.get());
        }),
    ];
    let complex =
        |(name, entry, call)| control(name, "complex", entry, (&[0, 1], &[TAKE_BOTH, ZERO_BOTH, TAKE]), call, (&[0, 1], 3), (&[0, 1], 3));
    reads.into_iter().map(complex).collect()
}

const KEY: i32 = 0x5157;

fn with_key(meaning: &Meaning, key: i32) -> Vec<&SetMeaning> {
    meaning.sets.values().filter(|s| s.key == key).collect()
}

/// semget: how many sets of a key are there before and behind, with how many semaphores, all 0.
fn semget(name: &'static str, call: fn(&Stage), key: i32, (before, behind): (usize, usize), nsems: usize) -> Case {
    let plain = Plain {
        name,
        sleepers: "none",
        entry: &["semget"],
        values: &[1],
        asleep: &[],
        setup: |s| s.victim.attach(),
        call,
        none: (&[1], 0),
        all: (&[1], 0),
    };
    plain.case().expects(move |s, none, all| {
        for (meaning, n) in [(none, before), (all, behind)] {
            outcome(s, meaning, (&[1], 0))?;
            let found = with_key(meaning, key);
            let made = found.iter().filter(|set| key != IPC_PRIVATE || set.values.len() == nsems).count();
            if made != n || (n > before && !found.iter().any(|set| set.values == vec![0; nsems])) {
                return Err(format!("{made} sets of the key, should be {n}"));
            }
        }
        Ok(())
    })
}

fn creation() -> Vec<Case> {
    fn make(s: &Stage, key: i32, nsems: i32, flags: i32) {
        let _ = s.victim.engine.semget(s.victim.t, key, nsems, flags | 0o600);
    }
    vec![
        semget("semget, new", |s| make(s, KEY, 3, IPC_CREAT | IPC_EXCL), KEY, (0, 1), 3),
        semget("semget, new, private", |s| make(s, IPC_PRIVATE, 3, 0), IPC_PRIVATE, (0, 1), 3),
        semget("semget, new, 100 semaphores", |s| make(s, KEY, 100, IPC_CREAT), KEY, (0, 1), 100),
        semget("semget, a set that is there", |s| make(s, NEIGHBOUR_KEY, 2, IPC_CREAT), NEIGHBOUR_KEY, (1, 1), 2),
        semget("semget, refused", |s| make(s, NEIGHBOUR_KEY, 2, IPC_CREAT | IPC_EXCL), NEIGHBOUR_KEY, (1, 1), 2),
        semget("semget, after a removal", |s| make(s, KEY, 1, IPC_CREAT), KEY, (0, 1), 1).and(|s| {
            // In the same bucket of a chain, and memory that was used.
            let (e, t) = (s.checker.engine, s.checker.t);
            let id = e.semget(t, KEY, 1, IPC_CREAT | 0o600).expect("a set");
            s.checker.op(id, &[op(0, 1, SEM_UNDO)]);
            assert_eq!(e.remove(t, id), Ok(()));
        }),
    ]
}

/// How many sleepers of living processes were told that the set is gone.
pub fn told_removed(meaning: &Meaning) -> usize {
    meaning.nodes.values().filter(|&&w| node::state(w) == State::Finished(End::Removed)).count()
}

/// IPC_RMID: the set is there with all that sleep on it, or gone, and they have all been told.
pub fn rmid(sleepers: &'static str, values: &'static [u16], asleep: &'static [&'static [SemBuf]]) -> Case {
    let call: fn(&Stage) = |s| {
        let _ = s.victim.engine.remove(s.victim.t, s.id.get());
    };
    let n = asleep.len();
    let case = control("IPC_RMID", sleepers, &["remove"], (values, asleep), call, (values, n), (&[], 0)).case();
    case.expects(move |s, none, all| {
        outcome(s, none, (values, n))?;
        let there = all.sets.contains_key(&s.id.get());
        if there || told_removed(all) != n || told_removed(none) != 0 {
            return Err(format!("there: {there}; sleepers told of the removal: {}", told_removed(all)));
        }
        Ok(())
    })
}

fn removal() -> Vec<Case> {
    // Somebody who lives has added a unit to the second semaphore, and somebody else has taken it.
    let held = |s: &Stage| {
        s.checker.op(s.id.get(), &[op(1, 1, SEM_UNDO)]);
        s.checker.op(s.id.get(), &[op(1, -1, 0)]);
    };
    vec![
        rmid("none", &[1, 1], &[]).and(held),
        rmid("zero", &[2, 1], &[ZERO, ZERO]).and(held),
        rmid("alter", &[0, 1], &[TAKE, HOLD]).and(held),
        rmid("complex", &[0, 1], &[TAKE_BOTH, HOLD_BOTH, ZERO_BOTH, TAKE]),
        // Beside a set with index 0, of which somebody holds something.
        rmid("none, several pages", &[1; 100], &[]).and(|s| {
            let (e, t) = (s.checker.engine, s.checker.t);
            e.set_limits(Limits { mni: 3, ..e.limits() }).expect("possible limits");
            let id = e.semget(t, IPC_PRIVATE, 1, 0o600).expect("room for one more");
            assert_eq!(id & 0x7fff, 0, "its index");
            s.checker.op(id, &[op(0, 1, SEM_UNDO)]);
        }),
    ]
}

/// The end of a namespace: its mark, a refused semget, then a removal for each set, one after the other.
fn ending() -> Vec<Case> {
    let end: fn(&Stage) = |s| {
        let _ = s.victim.engine.end(s.victim.t);
    };
    let first_is_gone: Between = |s, before, _| {
        let mut between = before.clone();
        between.sets.remove(&s.neighbour);
        vec![between]
    };
    let ended = |sleepers, values: &'static [u16], asleep: &'static [&'static [SemBuf]]| {
        let same: Outcome = (values, asleep.len());
        let case = control("end of the namespace", sleepers, &["end"], (values, asleep), end, same, same).case();
        // It looks at each index.
        let case = Case { between: Some(first_is_gone), ..case }.by_protection();
        case.expects(move |s, none, all| {
            outcome(s, none, (values, asleep.len()))?;
            if all.sets.is_empty() { Ok(()) } else { Err(format!("sets are left: {:?}", all.sets)) }
        })
    };
    vec![
        ended("none", &[1, 1], &[]),
        ended("zero", &[2, 1], &[ZERO, ZERO]),
        ended("alter", &[0, 1], &[TAKE, HOLD]),
        ended("complex", &[0, 1], &[TAKE_BOTH, ZERO_BOTH]),
    ]
}

fn access() -> Vec<Case> {
    let set: fn(&Stage) = |s| {
        let _ = s.victim.engine.set_perm(s.victim.t, s.id.get(), 0, 7, 0o640);
    };
    let stat_index: fn(&Stage) = |s| {
        let _ = s.victim.engine.stat_index(s.victim.t, s.id.get() & 0x7fff, false);
    };
    let limits: fn(&Stage) = |s| {
        let mut other = s.victim.engine.limits();
        other.mni -= 1;
        other.mns -= 1;
        s.victim.engine.set_limits(other).expect("possible limits");
    };
    // Wider, and narrower again: the header is the first to say more and the last to say less. The modes of the files are no part of the arena.
    let share: fn(&Stage) = |s| {
        for with in [Share::All, Share::Nobody] {
            Engine::set_share(&s.path, &OpenOptions::FIND, with).expect("own files");
        }
    };
    let fairness: fn(&Stage) = |s| s.victim.engine.set_fairness(manyway_sem::Fairness::Strict);
    let watch: fn(&Stage) = |s| s.victim.engine.set_watcher(std::process::id());
    let ipc_set = |sleepers, values: &'static [u16], asleep: &'static [&'static [SemBuf]]| {
        let n = asleep.len();
        let case = control("IPC_SET", sleepers, &["set_perm"], (values, asleep), set, (values, n), (values, n)).case();
        case.expects(move |s, none, all| {
            for (meaning, access) in [(none, (0o600, 0, 0)), (all, (0o640, 0, 7))] {
                outcome(s, meaning, (values, n))?;
                let is = meaning.sets[&s.id.get()].access;
                if is != access {
                    return Err(format!("mode, owner and group are {is:?}, should be {access:?}"));
                }
            }
            Ok(())
        })
    };
    vec![
        ipc_set("none", &[1, 1], &[]),
        ipc_set("complex", &[0, 1], &[TAKE_BOTH, ZERO_BOTH]),
        control("limits", "alter", &["set_limits"], (&[0], &[TAKE]), limits, (&[0], 1), (&[0], 1)).case(),
        // It maps the file for itself, which tracing by protection does not follow.
        control("sharing", "alter", &["set_share"], (&[0], &[TAKE]), share, (&[0], 1), (&[0], 1)).case().newcomer(),
        control("fairness", "none", &["set_fairness"], (&[1], &[]), fairness, (&[1], 0), (&[1], 0)).case(),
        control("the watcher's mark", "alter", &["set_watcher"], (&[0], &[TAKE]), watch, (&[0], 1), (&[0], 1)).case(),
        control("SEM_STAT", "alter", &["stat_index"], (&[0], &[TAKE]), stat_index, (&[0], 1), (&[0], 1)).case(),
    ]
}
