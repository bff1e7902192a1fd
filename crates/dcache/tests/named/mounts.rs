//! Mount points.

use manyway_dcache::{Binding, Error, Kind, Outcome, Rename, Ttl, Walk};

use crate::walks::tree;
use crate::world::{ROOT, Seen, World};

crate::tests!(
    mount_points,
    mounted_trees_move_with_their_mount_point,
    mount_point_is_busy,
    unmounted_is_what_was_forgotten,
    unmounted_was_found_elsewhere,
    unmounted_was_removed,
    unmounted_below_itself,
);

fn mount_points() {
    let w = tree();
    let other = w.cache.new_root(50);
    w.cache.mount(&w.node("/a"), b"b", &other).expect("a directory");
    assert_eq!((w.see("/a/b"), w.see("/a/b/f")), (Seen::Found(50), Seen::Miss("f".into())));
    assert_eq!(w.see("/l"), Seen::Found(50));
    w.file("/a/b/f", 51);
    w.dir("/a/b/d", 52);
    assert_eq!((w.see("/a/b/f"), w.see("/a/b/d/../f"), w.see("/a/b/..")), (Seen::Found(51), Seen::Found(51), Seen::Found(2)));
    assert_eq!((w.see("/a/b/d/../.."), w.see("/a/b/../b/f"), w.see("/l/f")), (Seen::Found(2), Seen::Found(51), Seen::Found(51)));
    let d = w.node("/a/b/d");
    let up = |path: &str| w.see_from(&d, path, &Walk::new().no_wait());
    assert_eq!(
        (up(".."), up("../.."), up("../../.."), up("../../b/f")),
        (Seen::Found(50), Seen::Found(2), Seen::Found(1), Seen::Found(51))
    );
    // One over another.
    let third = w.cache.new_root(60);
    w.cache.mount(&w.node("/a/b"), b"d", &third).expect("a directory");
    assert_eq!((w.see("/a/b/d"), w.see("/a/b/d/.."), w.see("/a/b/d/../..")), (Seen::Found(60), Seen::Found(50), Seen::Found(2)));
    w.cache.unmount(&w.node("/a/b"), b"d").expect("it is mounted");
    assert_eq!(w.see("/a/b/d"), Seen::Found(52));
    // Once taken away, what was covered is there again; and may be mounted anew elsewhere.
    w.cache.unmount(&w.node("/a"), b"b").expect("it is mounted");
    assert_eq!((w.see("/a/b"), w.see("/a/b/f"), w.see("/a/b/d")), (Seen::Found(3), Seen::Found(4), Seen::Miss("d".into())));
    assert_eq!(w.cache.unmount(&w.node("/a"), b"b"), Err(Error::Invalid));
    w.cache.mount(&w.root(), b"c", &other).expect("a directory");
    assert_eq!((w.see("/c/f"), w.see("/c/..")), (Seen::Found(51), Seen::Found(1)));
}

fn mounted_trees_move_with_their_mount_point() {
    let w = tree();
    let other = w.cache.new_root(50);
    w.cache.mount(&w.node("/a"), b"b", &other).expect("a directory");
    w.file("/a/b/f", 51);
    w.rename("/a", "/moved", manyway_dcache::Rename::Replace);
    assert_eq!((w.see("/moved/b/f"), w.see("/moved/b/.."), w.see("/a/b/f")), (Seen::Found(51), Seen::Found(2), Seen::Absent));
}

fn mount_point_is_busy() {
    let w = tree();
    let other = w.cache.new_root(50);
    let a = w.node("/a");
    w.cache.mount(&a, b"b", &other).expect("a directory");
    let busy = |r: Result<manyway_dcache::Change<u64>, Error>| assert_eq!(r.err(), Some(Error::Busy));
    busy(w.cache.rmdir(&a, b"b"));
    busy(w.cache.rename((&a, b"b"), (&w.root(), b"x"), manyway_dcache::Rename::Replace));
    busy(w.cache.rename((&w.root(), b"c"), (&a, b"b"), manyway_dcache::Rename::Replace));
    busy(w.cache.rename((&w.root(), b"c"), (&a, b"b"), manyway_dcache::Rename::Exchange));
    assert_eq!(w.cache.mount(&w.root(), b"c", &other), Err(Error::Busy), "it is mounted already");
    assert_eq!(w.cache.mount(&a, b"b", &w.cache.new_root(60)), Err(Error::Busy));
    // Between two trees nothing is renamed.
    w.file("/a/b/f", 51);
    let crossing = w.cache.rename((&w.node("/a/b"), b"f"), (&w.root(), b"f"), manyway_dcache::Rename::Replace);
    assert_eq!(crossing.err(), Some(Error::CrossDevice));
    // Eviction does not take a mount away, nor a forgotten subtree.
    w.cache.shrink(1000);
    w.cache.invalidate_subtree(&w.root());
    assert!(matches!(w.see("/a/b"), Seen::Found(50) | Seen::Miss(_)));
}

/// `/a/m`, a directory of number 7, with another tree mounted over it.
fn covered(w: &World) -> manyway_dcache::Handle<u64> {
    w.dir("/a", 2);
    let m = w.dir("/a/m", 7);
    let other = w.cache.new_root(50);
    w.cache.mount(&w.node("/a"), b"m", &other).expect("a directory");
    assert_eq!(w.see("/a/m"), Seen::Found(50));
    m
}

fn unmount(w: &World, path: &str) {
    let (dir, name) = w.split(path);
    w.cache.unmount(&dir, name).expect("it is mounted");
}

fn unmounted_is_what_was_forgotten() {
    let w = World::new();
    let forget: [&dyn Fn(); 3] = [&|| w.cache.invalidate(&w.node("/a"), b"m"), &|| w.cache.invalidate_subtree(&w.node("/a")), &|| {
        w.cache.invalidate_subtree(&w.root())
    }];
    covered(&w);
    let other = w.node("/a/m");
    for forget in forget {
        let a = w.node("/a");
        forget();
        w.cache.unmount(&a, b"m").expect("it is mounted");
        if w.see("/a") != Seen::Found(2) {
            w.dir("/a", 2);
        }
        assert_eq!(w.see("/a/m"), Seen::Miss("m".into()));
        w.dir("/a/m", 7);
        w.cache.mount(&w.node("/a"), b"m", &other).expect("a directory");
    }
    // Nothing has come between.
    unmount(&w, "/a/m");
    assert_eq!(w.see("/a/m"), Seen::Found(7));
}

fn unmounted_was_found_elsewhere() {
    let w = World::new();
    let m = covered(&w);
    w.dir("/x", 7);
    unmount(&w, "/a/m");
    assert_eq!((w.see("/x"), w.see("/a/m")), (Seen::Found(7), Seen::Miss("m".into())), "a directory has one place");
    assert_eq!(w.see_from(&m, "..", &Walk::new()), Seen::Found(ROOT));
}

fn unmounted_was_removed() {
    let w = World::new();
    covered(&w);
    w.dir("/x", 7);
    w.rmdir("/x");
    unmount(&w, "/a/m");
    assert_eq!(w.see("/a/m"), Seen::Miss("m".into()));
}

/// The covered directory is found elsewhere, and what covers it is moved below it.
fn unmounted_below_itself() {
    let w = World::new();
    let m = covered(&w);
    w.dir("/x", 7);
    w.rename("/a", "/x/a", Rename::Replace);
    // Its name is forgotten, so that it could be put back.
    w.cache.invalidate(&w.root(), b"x");
    let Outcome::Found(a) = w.cache.walk(&m, b"a", &Walk::new()) else { panic!("it is known") };
    let a = a.handle();
    w.cache.unmount(&a, b"m").expect("it is mounted");
    assert!(matches!(w.cache.lookup(&a, b"m"), Outcome::Miss(_)), "no directory is below itself");
    let t = w.ticket("/x");
    t.publish(Binding::new(Kind::Directory, 7).id(7), Ttl::Forever);
    w.rename("/x/a", "/b", Rename::Replace);
    assert_eq!(w.see("/b"), Seen::Found(2));
}
