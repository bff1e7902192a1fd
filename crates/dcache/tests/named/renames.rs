//! Renames in all forms.

use manyway_dcache::{Error, Kind, Outcome, Rename, Walk};

use crate::common::fs::{Flags, Fs, How, Make, No, ROOT};
use crate::common::subject::{Setup, Subject};
use crate::world::{Seen, World};

crate::tests!(
    rename_of_a_file,
    rename_of_a_subtree,
    rename_over_a_target,
    rename_of_what_is_not_known,
    exchange,
    exchange_of_directories,
    no_replace_over_unknown,
    hard_link_rename,
    rename_of_a_directory_into_itself,
    rename_to_itself,
    rename_of_a_held_directory,
    renames_that_pass_each_other,
    rename_keeps_what_is_cached_below,
);

fn refused<T>(begun: Result<T, Error>) -> Error {
    begun.err().expect("it cannot begin")
}

fn rename_of_a_file() {
    let w = World::new();
    w.dir("/d", 2);
    let f = w.file("/d/f", 3);
    w.none("/d/g");
    w.none("/f");
    w.rename("/d/f", "/d/g", Rename::Replace);
    assert_eq!((w.see("/d/f"), w.see("/d/g")), (Seen::Absent, Seen::Found(3)));
    w.rename("/d/g", "/f", Rename::NoReplace);
    assert_eq!((w.see("/d/g"), w.see("/f")), (Seen::Absent, Seen::Found(3)));
    assert!(w.node("/f") == f, "it is the same node");
    w.rename("/f", "/d/f", Rename::Replace);
    assert_eq!((w.see("/f"), w.see("/d/f"), w.see("/d/g")), (Seen::Absent, Seen::Found(3), Seen::Absent));
}

fn rename_of_a_subtree() {
    let w = World::new();
    w.dir("/a", 2);
    w.dir("/a/b", 3);
    w.dir("/a/b/c", 4);
    w.file("/a/b/c/f", 5);
    w.none("/a/b/c/n");
    w.dir("/x", 6);
    w.link("/l", 7, "a/b/c/f");
    let c = w.node("/a/b/c");
    w.rename("/a/b", "/x/y", Rename::Replace);
    assert_eq!((w.see("/x/y/c/f"), w.see("/x/y/c/n")), (Seen::Found(5), Seen::Absent));
    assert_eq!((w.see("/a/b/c/f"), w.see("/a/b"), w.see("/l")), (Seen::Absent, Seen::Absent, Seen::Absent));
    // `..` leads to where it is now, from below and from a handle.
    assert_eq!((w.see("/x/y/c/../.."), w.see("/x/y/..")), (Seen::Found(6), Seen::Found(6)));
    assert_eq!(w.see_from(&c, "../..", &Walk::new()), Seen::Found(6));
    let place = w.cache.place(&w.node("/x/y")).expect("it has a name");
    assert_eq!((*place.directory().inode(), place.name()), (6, &b"y"[..]));
}

fn rename_over_a_target() {
    let w = World::new();
    w.file("/a", 2);
    w.file("/b", 3);
    let change = w.cache.rename((&w.root(), b"a"), (&w.root(), b"b"), Rename::Replace).expect("it can begin");
    assert_eq!((change.node().map(|h| *h.inode()), change.target().map(|h| *h.inode())), (Some(2), Some(3)));
    assert_eq!((w.see("/a"), w.see("/b")), (Seen::Found(2), Seen::Found(3)));
    change.commit();
    assert_eq!((w.see("/a"), w.see("/b")), (Seen::Absent, Seen::Found(2)));
    // A directory over an empty one, and with what is below it.
    w.dir("/d", 4);
    w.file("/d/f", 5);
    let e = w.dir("/e", 6);
    w.rename("/d", "/e", Rename::Replace);
    assert_eq!((w.see("/e"), w.see("/e/f"), w.see("/d")), (Seen::Found(4), Seen::Found(5), Seen::Absent));
    assert!(e.is_removed());
}

fn rename_of_what_is_not_known() {
    let w = World::new();
    w.file("/known", 2);
    w.dir("/d", 3);
    // The source is not known: of the target nothing is known afterwards, of the source that it is gone.
    w.rename("/unknown", "/known", Rename::Replace);
    assert!(matches!(w.see("/unknown"), Seen::Absent | Seen::Miss(_)));
    assert_eq!(w.see("/known"), Seen::Miss("known".into()));
    w.rename("/unknown2", "/d/unknown3", Rename::Replace);
    assert!(matches!(w.see("/d/unknown3"), Seen::Miss(_)));
    // The same with an exchange.
    w.file("/known", 2);
    w.rename("/known", "/unknown", Rename::Exchange);
    assert_eq!((w.see("/unknown"), w.see("/known")), (Seen::Found(2), Seen::Miss("known".into())));
    // What the tree makes of it.
    let mut fs = Fs::default();
    let f = fs.create(ROOT, b"f", Make::File).expect("new");
    let s = Subject::new(fs, &Setup::large());
    let root = s.tree.root();
    s.rename((&root, b"f"), (&root, b"g"), How::Replace).expect("done");
    assert_eq!((s.resolve("/f"), s.resolve("/g")), (Err(No::NotFound), Ok(f)));
    assert_eq!(s.rename((&root, b"none"), (&root, b"g"), How::Replace), Err(No::NotFound));
    assert_eq!(s.resolve("/g"), Ok(f));
    drop(root);
    s.end();
}

fn exchange() {
    let w = World::new();
    w.file("/a", 2);
    w.dir("/d", 3);
    w.file("/d/f", 4);
    w.rename("/a", "/d", Rename::Exchange);
    assert_eq!(
        (w.see("/a"), w.see("/d"), w.see("/a/f"), w.see("/d/f")),
        (Seen::Found(3), Seen::Found(2), Seen::Found(4), Seen::Failed(Error::NotDirectory))
    );
    w.rename("/a/f", "/d", Rename::Exchange);
    assert_eq!((w.see("/a/f"), w.see("/d")), (Seen::Found(2), Seen::Found(4)));
}

fn exchange_of_directories() {
    let w = World::new();
    w.dir("/a", 2);
    w.dir("/a/x", 3);
    w.file("/a/x/f", 4);
    w.dir("/b", 5);
    let y = w.dir("/b/y", 6);
    w.file("/b/y/g", 7);
    w.rename("/a/x", "/b/y", Rename::Exchange);
    assert_eq!((w.see("/a/x/g"), w.see("/b/y/f")), (Seen::Found(7), Seen::Found(4)));
    assert_eq!((w.see("/a/x/.."), w.see("/b/y/..")), (Seen::Found(2), Seen::Found(5)));
    assert_eq!(w.see_from(&y, "..", &Walk::new()), Seen::Found(2));
    assert_eq!((w.see("/a/x/f"), w.see("/b/y/g")), (Seen::Miss("f".into()), Seen::Miss("g".into())));
}

fn no_replace_over_unknown() {
    let mut fs = Fs::default();
    let a = fs.create(ROOT, b"a", Make::File).expect("new");
    let b = fs.create(ROOT, b"b", Make::File).expect("new");
    let s = Subject::new(fs, &Setup::large());
    let root = s.tree.root();
    // The cache does not know the target: the store is asked, and decides.
    assert_eq!(s.resolve("/a"), Ok(a));
    assert_eq!(s.low_rename((&root, b"a"), (&root, b"b"), How::NoReplace), Err(No::Exists));
    assert_eq!((s.sim.changes(), s.resolve("/a"), s.resolve("/b")), (1, Ok(a), Ok(b)));
    s.cache().invalidate_all();
    assert_eq!(s.rename((&root, b"a"), (&root, b"b"), How::NoReplace), Err(No::Exists));
    s.rename((&root, b"a"), (&root, b"c"), How::NoReplace).expect("done");
    assert_eq!((s.resolve("/a"), s.resolve("/c")), (Err(No::NotFound), Ok(a)));
    // Now it knows, and need not ask.
    let asked = s.sim.changes();
    assert_eq!(s.rename((&root, b"b"), (&root, b"c"), How::NoReplace), Err(No::Exists));
    assert_eq!(s.sim.changes(), asked);
    drop(root);
    s.end();
}

fn hard_link_rename() {
    let w = World::new();
    let root = w.root();
    let f = w.file("/a", 5);
    w.dir("/d", 2);
    w.cache.link(&f, &root, b"b").expect("it can begin").commit();
    w.cache.link(&f, &w.node("/d"), b"c").expect("it can begin").commit();
    let all = || [w.see("/a"), w.see("/b"), w.see("/d/c")];
    assert_eq!(all(), [Seen::Found(5), Seen::Found(5), Seen::Found(5)]);
    // Of two names of one file, a rename of one to the other does nothing.
    w.rename("/a", "/d/c", Rename::Replace);
    assert_eq!(all(), [Seen::Found(5), Seen::Found(5), Seen::Found(5)]);
    // One name moves, the others stay.
    w.none("/moved");
    w.rename("/b", "/moved", Rename::Replace);
    assert_eq!((w.see("/b"), w.see("/moved"), w.see("/a"), w.see("/d/c")), (Seen::Absent, Seen::Found(5), Seen::Found(5), Seen::Found(5)));
    // A directory above one of them moves.
    w.rename("/d", "/e", Rename::Replace);
    assert_eq!((w.see("/e/c"), w.see("/d/c"), w.see("/a")), (Seen::Found(5), Seen::Absent, Seen::Found(5)));
    // One is replaced by another file, one is taken away: the last still leads there.
    w.file("/other", 6);
    w.rename("/other", "/a", Rename::Replace);
    w.unlink("/e/c");
    assert_eq!((w.see("/a"), w.see("/e/c"), w.see("/moved")), (Seen::Found(6), Seen::Absent, Seen::Found(5)));
    assert!(w.node("/moved") == f);
    w.unlink("/moved");
    assert_eq!(w.see("/moved"), Seen::Absent);
}

fn rename_of_a_directory_into_itself() {
    let w = World::new();
    w.dir("/a", 2);
    let b = w.dir("/a/b", 3);
    let c = w.dir("/a/b/c", 4);
    w.dir("/z", 5);
    let root = w.root();
    for how in [Rename::Replace, Rename::NoReplace] {
        assert_eq!(refused(w.cache.rename((&root, b"a"), (&c, b"x"), how)), Error::Invalid);
        assert_eq!(refused(w.cache.rename((&root, b"a"), (&w.node("/a"), b"x"), how)), Error::Invalid);
        assert_eq!(refused(w.cache.rename((&w.node("/a"), b"b"), (&c, b"x"), how)), Error::Invalid);
    }
    // An exchange of a directory with one below it, both ways.
    assert_eq!(refused(w.cache.rename((&root, b"a"), (&b, b"c"), Rename::Exchange)), Error::Invalid);
    assert_eq!(refused(w.cache.rename((&b, b"c"), (&root, b"a"), Rename::Exchange)), Error::Invalid);
    // Upwards is another matter.
    w.rename("/a/b/c", "/z/c", Rename::Replace);
    w.rename("/a", "/z/c/a", Rename::Replace);
    assert_eq!((w.see("/z/c/a/b"), w.see("/z/c/a/b/../../..")), (Seen::Found(3), Seen::Found(5)));
    // Where it was not known to be, the store refuses: the same error, nothing changed.
    let mut fs = Fs::default();
    let a = fs.create(ROOT, b"a", Make::Dir).expect("new");
    fs.create(a, b"b", Make::Dir).expect("new");
    let s = Subject::new(fs, &Setup::large());
    let (root, b) = (s.tree.root(), s.node("/a/b"));
    s.cache().invalidate_all();
    assert_eq!(s.rename((&root, b"a"), (&b, b"x"), How::Replace), Err(No::Invalid));
    assert_eq!(s.resolve("/a"), Ok(a));
}

fn rename_to_itself() {
    let w = World::new();
    w.file("/a", 2);
    w.dir("/d", 3);
    w.file("/d/f", 4);
    for how in [Rename::Replace, Rename::Exchange] {
        w.rename("/a", "/a", how);
        w.rename("/d", "/d", how);
        assert_eq!((w.see("/a"), w.see("/d"), w.see("/d/f")), (Seen::Found(2), Seen::Found(3), Seen::Found(4)), "{how:?}");
    }
    assert_eq!(refused(w.cache.rename((&w.root(), b"a"), (&w.root(), b"a"), Rename::NoReplace)), Error::Exists);
    // A name that the cache does not know.
    w.rename("/u", "/u", Rename::Replace);
    assert_eq!(w.see("/u"), Seen::Miss("u".into()));
}

fn rename_of_a_held_directory() {
    let mut fs = Fs::default();
    let a = fs.create(ROOT, b"a", Make::Dir).expect("new");
    let b = fs.create(a, b"b", Make::Dir).expect("new");
    let f = fs.create(b, b"f", Make::File).expect("new");
    let s = Subject::new(fs, &Setup::large());
    let (root, held) = (s.tree.root(), s.node("/a/b"));
    s.rename((&s.node("/a"), b"b"), (&root, b"moved"), How::Replace).expect("done");
    let from_held = |path: &str| s.walk(&held, path.as_bytes(), Flags::default());
    assert_eq!((from_held("f"), from_held(".."), from_held("../a"), from_held("../moved/f")), (Ok(f), Ok(ROOT), Ok(a), Ok(f)));
    s.create(&held, b"g", &Make::File).expect("done");
    assert_eq!(s.resolve("/moved/g"), from_held("g"));
    drop((root, held));
    s.end();
}

/// Two renames whose orders in the store and in the cache differ: `/a/c` leaves `a`, and then `a` goes below it. For the cache it is below itself for a
/// moment; no walk may be caught.
fn renames_that_pass_each_other() {
    let w = World::new();
    let (a, e) = (w.dir("/a", 2), w.dir("/e", 3));
    let c = w.dir("/a/c", 4);
    w.file("/a/f", 5);
    let root = w.root();
    std::thread::scope(|scope| {
        let first = w.cache.rename((&a, b"c"), (&e, b"c"), Rename::Replace).expect("it can begin");
        // The store has done the first, and lets the second happen.
        let second = scope.spawn(|| w.cache.rename((&root, b"a"), (&c, b"a"), Rename::Replace).map(|c| c.commit()));
        let second = second.join().expect("no panic");
        let during = ["/a", "/a/c", "/a/c/a", "/a/c/a/f", "/a/c/a/c/a/c/../../.."].map(|p| w.see(p));
        assert!(!during.contains(&Seen::Orphan(0)));
        first.commit();
        if second.is_err() {
            // As far as the cache knew, it could not be.
            assert_eq!(second, Err(Error::Invalid));
            assert_eq!((w.see("/a/f"), w.see("/e/c")), (Seen::Found(5), Seen::Found(4)));
        } else {
            assert_eq!(w.see("/e/c"), Seen::Found(4));
            assert!(matches!(w.see("/e/c/a/f"), Seen::Found(5) | Seen::Miss(_)), "{:?}", w.see("/e/c/a/f"));
            assert!(matches!(w.see("/a"), Seen::Absent | Seen::Miss(_)));
        }
    });
}

fn rename_keeps_what_is_cached_below() {
    let w = World::new();
    w.dir("/a", 2);
    for i in 0..100 {
        w.file(&format!("/a/{i}"), 100 + i);
    }
    w.dir("/b", 3);
    let misses = w.cache.stats().misses;
    w.rename("/a", "/b/a", Rename::Replace);
    for i in 0..100 {
        assert_eq!(w.see(&format!("/b/a/{i}")), Seen::Found(100 + i));
        assert_eq!(w.see(&format!("/a/{i}")), Seen::Absent);
    }
    assert_eq!(w.cache.stats().misses, misses, "nothing was asked for");
    let Outcome::Found(found) = w.cache.walk(&w.root(), b"/b/a/7", &Walk::new()) else { panic!("it is known") };
    assert_eq!(found.kind(), Kind::File);
}
