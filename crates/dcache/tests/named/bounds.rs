//! Bounds, pins, the hook, and that nothing is lost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

use manyway_dcache::{Binding, Cache, Config, Kind, Outcome, Ttl, Walk};

use crate::common::fs::{Fs, Make, ROOT};
use crate::common::subject::{Census, Inode, Setup, Subject};
use crate::world::{self, Seen, World, until};

crate::tests!(
    bound_of_entries_holds,
    bound_of_bytes_holds,
    negatives_have_their_share,
    what_is_used_stays,
    walk_goes_on_without_room,
    walk_longer_than_the_bound,
    link_without_room,
    tickets_without_room,
    directories_let_go,
    hot_names_gone_cold,
    empty_targets_cost_nothing,
    up_from_directories_without_room,
    hook_once_for_each_node,
    hook_that_panics,
    callbacks_under_no_lock,
    destructors_under_no_lock,
    nothing_is_left_at_the_end,
    nothing_is_left_of_tickets_and_changes,
    deep_tree_is_dropped,
    numbers_are_never_used_again,
    retired_memory_is_counted,
);

const FOREVER: Ttl = Ttl::Forever;

fn bound_of_entries_holds() {
    let w = World::with(Config::new().entries(100));
    w.flood("", 5000, 100, usize::MAX);
    let s = w.cache.stats();
    assert!(s.evicted >= 4000 && s.entries > 50, "it is used, and not more: {s:?}");
}

fn bound_of_bytes_holds() {
    let w = World::with(Config::new().entries(10_000).bytes(20_000));
    w.flood("a-name-of-some-length-", 3000, 10_000, 20_000);
    let s = w.cache.stats();
    assert!(s.evicted >= 1000 && s.bytes > 5_000, "it is used, and not more: {s:?}");
    w.flood(&"long".repeat(50), 500, 10_000, 20_000);
}

fn negatives_have_their_share() {
    for percent in [0, 10, 50] {
        let w = World::with(Config::new().entries(200).negative_percent(percent));
        for i in 0..50 {
            w.file(&format!("/f{i}"), 100 + i);
        }
        let root = w.root();
        for i in 0..2000 {
            let Outcome::Miss(t) = w.cache.lookup(&root, format!("none{i}").as_bytes()) else { panic!("nobody has said so") };
            let filled = t.absent(FOREVER);
            assert!(filled.node().is_none());
            let s = w.cache.stats();
            assert!(s.negatives * 100 <= 200 * usize::from(percent), "{s:?}");
        }
        let s = w.cache.stats();
        assert_eq!(s.negatives > 0, percent > 0, "{s:?}");
        // A storm of names that do not exist does not drive out those that do.
        let there = (0..50).filter(|i| matches!(w.see(&format!("/f{i}")), Seen::Found(_))).count();
        assert!(there >= 40, "{there} of 50 are left with {percent} percent");
    }
}

fn what_is_used_stays() {
    let w = World::with(Config::new().entries(200));
    w.dir("/hot", 2);
    w.file("/hot/f", 3);
    let root = w.root();
    let mut asked = 0;
    for i in 0..5000u64 {
        if let Outcome::Miss(t) = w.cache.lookup(&root, format!("cold{i}").as_bytes()) {
            drop(t.publish(Binding::new(Kind::File, 1000 + i), FOREVER));
        }
        match w.see("/hot/f") {
            Seen::Found(3) => {}
            _ => {
                asked += 1;
                if w.see("/hot") != Seen::Found(2) {
                    w.dir("/hot", 2);
                }
                w.file("/hot/f", 3);
            }
        }
    }
    assert!(asked <= 5, "a name used all the time was evicted {asked} times");
}

/// Everything is pinned: each walk of a store's paths goes on by answers that are not kept.
fn walk_goes_on_without_room() {
    let mut fs = Fs::default();
    let mut at = ROOT;
    for _ in 0..20 {
        at = fs.create(at, b"d", Make::Dir).expect("new");
    }
    for i in 0..200 {
        fs.create(ROOT, format!("p{i}").as_bytes(), Make::File).expect("new");
    }
    let s = Subject::new(fs, &Setup { bytes: usize::MAX, ..Setup::small() });
    let mut pinned = vec![];
    for i in 0..200 {
        let node = s.node(&format!("/p{i}"));
        pinned.push(node.pin(1));
    }
    let path = "/d".repeat(20);
    for _ in 0..3 {
        assert_eq!(s.resolve(&path), Ok(at));
        assert_eq!(s.resolve(&(path.clone() + &"/..".repeat(20))), Ok(ROOT));
        assert_eq!(s.resolve(&(path.clone() + "/none")), Err(crate::common::fs::No::NotFound));
        s.check_bounds();
    }
    for number in pinned {
        s.cache().unpin(number, 1);
    }
    assert_eq!(s.resolve(&path), Ok(at));
    s.end();
}

/// The room for a link's target is made by evicting what the walk came by: it goes on all the same.
/// A path that needs more directories than there is room for.
fn walk_longer_than_the_bound() {
    let w = World::with(Config::new().entries(64));
    let (root, walk) = (w.root(), Walk::new());
    let path: String = (0..200).map(|i| format!("a{i}/../")).collect();
    let mut asked = 0;
    let mut outcome = w.cache.walk(&root, path.as_bytes(), &walk);
    while let Outcome::Miss(t) = outcome {
        asked += 1;
        assert!(asked <= 200, "a name is asked for again");
        outcome = w.cache.resume(t.publish(Binding::new(Kind::Directory, 100 + asked), FOREVER), &walk);
    }
    assert_eq!((Seen::from(outcome), asked), (Seen::Found(ROOT), 200));
    assert!(w.cache.stats().entries <= 64);
}

fn link_without_room() {
    let mut fs = Fs::default();
    let d = fs.create(ROOT, b"d", Make::Dir).expect("new");
    let f = fs.create(d, b"f", Make::File).expect("new");
    let target = [b"./".repeat(100), b"d".to_vec()].concat();
    fs.create(ROOT, b"l", Make::Link(target.clone())).expect("new");
    fs.create(d, b"m", Make::Link([b"../l/".to_vec(), b"./".repeat(100), b"f".to_vec()].concat())).expect("new");
    for i in 0..20 {
        fs.create(ROOT, format!("p{i}").as_bytes(), Make::File).expect("new");
    }
    for ids in [true, false] {
        for bytes in (600..3000).step_by(40) {
            let s = Subject::new(fs.clone(), &Setup { bytes, ids, ..Setup::small() });
            let pinned: Vec<u64> = (0..20).map(|i| s.node(&format!("/p{i}")).pin(1)).collect();
            for _ in 0..2 {
                assert_eq!((s.resolve("/l/f"), s.resolve("/l/m"), s.resolve("/l/../l/.")), (Ok(f), Ok(f), Ok(d)));
                s.check_bounds();
            }
            for number in pinned {
                s.cache().unpin(number, 1);
            }
            s.end();
        }
    }
}

/// A thousand tickets held at once are more than there is room for: each holder gets one, or an answer, and nobody hangs.
fn tickets_without_room() {
    let w = World::with(Config::new().entries(64));
    let root = w.root();
    let mut held = vec![];
    for i in 0..1000 {
        match w.cache.lookup(&root, format!("t{i}").as_bytes()) {
            Outcome::Miss(t) => held.push(t),
            other => panic!("{:?}", Seen::from(other)),
        }
        assert!(w.cache.stats().entries <= 64, "{:?}", w.cache.stats());
    }
    let kept = held.into_iter().enumerate().map(|(i, t)| t.publish(Binding::new(Kind::File, i as u64), FOREVER).kept());
    let kept = kept.filter(|k| *k).count();
    assert!((1..=64).contains(&kept), "{kept} were kept");
    w.file("/after", 5);
    assert_eq!(w.see("/after"), Seen::Found(5));
}

/// A table that is full of directories somebody holds takes in new names as soon as they are let go.
fn directories_let_go() {
    let w = World::with(Config::new().entries(64));
    let root = w.root();
    let mut held = vec![];
    for i in 0..2000 {
        if let Outcome::Miss(t) = w.cache.lookup(&root, format!("d{i}").as_bytes()) {
            held.push(t.publish(Binding::new(Kind::Directory, 10 + i), FOREVER).node().expect("it exists").clone());
        }
    }
    drop(held);
    assert!((0..100).map(|_| w.cache.shrink(1)).sum::<usize>() > 30, "{:?}", w.cache.stats());
    w.file("/after", 5);
    assert_eq!(w.see("/after"), Seen::Found(5));
}

/// Names that were all met between two visits of the clock's hand are evicted when nobody meets them any more.
fn hot_names_gone_cold() {
    let w = World::with(Config::new().entries(64));
    let root = w.root();
    w.flood("h", 60, 64, usize::MAX);
    for _ in 0..200 {
        (0..60).for_each(|i| drop(w.cache.lookup(&root, format!("h{i}").as_bytes())));
        w.cache.shrink(1);
    }
    w.flood("c", 1000, 64, usize::MAX);
    w.file("/after", 5);
    assert_eq!(w.see("/after"), Seen::Found(5));
}

/// Links with empty targets leave nothing in the books.
fn empty_targets_cost_nothing() {
    let w = World::with(Config::new().entries(64));
    let root = w.root();
    let before = w.cache.stats().bytes;
    for i in 0..1000 {
        let name = format!("l{i}");
        let Outcome::Miss(t) = w.cache.lookup(&root, name.as_bytes()) else { panic!("it is not known") };
        t.publish(Binding::new(Kind::Link, i), FOREVER);
        if let Outcome::Target(l) = w.cache.walk(&root, name.as_bytes(), &Walk::new()) {
            l.publish(b"");
        }
    }
    w.cache.invalidate_all();
    until("all is freed", || {
        w.cache.reclaim();
        w.cache.stats().entries == 0
    });
    assert_eq!(w.cache.stats().bytes, before);
}

/// Directories that come and go under handles while the bytes are all taken: who goes up from one meets no entry that was given back.
fn up_from_directories_without_room() {
    let w = World::with(Config::new().entries(4096).bytes(24_000));
    let root = w.root();
    let (d, e) = (w.dir("/d", 2), w.dir("/e", 3));
    let done = AtomicU64::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            while done.load(SeqCst) == 0 {
                for dir in [&d, &e] {
                    let seen = w.see_from(dir, "..", &Walk::new().no_wait());
                    assert!(matches!(seen, Seen::Found(world::ROOT) | Seen::Orphan(_) | Seen::Busy), "{seen:?}");
                    let seen = w.see_from(dir, ".", &Walk::new().no_wait());
                    assert!(matches!(seen, Seen::Found(2 | 3) | Seen::Orphan(_)), "{seen:?}");
                }
            }
        });
        for i in 0..3000u64 {
            // The bytes are taken by names of all lengths.
            if let Outcome::Miss(t) = w.cache.lookup(&root, "n".repeat(1 + i as usize % 200).as_bytes()) {
                t.publish(Binding::new(Kind::File, 100 + i), FOREVER);
            }
            for (name, node) in [("d", &d), ("e", &e)] {
                w.cache.invalidate(&root, name.as_bytes());
                if let Outcome::Miss(t) = w.cache.lookup(&root, name.as_bytes()) {
                    t.publish(Binding::node(node), FOREVER);
                }
            }
            let mut listing = w.cache.list(&root).expect("it can begin");
            listing.put(b"d", Binding::node(&d), FOREVER);
            listing.put(format!("l{}", i % 97).as_bytes(), Binding::new(Kind::File, 7), FOREVER);
        }
        done.store(1, SeqCst);
    });
}

fn hook_once_for_each_node() {
    let gone = Arc::new(Mutex::new(vec![]));
    let (to, census) = (gone.clone(), Arc::<Census>::default());
    let config = Config::new().entries(64).evicted(move |number, inode: Inode| to.lock().unwrap().push((number, inode.ino)));
    let cache = Cache::new(Inode::new(1, &census), config);
    let root = cache.root();
    let mut made = BTreeSet::new();
    for i in 0..1000u64 {
        let Outcome::Miss(t) = cache.lookup(&root, format!("n{i}").as_bytes()) else { panic!("it is not known") };
        let filled = t.publish(Binding::new(Kind::File, Inode::new(100 + i, &census)), FOREVER);
        made.insert((filled.node().expect("it exists").number(), 100 + i));
        if i % 7 == 0 {
            // A second name: the node stays until both are gone.
            let second = filled.node().expect("it exists").clone();
            if let Outcome::Miss(t) = cache.lookup(&root, format!("second{i}").as_bytes()) {
                drop(t.publish(Binding::node(&second), FOREVER));
            };
        }
    }
    cache.invalidate_all();
    until("all nodes but the root have left", || {
        cache.reclaim();
        cache.stats().nodes == 1
    });
    let told = gone.lock().unwrap().clone();
    let set: BTreeSet<_> = told.iter().copied().collect();
    assert_eq!(told.len(), set.len(), "some were told twice");
    assert_eq!(set, made, "each once, with its own number");
    assert_eq!(census.live(), 1);
}

/// The hook does all that can be done with a cache, in the midst of whatever called it.
/// What the hook does not do for one node is not left undone for the others.
fn hook_that_panics() {
    let gone = Arc::new(AtomicU64::new(0));
    let count = gone.clone();
    let hook = move |_, _| {
        if count.fetch_add(1, SeqCst) == 0 {
            // A panic without its message.
            std::panic::resume_unwind(Box::new(()));
        }
    };
    let w = World::with(Config::new().evicted(hook));
    w.file("/a", 2);
    w.file("/b", 3);
    let end = |name: &[u8], n| {
        w.cache.invalidate(&w.root(), name);
        until("its node has come to its end", || {
            w.cache.reclaim();
            gone.load(SeqCst) == n
        });
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| end(b"a", 1))).is_err());
    end(b"b", 2);
}

fn callbacks_under_no_lock() {
    static CACHE: OnceLock<Cache<u64>> = OnceLock::new();
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static FRESH: AtomicU64 = AtomicU64::new(1_000_000);
    let config = Config::new().entries(64).evicted(|_, inode| {
        CALLS.fetch_add(1, SeqCst);
        let Some(cache) = CACHE.get() else { return };
        // What it makes is evicted, too: not without end.
        if inode >= 1_000_000 {
            return;
        }
        let (root, n) = (cache.root(), FRESH.fetch_add(1, SeqCst));
        let name = format!("hook{}", n % 50);
        let walk = Walk::new().no_wait();
        match cache.walk(&root, name.as_bytes(), &walk) {
            Outcome::Miss(t) => drop(t.publish(Binding::new(Kind::File, n), FOREVER)),
            Outcome::Found(f) => drop(f.handle()),
            _ => {}
        }
        if let Ok(change) = cache.create(&root, format!("made{n}").as_bytes()) {
            drop(change.commit(Binding::new(Kind::Directory, n), FOREVER, true));
        }
        if let Ok(change) = cache.rename((&root, format!("made{n}").as_bytes()), (&root, b"moved"), manyway_dcache::Rename::Replace) {
            change.commit();
        }
        let _ = cache.pressure(10);
        cache.invalidate(&root, name.as_bytes());
        if n % 16 == 0 {
            cache.invalidate_subtree(&root);
            cache.shrink(3);
            cache.reclaim();
        }
        cache.stats();
    });
    let cache = CACHE.get_or_init(|| Cache::new(1, config));
    let (done, result) = std::sync::mpsc::channel();
    // If a lock was held, this would not end.
    std::thread::spawn(move || {
        let root = cache.root();
        for i in 0..2000u64 {
            if let Outcome::Miss(t) = cache.lookup(&root, format!("n{}", i % 300).as_bytes()) {
                drop(t.publish(Binding::new(Kind::File, i), FOREVER));
            }
            match i % 10 {
                0 => drop(cache.unlink(&root, format!("n{}", i % 300).as_bytes()).map(|c| c.commit())),
                3 => {
                    let (from, to) = (format!("n{}", i % 300), format!("n{}", (i + 1) % 300));
                    if let Ok(c) = cache.rename((&root, from.as_bytes()), (&root, to.as_bytes()), manyway_dcache::Rename::Replace) {
                        c.commit();
                    }
                }
                5 => drop(cache.shrink(5)),
                7 => cache.invalidate_all(),
                9 => {
                    let mut listing = cache.list(&root).expect("a directory");
                    listing.put(b"listed", Binding::new(Kind::File, i), FOREVER);
                }
                _ => {}
            }
            cache.reclaim();
        }
        done.send(()).expect("somebody waits");
    });
    result.recv_timeout(std::time::Duration::from_secs(60)).expect("it hangs, or has panicked");
    assert!(CALLS.load(SeqCst) > 100, "{} calls", CALLS.load(SeqCst));
}

/// An inode's own destructor may use another cache, or this one.
fn destructors_under_no_lock() {
    struct Calls(Option<Cache<Calls>>, Arc<AtomicUsize>);
    impl Drop for Calls {
        fn drop(&mut self) {
            if let Some(cache) = self.0.take() {
                self.1.fetch_add(1, SeqCst);
                let root = cache.root();
                cache.invalidate(&root, b"n1");
                if let Outcome::Miss(t) = cache.walk(&root, b"n2", &Walk::new().no_wait()) {
                    drop(t.absent(FOREVER));
                };
            }
        }
    }
    let calls = Arc::<AtomicUsize>::default();
    let cache = Cache::new(Calls(None, calls.clone()), Config::new().entries(64));
    let root = cache.root();
    for i in 0..1000 {
        if let Outcome::Miss(t) = cache.lookup(&root, format!("n{i}").as_bytes()) {
            drop(t.publish(Binding::new(Kind::File, Calls(Some(cache.clone()), calls.clone())), FOREVER));
        }
        cache.reclaim();
    }
    cache.invalidate_all();
    until("all have left", || {
        cache.reclaim();
        calls.load(SeqCst) == 1000
    });
}

fn nothing_is_left_at_the_end() {
    let mut fs = Fs::default();
    for d in 0..20 {
        let dir = fs.create(ROOT, format!("d{d}").as_bytes(), Make::Dir).expect("new");
        for f in 0..20 {
            fs.create(dir, format!("f{f}").as_bytes(), Make::File).expect("new");
        }
    }
    for setup in [Setup::large(), Setup::small()] {
        let s = Subject::new(fs.clone(), &setup);
        for d in 0..20 {
            for f in 0..25 {
                let _ = s.resolve(&format!("/d{d}/f{f}"));
            }
        }
        s.node("/d3/f3").pin(3);
        let held = s.node("/d4/f4");
        assert!(s.census.live() > 1);
        // Handles outlive the tree: their inodes, too.
        let census = s.census.clone();
        s.tree.cache().reclaim();
        drop(s);
        assert_eq!(held.inode().ino, fs.walk(ROOT, b"d4/f4", Default::default()).expect("there"));
        drop(held);
        assert_eq!((census.live(), census.twice()), (0, 0));
    }
}

fn nothing_is_left_of_tickets_and_changes() {
    let census = Arc::<Census>::default();
    let inode = |n| Inode::new(n, &census);
    let cache = Cache::new(inode(1), Config::new());
    let root = cache.root();
    let ticket = |name: &[u8]| match cache.lookup(&root, name) {
        Outcome::Miss(t) => t,
        _ => panic!("it is known"),
    };
    ticket(b"a").publish(Binding::new(Kind::File, inode(2)), FOREVER);
    let (kept_open, overtaken) = (ticket(b"b"), ticket(b"c"));
    cache.invalidate(&root, b"c");
    let filled = overtaken.publish(Binding::new(Kind::File, inode(3)), FOREVER);
    let change = cache.create(&root, b"d").expect("it can begin");
    // One that has an inode with this number already: the new one is dropped.
    ticket(b"e").publish(Binding::new(Kind::File, inode(7)).id(7), FOREVER);
    ticket(b"f").publish(Binding::new(Kind::File, inode(7)).id(7), FOREVER);
    let mut listing = cache.list(&root).expect("a directory");
    listing.put(b"g", Binding::new(Kind::File, inode(8)), FOREVER);
    drop((root, cache));
    // These keep what they need, and let it go.
    drop((listing, change, filled, kept_open));
    assert_eq!(census.live(), 0);
}

/// A tree of a million levels would overflow a stack that drops it by recursion; fifty thousand overflow this thread's.
fn deep_tree_is_dropped() {
    let run = || {
        let cache = Cache::new(1u64, Config::new().entries(1 << 17));
        let mut at = cache.root();
        for i in 0..50_000u64 {
            let Outcome::Miss(t) = cache.lookup(&at, b"d") else { panic!("it is not known") };
            let filled = t.publish(Binding::new(Kind::Directory, 10 + i), FOREVER);
            at = filled.node().expect("it exists").clone();
        }
        let other = cache.clone();
        // Once by its last handle, once by forgetting it, once with the cache.
        other.invalidate(&other.root(), b"d");
        drop(at);
        other.reclaim();
        let mut at = cache.root();
        for i in 0..50_000u64 {
            let Outcome::Miss(t) = cache.lookup(&at, b"e") else { panic!("it is not known") };
            at = t.publish(Binding::new(Kind::Directory, 10 + i), FOREVER).node().expect("it exists").clone();
        }
        cache.invalidate_subtree(&cache.root());
        drop(at);
        let mut at = cache.root();
        for i in 0..20_000u64 {
            let Outcome::Miss(t) = cache.lookup(&at, b"f") else { panic!("it is not known") };
            at = t.publish(Binding::new(Kind::Directory, 10 + i), FOREVER).node().expect("it exists").clone();
        }
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(run).expect("a thread").join().expect("no panic");
}

fn numbers_are_never_used_again() {
    let w = World::with(Config::new().entries(64));
    let mut seen = BTreeSet::from([w.root().number()]);
    assert!(seen.contains(&1));
    let root = w.root();
    for i in 0..2000 {
        if let Outcome::Miss(t) = w.cache.lookup(&root, format!("n{i}").as_bytes()) {
            let filled = t.publish(Binding::new(Kind::File, 5), FOREVER);
            assert!(seen.insert(filled.node().expect("it exists").number()));
        }
    }
}

/// While a walker may be reading, nothing is freed: what is retired counts, and the bound holds by keeping nothing new.
fn retired_memory_is_counted() {
    let w = World::with(Config::new().entries(128));
    w.file("/held", 2);
    let root = w.root();
    {
        let Outcome::Found(_guard) = w.cache.walk(&root, b"/held", &Walk::new()) else { panic!("it is known") };
        // Others come and go meanwhile.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let root = w.root();
                for i in 0..2000u64 {
                    if let Outcome::Miss(t) = w.cache.lookup(&root, format!("n{i}").as_bytes()) {
                        drop(t.publish(Binding::new(Kind::File, i), FOREVER));
                    }
                    let s = w.cache.stats();
                    assert!(s.entries <= 128 && s.retired <= s.entries, "{s:?}");
                }
                let s = w.cache.stats();
                assert!(s.retired > 0, "a reader was there all the time: {s:?}");
            });
        });
    }
    // It has gone.
    until("what was retired is freed", || {
        w.cache.reclaim();
        w.cache.stats().retired == 0
    });
    w.file("/new", 3);
    assert_eq!(w.see("/new"), Seen::Found(3));
}
