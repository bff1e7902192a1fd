//! Threads at the same names, for a while: what must hold at each moment. How far they come does not matter; each does a number of rounds.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use manyway_dcache::{Binding, Config, Handle, Kind, Outcome, Rename, Ttl, Walk};

use crate::common::fs::{Fs, How, Make, No, ROOT};
use crate::common::subject::{Setup, Subject};
use crate::world::{Seen, World};

crate::tests!(
    rename_swap,
    rename_swap_of_directories,
    path_that_never_existed,
    complete_directory_swap,
    renamed_subtree_is_here_or_there,
    reader_moved_to_another_chain,
    eviction_under_walk,
    forget_lookup_race,
    create_and_rmdir_race,
    exchange_race,
    upgrade_of_what_is_going,
    stale_race,
    mount_race,
);

const FOREVER: Ttl = Ttl::Forever;

/// With room for all that is retired, also while a reader is put off the processor: nothing is ever left unkept.
fn roomy() -> World {
    World::with(Config::new().entries(1 << 17).negative_percent(50))
}

/// Runs `work` until it has done its rounds, and others beside it until then. How often each of the others came round.
fn beside(others: &[&(dyn Fn() + Sync)], work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let begun = Barrier::new(others.len() + 1);
    std::thread::scope(|scope| {
        for other in others {
            let (stop, begun) = (&stop, &begun);
            scope.spawn(move || {
                begun.wait();
                loop {
                    other();
                    if stop.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        begun.wait();
        let _stop = Stop(&stop);
        work();
    });
}

/// Of two files that change places all the time each name leads to one of them.
fn rename_swap() {
    let w = roomy();
    w.file("/a", 2);
    w.file("/b", 3);
    let reader = || {
        for name in ["/a", "/b"] {
            assert!(matches!(w.cache.walk(&w.root(), name.as_bytes(), &Walk::new()).into(), Seen::Found(2 | 3)), "{name}");
        }
    };
    beside(&[&reader, &reader], || (0..3000).for_each(|_| w.rename("/a", "/b", Rename::Exchange)));
    // By three renames, over a name that is replaced: `/over` is there all the time.
    w.file("/over", 4);
    let reader = || assert!(matches!(w.cache.walk(&w.root(), b"/over", &Walk::new()).into(), Seen::Found(_)));
    beside(&[&reader, &reader], || {
        for i in 0..3000 {
            w.create("/tmp", Kind::File, 10 + i);
            w.rename("/tmp", "/over", Rename::Replace);
        }
    });
}

/// Two directories change places; each has a file of the same name, and one of its own that is found in one of two places.
fn rename_swap_of_directories() {
    let w = roomy();
    for (dir, n) in [("/p", 10), ("/q", 20)] {
        w.dir(dir, n);
        w.dir(&format!("{dir}/s"), n + 1);
        w.file(&format!("{dir}/s/f"), n + 2);
        w.none(&format!("{dir}/s/n"));
    }
    let walk = |path: &str| Seen::from(w.cache.walk(&w.root(), path.as_bytes(), &Walk::new()));
    let reader = || {
        for path in ["/p/s/f", "/q/s/f", "/p/s/../s/f", "/q/../p/s/f"] {
            assert!(matches!(walk(path), Seen::Found(12 | 22)), "{path}");
        }
        for path in ["/p/s/n", "/q/s/n"] {
            assert_eq!(walk(path), Seen::Absent, "{path}");
        }
        assert_eq!(walk("/p/s/../.."), Seen::Found(1));
    };
    beside(&[&reader, &reader], || (0..3000).for_each(|_| w.rename("/p", "/q", Rename::Exchange)));
}

/// `x` is below `p` only while `p` is called `r`: `/p/…/x` never is, though `/p` and `x` below it both are, one after the other. The names are long and the
/// way is, so that much happens while a walk is under way.
fn path_that_never_existed() {
    let w = roomy();
    let p = w.dir("/p", 2);
    let mut deep = "/p".to_owned();
    for i in 0..12 {
        deep += &format!("/{}", "s".repeat(250));
        w.dir(&deep, 3 + i);
    }
    let s = w.node(&deep);
    w.none(&format!("{deep}/x"));
    w.none("/r");
    // The second is no plain walk.
    let paths = [format!("{deep}/x"), format!("/p/.{}/{}/x", "/../p/.".repeat(40), &deep[3..])];
    let reader = || {
        for path in &paths {
            let seen = Seen::from(w.cache.walk(&w.root(), path.as_bytes(), &Walk::new()));
            assert_eq!(seen, Seen::Absent, "{path}: it never existed");
        }
        // From a handle it exists throughout, wherever that is.
        assert_eq!(Seen::from(w.cache.walk(&p, &deep.as_bytes()[3..], &Walk::new())), Seen::Found(14));
    };
    beside(&[&reader, &reader], || {
        for i in 0..3000 {
            w.rename("/p", "/r", Rename::Replace);
            w.cache.create(&s, b"x").expect("it can begin").commit(Binding::new(Kind::File, 100 + i), FOREVER, false);
            // Met once, so that plain walks go over it.
            assert_eq!(Seen::from(w.cache.walk(&s, b"x", &Walk::new())), Seen::Found(100 + i));
            w.cache.unlink(&s, b"x").expect("it can begin").commit();
            w.rename("/r", "/p", Rename::Replace);
        }
    });
}

/// In a directory that is complete what has left its chain for a moment is not absent.
fn complete_directory_swap() {
    let w = roomy();
    let d = w.create("/d", Kind::Directory, 2);
    w.create("/d/a", Kind::File, 3);
    w.create("/d/b", Kind::File, 4);
    assert_eq!(w.see("/d/none"), Seen::Absent);
    let reader = || {
        for _ in 0..20 {
            for name in ["a", "b"] {
                assert!(matches!(w.cache.walk(&d, name.as_bytes(), &Walk::new()).into(), Seen::Found(3 | 4)), "{name}");
            }
            assert_eq!(Seen::from(w.cache.walk(&d, b"none", &Walk::new())), Seen::Absent);
        }
    };
    beside(&[&reader, &reader], || (0..5000).for_each(|_| w.rename("/d/a", "/d/b", Rename::Exchange)));
}

/// A subtree goes to and fro: found in the old place, the new one, or (looked for in both, one after the other) missed in one only when it was in the
/// other.
fn renamed_subtree_is_here_or_there() {
    let w = roomy();
    w.dir("/a", 2);
    w.dir("/b", 3);
    w.dir("/a/t", 4);
    w.dir("/a/t/u", 5);
    let f = w.file("/a/t/u/f", 6);
    w.none("/b/t");
    let moves = AtomicU64::new(0);
    let walk = |path: &str| Seen::from(w.cache.walk(&w.root(), path.as_bytes(), &Walk::new()));
    let reader = || {
        // An even number of moves begun and ended: it is in `a`. Judged when nothing moved meanwhile.
        let before = moves.load(Relaxed);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let (in_a, in_b) = (walk("/a/t/u/f"), walk("/b/t/u/f"));
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        for seen in [&in_a, &in_b] {
            assert!(matches!(seen, Seen::Found(6) | Seen::Absent), "{seen:?}");
        }
        if moves.load(Relaxed) == before && before.is_multiple_of(2) {
            assert_eq!((in_a == Seen::Absent, in_b == Seen::Absent), (!before.is_multiple_of(4), before.is_multiple_of(4)));
        }
        assert_eq!(Seen::from(w.cache.walk(&f, b"", &Walk::new())), Seen::Found(6));
    };
    beside(&[&reader, &reader], || {
        for i in 0..3000 {
            moves.fetch_add(1, Relaxed);
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            if i % 2 == 0 {
                w.rename("/a/t", "/b/t", Rename::Replace)
            } else {
                w.rename("/b/t", "/a/t", Rename::Replace)
            }
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            moves.fetch_add(1, Relaxed);
        }
    });
}

/// A table of few buckets, full chains: names move from chain to chain under readers of other names of the same chains.
fn reader_moved_to_another_chain() {
    let w = World::with(Config::new().entries(256).negative_percent(50));
    let names: Vec<String> = (0..60).map(|i| format!("/stays{i}")).collect();
    for (i, name) in names.iter().enumerate() {
        w.file(name, 100 + i as u64);
    }
    let absent: Vec<String> = (0..20).map(|i| format!("/none{i}")).collect();
    absent.iter().for_each(|name| w.none(name));
    for i in 0..10 {
        w.file(&format!("/moves{i}-0"), 200 + i);
    }
    let learn = |name: &str, inode: Option<u64>| {
        if let Outcome::Miss(t) = w.cache.walk(&w.root(), name.as_bytes(), &Walk::new()) {
            match inode {
                Some(inode) => t.publish(Binding::new(Kind::File, inode), FOREVER),
                None => t.absent(FOREVER),
            };
        }
    };
    let reader = || {
        for (i, name) in names.iter().enumerate() {
            let seen = Seen::from(w.cache.walk(&w.root(), name.as_bytes(), &Walk::new()));
            // There is little room: it may have been evicted, then somebody learns it again.
            if let Seen::Miss(_) = seen {
                learn(name, Some(100 + i as u64));
            } else {
                assert_eq!(seen, Seen::Found(100 + i as u64), "{name} has not moved");
            }
        }
        for name in &absent {
            match Seen::from(w.cache.walk(&w.root(), name.as_bytes(), &Walk::new())) {
                Seen::Miss(_) => learn(name, None),
                seen => assert_eq!(seen, Seen::Absent, "{name}"),
            }
        }
    };
    beside(&[&reader, &reader], || {
        for round in 0..400 {
            for i in 0..10 {
                let (from, to) = (format!("/moves{i}-{}", round % 8), format!("/moves{i}-{}", (round + 1) % 8));
                w.rename(&from, &to, Rename::Replace);
            }
        }
    });
}

/// Walks while all that can be evicted is: every answer is that of the store.
fn eviction_under_walk() {
    let mut fs = Fs::default();
    let mut at = ROOT;
    let mut paths = vec![];
    for level in 0..6 {
        at = fs.create(at, format!("level{level}").as_bytes(), Make::Dir).expect("new");
        for i in 0..8 {
            let f = fs.create(at, format!("f{i}").as_bytes(), Make::File).expect("new");
            paths.push((String::from_utf8([fs.path_of(at), format!("/f{i}").into_bytes()].concat()).expect("text"), f));
        }
    }
    for setup in [Setup::large(), Setup { bytes: 3000, ..Setup::small() }] {
        let s = Subject::new(fs.clone(), &setup);
        let reader = || {
            let mut rng = fastrand::Rng::new();
            for _ in 0..50 {
                let (path, ino) = &paths[rng.usize(..paths.len())];
                assert_eq!(s.resolve(path), Ok(*ino), "{path}");
                assert_eq!(s.resolve(&format!("{path}x")), Err(No::NotFound));
                s.check_bounds();
            }
        };
        beside(&[&reader, &reader], || {
            for i in 0..1500 {
                match i % 4 {
                    0..=2 => drop(s.cache().shrink(1 + i % 30)),
                    _ => s.cache().reclaim(),
                }
                s.check_bounds();
                std::thread::sleep(std::time::Duration::from_micros(1));
            }
        });
        // With room, what is met all the time may be spared all the time.
        assert!(s.cache().stats().evicted > 0 || setup.bytes > 3000);
        s.end();
    }
}

/// A kernel forgets what another of its threads looks up at the same time: who has a pin has a node that can be found by its number.
fn forget_lookup_race() {
    let mut fs = Fs::default();
    for i in 0..4 {
        fs.create(ROOT, format!("f{i}").as_bytes(), Make::File).expect("new");
    }
    let s = Subject::new(fs, &Setup { bytes: 2500, ..Setup::small() });
    let user = || {
        let mut rng = fastrand::Rng::new();
        for _ in 0..100 {
            let i = rng.u64(..4);
            let node = s.node(&format!("/f{i}"));
            let (number, ino) = (node.pin(1), node.inode().ino);
            drop(node);
            // What the kernel does with the number.
            let node = s.cache().pinned(number).expect("it is pinned");
            assert_eq!((node.inode().ino, node.number()), (ino, number));
            drop(node);
            s.cache().unpin(number, 1);
        }
    };
    beside(&[&user, &user, &user], || {
        for i in 0..1500 {
            match i % 3 {
                0 => s.cache().invalidate_all(),
                1 => drop(s.cache().shrink(10)),
                _ => s.cache().reclaim(),
            }
            std::thread::sleep(std::time::Duration::from_micros(1));
        }
    });
    assert_eq!(s.cache().stats().pinned, 0);
    s.end();
}

/// Names are made in a directory that is removed, and made anew: what was made is there, or its directory is not.
fn create_and_rmdir_race() {
    let mut fs = Fs::default();
    fs.create(ROOT, b"d", Make::Dir).expect("new");
    let s = Subject::new(fs, &Setup::large());
    let root = s.tree.root();
    let maker = || {
        let Ok(d) = s.handle(&root, b"d", Default::default()) else { return };
        match s.create(&d, b"f", &Make::File) {
            Ok(ino) => {
                // It is there, until this thread (alone in this) takes it away: the directory cannot be removed.
                assert_eq!((s.resolve("/d/f"), s.walk(&d, b"f", Default::default())), (Ok(ino), Ok(ino)));
                assert!(!d.is_removed());
                s.tree.unlink(&d, b"f").expect("it is there");
                assert_eq!(s.walk(&d, b"f", Default::default()), Err(No::NotFound));
            }
            Err(No::NotFound) => {}
            Err(e) => panic!("{e:?}"),
        }
    };
    beside(&[&maker], || {
        for _ in 0..1500 {
            match s.tree.rmdir(&root, b"d").map_err(crate::common::subject::no) {
                Ok(()) => {
                    assert_eq!((s.resolve("/d"), s.resolve("/d/f")), (Err(No::NotFound), Err(No::NotFound)));
                    s.create(&root, b"d", &Make::Dir).expect("it is free");
                }
                Err(No::NotEmpty) => std::thread::sleep(std::time::Duration::from_micros(1)),
                Err(e) => panic!("{e:?}"),
            }
        }
    });
    drop(root);
    s.end();
}

/// Exchanges from two sides, with fills: no name is ever absent.
fn exchange_race() {
    let mut fs = Fs::default();
    for name in [b"a", b"b", b"c"] {
        let dir = fs.create(ROOT, name, Make::Dir).expect("new");
        fs.create(dir, b"f", Make::File).expect("new");
    }
    let s = Subject::new(fs, &Setup { bytes: 3000, ..Setup::small() });
    let root = s.tree.root();
    let reader = || {
        for path in ["/a/f", "/b/f", "/c/f"] {
            let seen = s.resolve(path);
            assert!(seen.is_ok(), "{path}: {seen:?}");
        }
    };
    let other = || s.rename((&root, b"b"), (&root, b"c"), How::Exchange).expect("both are there");
    beside(&[&reader, &reader, &other], || {
        for i in 0..1500 {
            s.rename((&root, b"a"), (&root, b"b"), How::Exchange).expect("both are there");
            if i % 5 == 0 {
                s.cache().shrink(20);
            }
        }
    });
    drop(root);
    s.end();
}

/// A counted handle is asked for while the name, the last reference, is taken away: it is the node or another try, never one that is freed.
fn upgrade_of_what_is_going() {
    let w = World::with(Config::new().entries(64));
    let root = w.root();
    let reader = || {
        for _ in 0..50 {
            if let Outcome::Found(found) = w.cache.walk(&root, b"n", &Walk::new()) {
                let (inode, number) = (*found.inode(), found.number());
                let handle: Handle<u64> = found.handle();
                assert_eq!((*handle.inode(), handle.number()), (inode, number));
            }
        }
    };
    beside(&[&reader, &reader], || {
        for i in 0..4000u64 {
            w.cache.create(&root, b"n").expect("it can begin").commit(Binding::new(Kind::File, i), FOREVER, false);
            w.cache.unlink(&root, b"n").expect("it can begin").commit();
            if i % 16 == 0 {
                w.cache.reclaim();
            }
        }
    });
}

/// Times end under walkers: every answer is one that the store has given for this name.
fn stale_race() {
    let mut fs = Fs::default();
    let d = fs.create(ROOT, b"d", Make::Dir).expect("new");
    let f = fs.create(d, b"f", Make::File).expect("new");
    let ttl = Some(std::time::Duration::from_millis(100));
    for revalidates in [true, false] {
        let s = Subject::new(fs.clone(), &Setup { ttl, revalidates, ..Setup::large() });
        let reader = || {
            assert_eq!((s.resolve("/d/f"), s.resolve("/d/n")), (Ok(f), Err(No::NotFound)));
        };
        beside(&[&reader, &reader], || {
            for _ in 0..500 {
                s.clock.advance(std::time::Duration::from_millis(40));
                std::thread::sleep(std::time::Duration::from_micros(1));
            }
        });
        s.end();
    }
}

/// A tree is mounted and taken away under walkers: they are in the one or the other.
fn mount_race() {
    let w = roomy();
    w.dir("/m", 2);
    w.file("/m/f", 3);
    let other = w.cache.new_root(50);
    w.cache.mount(&w.root(), b"m", &other).expect("a directory");
    w.file("/m/f", 51);
    w.cache.unmount(&w.root(), b"m").expect("it is mounted");
    let root = w.root();
    let reader = || {
        let seen = Seen::from(w.cache.walk(&root, b"/m/f", &Walk::new()));
        assert!(matches!(seen, Seen::Found(3 | 51)), "{seen:?}");
        let seen = Seen::from(w.cache.walk(&root, b"/m/../m/..", &Walk::new()));
        assert_eq!(seen, Seen::Found(1));
    };
    beside(&[&reader, &reader], || {
        for _ in 0..1500 {
            w.cache.mount(&root, b"m", &other).expect("a directory");
            w.cache.unmount(&root, b"m").expect("it is mounted");
        }
    });
}
