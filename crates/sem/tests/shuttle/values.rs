//! SETVAL, SETALL and calls that name every semaphore, with sleepers, holders and deaths. Where all calls treat all semaphores alike, no
//! reader may ever see them differ.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO, Timespec};
use manyway_sem::{Errno, Fairness};
use manyway_sync::sim;

use crate::stage::*;

fn alike(values: &[u16]) -> bool {
    values.windows(2).all(|w| w[0] == w[1])
}

/// Calls on all semaphores at once.
fn all_at_once(p: &Process, id: i32, nsems: usize) -> Result<(), Errno> {
    let undo = if once_in(2) { SEM_UNDO } else { 0 };
    let each = |by: i16, flg: i32| (0..nsems).map(|n| op(n, by, flg)).collect::<Vec<_>>();
    match draw(5) {
        0 => p.engine.setall(&p.t, id, &vec![draw(3) as u16; nsems]),
        1 => {
            let mut seen = vec![0; nsems];
            p.engine.getall(&p.t, id, &mut seen)?;
            assert!(alike(&seen), "half of a change is seen: {seen:?}");
            Ok(())
        }
        2 => p.engine.semop(&p.t, id, &each(1, 0), None),
        3 => p.engine.semop(&p.t, id, &each(0, if once_in(2) { IPC_NOWAIT } else { 0 }), None),
        _ => {
            p.engine.semop(&p.t, id, &each(-1, undo), once_in(2).then_some(Timespec { sec: 0, nsec: 3_000_000 }))?;
            if once_in(2) { p.engine.semop(&p.t, id, &each(1, undo), None) } else { Ok(()) }
        }
    }
}

/// The values that somebody set, or tried to, by semaphore.
type Tried = Arc<Mutex<Vec<BTreeSet<i32>>>>;

/// Calls on one of them. Units are only taken, and only with SEM_UNDO: so what a semaphore has and what is held of it are together what was set
/// last.
fn one_by_one(p: &Process, id: i32, nsems: usize, tried: &Tried) -> Result<(), Errno> {
    // Far apart, so that half of a change is none of them.
    let any = || [0u16, 1, 2, 20, 40, 60][draw(6)];
    let (num, value) = (draw(nsems), any() as i32);
    let note = |num: usize, value: i32| {
        tried.lock().expect("no panic")[num].insert(value);
    };
    match draw(6) {
        0 | 1 => {
            note(num, value);
            p.engine.setval(&p.t, id, num as i32, value)
        }
        2 => {
            let values: Vec<u16> = (0..nsems).map(|_| any()).collect();
            values.iter().enumerate().for_each(|(num, v)| note(num, *v as i32));
            p.engine.setall(&p.t, id, &values)
        }
        3 => p.engine.semop(&p.t, id, &[op(num, -1, SEM_UNDO), op((num + 1) % nsems, -1, SEM_UNDO)], None),
        4 => p.engine.semop(&p.t, id, &[op(num, 0, 0)], Some(Timespec { sec: 0, nsec: 3_000_000 })),
        _ => p.engine.semop(&p.t, id, &[op(num, -1, SEM_UNDO)], None),
    }
}

pub fn run() {
    let nsems = 2 + draw(2);
    let together = once_in(2);
    let rules = sim::Rules { early_ticks: once_in(3), no_marks: once_in(8) };
    let first = draw(3) as u16;
    let stage = Stage::new(&vec![first; nsems], Fairness::Strict, rules);
    let tried: Tried = Arc::new(Mutex::new(vec![BTreeSet::from([first as i32]); nsems]));
    let threads: Vec<_> = (100..102 + draw(3) as u32)
        .map(|pid| {
            sim::new_process(pid);
            let (place, id, tried) = (stage.place(), stage.id, tried.clone());
            sim::spawn(pid, move || {
                let p = place.process();
                if once_in(2) {
                    sim::dies_before(draw(1 << (3 + draw(6))));
                }
                for _ in 0..1 + draw(4) {
                    let r = if together { all_at_once(&p, id, nsems) } else { one_by_one(&p, id, nsems, &tried) };
                    match r {
                        Ok(()) | Err(Errno::EAGAIN | Errno::ERANGE) => {}
                        Err(Errno::EIDRM | Errno::EINVAL) => break,
                        Err(e) => panic!("{e}"),
                    }
                }
            })
        })
        .collect();
    for last in [false, true] {
        stage.idle();
        stage.check();
        if together {
            let values = stage.values();
            assert!(values.windows(2).all(|w| w[0] == w[1]), "half of a change: {values:?}");
        } else {
            let (values, adjustments) = (stage.values(), stage.adjustments());
            for (num, tried) in tried.lock().expect("no panic").iter().enumerate() {
                let held: i32 = adjustments.iter().filter(|a| a.1 == num).map(|a| a.2).sum();
                assert!(tried.contains(&(values[num] + held)), "semaphore {num} has {}, held {held}; set to {tried:?}", values[num]);
            }
        }
        if !last {
            sim::kill(100);
        }
    }
    stage.remove();
    for t in threads {
        t.join();
    }
    stage.check_alone();
    assert_eq!(stage.objects(), (0, 0), "sets and undo records in use");
}
