//! Much of everything: sets, semaphores, sleepers, ids; and a file system without room.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_testkit::small_fs::{Filler, SmallFs};
use manyway_testkit::{
    Backend, Command, Out, Set, Setup, World, add, become_worker_if_asked, dec, inc, kernel_has_semaphores, kernel_namespaces,
    running_as_root, zero,
};

fn main() {
    become_worker_if_asked();
    let args = Arguments::from_args();
    let tests = [
        ("a_thousand_sets", a_thousand_sets as fn(&World)),
        ("a_set_of_32000", a_set_of_32000),
        ("a_thousand_sleepers", a_thousand_sleepers),
        ("all_ids", all_ids),
        ("undo_in_a_thousand_sets", undo_in_a_thousand_sets),
    ];
    let backends = [("kernel", Backend::Kernel), ("engine", Backend::Engine), ("preload", Backend::Preload)];
    let mut trials = Vec::new();
    for (test, run) in tests {
        for (name, backend) in backends {
            let kernel = backend == Backend::Kernel;
            // The kernel's only one is not for tests to fill.
            let ignored = kernel && !(kernel_has_semaphores() && kernel_namespaces());
            let run = move || carried_out(|| run(&World::new(Setup::of(backend))));
            trials.push(Trial::test(format!("{test}::{name}"), run).with_ignored_flag(ignored));
        }
    }
    let any = || carried_out(any_place_with_memory);
    trials.push(Trial::test("any_place_with_memory::engine", any).with_ignored_flag(!running_as_root()));
    let full = || carried_out(full_file_system);
    trials.push(Trial::test("full_file_system::engine", full).with_ignored_flag(!running_as_root()));
    libtest_mimic::run(&args, trials).exit();
}

fn carried_out(run: impl FnOnce()) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|e| e.downcast_ref::<String>().cloned().unwrap_or_else(|| "panicked".to_owned()).into())
}

fn many(a: &manyway_testkit::Agent, nsems: i32, most: u32) -> (Vec<i32>, i32) {
    match a.call(Command::GetMany { nsems, most }).out {
        Out::Sets(ids, errno) => (ids, errno),
        other => panic!("{other:?}"),
    }
}

fn a_thousand_sets(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let (ids, errno) = many(&a, 3, 1000);
    assert_eq!((ids.len(), errno), (1000, 0));
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(b.op(Set { id: *id, n: 3 }, &[inc((i % 3) as u16, i as i16)]), Ok(0));
    }
    let (highest, info) = b.info(true);
    assert_eq!((info.sets, info.sems), (1000, 3000));
    let mut listed: Vec<i32> =
        (0..=highest).filter_map(|i| b.stat_by(Command::StatIndex { index: i as i32, any: false }).ok()).map(|(id, _)| id as i32).collect();
    listed.sort_unstable();
    let mut made = ids.clone();
    made.sort_unstable();
    assert_eq!(listed, made, "each is listed once");
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(a.getval(Set { id: *id, n: 3 }, (i % 3) as i32), Ok(i as i64));
        assert_eq!(a.remove(Set { id: *id, n: 3 }), Ok(0));
    }
    assert_eq!(b.info(true).1.sets, 0);
}

fn a_set_of_32000(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let s = w.set(&a, 32_000);
    let vals: Vec<u16> = (0..32_000u16).collect();
    assert_eq!(a.set_all(s, &vals), Ok(0));
    assert_eq!(b.get_all(s).as_deref(), Ok(&vals[..]));
    // One call of the most operations, all over the set; then adjustments for every semaphore.
    let spread: Vec<_> = (0..500).map(|i| inc(i * 64, 7)).collect();
    assert_eq!(b.op(s, &spread), Ok(0));
    assert_eq!(a.getval(s, 499 * 64), Ok(499 * 64 + 7));
    let back: Vec<_> = (0..500).map(|i| dec(i * 64, 7)).collect();
    assert_eq!(a.op(s, &back), Ok(0));
    for first in (0..32_000).step_by(500) {
        let ops: Vec<_> = (first..first + 500).map(|n| add(n, 1).undo()).collect();
        assert_eq!(b.op(s, &ops), Ok(0));
    }
    assert_eq!(a.getval(s, 31_999), Ok(32_000));
    w.kill(&b);
    assert_eq!(a.get_all(s).as_deref(), Ok(&vals[..]), "all are undone");
}

fn a_thousand_sleepers(w: &World) {
    let crowd = w.workers(["A", "B", "C", "D"]);
    let e = w.worker("E");
    let s = w.set(&e, 2);
    let waiting = |n: i64, count: &dyn Fn() -> manyway_testkit::Res| {
        let began = Instant::now();
        while count() != Ok(n) {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?} of {n} sleep", count());
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let returned = |times: i64| {
        for a in &crowd {
            assert_eq!(a.finish().map(|r| r.res()), Some(Ok(times)));
        }
    };
    // Simple operations, some released one by one, the rest at once.
    crowd.iter().for_each(|a| a.start(Command::Crowd { id: s.id, ops: vec![dec(0, 1)], threads: 250 }));
    waiting(1000, &|| e.getncnt(s, 0));
    for left in (900..1000).rev() {
        assert_eq!(e.op(s, &[inc(0, 1)]), Ok(0));
        assert_eq!((e.getval(s, 0), e.getncnt(s, 0)), (Ok(0), Ok(left)), "each unit is a sleeper's at once");
    }
    assert_eq!(e.op(s, &[inc(0, 900)]), Ok(0));
    returned(250);
    // All that wait for zero, by one operation.
    assert_eq!(e.setval(s, 0, 1), Ok(0));
    crowd.iter().for_each(|a| a.start(Command::Crowd { id: s.id, ops: vec![zero(0)], threads: 250 }));
    waiting(1000, &|| e.getzcnt(s, 0));
    assert_eq!(e.op(s, &[dec(0, 1)]), Ok(0));
    returned(250);
    // Several operations each; those who sleep when the set goes return EIDRM.
    crowd.iter().for_each(|a| a.start(Command::Crowd { id: s.id, ops: vec![dec(0, 1), dec(1, 1)], threads: 250 }));
    waiting(1000, &|| e.getncnt(s, 0));
    assert_eq!(e.op(s, &[inc(0, 1000)]), Ok(0));
    waiting(1000, &|| e.getncnt(s, 1));
    assert_eq!(e.op(s, &[inc(1, 1000)]), Ok(0));
    returned(250);
    assert_eq!(e.get_all(s), Ok(vec![0, 0]));
    crowd.iter().for_each(|a| a.start(Command::Crowd { id: s.id, ops: vec![dec(0, 1)], threads: 250 }));
    waiting(1000, &|| e.getncnt(s, 0));
    assert_eq!(e.remove(s), Ok(0));
    returned(0);
}

/// As many sets as there can be, with a million semaphores.
fn all_ids(w: &World) {
    const N: i32 = 32;
    let a = w.worker("A");
    let (ids, errno) = many(&a, N, 40_000);
    assert_eq!((ids.len(), errno), (32_000, libc::ENOSPC), "SEMMNI sets");
    assert_eq!((a.info(true).1.sets, a.info(true).1.sems), (32_000, 1_024_000));
    let mut different = ids.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), ids.len(), "no id twice");
    assert_eq!(a.info(true).0, 31_999, "the highest index");
    for id in [ids[0], ids[17_000], ids[31_999]] {
        assert_eq!(a.remove(Set { id, n: N as usize }), Ok(0));
        let (again, errno) = many(&a, N, 2);
        assert_eq!((again.len(), errno), (1, libc::ENOSPC), "room for one");
        assert_ne!(again[0], id);
        assert_eq!(a.op(Set { id: again[0], n: N as usize }, &[inc(31, 1)]), Ok(0));
        assert_eq!(a.op(Set { id, n: N as usize }, &[inc(31, 1)]), Err(manyway_sem::Errno::EINVAL));
    }
}

fn undo_in_a_thousand_sets(w: &World) {
    let [a, b] = w.workers(["A", "B"]);
    let (ids, _) = many(&a, 4, 1000);
    for id in &ids {
        assert_eq!(b.op(Set { id: *id, n: 4 }, &[inc(0, 2).undo(), inc(3, 1)]), Ok(0));
    }
    w.kill(&b);
    for id in &ids {
        assert_eq!(a.get_all(Set { id: *id, n: 4 }), Ok(vec![0, 0, 0, 1]));
    }
}

/// A namespace on a file system of 2 MiB: what does not fit is an error of that call, and all else goes on.
fn full_file_system() {
    let dir = SmallFs::new(2);
    let w = World::within(Setup::of(Backend::Engine), dir.path());
    let [a, b] = w.workers(["A", "B"]);
    let refused = |errno: i32| [libc::ENOSPC, libc::ENOMEM].contains(&errno);
    let first = w.set_of(&a, &[5, 5]);
    assert_eq!(b.op(first, &[dec(0, 1).undo()]), Ok(0));
    let (ids, errno) = many(&a, 1, 40_000);
    assert!(refused(errno) && (10..5000).contains(&ids.len()), "{} sets, then errno {errno}", ids.len());
    // Whoever needs nothing new is not touched.
    assert_eq!(a.op(first, &[dec(0, 1), inc(1, 1)]), Ok(0));
    assert_eq!(b.op(first, &[dec(0, 1).undo()]), Ok(0));
    w.sleeps(&b, first, &[dec(0, 3)]);
    assert_eq!(a.op(first, &[inc(0, 1)]), Ok(0));
    w.returns(&b, Ok(0));
    // Adjustments for sets where there are none yet: an error at worst.
    for id in &ids {
        let set = Set { id: *id, n: 1 };
        let done = a.op(set, &[inc(0, 1).undo()]);
        assert!(done.is_ok() || done.is_err_and(|e| refused(e.0)), "{done:?}");
        assert_eq!(a.getval(set, 0), Ok(done.is_ok() as i64));
    }
    // Large ones neither, and the small ones that are removed make room.
    let (large, errno) = many(&a, 30_000, 1);
    assert!(large.is_empty() && refused(errno), "errno {errno}");
    for id in &ids {
        assert_eq!(a.remove(Set { id: *id, n: 1 }), Ok(0));
    }
    let (again, errno) = many(&a, 1, ids.len() as u32 / 2);
    assert_eq!((again.len(), errno), (ids.len() / 2, 0), "room again");
}

/// On a full file system a set that was removed makes room for another, though there are places before it whose memory was given back.
fn any_place_with_memory() {
    let dir = SmallFs::new(2);
    let w = World::within(Setup::of(Backend::Engine), dir.path());
    let a = w.worker("A");
    let (ids, _) = many(&a, 1, 10);
    for &id in &ids[..5] {
        assert_eq!(a.remove(Set { id, n: 1 }), Ok(0));
    }
    w.kill(&a);
    // Who comes to an empty namespace gives the pages of what is free back.
    let b = w.worker("B");
    assert_eq!(b.op(Set { id: ids[7], n: 1 }, &[inc(0, 1)]), Ok(0));
    let _filler = Filler::new(dir.path());
    let (none, errno) = many(&b, 1, 1);
    assert!(none.is_empty() && errno == libc::ENOMEM, "{none:?}, errno {errno}");
    assert_eq!(b.remove(Set { id: ids[7], n: 1 }), Ok(0));
    assert_eq!(many(&b, 1, 1).0.len(), 1, "in its place");
}
