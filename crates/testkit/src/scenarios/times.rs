//! Rules 36 and 38: signals and timeouts against results.

use std::time::Duration;

use super::{DONE, EAGAIN, EINTR, LONG, Scenario, scenario};
use crate::protocol::{Clone, Command, dec, inc, zero};
use crate::world::World;

pub const ALL: &[Scenario] = &[
    scenario("rule_36_result_beats_signal", rule_36_result_beats_signal).strict(),
    scenario("rule_36_result_beats_timeout", rule_36_result_beats_timeout),
    scenario("rule_36_units_are_conserved", rule_36_units_are_conserved).strict(),
    scenario("rule_38_eintr", rule_38_eintr),
    scenario("rule_38_eintr_under_sa_restart", rule_38_eintr_under_sa_restart),
    scenario("rule_38_ignored_signals_do_not_interrupt", rule_38_ignored_signals_do_not_interrupt),
    scenario("rule_38_stop_and_continue", rule_38_stop_and_continue).differs(),
    scenario("rule_60_the_handler_finds_the_call_over", rule_60_the_handler_finds_the_call_over).c_only(),
    scenario("rule_61_signal_of_one_thread", rule_61_signal_of_one_thread),
    scenario("rule_62_timeouts_of_complex_sleepers", rule_62_timeouts_of_complex_sleepers),
];

fn rule_36_result_beats_signal(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 1);
    a.handle(libc::SIGUSR1, false);
    for _ in 0..100 {
        w.sleeps(&a, s, &[dec(0, 1)]);
        // Once the release has returned, the unit is A's, whatever reaches it first.
        assert_eq!(b.op(s, &[inc(0, 1)]), DONE);
        a.signal(libc::SIGUSR1);
        w.returns(&a, DONE);
    }
    w.values("all taken", s, &[0]);
}

fn rule_36_result_beats_timeout(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 1);
    let (mut taken, mut timed_out) = (0, 0);
    for round in 0..60 {
        a.start_op(s, &[dec(0, 1)], Some(Duration::from_millis(2)));
        std::thread::sleep(Duration::from_micros(1700 + 10 * round));
        assert_eq!(b.op(s, &[inc(0, 1)]), DONE);
        match a.finish().expect("ends").res() {
            DONE => taken += 1,
            EAGAIN => {
                timed_out += 1;
                assert_eq!(b.op(s, &[dec(0, 1).nowait()]), DONE, "the unit of a call that timed out is still there");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(b.getval(s, 0), Ok(0), "no unit is lost or doubled");
    }
    w.check("each round ended", taken + timed_out, 60);
}

fn rule_36_units_are_conserved(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set(&c, 2);
    a.handle(libc::SIGUSR1, false);
    let mut left = 0;
    for round in 0..100 {
        // Together: a signal to A, and a release that A or B may get.
        for x in [&a, &b] {
            x.start_op(s, &[dec(0, 1), inc(1, 1)], None);
            assert!(w.settle(x).is_none(), "{} sleeps", x.name());
        }
        c.start_op(s, &[inc(0, 1)], None);
        if round % 2 == 0 {
            a.signal(libc::SIGUSR1);
        }
        assert_eq!(c.finish().expect("ends").res(), DONE);
        if round % 2 == 1 {
            a.signal(libc::SIGUSR1);
        }
        let first = a.finish().expect("ends").res();
        match first {
            // B is left without; it gets another.
            DONE => assert_eq!(c.op(s, &[inc(0, 1)]), DONE),
            EINTR => left += 1,
            other => panic!("{other:?}"),
        }
        assert_eq!(b.finish().expect("ends").res(), DONE);
        let moved = if first == DONE { 2 } else { 1 };
        assert_eq!(c.op(s, &[zero(0).nowait(), dec(1, moved).nowait(), zero(1).nowait()]), DONE);
    }
    w.check("a signal after the release interrupts nothing", left <= 50, true);
}

fn rule_38_eintr(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 2);
    a.handle(libc::SIGUSR1, false);
    for ops in [vec![dec(0, 1)], vec![dec(0, 1), dec(1, 1)]] {
        w.sleeps(&a, s, &ops);
        a.signal(libc::SIGUSR1);
        w.returns(&a, EINTR);
        w.sleeps_for(&a, s, &ops, Some(LONG));
        a.signal(libc::SIGUSR1);
        w.returns(&a, EINTR);
    }
    w.check("set [0]", b.setval(s, 0, 1), DONE);
    w.sleeps(&a, s, &[zero(0)]);
    a.signal(libc::SIGUSR1);
    w.returns(&a, EINTR);
    w.counts("nobody waits", s, &[(0, 0), (0, 0)]);
    w.check("signals handled", a.call(Command::Handled).res(), Ok(5));
}

fn rule_38_eintr_under_sa_restart(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 1);
    a.handle(libc::SIGUSR1, true);
    w.sleeps(&a, s, &[dec(0, 1)]);
    a.signal(libc::SIGUSR1);
    w.returns(&a, EINTR);
    w.sleeps_for(&a, s, &[dec(0, 1)], Some(LONG));
    a.signal(libc::SIGUSR1);
    w.returns(&a, EINTR);
}

fn rule_38_ignored_signals_do_not_interrupt(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 1);
    w.sleeps(&a, s, &[dec(0, 1)]);
    // Ignored unless handled.
    for signal in [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT] {
        a.signal(signal);
    }
    w.asleep(&[&a]);
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, DONE);
}

/// On Manyway a sleeper sleeps on after SIGCONT, as futex(2) does.
fn rule_38_stop_and_continue(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 1);
    w.sleeps(&a, s, &[dec(0, 1)]);
    a.signal(libc::SIGSTOP);
    let stat = format!("/proc/{}/stat", a.pid());
    super::until("A stops", || std::fs::read_to_string(&stat).is_ok_and(|s| s.contains(") T ")));
    a.signal(libc::SIGCONT);
    if w.is_kernel() {
        w.returns(&a, EINTR);
    } else {
        super::until("A goes on", || std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") T ")));
        w.asleep(&[&a]);
        w.check("release", b.op(s, &[inc(0, 1)]), DONE);
        w.returns(&a, DONE);
    }
    w.counts("nobody waits", s, &[(0, 0)]);
}

fn rule_60_the_handler_finds_the_call_over(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 2);
    // The handler takes [1], without waiting, and then releases the very semaphore that the call waited for.
    for (then, restart) in [(inc(1, 1), false), (inc(0, 1), true)] {
        a.call(Command::Handle { signal: libc::SIGUSR1, restart, then: Some((s.id, then)) }).res().expect("a handler");
        w.sleeps(&a, s, &[dec(0, 1)]);
        a.signal(libc::SIGUSR1);
        w.returns(&a, EINTR);
    }
    w.check("the handler's calls", a.call(Command::Handled).out, crate::Out::Range(2, 0));
    w.values("its own release did not serve the call", s, &[1, 1]);
}

fn rule_61_signal_of_one_thread(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let t = w.clone(&a, Clone::Thread, "A's thread");
    let s = w.set(&b, 1);
    a.handle(libc::SIGUSR1, true);
    w.sleeps(&a, s, &[dec(0, 1)]);
    w.sleeps(&t, s, &[dec(0, 1)]);
    t.signal(libc::SIGUSR1);
    w.returns(&t, EINTR);
    w.asleep(&[&a]);
    w.counts("A waits", s, &[(1, 0)]);
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, DONE);
}

fn rule_62_timeouts_of_complex_sleepers(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[1, 0]);
    w.sleeps(&b, s, &[dec(0, 1), dec(1, 1)]);
    let reply = a.timed_op(s, &[zero(0), dec(1, 1)], (0, 70_000_000));
    w.check("times out", reply.res(), EAGAIN);
    w.check("in time", (70_000_000..5_000_000_000).contains(&reply.ns), true);
    w.counts("B waits", s, &[(0, 0), (1, 0)]);
    // Wakes that do not complete it do not start its time again.
    a.start_op(s, &[dec(0, 9)], Some(Duration::from_millis(200)));
    let mut wakes = 0;
    while a.poll(Duration::from_millis(10)).is_none() {
        assert_eq!(c.op(s, &[inc(0, 1)]), DONE);
        assert_eq!(c.op(s, &[dec(0, 1)]), DONE);
        wakes += 1;
        assert!(wakes < 300, "it never times out");
    }
    w.values("unchanged", s, &[1, 0]);
    w.asleep(&[&b]);
}
