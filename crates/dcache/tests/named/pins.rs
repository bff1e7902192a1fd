//! Pins, and what is told of them when they fill the bound.

use std::collections::BTreeSet;

use manyway_dcache::{Binding, Config, Kind, Outcome, Ttl, Walk};

use crate::world::{Seen, World, until};

crate::tests!(pinned_is_never_evicted, forget_lets_go, pins_that_fill_the_bound, pressure_tells_each_once, pressure_of_many,);

const FOREVER: Ttl = Ttl::Forever;

fn pinned_is_never_evicted() {
    let w = World::with(Config::new().entries(100));
    w.dir("/d", 2);
    let f = w.file("/d/f", 3);
    assert_eq!(f.pin(2), f.number());
    drop(f);
    let number = w.node("/d/f").number();
    for round in 0..3 {
        w.flood(&format!("r{round}-"), 1000, 100, usize::MAX);
        w.cache.shrink(1000);
        assert_eq!(w.see("/d/f"), Seen::Found(3));
    }
    assert_eq!(w.cache.stats().pinned, 1);
    let pinned = w.cache.pinned(number).expect("it is pinned");
    assert_eq!(*pinned.inode(), 3);
    drop(pinned);
    // One of two is taken away, and then the last.
    assert_eq!(w.cache.unpin(number, 1), 1);
    w.cache.shrink(1000);
    assert_eq!(w.see("/d/f"), Seen::Found(3));
    assert_eq!(w.cache.unpin(number, 1), 0);
    assert!(w.cache.pinned(number).is_none());
    w.flood("last-", 2000, 100, usize::MAX);
    w.cache.shrink(1000);
    assert_ne!(w.see("/d/f"), Seen::Found(3));
}

fn forget_lets_go() {
    let w = World::new();
    let f = w.file("/f", 3);
    let number = f.pin(5);
    assert_eq!(w.cache.unpin(number, 3), 2);
    // More than there are.
    assert_eq!(w.cache.unpin(number, 100), 0);
    assert_eq!((w.cache.unpin(number, 1), w.cache.stats().pinned), (0, 0));
    assert_eq!(w.cache.unpin(987_654_321, 1), 0, "a number that nobody has");
    // A name that is gone: the node is there while it is pinned, and then not.
    f.pin(1);
    w.unlink("/f");
    drop(f);
    w.cache.reclaim();
    assert_eq!(*w.cache.pinned(number).expect("it is pinned").inode(), 3);
    assert_eq!(w.cache.unpin(number, 1), 0);
    assert!(w.cache.pinned(number).is_none());
    until("it is freed", || {
        w.cache.reclaim();
        w.cache.stats().nodes == 1
    });
}

fn pins_that_fill_the_bound() {
    let w = World::with(Config::new().entries(64));
    let root = w.root();
    let mut pinned = vec![];
    for i in 0..200u64 {
        let name = format!("p{i}");
        if let Outcome::Miss(t) = w.cache.lookup(&root, name.as_bytes()) {
            let filled = t.publish(Binding::new(Kind::File, 100 + i), FOREVER);
            let node = filled.node().expect("it exists");
            if filled.kept() {
                node.pin(1);
                pinned.push((name, node.number()));
            }
        }
        let s = w.cache.stats();
        assert!(s.entries <= 64, "{s:?}");
    }
    assert!(pinned.len() >= 30, "only {} fit", pinned.len());
    for (name, _) in &pinned {
        assert!(matches!(w.see(name), Seen::Found(_)), "{name}");
    }
    // Answers are given all the same, and not kept.
    let walk = Walk::new();
    let Outcome::Miss(t) = w.cache.walk(&root, b"more/f", &walk) else { panic!("it is not known") };
    let filled = t.publish(Binding::new(Kind::Directory, 2), FOREVER);
    let Outcome::Miss(t) = w.cache.resume(filled, &walk) else { panic!("it is not known") };
    assert_eq!(Seen::from(w.cache.resume(t.publish(Binding::new(Kind::File, 3), FOREVER), &walk)), Seen::Found(3));
    assert!(w.cache.stats().refused > 0);
    // When they are forgotten there is room again.
    for (_, number) in pinned {
        w.cache.unpin(number, 1);
    }
    w.dir("/d", 2);
    w.file("/d/f", 3);
    assert_eq!(w.see("/d/f"), Seen::Found(3));
}

fn pressure_tells_each_once() {
    let w = World::with(Config::new().entries(64));
    assert!(w.cache.pressure(100).is_empty());
    let root = w.root();
    let mut told = BTreeSet::new();
    let mut names = BTreeSet::new();
    for i in 0..300u64 {
        let name = format!("p{i}");
        if let Outcome::Miss(t) = w.cache.lookup(&root, name.as_bytes()) {
            let filled = t.publish(Binding::new(Kind::File, 100 + i), FOREVER);
            if filled.kept() {
                filled.node().expect("it exists").pin(1);
                names.insert(name.into_bytes());
            }
        }
        for place in w.cache.pressure(3) {
            assert_eq!(*place.directory().inode(), 1);
            // The kernel is told to forget it, and does.
            assert!(told.insert(place.name().to_vec()), "told twice");
            assert!(names.contains(place.name()));
            if let Outcome::Found(f) = w.cache.lookup(&root, place.name()) {
                let number = f.number();
                drop(f);
                w.cache.unpin(number, 1);
            }
        }
        assert!(w.cache.stats().entries <= 64);
    }
    assert!(told.len() >= 50, "only {} were told", told.len());
    assert!(names.len() >= 200, "with that, only {} names were kept", names.len());
}

/// More pinned names than are remembered at once: each is told in the end.
fn pressure_of_many() {
    const MANY: usize = 3000;
    let w = World::with(Config::new().entries(MANY + 64));
    let root = w.root();
    root.pin(1);
    let mut told = BTreeSet::new();
    for i in 0..MANY as u64 {
        let Outcome::Miss(t) = w.cache.lookup(&root, format!("p{i}").as_bytes()) else { panic!("it is not known") };
        t.publish(Binding::new(Kind::File, 100 + i), FOREVER).node().expect("it exists").pin(1);
    }
    for _ in 0..20_000 {
        w.cache.shrink(64);
        told.extend(w.cache.pressure(100).into_iter().map(|p| p.name().to_vec()));
        if told.len() == MANY {
            return;
        }
    }
    panic!("only {} of {MANY} were told", told.len());
}
