//! A worker: a process whose threads call at random until it is killed, executes another image, or has done enough.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;
use std::time::Duration;

use manyway_sem::abi::{SEM_UNDO, SemBuf};
use manyway_sem::{Errno, Namespace};

use crate::calls::{Calls, Patience};
use crate::ledger::{Count, DOOMED, Hand, Ledger, SETS, THREADS, UNITS, Unit, Use, size_of_set, use_of};
use crate::sys;

/// The first argument of this program when it is to be a worker.
pub const WORKER: &str = "worker-of-storms";
/// The exit status of one that has complained.
pub const COMPLAINED: i32 = 42;
/// Most operations in one call: more than fit a cache line, a hundred times as many as one.
const HUNDREDS: usize = 120;

/// Units that are held with undo: set number, id, semaphore, how many.
pub type Holding = (usize, i32, u16, i16);

/// What a worker is told when it is started.
#[derive(Clone, Debug)]
pub struct Orders {
    pub dir: PathBuf,
    pub ledger: PathBuf,
    pub seed: u64,
    /// Through the preloaded library.
    pub c: bool,
    /// The entry of the image before this one, and what is still held.
    pub before: Option<(usize, Vec<Holding>)>,
}

impl Orders {
    pub fn args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![
            WORKER.into(),
            self.dir.clone().into(),
            self.ledger.clone().into(),
            self.seed.to_string().into(),
            u8::from(self.c).to_string().into(),
        ];
        if let Some((crew, held)) = &self.before {
            args.push(crew.to_string().into());
            args.extend(held.iter().map(|(s, id, num, n)| format!("{s},{id},{num},{n}").into()));
        }
        args
    }
    pub fn parse(args: &[OsString]) -> Orders {
        let number = |a: &OsString| a.to_str().and_then(|s| s.parse::<u64>().ok()).expect("a number");
        let before = args.get(5).map(|crew| {
            let held = args[6..].iter().map(|a| {
                let n: Vec<i32> = a.to_str().expect("ASCII").split(',').map(|n| n.parse().expect("a number")).collect();
                (n[0] as usize, n[1], n[2] as u16, n[3] as i16)
            });
            (number(crew) as usize, held.collect())
        });
        Orders { dir: (&args[1]).into(), ledger: (&args[2]).into(), seed: number(&args[3]), c: number(&args[4]) == 1, before }
    }
}

/// A thread of a worker.
struct Worker {
    orders: Orders,
    ledger: &'static Ledger,
    crew: usize,
    hand: usize,
    calls: Calls,
    random: fastrand::Rng,
    held: Vec<Holding>,
    /// Only the process's first thread starts others, forks and executes.
    first: bool,
    threads: Vec<JoinHandle<()>>,
}

/// The worker's main function.
pub fn main(orders: Orders) {
    let ledger = Ledger::open(&orders.ledger);
    let crew = ledger.enlist(std::process::id());
    if let Some((old, _)) = &orders.before {
        ledger.crews[*old].ended.store(1, SeqCst);
    }
    let Some(crew) = crew else { return };
    let calls = if orders.c {
        Calls::C
    } else {
        let open = || Namespace::options().create(false).open(&orders.dir);
        Calls::of_crate(open().unwrap_or_else(|e| complain(ledger, format_args!("cannot open the namespace: {e}"))))
    };
    let random = fastrand::Rng::with_seed(orders.seed);
    let before = orders.before.clone();
    let mut worker = Worker { orders, ledger, crew, hand: 0, calls, random, held: Vec::new(), first: true, threads: Vec::new() };
    worker.begin();
    if let Some((_, held)) = before {
        worker.take_over(held);
    }
    worker.work(u64::MAX);
}

fn complain(ledger: &Ledger, what: std::fmt::Arguments<'_>) -> ! {
    ledger.complain(format_args!("process {}: {what}", std::process::id()));
    sys::exit_now(COMPLAINED)
}

const fn op(num: u16, op: i16, flags: i32) -> SemBuf {
    SemBuf { num, op, flg: flags as i16 }
}

impl Worker {
    fn hand(&self) -> &'static Hand {
        &self.ledger.crews[self.crew].hands[self.hand]
    }
    fn complain(&self, what: std::fmt::Arguments<'_>) -> ! {
        complain(self.ledger, what)
    }

    /// The process's first thread is at work from here on, unless the conductor has everybody at rest: one of the two sees the other.
    fn begin(&self) {
        loop {
            self.hand().at.store(1, SeqCst);
            if self.ledger.paused.load(SeqCst) == 0 {
                return;
            }
            self.hand().at.store(0, SeqCst);
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Steps until so many are done.
    fn work(&mut self, steps: u64) {
        for _ in 0..steps {
            self.rest();
            self.step();
        }
        self.hand().at.store(0, SeqCst);
    }

    /// Comes to rest while there is a muster.
    fn rest(&mut self) {
        loop {
            let muster = self.ledger.muster.load(SeqCst);
            if muster.is_multiple_of(2) {
                return self.hand().at.store(1, SeqCst);
            }
            self.hand().at.store(muster + 1, SeqCst);
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn step(&mut self) {
        let s = self.some_set();
        match self.random.u32(..1000) {
            0..640 => match use_of(s) {
                Use::Undo => self.undo(s),
                Use::Moves => self.moves(s),
                Use::Plain => self.plain(s),
            },
            640..880 => self.query(s),
            880..940 => self.own_set(),
            940..950 => self.make_again(),
            950..970 if self.first => self.start_thread(),
            970..980 if self.first => self.fork(),
            980..984 if self.first => self.exec(),
            // Others get on.
            _ => std::thread::sleep(Duration::from_micros(self.random.u64(1..500))),
        }
    }

    /// Some are fought for.
    fn some_set(&mut self) -> usize {
        match self.random.u32(..10) {
            0..4 => [0, 1, 5, 7, DOOMED][self.random.usize(..5)],
            4..6 => self.random.usize(DOOMED..SETS),
            _ => self.random.usize(..SETS),
        }
    }

    /// A semaphore of a set; the first ones more often.
    fn some_sem(&mut self, s: usize) -> u16 {
        let n = size_of_set(s);
        if self.random.u8(..4) < 3 { self.random.u16(..n.min(3)) } else { self.random.u16(..n) }
    }

    /// One call, with what must hold of every call. None: the set is gone. False: it did not get what it wanted.
    fn call(&mut self, s: usize, id: i32, ops: &[SemBuf], patience: Patience) -> Option<bool> {
        let l = self.ledger;
        let full = l.full.load(SeqCst);
        let began = sys::now_ns();
        let until = match patience {
            Patience::None => began,
            Patience::For(t) => began + t.as_nanos() as u64,
            Patience::Forever => u64::MAX,
        };
        self.hand().until.store(until, SeqCst);
        let r = self.calls.op(id, ops, patience);
        self.hand().until.store(0, SeqCst);
        let ended = sys::now_ns();
        l.count(match ops.len() {
            1 => Count::Simple,
            2..=20 => Count::Several,
            _ => Count::Hundreds,
        });
        match patience {
            Patience::None => l.count(Count::NoWait),
            Patience::For(_) => {
                l.count(Count::Timed);
                l.latest.fetch_max(ended.saturating_sub(until), Relaxed);
            }
            Patience::Forever => {
                l.count(Count::Untimed);
                l.longest.fetch_max(ended - began, Relaxed);
            }
        }
        if self.calls.is_c() {
            l.count(Count::Preloaded);
        }
        match r {
            Ok(()) => Some(true),
            Err(Errno::EAGAIN) => {
                if let Patience::For(t) = patience {
                    l.count(Count::TimedOut);
                    if ended < until {
                        self.complain(format_args!("a call of {t:?} on set {s} timed out after {} ns", ended - began));
                    }
                }
                if patience == Patience::Forever {
                    self.complain(format_args!("EAGAIN from a call on set {s} that has no timeout: {ops:?}"));
                }
                Some(false)
            }
            Err(Errno::EIDRM | Errno::EINVAL) if s >= DOOMED => {
                l.count(Count::Gone);
                None
            }
            Err(Errno::ENOMEM | Errno::ENOSPC) if full % 2 == 1 || l.full.load(SeqCst) != full => {
                l.count(Count::NoRoom);
                Some(false)
            }
            Err(e) => self.complain(format_args!("{e} from a call on set {s}, id {id} (now {}): {ops:?}", l.sets[s].load(SeqCst))),
        }
    }

    /// A call that never waits; again for as long as there is no room.
    fn give(&mut self, s: usize, id: i32, ops: &[SemBuf]) {
        for _ in 0..20_000 {
            if self.call(s, id, ops, Patience::None) != Some(false) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.complain(format_args!("what never waits was refused on set {s}: {ops:?}"));
    }

    fn patience(&mut self, may_wait_for_ever: bool) -> Patience {
        match self.random.u32(..10) {
            0..3 => Patience::None,
            3..6 if may_wait_for_ever => Patience::Forever,
            _ => Patience::For(Duration::from_micros([5, 200, 2_000, 20_000][self.random.usize(..4)])),
        }
    }

    /// Takes units with undo, does something or nothing, and gives them back.
    fn undo(&mut self, s: usize) {
        let id = self.ledger.sets[s].load(SeqCst);
        if id == 0 {
            return;
        }
        let n = size_of_set(s);
        let most = match self.random.u32(..100) {
            0..60 => 1,
            60..97 => self.random.usize(2..=8),
            _ => HUNDREDS,
        };
        let mut ops: Vec<SemBuf> = Vec::new();
        for _ in 0..most {
            let num = self.some_sem(s);
            let taken: i16 = ops.iter().filter(|o| o.num == num).map(|o| -o.op).sum();
            let amount = if self.random.u8(..5) == 0 { 2 } else { 1 };
            // No more than there can be: who waits without a timeout must get it.
            if taken + amount <= UNITS as i16 {
                ops.push(op(num, -amount, SEM_UNDO));
            }
        }
        let zero = self.random.u8(..12) == 0;
        if zero {
            let num = self.random.u16(..n);
            if ops.iter().all(|o| o.num != num) {
                ops.insert(0, op(num, 0, 0));
            } else if ops.len() == 1 {
                // Only a look.
                ops = vec![op(num, 0, 0)];
            }
        }
        let nested = !self.held.is_empty();
        let waits_for_zero = ops.iter().any(|o| o.op == 0);
        let patience = self.patience(!nested && !waits_for_zero);
        self.ledger.count(Count::Undo);
        if waits_for_zero {
            self.ledger.count(Count::Zero);
        }
        if nested {
            self.ledger.count(Count::Nested);
        }
        if self.call(s, id, &ops, patience) != Some(true) {
            return;
        }
        let taken: Vec<SemBuf> = ops.into_iter().filter(|o| o.op != 0).collect();
        if taken.is_empty() {
            return;
        }
        self.held.extend(taken.iter().map(|o| (s, id, o.num, -o.op)));
        self.hold();
        let given: Vec<SemBuf> = taken.iter().map(|o| op(o.num, -o.op, SEM_UNDO)).collect();
        if self.random.bool() {
            self.give(s, id, &given);
        } else {
            given.iter().for_each(|o| self.give(s, id, &[*o]));
        }
        self.held.truncate(self.held.len() - taken.len());
    }

    fn hold(&mut self) {
        match self.random.u32(..40) {
            0..16 => {}
            16..26 => (0..self.random.u32(1..2_000)).for_each(|_| std::hint::spin_loop()),
            26..33 => std::thread::sleep(Duration::from_micros(self.random.u64(1..300))),
            33 => std::thread::sleep(Duration::from_micros(self.random.u64(1_000..5_000))),
            34..38 if self.held.len() < 20 => {
                let s = self.some_set();
                if use_of(s) == Use::Undo {
                    self.undo(s);
                }
            }
            38 if self.first => self.fork(),
            39 if self.first && self.random.u8(..8) == 0 => self.exec(),
            _ => {
                let s = self.some_set();
                self.query(s);
            }
        }
    }

    /// Moves units between semaphores of a set, all in one call.
    fn moves(&mut self, s: usize) {
        let id = self.ledger.sets[s].load(SeqCst);
        if id == 0 {
            return;
        }
        let (a, b, c) = (self.some_sem(s), self.some_sem(s), self.some_sem(s));
        let ops = match self.random.u32(..10) {
            0..6 => vec![op(a, -1, 0), op(b, 1, 0)],
            6..8 => vec![op(a, -1, 0), op(b, -1, 0), op(c, 2, 0)],
            8 => vec![op(a, 1, 0), op(b, -1, 0), op(c, 0, 0)],
            _ => vec![op(a, 0, 0), op(b, -2, 0), op(a, 2, 0)],
        };
        self.ledger.count(Count::Moves);
        if ops.iter().any(|o| o.op == 0) {
            self.ledger.count(Count::Zero);
        }
        let patience = self.patience(false);
        let _ = self.call(s, id, &ops, patience);
    }

    /// Takes a unit without undo and gives it back, and notes each before and after.
    fn plain(&mut self, s: usize) {
        let id = self.ledger.sets[s].load(SeqCst);
        let num = self.some_sem(s);
        let hand = self.hand();
        self.ledger.count(Count::Plain);
        let patience = self.patience(false);
        hand.note(Unit::Taking(s, num));
        if self.call(s, id, &[op(num, -1, 0)], patience) == Some(true) {
            hand.note(Unit::Held(s, num));
            if self.random.bool() {
                std::thread::sleep(Duration::from_micros(self.random.u64(1..300)));
            }
            hand.note(Unit::Giving(s, num));
            self.give(s, id, &[op(num, 1, 0)]);
        }
        hand.note(Unit::None);
    }

    /// Looks, and finds nothing that cannot be.
    fn query(&mut self, s: usize) {
        let id = self.ledger.sets[s].load(SeqCst);
        if id == 0 {
            return;
        }
        self.ledger.count(Count::Queries);
        let num = self.some_sem(s);
        let r = match self.random.u32(..10) {
            0..4 => self.calls.value(id, num).map(|v| {
                if use_of(s) != Use::Moves && v > UNITS {
                    self.complain(format_args!("GETVAL of semaphore {num} of set {s} is {v}"));
                }
            }),
            4..7 => self.calls.values(id, size_of_set(s)).map(|v| {
                self.ledger.count(Count::Snapshots);
                let sum: u32 = v.iter().map(|v| u32::from(*v)).sum();
                let right = match use_of(s) {
                    Use::Moves => sum == u32::from(UNITS) * u32::from(size_of_set(s)),
                    _ => v.iter().all(|v| *v <= UNITS),
                };
                if !right {
                    self.complain(format_args!("GETALL of set {s}, id {id} (now {}), is {v:?}", self.ledger.sets[s].load(SeqCst)));
                }
            }),
            7 | 8 => self.calls.waiting(id, num).map(|(takers, zeros)| {
                if takers + zeros > 400 {
                    self.complain(format_args!("{takers} and {zeros} wait for semaphore {num} of set {s}"));
                }
            }),
            _ => self.calls.size(id).map(|n| {
                if n != u64::from(size_of_set(s)) {
                    self.complain(format_args!("IPC_STAT of set {s} tells of {n} semaphores"));
                }
            }),
        };
        match r {
            Ok(()) => {}
            Err(Errno::EIDRM | Errno::EINVAL) if s >= DOOMED => self.ledger.count(Count::Gone),
            Err(Errno::ENOMEM | Errno::ENOSPC) => self.ledger.count(Count::NoRoom),
            Err(e) => self.complain(format_args!("{e} from a query of set {s}")),
        }
    }

    /// A set of its own, with exact values, made and removed.
    fn own_set(&mut self) {
        let n = [1, 2, 7, 90, 400][self.random.usize(..5)];
        let values: Vec<u16> = (0..n).map(|_| self.random.u16(..5)).collect();
        let full = self.ledger.full.load(SeqCst);
        let id = match self.calls.make(&values) {
            Ok(id) => id,
            Err(Errno::ENOMEM | Errno::ENOSPC) if full % 2 == 1 || self.ledger.full.load(SeqCst) != full => {
                return self.ledger.count(Count::NoRoom);
            }
            Err(e) => self.complain(format_args!("{e} from the making of a set of {n}")),
        };
        self.ledger.count(Count::OwnSets);
        let num = self.random.u16(..n);
        let undo = if self.random.bool() { SEM_UNDO } else { 0 };
        let added = self.calls.op(id, &[op(num, 5, undo)], Patience::None);
        let set = if self.random.bool() { self.calls.set_value(id, n - 1, 9) } else { Ok(()) };
        let is = self.calls.values(id, n);
        let mut wanted = values;
        if added.is_ok() {
            wanted[num as usize] += 5;
        }
        if let (Ok(()), Ok(is)) = (&set, &is)
            && (0..n as usize - 1).any(|i| is[i] != wanted[i])
        {
            self.complain(format_args!("a set of this process's own has {is:?} and not {wanted:?}"));
        }
        if let Err(e) = self.calls.remove(id) {
            self.complain(format_args!("{e} from the removal of a set of this process's own"));
        }
    }

    /// Removes a doomed set and makes it again, unless somebody else is at it.
    fn make_again(&mut self) {
        let s = self.random.usize(DOOMED..SETS);
        let (entry, l) = (&self.ledger.sets[s], self.ledger);
        let id = entry.load(SeqCst);
        if id == 0 || entry.compare_exchange(id, 0, SeqCst, SeqCst).is_err() {
            return;
        }
        // Should this process die from here on, the conductor finds the entry empty, and what belongs to no entry.
        match self.calls.remove(id) {
            Ok(()) => {}
            // Not for the removal, but for a process's place in the namespace.
            Err(Errno::ENOMEM | Errno::ENOSPC) => return entry.store(id, SeqCst),
            Err(e) => self.complain(format_args!("{e} from the removal of set {s}")),
        }
        l.count(Count::Removals);
        if let Ok(new) = self.calls.make(&vec![UNITS; size_of_set(s).into()]) {
            entry.store(new, SeqCst);
        }
    }

    fn start_thread(&mut self) {
        self.threads.retain(|t| !t.is_finished());
        let hands = &self.ledger.crews[self.crew].hands;
        let Some(hand) = (1..THREADS).find(|i| hands[*i].at.load(SeqCst) == 0) else { return };
        let mut worker = Worker {
            orders: self.orders.clone(),
            ledger: self.ledger,
            crew: self.crew,
            hand,
            calls: self.calls.again(),
            random: self.random.fork(),
            held: Vec::new(),
            first: false,
            threads: Vec::new(),
        };
        hands[hand].at.store(1, SeqCst);
        let steps = self.random.u64(10..3_000);
        match std::thread::Builder::new().stack_size(256 << 10).spawn(move || worker.work(steps)) {
            Ok(thread) => {
                self.ledger.count(Count::ThreadsStarted);
                self.threads.push(thread);
            }
            // No pid is left.
            Err(_) => hands[hand].at.store(0, SeqCst),
        }
    }

    /// A child that works for a while and ends; it holds nothing at first.
    fn fork(&mut self) {
        let seed = self.random.u64(..);
        match sys::fork_away() {
            Ok(0) => {
                let Some(crew) = self.ledger.enlist(std::process::id()) else { sys::exit_now(0) };
                self.crew = crew;
                self.hand = 0;
                self.random = fastrand::Rng::with_seed(seed);
                self.held.clear();
                self.first = false;
                self.begin();
                let steps = self.random.u64(1..200);
                self.work(steps);
                sys::exit_now(0)
            }
            Ok(_) => self.ledger.count(Count::Forks),
            Err(_) => {}
        }
    }

    /// Becomes another image in the middle of whatever its threads do, with what it holds.
    fn exec(&mut self) {
        let alone = || self.ledger.crews[self.crew].hands[1..].iter().all(|h| h.at.load(SeqCst) == 0);
        // C cannot tell what vanished threads held, and would keep it to the end.
        if self.calls.is_c() && !alone() {
            return;
        }
        let mut orders = self.orders.clone();
        orders.seed = self.random.u64(..);
        orders.before = Some((self.crew, self.held.clone()));
        self.ledger.count(Count::Execs);
        let e = std::os::unix::process::CommandExt::exec(Command::new("/proc/self/exe").args(orders.args()));
        self.complain(format_args!("exec: {e}"));
    }

    /// In the new image: what the old one held is held, and can be given back.
    fn take_over(&mut self, held: Vec<Holding>) {
        let mut sets: Vec<(usize, i32)> = held.iter().map(|h| (h.0, h.1)).collect();
        if !self.calls.is_c() {
            // Threads that vanished held units of any set.
            sets.extend(self.ledger.sets.iter().map(|id| id.load(SeqCst)).enumerate().filter(|(_, id)| *id != 0));
        }
        sets.sort_unstable();
        sets.dedup();
        for (s, id) in sets {
            let mut wanted = vec![0; size_of_set(s).into()];
            held.iter().filter(|h| h.1 == id).for_each(|h| wanted[h.2 as usize] += h.3);
            match self.calls.held(id) {
                None => {}
                Some(Err(Errno::EIDRM | Errno::EINVAL)) if s >= DOOMED => continue,
                Some(Err(e)) => self.complain(format_args!("{e} from a look at who holds set {s}")),
                Some(Ok(all)) => {
                    for (num, want) in wanted.iter().enumerate().filter(|(_, n)| **n != 0) {
                        let has = all.iter().find(|h| h.0 as usize == num).map_or(0, |h| h.1);
                        // A set that is removed during the look has lost its records before it is gone.
                        if has < *want && !(s >= DOOMED && self.calls.value(id, 0).is_err()) {
                            self.complain(format_args!("after exec {has} of {want} units of semaphore {num} of set {s} are held"));
                        }
                    }
                    wanted.fill(0);
                    all.iter().for_each(|h| wanted[h.0 as usize] = h.1);
                }
            }
            for (num, n) in wanted.into_iter().enumerate().filter(|(_, n)| *n != 0) {
                self.give(s, id, &[op(num as u16, n, SEM_UNDO)]);
            }
        }
    }
}

/// The command that starts a worker.
pub fn command(orders: &Orders, library: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(orders.args()).env_remove("LD_PRELOAD").env_remove("MANYWAY_DIR");
    if orders.c {
        command.env("LD_PRELOAD", library).env("MANYWAY_DIR", &orders.dir);
    }
    command
}
