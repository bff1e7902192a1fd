//! Sets that are made and removed by key while others use them, by processes that die: no call changes another set than its own, none
//! succeeds on a set that is gone, and nothing is left of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use manyway_sem::abi::{IPC_CREAT, IPC_EXCL, IPC_NOWAIT, SEM_UNDO, Timespec};
use manyway_sem::{Errno, Fairness};
use manyway_sync::sim;

use crate::stage::*;

const KEY: i32 = 77;

#[derive(Default)]
struct Sets {
    /// Units given to each set; and how many more may have been, by the dead.
    given: BTreeMap<i32, (i32, i32)>,
    /// Removed, as somebody was told.
    gone: BTreeSet<i32>,
    /// Nobody makes any more.
    over: bool,
}

/// Gives a set a unit, and writes it down.
fn give(p: &Process, sets: &Mutex<Sets>, id: i32) -> Result<(), Errno> {
    let sets = || sets.lock().expect("no panic");
    sets().given.entry(id).or_default().1 += 1;
    let r = p.engine.semop(&p.t, id, &[op(0, 1, 0)], None);
    let mut all = sets();
    let given = all.given.entry(id).or_default();
    given.1 -= 1;
    given.0 += r.is_ok() as i32;
    r
}

/// Makes the set of the key and removes it, again and again: the next one is in its place.
fn replace(p: &Process, sets: &Mutex<Sets>) {
    for left in (0..2 + draw(3)).rev() {
        let id = p.engine.semget(&p.t, KEY, 1, IPC_CREAT | 0o600).expect("room");
        sets.lock().expect("no panic").given.entry(id).or_default();
        if left > 0 {
            p.engine.remove(&p.t, id).expect("the set");
            assert!(sets.lock().expect("no panic").gone.insert(id), "removed twice");
        }
    }
}

/// Gives what the key leads to, or asks for more than it has, as it is being replaced. It goes on living, so that what it has left is seen.
fn use_by_key(p: &Process, sets: &Mutex<Sets>, private: i32) {
    for _ in 0..4 + draw(4) {
        let Ok(id) = p.engine.semget(&p.t, KEY, 0, 0) else { continue };
        let r = match draw(3) {
            0 => p.engine.semop(&p.t, id, &[op(0, -1000, SEM_UNDO | IPC_NOWAIT)], None),
            _ => give(p, sets, id),
        };
        assert!(matches!(r, Ok(()) | Err(Errno::EINVAL | Errno::EIDRM | Errno::EAGAIN)), "{r:?}");
    }
    let _ = p.engine.semop(&p.t, private, &[op(0, -1000, 0)], None);
}

fn live(p: &Process, sets_of_all: &Mutex<Sets>, private: i32) {
    let sets = || sets_of_all.lock().expect("no panic");
    for _ in 0..2 + draw(3) {
        if sets().over {
            return;
        }
        let flags = IPC_CREAT | 0o600 | if once_in(4) { IPC_EXCL } else { 0 };
        // A set that was here before, by now perhaps gone, or the one that has the key.
        let old = sets().given.keys().copied().nth(draw(4)).filter(|_| once_in(3));
        let id = match old.map_or_else(|| p.engine.semget(&p.t, KEY, 1 + draw(2) as i32, flags), Ok) {
            Ok(id) => id,
            // It is there already; or has fewer semaphores; or there is no room.
            Err(Errno::EEXIST | Errno::EINVAL | Errno::ENOSPC) => continue,
            r => panic!("{r:?}"),
        };
        for _ in 0..1 + draw(2) {
            let r = match draw(5) {
                0 | 1 => give(p, sets_of_all, id),
                2 => {
                    let r = p.engine.remove(&p.t, id);
                    if r.is_ok() {
                        assert!(sets().gone.insert(id), "removed twice");
                    }
                    r
                }
                // It never gets so many.
                3 => p.engine.semop(&p.t, id, &[op(0, -1000, SEM_UNDO)], once_in(2).then_some(Timespec { sec: 0, nsec: 3_000_000 })),
                _ => p.engine.stat(&p.t, id).map(drop),
            };
            match r {
                Ok(()) | Err(Errno::EAGAIN) => {}
                Err(Errno::EINVAL | Errno::EIDRM) => break,
                Err(e) => panic!("{e}"),
            }
        }
        if once_in(3) {
            let _ = p.engine.semop(&p.t, private, &[op(0, -1, SEM_UNDO)], Some(Timespec { sec: 0, nsec: 1_000_000 }));
        }
    }
}

pub fn run() {
    let rules = sim::Rules { early_ticks: once_in(3), no_marks: once_in(8) };
    // Few ids, so that an index is soon another set's.
    let stage = Stage::with_room(&[2], Fairness::Strict, rules, 2 + draw(2) as u32);
    let sets = Arc::new(Mutex::new(Sets::default()));
    // Often only this: somebody has found the set, and it is another one's memory before it has changed it.
    let replaced = once_in(2);
    let threads: Vec<_> = (100..102 + draw(3) as u32)
        .map(|pid| {
            sim::new_process(pid);
            let (place, sets, private) = (stage.place(), sets.clone(), stage.id);
            sim::spawn(pid, move || {
                let p = place.process();
                if !replaced && once_in(2) {
                    sim::dies_before(draw(1 << (4 + draw(6))));
                }
                match (replaced, pid) {
                    (false, _) => live(&p, &sets, private),
                    (true, 100) => replace(&p, &sets),
                    (true, _) => use_by_key(&p, &sets, private),
                }
            })
        })
        .collect();
    stage.idle();
    stage.check();
    sim::quietly(|| {
        let (e, t, mut sets) = (&stage.engine, &stage.t, sets.lock().expect("no panic"));
        sets.over = true;
        for (&id, &(given, perhaps)) in &sets.given {
            match e.getval(t, id, 0) {
                Ok(v) => {
                    assert!(!sets.gone.contains(&id), "set {id} is there again");
                    assert!((given..=given + perhaps).contains(&v), "set {id} has {v}, was given {given} and perhaps {perhaps} more");
                }
                Err(r) => assert_eq!(r, Errno::EINVAL),
            }
        }
        let mut there = vec![];
        e.for_each_set(t, &mut |s, _| there.push(s.id));
        let info = e.info();
        assert_eq!((info.sets as usize, stage.objects().0 as usize), (there.len(), there.len()), "sets counted, and in the arena");
        // The key leads to the one that has it.
        let by_key = e.semget(t, KEY, 0, 0).ok();
        assert_eq!(by_key, there.iter().copied().find(|&id| id != stage.id), "by its key");
        there.iter().filter(|&&id| id != stage.id).for_each(|&id| e.remove(t, id).expect("a set"));
    });
    stage.remove();
    for t in threads {
        t.join();
    }
    stage.check_alone();
    assert_eq!(stage.objects(), (0, 0), "sets and undo records in use");
}
