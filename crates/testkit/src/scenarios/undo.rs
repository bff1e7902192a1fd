//! Rules 10–18: SEM_UNDO.

use manyway_sem::abi::SEMVMX;

use super::{DONE, EAGAIN, EIDRM, EINTR, EINVAL, ERANGE, Scenario, scenario, until};
use crate::protocol::{Clone, Command, NewImage, dec, inc, zero};
use crate::world::World;

pub const ALL: &[Scenario] = &[
    scenario("rule_10_range_of_adjustments", rule_10_range_of_adjustments),
    scenario("rule_10_blocking_before_range", rule_10_blocking_before_range),
    scenario("rule_10_range_when_woken", rule_10_range_when_woken),
    scenario("rule_11_only_operations_that_ask", rule_11_only_operations_that_ask),
    scenario("rule_12_setval_clears_in_all", rule_12_setval_clears_in_all),
    scenario("rule_12_setall_clears_all", rule_12_setall_clears_all),
    scenario("rule_12_removal_drops", rule_12_removal_drops),
    scenario("rule_13_exit_clamps", rule_13_exit_clamps),
    scenario("rule_13_exit_never_waits", rule_13_exit_never_waits),
    scenario("rule_13_exit_wakes", rule_13_exit_wakes),
    scenario("rule_13_exit_covers_many_sets", rule_13_exit_covers_many_sets),
    scenario("rule_14_exit_sets_pid", rule_14_exit_sets_pid),
    scenario("rule_14_exit_sets_otime", rule_14_exit_sets_otime),
    scenario("rule_14_a_failed_call_leaves_a_record", rule_14_a_failed_call_leaves_a_record),
    scenario("rule_15_kill_undoes", rule_15_kill_undoes),
    scenario("rule_15_kill_of_a_sleeper", rule_15_kill_of_a_sleeper),
    scenario("rule_15_undo_of_a_granted_sleeper", rule_15_undo_of_a_granted_sleeper),
    scenario("rule_16_threads_share", rule_16_threads_share),
    scenario("rule_16_leader_exits_first", rule_16_leader_exits_first),
    scenario("rule_16_processes_that_share", rule_16_processes_that_share).c_only().differs(),
    scenario("rule_17_fork_starts_empty", rule_17_fork_starts_empty),
    scenario("rule_17_exec_keeps", rule_17_exec_keeps),
    scenario("rule_17_exec_into_another_image", rule_17_exec_into_another_image).c_only(),
    scenario("rule_17_exec_of_a_thread", rule_17_exec_of_a_thread),
    scenario("rule_18_unshare_applies", rule_18_unshare_applies),
    scenario("rule_18_unshare_by_a_thread", rule_18_unshare_by_a_thread).differs(),
    scenario("rule_48_zero_operation_has_no_undo", rule_48_zero_operation_has_no_undo),
    scenario("rule_49_interrupted_call_leaves_no_undo", rule_49_interrupted_call_leaves_no_undo),
    scenario("rule_50_adjustments_outlive_permission", rule_50_adjustments_outlive_permission).root(),
];

const TOP: i16 = SEMVMX as i16;

fn rule_10_range_of_adjustments(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 1);
    w.check("adjustment −32767", a.op(s, &[inc(0, TOP).undo()]), DONE);
    w.check("B takes all", b.op(s, &[dec(0, TOP)]), DONE);
    w.check("adjustment −32768", a.op(s, &[inc(0, 1).undo()]), DONE);
    w.check("adjustment −32769", a.op(s, &[inc(0, 1).undo()]), ERANGE);
    w.check("without undo it fits", a.op(s, &[inc(0, 1)]), DONE);
    w.values("values", s, &[2]);
    // The same where an operation on another semaphore goes along.
    let s = w.set(&b, 2);
    w.check("adjustment −32767", a.op(s, &[inc(0, TOP).undo(), zero(1)]), DONE);
    w.check("B takes all", b.op(s, &[dec(0, TOP)]), DONE);
    w.check("adjustment −32768", a.op(s, &[inc(0, 1).undo(), zero(1)]), DONE);
    w.check("adjustment −32769", a.op(s, &[inc(0, 1).undo(), zero(1)]), ERANGE);
    w.check("nor by way of it", a.op(s, &[inc(0, 1).undo(), dec(0, 1).undo()]), ERANGE);
    w.check("but the other way", a.op(s, &[dec(0, 1).undo(), inc(0, 1).undo()]), DONE);
    let s = w.set_of(&b, &[SEMVMX as u16]);
    w.check("adjustment +32767", a.op(s, &[dec(0, TOP).undo()]), DONE);
    w.check("B returns one", b.op(s, &[inc(0, 1)]), DONE);
    w.check("adjustment +32768", a.op(s, &[dec(0, 1).undo()]), ERANGE);
    w.values("unchanged", s, &[1]);
    // Within one call the adjustment runs along, as the value does.
    w.check("+1 −1", a.op(s, &[inc(0, 1).undo(), dec(0, 1).undo()]), DONE);
    w.check("−1 +1", a.op(s, &[dec(0, 1).undo(), inc(0, 1).undo()]), ERANGE);
}

fn rule_10_blocking_before_range(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[SEMVMX as u16]);
    w.check("adjustment +32767", a.op(s, &[dec(0, TOP).undo()]), DONE);
    w.check("it would block", a.op(s, &[dec(0, 1).undo().nowait()]), EAGAIN);
    w.sleeps(&a, s, &[dec(0, 1).undo()]);
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, ERANGE);
    w.values("the unit is left", s, &[1]);
}

fn rule_10_range_when_woken(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[SEMVMX as u16, 0]);
    w.check("adjustment +32767", a.op(s, &[dec(0, TOP).undo()]), DONE);
    w.check("B returns one", b.op(s, &[inc(0, 1)]), DONE);
    w.sleeps(&a, s, &[dec(1, 1), inc(0, 1).undo(), dec(0, 1).undo()]);
    w.check("release", b.op(s, &[inc(1, 1)]), DONE);
    w.returns(&a, DONE);
    w.sleeps(&a, s, &[dec(1, 1), dec(0, 1).undo(), inc(0, 1).undo()]);
    w.check("release", b.op(s, &[inc(1, 1)]), DONE);
    w.returns(&a, ERANGE);
    let s = w.set(&b, 2);
    w.check("adjustment −32767", a.op(s, &[inc(0, TOP).undo()]), DONE);
    w.check("B takes all", b.op(s, &[dec(0, TOP)]), DONE);
    for (adjustment, result) in [("−32768", DONE), ("−32769", ERANGE)] {
        w.sleeps(&a, s, &[dec(1, 1), inc(0, 1).undo()]);
        w.check(&format!("adjustment {adjustment}"), b.op(s, &[inc(1, 1)]), DONE);
        w.returns(&a, result);
    }
    w.values("the unit of the failed call is left", s, &[1, 1]);
}

fn rule_11_only_operations_that_ask(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[10, 10]);
    w.check("take", a.op(s, &[dec(0, 1).undo(), dec(0, 2), dec(1, 4)]), DONE);
    w.check("take more", a.op(s, &[dec(1, 1)]), DONE);
    w.exit(&a);
    w.values("one is given back", s, &[8, 5]);
}

fn rule_12_setval_clears_in_all(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[10, 10]);
    let t = w.set_of(&c, &[10, 10]);
    for (who, by) in [(&a, 1), (&b, 2)] {
        w.check("take", who.op(s, &[dec(0, by).undo(), dec(1, by).undo()]), DONE);
        w.check("take of another set", who.op(t, &[dec(0, by).undo()]), DONE);
    }
    w.check("SETVAL", c.setval(s, 0, 20), DONE);
    w.exit(&a);
    w.values("A's for [1] only", s, &[20, 8]);
    w.values("the other set", t, &[8, 10]);
    w.kill(&b);
    w.values("B's for [1] only", s, &[20, 10]);
    w.values("the other set", t, &[10, 10]);
}

fn rule_12_setall_clears_all(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[10, 10]);
    w.check("take", a.op(s, &[dec(0, 1).undo(), inc(1, 1).undo()]), DONE);
    w.check("SETALL", b.set_all(s, &[7, 7]), DONE);
    w.check("take again", a.op(s, &[dec(1, 2).undo()]), DONE);
    w.exit(&a);
    w.values("only what came later", s, &[7, 7]);
}

fn rule_12_removal_drops(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.keyed_set(&b, w.key(), 1);
    w.check("take", a.op(s, &[inc(0, 3).undo()]), DONE);
    w.check("remove", b.remove(s), DONE);
    let t = w.keyed_set(&b, w.key(), 1);
    w.check("values of the new one", b.setval(t, 0, 9), DONE);
    w.exit(&a);
    w.values("untouched", t, &[9]);
}

fn rule_13_exit_clamps(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[0, 5, 5]);
    w.check("give 3, take 2, take 1", a.op(s, &[inc(0, 3).undo(), dec(1, 2).undo(), dec(2, 1).undo()]), DONE);
    w.check("B takes 2 and fills up", b.op(s, &[dec(0, 2), inc(1, SEMVMX as i16 - 3), inc(2, 1)]), DONE);
    w.values("before", s, &[1, SEMVMX, 5]);
    w.exit(&a);
    w.values("not under 0, not over 32767, others as usual", s, &[0, SEMVMX, 6]);
}

fn rule_13_exit_never_waits(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&b, &[0, 0]);
    w.check("give", a.op(s, &[inc(0, 5).undo(), inc(1, 1).undo()]), DONE);
    w.check("B takes", b.op(s, &[dec(0, 5)]), DONE);
    w.sleeps(&c, s, &[dec(0, 1)]);
    w.exit(&a);
    w.values("what was there is taken", s, &[0, 0]);
    w.asleep(&[&c]);
}

fn rule_13_exit_wakes(w: &World) {
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let s = w.set_of(&a, &[1, 0]);
    w.check("take and give", a.op(s, &[dec(0, 1).undo(), inc(1, 1).undo()]), DONE);
    w.sleeps(&b, s, &[dec(0, 1)]);
    w.sleeps(&c, s, &[zero(1)]);
    w.sleeps(&d, s, &[dec(0, 1), zero(1)]);
    w.exit(&a);
    w.returns(&b, DONE);
    w.returns(&c, DONE);
    w.asleep(&[&d]);
    w.values("the first gets it", s, &[0, 0]);
}

fn rule_13_exit_covers_many_sets(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let sets: Vec<_> = (0..40).map(|_| w.set_of(&b, &[3; 3])).collect();
    for (i, s) in sets.iter().enumerate() {
        assert_eq!(a.op(*s, &[dec((i % 3) as u16, 2).undo()]), DONE);
    }
    w.check("half of them go", sets.iter().step_by(2).map(|s| b.remove(*s)).all(|r| r == DONE), true);
    w.kill(&a);
    for s in sets.iter().skip(1).step_by(2) {
        w.values("given back", *s, &[3; 3]);
    }
}

fn rule_14_exit_sets_pid(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5, 5, 5, 5]);
    w.check("take", a.op(s, &[dec(0, 1).undo(), dec(1, 1).undo()]), DONE);
    w.check("give [1] back", a.op(s, &[inc(1, 1).undo(), dec(2, 1)]), DONE);
    w.check("B is the last", b.op(s, &[zero(3).nowait()]), EAGAIN);
    w.check("B is the last of all", b.op(s, &[inc(0, 1), inc(1, 1), inc(2, 1), inc(3, 1)]), DONE);
    w.exit(&a);
    w.values("A where its adjustment is not 0", s, &[6, 6, 5, 6]);
    let last: Vec<_> = (0..4).map(|n| w.who(b.getpid(s, n).unwrap_or(-1))).collect();
    w.check("last", last, ["A", "B", "B", "B"].map(str::to_owned).to_vec());
}

fn rule_14_exit_sets_otime(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5]);
    let t = w.set_of(&b, &[5]);
    w.check("take", a.op(s, &[dec(0, 1).undo()]), DONE);
    w.check("take and give: its adjustment is 0", a.op(t, &[dec(0, 1).undo(), inc(0, 1).undo()]), DONE);
    let before = [s, t].map(|x| b.stat(x).expect("own set"));
    let latest = before.iter().map(|x| x.otime.max(x.ctime)).max().unwrap_or(0);
    until("the next second", || b.now() > latest);
    w.exit(&a);
    w.values("given back", s, &[5]);
    let after = [s, t].map(|x| b.stat(x).expect("own set"));
    w.check("sem_otime of its sets is later", [0, 1].map(|i| after[i].otime > latest), [true, true]);
    w.check("sem_ctime is not", [0, 1].map(|i| after[i].ctime == before[i].ctime), [true, true]);
}

fn rule_14_a_failed_call_leaves_a_record(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let sets = [(); 3].map(|()| w.set(&b, 1));
    w.check("would block", a.op(sets[0], &[dec(0, 1).undo().nowait()]), EAGAIN);
    w.check("would block, without undo", a.op(sets[1], &[dec(0, 1).nowait()]), EAGAIN);
    w.sleeps(&a, sets[2], &[dec(0, 1).undo()]);
    w.kill(&a);
    w.counts("nobody waits", sets[2], &[(0, 0)]);
    let moved = sets.map(|s| b.stat(s).is_ok_and(|s| s.otime != 0));
    w.check("sem_otime of those it used SEM_UNDO on", moved, [true, false, true]);
}

fn rule_15_kill_undoes(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[1]);
    w.check("take", a.op(s, &[dec(0, 1).undo()]), DONE);
    w.sleeps(&b, s, &[dec(0, 1).undo()]);
    w.kill(&a);
    w.returns(&b, DONE);
    w.kill(&b);
    w.values("after both", s, &[1]);
}

fn rule_15_kill_of_a_sleeper(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[1, 0]);
    w.check("take", a.op(s, &[dec(0, 1).undo()]), DONE);
    w.sleeps(&b, s, &[dec(0, 1).undo(), dec(1, 1)]);
    w.sleeps(&a, s, &[dec(1, 1).undo()]);
    w.kill(&a);
    w.values("A gave back, and waits no more", s, &[1, 0]);
    w.counts("B waits for [1]", s, &[(0, 0), (1, 0)]);
    w.kill(&b);
    w.counts("nobody waits", s, &[(0, 0), (0, 0)]);
    w.check("the next gets through", c.op(s, &[dec(0, 1), inc(1, 1)]), DONE);
    w.values("after", s, &[0, 1]);
}

fn rule_15_undo_of_a_granted_sleeper(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[0, 0]);
    w.sleeps(&a, s, &[dec(0, 2).undo(), inc(1, 1).undo()]);
    w.check("release", b.op(s, &[inc(0, 3)]), DONE);
    w.returns(&a, DONE);
    w.values("granted", s, &[1, 1]);
    w.kill(&a);
    w.values("the adjustment is the sleeper's", s, &[3, 0]);
}

fn rule_16_threads_share(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let t = w.clone(&a, Clone::Thread, "A's thread");
    let s = w.set_of(&b, &[5]);
    w.check("the thread takes", t.op(s, &[dec(0, 3).undo()]), DONE);
    w.check("the first returns one", a.op(s, &[inc(0, 1).undo()]), DONE);
    w.exit_thread(&t);
    w.values("a thread's exit undoes nothing", s, &[3]);
    w.exit(&a);
    w.values("the process's does", s, &[5]);
}

fn rule_16_leader_exits_first(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let t = w.clone(&a, Clone::Thread, "A's thread");
    let s = w.set_of(&b, &[5]);
    w.check("the first thread takes", a.op(s, &[dec(0, 3).undo()]), DONE);
    w.exit_thread(&a);
    w.values("the process lives", s, &[2]);
    w.check("and takes", t.op(s, &[dec(0, 1).undo()]), DONE);
    w.kill(&t);
    w.values("until its last thread ends", s, &[5]);
}

/// Processes that share a list of adjustments: on Manyway each has its own.
fn rule_16_processes_that_share(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5]);
    let sharer = w.clone(&a, Clone::ShareUndo, "A's sharer");
    w.check("A takes", a.op(s, &[dec(0, 1).undo()]), DONE);
    w.check("the sharer takes", sharer.op(s, &[dec(0, 2).undo()]), DONE);
    w.exit(&sharer);
    w.check("A waits for it", a.call(Command::WaitPid { pid: sharer.pid() }).ret.is_ok(), true);
    w.values("after the first's exit", s, &[if w.is_kernel() { 2 } else { 4 }]);
    w.exit(&a);
    w.values("after the last's exit", s, &[5]);
}

fn rule_17_fork_starts_empty(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5]);
    w.check("A takes", a.op(s, &[dec(0, 1).undo()]), DONE);
    let child = w.clone(&a, Clone::Fork, "A's child");
    w.check("the child takes", child.op(s, &[dec(0, 2).undo()]), DONE);
    w.check("the child is the last", w.who(b.getpid(s, 0).unwrap_or(-1)), "A's child".to_owned());
    w.exit(&child);
    w.check("A waits for it", a.call(Command::WaitPid { pid: child.pid() }).ret.is_ok(), true);
    w.values("the child's are undone", s, &[4]);
    w.exit(&a);
    w.values("A's are undone", s, &[5]);
}

fn rule_17_exec_keeps(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5]);
    w.check("A takes", a.op(s, &[dec(0, 1).undo()]), DONE);
    let a = w.exec(&a, NewImage::Same, "A executed");
    w.values("kept", s, &[4]);
    w.check("A takes more", a.op(s, &[dec(0, 2).undo()]), DONE);
    w.exit(&a);
    w.values("all are undone", s, &[5]);
}

fn rule_17_exec_into_another_image(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5]);
    w.check("A takes", a.op(s, &[dec(0, 1).undo()]), DONE);
    let a = w.exec(&a, NewImage::NotPreloaded, "A executed");
    w.values("kept", s, &[4]);
    w.sleeps(&b, s, &[dec(0, 5)]);
    w.kill(&a);
    w.returns(&b, DONE);
}

fn rule_17_exec_of_a_thread(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5, 0]);
    let t = w.clone(&a, Clone::Thread, "A's thread");
    w.check("A takes", a.op(s, &[dec(0, 1).undo()]), DONE);
    w.sleeps(&a, s, &[dec(1, 1).undo()]);
    let a = w.exec(&t, NewImage::Same, "A executed");
    w.values("kept", s, &[4, 0]);
    w.counts("the thread that slept is gone", s, &[(0, 0), (0, 0)]);
    w.exit(&a);
    w.values("undone", s, &[5, 0]);
}

fn rule_18_unshare_applies(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5]);
    w.check("A takes", a.op(s, &[dec(0, 3).undo()]), DONE);
    w.sleeps(&b, s, &[dec(0, 4)]);
    w.check("unshare", a.call(Command::UnshareUndo).ret, Ok(0));
    w.returns(&b, DONE);
    w.values("undone at once", s, &[1]);
    w.check("A takes again", a.op(s, &[dec(0, 1).undo()]), DONE);
    w.exit(&a);
    w.values("each is undone once", s, &[1]);
}

/// On Manyway all threads share what is applied.
fn rule_18_unshare_by_a_thread(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let t = w.clone(&a, Clone::Thread, "A's thread");
    let s = w.set_of(&b, &[5]);
    w.check("A takes", a.op(s, &[dec(0, 3).undo()]), DONE);
    w.check("unshare", t.call(Command::UnshareUndo).ret, Ok(0));
    w.values("after it", s, &[2]);
    w.check("the thread takes", t.op(s, &[dec(0, 1).undo()]), DONE);
    w.exit_thread(&t);
    w.values("after the thread", s, &[if w.is_kernel() { 2 } else { 1 }]);
    w.exit(&a);
    w.values("after all", s, &[5]);
}

fn rule_48_zero_operation_has_no_undo(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&b, 1);
    w.check("is 0, with undo", a.op(s, &[zero(0).undo()]), DONE);
    w.check("B gives", b.op(s, &[inc(0, 2)]), DONE);
    w.exit(&a);
    w.values("nothing to undo", s, &[2]);
    w.check("B is the last", w.who(w.observer().getpid(s, 0).unwrap_or(-1)), "B".to_owned());
}

fn rule_49_interrupted_call_leaves_no_undo(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[2, 0]);
    a.handle(libc::SIGUSR1, false);
    w.sleeps(&a, s, &[dec(0, 1).undo(), dec(1, 1).undo()]);
    a.signal(libc::SIGUSR1);
    w.returns(&a, EINTR);
    w.check("timed", a.timed_op(s, &[dec(0, 1).undo(), dec(1, 1).undo()], (0, 1_000_000)).res(), EAGAIN);
    w.sleeps(&a, s, &[dec(0, 1).undo(), dec(1, 1).undo()]);
    w.check("removal", b.remove(s), DONE);
    w.returns(&a, EIDRM);
    w.check("gone", a.op(s, &[dec(0, 1)]), EINVAL);
    let s = w.set_of(&b, &[2, 0]);
    w.sleeps(&a, s, &[dec(0, 1).undo(), dec(1, 1).undo()]);
    w.kill(&a);
    w.values("unchanged", s, &[2, 0]);
}

fn rule_50_adjustments_outlive_permission(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[5]);
    w.check("A takes", a.op(s, &[dec(0, 2).undo()]), DONE);
    w.check("nobody may alter it", b.set_perm(s, 0, 0, 0), DONE);
    a.become_user(1001, 1001, &[]);
    w.check("A may not return it", a.op(s, &[inc(0, 2).undo()]), super::EACCES);
    w.exit(&a);
    w.values("its exit does", s, &[5]);
}
