//! The engine's parts together, one promise a test.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use crate::*;

type Gone = Arc<Mutex<Vec<u64>>>;

fn cache() -> Cache<u32> {
    Cache::new(1, Config::new().entries(1024))
}

fn with_hook(config: Config<u32>) -> (Cache<u32>, Gone) {
    let gone = Gone::default();
    let seen = gone.clone();
    (Cache::new(1, config.evicted(move |number, _| seen.lock().unwrap().push(number))), gone)
}

/// Makes `name` known.
fn put(cache: &Cache<u32>, dir: &Handle<u32>, name: &str, kind: Kind, inode: u32) -> Handle<u32> {
    match cache.lookup(dir, name.as_bytes()) {
        Outcome::Miss(ticket) => {
            let filled = ticket.publish(Binding::new(kind, inode), Ttl::Forever);
            assert!(filled.kept());
            filled.node().unwrap().clone()
        }
        Outcome::Absent(_) => cache.create(dir, name.as_bytes()).unwrap().commit(Binding::new(kind, inode), Ttl::Forever, false),
        _ => panic!("{name} is known"),
    }
}

fn link(cache: &Cache<u32>, dir: &Handle<u32>, name: &str, target: &str) {
    let Outcome::Miss(ticket) = cache.lookup(dir, name.as_bytes()) else { panic!() };
    ticket.publish(Binding::new(Kind::Link, 0).target(target.as_bytes()), Ttl::Forever);
}

#[derive(Debug, PartialEq)]
enum Seen {
    Found(u32),
    Absent,
    Miss(String),
    Stale(String),
    Place(u32, String),
    Orphan,
    Failed(Error),
}

fn see(outcome: Outcome<'_, u32>) -> Seen {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    match outcome {
        Outcome::Found(f) => Seen::Found(*f.inode()),
        Outcome::Absent(_) => Seen::Absent,
        Outcome::Miss(t) => Seen::Miss(text(t.name())),
        Outcome::Stale(t) => Seen::Stale(text(t.name())),
        Outcome::Place(p) => Seen::Place(*p.directory().inode(), text(p.name())),
        Outcome::Orphan(_) => Seen::Orphan,
        Outcome::Failed(e) => Seen::Failed(e),
        Outcome::Target(_) => panic!("targets are known here"),
        Outcome::Busy(_) => panic!("nobody else is here"),
    }
}

fn walk(cache: &Cache<u32>, path: &str) -> Seen {
    see(cache.walk(&cache.root(), path.as_bytes(), &Walk::new()))
}

/// /a 2, /a/b 3, /a/b/file 4, /link → a/b
fn small() -> (Cache<u32>, Handle<u32>, Handle<u32>) {
    let cache = cache();
    let root = cache.root();
    let a = put(&cache, &root, "a", Kind::Directory, 2);
    let b = put(&cache, &a, "b", Kind::Directory, 3);
    put(&cache, &b, "file", Kind::File, 4);
    link(&cache, &root, "link", "a/b");
    (cache, a, b)
}

#[test]
fn paths_are_walked() {
    let (cache, a, b) = small();
    for (path, seen) in [
        ("", Seen::Found(1)),
        ("/", Seen::Found(1)),
        ("a", Seen::Found(2)),
        ("/a//b/", Seen::Found(3)),
        ("a/b/file", Seen::Found(4)),
        ("a/./b/../b/file", Seen::Found(4)),
        ("../../a", Seen::Found(2)),
        ("link/file", Seen::Found(4)),
        ("link/../b", Seen::Found(3)),
        ("link", Seen::Found(3)),
        ("a/b/file/", Seen::Failed(Error::NotDirectory)),
        ("a/b/file/x", Seen::Failed(Error::NotDirectory)),
        ("a/b/file/..", Seen::Failed(Error::NotDirectory)),
        ("a/x", Seen::Miss("x".into())),
        ("link/x/y", Seen::Miss("x".into())),
    ] {
        assert_eq!(walk(&cache, path), seen, "{path}");
    }
    let from = |start: &Handle<u32>, path: &str, options: Walk<'_, u32>| see(cache.walk(start, path.as_bytes(), &options));
    assert_eq!(from(&b, "../b/file", Walk::new()), Seen::Found(4));
    assert_eq!(from(&b, "../../a", Walk::new()), Seen::Found(2));
    assert_eq!(from(&b, "..", Walk::new().root(&a)), Seen::Found(2));
    assert_eq!(from(&b, "../..", Walk::new().root(&a)), Seen::Found(2));
    assert_eq!(from(&b, "/b", Walk::new().root(&a)), Seen::Found(3));
    let root = cache.root();
    assert_eq!(from(&root, "link", Walk::new().no_follow()), Seen::Found(0));
    assert_eq!(from(&root, "link/", Walk::new().no_follow()), Seen::Found(3));
    assert_eq!(from(&root, "a/b/file", Walk::new().directory()), Seen::Failed(Error::NotDirectory));
    assert_eq!(from(&root, "a/b/new/", Walk::new().create()), Seen::Place(3, "new".into()));
    assert_eq!(from(&root, "link/new", Walk::new().parent()), Seen::Place(3, "new".into()));
    assert_eq!(from(&root, "a/..", Walk::new().parent()), Seen::Failed(Error::Invalid));
    assert_eq!(from(&root, "a/b/file", Walk::new().search(&|i| *i != 2)), Seen::Failed(Error::Denied));
    assert_eq!(from(&root, "a/b", Walk::new().search(&|i| *i != 3)), Seen::Found(3));
    let long = "x".repeat(256);
    assert_eq!(from(&root, &long, Walk::new()), Seen::Failed(Error::NameTooLong));
}

#[test]
fn links_end() {
    let cache = cache();
    let root = cache.root();
    link(&cache, &root, "x", "y");
    link(&cache, &root, "y", "./x");
    assert_eq!(walk(&cache, "x"), Seen::Failed(Error::Loop));
    let d = put(&cache, &root, "d", Kind::Directory, 7);
    link(&cache, &d, "up", "/d/../d");
    assert_eq!(walk(&cache, "d/up/up/up"), Seen::Found(7));
}

#[test]
fn changes_are_seen() {
    let (cache, a, b) = small();
    let root = cache.root();
    cache.unlink(&b, b"file").unwrap().commit();
    assert_eq!(walk(&cache, "a/b/file"), Seen::Absent);
    assert_eq!(cache.unlink(&b, b"file").err(), Some(Error::NotFound));
    put(&cache, &b, "file", Kind::File, 5);
    assert_eq!(walk(&cache, "a/b/file"), Seen::Found(5));
    cache.rename((&a, b"b"), (&root, b"c"), Rename::Replace).unwrap().commit();
    assert_eq!(walk(&cache, "a/b/file"), Seen::Absent);
    assert_eq!(walk(&cache, "c/file"), Seen::Found(5));
    assert_eq!(see(cache.walk(&b, b"..", &Walk::new())), Seen::Found(1));
    assert_eq!(cache.rename((&root, b"c"), (&b, b"x"), Rename::Replace).err(), Some(Error::Invalid));
    assert_eq!(cache.rename((&root, b"c"), (&root, b"a"), Rename::NoReplace).err(), Some(Error::Exists));
    cache.rename((&root, b"c"), (&root, b"a"), Rename::Exchange).unwrap().commit();
    assert_eq!(walk(&cache, "a/file"), Seen::Found(5));
    assert_eq!(walk(&cache, "c"), Seen::Found(2));
    // Dropped: nothing is known of either name.
    drop(cache.rename((&root, b"c"), (&root, b"a"), Rename::Exchange).unwrap());
    assert_eq!(walk(&cache, "a"), Seen::Miss("a".into()));
    assert_eq!(walk(&cache, "c"), Seen::Miss("c".into()));
    assert_eq!(see(cache.walk(&b, b"..", &Walk::new())), Seen::Orphan);
}

#[test]
fn removed_directories_have_nothing_below() {
    let (cache, a, b) = small();
    cache.unlink(&b, b"file").unwrap().commit();
    assert_eq!(cache.unlink(&a, b"b").err(), Some(Error::IsDirectory));
    cache.rmdir(&a, b"b").unwrap().commit();
    assert!(b.is_removed());
    assert_eq!(walk(&cache, "a/b/x"), Seen::Absent);
    assert_eq!(see(cache.lookup(&b, b"file")), Seen::Absent);
    assert_eq!(see(cache.lookup(&b, b"x")), Seen::Absent);
    assert_eq!(cache.create(&b, b"x").err(), Some(Error::NotFound));
}

#[test]
fn two_names_of_one_file() {
    let (cache, a, b) = small();
    let Outcome::Found(f) = cache.lookup(&b, b"file") else { panic!() };
    let file = f.handle();
    drop(f);
    cache.link(&file, &a, b"other").unwrap().commit();
    let Outcome::Found(f) = cache.lookup(&a, b"other") else { panic!() };
    assert_eq!(f.handle(), file);
    drop(f);
    // Nothing happens.
    cache.rename((&a, b"other"), (&b, b"file"), Rename::Replace).unwrap().commit();
    assert_eq!((walk(&cache, "a/other"), walk(&cache, "a/b/file")), (Seen::Found(4), Seen::Found(4)));
    cache.unlink(&b, b"file").unwrap().commit();
    assert_eq!((walk(&cache, "a/other"), walk(&cache, "a/b/file")), (Seen::Found(4), Seen::Absent));
}

#[test]
fn numbers_join_nodes() {
    let cache = cache();
    let root = cache.root();
    let fill = |dir: &Handle<u32>, name: &str, kind, id| {
        let Outcome::Miss(ticket) = cache.lookup(dir, name.as_bytes()) else { panic!("{name}") };
        ticket.publish(Binding::new(kind, id as u32).id(id), Ttl::Forever).node().unwrap().clone()
    };
    let one = fill(&root, "one", Kind::File, 10);
    assert_eq!(one, fill(&root, "two", Kind::File, 10));
    let d = fill(&root, "d", Kind::Directory, 11);
    let x = fill(&root, "x", Kind::Directory, 12);
    put(&cache, &x, "file", Kind::File, 5);
    // x has moved beside the cache.
    assert_eq!(x, fill(&d, "moved", Kind::Directory, 12));
    assert_eq!(walk(&cache, "d/moved/file"), Seen::Found(5));
    assert_eq!(walk(&cache, "x"), Seen::Miss("x".into()));
    assert_eq!(see(cache.walk(&x, b"..", &Walk::new())), Seen::Found(11));
}

#[test]
fn listings_make_directories_complete() {
    let (cache, a, _b) = small();
    let root = cache.root();
    let mut listing = cache.list(&a).unwrap();
    assert!(listing.put(b"b", Binding::new(Kind::Directory, 99), Ttl::Forever));
    assert!(listing.put(b"c", Binding::new(Kind::File, 6), Ttl::Forever));
    assert!(listing.complete(Ttl::Forever));
    assert_eq!(walk(&cache, "a/b"), Seen::Found(3), "the node that was known");
    assert_eq!((walk(&cache, "a/c"), walk(&cache, "a/x"), walk(&cache, "a/x/y")), (Seen::Found(6), Seen::Absent, Seen::Absent));
    assert_eq!(see(cache.lookup(&root, b"x")), Seen::Miss("x".into()));
    // A change keeps it complete, an eviction does not.
    put(&cache, &a, "x", Kind::File, 8);
    assert_eq!((walk(&cache, "a/x"), walk(&cache, "a/y")), (Seen::Found(8), Seen::Absent));
    cache.invalidate(&a, b"x");
    assert_eq!((walk(&cache, "a/x"), walk(&cache, "a/y")), (Seen::Miss("x".into()), Seen::Miss("y".into())));
    // A change that comes between.
    let mut listing = cache.list(&a).unwrap();
    put(&cache, &a, "z", Kind::File, 9);
    cache.unlink(&a, b"z").unwrap().commit();
    assert!(!listing.put(b"z", Binding::new(Kind::File, 9), Ttl::Forever));
    assert!(!listing.complete(Ttl::Forever));
    assert_eq!(walk(&cache, "a/z"), Seen::Absent);
    // A new directory is complete from the start.
    let Ok(creation) = cache.create(&a, b"new") else { panic!() };
    creation.commit(Binding::new(Kind::Directory, 20), Ttl::Forever, true);
    assert_eq!(walk(&cache, "a/new/x"), Seen::Absent);
}

#[test]
fn time_runs_out() {
    let clock = ManualClock::new();
    let cache: Cache<u32> = Cache::new(1, Config::new().clock(clock.clone()));
    let root = cache.root();
    let second = Ttl::For(Duration::from_secs(1));
    for name in [&b"d"[..], b"e"] {
        let Outcome::Miss(ticket) = cache.lookup(&root, name) else { panic!() };
        ticket.publish(Binding::new(Kind::Directory, 2), second);
    }
    let Outcome::Miss(ticket) = cache.lookup(&root, b"none") else { panic!() };
    ticket.absent(second);
    clock.advance(Duration::from_millis(900));
    assert_eq!((walk(&cache, "d"), walk(&cache, "none")), (Seen::Found(2), Seen::Absent));
    clock.advance(Duration::from_millis(100));
    assert_eq!((walk(&cache, "d/x"), walk(&cache, "none")), (Seen::Stale("d".into()), Seen::Stale("none".into())));
    let Outcome::Stale(ticket) = cache.walk(&root, b"d", &Walk::new()) else { panic!() };
    assert_eq!(ticket.known().map(|k| *k.inode()), Some(2));
    assert!(matches!(cache.walk(&root, b"d", &Walk::new().no_wait()), Outcome::Busy(_)));
    assert!(ticket.same(second).kept());
    assert_eq!(walk(&cache, "d"), Seen::Found(2));
    let Outcome::Stale(ticket) = cache.walk(&root, b"e", &Walk::new()) else { panic!() };
    assert!(ticket.absent(Ttl::Forever).kept());
    assert_eq!(walk(&cache, "e"), Seen::Absent);
    let Outcome::Stale(ticket) = cache.walk(&root, b"none", &Walk::new()) else { panic!() };
    assert!(ticket.publish(Binding::new(Kind::File, 3), Ttl::Forever).kept());
    assert_eq!(walk(&cache, "none"), Seen::Found(3));
}

#[test]
fn answers_that_are_not_kept_serve_their_walk() {
    let cache = cache();
    let root = cache.root();
    let mut asked = Vec::new();
    let mut outcome = cache.walk(&root, b"a/b/c", &Walk::new());
    loop {
        let ticket = match outcome {
            Outcome::Miss(ticket) => ticket,
            outcome => {
                assert_eq!(see(outcome), Seen::Found(3));
                break;
            }
        };
        asked.push(ticket.name().to_vec());
        let kind = if ticket.name() == b"c" { Kind::File } else { Kind::Directory };
        let filled = ticket.publish(Binding::new(kind, asked.len() as u32), Ttl::No);
        assert!(!filled.kept());
        outcome = cache.resume(filled, &Walk::new());
    }
    assert_eq!(asked, [b"a", b"b", b"c"]);
    assert_eq!(walk(&cache, "a"), Seen::Miss("a".into()));
}

#[test]
fn one_asks_and_others_wait() {
    let cache = cache();
    let root = cache.root();
    let Outcome::Miss(ticket) = cache.lookup(&root, b"x") else { panic!() };
    std::thread::scope(|s| {
        let waiters: Vec<_> = (0..3).map(|_| s.spawn(|| see(cache.lookup(&cache.root(), b"x")))).collect();
        while cache.stats().waits < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        ticket.failed(Error::Os(5));
        for w in waiters {
            assert_eq!(w.join().unwrap(), Seen::Failed(Error::Os(5)));
        }
    });
    let Outcome::Miss(ticket) = cache.lookup(&root, b"x") else { panic!("nothing is kept of an error") };
    std::thread::scope(|s| {
        let waiter = s.spawn(|| see(cache.lookup(&cache.root(), b"x")));
        while cache.stats().waits < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(ticket);
        assert_eq!(waiter.join().unwrap(), Seen::Miss("x".into()), "a filler that goes away lets the next one ask");
    });
}

#[test]
fn fills_are_overtaken() {
    let cache = cache();
    let root = cache.root();
    let Outcome::Miss(ticket) = cache.lookup(&root, b"x") else { panic!() };
    cache.create(&root, b"x").unwrap().commit(Binding::new(Kind::File, 2), Ttl::Forever, false);
    assert!(!ticket.absent(Ttl::Forever).kept());
    assert_eq!(walk(&cache, "x"), Seen::Found(2));
    let Outcome::Miss(ticket) = cache.lookup(&root, b"y") else { panic!() };
    cache.invalidate(&root, b"y");
    let filled = ticket.absent(Ttl::Forever);
    assert!(!filled.kept());
    assert!(matches!(cache.resume(filled, &Walk::new()), Outcome::Miss(_)), "asked again");
}

#[test]
fn the_bound_holds() {
    let (cache, gone) = with_hook(Config::new().entries(128).bytes(64 << 10));
    let root = cache.root();
    for i in 0..5000u32 {
        if let Outcome::Miss(ticket) = cache.lookup(&root, format!("file-{i}").as_bytes()) {
            ticket.publish(Binding::new(Kind::File, i), Ttl::Forever);
        }
        let stats = cache.stats();
        assert!(stats.entries <= 128 && stats.bytes <= 64 << 10, "{stats:?}");
    }
    let stats = cache.stats();
    assert_eq!(stats.refused, 0, "{stats:?}");
    assert!(stats.evicted > 4000 && stats.entries > 64, "{stats:?}");
    assert!(gone.lock().unwrap().len() > 4000);
    drop(root);
    drop(cache);
    assert_eq!(gone.lock().unwrap().len(), 5001, "all, and the root");
}

#[test]
fn pins_keep() {
    let cache: Cache<u32> = Cache::new(1, Config::new().entries(64));
    let root = cache.root();
    let mut numbers = Vec::new();
    for i in 0..200u32 {
        let name = format!("f{i}");
        if let Outcome::Miss(ticket) = cache.lookup(&root, name.as_bytes()) {
            let filled = ticket.publish(Binding::new(Kind::File, i), Ttl::Forever);
            numbers.push(filled.node().unwrap().pin(2));
        }
        assert!(cache.stats().entries <= 64);
    }
    assert!(cache.stats().refused > 0);
    let met = cache.pressure(10);
    assert_eq!(met.len(), 10);
    assert_eq!(met[0].directory().number(), 1);
    for n in &numbers {
        assert_eq!(cache.unpin(*n, 1), 1);
        assert!(cache.pinned(*n).is_some());
        assert_eq!(cache.unpin(*n, 1), 0);
    }
    assert_eq!(cache.stats().pinned, 0);
    let Outcome::Miss(ticket) = cache.lookup(&root, b"new") else { panic!() };
    assert!(ticket.publish(Binding::new(Kind::File, 1), Ttl::Forever).kept());
}

#[test]
fn subtrees_are_forgotten() {
    let (cache, a, b) = small();
    cache.invalidate_subtree(&a);
    assert_eq!(walk(&cache, "a"), Seen::Found(2));
    assert_eq!(walk(&cache, "a/b"), Seen::Miss("b".into()));
    assert_eq!(see(cache.lookup(&b, b"file")), Seen::Miss("file".into()));
    cache.invalidate_all();
    assert_eq!(walk(&cache, "a"), Seen::Miss("a".into()));
    drop((a, b));
    cache.reclaim();
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.nodes, stats.bytes), (0, 1, 0), "{stats:?}");
}

#[test]
fn trees_are_mounted() {
    let (cache, a, b) = small();
    let other = cache.new_root(100);
    put(&cache, &other, "inside", Kind::File, 101);
    cache.mount(&a, b"b", &other).unwrap();
    assert_eq!(cache.mount(&a, b"b", &cache.new_root(5)).err(), Some(Error::Busy));
    assert_eq!(walk(&cache, "a/b"), Seen::Found(100));
    assert_eq!(walk(&cache, "a/b/inside"), Seen::Found(101));
    assert_eq!(walk(&cache, "a/b/.."), Seen::Found(2));
    assert_eq!(see(cache.walk(&other, b"..", &Walk::new())), Seen::Found(2));
    assert_eq!(cache.rmdir(&a, b"b").err(), Some(Error::Busy));
    assert_eq!(cache.rename((&a, b"b"), (&a, b"x"), Rename::Replace).err(), Some(Error::Busy));
    cache.unmount(&a, b"b").unwrap();
    assert_eq!(cache.unmount(&a, b"b").err(), Some(Error::Invalid));
    assert_eq!(walk(&cache, "a/b/file"), Seen::Found(4));
    assert_eq!(see(cache.walk(&b, b"..", &Walk::new())), Seen::Found(2));
}

#[test]
fn nothing_leaks() {
    let (cache, gone) = with_hook(Config::new().entries(256));
    let root = cache.root();
    let d = put(&cache, &root, "d", Kind::Directory, 2);
    for i in 0..50 {
        put(&cache, &d, &format!("f{i}"), Kind::File, 3);
    }
    for i in 0..50 {
        cache.unlink(&d, format!("f{i}").as_bytes()).unwrap().commit();
    }
    cache.reclaim();
    assert_eq!(gone.lock().unwrap().len(), 50);
    let Outcome::Miss(ticket) = cache.lookup(&d, b"held") else { panic!() };
    drop((root, d));
    drop(cache);
    assert_eq!(gone.lock().unwrap().len(), 50, "the ticket keeps the cache");
    drop(ticket);
    assert_eq!(gone.lock().unwrap().len(), 52);
}
