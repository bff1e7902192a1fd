//! Cycles of one process: sets, sleeps, engines.

use std::time::Duration;

use manyway_sem::abi::{IPC_CREAT, IPC_EXCL, IPC_NOWAIT, SEM_UNDO, SemBuf, Timespec};
use manyway_sem::{Engine, Errno, Thread};
use manyway_shm::layout::MAX_MSL;
use manyway_testkit::small_fs::SmallFs;

use crate::footprint::{Place, c_path, how};

pub const fn op(num: u16, op: i16, flags: i32) -> SemBuf {
    SemBuf { num, op, flg: flags as i16 }
}

/// Semaphores of a set of each size class: so many fill 1, 4, 16 and 64 pages.
const SIZES: [i32; 5] = [1, 62, 254, 1022, 4094];

/// With and without a key, several at once, removed in another order.
pub fn sets(p: &Place, n: usize) {
    for i in 0..n {
        let size = SIZES[i % SIZES.len()];
        let key = 1 + (i % 7) as i32;
        let keyed = p.engine.semget(&p.t, key, size, IPC_CREAT | IPC_EXCL | 0o600).expect("a new set");
        let other = p.set(1);
        let num = (size - 1) as u16;
        assert_eq!(p.engine.semop(&p.t, keyed, &[op(num, 2, 0), op(0, 1, 0)], None), Ok(()));
        p.remove(keyed);
        assert_eq!(p.engine.semget(&p.t, key, 0, 0), Err(Errno::ENOENT));
        p.remove(other);
    }
}

/// Those of 256 and 1,023 pages.
pub fn large_sets(p: &Place, n: usize) {
    for i in 0..n {
        let id = p.set([16_382, MAX_MSL as i32][i % 2]);
        assert_eq!(p.engine.semop(&p.t, id, &[op(16_000, 2, SEM_UNDO)], None), Ok(()));
        p.remove(id);
    }
}

/// Records of all sizes, which go with their sets.
pub fn sets_with_adjustments(p: &Place, n: usize) {
    for i in 0..n {
        let size = SIZES[i % SIZES.len()];
        let ids = [p.set(size), p.set(1)];
        for id in ids {
            assert_eq!(p.engine.semop(&p.t, id, &[op(0, 3, SEM_UNDO)], None), Ok(()));
        }
        ids.into_iter().for_each(|id| p.remove(id));
    }
}

pub fn sets_with_sleepers(p: &Place, n: usize) {
    let calls: [&[SemBuf]; 3] = [&[op(0, -1, 0)], &[op(0, -1, SEM_UNDO), op(1, -1, 0)], &[op(1, 0, 0)]];
    for i in 0..n {
        let id = p.set(2);
        assert_eq!(p.engine.semop(&p.t, id, &[op(1, 1, 0)], None), Ok(()));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let t = Thread::new();
                assert_eq!(p.engine.semop(&t, id, calls[i % calls.len()], None), Err(Errno::EIDRM));
                p.engine.detach_thread(&t);
            });
            let sleeps = || p.engine.getncnt(&p.t, id, 0) == Ok(1) || p.engine.getzcnt(&p.t, id, 1) == Ok(1);
            while !sleeps() {
                std::thread::sleep(Duration::from_micros(20));
            }
            p.remove(id);
            // The scope's end would wait for the closure, not for the thread.
            sleeper.join().expect("it does not panic");
        });
    }
}

/// Alter, zero and complex sleepers.
pub fn timeouts(p: &Place, n: usize) {
    let id = p.set(3);
    assert_eq!(p.engine.semop(&p.t, id, &[op(2, 1, 0)], None), Ok(()));
    let calls: [&[SemBuf]; 4] = [&[op(0, -1, 0)], &[op(2, 0, 0)], &[op(2, -1, SEM_UNDO), op(0, -1, SEM_UNDO)], &[op(0, 0, 0), op(2, 0, 0)]];
    for i in 0..n {
        let soon = Timespec { sec: 0, nsec: 1_000 };
        assert_eq!(p.engine.semop(&p.t, id, calls[i % calls.len()], Some(soon)), Err(Errno::EAGAIN));
    }
    assert_eq!(p.engine.getncnt(&p.t, id, 0), Ok(0));
    p.remove(id);
}

/// A mapping each, and a place in the namespace that is the process's.
pub fn engines(p: &Place, n: usize) {
    let id = p.set(1);
    for _ in 0..n {
        let engine = Engine::open(&c_path(p.dir.path()), &how(false)).expect("it is there");
        let t = Thread::new();
        assert_eq!(engine.semop(&t, id, &[op(0, 1, SEM_UNDO)], None), Ok(()));
        assert_eq!(engine.semop(&t, id, &[op(0, -1, SEM_UNDO)], None), Ok(()));
        engine.detach_thread(&t);
    }
    p.remove(id);
}

/// Nothing of a namespace that is gone stays mapped, so its memory is free.
pub fn namespaces(_: &Place, n: usize) {
    for _ in 0..n {
        let own = Place::new();
        own.remove(own.set(1));
        own.engine.detach_thread(&own.t);
        let path = own.dir.path().to_owned();
        drop(own);
        assert!(!path.exists());
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
        let name = path.to_str().expect("ASCII");
        assert!(!maps.contains(name), "still mapped: {:?}", maps.lines().find(|l| l.contains(name)));
    }
}

/// Engines whose windows grow, each through several sizes: all go with the engine.
pub fn windows(p: &Place, n: usize) {
    // 4 MiB each: the last ones lie beyond 128 MiB.
    let ids: Vec<i32> = (0..30).map(|_| p.set(MAX_MSL as i32)).collect();
    for _ in 0..n {
        let engine = Engine::open(&c_path(p.dir.path()), &how(false)).expect("it is there");
        let t = Thread::new();
        for id in &ids {
            assert_eq!(engine.semop(&t, *id, &[op(0, 1, 0), op(MAX_MSL as u16 - 1, 0, IPC_NOWAIT)], None), Ok(()));
        }
        engine.detach_thread(&t);
    }
    ids.into_iter().for_each(|id| p.remove(id));
}

/// On a file system of its own that has no room: sets of all sizes are refused, and what was there of their pages is given back.
pub fn full(p: &Place, n: usize) {
    let mounted = SmallFs::new(8);
    let own = Place::within(tempfile::tempdir_in(mounted.path()).expect("room for a directory"));
    let filler = mounted.path().join("filler");
    let free = || {
        let stat = nix::sys::statfs::statfs(mounted.path()).expect("it is mounted");
        stat.blocks_free()
    };
    // One of each first: extents, bitmaps and tables are made once. They stay, so that their pages are nobody else's.
    let kept = SIZES.map(|size| own.set(size));
    let refused = |r: Result<i32, Errno>| r.is_err_and(|e| [Errno::ENOSPC, Errno::ENOMEM].contains(&e));
    // Room for three pages: a set of four does not fit.
    std::fs::write(&filler, vec![1; (free() as usize - 3) * 4096]).expect("room");
    let left = free();
    for i in 0..n {
        let size = [1022, 254, 4094][i % 3];
        assert!(refused(own.engine.semget(&own.t, manyway_sem::abi::IPC_PRIVATE, size, 0o600)), "there is no room for {size}");
        assert_eq!(free(), left, "what was refused costs nothing");
    }
    // No room at all, and none of this size was made yet: an extent is wanting, too, and those that were tried for are not used up.
    let rest = mounted.path().join("rest");
    std::fs::write(&rest, vec![1; left as usize * 4096]).expect("room");
    let extents = own.extents();
    for _ in 0..n {
        assert!(refused(own.engine.semget(&own.t, manyway_sem::abi::IPC_PRIVATE, 16_382, 0o600)), "there is no room at all");
        assert_eq!((free(), own.extents()), (0, extents + 1), "what was refused is there for the next one");
    }
    for file in [filler, rest] {
        std::fs::remove_file(file).expect("own file");
    }
    kept.into_iter().for_each(|id| own.remove(id));
    for size in SIZES {
        own.remove(own.set(size));
    }
    assert_eq!(own.engine.info().sets, 0);
    own.engine.detach_thread(&own.t);
    let _ = p;
}
