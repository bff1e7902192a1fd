//! A barging namespace: sleepers are nudged and look for themselves. However they come, leave and are overtaken, none sleeps beside a unit
//! until its own look about.

use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO};
use manyway_sem::{Engine, Errno, Fairness};
use manyway_sync::sim;

use crate::stage::*;

const SLEEPERS: u32 = 100;
const GIVERS: u32 = 200;
const NEWCOMERS: u32 = 300;
const COMPLEX: u32 = 400;

pub fn run() {
    let n = 1 + draw(3) as u32;
    let stage = Stage::new(&[0, 0], Fairness::Barging, sim::Rules { early_ticks: false, no_marks: false });
    let id = stage.id;
    let mut threads = vec![];
    let settled = once_in(2);
    for i in 0..n {
        sim::new_process(SLEEPERS + i);
        let place = stage.place();
        let undo = if once_in(3) { SEM_UNDO } else { 0 };
        threads.push(sim::spawn(SLEEPERS + i, move || {
            let p = std::rc::Rc::new(place.process());
            let handled = p.clone();
            sim::set_handler(move || {
                if Engine::in_section(&handled.t) {
                    return false;
                }
                let token = handled.engine.before_handler(&handled.t);
                handled.engine.after_handler(&handled.t, token);
                crate::run::note_signal();
                true
            });
            let r = p.engine.semop(&p.t, id, &[op(0, -1, undo)], None);
            assert!(matches!(r, Ok(()) | Err(Errno::EINTR | Errno::EIDRM)), "{r:?}");
            // It goes on living, and keeps what it has: the undo of one that ended would be a unit that nobody has released yet.
            while p.engine.semop(&p.t, id, &[op(1, -1000, 0)], None) == Err(Errno::EINTR) {}
            sim::set_handler(|| true);
        }));
        if settled {
            sim::wait_idle(0);
        }
    }
    for i in 0..1 + draw(2) as u32 {
        sim::new_process(GIVERS + i);
        let place = stage.place();
        threads.push(sim::spawn(GIVERS + i, move || {
            let p = place.process();
            let _ = p.engine.semop(&p.t, id, &[op(0, 1 + draw(2) as i16, 0)], None);
        }));
    }
    for i in 0..1 + draw(2) as u32 {
        sim::new_process(NEWCOMERS + i);
        let place = stage.place();
        threads.push(sim::spawn(NEWCOMERS + i, move || {
            let p = place.process();
            let _ = p.engine.semop(&p.t, id, &[op(0, -1, IPC_NOWAIT)], None);
        }));
    }
    if once_in(2) {
        // A call of several operations makes the cell the set lock's, whoever has been nudged by then.
        sim::new_process(COMPLEX);
        let place = stage.place();
        threads.push(sim::spawn(COMPLEX, move || {
            let p = place.process();
            let _ = p.engine.semop(&p.t, id, &[op(1, -1000, 0), op(0, -1, 0)], None);
        }));
    }
    if once_in(2) {
        sim::signal(SLEEPERS + draw(n as usize) as u32);
    }
    sim::wait_idle(0);
    let (mut asleep, mut value) = (0, 0);
    sim::quietly(|| {
        stage.engine.for_each_sleeper(&stage.t, id, &mut |_, ops| asleep += i32::from(ops[0].num == 0)).expect("the set");
        value = stage.engine.getval(&stage.t, id, 0).expect("the set");
    });
    assert!(asleep == 0 || value == 0, "{asleep} sleep beside {value} units");
    stage.remove();
    for t in threads {
        t.join();
    }
    stage.check_alone();
}
