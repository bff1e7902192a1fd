//! Fills: one asks the store for a name, the others wait; what was overtaken is not kept.

use std::time::Duration;

use manyway_dcache::{Binding, Error, Kind, Outcome, Rename, Ttl, Walk};

use crate::common::fs::{Fs, Make, No, ROOT};
use crate::common::store::{Asked, Gate, When};
use crate::common::subject::{Setup, Subject};
use crate::world::{Seen, World, until};

crate::tests!(
    walk_slower_than_its_times,
    fill_overtaken_by_create,
    fill_overtaken_by_unlink,
    fill_overtaken_by_rename,
    fill_overtaken_by_invalidation,
    fill_overtaken_by_a_change_that_is_under_way,
    fill_overtaken_is_asked_for_again,
    negative_poisoned_by_a_fill,
    negative_poisoned_in_the_cache,
    dropped_filler_releases_those_who_wait,
    filler_that_panics_releases_those_who_wait,
    failed_filler_tells_those_who_wait,
    single_flight,
    single_flight_of_a_stale_name,
    nobody_waits_who_must_not,
    stale_not_absent,
    stale_name_that_changed,
    stale_ticket_dropped_is_stale_again,
    answers_without_time_are_not_kept,
    link_target_is_asked_for_once,
    fill_of_a_node_that_is_there_already,
    fill_finds_a_directory_that_has_moved,
    fill_of_a_loop_is_stale,
);

const FOREVER: Ttl = Ttl::Forever;

fn fill_overtaken_by_create() {
    let w = World::new();
    // The store said "no such name" before the name was made.
    let ticket = w.ticket("/a");
    w.create("/a", Kind::File, 7);
    assert_eq!(w.see("/a"), Seen::Found(7));
    let filled = ticket.absent(FOREVER);
    assert!(!filled.kept());
    assert!(filled.node().is_none(), "the answer is its asker's all the same");
    assert_eq!(w.see("/a"), Seen::Found(7));
    assert_eq!(w.cache.stats().overtaken, 1);
}

fn fill_overtaken_by_unlink() {
    let w = World::new();
    let ticket = w.ticket("/a");
    w.unlink("/a");
    let filled = ticket.publish(Binding::new(Kind::File, 7), FOREVER);
    assert!(!filled.kept());
    assert_eq!(filled.node().map(|n| *n.inode()), Some(7));
    drop(filled);
    assert_ne!(w.see("/a"), Seen::Found(7));
    // The same for a directory.
    let ticket = w.ticket("/d");
    w.rmdir("/d");
    assert!(!ticket.publish(Binding::new(Kind::Directory, 8), FOREVER).kept());
    assert_ne!(w.see("/d"), Seen::Found(8));
}

fn fill_overtaken_by_rename() {
    let w = World::new();
    w.file("/x", 5);
    let (from, to) = (w.ticket("/a"), w.ticket("/b"));
    // Neither name was known.
    w.rename("/a", "/b", Rename::Replace);
    assert!(!from.publish(Binding::new(Kind::File, 7), FOREVER).kept());
    assert!(!to.absent(FOREVER).kept());
    assert_ne!(w.see("/a"), Seen::Found(7));
    assert_ne!(w.see("/b"), Seen::Absent);
    // One of them was.
    let to = w.ticket("/c");
    w.rename("/x", "/c", Rename::Replace);
    assert!(!to.absent(FOREVER).kept());
    assert_eq!(w.see("/c"), Seen::Found(5));
}

fn fill_overtaken_by_invalidation() {
    let w = World::new();
    let d = w.dir("/d", 2);
    let invalidate: [&dyn Fn(); 3] =
        [&|| w.cache.invalidate(&d, b"a"), &|| w.cache.invalidate_subtree(&w.root()), &|| w.cache.invalidate_all()];
    for (i, invalidate) in invalidate.iter().enumerate() {
        let Outcome::Miss(ticket) = w.cache.lookup(&d, b"a") else { panic!("it is not known") };
        invalidate();
        assert!(!ticket.publish(Binding::new(Kind::File, 7), FOREVER).kept(), "invalidation {i}");
        assert_ne!(Seen::from(w.cache.lookup(&d, b"a")), Seen::Found(7), "invalidation {i}");
    }
}

fn fill_overtaken_by_a_change_that_is_under_way() {
    let w = World::new();
    let root = w.root();
    let ticket = w.ticket("/a");
    let change = w.cache.create(&root, b"a").expect("it can begin");
    // The store may have been asked before or after it made the name: nobody knows.
    assert!(!ticket.absent(FOREVER).kept());
    // Who wants it now waits for the change, and gets no ticket.
    assert_eq!(w.see("/a"), Seen::Busy);
    change.commit(Binding::new(Kind::File, 7), FOREVER, false);
    assert_eq!(w.see("/a"), Seen::Found(7));
    // A name that was known is there until the change is committed.
    let change = w.cache.unlink(&root, b"a").expect("it can begin");
    assert_eq!(w.see("/a"), Seen::Found(7));
    change.commit();
    assert_eq!(w.see("/a"), Seen::Absent);
}

fn fill_overtaken_is_asked_for_again() {
    let w = World::new();
    let walk = Walk::new();
    let Outcome::Miss(mut ticket) = w.cache.walk(&w.root(), b"d/f", &walk) else { panic!("it is not known") };
    for inode in 10..15 {
        w.cache.invalidate(&w.root(), b"d");
        let filled = ticket.publish(Binding::new(Kind::Directory, inode), FOREVER);
        assert!(!filled.kept());
        // What is below it would be that of another moment.
        let Outcome::Miss(again) = w.cache.resume(filled, &walk) else { panic!("it is not known") };
        assert_eq!((*again.directory().inode(), again.name()), (1, &b"d"[..]));
        ticket = again;
    }
    let Outcome::Miss(ticket) = w.cache.resume(ticket.publish(Binding::new(Kind::Directory, 2), FOREVER), &walk) else {
        panic!("it goes on")
    };
    assert_eq!((*ticket.directory().inode(), ticket.name()), (2, &b"f"[..]));
    let filled = ticket.publish(Binding::new(Kind::File, 3), FOREVER);
    assert_eq!(Seen::from(w.cache.resume(filled, &walk)), Seen::Found(3));
    assert_eq!(w.cache.stats().overtaken, 5);
}

fn negative_poisoned_by_a_fill() {
    let w = World::new();
    let root = w.root();
    w.file("/x", 5);
    // The answers "there is none" come at each possible moment of the making.
    for (i, when) in ["before", "during", "after"].into_iter().enumerate() {
        for by in ["create", "link", "rename"] {
            let name = format!("{by}-{when}");
            let path = format!("/{name}");
            let mut ticket = Some(w.ticket(&path));
            let mut answer = |at: &str| {
                if at == when {
                    let kept = ticket.take().expect("once").absent(FOREVER).kept();
                    assert_eq!(kept, when == "before", "{name}");
                }
            };
            answer("before");
            match by {
                "create" => {
                    let change = w.cache.create(&root, name.as_bytes()).expect("it can begin");
                    answer("during");
                    change.commit(Binding::new(Kind::File, 100 + i as u64), FOREVER, false);
                }
                "link" => {
                    let change = w.cache.link(&w.node("/x"), &root, name.as_bytes()).expect("it can begin");
                    answer("during");
                    change.commit();
                }
                _ => {
                    let from = format!("/from-{when}");
                    w.file(&from, 200 + i as u64);
                    let from = &from.as_bytes()[1..];
                    let change = w.cache.rename((&root, from), (&root, name.as_bytes()), Rename::Replace).expect("it can begin");
                    answer("during");
                    change.commit();
                }
            }
            answer("after");
            assert!(matches!(w.see(&path), Seen::Found(_)), "{name}: {:?}", w.see(&path));
        }
    }
}

fn negative_poisoned_in_the_cache() {
    let w = World::new();
    let root = w.root();
    for name in ["/a", "/b", "/c", "/d"] {
        w.none(name);
        assert_eq!(w.see(name), Seen::Absent);
    }
    w.create("/a", Kind::Directory, 2);
    assert_eq!(w.see("/a"), Seen::Found(2));
    let f = w.create("/a/f", Kind::File, 3);
    w.cache.link(&f, &root, b"b").expect("it can begin").commit();
    assert_eq!(w.see("/b"), Seen::Found(3));
    w.rename("/a", "/c", Rename::Replace);
    assert_eq!((w.see("/c"), w.see("/a")), (Seen::Found(2), Seen::Absent));
    // Whether a making that was given up has made it nobody knows: it is no longer said that there is none.
    drop(w.cache.create(&root, b"d").expect("it can begin"));
    assert_eq!(w.see("/d"), Seen::Miss("d".into()));
    // That the store has refused is known.
    w.none("/e");
    w.cache.create(&root, b"e").expect("it can begin").unchanged();
    assert_eq!(w.see("/e"), Seen::Absent);
}

/// So many threads walk to `/a` while a ticket for it is held; then this is done with the ticket. What they saw.
fn waiting(w: &World, n: usize, then: impl FnOnce(manyway_dcache::Ticket<u64>)) -> Vec<Seen> {
    let ticket = w.ticket("/a");
    let before = w.cache.stats().waits;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n)
            .map(|_| {
                scope.spawn(|| {
                    let walk = Walk::new();
                    match w.cache.walk(&w.root(), b"/a", &walk) {
                        // The next in turn: it asks, and says so.
                        Outcome::Miss(t) => {
                            let filled = t.publish(Binding::new(Kind::File, 9), FOREVER);
                            assert!(matches!(w.cache.resume(filled, &walk), Outcome::Found(_)));
                            Seen::Miss("a".into())
                        }
                        other => other.into(),
                    }
                })
            })
            .collect();
        until("all wait", || w.cache.stats().waits >= before + n as u64);
        then(ticket);
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

fn dropped_filler_releases_those_who_wait() {
    let w = World::new();
    let seen = waiting(&w, 6, drop);
    assert_eq!(seen.iter().filter(|s| **s == Seen::Miss("a".into())).count(), 1, "one of them asks: {seen:?}");
    assert_eq!(seen.iter().filter(|s| **s == Seen::Found(9)).count(), 5, "{seen:?}");
    assert_eq!(w.cache.stats().misses, 2);
}

fn filler_that_panics_releases_those_who_wait() {
    let w = World::new();
    let seen = waiting(&w, 3, |ticket| {
        let asking = std::thread::spawn(move || {
            let _held = ticket;
            std::panic::resume_unwind(Box::new("the store"));
        });
        assert!(asking.join().is_err());
    });
    assert_eq!(seen.iter().filter(|s| **s == Seen::Found(9)).count(), 2, "{seen:?}");
}

fn failed_filler_tells_those_who_wait() {
    let w = World::new();
    let seen = waiting(&w, 4, |ticket| ticket.failed(Error::Os(110)));
    assert_eq!(seen, vec![Seen::Failed(Error::Os(110)); 4]);
    // Who comes later asks again.
    assert_eq!(w.see("/a"), Seen::Miss("a".into()));
}

fn single_flight() {
    let mut fs = Fs::default();
    let d = fs.create(ROOT, b"d", Make::Dir).expect("new");
    let f = fs.create(d, b"f", Make::File).expect("new");
    for (path, answer) in [("/d/f", Ok(f)), ("/d/none", Err(No::NotFound))] {
        let s = Subject::new(fs.clone(), &Setup::large());
        s.resolve("/d").expect("there");
        let (gate, at_gate) = (Gate::new(), Gate::new());
        let (g, a) = (gate.clone(), at_gate.clone());
        s.sim.hook(move |asked, when| {
            if matches!(asked, Asked::Lookup(..)) && when == When::Before {
                a.open();
                g.pass();
            }
            Ok(())
        });
        let before = s.sim.lookups();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| s.resolve(path))).collect();
            until("seven wait for the eighth", || s.cache().stats().waits >= 7);
            gate.open();
            for t in threads {
                assert_eq!(t.join().expect("no panic"), answer);
            }
        });
        assert_eq!(s.sim.lookups() - before, 1, "the store was asked once");
        s.end();
    }
}

fn single_flight_of_a_stale_name() {
    let mut fs = Fs::default();
    let d = fs.create(ROOT, b"d", Make::Dir).expect("new");
    let s = Subject::new(fs, &Setup { ttl: Some(Duration::from_secs(1)), ..Setup::large() });
    s.resolve("/d").expect("there");
    s.clock.advance(Duration::from_secs(2));
    let gate = Gate::new();
    let g = gate.clone();
    s.sim.hook(move |_, when| {
        if when == When::Before {
            g.pass();
        }
        Ok(())
    });
    let before = s.sim.lookups();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| s.resolve("/d"))).collect();
        gate.arrived(1);
        until("the others wait", || s.cache().stats().waits >= 5);
        gate.open();
        for t in threads {
            assert_eq!(t.join().expect("no panic"), Ok(d));
        }
    });
    assert_eq!(s.sim.lookups() - before, 1, "the store was asked once");
    s.end();
}

fn nobody_waits_who_must_not() {
    let w = World::new();
    w.dir("/d", 2);
    let ticket = w.ticket("/d/a");
    assert_eq!(w.see("/d/a"), Seen::Busy);
    assert_eq!(w.see("/d/a/b/c"), Seen::Busy);
    assert_eq!(w.see("/d/other"), Seen::Miss("other".into()));
    let walk = Walk::new().no_wait();
    let Outcome::Busy(waiting) = w.cache.walk(&w.root(), b"/d/a", &walk) else { panic!("somebody has the ticket") };
    assert!(ticket.publish(Binding::new(Kind::File, 3), FOREVER).kept());
    let filled = waiting.wait().expect("it was answered");
    assert_eq!(Seen::from(w.cache.resume(filled, &walk)), Seen::Found(3));
}

fn stale_not_absent() {
    let w = World::new();
    let ttl = Ttl::For(Duration::from_millis(500));
    w.teach_for("/f", Kind::File, 2, ttl);
    assert!(w.ticket("/n").absent(ttl).kept());
    w.advance(400);
    assert_eq!((w.see("/f"), w.see("/n")), (Seen::Found(2), Seen::Absent));
    w.advance(200);
    // Neither found nor absent: to be asked again, and the holder is told what it was.
    let (f, n) = (w.ticket("/f"), w.ticket("/n"));
    assert!(f.is_stale() && n.is_stale());
    assert_eq!((f.known().map(|h| *h.inode()), n.known().map(|h| *h.inode())), (Some(2), None));
    assert_eq!((w.see("/f"), w.see("/n")), (Seen::Busy, Seen::Busy));
    assert!(f.same(ttl).kept() && n.same(ttl).kept());
    assert_eq!((w.see("/f"), w.see("/n")), (Seen::Found(2), Seen::Absent));
    w.advance(600);
    assert_eq!((w.see("/f"), w.see("/n")), (Seen::Stale("f".into()), Seen::Stale("n".into())));
    assert_eq!(w.cache.stats().stale, 4);
}

fn stale_name_that_changed() {
    let w = World::new();
    let ttl = Ttl::For(Duration::from_millis(500));
    w.teach_for("/f", Kind::File, 2, ttl);
    w.teach_for("/g", Kind::File, 3, ttl);
    w.teach_for("/h", Kind::File, 4, ttl);
    assert!(w.ticket("/n").absent(ttl).kept());
    w.advance(600);
    assert!(w.ticket("/f").publish(Binding::new(Kind::File, 22), ttl).kept());
    assert!(w.ticket("/g").absent(ttl).kept());
    assert!(w.ticket("/n").publish(Binding::new(Kind::Directory, 5), ttl).kept());
    assert_eq!((w.see("/f"), w.see("/g"), w.see("/n")), (Seen::Found(22), Seen::Absent, Seen::Found(5)));
    // A change overtakes one who asks anew as it does one who asks for the first time.
    let stale = w.ticket("/h");
    w.unlink("/h");
    assert!(!stale.same(ttl).kept());
    assert_ne!(w.see("/h"), Seen::Found(4));
}

fn stale_ticket_dropped_is_stale_again() {
    let w = World::new();
    let ttl = Ttl::For(Duration::from_millis(500));
    w.teach_for("/f", Kind::File, 2, ttl);
    w.advance(600);
    drop(w.ticket("/f"));
    assert!(matches!(w.see("/f"), Seen::Stale(_) | Seen::Miss(_)), "{:?}", w.see("/f"));
    w.ticket("/f").failed(Error::Os(5));
    assert!(matches!(w.see("/f"), Seen::Stale(_) | Seen::Miss(_)), "{:?}", w.see("/f"));
    assert!(w.ticket("/f").publish(Binding::new(Kind::File, 2).id(2), ttl).kept());
    assert_eq!(w.see("/f"), Seen::Found(2));
}

fn answers_without_time_are_not_kept() {
    let w = World::new();
    let walk = Walk::new();
    for _ in 0..3 {
        let Outcome::Miss(ticket) = w.cache.walk(&w.root(), b"d/n", &walk) else { panic!("it is not known") };
        assert_eq!(ticket.name(), b"d");
        let filled = ticket.publish(Binding::new(Kind::Directory, 2), Ttl::No);
        assert!(!filled.kept());
        let Outcome::Miss(ticket) = w.cache.resume(filled, &walk) else { panic!("it is not known") };
        assert_eq!(ticket.name(), b"n");
        assert_eq!(Seen::from(w.cache.resume(ticket.absent(Ttl::No), &walk)), Seen::Absent);
    }
    assert_eq!(w.cache.stats().misses, 6);
}

fn link_target_is_asked_for_once() {
    let w = World::new();
    w.dir("/d", 2);
    w.file("/d/f", 3);
    w.teach("/l", Kind::Link, 4);
    let walk = Walk::new();
    let Outcome::Target(target) = w.cache.walk(&w.root(), b"/l/f", &walk) else { panic!("the target is not known") };
    assert_eq!(*target.link().inode(), 4);
    assert_eq!(Seen::from(w.cache.resume(target.publish(b"d"), &walk)), Seen::Found(3));
    assert_eq!(w.see("/l/f"), Seen::Found(3));
    assert_eq!(w.see("/l"), Seen::Found(2));
}

fn fill_of_a_node_that_is_there_already() {
    let w = World::new();
    let a = w.file("/a", 5);
    let filled = w.ticket("/b").publish(Binding::new(Kind::File, 5).id(5), FOREVER);
    assert!(filled.kept());
    assert!(*filled.node().expect("it exists") == a, "one node of two names");
    assert_eq!(w.node("/b").number(), a.number());
    let filled = w.ticket("/c").publish(Binding::node(&a), FOREVER);
    assert!(filled.kept() && *filled.node().expect("it exists") == a);
    w.unlink("/a");
    assert_eq!((w.see("/a"), w.see("/b"), w.see("/c")), (Seen::Absent, Seen::Found(5), Seen::Found(5)));
}

fn fill_finds_a_directory_that_has_moved() {
    let w = World::new();
    let d = w.dir("/d", 2);
    w.dir("/e", 3);
    w.file("/d/f", 4);
    // It was moved beside the cache, and is found at its new place first.
    let filled = w.ticket("/e/moved").publish(Binding::new(Kind::Directory, 2).id(2), FOREVER);
    assert!(filled.kept());
    assert!(*filled.node().expect("it exists") == d);
    assert_eq!(w.see("/e/moved/f"), Seen::Found(4));
    // It has one place: what the cache says of the old one is no longer that it is there.
    assert_eq!(w.see("/d"), Seen::Miss("d".into()));
    assert_eq!(w.see("/e/moved/.."), Seen::Found(3));
}

fn fill_of_a_loop_is_stale() {
    let w = World::new();
    w.dir("/a", 2);
    w.dir("/a/b", 3);
    // A store that says that `a` lies below itself has moved things meanwhile, or is mad: no walk may be caught in it.
    let walk = Walk::new();
    let ticket = w.ticket("/a/b/c");
    let filled = ticket.publish(Binding::new(Kind::Directory, 2).id(2), FOREVER);
    assert!(!matches!(w.cache.resume(filled, &walk), Outcome::Found(f) if *f.inode() != 2));
    let seen: Vec<_> = ["/a", "/a/b", "/a/b/c", "/a/b/c/b/c/b/../../.."].iter().map(|p| w.see(p)).collect();
    assert!(!matches!(seen[3], Seen::Found(_)), "{seen:?}");
}

/// Answers that are too old before the walk ends are its own nevertheless.
fn walk_slower_than_its_times() {
    for ms in [0, 1, 32] {
        let w = World::new();
        let (root, walk) = (w.root(), Walk::new());
        let path = (0..12).map(|i| format!("d{i}")).collect::<Vec<_>>().join("/");
        let mut asked = 0;
        let mut outcome = w.cache.walk(&root, path.as_bytes(), &walk);
        while let Outcome::Miss(t) | Outcome::Stale(t) = outcome {
            asked += 1;
            assert!(asked <= 12, "a name is asked for again");
            outcome = w.cache.resume(t.publish(Binding::new(Kind::Directory, 100 + asked), Ttl::For(Duration::from_millis(ms))), &walk);
            w.advance(20);
        }
        assert_eq!((Seen::from(outcome), asked), (Seen::Found(112), 12));
        // Another walk asks.
        assert_eq!(w.see(&path), Seen::Stale("d0".into()));
    }
}
