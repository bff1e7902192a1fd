//! What the cache promises to cost: the rename of a directory does not depend on how much is cached below it.

mod common;

use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_dcache::{Binding, Cache, Config, Handle, Kind, Outcome, Rename, Ttl, Walk};

use common::grouped;

const FEW: u64 = 100;
const MANY: u64 = 100_000;
const ROUNDS: usize = 201;

fn main() {
    libtest_mimic::run(&Arguments::from_args(), vec![Trial::test("rename_of_a_large_directory", rename)]).exit();
}

fn learn(cache: &Cache<u64>, dir: &Handle<u64>, name: &str, kind: Kind, inode: u64) -> Handle<u64> {
    let Outcome::Miss(ticket) = cache.lookup(dir, name.as_bytes()) else { panic!("{name} is known") };
    let filled = ticket.publish(Binding::new(kind, inode), Ttl::Forever);
    assert!(filled.kept());
    filled.node().expect("it exists").clone()
}

/// A directory with so many cached descendants, a hundred in each of its own.
fn grow(cache: &Cache<u64>, name: &str, n: u64) {
    let top = learn(cache, &cache.root(), name, Kind::Directory, 2);
    for i in 0..n / 100 {
        let dir = learn(cache, &top, &format!("d{i}"), Kind::Directory, 1000 + i);
        for j in 0..99 {
            learn(cache, &dir, &format!("f{j}"), Kind::File, 10_000 + i * 100 + j);
        }
    }
}

/// Ten times as long is not the same; a thousand times as much is below it.
fn rename() -> Result<(), Failed> {
    let cache: Cache<u64> = Cache::new(1, Config::new().entries(200_000));
    let root = cache.root();
    grow(&cache, "few-0", FEW);
    grow(&cache, "many-0", MANY);
    let mut times: [Vec<Duration>; 2] = Default::default();
    for round in 0..ROUNDS {
        for (times, name) in times.iter_mut().zip(["few", "many"]) {
            let (from, to) = (format!("{name}-{round}"), format!("{name}-{}", round + 1));
            let begin = Instant::now();
            cache.rename((&root, from.as_bytes()), (&root, to.as_bytes()), Rename::Replace).expect("it can begin").commit();
            times.push(begin.elapsed());
        }
    }
    let [few, many] = times.map(|mut t| {
        t.sort();
        t[t.len() / 2]
    });
    let misses = cache.stats().misses;
    let path = format!("/many-{ROUNDS}/d{}/f98", MANY / 100 - 1);
    let Outcome::Found(found) = cache.walk(&root, path.as_bytes(), &Walk::new()) else { panic!("{path} is not found") };
    assert_eq!(*found.inode(), 10_000 + MANY - 100 + 98);
    assert_eq!(cache.stats().misses, misses);
    println!(
        "proof: dcache scale: rename of a directory with {} cached descendants {} ns, with {} {} ns, {ROUNDS} rounds each, {} violations",
        grouped(FEW),
        few.as_nanos(),
        grouped(MANY),
        many.as_nanos(),
        u8::from(many > few * 10)
    );
    assert!(many <= few * 10, "{few:?} with few below it, {many:?} with many");
    Ok(())
}
