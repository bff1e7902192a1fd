//! Random programs on the cache before a store, compared with the reference after each step: with a bound so small that nearly everything is evicted,
//! with a large one, with times to live, with names of files of several links unknown to the cache.
//!
//! `MANYWAY_RANDOM_CASES` programs for each kind of cache, drawn from `MANYWAY_RANDOM_SEED`. A program that fails is made smaller and shown with what
//! each step said.

mod common;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use common::doing::Doing;
use common::fs::{Flags, Fs, Ino, No, ROOT};
use common::low::{ask, hand_in};
use common::program::{Amends, At, Change, Failure, Op, Path, Reply, program};
use common::store::When;
use common::subject::{Inode, Node, Setup, Subject, error};
use common::{grouped, number};
use libtest_mimic::{Arguments, Failed, Trial};
use manyway_dcache::{Outcome, Ticket};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

static PROGRAMS: AtomicU64 = AtomicU64::new(0);
static STEPS: AtomicU64 = AtomicU64::new(0);
static EVICTED: AtomicU64 = AtomicU64::new(0);
/// What happened how often: each kind of step with each kind of end.
static MARKS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// What must have happened in so many programs, or they are not worth much.
const WANTED: [&str; 22] = [
    "walk ok",
    "walk NotFound",
    "walk NotDirectory",
    "walk Loop",
    "walk Denied",
    "create ok",
    "create Exists",
    "link ok",
    "unlink ok",
    "unlink IsDirectory",
    "rmdir ok",
    "rmdir NotEmpty",
    "rename ok",
    "rename Exists",
    "rename Invalid",
    "rename NotEmpty",
    "list ok",
    "list complete ok",
    "aside ok",
    "lost ok",
    "answer kept ok",
    "answer overtaken ok",
];
const ENOUGH: u64 = 300;

fn main() {
    let args = Arguments::from_args();
    let ttl = Some(Duration::from_millis(1000));
    let kinds = [
        ("large", Setup::large()),
        ("small", Setup::small()),
        ("large_with_time", Setup { ttl, ..Setup::large() }),
        ("small_with_time", Setup { ttl, revalidates: false, ..Setup::small() }),
        ("without_numbers_of_files", Setup { ids: false, ..Setup::large() }),
        ("without_negatives", Setup { negative_percent: 0, complete: false, ..Setup::small() }),
    ];
    let trials = kinds.map(|(name, setup)| Trial::test(name, move || run(&setup)));
    let conclusion = libtest_mimic::run(&args, trials.into());
    if PROGRAMS.load(Relaxed) > 0 && !conclusion.has_failed() {
        println!(
            "proof: dcache programs: {} programs, {} steps, {} nodes evicted, {} violations",
            grouped(PROGRAMS.load(Relaxed)),
            grouped(STEPS.load(Relaxed)),
            grouped(EVICTED.load(Relaxed)),
            conclusion.num_failed
        );
    }
    conclusion.exit();
}

fn run(setup: &Setup) -> Result<(), Failed> {
    let cases = number("MANYWAY_RANDOM_CASES", 1000);
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number("MANYWAY_RANDOM_SEED", 1).to_le_bytes());
    let config = Config { cases: cases as u32, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let result = runner.run(&program(60), |ops| {
        let mut run = Run::new(setup);
        let mut said = vec![];
        for op in &ops {
            STEPS.fetch_add(1, Relaxed);
            let before = said.len();
            let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step(op, &mut said)));
            let end = end.unwrap_or_else(|p| Err(format!("panic: {}", text_of(&*p))));
            if let Err(why) = end {
                std::mem::forget(run);
                let said = said.join("\n  ");
                return Err(TestCaseError::fail(format!("{why}\n  {said}\n  (at {op:?}, step {before})")));
            }
        }
        PROGRAMS.fetch_add(1, Relaxed);
        run.end().map_err(|why| TestCaseError::fail(format!("{why}\n  {}", said.join("\n  "))))
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, _)) => return Err(format!("{setup:?}\n{why}").into()),
        Err(TestError::Abort(why)) => return Err(format!("{why}").into()),
    }
    let marks = MARKS.lock().unwrap();
    let missing: Vec<_> = WANTED.iter().filter(|w| !marks.contains_key(**w)).collect();
    if cases >= ENOUGH && setup.complete && setup.ids && !missing.is_empty() {
        return Err(format!("never happened: {missing:?} in {marks:?}").into());
    }
    Ok(())
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
}

fn mark<T>(what: &str, end: &Result<T, No>) {
    let end = match end {
        Ok(_) => "ok".to_owned(),
        Err(no) => format!("{no:?}"),
    };
    *MARKS.lock().unwrap().entry(format!("{what} {end}")).or_default() += 1;
}

/// A ticket that is held, and what the store had said.
struct Open {
    at: (Ino, Vec<u8>),
    ticket: Ticket<Inode>,
    answer: Result<Ino, No>,
    /// The name was changed or forgotten meanwhile: it must not be kept.
    overtaken: bool,
}

struct Run {
    s: Subject,
    pins: Vec<Node>,
    held: Vec<Node>,
    open: Vec<Open>,
}

impl Run {
    fn new(setup: &Setup) -> Run {
        Run { s: Subject::new(Fs::default(), setup), pins: vec![], held: vec![], open: vec![] }
    }

    /// What a path leads to. While tickets are held, nobody may wait.
    fn reach(&self, start: &Node, path: &[u8], flags: Flags) -> Result<Node, No> {
        if self.open.is_empty() { self.s.handle(start, path, flags) } else { self.s.low_handle(start, path, flags) }
    }

    fn dir(&self, path: &Path) -> Result<Node, No> {
        let dir = self.reach(&self.s.tree.root(), &path.0, Flags::default())?;
        if self.s.sim.with(|fs| fs.is_dir(dir.inode().ino)) { Ok(dir) } else { Err(No::NotDirectory) }
    }

    /// The reference's answer, with what it had before.
    fn expect<T>(&self, f: impl FnOnce(&mut Fs) -> Result<T, No>) -> (Result<T, No>, Fs) {
        let mut fs = self.s.sim.fs();
        let answer = f(&mut fs);
        (answer, fs)
    }

    fn step(&mut self, op: &Op, said: &mut Vec<String>) -> Result<(), String> {
        let fs = self.s.sim.fs();
        match op {
            Op::Walk(from, to, flags) => self.walk(&from.path(&fs), &to.path(&fs), *flags, said)?,
            Op::Change(change) => self.change(change, None, said)?,
            Op::Fails(change, failure) => self.change(change, Some(*failure), said)?,
            Op::Aside(change, amends) => self.aside(change, *amends, said)?,
            Op::List(dir) => self.list(&dir.path(&fs), said)?,
            Op::ListPart(dir, most) => {
                if let Ok(dir) = self.dir(&dir.path(&fs)) {
                    self.overtake_all_in(dir.inode().ino);
                    let complete = self.s.low_list(&dir, *most);
                    mark(if complete == Ok(true) { "list complete" } else { "list part" }, &Ok(()));
                    said.push(format!("list {most} of {}: {complete:?}", dir.inode().ino));
                }
            }
            Op::WalkFails(route) => self.walk_fails(&route.path(&fs), said)?,
            Op::Clock(ms) => {
                self.s.clock.advance(Duration::from_millis(*ms));
                said.push(format!("{ms} ms pass"));
            }
            Op::Pin(route) => {
                let path = route.path(&fs);
                if let Ok(node) = self.reach(&self.s.tree.root(), &path.0, Flags::default())
                    && self.pins.len() < 8
                {
                    node.pin(1);
                    said.push(format!("pin {path:?}, {}", node.inode().ino));
                    self.pins.push(node);
                }
            }
            Op::Unpin(n) => {
                if !self.pins.is_empty() {
                    let node = self.pins.swap_remove(n % self.pins.len());
                    self.s.cache().unpin(node.number(), 1);
                    said.push(format!("unpin {}", node.inode().ino));
                }
            }
            Op::Close(dir, closed) => {
                let path = dir.path(&fs);
                if let Ok(ino) = fs.walk(ROOT, &path.0, Flags::default())
                    && fs.is_dir(ino)
                {
                    self.s.sim.with(|fs| fs.close(ino, *closed));
                    said.push(format!("close {path:?}, {ino}: {closed}"));
                }
            }
            Op::Invalidate(spot) => {
                let at = spot.at(&fs);
                if let Ok(dir) = self.dir(&at.dir) {
                    self.invalidate(&dir, &at.name.0);
                    said.push(format!("invalidate {at:?}"));
                }
            }
            Op::InvalidateSubtree(dir) => {
                let path = dir.path(&fs);
                if let Ok(dir) = self.dir(&path) {
                    self.s.cache().invalidate_subtree(&dir);
                    self.open.iter_mut().filter(|o| fs.is_below(o.at.0, dir.inode().ino)).for_each(|o| o.overtaken = true);
                    said.push(format!("invalidate below {path:?}"));
                }
            }
            Op::InvalidateAll => {
                self.s.cache().invalidate_all();
                self.open.iter_mut().for_each(|o| o.overtaken = true);
                said.push("invalidate all".to_owned());
            }
            Op::Shrink(n) => {
                let evicted = self.s.cache().shrink(*n);
                said.push(format!("shrink by {n}: {evicted}"));
                if evicted > *n {
                    return Err(format!("{evicted} were evicted"));
                }
            }
            Op::Hold(dir) => {
                if let Ok(dir) = self.dir(&dir.path(&fs))
                    && self.held.len() < 6
                {
                    said.push(format!("hold {}", dir.inode().ino));
                    self.held.push(dir);
                }
            }
            Op::WalkHeld(n, to, flags) => {
                if !self.held.is_empty() {
                    let from = self.held[n % self.held.len()].clone();
                    let got = self.reach(&from, &to.path(&fs).0, *flags).map(|h| h.inode().ino);
                    self.judge_held(&from, &to.path(&fs), *flags, got, said)?;
                }
            }
            Op::Draw(spot) => self.draw(&spot.at(&fs), said)?,
            Op::Answer(reply) => self.answer(*reply, said)?,
        }
        self.s.check_bounds();
        Ok(())
    }

    fn walk(&self, from: &Path, to: &Path, flags: Flags, said: &mut Vec<String>) -> Result<(), String> {
        let fs = self.s.sim.fs();
        let Ok(start) = self.dir(from) else { return Ok(()) };
        let rule = fs.walk(start.inode().ino, &to.0, flags);
        let got = self.reach(&start, &to.0, flags).map(|h| h.inode().ino);
        said.push(format!("walk {from:?} {to:?} {flags:?}: {got:?}"));
        mark("walk", &got);
        if got == Err(No::Busy) {
            return if self.open.is_empty() { Err("busy, and nobody holds a ticket".to_owned()) } else { Ok(()) };
        }
        // The directory from which it was walked has no name in the cache any more: from the root, then.
        if got == Err(No::Stale) && to.0.windows(2).any(|w| w == b"..") {
            let whole = [from.0.as_slice(), &to.0].join(&b'/');
            let rule = fs.walk(ROOT, &whole, flags);
            let got = self.reach(&self.s.tree.root(), &whole, flags).map(|h| h.inode().ino);
            said.push(format!("walk {:?}: {got:?}", Path(whole)));
            return same(&rule, &got);
        }
        same(&rule, &got)
    }

    /// A directory that is held may have been removed, or have lost its name in the cache.
    fn judge_held(&self, from: &Node, to: &Path, flags: Flags, got: Result<Ino, No>, said: &mut Vec<String>) -> Result<(), String> {
        let fs = self.s.sim.fs();
        let ino = from.inode().ino;
        said.push(format!("walk from {ino} {to:?} {flags:?}: {got:?}"));
        mark("walk held", &got);
        let up = to.0.windows(2).any(|w| w == b"..");
        match got {
            Err(No::Busy) if !self.open.is_empty() => Ok(()),
            Err(No::Stale) if up => Ok(()),
            // What `.` and `..` of a removed directory are is a matter of taste.
            Err(No::NotFound | No::Stale) if fs.is_removed(ino) && !to.0.starts_with(b"/") => Ok(()),
            got => same(&fs.walk(ino, &to.0, flags), &got),
        }
    }

    fn walk_fails(&self, path: &Path, said: &mut Vec<String>) -> Result<(), String> {
        let rule = self.s.sim.with(|fs| fs.walk(ROOT, &path.0, Flags::default()));
        self.s.sim.hook(|_, when| if when == When::Before { Err(No::Failed) } else { Ok(()) });
        let before = self.s.sim.calls();
        let got = self.reach(&self.s.tree.root(), &path.0, Flags::default()).map(|h| h.inode().ino);
        self.s.sim.unhook();
        said.push(format!("walk {path:?}, the store fails: {got:?}"));
        if self.s.sim.calls() > before && got != Err(No::Busy) { same(&Err(No::Failed), &got) } else { self.allow_busy(&rule, &got) }
    }

    fn allow_busy<T: PartialEq + std::fmt::Debug>(&self, rule: &Result<T, No>, got: &Result<T, No>) -> Result<(), String> {
        if matches!(got, Err(No::Busy)) && !self.open.is_empty() { Ok(()) } else { same(rule, got) }
    }

    fn list(&mut self, path: &Path, said: &mut Vec<String>) -> Result<(), String> {
        let Ok(dir) = self.dir(path) else { return Ok(()) };
        let ino = dir.inode().ino;
        let rule = self.s.sim.with(|fs| fs.list(ino));
        self.overtake_all_in(ino);
        let got = self.s.tree.list(&dir).map(|l| {
            let mut names: Vec<_> = l.into_iter().map(|(name, node)| (name, node.inode().ino)).collect();
            names.sort();
            names
        });
        let got = got.map_err(common::subject::no);
        said.push(format!("list {path:?}: {got:?}"));
        mark("list", &got);
        same(&rule, &got)
    }

    /// Makes the change through the cache; says what the reference says of it before.
    fn change(&mut self, change: &Change, failure: Option<Failure>, said: &mut Vec<String>) -> Result<(), String> {
        let Some(doing) = self.doing(change) else { return Ok(()) };
        let (rule, after) = self.expect(|fs| doing.on(fs));
        if let Some(failure) = failure {
            let at = if failure == Failure::Before { When::Before } else { When::After };
            self.s.sim.hook(move |_, when| if when == at { Err(No::Failed) } else { Ok(()) });
        }
        let before = (self.s.sim.fs(), self.s.sim.calls());
        let got = doing.through(&self.s, !self.open.is_empty());
        self.s.sim.unhook();
        said.push(format!("{doing:?} {}: {got:?}", failure.map_or(String::new(), |f| format!("(fails: {f:?})"))));
        let asked = self.s.sim.calls() > before.1;
        if got.is_ok() || failure.is_some() {
            for (dir, name) in doing.names() {
                self.overtake(dir, &name);
            }
        }
        let now = self.s.sim.fs();
        match failure {
            Some(f) if asked => {
                mark(if f == Failure::After && now != before.0 { "lost" } else { "failed" }, &rule);
                same(&Err(No::Failed), &got)?;
            }
            _ => {
                mark(doing.what(), &got);
                // Of two reasons against a rename the cache may know the one and the store tell the other first.
                let either =
                    matches!(doing, Doing::Rename(..)) && rule.is_err() && matches!(got, Err(e) if e != No::Failed && e != No::Stale);
                if !either {
                    same(&rule, &got)?;
                }
                if now != after {
                    return Err("the store was asked for something else".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Makes the change in the store, and then tells the cache what it must know.
    fn aside(&mut self, change: &Change, amends: Amends, said: &mut Vec<String>) -> Result<(), String> {
        let Some(doing) = self.doing(change) else { return Ok(()) };
        if amends == Amends::Time {
            // What was asked before is as old as what is cached, and nobody would know.
            self.open.clear();
        }
        let done = self.s.sim.with(|fs| doing.on(fs));
        said.push(format!("beside: {doing:?}: {done:?}, {amends:?}"));
        mark("aside", &done);
        match amends {
            Amends::Names => {
                for (dir, name) in doing.dirs() {
                    self.invalidate(&dir, &name);
                }
            }
            Amends::Subtree => {
                self.s.cache().invalidate_subtree(&self.s.tree.root());
                self.open.iter_mut().for_each(|o| o.overtaken = true);
            }
            Amends::Time if self.s.setup.ttl.is_some() => self.s.clock.advance(Duration::from_millis(1100)),
            Amends::All | Amends::Time => {
                self.s.cache().invalidate_all();
                self.open.iter_mut().for_each(|o| o.overtaken = true);
            }
        }
        Ok(())
    }

    fn invalidate(&mut self, dir: &Node, name: &[u8]) {
        self.s.cache().invalidate(dir, name);
        self.overtake(dir.inode().ino, name);
    }

    fn overtake(&mut self, dir: Ino, name: &[u8]) {
        self.open.iter_mut().filter(|o| o.at.0 == dir && o.at.1 == name).for_each(|o| o.overtaken = true);
    }

    /// A listing says what the names are, later than a ticket's holder was told; whether that one is still kept is its own affair, as nothing has changed.
    fn overtake_all_in(&mut self, dir: Ino) {
        self.open.retain(|o| o.at.0 != dir);
    }

    fn draw(&mut self, at: &At, said: &mut Vec<String>) -> Result<(), String> {
        if self.open.len() >= 4 {
            return Ok(());
        }
        let Ok(dir) = self.dir(&at.dir) else { return Ok(()) };
        let ino = dir.inode().ino;
        let outcome = if self.open.iter().any(|o| !o.overtaken && o.at.0 == ino && o.at.1 == at.name.0) {
            // It would wait for ourselves.
            return Ok(());
        } else {
            self.s.cache().lookup(&dir, &at.name.0)
        };
        match outcome {
            Outcome::Miss(ticket) | Outcome::Stale(ticket) => {
                let answer = ask(&self.s, &ticket);
                said.push(format!("draw {at:?}, {ino}: {answer:?}"));
                self.open.push(Open { at: (ino, at.name.0.clone()), ticket, answer, overtaken: false });
                Ok(())
            }
            Outcome::Found(found) => {
                let got = Ok(found.inode().ino);
                drop(found);
                same(&self.s.sim.with(|fs| fs.lookup(ino, &at.name.0)), &got)
            }
            Outcome::Absent(_) => same(&self.s.sim.with(|fs| fs.lookup(ino, &at.name.0)), &Err(No::NotFound)),
            Outcome::Failed(e) => Err(format!("look-up: {e:?}")),
            _ => Err("a look-up of another kind".to_owned()),
        }
    }

    fn answer(&mut self, reply: Reply, said: &mut Vec<String>) -> Result<(), String> {
        if self.open.is_empty() {
            return Ok(());
        }
        let open = self.open.remove(0);
        let what = format!("{:?} in {}: {:?}", Path(open.at.1.clone()), open.at.0, open.answer);
        match reply {
            Reply::Publish => {
                let Some(filled) = hand_in(&self.s, open.ticket, open.answer) else { return Ok(()) };
                said.push(format!("answer {what}: kept {}", filled.kept()));
                mark(if filled.kept() { "answer kept" } else { "answer overtaken" }, &Ok(()));
                if filled.node().map(|n| n.inode().ino) != open.answer.ok() {
                    return Err("another answer".to_owned());
                }
                if filled.kept() && open.overtaken {
                    return Err("an answer that was overtaken is kept".to_owned());
                }
            }
            Reply::Drop => {
                drop(open.ticket);
                said.push(format!("drop {what}"));
            }
            Reply::Fail => {
                open.ticket.failed(error(No::Failed));
                said.push(format!("fail {what}"));
            }
        }
        Ok(())
    }

    fn doing(&self, change: &Change) -> Option<Doing> {
        let fs = self.s.sim.fs();
        let place = |at: At| Some((self.dir(&at.dir).ok()?, at.name.0));
        Some(match change {
            Change::Create(at, make) => Doing::Create(place(at.at(&fs))?, make.clone()),
            // Where files of several names have no numbers the cache cannot know that they are one.
            Change::Link(..) if !self.s.setup.ids => return None,
            Change::Link(of, at) => {
                let node = self.reach(&self.s.tree.root(), &of.path(&fs).0, Flags { no_follow: true, directory: false }).ok()?;
                Doing::Link(node, place(at.at(&fs))?)
            }
            Change::Unlink(at) => Doing::Unlink(place(at.at(&fs))?),
            Change::Rmdir(at) => Doing::Rmdir(place(at.at(&fs))?),
            Change::Rename(from, to, how) => Doing::Rename(place(from.at(&fs))?, place(to.at(&fs))?, *how),
        })
    }

    /// All names are as the reference has them; then nothing is left.
    fn end(mut self) -> Result<(), String> {
        self.open.clear();
        let fs = self.s.sim.fs();
        for (dir, name, ino) in fs.names() {
            self.s.sim.with(|fs| fs.close(dir, false));
            let path = [fs.path_of(dir), name].join(&b'/');
            let got = self.s.low_handle(&self.s.tree.root(), &path, Flags { no_follow: true, directory: false }).map(|h| h.inode().ino);
            if !self.s.sim.with(|fs| fs.dirs().iter().any(|&d| fs.node(d).closed)) {
                same(&Ok(ino), &got).map_err(|why| format!("at the end, {:?}: {why}", Path(path)))?;
            }
        }
        for node in self.pins.drain(..) {
            self.s.cache().unpin(node.number(), 1);
        }
        self.held.clear();
        self.s.check_bounds();
        self.s.cache().invalidate_all();
        self.s.cache().reclaim();
        EVICTED.fetch_add(self.s.census.evicted() as u64, Relaxed);
        self.s.end();
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(rule: &Result<T, No>, got: &Result<T, No>) -> Result<(), String> {
    if rule == got { Ok(()) } else { Err(format!("should be {rule:?}, is {got:?}")) }
}
