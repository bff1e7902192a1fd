//! Rules 39–41 and 43–45: pids, times and status.

use manyway_sem::abi::{GETVAL, IPC_CREAT, SETVAL};

use super::{DONE, EAGAIN, EINTR, EINVAL, Scenario, scenario, until};
use crate::agent::Agent;
use crate::protocol::{Clone, Command, Out, dec, inc, zero};
use crate::world::{Set, World};

pub const ALL: &[Scenario] = &[
    scenario("rule_39_pid_of_every_listed_operation", rule_39_pid_of_every_listed_operation),
    scenario("rule_39_pid_of_a_sleeper", rule_39_pid_of_a_sleeper).strict(),
    scenario("rule_39_pid_of_setters", rule_39_pid_of_setters).strict(),
    scenario("rule_39_pid_of_a_thread", rule_39_pid_of_a_thread),
    scenario("rule_39_failed_calls_leave_the_pid", rule_39_failed_calls_leave_the_pid),
    scenario("rule_40_otime_of_operations", rule_40_otime_of_operations),
    scenario("rule_40_otime_of_setters", rule_40_otime_of_setters),
    scenario("rule_41_ctime", rule_41_ctime),
    scenario("rule_43_status_by_index", rule_43_status_by_index),
    scenario("rule_43_status_by_index_of_free_slots", rule_43_status_by_index_of_free_slots).limits([100, 1000, 100, 200]),
    scenario("rule_43_info", rule_43_info).limits([100, 1000, 100, 200]),
    scenario("rule_44_proc_sysvipc_sem", rule_44_proc_sysvipc_sem).c_only().limits([100, 1000, 100, 200]),
    scenario("rule_44_proc_sys_kernel_sem", rule_44_proc_sys_kernel_sem).c_only().limits([101, 1002, 103, 204]),
    scenario("rule_45_ipc_64", rule_45_ipc_64).c_only(),
    scenario("rule_63_status_changes_nothing", rule_63_status_changes_nothing),
];

fn last(w: &World, s: Set) -> Vec<String> {
    w.snapshot(s).sems.iter().map(|x| w.who(i64::from(x[1]))).collect()
}
fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

fn rule_39_pid_of_every_listed_operation(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 4);
    w.check("at first", last(w, s), names(&["nobody"; 4]));
    w.check("a simple one", a.op(s, &[inc(1, 1)]), DONE);
    w.check("that one only", last(w, s), names(&["nobody", "A", "nobody", "nobody"]));
    w.check("with zero operations", b.op(s, &[zero(0), dec(1, 1), zero(3)]), DONE);
    w.check("of all listed", last(w, s), names(&["B", "B", "nobody", "B"]));
    w.check("zero only", a.op(s, &[zero(3)]), DONE);
    w.check("too", last(w, s), names(&["B", "B", "nobody", "A"]));
    w.check("as read", w.who(b.getpid(s, 3).unwrap_or(-1)), "A".to_owned());
}

fn rule_39_pid_of_a_sleeper(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    let s = w.set_of(&c, &[0, 1, 1]);
    w.sleeps(&a, s, &[dec(0, 1)]);
    w.sleeps(&b, s, &[zero(1), zero(2)]);
    w.check("release", c.op(s, &[inc(0, 1)]), DONE);
    w.check("the sleeper", last(w, s), names(&["A", "C", "C"]));
    w.check("take both", c.op(s, &[dec(1, 1), dec(2, 1)]), DONE);
    w.check("the zero-sleeper", last(w, s), names(&["A", "B", "B"]));
    w.returns(&a, DONE);
    w.returns(&b, DONE);
}

fn rule_39_pid_of_setters(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 3);
    w.check("SETVAL", a.setval(s, 1, 1), DONE);
    w.check("of one", last(w, s), names(&["nobody", "A", "nobody"]));
    w.check("SETALL", b.set_all(s, &[0, 0, 1]), DONE);
    w.check("of all", last(w, s), names(&["B"; 3]));
    w.sleeps(&a, s, &[dec(0, 1)]);
    w.check("SETVAL", b.setval(s, 0, 3), DONE);
    w.check("the sleeper it completes", last(w, s), names(&["A", "B", "B"]));
    w.returns(&a, DONE);
}

fn rule_39_pid_of_a_thread(w: &World) {
    let [a] = w.workers(["A"]);
    let t = w.clone(&a, Clone::Thread, "A's thread");
    let s = w.set(&a, 2);
    w.check("by the thread", t.op(s, &[inc(0, 1)]), DONE);
    w.check("SETVAL by the thread", t.setval(s, 1, 1), DONE);
    w.check("the process", last(w, s), names(&["A", "A"]));
}

fn rule_39_failed_calls_leave_the_pid(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 2);
    b.handle(libc::SIGUSR1, false);
    w.check("A", a.op(s, &[inc(0, 1), zero(1)]), DONE);
    w.check("would block", b.op(s, &[dec(0, 1), dec(1, 1).nowait()]), EAGAIN);
    w.sleeps(&b, s, &[dec(0, 1), dec(1, 1)]);
    b.signal(libc::SIGUSR1);
    w.returns(&b, EINTR);
    w.check("times out", b.timed_op(s, &[zero(1), dec(0, 2)], (0, 1_000_000)).res(), EAGAIN);
    w.check("A still", last(w, s), names(&["A", "A"]));
}

/// Does something in a later second than all before; true when the set's sem_otime, and when its sem_ctime, moved with it.
fn moves(a: &Agent, s: Set, act: impl FnOnce()) -> (bool, bool) {
    let before = a.stat(s).expect("own set");
    let latest = before.otime.max(before.ctime).max(a.now());
    until("the next second", || a.now() > latest);
    act();
    let after = a.stat(s).expect("own set");
    (after.otime > latest, after.ctime > latest)
}

fn rule_40_otime_of_operations(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set_of(&a, &[0, 1]);
    w.check("0 until then", a.stat(s).map(|x| x.otime), Ok(0));
    w.check("failed", a.op(s, &[dec(0, 1).nowait()]), EAGAIN);
    w.check("0 still", a.stat(s).map(|x| x.otime), Ok(0));
    w.check("zero operation", moves(&a, s, || assert_eq!(a.op(s, &[zero(0)]), DONE)), (true, false));
    w.check("release", moves(&a, s, || assert_eq!(a.op(s, &[inc(1, 1)]), DONE)), (true, false));
    w.check("the other semaphore", moves(&a, s, || assert_eq!(a.op(s, &[inc(0, 2), dec(0, 1)]), DONE)), (true, false));
    w.check("failed", moves(&a, s, || assert_eq!(a.op(s, &[dec(0, 2).nowait()]), EAGAIN)), (false, false));
    w.sleeps(&b, s, &[dec(0, 5)]);
    w.check("a sleeper is completed", moves(&a, s, || assert_eq!(a.op(s, &[inc(0, 4)]), DONE)), (true, false));
    w.returns(&b, DONE);
}

fn rule_40_otime_of_setters(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 2);
    w.check("SETVAL", a.setval(s, 0, 1), DONE);
    w.check("SETALL", a.set_all(s, &[1, 0]), DONE);
    w.check("0 until then", a.stat(s).map(|x| x.otime), Ok(0));
    w.sleeps(&b, s, &[dec(1, 1)]);
    w.check("0 while it sleeps", a.stat(s).map(|x| x.otime), Ok(0));
    w.check("SETVAL that completes it", a.setval(s, 1, 1), DONE);
    w.returns(&b, DONE);
    w.check("not 0", a.stat(s).is_ok_and(|x| x.otime > 0), true);
    let t = w.set_of(&a, &[1]);
    w.sleeps(&b, t, &[zero(0)]);
    w.check("SETALL that completes a zero-sleeper", a.set_all(t, &[0]), DONE);
    w.returns(&b, DONE);
    w.check("not 0", a.stat(t).is_ok_and(|x| x.otime > 0), true);
}

fn rule_41_ctime(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 2);
    let (uid, gid) = w.user();
    w.check("SETVAL", moves(&a, s, || assert_eq!(a.setval(s, 0, 5), DONE)), (false, true));
    w.check("SETALL", moves(&a, s, || assert_eq!(a.set_all(s, &[5, 5]), DONE)), (false, true));
    w.check("IPC_SET", moves(&a, s, || assert_eq!(a.set_perm(s, uid, gid, 0o600), DONE)), (false, true));
    w.check("semop", moves(&a, s, || assert_eq!(a.op(s, &[dec(0, 1)]), DONE)), (true, false));
    w.check("looking", moves(&a, s, || assert_eq!(a.get_all(s), Ok(vec![4, 5]))), (false, false));
}

fn rule_43_status_by_index(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.keyed_set(&a, w.key(), 3);
    w.check("an operation", a.op(s, &[inc(0, 1)]), DONE);
    let whole = a.stat(s).expect("own set");
    for any in [false, true] {
        let by = |index| a.stat_by(Command::StatIndex { index, any });
        w.check("by index", by(s.id & 0x7fff) == Ok((i64::from(s.id), whole.clone())), true);
        w.check("by id", by(s.id).map(|x| x.0) == Ok(i64::from(s.id)), true);
        w.check("by a stale id", by(s.id ^ (1 << 15)).map(|x| x.0) == Ok(i64::from(s.id)), true);
    }
    w.check("removed", a.remove(s), DONE);
    w.check("IPC_STAT", a.stat(s).map(|_| 0), EINVAL);
}

fn rule_43_status_by_index_of_free_slots(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 1);
    for any in [false, true] {
        let by = |index| a.stat_by(Command::StatIndex { index, any }).map(|x| x.0);
        w.check("free", by((s.id & 0x7fff) + 1), EINVAL);
        w.check("beyond the table", by(0x7fff), EINVAL);
        w.check("negative", by(-1), EINVAL);
    }
}

fn rule_43_info(w: &World) {
    let [a] = w.workers(["A"]);
    let (highest, info) = a.info(false);
    w.check("limits", (info.msl, info.mns, info.opm, info.mni), (100, 1000, 100, 200));
    w.check("no set: 0", highest, 0);
    w.check(
        "nothing used",
        {
            let (h, i) = a.info(true);
            (h, i.sets, i.sems)
        },
        (0, 0, 0),
    );
    let sets = [3, 5, 7, 9].map(|n| w.set(&a, n));
    let index = |s: Set| i64::from(s.id & 0x7fff);
    let used = |sets, sems, of: Set| {
        (a.info(true).0 == index(of), a.info(false).0 == index(of), a.info(true).1.sets == sets, a.info(true).1.sems == sems)
    };
    w.check("four sets", used(4, 24, sets[3]), (true, true, true, true));
    w.check("one of the middle goes", a.remove(sets[1]), DONE);
    w.check("three sets", used(3, 19, sets[3]), (true, true, true, true));
    w.check("the last goes", a.remove(sets[3]), DONE);
    w.check("two sets", used(2, 10, sets[2]), (true, true, true, true));
}

fn read(a: &Agent, path: &str) -> String {
    match a.call(Command::Read { path: path.to_owned() }).out {
        Out::Text(text) => text,
        other => panic!("{path}: {other:?}"),
    }
}

/// On Manyway the file is the kernel's: it does not list Manyway's sets.
fn rule_44_proc_sysvipc_sem(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.keyed_set(&a, -5, 3);
    let t = w.keyed_set(&a, w.key(), 12);
    let (uid, gid) = w.user();
    w.check("mode", a.set_perm(t, uid, gid, 0o7), DONE);
    w.check("an operation", a.op(t, &[inc(0, 1)]), DONE);
    let text = read(&a, "/proc/sysvipc/sem");
    let line = |set: Set| {
        let x = a.stat(set).expect("own set");
        let (key, id, mode, n, o, c) = (x.key, set.id, x.mode, x.nsems, x.otime, x.ctime);
        format!("{key:10} {id:10}  {mode:4o} {n:10} {:5} {:5} {:5} {:5} {o:10} {c:10}", x.uid, x.gid, x.cuid, x.cgid)
    };
    let head = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime";
    let lines: Vec<&str> = text.lines().collect();
    w.check("head and a line a set", lines.len(), 3);
    w.check("head", lines[0], head);
    w.check("lines", (lines[1] == line(s), lines[2] == line(t)), (true, true));
    w.check("the file ends with a line's end", text.ends_with('\n'), true);
}

fn rule_44_proc_sys_kernel_sem(w: &World) {
    let [a] = w.workers(["A"]);
    let limits = read(&a, "/proc/sys/kernel/sem") == "101\t1002\t103\t204\n";
    w.check("limits", limits, true);
    let (_, info) = a.info(false);
    w.check("limits by IPC_INFO", (info.msl, info.mns, info.opm, info.mni), (101, 1002, 103, 204));
}

fn rule_45_ipc_64(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 1);
    w.check("SETVAL | IPC_64", a.call(Command::RawCtl { id: s.id, num: 0, cmd: SETVAL | 0x100, arg: crate::Pointer::Null }).res(), EINVAL);
    w.check("GETVAL | IPC_64", a.ctl(s.id, 0, GETVAL | 0x100, 0), EINVAL);
    w.check("GETVAL", a.ctl(s.id, 0, GETVAL, 0), DONE);
}

fn rule_63_status_changes_nothing(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let id = a.get(w.key(), 2, IPC_CREAT | 0o600).expect("a set") as i32;
    w.remember(id);
    let s = Set { id, n: 2 };
    w.check("set", a.set_all(s, &[3, 4]), DONE);
    let before = (a.stat(s), w.snapshot(s));
    for n in 0..2 {
        let _ = (b.getval(s, n), b.getpid(s, n), b.getncnt(s, n), b.getzcnt(s, n));
    }
    let _ = (b.get_all(s), b.stat(s), b.stat_by(Command::StatIndex { index: id & 0x7fff, any: false }), b.info(true));
    w.check("same status", (a.stat(s), w.snapshot(s)) == before, true);
}
