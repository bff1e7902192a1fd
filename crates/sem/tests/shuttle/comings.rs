//! Processes that come and go, with numbers that are used again, while others clear away after them and die at it. After wait(2) no undo
//! is missing: the parent's next call has the unit that its child held.

use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO};
use manyway_sem::{Errno, Fairness};
use manyway_sync::sim;

use crate::stage::*;

/// A parent: one child after another takes its one unit and ends or dies somehow.
fn parent(place: Place, id: i32, num: usize, marks: bool) {
    let p = place.process();
    let child = 1000 + num as u32;
    for _ in 0..2 + draw(3) {
        sim::new_process(child);
        let of_child = place.clone();
        let dies = once_in(2).then(|| draw(1 << (3 + draw(5))));
        let thread = sim::spawn(child, move || {
            let c = of_child.process();
            if let Some(k) = dies {
                sim::dies_before(k);
            }
            let _ = c.engine.semop(&c.t, id, &[op(num, -1, SEM_UNDO)], None);
            if once_in(2) {
                c.engine.detach_thread(&c.t);
            }
        });
        if once_in(3) {
            sim::kill(child);
        }
        thread.join();
        // The interposed wait family, after the kernel's. Without it the holders are looked at before EAGAIN.
        if !marks || once_in(2) {
            p.engine.reap(&p.t, Some(child));
        }
        let taken = p.engine.semop(&p.t, id, &[op(num, -1, IPC_NOWAIT)], None);
        assert_eq!(taken, Ok(()), "the undo of process {child} is missing");
        p.engine.semop(&p.t, id, &[op(num, 1, 0)], None).expect("room");
    }
}

/// Who clears away after all the others, and may die at it.
fn cleaner(place: Place, id: i32, nsems: usize) {
    let p = place.process();
    if once_in(2) {
        sim::dies_before(draw(1 << (4 + draw(5))));
    }
    for _ in 0..1 + draw(4) {
        match draw(4) {
            3 => p.engine.for_each_sleeper(&p.t, id, &mut |s, _| panic!("{s:?} sleeps")).expect("the set"),
            0 => drop(p.engine.reap(&p.t, None)),
            1 => drop(p.engine.stat(&p.t, id)),
            _ => match p.engine.semop(&p.t, id, &[op(draw(nsems), -1000, IPC_NOWAIT)], None) {
                Err(Errno::EAGAIN) => {}
                r => panic!("{r:?}"),
            },
        }
    }
}

pub fn run() {
    let nsems = 1 + draw(2);
    let rules = sim::Rules { early_ticks: false, no_marks: once_in(8) };
    let stage = Stage::new(&vec![1; nsems], Fairness::Strict, rules);
    let id = stage.id;
    let mut threads = vec![];
    for num in 0..nsems {
        sim::new_process(100 + num as u32);
        let place = stage.place();
        threads.push(sim::spawn(100 + num as u32, move || parent(place, id, num, !rules.no_marks)));
    }
    for i in 0..1 + draw(3) as u32 {
        sim::new_process(200 + i);
        let place = stage.place();
        threads.push(sim::spawn(200 + i, move || cleaner(place, id, nsems)));
    }
    stage.idle();
    stage.check();
    assert_eq!(stage.values(), vec![1; nsems]);
    for t in threads {
        t.join();
    }
    stage.check_alone();
    stage.remove();
    assert_eq!(stage.objects(), (0, 0), "sets and undo records in use");
}
