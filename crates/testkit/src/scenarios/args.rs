//! Rules 1–9: arguments, errors, and how one call's operations are evaluated.

use manyway_sem::abi::{GETVAL, SEMVMX};

use super::{DONE, E2BIG, EACCES, EAGAIN, EFAULT, EFBIG, EIDRM, EINTR, EINVAL, ERANGE, LONG, Scenario, scenario};
use crate::protocol::{Command, Out, Pointer, add, dec, inc, zero};
use crate::world::{Set, World};

pub const ALL: &[Scenario] = &[
    scenario("rule_01_order_of_checks", rule_01_order_of_checks),
    scenario("rule_01_bad_pointers", rule_01_bad_pointers).c_only(),
    scenario("rule_01_sem_num_before_permission", rule_01_sem_num_before_permission).root(),
    scenario("rule_02_bad_timeout", rule_02_bad_timeout),
    scenario("rule_02_zero_timeout_tries", rule_02_zero_timeout_tries),
    scenario("rule_02_far_timeout_sleeps", rule_02_far_timeout_sleeps),
    scenario("rule_03_timeout_is_relative", rule_03_timeout_is_relative),
    scenario("rule_03_timespec_untouched", rule_03_timespec_untouched).c_only(),
    scenario("rule_04_running_values", rule_04_running_values),
    scenario("rule_04_same_semaphore_twice", rule_04_same_semaphore_twice),
    scenario("rule_05_all_or_nothing", rule_05_all_or_nothing),
    scenario("rule_05_no_intermediate_value", rule_05_no_intermediate_value),
    scenario("rule_06_nowait_of_the_blocker_only", rule_06_nowait_of_the_blocker_only),
    scenario("rule_07_nowait_becomes_the_blocker", rule_07_nowait_becomes_the_blocker),
    scenario("rule_08_sleeper_gets_erange", rule_08_sleeper_gets_erange),
    scenario("rule_09_least_sem_op", rule_09_least_sem_op),
    scenario("rule_46_unknown_flags_ignored", rule_46_unknown_flags_ignored),
    scenario("rule_47_overflow_never_waits", rule_47_overflow_never_waits),
];

fn rule_01_order_of_checks(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 2);
    let gone = w.set(&a, 1);
    w.check("remove", a.remove(gone), DONE);
    let many = vec![zero(9); 501];
    let bad_id = Set { id: -1, n: 2 };
    w.check("too many operations on id −1", a.op(bad_id, &many), E2BIG);
    w.check("no operations", a.op(s, &[]), EINVAL);
    w.check("500 operations", a.op(s, &[zero(0); 500]), DONE);
    w.check("id −1, semaphore out of range", a.op(bad_id, &[dec(9, 1)]), EINVAL);
    w.check("unknown id, semaphore out of range", a.op(gone, &[dec(9, 1)]), EINVAL);
    w.check("bad timeout, semaphore out of range", a.timed_op(s, &[dec(9, 1)], (-1, 0)).res(), EINVAL);
    w.check("semaphore out of range", a.op(s, &[dec(2, 1)]), EFBIG);
    w.check("it is an error also after a blocking one", a.op(s, &[dec(0, 1), dec(2, 1)]), EFBIG);
    w.values("nothing changed", s, &[0, 0]);
}

fn rule_01_bad_pointers(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 1);
    let raw = |id, ops, nsops, timeout| a.call(Command::RawOp { id, ops, nsops, timeout }).res();
    w.check("too many, bad pointer, id −1", raw(-1, Pointer::Unmapped, 501, None), E2BIG);
    w.check("none, bad pointer", raw(s.id, Pointer::Unmapped, 0, None), EINVAL);
    w.check("none, id −1", raw(-1, Pointer::Null, 0, None), EINVAL);
    w.check("null", raw(s.id, Pointer::Null, 1, None), EFAULT);
    w.check("bad pointer", raw(s.id, Pointer::Unmapped, 1, None), EFAULT);
    w.check("bad pointer before id −1", raw(-1, Pointer::Unmapped, 1, None), EFAULT);
    w.check("bad pointer before unknown id", raw(i32::MAX, Pointer::Unmapped, 2, None), EFAULT);
    w.check("bad timeout pointer", raw(s.id, Pointer::Valid, 1, Some(Pointer::Unmapped)), EFAULT);
    w.check("bad timeout pointer before id −1", raw(-1, Pointer::Valid, 1, Some(Pointer::Unmapped)), EFAULT);
    w.check("bad timeout pointer before too many", raw(s.id, Pointer::Valid, 501, Some(Pointer::Unmapped)), EFAULT);
    w.check("no timeout", raw(s.id, Pointer::Valid, 1, Some(Pointer::Null)), DONE);
    w.check("however many", raw(s.id, Pointer::Valid, usize::MAX, None), E2BIG);
}

fn rule_01_sem_num_before_permission(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 1);
    b.become_user(1001, 1001, &[]);
    w.check("semaphore out of range, no permission", b.op(s, &[dec(1, 1)]), EFBIG);
    w.check("no permission", b.op(s, &[dec(0, 1)]), EACCES);
    w.check("no permission, with nowait", b.op(s, &[dec(0, 1).nowait()]), EACCES);
}

fn rule_02_bad_timeout(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 1);
    for timeout in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MIN, 0), (1, i64::MAX)] {
        w.check(&format!("{timeout:?}, could proceed"), a.timed_op(s, &[inc(0, 1)], timeout).res(), EINVAL);
        w.check(&format!("{timeout:?}, would block"), a.timed_op(s, &[dec(0, 1)], timeout).res(), EINVAL);
    }
    w.values("nothing done", s, &[0]);
}

fn rule_02_zero_timeout_tries(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set_of(&a, &[1]);
    w.check("can proceed", a.timed_op(s, &[dec(0, 1)], (0, 0)).res(), DONE);
    w.check("cannot", a.timed_op(s, &[dec(0, 1)], (0, 0)).res(), EAGAIN);
    w.check("nor with a nanosecond", a.timed_op(s, &[dec(0, 1)], (0, 1)).res(), EAGAIN);
    w.values("after", s, &[0]);
    w.counts("nobody waits", s, &[(0, 0)]);
}

fn rule_02_far_timeout_sleeps(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 1);
    let ops = vec![dec(0, 1)];
    a.start(Command::Op { id: s.id, ops, timeout: Some((i64::MAX, 999_999_999)) });
    super::until("A sleeps", || b.getncnt(s, 0) == Ok(1));
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, DONE);
}

fn rule_03_timeout_is_relative(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 1);
    let reply = a.timed_op(s, &[dec(0, 1)], (0, 60_000_000));
    w.check("times out", reply.res(), EAGAIN);
    w.check("not before its time", reply.ns >= 60_000_000, true);
    w.check("not long after", reply.ns < 5_000_000_000, true);
    w.counts("it left the queue", s, &[(0, 0)]);
    w.check("its wish is forgotten", b.op(s, &[inc(0, 1)]), DONE);
    w.values("after", s, &[1]);
}

fn rule_03_timespec_untouched(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 1);
    let reply = a.timed_op(s, &[dec(0, 1)], (0, 20_000_000));
    w.check("kept when it times out", (reply.res(), reply.timespec_kept), (EAGAIN, true));
    a.handle(libc::SIGUSR1, false);
    w.sleeps_for(&a, s, &[dec(0, 1)], Some(LONG));
    a.signal(libc::SIGUSR1);
    let reply = a.finish().expect("interrupted");
    w.check("kept when interrupted", (reply.res(), reply.timespec_kept), (EINTR, true));
    w.sleeps_for(&a, s, &[dec(0, 1)], Some(LONG));
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    let reply = a.finish().expect("released");
    w.check("kept when done", (reply.res(), reply.timespec_kept), (DONE, true));
}

fn rule_04_running_values(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[SEMVMX as u16]);
    w.check("+1 −1 at the top", a.op(s, &[inc(0, 1), dec(0, 1)]), ERANGE);
    w.check("−1 +1 at the top", a.op(s, &[dec(0, 1), inc(0, 1)]), DONE);
    w.check("set 0", a.setval(s, 0, 0), DONE);
    w.check("+1 −1 at 0", a.op(s, &[inc(0, 1), dec(0, 1)]), DONE);
    w.sleeps(&a, s, &[dec(0, 1), inc(0, 1)]);
    w.check("+1", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, DONE);
    w.values("−1 +1 at 1", s, &[1]);
}

fn rule_04_same_semaphore_twice(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[1]);
    w.check("−1, is 0, +3", a.op(s, &[dec(0, 1), zero(0), inc(0, 3)]), DONE);
    w.check("is 0 after −2", a.op(s, &[dec(0, 2), zero(0).nowait()]), EAGAIN);
    w.check("set 1", a.setval(s, 0, 1), DONE);
    w.sleeps(&a, s, &[dec(0, 1), dec(0, 1)]);
    w.values("nothing taken", s, &[1]);
    w.check("+1", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, DONE);
    w.values("both taken", s, &[0]);
}

fn rule_05_all_or_nothing(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5, 5, 0]);
    let ops = [dec(0, 1).undo(), inc(1, 1).undo(), dec(2, 1).nowait()];
    w.check("the last cannot", a.op(s, &ops), EAGAIN);
    w.check("the last overflows", a.op(s, &[dec(0, 1).undo(), inc(1, 1), inc(2, SEMVMX as i16), inc(2, 1)]), ERANGE);
    w.values("nothing changed, B was the last everywhere", s, &[5, 5, 0]);
    w.check("pid", w.who(a.getpid(s, 0).unwrap_or(-1)), "B".to_owned());
    w.exit(&a);
    w.values("no adjustment was left", s, &[5, 5, 0]);
}

fn rule_05_no_intermediate_value(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&a, &[5000, 5000]);
    let repeat = |ops| Command::Repeat { id: s.id, calls: vec![ops], times: 5000 };
    a.start(repeat(vec![dec(0, 1), inc(1, 1)]));
    b.start(repeat(vec![dec(1, 1), inc(0, 1)]));
    let seen = c.call(Command::SumRange { id: s.id, n: 2, times: 5000 }).out;
    w.check("sums seen", seen, Out::Range(10_000, 10_000));
    w.check("A", a.finish().expect("ends").res(), Ok(5000));
    w.check("B", b.finish().expect("ends").res(), Ok(5000));
    w.check("values", c.get_all(s), Ok(vec![5000, 5000]));
}

fn rule_06_nowait_of_the_blocker_only(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[0, 0]);
    w.sleeps(&a, s, &[dec(0, 1), dec(1, 1).nowait()]);
    w.check("the other order", b.op(s, &[dec(1, 1).nowait(), dec(0, 1)]), EAGAIN);
    w.sleeps(&b, s, &[inc(1, 1).nowait(), dec(0, 1)]);
    w.check("remove", w.observer().remove(s), DONE);
    w.returns(&a, EIDRM);
    w.returns(&b, EIDRM);
}

fn rule_07_nowait_becomes_the_blocker(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[0, 0]);
    w.sleeps(&a, s, &[dec(0, 1), dec(1, 1).nowait()]);
    w.check("its first can proceed now", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, EAGAIN);
    w.values("it took nothing", s, &[1, 0]);
    w.counts("nobody waits", s, &[(0, 0), (0, 0)]);
}

fn rule_08_sleeper_gets_erange(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[0, SEMVMX as u16]);
    w.sleeps(&a, s, &[dec(0, 1), inc(1, 1)]);
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, ERANGE);
    w.values("it took nothing", s, &[1, SEMVMX]);
    // The adjustment's range is looked at again, too.
    w.check("values", b.set_all(s, &[0, 0]), DONE);
    w.check("adjustment −32767", a.op(s, &[inc(1, SEMVMX as i16).undo()]), DONE);
    w.check("taken without adjustment", a.op(s, &[dec(1, SEMVMX as i16)]), DONE);
    w.sleeps(&a, s, &[dec(0, 1), inc(1, 2).undo()]);
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, ERANGE);
    w.values("it took nothing", s, &[1, 0]);
}

fn rule_09_least_sem_op(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[SEMVMX as u16]);
    w.check("−32768 never fits", b.op(s, &[add(0, i16::MIN).nowait()]), EAGAIN);
    w.check("nor does −1 −32767 −1", b.op(s, &[dec(0, 1), dec(0, SEMVMX as i16).nowait()]), EAGAIN);
    w.sleeps(&a, s, &[add(0, i16::MIN)]);
    w.counts("it counts", s, &[(1, 0)]);
    w.check("with undo too", b.op(s, &[add(0, i16::MIN).undo().nowait()]), EAGAIN);
    w.check("−32767 does", b.op(s, &[dec(0, SEMVMX as i16)]), DONE);
    w.check("+32767", b.op(s, &[inc(0, SEMVMX as i16)]), DONE);
    w.asleep(&[&a]);
}

fn rule_46_unknown_flags_ignored(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 1);
    let mut op = inc(0, 1);
    op.flg = !(dec(0, 1).undo().nowait().flg);
    w.check("all other flags", a.op(s, &[op]), DONE);
    w.exit(&a);
    w.values("no undo", s, &[1]);
}

fn rule_47_overflow_never_waits(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set_of(&a, &[SEMVMX as u16 - 1]);
    w.check("+2", a.op(s, &[inc(0, 2)]), ERANGE);
    w.check("+2 before the timeout", a.timed_op(s, &[inc(0, 2)], (60, 0)).res(), ERANGE);
    w.check("+1", a.op(s, &[inc(0, 1)]), DONE);
    w.check("value", a.ctl(s.id, 0, GETVAL, 0), Ok(i64::from(SEMVMX)));
}
