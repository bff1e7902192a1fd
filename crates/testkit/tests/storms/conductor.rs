//! The first process of a storm's PID namespace: it makes the sets, starts the workers, kills, stops and replaces them, and judges.

mod fleet;

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use manyway_sem::abi::{IPC_PRIVATE, SemBuf};
use manyway_sem::{Engine, Fairness, Limits, OpenOptions, Thread};
use manyway_shm::{Arena, OpenOptions as ArenaOptions};
use manyway_testkit::small_fs::Filler;
use nix::errno::Errno as Os;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use fleet::kill_worker;

use crate::audit::{Audit, Losses};
use crate::ledger::{Count, DOOMED, Ledger, SETS, UNITS, Use, size_of_set, use_of};
use crate::{order, sys};

/// Worker processes that the conductor keeps going; those that they fork come on top.
const FLEET: usize = 16;
/// So many pids: a dead process's number is soon another's.
const PIDS: u32 = 460;
/// The file system of the namespace.
const ROOM: &str = "size=12m,mode=0700";
/// How long anything may take that takes no time by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a storm is like.
#[derive(Clone, Debug)]
pub struct Weather {
    pub seed: u64,
    pub length: Duration,
    pub barging: bool,
    /// The command that has the watcher; none: the workers find deaths themselves.
    pub command: Option<PathBuf>,
    pub library: PathBuf,
    /// An empty directory.
    pub place: PathBuf,
}

struct Storm<'a> {
    weather: &'a Weather,
    dir: PathBuf,
    ledger_path: PathBuf,
    ledger: &'static Ledger,
    engine: Engine,
    t: Thread,
    audit: Audit<'a>,
    random: fastrand::Rng,
    losses: Losses,
    /// Processes that were killed and not yet reaped; held while one is killed or reaped, so that a number is still its process's.
    killed: &'a Mutex<HashSet<u32>>,
    stopped: Vec<(u32, Instant)>,
    /// Numbers of processes that have ended.
    past: HashSet<u32>,
    present: HashSet<u32>,
    /// Started, and not enlisted yet.
    starting: HashSet<u32>,
    watcher: Option<u32>,
    started: u64,
    /// All are being killed.
    over: bool,
}

/// Runs a storm; prints its counts. The process's exit status tells of a complaint, which is on standard error.
pub fn main(weather: &Weather) {
    sys::die_with_parent();
    set_up(weather);
    let dir = weather.place.join("namespace");
    let path = CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it");
    let fairness = if weather.barging { Fairness::Barging } else { Fairness::Strict };
    let limits = Limits { msl: 32_000, mns: 1_000_000, opm: 500, mni: 4_000 };
    let how = OpenOptions { create: true, limits: Some(limits), fairness: Some(fairness), ..OpenOptions::default() };
    let engine = Engine::open(&path, &how).expect("a namespace");
    let arena = Arena::open(&path, &ArenaOptions::default()).expect("the same one");
    let ledger_path = weather.place.join("ledger/ledger");
    let ledger = Ledger::create(&ledger_path);
    let (killed, over) = (Mutex::default(), AtomicBool::new(false));
    let mut storm = Storm {
        weather,
        dir,
        ledger_path,
        ledger,
        engine,
        t: Thread::new(),
        audit: Audit { arena: &arena, ledger },
        random: fastrand::Rng::with_seed(weather.seed),
        losses: Losses::new(),
        killed: &killed,
        stopped: Vec::new(),
        past: HashSet::new(),
        present: HashSet::new(),
        starting: HashSet::new(),
        watcher: None,
        started: 0,
        over: false,
    };
    let looks = Audit { arena: &arena, ledger };
    let hunted = AtomicU64::new(0);
    let hunt = |pid| {
        // Not all: recoveries have to get on.
        if hunted.fetch_add(1, Relaxed).is_multiple_of(3) && kill_worker(ledger, &killed, pid) {
            ledger.count(Count::RecoverersKilled);
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| order::watch(&looks, !weather.barging, &over, &hunt));
        let r = storm.blow();
        over.store(true, SeqCst);
        if let Err(what) = r {
            ledger.complain(what);
        }
    });
    match ledger.complaint() {
        None => {
            let counts: Vec<String> = ledger.counts.iter().map(|c| c.load(SeqCst).to_string()).collect();
            println!("counts: {} {} {}", counts.join(" "), ledger.longest.load(SeqCst), ledger.latest.load(SeqCst));
        }
        Some(what) => {
            eprintln!("storm with seed {}: {what}", weather.seed);
            std::process::exit(1);
        }
    }
}

/// Mounts of this process's own: /proc of its PID namespace, a small file system for the namespace, one for the ledger.
fn set_up(weather: &Weather) {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).expect("root may");
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), None::<&str>).expect("root may");
    for (name, room) in [("namespace", ROOM), ("ledger", "size=4m,mode=0700")] {
        let at = weather.place.join(name);
        fs::create_dir(&at).expect("an empty directory");
        mount(Some("tmpfs"), &at, Some("tmpfs"), MsFlags::empty(), Some(room)).expect("root may");
    }
    if few_pids() {
        fs::write("/proc/sys/kernel/pid_max", PIDS.to_string()).expect("root may");
    }
}

/// True where a PID namespace has a limit of its own for its numbers (Linux 6.14), so that they are soon used again.
pub fn few_pids() -> bool {
    fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|v| release(&v) >= (6, 14))
}

/// Version and patch level of a kernel's release.
fn release(text: &str) -> (u32, u32) {
    let mut numbers = text.split(['.', '-']).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

impl Storm<'_> {
    fn blow(&mut self) -> Result<(), String> {
        for s in 0..SETS {
            self.make(s);
        }
        let arena = || fs::metadata(self.dir.join("arena-v1")).expect("the arena").blocks() * 512;
        let at_first = arena();
        self.start_watcher();
        let end = Instant::now() + self.weather.length;
        let (mut audit, mut muster) = (Instant::now() + Duration::from_millis(200), Instant::now() + Duration::from_millis(1_100));
        while Instant::now() < end {
            self.act()?;
            if Instant::now() > audit {
                self.stop_and_judge()?;
                audit = Instant::now() + Duration::from_millis(250);
            }
            if Instant::now() > muster {
                self.muster()?;
                muster = Instant::now() + Duration::from_millis(1_200);
            }
            std::thread::sleep(Duration::from_micros(self.random.u64(100..6_000)));
        }
        self.muster()?;
        self.end(at_first)
    }

    /// One thing that befalls somebody, or nobody.
    fn act(&mut self) -> Result<(), String> {
        self.reap()?;
        self.let_go(false);
        self.keep_up();
        let pids: Vec<u32> = self.ledger.enlisted().map(|(_, pid)| pid).collect();
        if pids.is_empty() {
            return Ok(());
        }
        let victim = pids[self.random.usize(..pids.len())];
        match self.random.u32(..100) {
            0..22 => self.kill(victim),
            22..25 => {
                // Several at once: the survivors find them all.
                let n = self.random.usize(2..=6);
                for _ in 0..n {
                    let i = self.random.usize(..pids.len());
                    self.kill(pids[i]);
                }
                self.ledger.count(Count::GroupKills);
            }
            25..50 => {
                let _ = kill(Pid::from_raw(victim as i32), Signal::SIGSTOP);
                self.ledger.count(Count::Stops);
                self.stopped.push((victim, Instant::now() + Duration::from_micros(self.random.u64(100..30_000))));
            }
            50..58 => self.make_again(),
            58..61 => self.fill(),
            61..65 => {
                let step = self.random.i64(-100_000..100_000);
                self.ledger.clock.fetch_add(step, SeqCst);
                self.ledger.count(Count::ClockSteps);
            }
            65 | 66 => {
                if let Some(pid) = self.watcher
                    && self.killed.lock().expect("nobody panics here").insert(pid)
                {
                    let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
                    self.ledger.count(Count::WatchersKilled);
                }
            }
            _ => {}
        }
        match self.ledger.complaint() {
            Some(what) => Err(what),
            None => Ok(()),
        }
    }

    fn make(&self, s: usize) {
        let n = size_of_set(s);
        let made = self.engine.semget(&self.t, IPC_PRIVATE, n.into(), 0o600).and_then(|id| {
            self.engine.setall(&self.t, id, &vec![UNITS; n.into()])?;
            Ok(id)
        });
        // No room: the next muster finds it absent.
        if let Ok(id) = made {
            self.ledger.sets[s].store(id, SeqCst);
        }
    }

    /// Removes a doomed set under whoever uses it, and makes it again.
    fn make_again(&mut self) {
        let s = self.random.usize(DOOMED..SETS);
        let id = self.ledger.sets[s].swap(0, SeqCst);
        if id != 0 {
            // The lock that is wanting may be a stopped process's.
            self.let_go(true);
            self.engine.remove(&self.t, id).unwrap_or_else(|e| self.ledger.complain(format_args!("{e} from the removal of set {s}")));
            self.make(s);
            self.ledger.count(Count::Removals);
        }
    }

    /// Takes all room from the file system, for a while.
    fn fill(&mut self) {
        self.ledger.full.fetch_add(1, SeqCst);
        let filler = Filler::new(&self.dir);
        self.ledger.count(Count::Fills);
        let until = Instant::now() + Duration::from_micros(self.random.u64(1_000..40_000));
        while Instant::now() < until {
            // Also now some are removed, killed and replaced.
            if self.random.bool() {
                self.make_again();
            }
            let pids: Vec<u32> = self.ledger.enlisted().map(|(_, pid)| pid).collect();
            if !pids.is_empty() && self.random.u8(..4) == 0 {
                let i = self.random.usize(..pids.len());
                self.kill(pids[i]);
            }
            std::thread::sleep(Duration::from_micros(self.random.u64(100..3_000)));
        }
        drop(filler);
        self.ledger.full.fetch_add(1, SeqCst);
    }

    /// Stops everybody in the middle of whatever they do, and judges what lies there.
    fn stop_and_judge(&mut self) -> Result<(), String> {
        self.reap()?;
        // All processes of the PID namespace but this one, at once: no child escapes by being forked meanwhile.
        let all = |signal| kill(Pid::from_raw(-1), signal);
        match all(Signal::SIGSTOP) {
            // On a busy machine it happens that all have been killed, and those who follow them have not begun.
            Ok(()) | Err(Os::ESRCH) => {}
            Err(e) => return Err(format!("cannot stop them: {e}")),
        }
        let deadline = Instant::now() + PATIENCE;
        while !all_stopped() {
            if Instant::now() > deadline {
                return Err("somebody does not stop".to_owned());
            }
            std::thread::sleep(Duration::from_millis(1));
            // A process in the middle of execve forgets what one of its ending threads was told.
            let _ = all(Signal::SIGSTOP);
        }
        let judged = {
            // Nobody is killed meanwhile: the dead are marked by the kernel.
            let _killed = self.killed.lock().expect("nobody panics here");
            self.judge(false)
        };
        let late = self.late();
        let _ = all(Signal::SIGCONT);
        self.stopped.clear();
        judged?;
        self.ledger.count(Count::Audits);
        late
    }

    fn judge(&self, resting: bool) -> Result<(), String> {
        let judged = self.audit.judge(self.engine.fairness(), &self.losses, resting)?;
        self.ledger.add(Count::SetsJudged, judged.sets);
        self.ledger.add(Count::SleepersJudged, judged.sleepers);
        Ok(())
    }

    /// A call that is not back long after its timeout.
    fn late(&self) -> Result<(), String> {
        let now = sys::now_ns();
        for (crew, pid) in self.ledger.enlisted() {
            for hand in &crew.hands {
                let until = hand.until.load(SeqCst);
                if until != 0 && until != u64::MAX && now > until + PATIENCE.as_nanos() as u64 && crew.ended.load(SeqCst) == 0 {
                    return Err(format!("process {pid} is in a call {} ms after its timeout", (now - until) / 1_000_000));
                }
            }
        }
        Ok(())
    }

    /// Everybody comes to rest, which takes all sleepers' calls to an end: those without a timeout by what others give back, be it by
    /// their deaths. Then all is as at first.
    fn muster(&mut self) -> Result<(), String> {
        let number = self.ledger.muster.fetch_add(1, SeqCst) + 1;
        self.let_go(true);
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.reap()?;
            if let Some(what) = self.ledger.complaint() {
                return Err(what);
            }
            let awake = self.awake(number + 1);
            if awake.is_empty() {
                // Who begins from here on waits.
                if self.ledger.paused.swap(1, SeqCst) == 1 {
                    break;
                }
            } else if Instant::now() > deadline {
                return Err(format!("not at rest after {PATIENCE:?}: {awake:?}\n{}", self.sleepers()));
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        for (crew, _) in self.ledger.enlisted().filter(|(crew, _)| crew.ended.load(SeqCst) == 1) {
            Self::close(self.ledger, &mut self.losses, crew);
        }
        // The dead, of whom perhaps nobody has heard yet.
        self.engine.reap(&self.t, None);
        let mut left = Vec::new();
        self.engine.for_each_set(&self.t, &mut |stat, _| left.push(stat.id));
        for id in left {
            self.engine.for_each_sleeper(&self.t, id, &mut |_, _| ()).map_err(|e| format!("{e} from a look at sleepers"))?;
            if self.ledger.sets.iter().all(|s| s.load(SeqCst) != id) {
                // Of one who died over it.
                self.engine.remove(&self.t, id).map_err(|e| format!("{e} from the removal of a set that is nobody's"))?;
            }
        }
        self.judge(true)?;
        self.replace_losses()?;
        for s in 0..SETS {
            if self.ledger.sets[s].load(SeqCst) == 0 {
                self.make(s);
            }
        }
        self.ledger.count(Count::Musters);
        self.ledger.paused.store(0, SeqCst);
        self.ledger.muster.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Those who are not at rest: process, thread, until when its call is.
    fn awake(&self, rests: u32) -> Vec<(u32, usize, u64)> {
        let crews = self.ledger.enlisted().filter(|(crew, _)| crew.ended.load(SeqCst) == 0);
        let hands = crews.flat_map(|(crew, pid)| crew.hands.iter().enumerate().map(move |(i, h)| (pid, i, h)));
        hands.filter(|(_, _, h)| ![0, rests].contains(&h.at.load(SeqCst))).map(|(pid, i, h)| (pid, i, h.until.load(SeqCst))).collect()
    }

    /// Who sleeps on what, for a complaint.
    fn sleepers(&self) -> String {
        let mut text = String::new();
        for (s, id) in self.ledger.sets.iter().map(|s| s.load(SeqCst)).enumerate() {
            let _ =
                self.engine.for_each_sleeper(&self.t, id, &mut |sleeper, ops| text.push_str(&format!("set {s}: {sleeper:?} {ops:?}\n")));
            let _ = self.engine.for_each_holder(&self.t, id, &mut |h| text.push_str(&format!("set {s}: {h:?}\n")));
        }
        text
    }

    /// Puts plain units in the place of those that the dead have kept. Nobody is in a call.
    fn replace_losses(&mut self) -> Result<(), String> {
        for ((s, num), _) in std::mem::take(&mut self.losses) {
            let id = self.ledger.sets[s].load(SeqCst);
            let value = self.engine.getval(&self.t, id, num.into()).map_err(|e| format!("{e} from GETVAL"))?;
            let missing = i16::try_from(i32::from(UNITS) - value).map_err(|e| e.to_string())?;
            if missing > 0 {
                let put = self.engine.semop(&self.t, id, &[SemBuf { num, op: missing, flg: 0 }], None);
                put.map_err(|e| format!("{e} from what never waits"))?;
            }
        }
        Ok(())
    }

    /// All are killed, everything returns.
    fn end(&mut self, at_first: u64) -> Result<(), String> {
        self.over = true;
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        let deadline = Instant::now() + PATIENCE;
        while waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) != Err(Os::ECHILD) && Instant::now() < deadline {
            self.reap()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        self.engine.reap(&self.t, None);
        self.judge(true)?;
        self.replace_losses()?;
        let mut left = Vec::new();
        self.engine.for_each_set(&self.t, &mut |stat, _| left.push(stat.id));
        for id in left {
            let s = self.ledger.sets.iter().position(|s| s.load(SeqCst) == id);
            let mut held = Vec::new();
            self.engine.for_each_holder(&self.t, id, &mut |h| held.push(h)).map_err(|e| e.to_string())?;
            self.engine.for_each_sleeper(&self.t, id, &mut |_, _| ()).map_err(|e| e.to_string())?;
            if !held.is_empty() {
                return Err(format!("all are dead, and set {s:?} is held: {held:?}"));
            }
            if let Some(s) = s.filter(|s| use_of(*s) != Use::Moves) {
                let mut values = vec![0; size_of_set(s).into()];
                self.engine.getall(&self.t, id, &mut values).map_err(|e| e.to_string())?;
                if values.iter().any(|v| *v != UNITS) {
                    return Err(format!("all are dead, and set {s} has {values:?}"));
                }
            }
            self.engine.remove(&self.t, id).map_err(|e| e.to_string())?;
        }
        if self.audit.slots_in_use() != (1, 1) || self.audit.objects_in_use() != 0 {
            let (slots, objects) = (self.audit.slots_in_use(), self.audit.objects_in_use());
            return Err(format!("all are dead, and thread slots and process slots {slots:?} and {objects} objects are in use"));
        }
        // What stays: pages, for the next ones. There were never more sets than at first, but there are records of those who use them.
        let now = fs::metadata(self.dir.join("arena-v1")).expect("the arena").blocks() * 512;
        let slots = u64::from(self.audit.threads_high()) * 8192 + u64::from(self.audit.procs_high()) * 256;
        if now > at_first + slots + (1 << 20) {
            return Err(format!("the arena has {now} bytes, at first, with all sets, it had {at_first}; {slots} are slots"));
        }
        Ok(())
    }
}

/// True when all threads of all processes but this one have stopped, or ended.
fn all_stopped() -> bool {
    let stopped = |stat: &Path| {
        let Ok(text) = fs::read_to_string(stat) else { return true };
        text.rfind(')').and_then(|at| text[at..].chars().nth(2)).is_none_or(|state| "TtZX".contains(state))
    };
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = processes.filter(|p| p.file_name().to_str().is_some_and(|n| n != "1" && n.bytes().all(|b| b.is_ascii_digit())));
    numbers
        .into_iter()
        .all(|p| fs::read_dir(p.path().join("task")).into_iter().flatten().flatten().all(|t| stopped(&t.path().join("stat"))))
}
