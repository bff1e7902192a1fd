//! Complete directories: what they say is absent is so; and what takes that away.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use manyway_dcache::{Binding, Kind, Listing, Outcome, Rename, Ttl, Walk};

use crate::common::fs::{Fs, Make, No, ROOT};
use crate::common::subject::{Setup, Subject};
use crate::world::{Seen, World};

crate::tests!(
    complete_directory_answers_without_asking,
    partial_listing_not_complete,
    listing_overtaken_by_a_change,
    listing_overtaken_by_an_invalidation,
    listing_takes_away_what_differs,
    complete_directory_follows_changes,
    complete_no_more_after_what_is_not_known,
    complete_no_more_after_eviction,
    complete_for_a_time,
    new_directory_is_empty,
    listing_through_the_tree,
    replaced_name_is_never_absent,
);

const FOREVER: Ttl = Ttl::Forever;

fn put(listing: &mut Listing<u64>, name: &str, inode: u64) -> bool {
    listing.put(name.as_bytes(), Binding::new(Kind::File, inode).id(inode), FOREVER)
}

/// `/d`, complete with `a` and `b`.
fn listed(w: &World) -> manyway_dcache::Handle<u64> {
    let d = w.dir("/d", 2);
    let mut listing = w.cache.list(&d).expect("a directory");
    assert!(put(&mut listing, "a", 3) && put(&mut listing, "b", 4));
    assert!(listing.complete(FOREVER));
    assert_eq!((w.see("/d/a"), w.see("/d/b"), w.see("/d/none")), (Seen::Found(3), Seen::Found(4), Seen::Absent));
    d
}

fn complete_directory_answers_without_asking() {
    let w = World::new();
    let d = listed(&w);
    assert_eq!((w.see("/d/none/below"), w.see("/d/none/")), (Seen::Absent, Seen::Absent));
    assert_eq!(Seen::from(w.cache.lookup(&d, b"none")), Seen::Absent);
    // Another directory is not complete for that.
    assert_eq!(w.see("/none"), Seen::Miss("none".into()));
    assert_eq!(w.cache.stats().negatives, 0, "no entry says so");
}

fn partial_listing_not_complete() {
    let w = World::new();
    let d = w.dir("/d", 2);
    let mut listing = w.cache.list(&d).expect("a directory");
    assert!(put(&mut listing, "a", 3));
    // While it goes on.
    assert_eq!(w.see("/d/b"), Seen::Miss("b".into()));
    drop(listing);
    assert_eq!((w.see("/d/a"), w.see("/d/b")), (Seen::Found(3), Seen::Miss("b".into())));
    // One whose names were not all kept.
    w.unlink("/d/a");
    let mut listing = w.cache.list(&d).expect("a directory");
    assert!(!listing.put(b"a", Binding::new(Kind::File, 3), Ttl::No), "an answer without time");
    assert!(!listing.complete(FOREVER));
    assert_ne!(w.see("/d/none"), Seen::Absent);
}

fn listing_overtaken_by_a_change() {
    let w = World::new();
    let d = w.dir("/d", 2);
    w.file("/d/a", 3);
    w.file("/x", 9);
    // The store has listed `a`, and not yet `c`.
    let mut listing = w.cache.list(&d).expect("a directory");
    w.unlink("/d/a");
    w.create("/d/c", Kind::File, 5);
    put(&mut listing, "a", 3);
    assert!(!listing.complete(FOREVER), "names have changed since it began");
    assert_ne!(w.see("/d/a"), Seen::Found(3), "what was listed is not so any more");
    assert_eq!(w.see("/d/c"), Seen::Found(5));
    assert_ne!(w.see("/d/none"), Seen::Absent);
    // A change that begins before the end of the listing and is not committed: either order is possible.
    let mut listing = w.cache.list(&d).expect("a directory");
    let change = w.cache.create(&d, b"e").expect("it can begin");
    put(&mut listing, "c", 5);
    put(&mut listing, "e", 66);
    let _ = listing.complete(FOREVER);
    assert_ne!(w.see("/d/e"), Seen::Found(66), "what a change is about to say is not said by a listing");
    change.commit(Binding::new(Kind::File, 6), FOREVER, false);
    assert_eq!(w.see("/d/e"), Seen::Found(6));
    // The same for a name that came by rename.
    let mut listing = w.cache.list(&d).expect("a directory");
    w.rename("/x", "/d/x", Rename::Replace);
    put(&mut listing, "c", 5);
    put(&mut listing, "e", 6);
    let _ = listing.complete(FOREVER);
    assert_eq!(w.see("/d/x"), Seen::Found(9));
    // One that has put nothing.
    let listing = w.cache.list(&d).expect("a directory");
    w.create("/d/late", Kind::File, 10);
    assert!(!listing.complete(FOREVER));
    // A change of another directory does not matter.
    let listing = w.cache.list(&d).expect("a directory");
    w.create("/y", Kind::File, 7);
    assert!(listing.complete(FOREVER));
}

fn listing_overtaken_by_an_invalidation() {
    let w = World::new();
    let d = w.dir("/d", 2);
    let ways: [&dyn Fn(); 3] =
        [&|| w.cache.invalidate(&d, b"new"), &|| w.cache.invalidate_subtree(&w.root()), &|| w.cache.invalidate_all()];
    for (i, invalidate) in ways.into_iter().enumerate() {
        let mut listing = w.cache.list(&d).expect("a directory");
        // Made beside the cache, after the store had listed.
        invalidate();
        put(&mut listing, "a", 3);
        assert!(!listing.complete(FOREVER), "way {i}");
        assert_ne!(Seen::from(w.cache.lookup(&d, b"new")), Seen::Absent, "way {i}");
    }
}

fn listing_takes_away_what_differs() {
    let w = World::new();
    let d = w.dir("/d", 2);
    w.file("/d/a", 3);
    assert!(w.ticket("/d/b").absent(FOREVER).kept());
    // The store has another `a`, and a `b`.
    let mut listing = w.cache.list(&d).expect("a directory");
    assert!(put(&mut listing, "a", 30) && put(&mut listing, "b", 4));
    assert!(listing.complete(FOREVER));
    assert_eq!((w.see("/d/a"), w.see("/d/b")), (Seen::Found(30), Seen::Found(4)));
}

fn complete_directory_follows_changes() {
    let w = World::new();
    let d = listed(&w);
    w.create("/d/c", Kind::File, 5);
    w.unlink("/d/a");
    w.rename("/d/b", "/d/bb", Rename::Replace);
    w.file("/x", 9);
    w.rename("/x", "/d/x", Rename::Replace);
    w.none("/c");
    w.rename("/d/c", "/c", Rename::Replace);
    let seen: Vec<_> = ["/d/a", "/d/b", "/d/c", "/d/bb", "/d/x"].map(|p| w.see(p)).into();
    assert_eq!(seen, [Seen::Absent, Seen::Absent, Seen::Absent, Seen::Found(4), Seen::Found(9)]);
    // All of that was known, so it is complete still; and goes with the directory.
    assert_eq!(w.see("/d/none"), Seen::Absent);
    w.rename("/d", "/e", Rename::Replace);
    assert_eq!((w.see("/e/none"), w.see("/e/x"), w.see("/d")), (Seen::Absent, Seen::Found(9), Seen::Absent));
    assert_eq!(Seen::from(w.cache.lookup(&d, b"none")), Seen::Absent);
}

fn complete_no_more_after_what_is_not_known() {
    let w = World::new();
    let d = listed(&w);
    let list = || {
        let mut listing = w.cache.list(&d).expect("a directory");
        assert!(put(&mut listing, "a", 3) && put(&mut listing, "b", 4) && listing.complete(FOREVER));
        assert_eq!(w.see("/d/none"), Seen::Absent);
    };
    let ways: [(&str, &dyn Fn()); 6] = [
        ("making given up", &|| drop(w.cache.create(&d, b"none").expect("it can begin"))),
        ("unlink given up", &|| drop(w.cache.unlink(&d, b"a").expect("it can begin"))),
        ("rename given up", &|| drop(w.cache.rename((&d, b"a"), (&d, b"none"), Rename::Replace).expect("it can begin"))),
        ("name forgotten", &|| w.cache.invalidate(&d, b"none")),
        ("subtree forgotten", &|| w.cache.invalidate_subtree(&w.root())),
        ("everything forgotten", &|| w.cache.invalidate_all()),
    ];
    for (what, way) in ways {
        list();
        way();
        for name in [&b"none"[..], b"a"] {
            let seen = Seen::from(w.cache.lookup(&d, name));
            assert_ne!(seen, Seen::Absent, "{what}: {:?}", String::from_utf8_lossy(name));
        }
        if let Seen::Miss(_) = w.see("/d") {
            w.ticket("/d").publish(Binding::node(&d), FOREVER);
        }
    }
    // Other names' fate does not matter, and a refusal is knowledge.
    list();
    w.cache.create(&d, b"none").expect("it can begin").unchanged();
    w.cache.unlink(&d, b"a").expect("it can begin").unchanged();
    w.cache.invalidate(&w.root(), b"other");
    assert_eq!((w.see("/d/none"), w.see("/d/a")), (Seen::Absent, Seen::Found(3)));
}

fn complete_no_more_after_eviction() {
    let w = World::new();
    let d = listed(&w);
    // What was met is spared once; a directory that somebody holds stays.
    let evicted: usize = (0..3).map(|_| w.cache.shrink(1000)).sum();
    assert_eq!(evicted, 2);
    for name in [&b"a"[..], b"b", b"none"] {
        let seen = Seen::from(w.cache.lookup(&d, name));
        assert!(matches!(seen, Seen::Miss(_) | Seen::Found(_)), "{:?}: {seen:?}", String::from_utf8_lossy(name));
    }
}

fn complete_for_a_time() {
    let w = World::new();
    let d = w.dir("/d", 2);
    let listing = w.cache.list(&d).expect("a directory");
    assert!(listing.complete(Ttl::For(Duration::from_millis(500))));
    w.advance(400);
    assert_eq!(w.see("/d/none"), Seen::Absent);
    w.advance(200);
    assert_eq!(w.see("/d/none"), Seen::Miss("none".into()));
    let listing = w.cache.list(&d).expect("a directory");
    assert!(!listing.complete(Ttl::No));
    assert_eq!(w.see("/d/none"), Seen::Miss("none".into()));
}

fn new_directory_is_empty() {
    let w = World::new();
    w.create("/d", Kind::Directory, 2);
    assert_eq!(w.see("/d/none"), Seen::Absent);
    let root = w.root();
    let change = w.cache.create(&root, b"e").expect("it can begin");
    change.commit(Binding::new(Kind::Directory, 3), FOREVER, false);
    assert_eq!(w.see("/e/none"), Seen::Miss("none".into()));
    w.create("/d/f", Kind::File, 4);
    assert_eq!((w.see("/d/f"), w.see("/d/g")), (Seen::Found(4), Seen::Absent));
}

fn listing_through_the_tree() {
    let mut fs = Fs::default();
    let d = fs.create(ROOT, b"d", Make::Dir).expect("new");
    for name in [b"a", b"b", b"c"] {
        fs.create(d, name, Make::File).expect("new");
    }
    let s = Subject::new(fs, &Setup::large());
    let names = s.tree.list(&s.node("/d")).expect("a directory");
    assert_eq!(names.len(), 3);
    let lookups = s.sim.lookups();
    assert_eq!((s.resolve("/d/none"), s.resolve("/d/a").is_ok()), (Err(No::NotFound), true));
    assert_eq!(s.sim.lookups(), lookups, "the listing has said it all");
    assert_eq!(s.create(&s.node("/d"), b"new", &Make::File), s.resolve("/d/new"));
    drop(names);
    s.end();
}

/// A name that leads to one file after the other is there throughout, also in a directory that says what is absent.
fn replaced_name_is_never_absent() {
    let w = World::new();
    let d = listed(&w);
    let (done, mut complete) = (AtomicBool::new(false), 0);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(SeqCst) {
                let seen = w.see_from(&d, "a", &Walk::new().no_wait());
                assert!(!matches!(seen, Seen::Absent), "it is there");
            }
        });
        for i in 0..100_000u64 {
            // A listing finds another file under the name ...
            let mut listing = w.cache.list(&d).expect("a directory");
            let short = Ttl::For(Duration::from_millis(32));
            let kept = listing.put(b"a", Binding::new(Kind::File, 100 + 2 * i).id(100 + 2 * i), short);
            if kept && put(&mut listing, "b", 4) {
                complete += u32::from(listing.complete(FOREVER));
            }
            // ... and so does who asks when its time is over.
            w.clock.advance(Duration::from_millis(64));
            if let Outcome::Stale(ticket) = w.cache.walk(&d, b"a", &Walk::new().no_wait()) {
                ticket.publish(Binding::new(Kind::File, 101 + 2 * i).id(101 + 2 * i), short);
            }
        }
        done.store(true, SeqCst);
    });
    // Not each time: while a walker is off its processor there may be no room.
    assert!(complete > 0, "it never said what is absent");
}
