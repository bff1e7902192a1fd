//! A cache before a store that is slow: each question costs a hundredth of a second, and is asked once.
//!
//!     cargo run --release -p manyway-dcache --example slow_store

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use manyway_dcache::{Answer, Config, Error, Item, Kind, Store, Tree, Ttl};

/// As a server far away: names below a directory's number.
struct Server {
    names: HashMap<(u64, Vec<u8>), (Kind, u64)>,
    questions: AtomicU64,
}

impl Store for Server {
    type Inode = u64;

    fn lookup(&self, directory: &u64, name: &[u8]) -> Result<Answer<u64>, Error> {
        self.questions.fetch_add(1, Relaxed);
        std::thread::sleep(Duration::from_millis(10));
        Ok(match self.names.get(&(*directory, name.to_vec())) {
            Some(&(kind, number)) => Answer::Found(Item::new(kind, number).ttl(Ttl::For(Duration::from_secs(60)))),
            None => Answer::Absent(Ttl::For(Duration::from_secs(5))),
        })
    }
}

fn main() {
    let mut names = HashMap::from([((1, b"usr".to_vec()), (Kind::Directory, 2)), ((2, b"share".to_vec()), (Kind::Directory, 3))]);
    names.extend((0..20).map(|i| ((3, format!("file{i}").into_bytes()), (Kind::File, 100 + i))));
    let tree = Tree::new(Server { names, questions: AtomicU64::new(0) }, 1, Config::new().entries(10_000));

    let timed = |what: &str, f: &dyn Fn()| {
        let (start, before) = (Instant::now(), tree.store().questions.load(Relaxed));
        f();
        println!("{what:44} {:>12.1?} {:>4} questions", start.elapsed(), tree.store().questions.load(Relaxed) - before);
    };
    let all = || (0..20).for_each(|i| assert_eq!(*tree.resolve(format!("/usr/share/file{i}")).unwrap().inode(), 100 + i));
    timed("20 paths for the first time", &all);
    timed("the same again", &all);
    timed("20,000 times", &|| (0..1000).for_each(|_| all()));
    let absent = || assert_eq!(tree.resolve("/usr/share/missing").err(), Some(Error::NotFound));
    timed("a name that does not exist", &absent);
    timed("again", &absent);
    timed("8 threads want one new path", &|| {
        tree.cache().invalidate_all();
        std::thread::scope(|s| (0..8).for_each(|_| drop(s.spawn(|| tree.resolve("/usr/share/file0").unwrap()))));
    });
    println!("{:?}", tree.cache().stats());
}
