//! A sleeper that somebody completes goes on at once, into its next call, while that one is still at it: what it had asked for is seen to all the
//! same, and what it asks for now is nobody else's.

use manyway_sem::Fairness;
use manyway_sync::sim;

use crate::stage::*;

const SLEEPER: u32 = 100;
const ZERO: u32 = 200;
const GIVER: u32 = 300;

pub fn run() {
    let rules = sim::Rules { early_ticks: once_in(3), no_marks: false };
    // The sleeper takes the one unit of the first two semaphores together, the second of which is given; then it waits for the third, for ever.
    let stage = Stage::new(&[1, 0, 0, 1], Fairness::Strict, rules);
    let id = stage.id;
    let mut threads = vec![];
    let mut begin = |pid: u32, f: fn(Process, i32)| {
        sim::new_process(pid);
        let place = stage.place();
        threads.push(sim::spawn(pid, move || f(place.process(), id)));
    };
    begin(SLEEPER, |p, id| {
        p.engine.semop(&p.t, id, &[op(0, -1, 0), op(1, -1, 0)], None).expect("what was given");
        let several = [op(2, -1, 0), op(3, -1, 0)];
        let _ = p.engine.semop(&p.t, id, &several[..1 + draw(2)], None);
    });
    // Some wait for the first one to be zero, which it is then.
    for i in 0..1 + draw(2) as u32 {
        begin(ZERO + i, |p, id| {
            let zeros = [op(0, 0, 0), op(1, 0, 0)];
            p.engine.semop(&p.t, id, &zeros[..1 + draw(2)], None).expect("they are zero in the end");
        });
    }
    if once_in(2) {
        sim::wait_idle(0);
    }
    begin(GIVER, |p, id| p.engine.semop(&p.t, id, &[op(1, 1, 0)], None).expect("room"));
    stage.idle();
    stage.check();
    assert_eq!((stage.values(), stage.sleepers().len()), (vec![0, 0, 0, 1], 1), "only the sleeper sleeps, in its second call");
    stage.remove();
    for t in threads {
        t.join();
    }
    stage.check_alone();
}
