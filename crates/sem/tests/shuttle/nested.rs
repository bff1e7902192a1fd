//! A signal's handler that sleeps itself, in the node of the call that it interrupts. Both calls end with their own results: each that succeeded
//! has a unit of its own semaphore, no other has.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use manyway_sem::abi::Timespec;
use manyway_sem::{Engine, Errno, Fairness};
use manyway_sync::sim;

use crate::stage::*;

const SLEEPER: u32 = 100;
const GIVER: u32 = 200;

/// Takes a unit of a semaphore that it waits for; and notes that.
fn take(p: &Process, id: i32, num: usize, timeout: Option<Timespec>, taken: &[AtomicU32; 2]) {
    let r = p.engine.semop(&p.t, id, &[op(num, -1, 0)], timeout);
    sim::note(|| format!("semaphore {num}: {r:?}"));
    assert!(matches!(r, Ok(()) | Err(Errno::EINTR | Errno::EAGAIN | Errno::EIDRM)), "{r:?}");
    taken[num].fetch_add(r.is_ok() as u32, Relaxed);
}

pub fn run() {
    let rules = sim::Rules { early_ticks: once_in(3), no_marks: false };
    let stage = Stage::new(&[0, 0], if once_in(3) { Fairness::Barging } else { Fairness::Strict }, rules);
    let id = stage.id;
    // By the call, and by the handler in it.
    let taken = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    sim::new_process(SLEEPER);
    let (place, of_sleeper) = (stage.place(), taken.clone());
    let sleeper = sim::spawn(SLEEPER, move || {
        let p = Rc::new(place.process());
        let (handled, of_handler) = (p.clone(), of_sleeper.clone());
        sim::set_handler(move || {
            if Engine::in_section(&handled.t) {
                return false;
            }
            let token = handled.engine.before_handler(&handled.t);
            take(&handled, id, 1, None, &of_handler);
            handled.engine.after_handler(&handled.t, token);
            crate::run::note_signal();
            true
        });
        sim::signal_before(draw(1 << (5 + draw(5))));
        let timeout = (!once_in(3)).then(|| Timespec { sec: 0, nsec: 1_000 * (1 + draw(2000) as i64) });
        take(&p, id, 0, timeout, &of_sleeper);
        sim::set_handler(|| true);
    });
    let given = [draw(2), 1];
    sim::new_process(GIVER);
    let place = stage.place();
    let giver = sim::spawn(GIVER, move || {
        let p = place.process();
        for num in [1, 0].into_iter().filter(|num| given[*num] == 1) {
            p.engine.semop(&p.t, id, &[op(num, 1, 0)], None).expect("room");
        }
    });
    if once_in(3) {
        sim::signal(SLEEPER);
    }
    stage.idle();
    stage.check();
    let left = stage.values();
    for num in 0..2 {
        let taken = taken[num].load(Relaxed) as i32;
        assert_eq!(left[num] + taken, given[num] as i32, "semaphore {num}: {} left, {taken} calls succeeded", left[num]);
    }
    stage.remove();
    sleeper.join();
    giver.join();
    stage.check_alone();
}
