//! What a path means: dots, links, mounts, flags, permissions.

use std::cell::RefCell;

use manyway_dcache::{Error, Kind, MAX_LINKS, Outcome, Ttl, Walk};

use crate::world::{Seen, World};

crate::tests!(
    dots,
    dot_dot_at_root,
    slashes,
    trailing_slashes,
    empty_path,
    no_follow,
    links,
    links_are_relative_to_their_directory,
    eloop_at_40,
    permission_hook,
    permission_hook_after_a_miss,
    create_intent,
    parent_of_the_last_name,
    directory_only,
    names_as_bytes,
    long_names,
    not_a_directory,
    walks_in_another_root,
    place_of_a_directory,
    orphan_is_told,
    deep_paths,
);

pub fn tree() -> World {
    let w = World::new();
    w.dir("/a", 2);
    w.dir("/a/b", 3);
    w.file("/a/b/f", 4);
    w.dir("/c", 5);
    w.link("/l", 6, "a/b");
    w
}

fn dots() {
    let w = tree();
    let same = ["/a/b/f", "a/b/f", "./a/./b/././f", "/a/../a/b/f", "/a/b/../b/f", "/c/../a/b/../../a/b/f", "/a/b/../../c/../a/b/f"];
    for path in same {
        assert_eq!(w.see(path), Seen::Found(4), "{path}");
    }
    let from = w.node("/a/b");
    let seen = [".", "..", "../..", "../../c", "./f", "../b/f"].map(|p| w.see_from(&from, p, &Walk::new()));
    assert_eq!(seen, [Seen::Found(3), Seen::Found(2), Seen::Found(1), Seen::Found(5), Seen::Found(4), Seen::Found(4)]);
    // Not by text: what comes before `..` has to be there, and be a directory.
    w.none("/none");
    assert_eq!((w.see("/none/../a"), w.see("/a/b/f/../f")), (Seen::Absent, Seen::Failed(Error::NotDirectory)));
    assert_eq!((w.see("/a/b/f/."), w.see("/a/b/f/..")), (Seen::Failed(Error::NotDirectory), Seen::Failed(Error::NotDirectory)));
    // Names that begin with dots are names.
    w.file("/...", 7);
    w.file("/.a", 8);
    assert_eq!((w.see("/..."), w.see("/.a"), w.see("/..b")), (Seen::Found(7), Seen::Found(8), Seen::Miss("..b".into())));
}

fn dot_dot_at_root() {
    let w = tree();
    for path in ["/..", "..", "../..", "/../../..", "/a/../..", "/../."] {
        assert_eq!(w.see(path), Seen::Found(1), "{path}");
    }
    assert_eq!((w.see("/../a/b/f"), w.see("/../../c")), (Seen::Found(4), Seen::Found(5)));
}

fn slashes() {
    let w = tree();
    for path in ["//a///b//f", "///a/b/f", "a//b/.//f"] {
        assert_eq!(w.see(path), Seen::Found(4), "{path}");
    }
    assert_eq!((w.see("/"), w.see("///"), w.see("/a//..//")), (Seen::Found(1), Seen::Found(1), Seen::Found(1)));
}

fn trailing_slashes() {
    let w = tree();
    assert_eq!((w.see("/a/b/"), w.see("/a/b//"), w.see("/a/b/f/")), (Seen::Found(3), Seen::Found(3), Seen::Failed(Error::NotDirectory)));
    // A link with a slash behind it is followed, whatever was asked for.
    let no_follow = Walk::new().no_follow().no_wait();
    assert_eq!((w.see_as("/l", &no_follow), w.see_as("/l/", &no_follow)), (Seen::Found(6), Seen::Found(3)));
    w.link("/to-file", 7, "a/b/f");
    assert_eq!((w.see("/to-file"), w.see("/to-file/")), (Seen::Found(4), Seen::Failed(Error::NotDirectory)));
    w.link("/with-slash", 8, "a/b/f/");
    assert_eq!(w.see("/with-slash"), Seen::Failed(Error::NotDirectory));
    w.link("/with-slash-2", 9, "a/b/");
    assert_eq!((w.see("/with-slash-2"), w.see("/with-slash-2/f")), (Seen::Found(3), Seen::Found(4)));
    w.none("/none");
    assert_eq!(w.see("/none/"), Seen::Absent);
}

fn empty_path() {
    let w = tree();
    let f = w.node("/a/b/f");
    assert_eq!((w.see(""), w.see_from(&f, "", &Walk::new())), (Seen::Found(1), Seen::Found(4)));
    assert_eq!(w.see_from(&f, "", &Walk::new().directory()), Seen::Failed(Error::NotDirectory));
    assert_eq!(w.see_from(&f, ".", &Walk::new()), Seen::Failed(Error::NotDirectory));
    assert_eq!(w.see_from(&f, "/", &Walk::new()), Seen::Found(1));
}

fn no_follow() {
    let w = tree();
    w.link("/l2", 7, "l");
    w.link("/dangling", 8, "none");
    w.none("/none");
    let no_follow = Walk::new().no_follow().no_wait();
    let seen = ["/l", "/l2", "/dangling", "/l/f", "/l2/f", "/l/.", "/l2/.."].map(|p| w.see_as(p, &no_follow));
    let expected = [Seen::Found(6), Seen::Found(7), Seen::Found(8), Seen::Found(4), Seen::Found(4), Seen::Found(3), Seen::Found(2)];
    assert_eq!(seen, expected);
    assert_eq!((w.see("/l2"), w.see("/dangling")), (Seen::Found(3), Seen::Absent));
    assert_eq!(w.see_as("/l", &Walk::new().no_follow().directory().no_wait()), Seen::Failed(Error::NotDirectory));
    // A look-up of one name follows nothing.
    assert_eq!(Seen::from(w.cache.lookup(&w.root(), b"l")), Seen::Found(6));
}

fn links() {
    let w = tree();
    w.link("/abs", 10, "/a/b");
    w.link("/up", 11, "../../../a");
    w.link("/self", 12, ".");
    w.link("/root", 13, "/");
    w.link("/chain", 14, "abs/../../l");
    let seen = ["/abs/f", "/up/b/f", "/self/self/a/b/f", "/root/root/a", "/chain/f", "/abs/.."].map(|p| w.see(p));
    let expected = [Seen::Found(4), Seen::Found(4), Seen::Found(4), Seen::Found(2), Seen::Found(4), Seen::Found(2)];
    assert_eq!(seen, expected);
    // What is not known behind it is asked for where it is.
    w.link("/far", 15, "c/unknown");
    assert_eq!(w.see("/far/x"), Seen::Miss("unknown".into()));
    w.link("/through-file", 16, "a/b/f");
    assert_eq!(w.see("/through-file/x"), Seen::Failed(Error::NotDirectory));
}

fn links_are_relative_to_their_directory() {
    let w = tree();
    w.link("/a/b/here", 10, "f");
    w.link("/a/b/there", 11, "../../c");
    w.link("/c/to", 12, "../a/b/here");
    let b = w.node("/a/b");
    assert_eq!((w.see("/a/b/here"), w.see("/l/here"), w.see("/c/to")), (Seen::Found(4), Seen::Found(4), Seen::Found(4)));
    assert_eq!((w.see("/l/there"), w.see_from(&b, "there", &Walk::new())), (Seen::Found(5), Seen::Found(5)));
}

fn eloop_at_40() {
    let w = World::new();
    w.file("/0", 2);
    for i in 1..=MAX_LINKS + 1 {
        w.link(&format!("/{i}"), 100 + u64::from(i), &format!("{}", i - 1));
    }
    assert_eq!(MAX_LINKS, 40);
    assert_eq!((w.see("/40"), w.see("/41")), (Seen::Found(2), Seen::Failed(Error::Loop)));
    // Not followed, the last does not count.
    assert_eq!(w.see_as("/41", &Walk::new().no_follow().no_wait()), Seen::Found(141));
    // All of a walk count together.
    w.link("/dot", 200, ".");
    let path = |n: usize| format!("/{}0", "dot/".repeat(n));
    assert_eq!((w.see(&path(40)), w.see(&path(41))), (Seen::Found(2), Seen::Failed(Error::Loop)));
    w.link("/loop", 201, "loop");
    w.link("/pool1", 202, "pool2/x");
    w.link("/pool2", 203, "/pool1");
    let seen = ["/loop", "/loop/x", "/pool1", "/pool2/y"].map(|p| w.see(p));
    assert_eq!(seen, [const { Seen::Failed(Error::Loop) }; 4]);
    // Also when the targets come one by one: the count goes on over the misses.
    w.teach("/late", Kind::Link, 300);
    let walk = Walk::new();
    let mut outcome = w.cache.walk(&w.root(), b"/late", &walk);
    let mut asked = 0;
    while let Outcome::Target(link) = outcome {
        asked += 1;
        assert!(asked <= 41, "it does not end");
        // It is another target each time: nobody may count on the first.
        let filled = link.publish(b"late");
        outcome = w.cache.resume(filled, &walk);
    }
    assert_eq!(Seen::from(outcome), Seen::Failed(Error::Loop));
}

fn permission_hook() {
    let w = tree();
    let asked = RefCell::new(vec![]);
    let closed = RefCell::new(vec![]);
    let hook = |inode: &u64| {
        asked.borrow_mut().push(*inode);
        !closed.borrow().contains(inode)
    };
    let walk = Walk::new().search(&hook).no_wait();
    assert_eq!(w.see_as("/a/b/f", &walk), Seen::Found(4));
    let mut directories = asked.take();
    directories.dedup();
    assert_eq!(directories, [1, 2, 3], "each directory in which a name is looked up, in order, and not what is found");
    for (dir, path) in
        [(1, "/a/b/f"), (2, "/a/b/f"), (3, "/a/b/f"), (3, "/l/f"), (3, "/a/b/none"), (3, "/a/b/.."), (3, "/a/b/."), (1, "/none")]
    {
        closed.replace(vec![dir]);
        assert_eq!(w.see_as(path, &walk), Seen::Failed(Error::Denied), "{path} with {dir} closed");
    }
    closed.replace(vec![3]);
    assert_eq!(
        (w.see_as("/a/b", &walk), w.see_as("/a/b/", &walk), w.see_as("/c", &walk)),
        (Seen::Found(3), Seen::Found(3), Seen::Found(5))
    );
    assert_eq!(w.see_as("/l", &walk), Seen::Found(3));
    // Nobody learns that a name below is missing, or is not known, who may not look.
    w.none("/a/b/n");
    assert_eq!((w.see_as("/a/b/n", &walk), w.see_as("/a/b/unknown", &walk)), (Seen::Failed(Error::Denied), Seen::Failed(Error::Denied)));
    closed.replace(vec![]);
    assert_eq!(w.see_as("/a/b/n", &walk), Seen::Absent);
}

fn permission_hook_after_a_miss() {
    let w = World::new();
    let hook = |inode: &u64| *inode != 2;
    let walk = Walk::new().search(&hook);
    let Outcome::Miss(ticket) = w.cache.walk(&w.root(), b"/d/f", &walk) else { panic!("it is not known") };
    let filled = ticket.publish(manyway_dcache::Binding::new(Kind::Directory, 2), Ttl::Forever);
    assert_eq!(Seen::from(w.cache.resume(filled, &walk)), Seen::Failed(Error::Denied));
    // Answers that are not kept are no way around it.
    w.cache.invalidate_all();
    let Outcome::Miss(ticket) = w.cache.walk(&w.root(), b"/d/f", &walk) else { panic!("it is not known") };
    let filled = ticket.publish(manyway_dcache::Binding::new(Kind::Directory, 2), Ttl::No);
    assert_eq!(Seen::from(w.cache.resume(filled, &walk)), Seen::Failed(Error::Denied));
}

fn create_intent() {
    let w = tree();
    w.none("/n");
    let create = Walk::new().create().no_wait();
    let misses = w.cache.stats().misses;
    // What is there is found; what is known not to be is absent; what is not known is left to the creation.
    assert_eq!((w.see_as("/a/b/f", &create), w.see_as("/n", &create)), (Seen::Found(4), Seen::Absent));
    assert_eq!(w.see_as("/a/b/new", &create), Seen::Place(3, "new".into()));
    assert_eq!(w.see_as("/l/new", &create), Seen::Place(3, "new".into()));
    assert_eq!(w.cache.stats().misses, misses, "no ticket is drawn for it");
    // Before the last component it is a walk as any other.
    assert_eq!(w.see_as("/unknown/new", &create), Seen::Miss("unknown".into()));
    assert_eq!(w.see_as("/n/new", &create), Seen::Absent);
    assert_eq!(w.see_as("/a/b/f/new", &create), Seen::Failed(Error::NotDirectory));
    // Through a link at the end, the place is the target's.
    w.link("/to-new", 9, "c/new");
    assert_eq!(w.see_as("/to-new", &create), Seen::Place(5, "new".into()));
    // The place that an absent name would have.
    let Outcome::Absent(absent) = w.cache.walk(&w.root(), b"/n", &create) else { panic!("it is absent") };
    assert!(absent.is_last());
    assert_eq!((*absent.place().directory().inode(), absent.place().name()), (1, &b"n"[..]));
    drop(absent);
    let Outcome::Absent(absent) = w.cache.walk(&w.root(), b"/n/x", &create) else { panic!("it is absent") };
    assert!(!absent.is_last());
    drop(absent);
    assert_eq!(w.see_as("/n/", &create), Seen::Absent);
}

fn parent_of_the_last_name() {
    let w = tree();
    let parent = Walk::new().parent().no_wait();
    assert_eq!(w.see_as("/a/b/f", &parent), Seen::Place(3, "f".into()));
    assert_eq!(w.see_as("/l/x", &parent), Seen::Place(3, "x".into()));
    assert_eq!(w.see_as("/l", &parent), Seen::Place(1, "l".into()));
    assert_eq!(w.see_as("/a/new/", &parent), Seen::Place(2, "new".into()));
    assert_eq!(w.see_as("x", &parent), Seen::Place(1, "x".into()));
    for path in ["", "/", "/a/.", "/a/..", ".", "..", "/a/b/../"] {
        assert_eq!(w.see_as(path, &parent), Seen::Failed(Error::Invalid), "{path:?}");
    }
    assert_eq!(w.see_as("/a/b/f/x", &parent), Seen::Failed(Error::NotDirectory));
    assert_eq!(w.see_as("/unknown/x", &parent), Seen::Miss("unknown".into()));
    w.none("/n");
    assert_eq!(w.see_as("/n/x", &parent), Seen::Absent);
}

fn directory_only() {
    let w = tree();
    let directory = Walk::new().directory().no_wait();
    let seen = ["/a/b", "/a/b/f", "/l", "/"].map(|p| w.see_as(p, &directory));
    assert_eq!(seen, [Seen::Found(3), Seen::Failed(Error::NotDirectory), Seen::Found(3), Seen::Found(1)]);
}

fn names_as_bytes() {
    let w = World::new();
    let root = w.root();
    // All bytes but zero and the slash; names that differ in one; lengths around what is hashed at a time.
    let mut names: Vec<Vec<u8>> = (1..=255u8).filter(|&b| b != b'/' && b != b'.').map(|b| vec![b]).collect();
    for len in [2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 254, 255] {
        for at in [0, len / 2, len - 1] {
            let mut name = vec![b'x'; len];
            name[at] = 0xfe;
            names.push(name);
        }
        names.push(vec![b'x'; len]);
    }
    names.sort();
    names.dedup();
    for (i, name) in names.iter().enumerate() {
        let Outcome::Miss(ticket) = w.cache.lookup(&root, name) else { panic!("{name:?} is known already") };
        assert_eq!(ticket.name(), name);
        ticket.publish(manyway_dcache::Binding::new(Kind::File, 1000 + i as u64), Ttl::Forever);
    }
    for (i, name) in names.iter().enumerate() {
        let found = Seen::Found(1000 + i as u64);
        assert_eq!(Seen::from(w.cache.lookup(&root, name)), found, "{name:?}");
        // In a path at each place behind a slash, so that it lies at each alignment.
        for before in ["", "./", "././", "./././/"] {
            let path = [before.as_bytes(), name].concat();
            assert_eq!(Seen::from(w.cache.walk(&root, &path, &Walk::new())), found, "{name:?}");
        }
        let path = [name, &b"/x"[..]].concat();
        assert_eq!(Seen::from(w.cache.walk(&root, &path, &Walk::new())), Seen::Failed(Error::NotDirectory), "{name:?}");
    }
}

fn long_names() {
    let w = World::new();
    let long = "x".repeat(256);
    let seen = [format!("/{long}"), format!("/{long}/y"), format!("/{}", "x".repeat(10_000))].map(|p| w.see(&p));
    assert_eq!(seen, [const { Seen::Failed(Error::NameTooLong) }; 3]);
    assert!(matches!(w.see(&long[1..]), Seen::Miss(_)));
    let w = World::with(manyway_dcache::Config::new().entries(64).name_max(65_535));
    let name = "y".repeat(65_535);
    w.file(&format!("/{name}"), 2);
    assert_eq!(w.see(&name), Seen::Found(2));
    assert_eq!(w.see(&(name + "y")), Seen::Failed(Error::NameTooLong));
    assert_eq!(World::with(manyway_dcache::Config::new().name_max(3)).see("/abcd"), Seen::Failed(Error::NameTooLong));
}

fn not_a_directory() {
    let w = tree();
    for path in ["/a/b/f/x", "/a/b/f/x/y", "/a/b/f/.", "/a/b/f/..", "/a/b/f/"] {
        assert_eq!(w.see(path), Seen::Failed(Error::NotDirectory), "{path}");
    }
    let f = w.node("/a/b/f");
    assert_eq!(w.see_from(&f, "x", &Walk::new()), Seen::Failed(Error::NotDirectory));
    assert_eq!(Seen::from(w.cache.lookup(&f, b"x")), Seen::Failed(Error::NotDirectory));
}

fn walks_in_another_root() {
    let w = tree();
    w.link("/a/abs", 9, "/b/f");
    let a = w.node("/a");
    let inside = Walk::new().root(&a).no_wait();
    let seen = ["/b/f", "/..", "/../../b", "/abs", "/b/../../.."].map(|p| w.see_from(&a, p, &inside));
    assert_eq!(seen, [Seen::Found(4), Seen::Found(2), Seen::Found(3), Seen::Found(4), Seen::Found(2)]);
    let b = w.node("/a/b");
    assert_eq!((w.see_from(&b, "../../..", &inside), w.see_from(&b, "../abs", &inside)), (Seen::Found(2), Seen::Found(4)));
    assert_eq!(w.see("/a/abs"), Seen::Miss("b".into()));
}

fn place_of_a_directory() {
    let w = tree();
    assert!(w.cache.place(&w.root()).is_none());
    let b = w.node("/a/b");
    let place = w.cache.place(&b).expect("it has a name");
    assert_eq!((*place.directory().inode(), place.name()), (2, &b"b"[..]));
    w.cache.invalidate(&w.node("/a"), b"b");
    assert!(w.cache.place(&b).is_none());
}

fn orphan_is_told() {
    let w = tree();
    let b = w.node("/a/b");
    w.cache.invalidate(&w.node("/a"), b"b");
    // What is below it is there as before; where it is itself the cache does not know.
    assert_eq!(w.see_from(&b, "f", &Walk::new()), Seen::Found(4));
    assert_eq!(w.see_from(&b, "..", &Walk::new()), Seen::Orphan(3));
    assert_eq!(w.see_from(&b, "../c", &Walk::new()), Seen::Orphan(3));
    let filled = w.ticket("/a/b").publish(manyway_dcache::Binding::node(&b), Ttl::Forever);
    assert!(filled.kept());
    assert_eq!((w.see_from(&b, "..", &Walk::new()), w.see("/a/b/f")), (Seen::Found(2), Seen::Found(4)));
}

fn deep_paths() {
    let w = World::new();
    let mut path = String::new();
    for i in 0..200 {
        path += &format!("/d{i}");
        w.dir(&path, 10 + i);
    }
    assert_eq!(w.see(&path), Seen::Found(209));
    let back = path.clone() + &"/..".repeat(199);
    assert_eq!((w.see(&back), w.see(&(back.clone() + "/../.."))), (Seen::Found(10), Seen::Found(1)));
    let forth = format!("{back}{}", &path[3..]);
    assert_eq!(w.see(&forth), Seen::Found(209));
    // And a miss at its end.
    let walk = Walk::new();
    let Outcome::Miss(ticket) = w.cache.walk(&w.root(), format!("{forth}/f").as_bytes(), &walk) else { panic!("it is not known") };
    let filled = ticket.publish(manyway_dcache::Binding::new(Kind::File, 5), Ttl::Forever);
    assert_eq!(Seen::from(w.cache.resume(filled, &walk)), Seen::Found(5));
}
