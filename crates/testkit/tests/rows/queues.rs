//! Queues and nodes.

use std::sync::atomic::Ordering::*;

use manyway_sem::abi::Timespec;
use manyway_sem::{Damage, Errno};

use crate::place::{Place, op};

const TAKE: manyway_sem::abi::SemBuf = manyway_sem::abi::SemBuf { num: 0, op: -1, flg: 0 };

/// A node that is not of the queue ends it, and it is made anew.
pub fn leads_to_a_stranger() {
    let p = Place::new();
    let sleeper = p.sleeper(&[TAKE], None);
    let me = p.my_slot();
    let damage = || p.cell(0).alter.head.store(me + 1, Release);
    p.look_finds(damage, &format!("leads to thread slot {me}, which is not in it"));
    p.shows(0, "Sleepers");
    damage();
    assert_eq!(p.semop(&[op(0, 1, 0)]), Ok(()));
    assert_eq!(sleeper.ended().0, Ok(()));
    assert_eq!((p.value(0), p.engine.getncnt(&p.t, p.id, 0)), (Ok(0), Ok(0)));
    assert_eq!(p.noted(), Some((Some(Damage::Queue), p.index())));
    p.doctor_says("last a queue whose links led astray");
    p.is_removed();
}

/// So does one slot more than there are.
pub fn is_a_ring() {
    let p = Place::new();
    let sleepers = [p.sleeper(&[TAKE], None), p.sleeper(&[TAKE], None)];
    let [first, second] = [0, 1].map(|i| p.slot(sleepers[i].tid));
    let damage = || p.ctl(second).next.store(first + 1, Release);
    p.look_finds(damage, "is a circle");
    p.shows(0, "Sleepers");
    damage();
    for sleeper in &sleepers {
        assert_eq!(p.semop(&[op(0, 1, 0)]), Ok(()));
        assert_eq!(sleeper.ended().0, Ok(()), "in order of arrival");
    }
    assert_eq!(p.value(0), Ok(0));
    p.is_removed();
}

/// It finds out at its next tick.
pub fn sleeper_in_no_queue() {
    let p = Place::new();
    let sleeper = p.sleeper(&[TAKE], None);
    let slot = p.slot(sleeper.tid);
    let queue = &p.cell(0).alter;
    let damage = || {
        queue.head.store(0, Release);
        queue.tail.store(0, Release);
    };
    p.look_finds(damage, "sleeps and is in no queue");
    p.until(|| p.noted() == Some((Some(Damage::Queue), p.index())) && queue.head.load(Acquire) == slot + 1);
    assert_eq!((p.engine.getncnt(&p.t, p.id, 0), sleeper.has_ended()), (Ok(1), None));
    p.shows(0, "Sleepers");
    p.doctor_says("last a queue whose links led astray");
    assert_eq!(p.semop(&[op(0, 1, 0)]), Ok(()));
    assert_eq!(sleeper.ended().0, Ok(()));
    p.is_removed();
}

/// No more than 512 are looked at: its own, and what lies behind them, which are waits for zero.
pub fn call_of_too_many_operations() {
    let p = Place::new();
    assert_eq!(p.semop(&[op(2, 1, 0)]), Ok(()));
    let sleeper = p.sleeper(&[op(0, -1, 0), op(1, -1, 0)], Some(Timespec { sec: 3, nsec: 0 }));
    p.ctl(p.slot(sleeper.tid)).nops.store(u32::MAX, Release);
    p.doctor_says("sleeps in a call that cannot be");
    p.shows(0, "Semaphores");
    for num in [0, 1] {
        assert_eq!(p.semop(&[op(num, 1, 0)]), Ok(()));
    }
    assert_eq!(sleeper.ended().0, Ok(()));
    assert_eq!([0, 1, 2].map(|num| p.value(num)), [Ok(0), Ok(0), Ok(1)]);
    // Where they cannot be, it sleeps until its time is up.
    let sleeper = p.sleeper(&[op(0, -1, 0), op(1, -1, 0)], Some(Timespec { sec: 1, nsec: 0 }));
    p.ctl(p.slot(sleeper.tid)).nops.store(u32::MAX, Release);
    assert_eq!((p.semop(&[op(1, 1, 0)]), p.semop(&[op(0, 2, 0)])), (Ok(()), Ok(())));
    assert_eq!(sleeper.ended().0, Err(Errno::EAGAIN));
    p.is_removed();
}
