//! The cache's orderings, in all interleavings of small programs. `RUSTFLAGS="--cfg loom" cargo test --release -p manyway-dcache --test loom_walk`
//!
//! Reclamation is a stand-in that frees as early as it may and faults a use afterwards; the rest are the lines that a file system runs.
#![cfg(loom)]

use loom::thread;
use manyway_dcache::{Binding, Cache, Config, Handle, Kind, Outcome, Rename, Ttl, Walk};

/// Runs `f` in all interleavings of up to so many preemptions, with all values that a load may return. `MANYWAY_LOOM_PREEMPTIONS` sets another bound: two for
/// all is a matter of many minutes.
fn check_up_to(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let bound = std::env::var("MANYWAY_LOOM_PREEMPTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(preemptions);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(bound);
    model.max_branches = 100_000;
    model.check(f);
}

fn check(f: impl Fn() + Sync + Send + 'static) {
    check_up_to(2, f);
}

/// For models with a whole change in them. Accesses to different words are tried in all orders, too: what a walk looks at again are other words than those that
/// it has found meanwhile.
fn check_change(f: impl Fn() + Sync + Send + 'static) {
    manyway_sync::model::thoroughly(|| check_up_to(1, f));
}

fn cache() -> Cache<u32> {
    Cache::new(1, Config::new().entries(64).seed(7))
}

fn put(cache: &Cache<u32>, dir: &Handle<u32>, name: &[u8], kind: Kind, inode: u32) -> Handle<u32> {
    let Outcome::Miss(ticket) = cache.lookup(dir, name) else { panic!() };
    ticket.publish(Binding::new(kind, inode), Ttl::Forever).node().unwrap().clone()
}

fn absent(cache: &Cache<u32>, dir: &Handle<u32>, name: &[u8]) {
    let Outcome::Miss(ticket) = cache.lookup(dir, name) else { panic!() };
    ticket.absent(Ttl::Forever);
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum Seen {
    Found(u32),
    Absent,
    Unknown,
}

fn walk(cache: &Cache<u32>, path: &[u8]) -> Seen {
    match cache.walk(&cache.root(), path, &Walk::new()) {
        Outcome::Found(f) => Seen::Found(*f.inode()),
        Outcome::Absent(_) => Seen::Absent,
        Outcome::Miss(_) => Seen::Unknown,
        _ => panic!(),
    }
}

/// BIND, CHAIN: who finds a name that is being filled finds the whole of it; who waits for it is called.
#[test]
fn filled_name_is_found_whole() {
    check(|| {
        let cache = cache();
        let Outcome::Miss(ticket) = cache.lookup(&cache.root(), b"x") else { panic!() };
        let filler = thread::spawn(move || assert!(ticket.publish(Binding::new(Kind::File, 5), Ttl::Forever).kept()));
        assert_eq!(walk(&cache, b"x"), Seen::Found(5));
        filler.join().unwrap();
    });
}

/// A filler that goes away releases who waits, and that one asks.
#[test]
fn dropped_ticket_is_handed_on() {
    check_change(|| {
        let cache = cache();
        let Outcome::Miss(ticket) = cache.lookup(&cache.root(), b"x") else { panic!() };
        let filler = thread::spawn(move || drop(ticket));
        assert_eq!(walk(&cache, b"x"), Seen::Unknown);
        filler.join().unwrap();
    });
}

/// KILL: a name that moves is at the old place or at the new one for who looks at the old one first.
#[test]
fn renamed_file_is_never_nowhere() {
    check_change(|| {
        let cache = cache();
        let root = cache.root();
        put(&cache, &root, b"a", Kind::File, 5);
        absent(&cache, &root, b"b");
        let mover = {
            let (cache, root) = (cache.clone(), root.clone());
            thread::spawn(move || cache.rename((&root, b"a"), (&root, b"b"), Rename::Replace).unwrap().commit())
        };
        let (a, b) = (walk(&cache, b"a"), walk(&cache, b"b"));
        assert!(a == Seen::Found(5) || b == Seen::Found(5), "{a:?} {b:?}");
        mover.join().unwrap();
        assert_eq!((walk(&cache, b"a"), walk(&cache, b"b")), (Seen::Absent, Seen::Found(5)));
    });
}

/// KILL: and never at both for who looks at the new one first.
#[test]
fn renamed_file_is_never_at_both_places() {
    check_change(|| {
        let cache = cache();
        let root = cache.root();
        put(&cache, &root, b"a", Kind::File, 5);
        absent(&cache, &root, b"b");
        let mover = {
            let (cache, root) = (cache.clone(), root.clone());
            thread::spawn(move || cache.rename((&root, b"a"), (&root, b"b"), Rename::Replace).unwrap().commit())
        };
        let (b, a) = (walk(&cache, b"b"), walk(&cache, b"a"));
        assert!(!(a == Seen::Found(5) && b == Seen::Found(5)), "{a:?} {b:?}");
        mover.join().unwrap();
    });
}

/// Walks `path` while `d` becomes `e` and then gets `f`.
fn walk_beside_a_rename(path: &'static [u8]) {
    check_change(move || {
        let cache = cache();
        let root = cache.root();
        let d = put(&cache, &root, b"d", Kind::Directory, 2);
        absent(&cache, &root, b"e");
        absent(&cache, &d, b"f");
        // Met once, by who goes through all cases, so that the plain walk goes over them.
        assert_eq!(walk(&cache, b"d/f"), Seen::Absent);
        let changer = {
            let cache = cache.clone();
            thread::spawn(move || {
                cache.rename((&root, b"d"), (&root, b"e"), Rename::Replace).unwrap().commit();
                cache.create(&d, b"f").unwrap().commit(Binding::new(Kind::File, 9), Ttl::Forever, false);
                assert_eq!(walk(&cache, b"e/f"), Seen::Found(9));
            })
        };
        assert_eq!(walk(&cache, path), Seen::Absent);
        changer.join().unwrap();
    });
}

/// KILL: a path is not put together from two moments: `d/f` never exists, since `f` is made when `d` is `e`.
#[test]
fn path_of_two_moments_is_not_found() {
    walk_beside_a_rename(b"d/f");
}

/// KILL: the same for the walk that knows all cases.
#[test]
fn path_of_two_moments_is_not_found_with_dots() {
    walk_beside_a_rename(b"./d/./f");
}

/// VERSION: what an eviction takes out of a complete directory is not called absent.
#[test]
fn evicted_name_is_not_called_absent() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        let mut listing = cache.list(&root).unwrap();
        assert!(listing.put(b"x", Binding::new(Kind::File, 5), Ttl::Forever));
        assert!(listing.complete(Ttl::Forever));
        assert_eq!(walk(&cache, b"y"), Seen::Absent);
        let evictor = {
            let cache = cache.clone();
            thread::spawn(move || cache.shrink(1))
        };
        assert_ne!(walk(&cache, b"x"), Seen::Absent);
        assert_eq!(evictor.join().unwrap(), 1);
    });
}

/// VERSION: nor what comes in by a change while somebody looks for it in a complete directory, once it is there.
#[test]
fn created_name_is_seen_by_who_creates_it() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        assert!(cache.list(&root).unwrap().complete(Ttl::Forever));
        let creator = {
            let (cache, root) = (cache.clone(), root.clone());
            thread::spawn(move || {
                cache.create(&root, b"x").unwrap().commit(Binding::new(Kind::File, 5), Ttl::Forever, false);
                assert_eq!(walk(&cache, b"x"), Seen::Found(5));
            })
        };
        assert_ne!(walk(&cache, b"x"), Seen::Unknown);
        creator.join().unwrap();
        assert_eq!(walk(&cache, b"x"), Seen::Found(5));
    });
}

/// What a walker stands on is not freed under it (the stand-in for reclamation says so).
#[test]
fn entry_under_a_walk_is_not_freed() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        let d = put(&cache, &root, b"d", Kind::Directory, 2);
        put(&cache, &d, b"f", Kind::File, 3);
        let evictor = {
            let cache = cache.clone();
            thread::spawn(move || {
                cache.invalidate_subtree(&cache.root());
                cache.reclaim();
            })
        };
        assert_ne!(walk(&cache, b"d/f"), Seen::Absent);
        evictor.join().unwrap();
    });
}

/// REMOVED: nothing is below a directory that was removed, whatever was under way.
#[test]
fn removed_directory_stays_empty() {
    check_change(|| {
        let cache = cache();
        let root = cache.root();
        let d = put(&cache, &root, b"d", Kind::Directory, 2);
        let remover = {
            let (cache, root) = (cache.clone(), root.clone());
            thread::spawn(move || cache.rmdir(&root, b"d").unwrap().commit())
        };
        let before = match cache.lookup(&d, b"f") {
            Outcome::Miss(ticket) => Some(ticket.publish(Binding::new(Kind::File, 9), Ttl::Forever).kept()),
            Outcome::Absent(_) => None,
            _ => panic!(),
        };
        remover.join().unwrap();
        assert!(matches!(cache.lookup(&d, b"f"), Outcome::Absent(_)), "{before:?}");
        assert_eq!(walk(&cache, b"d"), Seen::Absent);
    });
}
