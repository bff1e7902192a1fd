//! A storm of names: far more than the bound are asked for by two threads, half of them names that do not exist. The bound holds all the while, memory
//! stays within it, and it is used.
//!
//! `MANYWAY_DCACHE_NAMES` says how many (300,000; ten million takes some seconds in a release build).

mod common;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use common::{grouped, number};
use libtest_mimic::{Arguments, Failed, Trial};
use manyway_dcache::{Binding, Cache, Config, Kind, Outcome, Ttl, Walk};

/// The bound, in entries.
const ENTRIES: usize = 50_000;
/// What an entry may cost with everything, beyond its name.
const EACH: u64 = 200;
/// For the program itself, its threads, and what an allocator keeps.
const BESIDES: u64 = 12 << 20;
const THREADS: u64 = 2;
/// Directories have numbers from here.
const DIRECTORIES: u64 = 1 << 40;

fn main() {
    let args = Arguments::from_args();
    let conclusion = libtest_mimic::run(&args, vec![Trial::test("storm_of_names", storm)]);
    conclusion.exit();
}

/// A line of /proc/self/status, in bytes.
fn status(what: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = text.lines().find(|l| l.starts_with(what)).expect("the kernel tells");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") * 1024
}

fn storm() -> Result<(), Failed> {
    let names = number("MANYWAY_DCACHE_NAMES", 300_000);
    let before = status("VmRSS");
    let cache: Cache<u64> = Cache::new(1, Config::new().entries(ENTRIES));
    let begin = Instant::now();
    let (kept, most) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, kept, most) = (&cache, &kept, &most);
            scope.spawn(move || {
                let walk = Walk::new();
                for i in (thread..names).step_by(THREADS as usize) {
                    let path = format!("dir-{:05}/name-{i:010}", i / 1000);
                    let mut outcome = cache.walk(&cache.root(), path.as_bytes(), &walk);
                    loop {
                        let filled = match outcome {
                            Outcome::Miss(t) if t.name().starts_with(b"dir") => {
                                t.publish(Binding::new(Kind::Directory, DIRECTORIES + i / 1000).id(DIRECTORIES + i / 1000), Ttl::Forever)
                            }
                            Outcome::Miss(t) if i % 2 == 0 => t.absent(Ttl::Forever),
                            Outcome::Miss(t) => t.publish(Binding::new(Kind::File, i), Ttl::Forever),
                            Outcome::Found(f) => {
                                assert_eq!(*f.inode(), i);
                                break;
                            }
                            Outcome::Absent(_) => {
                                assert_eq!(i % 2, 0);
                                break;
                            }
                            _ => panic!("{path}: neither found nor absent nor asked for"),
                        };
                        kept.fetch_add(u64::from(filled.kept()), Relaxed);
                        outcome = cache.resume(filled, &walk);
                    }
                    if i % 256 < THREADS {
                        let s = cache.stats();
                        assert!(s.entries <= ENTRIES && s.retired <= s.entries, "{s:?}");
                        most.fetch_max(s.entries as u64, Relaxed);
                    }
                }
            });
        }
    });
    let took = begin.elapsed();
    let s = cache.stats();
    let grown = status("VmHWM").saturating_sub(before);
    assert!(kept.load(Relaxed) * 10 >= names * 9, "{} of {names} answers were kept: {s:?}", kept.load(Relaxed));
    assert!(most.load(Relaxed) * 10 >= ENTRIES as u64 * 8, "the room is used: {} of {ENTRIES}", most.load(Relaxed));
    assert!(grown <= ENTRIES as u64 * EACH + BESIDES, "memory has grown by {grown} bytes");
    println!(
        "proof: dcache storm: {} names, at most {} entries of {}, {} evicted, memory grown by {} KiB, {:.1} s, 0 violations",
        grouped(names),
        grouped(most.load(Relaxed)),
        grouped(ENTRIES as u64),
        grouped(s.evicted),
        grouped(grown >> 10),
        took.as_secs_f32()
    );
    Ok(())
}
