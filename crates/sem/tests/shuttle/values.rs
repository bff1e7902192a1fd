//! SETVAL, SETALL and calls that name every semaphore, with sleepers, holders and deaths. Where all calls treat all semaphores alike, no
//! reader may ever see them differ.

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

/// Calls on one of them.
fn one_by_one(p: &Process, id: i32, nsems: usize) -> Result<(), Errno> {
    let (num, undo) = (draw(nsems), if once_in(2) { SEM_UNDO } else { 0 });
    match draw(6) {
        0 | 1 => p.engine.setval(&p.t, id, num as i32, draw(3) as i32),
        2 => p.engine.setall(&p.t, id, &(0..nsems).map(|_| draw(3) as u16).collect::<Vec<_>>()),
        3 => p.engine.semop(&p.t, id, &[op(num, -1, 0), op((num + 1) % nsems, -1, undo)], None),
        4 => p.engine.semop(&p.t, id, &[op(num, 0, 0)], Some(Timespec { sec: 0, nsec: 3_000_000 })),
        _ => {
            p.engine.semop(&p.t, id, &[op(num, -1, undo)], None)?;
            if once_in(2) { p.engine.semop(&p.t, id, &[op(num, 1, undo)], None) } else { Ok(()) }
        }
    }
}

pub fn run() {
    let nsems = 2 + draw(2);
    let together = once_in(2);
    let rules = sim::Rules { early_ticks: once_in(3), no_marks: once_in(8) };
    let stage = Stage::new(&vec![draw(3) as u16; nsems], Fairness::Strict, rules);
    let threads: Vec<_> = (100..102 + draw(3) as u32)
        .map(|pid| {
            sim::new_process(pid);
            let (place, id) = (stage.place(), stage.id);
            sim::spawn(pid, move || {
                let p = place.process();
                if once_in(2) {
                    sim::dies_before(draw(1 << (4 + draw(7))));
                }
                for _ in 0..1 + draw(4) {
                    let r = if together { all_at_once(&p, id, nsems) } else { one_by_one(&p, id, nsems) };
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
