//! Somebody has died in the middle of a call that holds, or holding, and is alone in that: all who come now come for what is left. Whoever waits for
//! the dead one's lock, who was told of the death, who clears away and who takes the free slots meet in one slot.

use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO};
use manyway_sem::{Errno, Fairness};
use manyway_sync::sim;

use crate::stage::*;

const DEAD: u32 = 1000;
const PARENT: u32 = 100;
const CLEANERS: u32 = 200;
const NEWCOMERS: u32 = 300;

/// Takes the unit of the first semaphore, and dies or ends at it or behind it.
fn die_holding(stage: &Stage) {
    sim::new_process(DEAD);
    let (place, id) = (stage.place(), stage.id);
    let thread = sim::spawn(DEAD, move || {
        let p = place.process();
        // It has its slot, and a place for adjustments.
        p.engine.semop(&p.t, id, &[op(0, 1, SEM_UNDO), op(0, -1, SEM_UNDO)], None).expect("room");
        if !once_in(4) {
            sim::dies_before(draw(14));
        }
        match draw(3) {
            0 => p.engine.semop(&p.t, id, &[op(0, -1, SEM_UNDO), op(1, -1, SEM_UNDO)], None).expect("units"),
            _ => p.engine.semop(&p.t, id, &[op(0, -1, SEM_UNDO)], None).expect("a unit"),
        }
    });
    thread.join();
}

/// It has waited for the dead one: its next call finds what that one held.
fn parent(place: &Place, id: i32) {
    let p = place.process();
    if once_in(2) {
        sim::note(|| "reaps".into());
        p.engine.reap(&p.t, Some(DEAD));
    }
    for num in 0..2 {
        sim::note(|| format!("takes {num}"));
        let taken = p.engine.semop(&p.t, id, &[op(num, -1, IPC_NOWAIT)], None);
        assert_eq!(taken, Ok(()), "what the dead one held of semaphore {num} is missing");
        p.engine.semop(&p.t, id, &[op(num, 1, 0)], None).expect("room");
    }
}

/// Meets the dead one somehow.
fn cleaner(place: &Place, id: i32) {
    let p = place.process();
    if once_in(4) {
        sim::dies_before(draw(1 << (3 + draw(5))));
    }
    for _ in 0..1 + draw(2) {
        let what = draw(5);
        sim::note(|| format!("cleans {what}"));
        match what {
            // It waits for the lock.
            0 | 1 => drop(p.engine.getval(&p.t, id, 0).expect("the set")),
            2 => drop(p.engine.reap(&p.t, None)),
            3 => p.engine.for_each_sleeper(&p.t, id, &mut |s, _| panic!("{s:?} sleeps")).expect("the set"),
            _ => assert_eq!(p.engine.semop(&p.t, id, &[op(0, -1000, IPC_NOWAIT)], None), Err(Errno::EAGAIN)),
        }
    }
}

/// Takes slots, and holds something of its own for a while.
fn newcomer(place: &Place, id: i32) {
    let p = place.process();
    for _ in 0..1 + draw(3) {
        p.engine.semop(&p.t, id, &[op(2, -1, SEM_UNDO)], None).expect("enough units");
        if once_in(2) {
            p.engine.semop(&p.t, id, &[op(2, 1, SEM_UNDO)], None).expect("room");
        }
    }
    if once_in(2) {
        p.engine.detach_thread(&p.t);
    }
}

/// Processes that have ended and were cleared away: their slots are free, and as they left them, with the mark of their ends.
fn leave_slots(stage: &Stage, n: u32) {
    for i in 0..n {
        sim::new_process(DEAD + i);
        let (place, id) = (stage.place(), stage.id);
        let call = move || {
            let p = place.process();
            sim::quietly(|| p.engine.semop(&p.t, id, &[op(0, 0, IPC_NOWAIT)], None)).expect_err("it is not 0");
        };
        sim::spawn(DEAD + i, call).join();
    }
    sim::quietly(|| stage.engine.reap(&stage.t, None));
}

/// Clears away after threads.
fn lister(place: &Place, id: i32) {
    let p = place.process();
    for _ in 0..2 + draw(3) {
        p.engine.for_each_sleeper(&p.t, id, &mut |s, _| panic!("{s:?} sleeps")).expect("the set");
    }
}

pub fn run() {
    let stage = Stage::new(&[1, 1, 10], Fairness::Strict, sim::Rules::default());
    let id = stage.id;
    let mut threads = vec![];
    let mut begin = |pid: u32, f: fn(&Place, i32)| {
        sim::new_process(pid);
        let place = stage.place();
        threads.push(sim::spawn(pid, move || f(&place, id)));
    };
    if once_in(3) {
        leave_slots(&stage, 4);
        begin(CLEANERS, lister);
        (0..2 + draw(2) as u32).for_each(|i| begin(NEWCOMERS + i, newcomer));
    } else {
        die_holding(&stage);
        if once_in(4) {
            sim::quietly(|| stage.engine.reap(&stage.t, None));
        }
        let (parents, newcomers) = [(1, 0), (1, 1), (1, 2), (0, 1), (0, 2)][draw(5)];
        (0..parents).for_each(|i| begin(PARENT + i, parent));
        (0..1 + draw(2) as u32).for_each(|i| begin(CLEANERS + i, cleaner));
        (0..newcomers).for_each(|i| begin(NEWCOMERS + i, newcomer));
    }
    stage.idle();
    stage.check();
    assert_eq!(stage.values(), [1, 1, 10], "they have all ended");
    for t in threads {
        t.join();
    }
    stage.check_alone();
    stage.remove();
    assert_eq!(stage.objects(), (0, 0), "sets and undo records in use");
}
