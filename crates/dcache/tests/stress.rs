//! Threads that change, walk, forget and evict at once, for seconds. Each has a part of the tree that it alone changes, and in which every answer must be
//! exactly that of the store, while the directories above it change places, and everything cached goes away under it. At the end all is as the store has it, and
//! nothing is left.
//!
//! `MANYWAY_DCACHE_SECONDS` is how long, altogether; `MANYWAY_DCACHE_SEED` the seed.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::doing::Doing;
use common::fs::{Flags, Fs, How, Ino, Make, No, ROOT};
use common::program::Path;
use common::store::When;
use common::subject::{Node, Setup, Subject};
use common::{grouped, number};
use fastrand::Rng;
use libtest_mimic::{Arguments, Failed, Trial};

/// Threads with a part of the tree each.
const OWNERS: usize = 3;
/// Directories that change places, with the owners' below them.
const TOPS: usize = 3;

#[derive(Default)]
struct Counts {
    walks: AtomicU64,
    changes: AtomicU64,
    moves: AtomicU64,
}

static COUNTS: Counts = Counts { walks: AtomicU64::new(0), changes: AtomicU64::new(0), moves: AtomicU64::new(0) };
static EVICTED: AtomicU64 = AtomicU64::new(0);

fn main() {
    let args = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let ttl = Some(Duration::from_millis(200));
    let kinds = [
        ("large", Setup::large()),
        ("small", Setup::small()),
        ("medium_with_time", Setup { bytes: 1 << 15, entries: 512, ttl, ..Setup::large() }),
        ("small_without_numbers", Setup { ids: false, ttl, revalidates: false, ..Setup::small() }),
    ];
    let seconds = number("MANYWAY_DCACHE_SECONDS", 5);
    let length = Duration::from_millis(seconds * 1000 / kinds.len() as u64);
    let trials = kinds.map(|(name, setup)| Trial::test(name, move || run(&setup, length)));
    let conclusion = libtest_mimic::run(&args, trials.into());
    if !args.list && COUNTS.walks.load(Relaxed) > 0 {
        let n = |c: &AtomicU64| grouped(c.load(Relaxed));
        println!(
            "proof: dcache stress: {seconds} s, {} walks, {} changes, {} moves of what is above, {} evictions, {} violations",
            n(&COUNTS.walks),
            n(&COUNTS.changes),
            n(&COUNTS.moves),
            n(&EVICTED),
            conclusion.num_failed
        );
    }
    conclusion.exit();
}

fn run(setup: &Setup, length: Duration) -> Result<(), Failed> {
    let mut fs = Fs::default();
    let tops: Vec<Ino> = (0..TOPS).map(|i| fs.create(ROOT, format!("top{i}").as_bytes(), Make::Dir).expect("new")).collect();
    let owned: Vec<Ino> = (0..OWNERS).map(|i| fs.create(tops[i % TOPS], format!("own{i}").as_bytes(), Make::Dir).expect("new")).collect();
    let s = Subject::new(fs.clone(), setup);
    let nodes: Vec<Node> = owned.iter().map(|&ino| s.node(&String::from_utf8(fs.path_of(ino)).expect("text"))).collect();
    // Pinned, so that they keep their names: `..` above them is known.
    for node in &nodes {
        node.pin(1);
    }
    let slow = Mutex::new(Rng::with_seed(number("MANYWAY_DCACHE_SEED", 1)));
    s.sim.hook(move |_, when| {
        let pause = slow.lock().unwrap().u32(..64);
        match pause {
            0..=2 => std::thread::sleep(Duration::from_micros(50)),
            3..=10 if when == When::After => std::thread::sleep(std::time::Duration::from_micros(1)),
            _ => {}
        }
        Ok(())
    });
    let stop = AtomicBool::new(false);
    let seed = number("MANYWAY_DCACHE_SEED", 1);
    std::thread::scope(|scope| {
        let mut threads = vec![];
        for (i, own) in nodes.iter().enumerate() {
            let (s, stop) = (&s, &stop);
            threads.push(scope.spawn(move || owner(s, own, &mut Rng::with_seed(seed + i as u64), stop)));
        }
        let (s, stop) = (&s, &stop);
        threads.push(scope.spawn(move || weather(s, &mut Rng::with_seed(seed + 100), stop)));
        threads.push(scope.spawn(move || stranger(s, &mut Rng::with_seed(seed + 200), stop)));
        let end = Instant::now() + length;
        while Instant::now() < end && !threads.iter().any(|t| t.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Relaxed);
        let ends: Vec<Result<(), String>> =
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("it has panicked".to_owned()))).collect();
        ends.into_iter().collect::<Result<(), String>>()
    })?;
    s.sim.unhook();
    EVICTED.fetch_add(s.cache().stats().evicted, Relaxed);
    let fs = s.sim.fs();
    for (dir, name, ino) in fs.names() {
        let path = [fs.path_of(dir), name].join(&b'/');
        let got = s.walk(&s.tree.root(), &path, Flags { no_follow: true, directory: false });
        if got != Ok(ino) {
            return Err(format!("at the end, {:?} is {got:?}, not {ino}", Path(path)).into());
        }
    }
    for node in nodes {
        s.cache().unpin(node.number(), 1);
    }
    s.check_bounds();
    s.end();
    Ok(())
}

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "sub", "a-name-that-is-long-enough-to-count"];

fn name(rng: &mut Rng) -> Vec<u8> {
    NAMES[rng.usize(..NAMES.len())].as_bytes().to_vec()
}

/// A path of some names, sometimes up and down again.
fn path(rng: &mut Rng, most: usize) -> Path {
    let n = rng.usize(1..=most);
    let mut parts = vec![];
    for _ in 0..n {
        parts.push(name(rng));
        if rng.u8(..8) == 0 {
            parts.extend([b"..".to_vec(), name(rng)]);
        }
    }
    Path(parts.join(&b'/'))
}

/// Changes its own part, and finds everything there as the store has it.
fn owner(s: &Subject, own: &Node, rng: &mut Rng, stop: &AtomicBool) -> Result<(), String> {
    let ino = own.inode().ino;
    let mut steps = 0u64;
    while !stop.load(Relaxed) {
        steps += 1;
        if steps.is_multiple_of(64) {
            s.check_bounds();
        }
        if rng.u8(..3) > 0 {
            let path = path(rng, 4);
            let flags = Flags { no_follow: rng.u8(..4) == 0, directory: false };
            let rule = s.sim.with(|fs| fs.walk(ino, &path.0, flags));
            let got = s.walk(own, &path.0, flags);
            COUNTS.walks.fetch_add(1, Relaxed);
            // Above its own directory it may have to be looked for anew.
            let above = got == Err(No::Stale) && path.0.windows(2).any(|w| w == b"..");
            if rule != got && !above {
                return Err(format!("{:?} of {ino} is {got:?}, not {rule:?}", path));
            }
            continue;
        }
        change(s, own, rng)?;
    }
    Ok(())
}

fn change(s: &Subject, own: &Node, rng: &mut Rng) -> Result<(), String> {
    // A directory of its own part.
    let dir = |rng: &mut Rng| -> Node {
        let deep = path(rng, 2);
        let inside = s
            .sim
            .with(|fs| fs.walk(own.inode().ino, &deep.0, Flags::default()).is_ok_and(|d| fs.is_dir(d) && fs.is_below(d, own.inode().ino)));
        let node = if inside && rng.u8(..4) > 0 { s.handle(own, &deep.0, Flags::default()).ok() } else { None };
        node.unwrap_or_else(|| own.clone())
    };
    let at = |rng: &mut Rng| (dir(rng), name(rng));
    let doing = match rng.u8(..16) {
        0..=4 => {
            let make = match rng.u8(..6) {
                0..=2 => Make::Dir,
                3 | 4 => Make::File,
                // Never out of its own part.
                _ => Make::Link(name(rng)),
            };
            Doing::Create(at(rng), make)
        }
        // Where files of several names have no numbers the cache cannot know that they are one.
        5 if s.setup.ids => {
            let found = s.handle(own, &path(rng, 2).0, Flags { no_follow: true, directory: false });
            let Ok(node) = found else { return Ok(()) };
            Doing::Link(node, at(rng))
        }
        5..=8 => Doing::Unlink(at(rng)),
        9 => Doing::Rmdir(at(rng)),
        10..=12 => Doing::Rename(at(rng), at(rng), if rng.u8(..4) == 0 { How::NoReplace } else { How::Replace }),
        13 => Doing::Rename(at(rng), at(rng), How::Exchange),
        14 => {
            let dir = dir(rng);
            let rule = s.sim.with(|fs| fs.list(dir.inode().ino));
            let got = s.tree.list(&dir).map(|l| {
                let mut names: Vec<_> = l.into_iter().map(|(name, node)| (name, node.inode().ino)).collect();
                names.sort();
                names
            });
            return if got.as_ref().ok() == rule.as_ref().ok() { Ok(()) } else { Err(format!("a listing is {got:?}, not {rule:?}")) };
        }
        _ => {
            // Beside the cache, which is told.
            let doing = Doing::Unlink(at(rng));
            if s.sim.with(|fs| doing.on(fs)).is_ok() {
                for (dir, name) in doing.dirs() {
                    s.cache().invalidate(&dir, &name);
                }
            }
            return Ok(());
        }
    };
    let rule = s.sim.with(|fs| doing.on(&mut fs.clone()));
    let got = doing.through(s, rng.u8(..4) == 0);
    COUNTS.changes.fetch_add(1, Relaxed);
    // Of two reasons against a rename the cache may know the one and the store tell the other first.
    let either = matches!(doing, Doing::Rename(..)) && rule.is_err() && matches!(got, Err(e) if e != No::Failed && e != No::Stale);
    if rule == got || either { Ok(()) } else { Err(format!("{doing:?} is {got:?}, not {rule:?}")) }
}

/// What goes on above and everywhere: directories change places, what is cached goes, time passes.
fn weather(s: &Subject, rng: &mut Rng, stop: &AtomicBool) -> Result<(), String> {
    let root = s.tree.root();
    while !stop.load(Relaxed) {
        let (a, b) = (format!("top{}", rng.usize(..TOPS)), format!("top{}", rng.usize(..TOPS)));
        match rng.u8(..12) {
            0..=4 => s.rename((&root, a.as_bytes()), (&root, b.as_bytes()), How::Exchange).map_err(|e| format!("{a}, {b}: {e:?}"))?,
            5 => {
                // One into another and back.
                let Ok(inside) = s.handle(&root, b.as_bytes(), Flags::default()) else { return Err(format!("{b} is not there")) };
                if a != b {
                    s.rename((&root, a.as_bytes()), (&inside, b"guest"), How::NoReplace).map_err(|e| format!("{a} into {b}: {e:?}"))?;
                    s.rename((&inside, b"guest"), (&root, a.as_bytes()), How::Replace).map_err(|e| format!("{a} back: {e:?}"))?;
                }
            }
            6 => s.cache().invalidate_all(),
            7 => s.cache().invalidate_subtree(&root),
            8 => drop(s.cache().shrink(rng.usize(..100))),
            9 => s.cache().invalidate(&root, a.as_bytes()),
            10 => s.cache().reclaim(),
            _ => s.clock.advance(Duration::from_millis(rng.u64(..60))),
        }
        COUNTS.moves.fetch_add(1, Relaxed);
        if rng.u8(..4) == 0 {
            std::thread::sleep(std::time::Duration::from_micros(1));
        }
    }
    Ok(())
}

/// Walks everywhere from the root: what it finds changes under it, but is never nonsense.
fn stranger(s: &Subject, rng: &mut Rng, stop: &AtomicBool) -> Result<(), String> {
    while !stop.load(Relaxed) {
        let top = format!("top{}", rng.usize(..TOPS));
        let whole = format!("/{top}/own{}/{}", rng.usize(..OWNERS), String::from_utf8_lossy(&path(rng, 3).0));
        let got = s.resolve(&whole);
        COUNTS.walks.fetch_add(1, Relaxed);
        if !matches!(got, Ok(_) | Err(No::NotFound | No::NotDirectory | No::Loop)) {
            return Err(format!("{whole} is {got:?}"));
        }
        // An owner's directory is in some top all the time, and where it is it is itself.
        if let Ok(ino) = s.resolve(&format!("/{top}/own0"))
            && s.sim.with(|fs| !fs.is_dir(ino))
        {
            return Err(format!("/{top}/own0 is {ino}"));
        }
    }
    Ok(())
}
