//! The calls, and for each: from which state it starts and in which states it may leave the semaphores.

use std::cell::OnceCell;
use std::sync::Arc;

use manyway_sem::Errno;
use manyway_sem::abi::{IPC_CREAT, IPC_NOWAIT, IPC_PRIVATE, SEM_UNDO, SemBuf};

use manyway_testkit::step::{Path, Stepped};

use crate::run::{Case, everything};
use crate::stage::{Child, Stage, op};

/// What a child does beforehand, and the call that is cut.
type Calls = (fn(&Child), fn(&Child));

/// Every case.
pub fn all() -> Vec<Case> {
    let calls = || [operations(), granting(), sleeping(), control(), sets(), recovery()].into_iter().flatten();
    let mut all: Vec<Case> = calls().collect();
    for (name, cuts) in CUT_TWICE {
        let middle = cuts.div_ceil(2);
        for cut in (1..=*cuts).filter(|&cut| everything() || cut == middle) {
            let victim = calls().find(|c| c.name == *name).unwrap_or_else(|| panic!("no case {name}"));
            all.push(cut_twice(victim, cut, *cuts));
        }
    }
    all
}

fn case(
    name: &'static str,
    before: impl Fn(&Stage) + Send + 'static,
    (setup, call): Calls,
    after: impl Fn(&Stage, u32) + Send + Sync + 'static,
) -> Case {
    Case { name: name.to_owned(), before: Box::new(before), setup, call, after: Arc::new(after) }
}

/// A call that meets nobody: the semaphores go from `from` to one of `to`, which have the dead one's undo in them.
fn alone(name: &'static str, from: &'static [u16], to: &'static [&'static [u16]], calls: Calls) -> Case {
    let after = move |s: &Stage, dead| {
        s.hear_of(dead);
        let values = s.values();
        assert!(to.contains(&&*values), "values {values:?}, expected one of {to:?}");
        s.works();
    };
    case(name, move |s| s.set(from), calls, after)
}

fn operations() -> Vec<Case> {
    // A fresh set's first operation stamps its sem_otime by the slow path.
    let fresh = |s: &Stage| {
        if s.id.get() != 0 {
            s.engine.remove(&s.me, s.id.get()).expect("the last round's set");
        }
        s.id.set(s.engine.semget(&s.me, IPC_PRIVATE, 1, 0o600).expect("a set"));
    };
    let first = |s: &Stage, dead| {
        s.hear_of(dead);
        let value = s.values()[0];
        let otime = s.engine.stat(&s.me, s.id.get()).expect("IPC_STAT").otime;
        assert!(value <= 1, "value {value}");
        // Programs wait for a first sem_otime to see that a set has been initialised.
        assert_eq!(value == 1, otime != 0, "value {value}, sem_otime {otime}");
        s.works();
    };
    let fresh_five = move |s: &Stage| {
        fresh(s);
        s.engine.setval(&s.me, s.id.get(), 0, 5).expect("SETVAL");
    };
    let five_again = |s: &Stage, dead| {
        s.hear_of(dead);
        assert_eq!(s.values(), [5]);
        s.works();
    };
    vec![
        alone("the process's first call", &[5], &[&[5], &[4]], (|_| {}, |c| c.op(&[op(0, -1, 0)]))),
        alone("the process's first call, undo", &[5], &[&[5]], (|_| {}, |c| c.op(&[op(0, -1, SEM_UNDO)]))),
        case("give, the set's first", fresh, (Child::settle_in_elsewhere, |c| c.op(&[op(0, 1, 0)])), first),
        alone("take", &[5], &[&[5], &[4]], (Child::settle_in, |c| c.op(&[op(0, -1, 0)]))),
        alone("give", &[5], &[&[5], &[6]], (Child::settle_in, |c| c.op(&[op(0, 1, 0)]))),
        alone("zero", &[0], &[&[0]], (Child::settle_in, |c| c.op(&[op(0, 0, 0)]))),
        alone("take undo", &[5], &[&[5]], (Child::settle_in, |c| c.op(&[op(0, -1, SEM_UNDO)]))),
        alone("give undo", &[5], &[&[5]], (Child::settle_in, |c| c.op(&[op(0, 1, SEM_UNDO)]))),
        alone("take undo, a further one", &[5], &[&[5]], (Child::hold_two, |c| c.op(&[op(0, -1, SEM_UNDO)]))),
        alone("give undo, the last one back", &[5], &[&[5]], (Child::hold_one, |c| c.op(&[op(0, 1, SEM_UNDO)]))),
        case("take undo, locked path", fresh_five, (Child::settle_in_elsewhere, |c| c.op(&[op(0, -1, SEM_UNDO)])), five_again),
        alone("take refused by IPC_NOWAIT", &[0], &[&[0]], (Child::settle_in, |c| c.op(&[op(0, -1, SEM_UNDO | IPC_NOWAIT)]))),
        alone("two semaphores", &[5, 5], &[&[5, 5], &[4, 7]], (Child::settle_in, |c| c.op(&[op(0, -1, 0), op(1, 2, 0)]))),
        alone("two semaphores, undo", &[5, 5], &[&[5, 5]], (Child::settle_in, |c| c.op(&[op(1, 2, SEM_UNDO), op(0, -1, SEM_UNDO)]))),
        alone(
            "two semaphores, one with undo",
            &[5, 5],
            &[&[5, 5], &[5, 7]],
            (Child::settle_in, |c| {
                c.op(&[op(0, -1, SEM_UNDO), op(1, 2, 0)]);
            }),
        ),
        alone(
            "ten semaphores, undo",
            &[5; 10],
            &[&[5; 10]],
            (Child::settle_in, |c| {
                c.op(&std::array::from_fn::<_, 10, _>(|n| op(n as u16, -2, SEM_UNDO)));
            }),
        ),
        alone(
            "ten semaphores",
            &[5; 10],
            &[&[5; 10], &[3; 10]],
            (Child::settle_in, |c| {
                c.op(&std::array::from_fn::<_, 10, _>(|n| op(n as u16, -2, 0)));
            }),
        ),
    ]
}

impl Child {
    /// Takes a slot, by a call that does not touch the set.
    fn settle_in_elsewhere(&self) {
        let _ = self.engine.semget(&self.t, i32::MAX, 0, 0);
    }
    fn hold_one(&self) {
        self.settle_in();
        self.op(&[op(0, -1, SEM_UNDO)]);
    }
    fn hold_two(&self) {
        self.settle_in();
        self.op(&[op(0, -2, SEM_UNDO)]);
    }
}

/// A call that completes sleepers. With the values `from` they sleep in `asleep`. When the call was carried out, all of them have been
/// completed and the values are `done`, the dead one's undo included; else none has, and `help` completes them all.
struct Granting {
    from: &'static [u16],
    asleep: &'static [&'static [SemBuf]],
    done: &'static [u16],
    help: &'static [SemBuf],
}

impl Granting {
    fn case(self, name: &'static str, calls: Calls) -> Case {
        let Granting { from, asleep, done, help } = self;
        let before = move |s: &Stage| {
            s.set(from);
            asleep.iter().for_each(|ops| s.send_to_sleep(ops));
        };
        let after = move |s: &Stage, dead| {
            s.hear_of(dead);
            let values = s.values();
            let queued = s.still_queued();
            if queued.iter().all(|&q| q) {
                assert_eq!(values, from, "no sleeper was completed");
                assert_eq!(s.op(help), Ok(()));
            } else {
                assert!(queued.iter().all(|&q| !q), "only some of the sleepers were completed; still queued: {queued:?}");
                assert_eq!(values, done, "all sleepers were completed");
            }
            assert_eq!(s.results(), vec![Ok(()); asleep.len()], "the sleepers' calls");
            give_back(s, asleep);
            s.works();
        };
        case(name, before, calls, after)
    }
}

/// Undoes what sleepers of this process did with SEM_UNDO.
fn give_back(s: &Stage, calls: &[&[SemBuf]]) {
    for o in calls.iter().flat_map(|ops| ops.iter()).filter(|o| o.flg & SEM_UNDO as i16 != 0) {
        assert_eq!(s.op(&[op(o.num, -o.op, SEM_UNDO)]), Ok(()));
    }
}

const TAKE: &[SemBuf] = &[op(0, -1, 0)];
const HOLD: &[SemBuf] = &[op(0, -1, SEM_UNDO)];
const ZERO: &[SemBuf] = &[op(0, 0, 0)];
const TAKE_TWO: &[SemBuf] = &[op(0, -1, 0), op(1, -1, 0)];
const HOLD_TWO: &[SemBuf] = &[op(0, -1, SEM_UNDO), op(1, -1, SEM_UNDO)];
const ZERO_TWO: &[SemBuf] = &[op(0, 0, 0), op(1, 0, 0)];
const GIVE: &[SemBuf] = &[op(0, 1, 0)];
const GIVE_TWO: &[SemBuf] = &[op(0, 2, 0)];
const GIVE_BOTH: &[SemBuf] = &[op(0, 1, 0), op(1, 1, 0)];
const GIVE_THREE: &[SemBuf] = &[op(0, 2, 0), op(1, 1, 0)];

fn granting() -> Vec<Case> {
    let give: Calls = (Child::settle_in, |c| c.op(GIVE));
    let give_undo: Calls = (Child::settle_in, |c| c.op(&[op(0, 1, SEM_UNDO)]));
    let give_two: Calls = (Child::settle_in, |c| c.op(GIVE_TWO));
    let both: Calls = (Child::settle_in, |c| c.op(GIVE_BOTH));
    let take: Calls = (Child::settle_in, |c| c.op(TAKE));
    let hold: Calls = (Child::settle_in, |c| c.op(HOLD));
    let one = |asleep, done, help| Granting { from: &[0], asleep, done, help };
    let two = |from, asleep, done, help| Granting { from, asleep, done, help };
    vec![
        one(&[TAKE], &[0], GIVE).case("give completes a sleeper", give),
        one(&[HOLD], &[0], GIVE).case("give completes a sleeper with undo", give),
        // The dead one's undo takes a unit that is not there: the value stops at 0.
        one(&[TAKE], &[0], GIVE).case("give undo completes a sleeper", give_undo),
        one(&[HOLD], &[0], GIVE).case("give undo completes a sleeper with undo", give_undo),
        one(&[TAKE, HOLD], &[0], GIVE_TWO).case("give two completes two sleepers", give_two),
        two(&[0, 1], &[TAKE_TWO], &[0, 0], GIVE).case("give completes a complex sleeper", give),
        two(&[0, 1], &[HOLD_TWO], &[0, 0], GIVE).case("give completes a complex sleeper with undo", give),
        two(&[0, 1], &[HOLD_TWO], &[0, 0], GIVE).case("give undo completes a complex sleeper with undo", give_undo),
        two(&[0, 1], &[HOLD_TWO, TAKE], &[0, 0], GIVE_TWO).case("give two completes a complex and a simple sleeper", give_two),
        two(&[0, 0], &[HOLD_TWO], &[0, 0], GIVE_BOTH).case("give both completes a complex sleeper", both),
        two(&[1], &[ZERO, ZERO], &[0], TAKE).case("take completes two that wait for zero", take),
        two(&[1], &[ZERO, ZERO], &[1], TAKE).case("take undo completes two that wait for zero", hold),
        two(&[1, 0], &[ZERO_TWO, ZERO], &[0, 0], TAKE).case("take completes a complex wait for zero", take),
    ]
}

fn sleeping() -> Vec<Case> {
    // The dead sleeper gets no unit, whoever lives does.
    let lone = |s: &Stage, dead| {
        s.hear_of(dead);
        assert_eq!(s.counts(0), (0, 0), "the dead are not counted");
        assert_eq!(s.op(GIVE), Ok(()));
        assert_eq!(s.values()[0], 1, "no unit goes to the dead");
        s.works();
    };
    // An unrelated sleeper was there first, or came behind the dead one.
    let company = |s: &Stage, dead| {
        s.hear_of(dead);
        assert_eq!(s.counts(0), (1, 0), "one lives");
        assert_eq!(s.op(GIVE), Ok(()));
        assert_eq!(s.results(), [Ok(())]);
        assert_eq!(s.values()[0], 0);
        give_back(s, &[HOLD]);
        s.works();
    };
    let two = |s: &Stage| s.set(&[0, 0]);
    let shared = |s: &Stage| {
        s.set(&[0, 0]);
        s.send_to_sleep(HOLD);
    };
    vec![
        case("take goes to sleep", two, (Child::settle_in, |c| c.op(TAKE)), lone),
        case("take undo goes to sleep", two, (Child::settle_in, |c| c.op(HOLD)), lone),
        case("take goes to sleep behind another", shared, (Child::settle_in, |c| c.op(TAKE)), company),
        case("take both goes to sleep", two, (Child::settle_in, |c| c.op(HOLD_TWO)), lone),
        case("take both goes to sleep behind a simple one", shared, (Child::settle_in, |c| c.op(TAKE_TWO)), company),
        case(
            "zero goes to sleep",
            |s| s.set(&[1]),
            (Child::settle_in, |c| c.op(ZERO)),
            |s, dead| {
                s.hear_of(dead);
                assert_eq!(s.counts(0), (0, 0), "the dead are not counted");
                assert_eq!(s.op(TAKE), Ok(()));
                s.works();
            },
        ),
    ]
}

fn control() -> Vec<Case> {
    let set_to_two: Calls = (Child::settle_in, |c| {
        let _ = c.engine.setval(&c.t, c.id, 0, 2);
    });
    let set_all: Calls = (Child::settle_in, |c| {
        let _ = c.engine.setall(&c.t, c.id, &[2, 3, 4]);
    });
    // This process holds a unit of semaphore 0: the adjustment goes with the value, both or neither.
    let held = |s: &Stage| {
        s.set(&[1, 1, 1]);
        assert_eq!(s.op(HOLD), Ok(()));
    };
    let cleared = |done: &'static [u16]| {
        move |s: &Stage, dead| {
            s.hear_of(dead);
            let values = s.values();
            if values == [0, 1, 1] {
                assert_eq!(s.holders(), [(0, 1, true)]);
                give_back(s, &[HOLD]);
            } else {
                assert_eq!(values, done);
                assert_eq!(s.holders(), [], "SETVAL and SETALL clear adjustments");
            }
            s.works();
        }
    };
    vec![
        case("SETVAL", held, set_to_two, cleared(&[2, 1, 1])),
        case("SETALL", held, set_all, cleared(&[2, 3, 4])),
        Granting { from: &[0], asleep: &[TAKE, HOLD], done: &[0], help: GIVE_TWO }.case("SETVAL completes two sleepers", set_to_two),
        Granting { from: &[0, 0, 1], asleep: &[HOLD_TWO, TAKE], done: &[0, 2, 4], help: GIVE_THREE }
            .case("SETALL completes sleepers", set_all),
        case(
            "IPC_SET",
            |s| {
                s.set(&[1]);
                s.engine.set_perm(&s.me, s.id.get(), 0, 0, 0o600).expect("its owner");
            },
            (Child::settle_in, |c| {
                let _ = c.engine.set_perm(&c.t, c.id, 0, 7, 0o640);
            }),
            |s, dead| {
                s.hear_of(dead);
                let now = s.engine.stat(&s.me, s.id.get()).expect("IPC_STAT");
                let access = (now.gid, now.mode);
                assert!(access == (0, 0o600) || access == (7, 0o640), "group and mode {access:?}");
                s.works();
            },
        ),
        alone(
            "GETALL",
            &[1, 2, 3],
            &[&[1, 2, 3]],
            (Child::settle_in, |c| {
                let _ = c.engine.getall(&c.t, c.id, &mut [0; 3]);
            }),
        ),
        alone("detach of a thread", &[1], &[&[1]], (Child::hold_one, |c| c.engine.detach_thread(&c.t))),
    ]
}

/// The key that `sets` uses.
const KEY: i32 = 0x5157;

/// A second set, with which nothing must happen: this process holds a unit of it.
fn neighbour(s: &Stage) {
    if s.neighbour.get() == 0 {
        // With index 0, which damaged memory would name.
        s.neighbour.set(loop {
            let id = s.engine.semget(&s.me, IPC_PRIVATE, 1, 0o600).expect("a set");
            if id & 0x7fff == 0 {
                break id;
            }
            s.engine.remove(&s.me, id).expect("a set that is there");
        });
    }
    s.engine.setval(&s.me, s.neighbour.get(), 0, 1).expect("SETVAL");
    s.engine.semop(&s.me, s.neighbour.get(), HOLD, None).expect("a free unit");
}
fn neighbour_unharmed(s: &Stage) {
    s.id.set(s.neighbour.get());
    assert_eq!((s.values(), s.holders()), (vec![0], vec![(0, 1, true)]), "another set's value and adjustment");
    give_back(s, &[HOLD]);
    s.works();
}

fn make(s: &Stage, nsems: i32) -> i32 {
    s.engine.semget(&s.me, KEY, nsems, IPC_CREAT | 0o600).expect("a set")
}

/// semget with a new key: the set is there whole, or not at all.
fn creation(name: &'static str, nsems: i32, call: fn(&Child)) -> Case {
    let after = move |s: &Stage, dead| {
        s.hear_of(dead);
        let found = s.engine.semget(&s.me, KEY, 0, 0);
        let sets = s.engine.info().sets;
        assert_eq!(sets, 1 + i32::from(found.is_ok()), "sets, when the key leads to {found:?}");
        let id = make(s, nsems);
        assert!(found.is_err() || found == Ok(id));
        s.id.set(id);
        assert_eq!(s.values(), vec![0; nsems as usize]);
        if nsems < 10 {
            s.works();
        }
        s.engine.remove(&s.me, id).expect("a set that is there");
        assert_eq!(s.engine.semget(&s.me, KEY, 0, 0), Err(Errno::ENOENT));
        assert_eq!(s.engine.info().sets, 1);
        neighbour_unharmed(s);
    };
    case(name, neighbour, (Child::settle_in_elsewhere, call), after)
}

/// IPC_RMID: the set is there whole, or gone with all that belonged to it.
fn removal(name: &'static str, nsems: i32) -> Case {
    let before = move |s: &Stage| {
        neighbour(s);
        s.id.set(make(s, nsems));
        assert_eq!(s.op(&[op(1, 3, 0), op(2, 1, SEM_UNDO)]), Ok(()));
        s.send_to_sleep(TAKE);
        s.send_to_sleep(TAKE_TWO);
    };
    let after = move |s: &Stage, dead| {
        s.hear_of(dead);
        if s.engine.semget(&s.me, KEY, 0, 0).is_ok() {
            assert_eq!(s.values()[..3], [0, 3, 1]);
            assert_eq!(s.holders(), [(2, -1, true)]);
            assert_eq!(s.counts(0), (2, 0));
            s.engine.remove(&s.me, s.id.get()).expect("a set that is there");
        }
        assert_eq!(s.engine.getval(&s.me, s.id.get(), 0), Err(Errno::EINVAL));
        assert_eq!(s.results(), [Err(Errno::EIDRM); 2]);
        assert_eq!(s.engine.info().sets, 1);
        assert_eq!(s.engine.semget(&s.me, KEY, 0, 0), Err(Errno::ENOENT));
        neighbour_unharmed(s);
    };
    let remove = |c: &Child| {
        let _ = c.engine.remove(&c.t, c.id);
    };
    case(name, before, (Child::hold_one_of_two, remove), after)
}

impl Child {
    fn hold_one_of_two(&self) {
        self.op(&[op(1, -1, SEM_UNDO)]);
    }
}

fn sets() -> Vec<Case> {
    vec![
        creation("semget, new", 3, |c| {
            let _ = c.engine.semget(&c.t, KEY, 3, IPC_CREAT | 0o600);
        }),
        creation("semget, new, large", 100, |c| {
            let _ = c.engine.semget(&c.t, KEY, 100, IPC_CREAT | 0o600);
        }),
        removal("IPC_RMID", 3),
        removal("IPC_RMID, large", 100),
    ]
}

/// A process that holds two units of semaphore 0, and has added one to semaphore 1.
fn holder(s: &Stage) -> Stepped {
    let hold = |c: &Child| {
        c.op(&[op(0, -2, SEM_UNDO)]);
        c.op(&[op(1, 1, SEM_UNDO)]);
    };
    let holder = s.stepped(hold, |_| {});
    s.victim.set(holder.pid());
    holder
}

fn recovery() -> Vec<Case> {
    let reap: fn(&Child) = |c| {
        c.engine.reap(&c.t, Some(c.victim));
    };
    let restored = |s: &Stage, dead| {
        s.hear_of(dead);
        assert_eq!(s.values(), [2, 5]);
        s.works();
    };
    let taken = |s: &Stage, dead| {
        s.hear_of(dead);
        let values = s.values();
        assert!(values == [2, 5] || values == [1, 5], "values {values:?}");
        s.works();
    };
    let dead_holder = |s: &Stage| {
        s.set(&[2, 5]);
        drop(holder(s));
    };
    let expectant = |s: &Stage| {
        s.set(&[2, 5]);
        let holder = holder(s);
        s.send_to_sleep(HOLD);
        s.send_to_sleep(TAKE_TWO);
        drop(holder);
    };
    vec![
        case("recovery of a dead holder, told", dead_holder, (Child::settle_in_elsewhere, reap), restored),
        case("recovery of a dead holder, found by take", dead_holder, (Child::settle_in_elsewhere, |c| c.op(TAKE)), taken),
        case("recovery completes sleepers", expectant, (Child::settle_in_elsewhere, reap), |s, dead| {
            s.hear_of(dead);
            assert_eq!(s.values(), [0, 4]);
            assert_eq!(s.results(), [Ok(()); 2]);
            give_back(s, &[HOLD]);
            s.works();
        }),
    ]
}

/// Calls that are cut at some points (in the middle, unless everything is asked for), so that then the recovery of what they left can be cut
/// everywhere.
const CUT_TWICE: &[(&str, usize)] = &[
    ("take undo", 1),
    ("take undo, locked path", 1),
    ("two semaphores, undo", 2),
    ("give completes a sleeper with undo", 2),
    ("give completes a complex sleeper with undo", 3),
    ("take both goes to sleep behind a simple one", 2),
    ("SETALL completes sleepers", 2),
    ("semget, new", 2),
    ("IPC_RMID", 2),
    ("recovery completes sleepers", 2),
];

/// The recovery, cut everywhere, of a call that was cut at the `cut`th of `cuts` places.
fn cut_twice(victim: Case, cut: usize, cuts: usize) -> Case {
    let Case { name, before: prepare, setup, call, after } = victim;
    let place: OnceCell<(Path, usize)> = OnceCell::new();
    let settle = after.clone();
    let before = move |s: &Stage| {
        let (path, k) = place.get_or_init(|| {
            prepare(s);
            let whole = s.stepped(setup, call);
            let dead = whole.pid();
            let path = Path::record(whole, || s.arena());
            settle(s, dead);
            let changes: Vec<usize> = (0..path.len()).filter(|&k| path.changed(k)).collect();
            (path, changes[cut * changes.len() / (cuts + 1)])
        });
        prepare(s);
        let victim = s.stepped(setup, call);
        // Elsewhere in the call is as good.
        let _ = path.walk(&victim, *k);
        s.victim.set(victim.pid());
    };
    let recover: fn(&Child) = |c| {
        c.engine.reap(&c.t, Some(c.victim));
    };
    let name = format!("recovery of: {name}, cut {cut} of {cuts}");
    Case { name, before: Box::new(before), setup: Child::settle_in_elsewhere, call: recover, after }
}
