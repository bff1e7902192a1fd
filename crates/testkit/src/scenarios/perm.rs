//! Rules 19–22: permissions. Workers become several users, or are the ordinary owner of a set that denies itself.

use super::{DONE, EACCES, EAGAIN, EINVAL, EPERM, Scenario, scenario};
use crate::agent::Agent;
use crate::protocol::{Command, dec, inc, zero};
use crate::world::{Set, World};

pub const ALL: &[Scenario] = &[
    scenario("rule_19_write_for_any_change", rule_19_write_for_any_change).root(),
    scenario("rule_20_owner_bits", rule_20_owner_bits).root(),
    scenario("rule_20_group_bits", rule_20_group_bits).root(),
    scenario("rule_20_privilege_overrides", rule_20_privilege_overrides),
    scenario("rule_21_who_may_change_and_remove", rule_21_who_may_change_and_remove).root(),
    scenario("rule_22_what_ipc_set_writes", rule_22_what_ipc_set_writes),
    scenario("rule_51_permission_of_commands", rule_51_permission_of_commands).root(),
    scenario("rule_52_permission_is_checked_once", rule_52_permission_is_checked_once).root(),
    scenario("rule_53_users_change", rule_53_users_change).root(),
];

const ALICE: u32 = 1001;
const BOB: u32 = 1002;
const CAROL: u32 = 1003;
const STAFF: u32 = 2001;

/// Three users' workers: ALICE owns what she makes.
fn users(w: &World) -> [Agent; 3] {
    let [a, b, c] = w.workers(["alice", "bob", "carol"]);
    a.become_user(ALICE, ALICE, &[]);
    b.become_user(BOB, BOB, &[STAFF]);
    c.become_user(CAROL, CAROL, &[]);
    [a, b, c]
}

/// What one may do: alter, wait for zero.
fn access(a: &Agent, s: Set) -> (bool, bool) {
    // At value 0 a wait for zero proceeds, and what may not proceed does not change anything.
    (a.op(s, &[dec(0, 1).nowait()]) == EAGAIN, a.op(s, &[zero(0)]) == DONE)
}

fn rule_19_write_for_any_change(w: &World) {
    let [a, b, _] = users(w);
    let s = w.set(&a, 2);
    for (mode, write, read) in [(0o600, false, false), (0o602, true, false), (0o604, false, true), (0o606, true, true)] {
        w.check(&format!("mode {mode:o}"), a.set_perm(s, ALICE, ALICE, mode), DONE);
        w.check("zero only", b.op(s, &[zero(0), zero(1)]), if read { DONE } else { EACCES });
        let change = if write { DONE } else { EACCES };
        w.check("release", b.op(s, &[inc(0, 1)]), change);
        w.check("take with a zero one first", b.op(s, &[zero(1), dec(0, 1)]), change);
        w.check("zero one, then release and take", b.op(s, &[zero(1), inc(1, 1), dec(1, 1)]), change);
    }
}

fn rule_20_owner_bits(w: &World) {
    let [a, b, c] = users(w);
    let s = w.set(&a, 1);
    w.check("owner's bits are empty, others' full", a.set_perm(s, ALICE, ALICE, 0o066), DONE);
    w.check("the owner", access(&a, s), (false, false));
    w.check("another", access(&b, s), (true, true));
    w.check("given to bob", a.set_perm(s, BOB, BOB, 0o066), DONE);
    w.check("the creator", access(&a, s), (false, false));
    w.check("the owner", access(&b, s), (false, false));
    w.check("another", access(&c, s), (true, true));
    w.check("owner's bits only", a.set_perm(s, BOB, BOB, 0o600), DONE);
    w.check("the creator", access(&a, s), (true, true));
    w.check("the owner", access(&b, s), (true, true));
    w.check("another", access(&c, s), (false, false));
}

fn rule_20_group_bits(w: &World) {
    let [a, b, c] = users(w);
    let s = w.set(&a, 1);
    w.check("group staff may alter", a.set_perm(s, ALICE, STAFF, 0o620), DONE);
    w.check("bob by his supplementary group", access(&b, s), (true, false));
    w.check("carol", access(&c, s), (false, false));
    w.check("the group's bits are empty, others' full", a.set_perm(s, ALICE, STAFF, 0o606), DONE);
    w.check("bob", access(&b, s), (false, false));
    w.check("carol", access(&c, s), (true, true));
    let d = w.worker("dave");
    d.become_user(1004, ALICE, &[]);
    w.check("dave by the creator's group", access(&d, s), (false, false));
    w.check("the group may wait for zero", a.set_perm(s, ALICE, STAFF, 0o640), DONE);
    w.check("dave", access(&d, s), (false, true));
}

fn rule_20_privilege_overrides(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 1);
    let (uid, gid) = w.user();
    w.check("nobody may", a.set_perm(s, uid, gid, 0), DONE);
    let free = w.privileged();
    w.note("privileged", &free);
    w.check("its owner", access(&a, s), (free, free));
    let allowed = if free { DONE } else { EACCES };
    w.check("SETVAL", a.setval(s, 0, 0), allowed);
    w.check("GETVAL", a.getval(s, 0), allowed);
    w.check("IPC_STAT", a.stat(s).is_ok(), free);
    w.check("owners may change it back", a.set_perm(s, uid, gid, 0o600), DONE);
    w.check("its owner", access(&a, s), (true, true));
}

fn rule_21_who_may_change_and_remove(w: &World) {
    let [a, b, c] = users(w);
    let root = w.worker("root");
    let s = w.set(&a, 1);
    w.check("anybody may use it", a.set_perm(s, BOB, BOB, 0o666), DONE);
    w.check("carol changes it", c.set_perm(s, CAROL, CAROL, 0o666), EPERM);
    w.check("carol removes it", c.remove(s), EPERM);
    w.check("the owner may", b.set_perm(s, BOB, STAFF, 0o666), DONE);
    w.check("the creator may", a.set_perm(s, BOB, BOB, 0), DONE);
    w.check("without any mode bit", b.set_perm(s, BOB, BOB, 0o400), DONE);
    w.check("the owner gives it away", b.set_perm(s, CAROL, CAROL, 0o600), DONE);
    w.check("and may no more", b.remove(s), EPERM);
    w.check("the new owner removes it", c.remove(s), DONE);
    let s = w.set(&a, 1);
    w.check("the creator of what is another's", a.set_perm(s, BOB, BOB, 0), DONE);
    w.check("removes it", a.remove(s), DONE);
    let s = w.set(&a, 1);
    w.check("root changes it", root.set_perm(s, CAROL, CAROL, 0o600), DONE);
    w.check("root removes it", root.remove(s), DONE);
}

fn rule_22_what_ipc_set_writes(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.keyed_set(&a, w.key(), 3);
    let (uid, gid) = w.user();
    let before = a.stat(s).expect("own set");
    w.check("all bits of a mode", a.set_perm(s, uid, gid + 1, 0o7777), DONE);
    let after = a.stat(s).expect("own set");
    w.check("the low nine bits", after.mode, 0o777);
    w.check("group", after.gid == gid + 1, true);
    w.check("creator", (after.cuid, after.cgid) == (before.cuid, before.cgid), true);
    w.check("the rest", (after.key == before.key, after.nsems, after.otime), (true, 3, 0));
    w.check("the owner's id −1", a.set_perm(s, u32::MAX, gid, 0o600), EINVAL);
    w.check("the group's id −1", a.set_perm(s, uid, u32::MAX, 0o600), EINVAL);
    w.check("unchanged", a.stat(s).map(|x| x.mode), Ok(0o777));
}

fn rule_51_permission_of_commands(w: &World) {
    let [a, b, _] = users(w);
    let s = w.keyed_set(&a, w.key(), 1);
    for mode in [0o600, 0o602, 0o604] {
        w.check(&format!("mode {mode:o}"), a.set_perm(s, ALICE, ALICE, mode), DONE);
        let read = if mode == 0o604 { DONE } else { EACCES };
        let write = if mode == 0o602 { DONE } else { EACCES };
        let num = |r: crate::Res| r.map(|_| 0);
        w.check("GETVAL", num(b.getval(s, 0)), read);
        w.check("GETPID", num(b.getpid(s, 0)), read);
        w.check("GETNCNT", num(b.getncnt(s, 0)), read);
        w.check("GETZCNT", num(b.getzcnt(s, 0)), read);
        w.check("GETALL", b.get_all(s).map(|_| 0), read);
        w.check("IPC_STAT", b.stat(s).map(|_| 0), read);
        w.check("SEM_STAT", b.stat_by(Command::StatIndex { index: s.id & 0x7fff, any: false }).map(|_| 0), read);
        w.check("SEM_STAT_ANY", b.stat_by(Command::StatIndex { index: s.id & 0x7fff, any: true }).map(|_| 0), DONE);
        w.check("SETVAL", b.setval(s, 0, 0), write);
        w.check("SETALL", b.set_all(s, &[0]), write);
        w.check("semget for nothing", b.get(w.key(), 1, 0).map(|_| 0), DONE);
        w.check("semget for reading", b.get(w.key(), 1, 0o444).map(|_| 0), read);
        w.check("semget for altering", b.get(w.key(), 1, 0o222).map(|_| 0), write);
        w.check("semget for both", b.get(w.key(), 1, 0o666).map(|_| 0), EACCES);
        // Any class's bit asks: the caller's own class answers.
        w.check("semget with the owner's bit", b.get(w.key(), 1, 0o400).map(|_| 0), read);
    }
}

fn rule_52_permission_is_checked_once(w: &World) {
    let [a, b, _] = users(w);
    let s = w.set(&a, 1);
    w.check("open to all", a.set_perm(s, ALICE, ALICE, 0o666), DONE);
    w.sleeps(&b, s, &[dec(0, 1)]);
    w.check("closed", a.set_perm(s, ALICE, ALICE, 0o600), DONE);
    w.asleep(&[&b]);
    w.check("release", a.op(s, &[inc(0, 1)]), DONE);
    w.returns(&b, DONE);
    w.check("not again", b.op(s, &[dec(0, 1)]), EACCES);
}

fn rule_53_users_change(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 1);
    w.check("root", access(&b, s), (true, true));
    b.become_user(BOB, BOB, &[]);
    w.check("bob", access(&b, s), (false, false));
    w.check("given to bob", a.set_perm(s, BOB, BOB, 0o600), DONE);
    w.check("at once", access(&b, s), (true, true));
    w.check("he", b.remove(s), DONE);
    let t = w.set(&b, 1);
    let stat = b.stat(t).expect("own set");
    w.check("what he makes is his", (stat.uid, stat.gid, stat.cuid, stat.cgid), (BOB, BOB, BOB, BOB));
}
