//! Faults that kernels and other implementations have had, beyond what the rules' own programs would find.

use std::time::{Duration, Instant};

use super::{DONE, EAGAIN, EIDRM, EINVAL, Scenario, scenario};
use crate::protocol::{Command, dec, inc, zero};
use crate::world::World;

pub const ALL: &[Scenario] = &[
    scenario("fault_undo_matched_on_set_or_semaphore_alone", fault_undo_matched_on_set_or_semaphore_alone),
    scenario("fault_long_sleep_ends_as_eintr", fault_long_sleep_ends_as_eintr),
    scenario("fault_woken_waiter_goes_to_the_tail", fault_woken_waiter_goes_to_the_tail),
    scenario("fault_simple_slips_past_complex", fault_simple_slips_past_complex),
    scenario("fault_zero_sleeper_missed_by_single_decrement", fault_zero_sleeper_missed_by_single_decrement),
    scenario("fault_dead_owner_under_load", fault_dead_owner_under_load),
    scenario("fault_units_lost_in_a_crowd", fault_units_lost_in_a_crowd),
    scenario("fault_set_visible_before_it_is_ready", fault_set_visible_before_it_is_ready),
    scenario("fault_sleepers_record_reused", fault_sleepers_record_reused),
    scenario("fault_sleeper_starves", fault_sleeper_starves),
    scenario("fault_lost_wake_ups", fault_lost_wake_ups),
];

fn fault_undo_matched_on_set_or_semaphore_alone(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let sets = [w.set_of(&b, &[9; 3]), w.set_of(&b, &[9; 3])];
    for (i, s) in sets.iter().enumerate() {
        for n in 0..3 {
            w.check("take", a.op(*s, &[dec(n, 1 + n as i16 + 3 * i as i16).undo()]), DONE);
        }
    }
    w.values("first", sets[0], &[8, 7, 6]);
    w.values("second", sets[1], &[5, 4, 3]);
    w.check("remove the first", b.remove(sets[0]), DONE);
    w.exit(&a);
    w.values("each its own", sets[1], &[9; 3]);
}

fn fault_long_sleep_ends_as_eintr(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 2);
    w.sleeps(&a, s, &[dec(0, 1)]);
    let began = Instant::now();
    // Longer than any slice in which an implementation may sleep.
    while began.elapsed() < Duration::from_millis(1300) {
        assert!(a.poll(Duration::from_millis(50)).is_none(), "it returned");
    }
    w.counts("one sleeper", s, &[(1, 0), (0, 0)]);
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, DONE);
}

fn fault_woken_waiter_goes_to_the_tail(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[0, 0]);
    w.sleeps(&a, s, &[dec(0, 2)]);
    w.sleeps(&b, s, &[dec(0, 2)]);
    for _ in 0..20 {
        assert_eq!(c.op(s, &[inc(0, 1)]), DONE);
        assert_eq!(c.op(s, &[dec(0, 1)]), DONE);
    }
    w.check("release", c.op(s, &[inc(0, 2)]), DONE);
    w.returns(&a, DONE);
    w.asleep(&[&b]);
}

fn fault_simple_slips_past_complex(w: &World) {
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let s = w.set_of(&d, &[0, 1]);
    w.sleeps(&a, s, &[dec(0, 2), dec(1, 1)]);
    w.sleeps(&b, s, &[dec(0, 2)]);
    w.sleeps(&c, s, &[dec(0, 1)]);
    w.check("release 2", d.op(s, &[inc(0, 2)]), DONE);
    w.returns(&a, DONE);
    w.asleep(&[&b, &c]);
    w.check("release 2", d.op(s, &[inc(0, 2)]), DONE);
    w.returns(&b, DONE);
    w.asleep(&[&c]);
    w.values("after", s, &[0, 0]);
}

fn fault_zero_sleeper_missed_by_single_decrement(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[3, 3]);
    w.sleeps(&a, s, &[zero(0), zero(1)]);
    w.sleeps(&b, s, &[zero(1)]);
    w.check("[0] by SEM_UNDO", c.op(s, &[dec(0, 3).undo()]), DONE);
    w.asleep(&[&a, &b]);
    w.check("[1] by two operations", c.op(s, &[dec(1, 1), dec(1, 2)]), DONE);
    w.returns(&a, DONE);
    w.returns(&b, DONE);
}

fn fault_dead_owner_under_load(w: &World) {
    let b = w.worker("B");
    let s = w.set_of(&b, &[4, 4]);
    for round in 0..20 {
        let a = w.worker("A");
        a.start(Command::Repeat {
            id: s.id,
            calls: vec![if round % 2 == 0 { vec![dec(0, 1).undo()] } else { vec![dec(0, 1).undo(), inc(1, 1).undo()] }],
            times: 3,
        });
        a.finish().expect("ends");
        a.start(Command::Repeat {
            id: s.id,
            calls: vec![vec![inc(0, 1).undo(), dec(1, 1).undo(), dec(0, 1).undo(), inc(1, 1).undo()]],
            times: u32::MAX,
        });
        std::thread::sleep(Duration::from_micros(100 * round));
        w.kill(&a);
        assert_eq!(b.get_all(s), Ok(vec![4, 4]), "what it held is back");
    }
    w.values("after all", s, &[4, 4]);
    w.check("usable", b.op(s, &[dec(0, 4), dec(1, 4)]), DONE);
}

fn fault_units_lost_in_a_crowd(w: &World) {
    let b = w.worker("B");
    let s = w.set_of(&b, &[1, 2, 1]);
    let take = |num, by| dec(num, by).undo();
    let give = |num, by| inc(num, by).undo();
    // Each takes and gives back, none in an order that could lock all up; all are killed somewhere on the way.
    let habits = [
        vec![vec![take(0, 1)], vec![give(0, 1)]],
        vec![vec![take(0, 1), take(1, 1)], vec![give(1, 1), give(0, 1)]],
        vec![vec![take(1, 2)], vec![give(1, 1)], vec![give(1, 1)]],
        vec![vec![take(1, 1)], vec![take(2, 1)], vec![give(2, 1), give(1, 1)]],
    ];
    let start = |round: usize| {
        let a = w.worker("A");
        a.start(Command::Repeat { id: s.id, calls: habits[round % habits.len()].clone(), times: u32::MAX });
        a
    };
    let mut crowd: Vec<_> = (0..4).map(start).collect();
    for round in 4..24 {
        std::thread::sleep(Duration::from_micros(137 * (round as u64 % 7)));
        w.kill(&crowd.remove(round * 5 % 4));
        crowd.push(start(round));
    }
    for a in &crowd {
        w.kill(a);
    }
    w.values("each unit is back", s, &[1, 2, 1]);
    w.counts("nobody waits", s, &[(0, 0); 3]);
}

fn fault_set_visible_before_it_is_ready(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let key = w.key();
    for _ in 0..100 {
        b.start(Command::Get { key, nsems: 4, flags: manyway_sem::abi::IPC_CREAT | 0o600 });
        let id = a.get(key, 4, manyway_sem::abi::IPC_CREAT | 0o600);
        assert_eq!(b.finish().expect("ends").res(), id, "both get the same set");
        let s = crate::Set { id: id.expect("a set") as i32, n: 4 };
        assert_eq!(a.op(s, &[zero(0), zero(3), inc(3, 1)]), DONE);
        assert_eq!(b.get_all(s), Ok(vec![0, 0, 0, 1]));
        assert_eq!(a.remove(s), DONE);
    }
    w.note("rounds", &100);
}

fn fault_sleepers_record_reused(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 2);
    let t = w.set(&b, 2);
    a.handle(libc::SIGUSR1, false);
    for round in 0..50 {
        // A leaves one queue by a signal or a timeout and enters another at once; a late release must not reach it there.
        if round % 2 == 0 {
            w.sleeps(&a, s, &[dec(0, 1)]);
            a.signal(libc::SIGUSR1);
            a.finish().expect("interrupted");
        } else {
            assert_eq!(a.timed_op(s, &[dec(0, 1), dec(1, 1)], (0, 100_000)).res(), EAGAIN);
        }
        w.sleeps(&a, t, &[dec(1, 1)]);
        assert_eq!(b.op(s, &[inc(0, 1)]), DONE);
        assert_eq!(b.op(s, &[dec(0, 1).nowait()]), DONE, "nobody waits there");
        w.asleep(&[&a]);
        assert_eq!(b.op(t, &[inc(1, 1)]), DONE);
        w.returns(&a, DONE);
    }
}

fn fault_lost_wake_ups(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[0, 0]);
    // Each releases the other: one lost wake-up and both sleep for ever.
    a.start(Command::Repeat { id: s.id, calls: vec![vec![dec(0, 1), inc(1, 1)]], times: 3000 });
    b.start(Command::Repeat { id: s.id, calls: vec![vec![dec(1, 1), inc(0, 1)]], times: 3000 });
    let c = w.worker("C");
    w.check("begin", c.op(s, &[inc(0, 1)]), DONE);
    w.check("A", a.finish().map(|r| r.res()), Some(Ok(3000)));
    w.check("B", b.finish().map(|r| r.res()), Some(Ok(3000)));
    w.values("the unit is back", s, &[1, 0]);
    // The same by simple operations.
    w.check("none", c.set_all(s, &[0, 0]), DONE);
    for (x, from, to) in [(&a, 0, 1), (&b, 1, 0)] {
        x.start(Command::Repeat { id: s.id, calls: vec![vec![dec(from, 1)], vec![inc(to, 1)]], times: 3000 });
    }
    w.check("begin", c.op(s, &[inc(0, 1)]), DONE);
    w.check("A", a.finish().map(|r| r.res()), Some(Ok(3000)));
    w.check("B", b.finish().map(|r| r.res()), Some(Ok(3000)));
    w.values("the unit is back", s, &[1, 0]);
}

fn fault_sleeper_starves(w: &World) {
    let agents = w.workers(["A", "B", "C"]);
    let [a, b, c] = &agents;
    let s = w.set_of(c, &[1]);
    // Two that take and give back without a pause: there is hardly a moment at which the unit is free.
    for x in [a, b] {
        x.start(Command::Repeat { id: s.id, calls: vec![vec![dec(0, 1)], vec![inc(0, 1)]], times: u32::MAX });
    }
    for _ in 0..20 {
        assert_eq!(c.timed_op(s, &[dec(0, 1)], (10, 0)).res(), DONE, "a third gets its turn");
        assert_eq!(c.op(s, &[inc(0, 1)]), DONE);
    }
    w.check("remove", c.remove(s), DONE);
    for x in [a, b] {
        let end = x.finish().expect("ends").res();
        assert!([EIDRM, EINVAL].contains(&end), "{}: {end:?}", x.name());
    }
}
