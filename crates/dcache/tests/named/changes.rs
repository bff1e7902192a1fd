//! Changes: begin, ask the store, commit; what is known meanwhile, and after a drop.

use manyway_dcache::{Binding, Error, Kind, Outcome, Rename, Ttl, Walk};

use crate::common::fs::{Fs, How, Make, No, ROOT};
use crate::common::subject::{Setup, Subject};
use crate::world::{Seen, World, until};

crate::tests!(
    change_is_seen_at_its_commit,
    change_dropped_is_not_known,
    change_refused_changes_nothing,
    change_of_what_cannot_be,
    changes_of_one_name_wait_for_each_other,
    rmdir_then_create_below,
    rmdir_overtakes_what_goes_on_below,
    replaced_directory_is_removed,
    unlinked_node_stays_with_its_handle,
    invalidation_overtakes_a_change,
    empty_directory_forgotten,
    subtree_invalidation_reaches_what_handles_lead_to,
    subtree_invalidation_reaches_orphans,
    name_that_was_taken_away_has_a_time,
    handles_of_another_cache_are_refused,
);

const FOREVER: Ttl = Ttl::Forever;

fn change_is_seen_at_its_commit() {
    let w = World::new();
    let root = w.root();
    w.dir("/d", 2);
    w.file("/d/f", 3);
    w.none("/n");
    let change = w.cache.rename((&root, b"d"), (&root, b"n"), Rename::Replace).expect("it can begin");
    assert_eq!(change.node().map(|h| *h.inode()), Some(2));
    assert!(change.target().is_none());
    // As before, until the store has done it; of the new name it is not said any more that there is none.
    assert_eq!(w.see("/d/f"), Seen::Found(3));
    assert!(matches!(w.see("/n"), Seen::Absent | Seen::Busy));
    change.commit();
    assert_eq!((w.see("/n/f"), w.see("/d/f"), w.see("/d")), (Seen::Found(3), Seen::Absent, Seen::Absent));
    assert_eq!(w.cache.stats().changes, 1);
}

fn change_dropped_is_not_known() {
    let w = World::new();
    let root = w.root();
    w.dir("/d", 2);
    w.file("/a", 3);
    w.file("/b", 4);
    drop(w.cache.unlink(&root, b"a").expect("it can begin"));
    drop(w.cache.rmdir(&root, b"d").expect("it can begin"));
    assert_eq!((w.see("/a"), w.see("/d")), (Seen::Miss("a".into()), Seen::Miss("d".into())));
    w.file("/a", 3);
    drop(w.cache.rename((&root, b"a"), (&root, b"b"), Rename::Exchange).expect("it can begin"));
    assert_eq!((w.see("/a"), w.see("/b")), (Seen::Miss("a".into()), Seen::Miss("b".into())));
    let f = w.file("/a", 3);
    drop(w.cache.link(&f, &root, b"l").expect("it can begin"));
    assert_eq!((w.see("/a"), w.see("/l")), (Seen::Found(3), Seen::Miss("l".into())));
    // Given up by a panic in the store.
    let cache = w.cache.clone();
    let asking = std::thread::spawn(move || {
        let _change = cache.unlink(&cache.root(), b"a").expect("it can begin");
        std::panic::resume_unwind(Box::new("the store"));
    });
    assert!(asking.join().is_err());
    assert_eq!(w.see("/a"), Seen::Miss("a".into()));
}

fn change_refused_changes_nothing() {
    let w = World::new();
    let root = w.root();
    w.dir("/d", 2);
    let f = w.file("/a", 3);
    w.none("/n");
    w.cache.unlink(&root, b"a").expect("it can begin").unchanged();
    w.cache.rmdir(&root, b"d").expect("it can begin").unchanged();
    w.cache.rename((&root, b"a"), (&root, b"n"), Rename::Replace).expect("it can begin").unchanged();
    w.cache.link(&f, &root, b"n").expect("it can begin").unchanged();
    w.cache.create(&root, b"n").expect("it can begin").unchanged();
    w.cache.create(&root, b"unknown").expect("it can begin").unchanged();
    assert_eq!((w.see("/a"), w.see("/d"), w.see("/n")), (Seen::Found(3), Seen::Found(2), Seen::Absent));
    assert_eq!(w.see("/unknown"), Seen::Miss("unknown".into()));
}

/// The error with which a change cannot begin.
fn refused<T>(begun: Result<T, Error>) -> Error {
    begun.err().expect("it cannot begin")
}

fn change_of_what_cannot_be() {
    let w = World::new();
    let root = w.root();
    let d = w.dir("/d", 2);
    let f = w.file("/f", 3);
    w.none("/n");
    assert_eq!(refused(w.cache.create(&root, b"f")), Error::Exists);
    assert_eq!(refused(w.cache.link(&f, &root, b"d")), Error::Exists);
    assert_eq!(refused(w.cache.unlink(&root, b"d")), Error::IsDirectory);
    assert_eq!(refused(w.cache.unlink(&root, b"n")), Error::NotFound);
    assert_eq!(refused(w.cache.rmdir(&root, b"f")), Error::NotDirectory);
    assert_eq!(refused(w.cache.rmdir(&root, b"n")), Error::NotFound);
    assert_eq!(refused(w.cache.create(&f, b"x")), Error::NotDirectory);
    assert_eq!(refused(w.cache.rename((&root, b"n"), (&root, b"x"), Rename::Replace)), Error::NotFound);
    assert_eq!(refused(w.cache.rename((&root, b"f"), (&root, b"d"), Rename::NoReplace)), Error::Exists);
    assert_eq!(refused(w.cache.rename((&root, b"f"), (&root, b"n"), Rename::Exchange)), Error::NotFound);
    assert_eq!(refused(w.cache.rename((&root, b"f"), (&root, b"d"), Rename::Replace)), Error::IsDirectory);
    assert_eq!(refused(w.cache.rename((&root, b"d"), (&root, b"f"), Rename::Replace)), Error::NotDirectory);
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert_eq!(refused(w.cache.create(&d, name)), Error::Invalid, "{name:?}");
        assert_eq!(Seen::from(w.cache.lookup(&d, name)), Seen::Failed(Error::Invalid), "{name:?}");
    }
    assert_eq!(refused(w.cache.create(&d, &[b'x'; 256])), Error::NameTooLong);
    // None of them has left anything behind.
    assert_eq!((w.see("/d"), w.see("/f"), w.see("/n")), (Seen::Found(2), Seen::Found(3), Seen::Absent));
    w.rename("/f", "/n", Rename::NoReplace);
    assert_eq!(w.see("/n"), Seen::Found(3));
}

fn changes_of_one_name_wait_for_each_other() {
    let w = World::new();
    let root = w.root();
    let change = w.cache.create(&root, b"a").expect("it can begin");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| w.cache.create(&w.root(), b"a").map(|c| c.unchanged()));
        let third = scope.spawn(|| w.cache.unlink(&w.root(), b"a").map(|c| c.commit()));
        until("both wait", || w.cache.stats().waits >= 2);
        assert!(!second.is_finished() && !third.is_finished());
        change.commit(Binding::new(Kind::File, 7), FOREVER, false);
        let second = second.join().expect("no panic");
        third.join().expect("no panic").expect("it is there now");
        // It came before the unlink, or after it.
        assert!(second.is_ok() || second == Err(Error::Exists));
    });
    assert_eq!(w.see("/a"), Seen::Absent);
}

fn rmdir_then_create_below() {
    let w = World::new();
    let d = w.dir("/d", 2);
    w.rmdir("/d");
    assert!(d.is_removed());
    assert_eq!(refused(w.cache.create(&d, b"f")), Error::NotFound);
    assert_eq!(refused(w.cache.rename((&w.root(), b"x"), (&d, b"f"), Rename::Replace)), Error::NotFound);
    let f = w.file("/f", 3);
    assert_eq!(refused(w.cache.link(&f, &d, b"f")), Error::NotFound);
    // Nothing is below it, and nobody need ask.
    assert!(matches!(Seen::from(w.cache.lookup(&d, b"f")), Seen::Absent | Seen::Failed(Error::NotFound)));
    assert!(matches!(w.see_from(&d, "f/g", &Walk::new().no_wait()), Seen::Absent | Seen::Failed(Error::NotFound)));
    // A new directory of that name is another.
    w.create("/d", Kind::Directory, 4);
    assert_eq!(refused(w.cache.create(&d, b"f")), Error::NotFound);
    w.create("/d/f", Kind::File, 5);
    assert_eq!(w.see("/d/f"), Seen::Found(5));
    assert_ne!(w.see_from(&d, "f", &Walk::new().no_wait()), Seen::Found(5));
}

fn rmdir_overtakes_what_goes_on_below() {
    let w = World::new();
    let d = w.dir("/d", 2);
    let ticket = w.ticket("/d/f");
    let walk = Walk::new().no_wait();
    let Outcome::Miss(walking) = w.cache.walk(&w.root(), b"/d/g", &walk) else { panic!("it is not known") };
    w.rmdir("/d");
    assert!(!ticket.publish(Binding::new(Kind::File, 3), FOREVER).kept());
    assert_ne!(Seen::from(w.cache.lookup(&d, b"f")), Seen::Found(3));
    // Who had come to it before it was removed does not find anything below it either.
    let filled = walking.publish(Binding::new(Kind::File, 4), FOREVER);
    assert!(!filled.kept());
    assert!(matches!(Seen::from(w.cache.resume(filled, &walk)), Seen::Absent | Seen::Failed(Error::NotFound) | Seen::Miss(_)));
}

fn replaced_directory_is_removed() {
    let w = World::new();
    let victim = w.dir("/victim", 2);
    let ticket = w.ticket("/victim/f");
    w.dir("/d", 3);
    w.file("/d/f", 4);
    w.rename("/d", "/victim", Rename::Replace);
    assert!(victim.is_removed());
    assert!(!ticket.publish(Binding::new(Kind::File, 9), FOREVER).kept());
    assert_eq!(w.see("/victim/f"), Seen::Found(4));
    assert_eq!(refused(w.cache.create(&victim, b"g")), Error::NotFound);
    assert_ne!(w.see_from(&victim, "f", &Walk::new().no_wait()), Seen::Found(4));
}

fn unlinked_node_stays_with_its_handle() {
    let w = World::new();
    let f = w.file("/f", 3);
    w.unlink("/f");
    w.create("/f", Kind::File, 4);
    for i in 0..200 {
        w.create(&format!("/more-{i}"), Kind::File, 100 + i);
    }
    w.cache.reclaim();
    assert_eq!((*f.inode(), f.kind()), (3, Kind::File));
    assert_eq!(w.see("/f"), Seen::Found(4));
    assert_eq!(w.see_from(&f, "", &Walk::new()), Seen::Found(3));
}

fn handles_of_another_cache_are_refused() {
    let (w, other) = (World::new(), World::new());
    let d = other.dir("/d", 2);
    assert_eq!(refused(w.cache.create(&d, b"f")), Error::Invalid);
    assert_eq!(w.see_from(&d, "f", &Walk::new().no_wait()), Seen::Failed(Error::Invalid));
    assert_eq!(refused(w.cache.rename((&w.root(), b"x"), (&d, b"f"), Rename::Replace)), Error::Invalid);
    assert!(w.cache.place(&d).is_none());
    let f = other.file("/d/f", 3);
    w.cache.invalidate_subtree(&d);
    assert_eq!(other.see("/d/f"), Seen::Found(*f.inode()));
}

/// What was made through the cache and is gone again beside it, before the cache was told of the making.
fn invalidation_overtakes_a_change() {
    let w = World::new();
    let root = w.root();
    type Forget<'a> = &'a dyn Fn(&[u8]);
    let invalidate: [Forget<'_>; 3] =
        [&|name| w.cache.invalidate(&root, name), &|_| w.cache.invalidate_subtree(&root), &|_| w.cache.invalidate_all()];
    for (i, invalidate) in invalidate.into_iter().enumerate() {
        let names = ["made", "linked", "gone", "from", "to", "x", "y"].map(|n| format!("{n}{i}"));
        let name = |n: usize| names[n].as_bytes();
        let f = w.file(&format!("/f{i}"), 100);
        let learn = |n: usize| drop(w.file(&format!("/{}", names[n]), 200 + n as u64));
        [2, 3, 5, 6].into_iter().for_each(learn);
        let made = w.cache.create(&root, name(0)).expect("it can begin");
        invalidate(name(0));
        made.commit(Binding::new(Kind::File, 7), FOREVER, false);
        let linked = w.cache.link(&f, &root, name(1)).expect("it can begin");
        invalidate(name(1));
        linked.commit();
        let gone = w.cache.unlink(&root, name(2)).expect("it can begin");
        invalidate(name(2));
        gone.commit();
        for n in [0, 1, 2] {
            assert_eq!(w.see(&names[n]), Seen::Miss(names[n].clone()), "way {i}");
        }
        for (from, to, how) in [(3, 4, Rename::Replace), (5, 6, Rename::Exchange)] {
            // Forgotten with everything, one time or another.
            let known: &[usize] = if how == Rename::Exchange { &[from, to] } else { &[from] };
            known.iter().copied().filter(|&n| matches!(w.see(&names[n]), Seen::Miss(_))).for_each(learn);
            let change = w.cache.rename((&root, name(from)), (&root, name(to)), how).expect("it can begin");
            invalidate(name(to));
            change.commit();
            assert_eq!(w.see(&names[to]), Seen::Miss(names[to].clone()), "way {i}, {how:?}");
        }
        // Only while it is under way.
        w.create(&format!("/after{i}"), Kind::File, 8);
        assert_eq!(w.see(&format!("after{i}")), Seen::Found(8));
    }
}

/// A directory that is known to be empty, and has nothing in the cache that would lead there.
fn empty_directory_forgotten() {
    for held in [false, true] {
        let w = World::new();
        let d = w.create("/d", Kind::Directory, 2);
        assert_eq!(w.see("/d/x"), Seen::Absent);
        if held {
            w.cache.invalidate(&w.root(), b"d");
        }
        w.cache.invalidate_all();
        assert_eq!(Seen::from(w.cache.lookup(&d, b"x")), Seen::Miss("x".into()), "without a name: {held}");
    }
    let w = World::new();
    let d = w.create("/d", Kind::Directory, 2);
    w.cache.invalidate_subtree(&w.root());
    assert_eq!(Seen::from(w.cache.lookup(&d, b"x")), Seen::Miss("x".into()));
}

/// A handle to a directory deep below stays, and what was cached there does not.
fn subtree_invalidation_reaches_what_handles_lead_to() {
    let w = World::new();
    w.dir("/a", 2);
    let b = w.dir("/a/b", 3);
    w.file("/a/b/f", 4);
    w.dir("/z", 5);
    w.file("/z/f", 6);
    w.cache.invalidate_subtree(&w.node("/a"));
    assert_eq!(Seen::from(w.cache.lookup(&b, b"f")), Seen::Miss("f".into()));
    assert_eq!((w.see("/a"), w.see("/a/b"), w.see("/z/f")), (Seen::Found(2), Seen::Miss("b".into()), Seen::Found(6)));
    w.file("/z/g", 7);
    w.cache.invalidate_all();
    assert_eq!((w.see("/a"), w.see("/z")), (Seen::Miss("a".into()), Seen::Miss("z".into())));
}

/// A directory whose own name was forgotten first: what is below it must not come back with it.
fn subtree_invalidation_reaches_orphans() {
    for all in [false, true] {
        let w = World::new();
        w.dir("/d", 2);
        w.dir("/d/e", 3);
        w.file("/d/e/f", 4);
        w.cache.invalidate(&w.root(), b"d");
        // Changed beside the cache, which is told that everything may have changed.
        if all {
            w.cache.invalidate_all()
        } else {
            w.cache.invalidate_subtree(&w.root())
        }
        w.dir("/d", 2);
        if w.see("/d/e") == Seen::Miss("e".into()) {
            w.dir("/d/e", 3);
        }
        assert_eq!(w.see("/d/e/f"), Seen::Miss("f".into()), "everything: {all}");
    }
}

/// In a store whose answers hold for a time, what a change has left holds no longer than that.
fn name_that_was_taken_away_has_a_time() {
    let fs = Fs::default();
    let s = Subject::new(fs, &Setup { ttl: Some(std::time::Duration::from_millis(500)), ..Setup::large() });
    let root = s.tree.root();
    let f = s.create(&root, b"f", &Make::File).expect("new");
    s.create(&root, b"d", &Make::Dir).expect("new");
    s.create(&root, b"g", &Make::File).expect("new");
    s.cache().invalidate_all();
    // Names that the cache does not know are taken away, moved, given to files.
    s.tree.unlink(&root, b"f").expect("it is there");
    s.tree.rmdir(&root, b"d").expect("it is there");
    s.rename((&root, b"g"), (&root, b"h"), How::Replace).expect("it is there");
    let h = s.node("/h");
    s.tree.link(&h, &root, b"l").expect("it is there");
    let e = s.create(&root, b"e", &Make::Dir).expect("new");
    assert_eq!(
        (s.resolve("/f"), s.resolve("/d"), s.resolve("/g"), s.resolve("/e/x")),
        (Err(No::NotFound), Err(No::NotFound), Err(No::NotFound), Err(No::NotFound))
    );
    // Then others come and make, and take away.
    let made = s.sim.with(|fs| {
        fs.unlink(ROOT, b"l").expect("it is there");
        [(ROOT, b"f"), (ROOT, b"d"), (ROOT, b"g"), (e, b"x")].map(|(dir, name)| fs.create(dir, name, Make::File).expect("new"))
    });
    s.clock.advance(std::time::Duration::from_millis(600));
    let seen = ["/f", "/d", "/g", "/e/x", "/l"].map(|p| s.resolve(p));
    assert_eq!(seen, [Ok(made[0]), Ok(made[1]), Ok(made[2]), Ok(made[3]), Err(No::NotFound)]);
    assert_ne!(f, made[0]);
}
