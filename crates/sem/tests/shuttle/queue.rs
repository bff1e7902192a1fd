//! Sleepers that came one after another are served in that order, and nobody overtakes them, whoever gives, dies or leaves meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO};
use manyway_sem::{Engine, Errno, Fairness};
use manyway_sync::sim;

use crate::stage::*;

const SLEEPERS: u32 = 100;
const GIVERS: u32 = 200;
const NEWCOMERS: u32 = 300;

pub fn run() {
    let n = 2 + draw(3) as u32;
    let rules = sim::Rules { early_ticks: once_in(3), no_marks: false };
    let stage = Stage::new(&[0, 0], Fairness::Strict, rules);
    let id = stage.id;
    let mut threads = vec![];
    // {served, left for another reason} by sleeper; and how many newcomers got a unit.
    let (served, left, barged) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    // A complex sleeper that is never served makes the cell the set lock's for a while.
    let complex = draw(3 * n as usize) as u32;
    for i in 0..n {
        if complex == i {
            sim::new_process(99);
            let place = stage.place();
            threads.push(sim::spawn(99, move || {
                let p = place.process();
                let _ = p.engine.semop(&p.t, id, &[op(0, -1000, 0), op(1, -1, 0)], None);
            }));
            sim::wait_idle(0);
        }
        sim::new_process(SLEEPERS + i);
        let (place, served, left) = (stage.place(), served.clone(), left.clone());
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
            match p.engine.semop(&p.t, id, &[op(0, -1, undo)], None) {
                Ok(()) => served.fetch_or(1 << i, Relaxed),
                Err(Errno::EINTR | Errno::EIDRM) => left.fetch_or(1 << i, Relaxed),
                r => panic!("{r:?}"),
            };
            // It goes on living, and keeps what it has.
            let _ = p.engine.semop(&p.t, id, &[op(1, -1000, 0)], None);
            sim::set_handler(|| true);
        }));
        sim::wait_idle(0);
    }
    let gives = 1 + draw(3) as u32;
    for i in 0..gives {
        sim::new_process(GIVERS + i);
        let place = stage.place();
        let dies = once_in(3).then(|| draw(80));
        threads.push(sim::spawn(GIVERS + i, move || {
            let p = place.process();
            if let Some(k) = dies {
                sim::dies_before(k);
            }
            let _ = p.engine.semop(&p.t, id, &[op(0, 1 + draw(2) as i16, 0)], None);
        }));
    }
    for i in 0..draw(2) as u32 {
        sim::new_process(NEWCOMERS + i);
        let (place, barged) = (stage.place(), barged.clone());
        threads.push(sim::spawn(NEWCOMERS + i, move || {
            let p = place.process();
            if p.engine.semop(&p.t, id, &[op(0, -1, IPC_NOWAIT)], None).is_ok() {
                barged.fetch_add(1, Relaxed);
            }
        }));
    }
    let away = draw(n as usize) as u32;
    match draw(4) {
        0 => sim::signal(SLEEPERS + away),
        1 => sim::kill(SLEEPERS + away),
        _ => {}
    }
    stage.idle();
    stage.check();
    // Those who were killed are out of it, served or not.
    let lives = |i: u32| sim::inode_of(SLEEPERS + i).is_some_and(sim::lives);
    let out: u32 = left.load(Relaxed) | (0..n).filter(|&i| !lives(i)).map(|i| 1 << i).sum::<u32>();
    let in_line: Vec<bool> = (0..n).filter(|i| out >> i & 1 == 0).map(|i| served.load(Relaxed) >> i & 1 == 1).collect();
    assert!(in_line.is_sorted_by(|a, b| a >= b), "a sleeper was overtaken by a later one: {in_line:?}");
    assert!(barged.load(Relaxed) == 0 || in_line.iter().all(|s| *s), "a newcomer overtook sleepers: {in_line:?}");
    stage.remove();
    for t in threads {
        t.join();
    }
    stage.check_alone();
}
