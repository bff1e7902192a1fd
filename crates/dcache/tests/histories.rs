//! Small concurrent histories: two to four threads, ten calls at most, before a store that takes its time. Each must be explained by some order of
//! its calls: a walk's answer is that of one moment, also under renames; a name that is absent was absent.
//!
//! `MANYWAY_DCACHE_HISTORIES` histories of each kind, drawn from `MANYWAY_DCACHE_SEED`.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use common::fs::{Flags, Fs, How, Ino, Make, No, ROOT};
use common::history::{Done, ends, show};
use common::program::Path;
use common::small::{KINDS, Kind, draw, tree};
use common::spec::{Answer, Call};
use common::subject::{Node, Setup, Subject, no};
use common::{grouped, number};
use fastrand::Rng;
use libtest_mimic::{Arguments, Failed, Trial};

static HISTORIES: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static OVERLAPS: AtomicU64 = AtomicU64::new(0);

fn main() {
    let args = Arguments::from_args();
    let mut trials = vec![
        Trial::test("the_judge_finds_a_mix_of_two_moments", judge_finds_a_mix),
        Trial::test("the_judge_finds_an_absent_name_that_was_there", judge_finds_wrong_absence),
    ];
    for kind in KINDS {
        for (size, small) in [("large", false), ("small", true)] {
            trials.push(Trial::test(format!("{kind:?}_{size}").to_lowercase(), move || run(kind, small)));
        }
    }
    let conclusion = libtest_mimic::run(&args, trials);
    if HISTORIES.load(SeqCst) > 0 {
        println!(
            "proof: dcache histories: {} histories of {} calls, {} pairs at the same time, {} violations",
            grouped(HISTORIES.load(SeqCst)),
            grouped(CALLS.load(SeqCst)),
            grouped(OVERLAPS.load(SeqCst)),
            conclusion.num_failed
        );
    }
    conclusion.exit();
}

fn run(kind: Kind, small: bool) -> Result<(), Failed> {
    let seed = number("MANYWAY_DCACHE_SEED", 1) + 1_000_000 * (kind as u64 * 2 + u64::from(small));
    for seed in seed..seed + number("MANYWAY_DCACHE_HISTORIES", 400) {
        one(kind, small, seed)?;
    }
    Ok(())
}

/// Runs one history and judges it.
fn one(kind: Kind, small: bool, seed: u64) -> Result<(), Failed> {
    let rng = &mut Rng::with_seed(seed);
    let fs = tree();
    let setup = Setup { negative_percent: 50, ..if small { Setup { bytes: 2048, ..Setup::small() } } else { Setup::large() } };
    let s = Subject::new(fs.clone(), &setup);
    let nodes: BTreeMap<Ino, Node> = fs.names().into_iter().map(|(dir, name, ino)| (ino, at(&s, &fs, dir, &name))).collect();
    let nodes: BTreeMap<Ino, Node> = nodes.into_iter().chain([(ROOT, s.tree.root())]).collect();
    // Some of it is known when the threads begin.
    match rng.u8(..4) {
        0 => s.cache().invalidate_all(),
        1 => {
            s.cache().invalidate_all();
            for _ in 0..3 {
                let names = fs.names();
                let (dir, name, _) = &names[rng.usize(..names.len())];
                let _ = at(&s, &fs, *dir, name);
            }
        }
        2 => {
            for dir in fs.dirs() {
                s.tree.list(&nodes[&dir]).map_err(|e| e.to_string())?;
            }
        }
        _ => {}
    }
    let programs = draw(rng, kind, &fs);
    let slow = Mutex::new(rng.fork());
    s.sim.hook(move |_, _| {
        pause(&mut slow.lock().unwrap());
        Ok(())
    });
    let (now, barrier) = (AtomicU64::new(0), Barrier::new(programs.len()));
    let mut calls: Vec<Done<Fs>> = std::thread::scope(|scope| {
        let running: Vec<_> = programs
            .iter()
            .enumerate()
            .map(|(thread, program)| {
                let (s, nodes, now, barrier, mut rng) = (&s, &nodes, &now, &barrier, rng.fork());
                scope.spawn(move || {
                    barrier.wait();
                    let mut done = vec![];
                    for call in program {
                        pause(&mut rng);
                        let began = now.fetch_add(1, SeqCst);
                        let answer = make(s, nodes, call);
                        let ended = now.fetch_add(1, SeqCst);
                        done.push(Done { thread, began, ended, call: call.clone(), answer });
                    }
                    done
                })
            })
            .collect();
        running.into_iter().flat_map(|t| t.join().expect("a call panicked")).collect()
    });
    s.sim.unhook();
    CALLS.fetch_add(calls.len() as u64, SeqCst);
    let pairs = calls.iter().enumerate().map(|(i, a)| calls[i + 1..].iter().filter(|b| a.began < b.ended && b.began < a.ended).count());
    OVERLAPS.fetch_add(pairs.sum::<usize>() as u64, SeqCst);
    HISTORIES.fetch_add(1, SeqCst);
    let later = 1_000_000;
    // A directory that a link was made to would have two names: the store refuses it, and so all ends are trees.
    let found = ends(&fs, &calls);
    if found.is_empty() {
        return Err(format!("seed {seed}: nothing explains\n{}", show(&calls)).into());
    }
    if !found.contains(&s.sim.fs()) {
        return Err(format!("seed {seed}: the store holds something else after\n{}", show(&calls)).into());
    }
    // And when all is quiet, every name is as the store has it, and some others are absent.
    let fs_now = s.sim.fs();
    for (i, path) in quiet_paths(&fs_now).into_iter().enumerate() {
        let flags = Flags { no_follow: true, directory: false };
        let call = Call::Walk(ROOT, path, flags);
        let answer = make(&s, &nodes, &call);
        let mut fs = fs_now.clone();
        if !common::history::Spec::answers(&mut fs, &call, &answer) {
            calls.push(Done { thread: 9, began: later + i as u64, ended: later + i as u64, call, answer });
            return Err(format!("seed {seed}: the last is wrong\n{}", show(&calls)).into());
        }
    }
    s.check_bounds();
    drop(nodes);
    s.end();
    Ok(())
}

fn quiet_paths(fs: &Fs) -> Vec<Path> {
    let there = fs.names().into_iter().map(|(dir, name, _)| Path([fs.path_of(dir), name].join(&b'/')));
    let others = ["/a/c/d/f", "/b/c/d/f", "/e/c/d", "/e/d", "/a/x", "/b/x", "/a/e", "/e/x", "/c", "/d", "/x"];
    there.chain(others.map(|p| Path(p.as_bytes().to_vec()))).collect()
}

fn at(s: &Subject, fs: &Fs, dir: Ino, name: &[u8]) -> Node {
    let path = [&fs.path_of(dir), name].join(&b'/');
    s.handle(&s.tree.root(), &path, Flags { no_follow: true, directory: false }).expect("it is there")
}

/// Nothing, a little, or long enough for others to do much.
fn pause(rng: &mut Rng) {
    match rng.u8(..8) {
        0..=3 => {}
        4 | 5 => (0..rng.u32(..200)).for_each(|_| std::hint::spin_loop()),
        6 => std::thread::sleep(std::time::Duration::from_micros(1)),
        _ => std::thread::sleep(Duration::from_micros(rng.u64(1..60))),
    }
}

fn make(s: &Subject, nodes: &BTreeMap<Ino, Node>, call: &Call) -> Answer {
    let done = |r: Result<(), manyway_dcache::Error>| Answer::Done(r.map_err(no));
    match call {
        Call::Walk(start, path, flags) => Answer::Ino(s.walk(&nodes[start], &path.0, *flags)),
        Call::Create(dir, name, make) => Answer::Ino(s.create(&nodes[dir], &name.0, make)),
        Call::Link(ino, dir, name) => done(s.tree.link(&nodes[ino], &nodes[dir], &name.0)),
        Call::Unlink(dir, name) => done(s.tree.unlink(&nodes[dir], &name.0)),
        Call::Rmdir(dir, name) => done(s.tree.rmdir(&nodes[dir], &name.0)),
        Call::Rename(from, to, how) => Answer::Done(s.rename((&nodes[&from.0], &from.1.0), (&nodes[&to.0], &to.1.0), *how)),
        Call::UnlinkAside(dir, name) => {
            let answer = s.sim.with(|fs| fs.unlink(*dir, &name.0));
            s.cache().invalidate(&nodes[dir], &name.0);
            Answer::Done(answer)
        }
        Call::CreateAside(dir, name, make) => {
            let answer = s.sim.with(|fs| fs.create(*dir, &name.0, make.clone()));
            s.cache().invalidate(&nodes[dir], &name.0);
            Answer::Ino(answer)
        }
        Call::Invalidate(dir, name) => {
            s.cache().invalidate(&nodes[dir], &name.0);
            Answer::Done(Ok(()))
        }
        Call::InvalidateSubtree(dir) => {
            s.cache().invalidate_subtree(&nodes[dir]);
            Answer::Done(Ok(()))
        }
        Call::List(dir) => {
            let _ = s.tree.list(&nodes[dir]);
            Answer::Done(Ok(()))
        }
    }
}

fn path(text: &str) -> Path {
    Path(text.as_bytes().to_vec())
}

fn renamed(from: (Ino, &str), to: (Ino, &str), began: u64, ended: u64) -> Done<Fs> {
    let call = Call::Rename((from.0, path(from.1)), (to.0, path(to.1)), How::Replace);
    Done { thread: 0, began, ended, call, answer: Answer::Done(Ok(())) }
}

fn walked(to: &str, answer: Result<Ino, No>, began: u64, ended: u64) -> Done<Fs> {
    Done { thread: 1, began, ended, call: Call::Walk(ROOT, path(to), Flags::default()), answer: Answer::Ino(answer) }
}

/// `/p/s` and `/q/t` are never there at once: a walk that has met `p` in one moment and `s` in another must not be believed.
fn judge_finds_a_mix() -> Result<(), Failed> {
    let mut fs = Fs::default();
    let p = fs.create(ROOT, b"p", Make::Dir).expect("new");
    let q = fs.create(ROOT, b"q", Make::Dir).expect("new");
    let f = fs.create(q, b"f", Make::File).expect("new");
    // First `p` goes away, then `f` comes to where it was: `/p/f` never was.
    let moves = [renamed((ROOT, "p"), (ROOT, "r"), 1, 2), renamed((q, "f"), (p, "f"), 3, 4)];
    let with = |walk| [moves[0].clone(), moves[1].clone(), walk];
    assert!(ends(&fs, &with(walked("/p/f", Ok(f), 0, 9))).is_empty(), "it never was");
    assert_eq!(ends(&fs, &with(walked("/r/f", Ok(f), 0, 9))).len(), 1, "it is, at the end");
    assert!(ends(&fs, &with(walked("/r/f", Ok(f), 0, 2))).is_empty(), "not yet");
    Ok(())
}

/// A name that existed throughout, here or there, is found.
fn judge_finds_wrong_absence() -> Result<(), Failed> {
    let fs = tree();
    let x = fs.walk(ROOT, b"/a/x", Flags::default()).expect("there");
    let moved = renamed((ROOT, "b"), (ROOT, "e2"), 1, 5);
    assert!(ends(&fs, &[moved.clone(), walked("/a/x", Err(No::NotFound), 0, 9)]).is_empty(), "it was there all the time");
    assert!(!ends(&fs, &[moved.clone(), walked("/a/x", Ok(x), 0, 9)]).is_empty());
    assert!(ends(&fs, &[moved.clone(), walked("/b/c", Err(No::NotFound), 6, 9), walked("/e2/c", Err(No::NotFound), 6, 9)]).is_empty());
    // Both absences are true one after the other, if the first was seen after the move and the other before it; not in this order.
    assert!(ends(&fs, &[moved, walked("/b/c", Err(No::NotFound), 1, 2), walked("/e2/c", Err(No::NotFound), 3, 4)]).is_empty());
    Ok(())
}
