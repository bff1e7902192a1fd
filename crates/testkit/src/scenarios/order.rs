//! Rules 29–37: who gets a unit, in which order, and who is counted as waiting.

use super::{DONE, EAGAIN, EINTR, Scenario, scenario};
use crate::protocol::{dec, inc, zero};
use crate::world::World;

pub const ALL: &[Scenario] = &[
    scenario("rule_29_newcomer_overtakes", rule_29_newcomer_overtakes),
    scenario("rule_29_released_unit_is_the_sleepers", rule_29_released_unit_is_the_sleepers).strict(),
    scenario("rule_29_sleepers_are_first_come_first_served", rule_29_sleepers_are_first_come_first_served),
    scenario("rule_30_small_overtakes_large", rule_30_small_overtakes_large),
    scenario("rule_30_scan_goes_on", rule_30_scan_goes_on),
    scenario("rule_31_one_queue_while_complex_sleep", rule_31_one_queue_while_complex_sleep),
    scenario("rule_31_complex_does_not_overtake", rule_31_complex_does_not_overtake),
    scenario("rule_31_queues_part_again", rule_31_queues_part_again),
    scenario("rule_32_two_operations_are_complex", rule_32_two_operations_are_complex),
    scenario("rule_33_zero_before_decrement", rule_33_zero_before_decrement),
    scenario("rule_34_brief_zero", rule_34_brief_zero),
    scenario("rule_34_brief_zero_of_two", rule_34_brief_zero_of_two),
    scenario("rule_34_zero_made_by_a_sleeper", rule_34_zero_made_by_a_sleeper),
    scenario("rule_34_zero_within_a_call_is_not_seen", rule_34_zero_within_a_call_is_not_seen),
    scenario("rule_35_scan_begins_again", rule_35_scan_begins_again),
    scenario("rule_35_simple_sleeper_frees_complex", rule_35_simple_sleeper_frees_complex),
    scenario("rule_35_chain_of_releases", rule_35_chain_of_releases),
    scenario("rule_37_first_blocker_counts", rule_37_first_blocker_counts),
    scenario("rule_37_counts_move_with_the_blocker", rule_37_counts_move_with_the_blocker),
    scenario("rule_37_counts_of_mixed_operations", rule_37_counts_of_mixed_operations),
    scenario("rule_37_counts_of_zero_only_calls", rule_37_counts_of_zero_only_calls),
    scenario("rule_37_zero_of_another_semaphore", rule_37_zero_of_another_semaphore).differs(),
    scenario("rule_56_setval_wakes", rule_56_setval_wakes),
    scenario("rule_57_a_sleeper_that_leaves_unblocks_nobody", rule_57_a_sleeper_that_leaves_unblocks_nobody),
    scenario("rule_58_zero_sleepers_all_wake", rule_58_zero_sleepers_all_wake),
    scenario("rule_59_threads_are_sleepers_of_their_own", rule_59_threads_are_sleepers_of_their_own),
];

fn rule_29_newcomer_overtakes(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[1]);
    w.sleeps(&a, s, &[dec(0, 5)]);
    w.check("a newcomer takes what is there", b.op(s, &[dec(0, 1)]), DONE);
    w.values("after", s, &[0]);
    w.asleep(&[&a]);
    w.check("a release that is not enough", b.op(s, &[inc(0, 4)]), DONE);
    w.check("a newcomer again", b.op(s, &[dec(0, 3).nowait()]), DONE);
    w.asleep(&[&a]);
}

fn rule_29_released_unit_is_the_sleepers(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&b, &[0]);
    w.sleeps(&a, s, &[dec(0, 1)]);
    // A is stopped: it cannot run, and has the unit all the same.
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    w.check("a newcomer", c.op(s, &[dec(0, 1).nowait()]), EAGAIN);
    w.values("it is A's", s, &[0]);
    w.counts("nobody waits", s, &[(0, 0)]);
    w.returns(&a, DONE);
    w.check("A was the last", w.who(b.getpid(s, 0).unwrap_or(-1)), "A".to_owned());
}

fn rule_29_sleepers_are_first_come_first_served(w: &World) {
    let agents = w.workers(["A", "B", "C", "D", "E"]);
    let [a, b, c, d, e] = &agents;
    let s = w.set_of(e, &[0]);
    for x in [c, a, d, b] {
        w.sleeps(x, s, &[dec(0, 1)]);
    }
    for x in [c, a, d, b] {
        w.check("release", e.op(s, &[inc(0, 1)]), DONE);
        w.returns(x, DONE);
        w.values("taken", s, &[0]);
    }
    for x in [b, d, a, c] {
        w.sleeps(x, s, &[dec(0, 2)]);
    }
    w.check("release for two", e.op(s, &[inc(0, 5)]), DONE);
    w.returns(b, DONE);
    w.returns(d, DONE);
    w.asleep(&[a, c]);
    w.values("the rest", s, &[1]);
}

fn rule_30_small_overtakes_large(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[0]);
    w.sleeps(&a, s, &[dec(0, 5)]);
    w.sleeps(&b, s, &[dec(0, 2)]);
    w.check("release 1", c.op(s, &[inc(0, 1)]), DONE);
    w.asleep(&[&a, &b]);
    w.check("release 1 more", c.op(s, &[inc(0, 1)]), DONE);
    w.returns(&b, DONE);
    w.asleep(&[&a]);
    w.values("A gets nothing yet", s, &[0]);
    w.check("release 5", c.op(s, &[inc(0, 5)]), DONE);
    w.returns(&a, DONE);
}

fn rule_30_scan_goes_on(w: &World) {
    let agents = w.workers(["A", "B", "C", "D", "E"]);
    let [a, b, c, d, e] = &agents;
    let s = w.set_of(e, &[0]);
    for (x, by) in [(a, 9), (b, 3), (c, 8), (d, 2)] {
        w.sleeps(x, s, &[dec(0, by)]);
    }
    w.check("release 6", e.op(s, &[inc(0, 6)]), DONE);
    w.returns(b, DONE);
    w.returns(d, DONE);
    w.asleep(&[a, c]);
    w.values("what is left fits nobody", s, &[1]);
}

fn rule_31_one_queue_while_complex_sleep(w: &World) {
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let s = w.set_of(&d, &[0, 0]);
    w.sleeps(&a, s, &[dec(0, 1), dec(1, 1)]);
    w.sleeps(&b, s, &[dec(0, 1)]);
    w.sleeps(&c, s, &[dec(1, 1)]);
    w.check("release [0]", d.op(s, &[inc(0, 1)]), DONE);
    w.returns(&b, DONE);
    w.asleep(&[&a, &c]);
    w.check("release both at once", d.op(s, &[inc(0, 1), inc(1, 1)]), DONE);
    w.returns(&a, DONE);
    w.asleep(&[&c]);
    w.values("A came before C", s, &[0, 0]);
}

fn rule_31_complex_does_not_overtake(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[0, 1]);
    w.sleeps(&a, s, &[dec(0, 1)]);
    w.sleeps(&b, s, &[dec(0, 1), dec(1, 1)]);
    w.check("release", c.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, DONE);
    w.asleep(&[&b]);
    w.check("release", c.op(s, &[inc(0, 1)]), DONE);
    w.returns(&b, DONE);
    // The other way round.
    w.check("values", c.set_all(s, &[0, 1]), DONE);
    w.sleeps(&b, s, &[dec(0, 1), dec(1, 1)]);
    w.sleeps(&a, s, &[dec(0, 1)]);
    w.check("release", c.op(s, &[inc(0, 1)]), DONE);
    w.returns(&b, DONE);
    w.asleep(&[&a]);
    w.values("the complex one came first", s, &[0, 0]);
}

fn rule_31_queues_part_again(w: &World) {
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let s = w.set_of(&d, &[0, 0]);
    for x in [&a, &b, &c] {
        x.handle(libc::SIGUSR1, false);
    }
    w.sleeps(&a, s, &[dec(0, 1)]);
    w.sleeps(&b, s, &[dec(0, 1), dec(1, 1)]);
    w.sleeps(&c, s, &[dec(0, 1)]);
    b.signal(libc::SIGUSR1);
    w.returns(&b, EINTR);
    w.counts("two wait", s, &[(2, 0), (0, 0)]);
    w.check("another release", d.op(s, &[inc(1, 1)]), DONE);
    w.sleeps(&b, s, &[dec(0, 1)]);
    for x in [&a, &c, &b] {
        w.check("release", d.op(s, &[inc(0, 1)]), DONE);
        w.returns(x, DONE);
    }
    w.values("after all", s, &[0, 1]);
}

fn rule_32_two_operations_are_complex(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[0, 0]);
    // All on one semaphore, and still in one queue with those of the other.
    w.sleeps(&a, s, &[dec(0, 1), dec(0, 1)]);
    w.sleeps(&b, s, &[dec(0, 1)]);
    w.check("release 1", c.op(s, &[inc(0, 1)]), DONE);
    w.returns(&b, DONE);
    w.sleeps(&b, s, &[dec(0, 2)]);
    w.check("release 2", c.op(s, &[inc(0, 2)]), DONE);
    w.returns(&a, DONE);
    w.asleep(&[&b]);
    w.values("A came first", s, &[0, 0]);
}

fn rule_33_zero_before_decrement(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[1]);
    // A came first, and would make it 1 again.
    w.sleeps(&a, s, &[zero(0), inc(0, 1)]);
    w.sleeps(&b, s, &[zero(0)]);
    w.check("take", c.op(s, &[dec(0, 1)]), DONE);
    w.returns(&b, DONE);
    w.returns(&a, DONE);
    w.values("after", s, &[1]);
}

fn rule_34_brief_zero(w: &World) {
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let s = w.set_of(&d, &[1]);
    w.sleeps(&a, s, &[dec(0, 3)]);
    w.sleeps(&b, s, &[zero(0), inc(0, 4)]);
    w.sleeps(&c, s, &[zero(0)]);
    // 3, A takes it: 0; B makes it 4.
    w.check("release 2", d.op(s, &[inc(0, 2)]), DONE);
    w.returns(&a, DONE);
    w.returns(&c, DONE);
    w.returns(&b, DONE);
    w.values("0 for an instant", s, &[4]);
}

fn rule_34_brief_zero_of_two(w: &World) {
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let s = w.set_of(&d, &[1, 0]);
    w.sleeps(&a, s, &[dec(0, 2)]);
    w.sleeps(&b, s, &[zero(0), zero(1), inc(1, 1)]);
    w.sleeps(&c, s, &[zero(1), zero(0)]);
    w.check("release", d.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, DONE);
    w.returns(&c, DONE);
    w.returns(&b, DONE);
    w.values("both were 0", s, &[0, 1]);
}

fn rule_34_zero_made_by_a_sleeper(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[1]);
    w.sleeps(&a, s, &[dec(0, 3)]);
    w.sleeps(&b, s, &[zero(0)]);
    w.check("release 2", c.op(s, &[inc(0, 2)]), DONE);
    w.returns(&a, DONE);
    w.returns(&b, DONE);
    w.check("the zero-sleeper was the last", w.who(c.getpid(s, 0).unwrap_or(-1)), "B".to_owned());
    w.check("the same by SETVAL", c.setval(s, 0, 1), DONE);
    w.sleeps(&a, s, &[dec(0, 3)]);
    w.sleeps(&b, s, &[zero(0)]);
    w.check("SETVAL 3", c.setval(s, 0, 3), DONE);
    w.returns(&a, DONE);
    w.returns(&b, DONE);
    w.values("taken", s, &[0]);
}

fn rule_34_zero_within_a_call_is_not_seen(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[1]);
    w.sleeps(&a, s, &[zero(0)]);
    w.check("to 0 and back in one call", b.op(s, &[dec(0, 1), zero(0), inc(0, 1)]), DONE);
    w.asleep(&[&a]);
    w.check("to 0", b.op(s, &[dec(0, 1)]), DONE);
    w.returns(&a, DONE);
}

fn rule_35_scan_begins_again(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[0, 0]);
    w.sleeps(&a, s, &[dec(1, 1)]);
    w.sleeps(&b, s, &[dec(0, 1), inc(1, 1)]);
    w.check("release [0]", c.op(s, &[inc(0, 1)]), DONE);
    w.returns(&b, DONE);
    w.returns(&a, DONE);
    w.values("one unit went through both", s, &[0, 0]);
}

fn rule_35_simple_sleeper_frees_complex(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[1, 0]);
    // A waits for [0] to be 0, which B's simple operation makes.
    w.sleeps(&a, s, &[zero(0), inc(1, 1)]);
    w.sleeps(&b, s, &[dec(0, 2)]);
    w.check("release", c.op(s, &[inc(0, 1)]), DONE);
    w.returns(&b, DONE);
    w.returns(&a, DONE);
    w.values("after", s, &[0, 1]);
}

fn rule_35_chain_of_releases(w: &World) {
    let agents = w.workers(["A", "B", "C", "D", "E"]);
    let [a, b, c, d, e] = &agents;
    let s = w.set_of(e, &[0, 0, 0, 0]);
    // Each frees the one before it.
    w.sleeps(a, s, &[dec(3, 1)]);
    w.sleeps(b, s, &[dec(2, 1), inc(3, 1)]);
    w.sleeps(c, s, &[dec(1, 1), inc(2, 1)]);
    w.sleeps(d, s, &[dec(0, 1), inc(1, 1)]);
    w.check("release", e.op(s, &[inc(0, 1)]), DONE);
    for x in [a, b, c, d] {
        w.returns(x, DONE);
    }
    w.values("after all", s, &[0, 0, 0, 0]);
}

fn rule_37_first_blocker_counts(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[0, 0, 1]);
    w.sleeps(&a, s, &[inc(2, 1), dec(1, 1), dec(0, 1), zero(2)]);
    w.counts("A on [1]", s, &[(0, 0), (1, 0), (0, 0)]);
    w.sleeps(&b, s, &[zero(2), dec(0, 1)]);
    w.counts("B on [2]", s, &[(0, 0), (1, 0), (0, 1)]);
    w.values("values", s, &[0, 0, 1]);
}

fn rule_37_counts_move_with_the_blocker(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[0, 0, 1]);
    w.sleeps(&a, s, &[dec(0, 1), dec(1, 1), zero(2)]);
    w.counts("on [0]", s, &[(1, 0), (0, 0), (0, 0)]);
    w.check("release [0]", b.op(s, &[inc(0, 1)]), DONE);
    w.counts("on [1]", s, &[(0, 0), (1, 0), (0, 0)]);
    w.check("release [1]", b.op(s, &[inc(1, 1)]), DONE);
    w.counts("on [2]", s, &[(0, 0), (0, 0), (0, 1)]);
    w.check("take [0]", b.op(s, &[dec(0, 1).nowait()]), DONE);
    w.counts("on [0] again", s, &[(1, 0), (0, 0), (0, 0)]);
    w.check("release all", b.op(s, &[inc(0, 1), dec(2, 1)]), DONE);
    w.returns(&a, DONE);
    w.counts("nobody waits", s, &[(0, 0), (0, 0), (0, 0)]);
}

fn rule_37_counts_of_mixed_operations(w: &World) {
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let s = w.set_of(&d, &[1]);
    w.sleeps(&a, s, &[dec(0, 2)]);
    w.sleeps(&b, s, &[zero(0)]);
    w.sleeps(&c, s, &[dec(0, 1), zero(0), dec(0, 1)]);
    w.counts("C on its third", s, &[(2, 1)]);
    w.check("release", d.op(s, &[inc(0, 3)]), DONE);
    w.returns(&a, DONE);
    w.counts("C on its second", s, &[(0, 2)]);
    w.values("value", s, &[2]);
}

fn rule_37_counts_of_zero_only_calls(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[2, 0, 0]);
    w.sleeps(&a, s, &[zero(1), zero(0)]);
    w.counts("on [0]", s, &[(0, 1), (0, 0), (0, 0)]);
    w.check("release [1]: it is not looked at again", b.op(s, &[inc(1, 1)]), DONE);
    w.counts("on [0] still", s, &[(0, 1), (0, 0), (0, 0)]);
    w.check("SETVAL, while [2] is 0", b.setval(s, 1, 1), DONE);
    w.counts("on [1]", s, &[(0, 0), (0, 1), (0, 0)]);
    w.check("take [1]", b.op(s, &[dec(1, 1)]), DONE);
    w.counts("on [0] again", s, &[(0, 1), (0, 0), (0, 0)]);
    w.check("SETVAL, and nothing is 0", b.set_all(s, &[1, 1, 1]), DONE);
    w.counts("on [0] still", s, &[(0, 1), (0, 0), (0, 0)]);
}

/// On Manyway such a call is not looked at for a semaphore that it does not name.
fn rule_37_zero_of_another_semaphore(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&b, &[2, 0, 1]);
    w.sleeps(&a, s, &[zero(1), zero(0)]);
    w.check("release [1]", b.op(s, &[inc(1, 1)]), DONE);
    w.counts("on [0]", s, &[(0, 1), (0, 0), (0, 0)]);
    w.check("[2] becomes 0", b.op(s, &[dec(2, 1)]), DONE);
    let moved = w.is_kernel() as i32;
    w.counts("after it", s, &[(0, 1 - moved), (0, moved), (0, 0)]);
}

fn rule_56_setval_wakes(w: &World) {
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let s = w.set_of(&d, &[1, 0]);
    w.sleeps(&a, s, &[dec(0, 3)]);
    w.sleeps(&b, s, &[zero(0)]);
    w.sleeps(&c, s, &[dec(0, 1), dec(1, 1)]);
    w.check("SETVAL 0", d.setval(s, 0, 0), DONE);
    w.returns(&b, DONE);
    w.check("SETVAL 4", d.setval(s, 0, 4), DONE);
    w.returns(&a, DONE);
    w.asleep(&[&c]);
    w.check("SETVAL of the other", d.setval(s, 1, 1), DONE);
    w.returns(&c, DONE);
    w.values("after all", s, &[0, 0]);
}

fn rule_57_a_sleeper_that_leaves_unblocks_nobody(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[1, 0]);
    a.handle(libc::SIGUSR1, false);
    w.sleeps(&a, s, &[dec(0, 1), dec(1, 1)]);
    w.sleeps(&b, s, &[dec(0, 2)]);
    a.signal(libc::SIGUSR1);
    w.returns(&a, EINTR);
    w.asleep(&[&b]);
    w.values("unchanged", s, &[1, 0]);
    w.check("release", c.op(s, &[inc(0, 1)]), DONE);
    w.returns(&b, DONE);
}

fn rule_58_zero_sleepers_all_wake(w: &World) {
    let agents = w.workers(["A", "B", "C", "D", "E"]);
    let [a, b, c, d, e] = &agents;
    let s = w.set_of(e, &[2, 1]);
    w.sleeps(a, s, &[zero(0)]);
    w.sleeps(b, s, &[zero(0), zero(0)]);
    w.sleeps(c, s, &[zero(0), zero(1)]);
    w.sleeps(d, s, &[zero(0)]);
    w.check("take one", e.op(s, &[dec(0, 1)]), DONE);
    w.asleep(&[a, b, c, d]);
    w.check("take the other", e.op(s, &[dec(0, 1)]), DONE);
    for x in [a, b, d] {
        w.returns(x, DONE);
    }
    w.asleep(&[c]);
    w.check("take the last", e.op(s, &[dec(1, 1)]), DONE);
    w.returns(c, DONE);
}

fn rule_59_threads_are_sleepers_of_their_own(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let t = w.clone(&a, crate::protocol::Clone::Thread, "A's thread");
    let s = w.set_of(&b, &[0]);
    w.sleeps(&t, s, &[dec(0, 1)]);
    w.sleeps(&a, s, &[dec(0, 1)]);
    w.counts("two wait", s, &[(2, 0)]);
    w.check("release", b.op(s, &[inc(0, 1)]), DONE);
    w.returns(&t, DONE);
    w.asleep(&[&a]);
    w.check("release", t.op(s, &[inc(0, 1)]), DONE);
    w.returns(&a, DONE);
}
