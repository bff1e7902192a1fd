//! Rules 23–28 and 42: semget, identifiers, removal, and the checks of semctl.

use manyway_sem::abi::{GETALL, GETNCNT, GETPID, GETVAL, GETZCNT, IPC_CREAT, IPC_EXCL, IPC_RMID, IPC_SET, IPC_STAT, SETALL, SETVAL};

use super::{DONE, EACCES, EEXIST, EFAULT, EIDRM, EINVAL, ENOENT, ENOSPC, ERANGE, Scenario, scenario};
use crate::protocol::{Command, Pointer, dec, inc, zero};
use crate::world::{Set, World};

pub const ALL: &[Scenario] = &[
    scenario("rule_23_semget_of_an_existing_key", rule_23_semget_of_an_existing_key),
    scenario("rule_23_semget_permission_comes_last", rule_23_semget_permission_comes_last).root(),
    scenario("rule_24_number_of_semaphores", rule_24_number_of_semaphores),
    scenario("rule_24_limits", rule_24_limits).limits([10, 25, 5, 4]),
    scenario("rule_25_private_always_creates", rule_25_private_always_creates),
    scenario("rule_26_ids_do_not_come_back_soon", rule_26_ids_do_not_come_back_soon),
    scenario("rule_26_parts_of_an_id", rule_26_parts_of_an_id).limits([100, 1000, 100, 200]),
    scenario("rule_27_removal_wakes_all", rule_27_removal_wakes_all),
    scenario("rule_28_a_new_set_under_an_old_key", rule_28_a_new_set_under_an_old_key),
    scenario("rule_28_removal_under_use", rule_28_removal_under_use),
    scenario("rule_42_order_of_semctl_checks", rule_42_order_of_semctl_checks),
    scenario("rule_42_semctl_without_permission", rule_42_semctl_without_permission).root(),
    scenario("rule_42_setall", rule_42_setall),
    scenario("rule_42_bad_pointers", rule_42_bad_pointers).c_only(),
    scenario("rule_42_unknown_commands", rule_42_unknown_commands).c_only(),
    scenario("rule_54_a_new_set", rule_54_a_new_set),
    scenario("rule_55_keys_are_whole", rule_55_keys_are_whole),
];

fn rule_23_semget_of_an_existing_key(w: &World) {
    let key = w.key();
    let [a] = w.workers(["A"]);
    w.check("no such key", a.get(key, 3, 0o600), ENOENT);
    w.check("IPC_EXCL alone", a.get(key, 3, IPC_EXCL | 0o600), ENOENT);
    let s = w.keyed_set(&a, key, 3);
    let found = Ok(i64::from(s.id));
    w.check("same number", a.get(key, 3, 0o600) == found, true);
    w.check("fewer", a.get(key, 1, 0) == found, true);
    w.check("0", a.get(key, 0, 0) == found, true);
    w.check("more", a.get(key, 4, 0), EINVAL);
    w.check("IPC_CREAT", a.get(key, 3, IPC_CREAT | 0o600) == found, true);
    w.check("IPC_CREAT with 0", a.get(key, 0, IPC_CREAT | 0o600) == found, true);
    w.check("IPC_EXCL alone", a.get(key, 3, IPC_EXCL | 0o600) == found, true);
    w.check("both", a.get(key, 3, IPC_CREAT | IPC_EXCL | 0o600), EEXIST);
    w.check("both, and more", a.get(key, 4, IPC_CREAT | IPC_EXCL | 0o600), EEXIST);
    w.check("removed", a.remove(s), DONE);
    w.check("no such key", a.get(key, 0, 0), ENOENT);
    w.check("0 on creation", a.get(key, 0, IPC_CREAT | 0o600), EINVAL);
}

fn rule_23_semget_permission_comes_last(w: &World) {
    let key = w.key();
    let [a, b] = w.workers(["A", "B"]);
    let s = w.keyed_set(&a, key, 3);
    b.become_user(1001, 1001, &[]);
    w.check("both", b.get(key, 4, IPC_CREAT | IPC_EXCL | 0o600), EEXIST);
    w.check("more", b.get(key, 4, 0o600), EINVAL);
    w.check("permission", b.get(key, 3, 0o600), EACCES);
    w.check("permission, with IPC_CREAT", b.get(key, 3, IPC_CREAT | 0o600), EACCES);
    w.check("asking for nothing", b.get(key, 3, IPC_CREAT) == Ok(i64::from(s.id)), true);
}

fn rule_24_number_of_semaphores(w: &World) {
    let key = w.key();
    let [a] = w.workers(["A"]);
    let s = w.keyed_set(&a, key, 1);
    w.check("negative, the key exists", a.get(key, -1, 0), EINVAL);
    w.check("above SEMMSL, the key exists", a.get(key, 32_001, IPC_CREAT | IPC_EXCL), EINVAL);
    w.check("negative", a.get(0, -1, 0o600), EINVAL);
    w.check("0", a.get(0, 0, 0o600), EINVAL);
    w.check("above SEMMSL", a.get(0, 32_001, 0o600), EINVAL);
    w.check("above SEMMSL, no such key", a.get(key ^ 1, 32_001, 0), EINVAL);
    let largest = w.set(&a, 32_000);
    w.check("the last one", a.op(Set { id: largest.id, n: 1 }, &[inc(31_999, 7)]), DONE);
    w.check("its value", a.getval(largest, 31_999), Ok(7));
    w.check("the one after it", a.op(largest, &[inc(32_000, 1)]), super::EFBIG);
    w.check("remove", (a.remove(largest), a.remove(s)), (DONE, DONE));
}

fn rule_24_limits(w: &World) {
    let key = w.key();
    let [a] = w.workers(["A"]);
    w.check("above SEMMSL", a.get(0, 11, 0o600), EINVAL);
    let two = [w.set(&a, 10), w.set(&a, 10)];
    w.check("above SEMMNS", a.get(0, 6, 0o600), ENOSPC);
    let _third = w.set(&a, 4);
    let fourth = w.set(&a, 1);
    w.check("SEMMNS and SEMMNI reached", a.get(key, 1, IPC_CREAT | 0o600), ENOSPC);
    w.check("no set was made", a.get(key, 0, 0), ENOENT);
    w.check("remove the large", a.remove(two[0]), DONE);
    let _again = w.set(&a, 1);
    w.check("above SEMMNI", a.get(0, 1, 0o600), ENOSPC);
    w.check("remove a small one", a.remove(fourth), DONE);
    w.check("room again", a.get(0, 10, 0o600).is_ok(), true);
    w.check("above SEMOPM", a.op(two[1], &[zero(0); 6]), super::E2BIG);
    w.check("SEMOPM", a.op(two[1], &[zero(0); 5]), DONE);
}

fn rule_25_private_always_creates(w: &World) {
    let [a] = w.workers(["A"]);
    let mut ids: Vec<_> = [0o600, IPC_CREAT | 0o600, IPC_EXCL | 0o600, IPC_CREAT | IPC_EXCL | 0o600]
        .iter()
        .map(|flags| {
            let id = a.get(0, 1, *flags).expect("a private set") as i32;
            w.remember(id);
            id
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    w.check("four sets", ids.len(), 4);
    w.check("of mode 0", a.get(0, 1, 0).map(|id| w.remember(id as i32)).is_ok(), true);
}

fn rule_26_ids_do_not_come_back_soon(w: &World) {
    let [a] = w.workers(["A"]);
    let mut ids = Vec::new();
    for _ in 0..200 {
        let s = w.set(&a, 1);
        ids.push(s.id);
        assert_eq!(a.remove(s), DONE);
    }
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    w.check("all differ", ids.len() == all, true);
    w.check("none is negative", ids[0] >= 0, true);
}

fn rule_26_parts_of_an_id(w: &World) {
    let [a] = w.workers(["A"]);
    let kept = w.set(&a, 1);
    let index = |id: i32| id & 0x7fff;
    let mut last = kept.id;
    let (mut steps, mut turns) = (0, 0);
    for _ in 0..300 {
        let s = w.set(&a, 1);
        match index(s.id) - index(last) {
            1 => steps += 1,
            _ if index(s.id) < index(last) => turns += 1,
            _ => {}
        }
        w.remember(s.id);
        last = s.id;
        assert_eq!(a.remove(s), DONE);
    }
    w.check("the index goes up by one", steps > 290, true);
    w.check("and begins again", turns >= 1, true);
    w.check("a set keeps its index", a.stat(kept).is_ok(), true);
    let wrong = Set { id: kept.id ^ (1 << 15), n: 1 };
    w.check("another sequence number", a.op(wrong, &[inc(0, 1)]), EINVAL);
    w.check("in semctl too", a.getval(wrong, 0), EINVAL);
}

fn rule_27_removal_wakes_all(w: &World) {
    let [a, b, c, d, e] = w.workers(["A", "B", "C", "D", "E"]);
    let s = w.set_of(&a, &[1, 0]);
    w.sleeps(&a, s, &[dec(1, 1)]);
    w.sleeps(&b, s, &[zero(0)]);
    w.sleeps(&c, s, &[dec(0, 1), dec(1, 1)]);
    w.sleeps(&d, s, &[zero(0), zero(1)]);
    w.check("remove", e.remove(s), DONE);
    for sleeper in [&a, &b, &c, &d] {
        w.returns(sleeper, EIDRM);
    }
    w.check("semop", a.op(s, &[inc(0, 1)]), EINVAL);
    w.check("GETVAL", a.getval(s, 0), EINVAL);
    w.check("IPC_STAT", a.stat(s).map(|_| 0), EINVAL);
    w.check("removed again", a.remove(s), EINVAL);
}

fn rule_28_a_new_set_under_an_old_key(w: &World) {
    let key = w.key();
    let [a, b] = w.workers(["A", "B"]);
    let s = w.keyed_set(&a, key, 1);
    w.sleeps(&b, s, &[dec(0, 1)]);
    w.check("remove", a.remove(s), DONE);
    let t = w.keyed_set(&a, key, 1);
    w.check("release there", a.op(t, &[inc(0, 1)]), DONE);
    w.returns(&b, EIDRM);
    w.values("not taken", t, &[1]);
    w.check("another id", s.id != t.id, true);
}

fn rule_28_removal_under_use(w: &World) {
    let [a, b, c] = w.workers(["A", "B", "C"]);
    for round in 0..100 {
        let s = w.set_of(&c, &[1, 1]);
        for (x, ops) in [(&a, vec![dec(0, 1), inc(0, 1)]), (&b, vec![dec(0, 1).undo(), dec(1, 1), inc(0, 1).undo(), inc(1, 1)])] {
            x.start(Command::Repeat { id: s.id, calls: vec![ops], times: u32::MAX });
        }
        if round % 2 == 0 {
            let _ = c.call(Command::Repeat { id: s.id, calls: vec![vec![inc(0, 1), dec(0, 1)]], times: 20 });
        }
        assert_eq!(c.remove(s), DONE);
        let t = w.set_of(&c, &[5, 5]);
        for x in [&a, &b] {
            let end = x.finish().expect("ends").res();
            assert!([EIDRM, EINVAL].contains(&end), "{}: {end:?}", x.name());
        }
        assert_eq!(c.get_all(t), Ok(vec![5, 5]), "the new set is not touched");
        assert_eq!(c.remove(t), DONE);
    }
    w.note("rounds", &100);
}

fn rule_42_order_of_semctl_checks(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 2);
    w.check("SETVAL out of range, unknown id", a.ctl(i32::MAX, 0, SETVAL, 32_768), ERANGE);
    w.check("SETVAL out of range, id −1", a.ctl(-1, 0, SETVAL, 32_768), EINVAL);
    w.check("SETVAL negative, semaphore out of range", a.ctl(s.id, 9, SETVAL, -1), ERANGE);
    w.check("SETVAL id −1", a.ctl(-1, 9, SETVAL, 0), EINVAL);
    for cmd in [SETVAL, GETVAL, GETPID, GETNCNT, GETZCNT] {
        w.check("semaphore out of range", a.ctl(s.id, 2, cmd, 0), EINVAL);
        w.check("semaphore −1", a.ctl(s.id, -1, cmd, 0), EINVAL);
        w.check("no such id", a.ctl(i32::MAX, 0, cmd, 0), EINVAL);
        w.check("id −1", a.ctl(-1, 0, cmd, 0), EINVAL);
    }
    w.check("SETVAL 32767", a.setval(s, 1, 32_767), DONE);
    w.check("SETVAL 0", a.setval(s, 1, 0), DONE);
    w.check("GETALL id −1", a.get_all(Set { id: -1, n: 2 }), Err(manyway_sem::Errno::EINVAL));
    w.check("IPC_RMID id −1", a.ctl(-1, 0, IPC_RMID, 0), EINVAL);
    w.check("IPC_RMID takes no notice of the semaphore", a.ctl(s.id, 99, IPC_RMID, 0), DONE);
}

fn rule_42_semctl_without_permission(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 2);
    b.become_user(1001, 1001, &[]);
    w.check("SETVAL: range first", b.ctl(s.id, 9, SETVAL, -1), ERANGE);
    w.check("SETVAL: semaphore before permission", b.ctl(s.id, 9, SETVAL, 0), EINVAL);
    w.check("SETVAL: permission", b.ctl(s.id, 0, SETVAL, 0), EACCES);
    for cmd in [GETVAL, GETPID, GETNCNT, GETZCNT] {
        w.check("GET: permission before semaphore", b.ctl(s.id, 9, cmd, 0), EACCES);
    }
    w.check("SETALL: permission before range", b.set_all(s, &[0, 40_000]), EACCES);
    w.check("IPC_STAT", b.stat(s).map(|_| 0), EACCES);
    w.check("IPC_SET", b.set_perm(s, 0, 0, 0), super::EPERM);
    w.check("nothing changed", a.get_all(s), Ok(vec![0, 0]));
}

fn rule_42_setall(w: &World) {
    let [a, b, c, d] = w.workers(["A", "B", "C", "D"]);
    let s = w.set_of(&a, &[1, 2, 3]);
    w.check("one out of range", a.set_all(s, &[7, 32_768, 7]), ERANGE);
    w.values("nothing changed", s, &[1, 2, 3]);
    w.sleeps(&b, s, &[dec(0, 2)]);
    w.sleeps(&c, s, &[zero(1)]);
    w.sleeps(&d, s, &[dec(0, 3), dec(2, 5)]);
    w.check("SETALL", a.set_all(s, &[6, 0, 5]), DONE);
    w.returns(&b, DONE);
    w.returns(&c, DONE);
    w.returns(&d, DONE);
    w.values("after all", s, &[1, 0, 0]);
}

fn rule_42_bad_pointers(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set_of(&a, &[1, 2]);
    let large = w.set(&a, 3000);
    let raw = |id, cmd, arg| a.call(Command::RawCtl { id, num: 0, cmd, arg }).res();
    for cmd in [GETALL, SETALL, IPC_STAT, IPC_SET] {
        w.check("bad pointer", raw(s.id, cmd, Pointer::Unmapped), EFAULT);
        w.check("null", raw(s.id, cmd, Pointer::Null), EFAULT);
        w.check("bad pointer, large set", raw(large.id, cmd, Pointer::Unmapped), EFAULT);
    }
    for cmd in [GETALL, SETALL, IPC_STAT] {
        w.check("id −1 first", raw(-1, cmd, Pointer::Unmapped), EINVAL);
        w.check("unknown id first", raw(i32::MAX, cmd, Pointer::Unmapped), EINVAL);
    }
    w.check("IPC_SET: id −1 first", raw(-1, IPC_SET, Pointer::Unmapped), EINVAL);
    w.check("IPC_SET: pointer before an unknown id", raw(i32::MAX, IPC_SET, Pointer::Unmapped), EFAULT);
    w.values("unchanged", s, &[1, 2]);
}

fn rule_42_unknown_commands(w: &World) {
    let [a] = w.workers(["A"]);
    let s = w.set(&a, 1);
    for cmd in [-1, 4, 10, 21, 99, 0x7fff_ffff] {
        w.check(&format!("command {cmd}"), a.ctl(s.id, 0, cmd, 0), EINVAL);
    }
}

fn rule_54_a_new_set(w: &World) {
    let key = w.key();
    let [a] = w.workers(["A"]);
    let before = a.now();
    let id = a.get(key, 3, IPC_CREAT | 0o7642).expect("a set") as i32;
    let after = a.now();
    w.remember(id);
    let s = Set { id, n: 3 };
    w.values("values 0, nobody was here", s, &[0, 0, 0]);
    let stat = a.stat(s).expect("own set");
    let (uid, gid) = w.user();
    w.check("key, mode, number", (stat.key == key, stat.mode, stat.nsems), (true, 0o642, 3));
    w.check("owner and creator", (stat.uid, stat.gid, stat.cuid, stat.cgid) == (uid, gid, uid, gid), true);
    w.check("no operation yet", stat.otime, 0);
    w.check("made now", (before..=after).contains(&stat.ctime), true);
}

fn rule_55_keys_are_whole(w: &World) {
    let [a] = w.workers(["A"]);
    let key = w.key();
    let keys = [key, key ^ i32::MIN, key ^ 0x1_0000, key ^ 0x80_0000, -1, i32::MIN, i32::MAX, 1];
    let sets = keys.map(|key| w.keyed_set(&a, key, 1));
    for (i, s) in sets.iter().enumerate() {
        w.check("value", a.setval(*s, 0, i as i32), DONE);
    }
    let seen: Vec<_> = keys.iter().map(|k| a.get(*k, 0, 0).map(|id| a.getval(Set { id: id as i32, n: 1 }, 0))).collect();
    w.check("each is its own", seen, (0..keys.len()).map(|i| Ok(Ok(i as i64))).collect());
}
