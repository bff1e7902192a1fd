//! Rounds: a new namespace each, its callers and its writer, and the judgement.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use manyway_sem::Thread;
use manyway_sem::abi::IPC_CREAT;
use manyway_testkit::preload_library;

use crate::caller::{self, Kind, OTHER, SETS, THREADS};
use crate::ledger::{self, Ledger, now};
use crate::{CALLER, INNOCENT, MUTATOR};

/// For how long a round's arena is written to.
const ROUND: Duration = Duration::from_millis(500);
/// A call that takes longer waits for a lock, most likely.
const LONG: Duration = Duration::from_secs(3);
/// A call that takes longer hangs. The bounds are seconds (docs/segment.md); the machine may be busy with other things.
const HANG: Duration = Duration::from_secs(40);
/// Callers that live through the round, and those that are killed.
const CALLERS: [(Kind, bool); 6] = [
    (Kind::Engine, false),
    (Kind::Types, false),
    (Kind::Preload, false),
    (Kind::Preload, false),
    (Kind::Engine, true),
    (Kind::Preload, true),
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v}: not a number")))
}

/// What all rounds together did.
#[derive(Default)]
struct Sum {
    rounds: u64,
    calls: u64,
    well: u64,
    damaged: u64,
    flips: u64,
    other: u64,
    kills: u64,
    nudges: u64,
    longest: (u64, u32),
}

pub fn rounds() {
    let until = Instant::now() + Duration::from_secs(number("MANYWAY_HOSTILE_SECONDS", 12));
    let mut seed = number("MANYWAY_HOSTILE_SEED", 1);
    let mut sum = Sum::default();
    loop {
        let began = Instant::now();
        let before = (sum.calls, sum.well, sum.damaged, sum.flips);
        Round::new(seed).play(&mut sum);
        if std::env::var_os("MANYWAY_HOSTILE_VERBOSE").is_some() {
            let (calls, well, damaged, flips) = (sum.calls - before.0, sum.well - before.1, sum.damaged - before.2, sum.flips - before.3);
            println!("seed {seed}: {calls} calls, {well} well, {damaged} EIO, {flips} changes, {:?}", began.elapsed());
        }
        sum.rounds += 1;
        seed += 1;
        if Instant::now() >= until {
            break;
        }
    }
    let Sum { rounds, calls, well, damaged, flips, other, kills, nudges, longest } = sum;
    println!(
        "proof: hostile: {calls} calls ({well} well, {damaged} EIO, longest {} ms, call {}) beside {flips} changes in {rounds} rounds, {kills} kills, {nudges} nudges, \
         {other} calls on other namespaces, 0 crashes, 0 hangs, 0 violations",
        longest.0 / 1_000_000,
        longest.1
    );
    // A call that fails is quicker than one that ends well: a share of all would judge the machine.
    assert!(well > 100 * rounds, "too few calls ended well to mean anything");
}

/// A process that has done nothing: each signal that it receives is one too many.
pub fn innocent(ledger: &'static Ledger) {
    static LEDGER: std::sync::OnceLock<&'static Ledger> = std::sync::OnceLock::new();
    extern "C" fn on_signal(_: libc::c_int) {
        if let Some(l) = LEDGER.get() {
            l.signals.fetch_add(1, Relaxed);
        }
    }
    let _ = LEDGER.set(ledger);
    for signal in 1..=64 {
        // SAFETY: the handler changes an atomic only. Some signals cannot be handled.
        unsafe {
            let mut act: libc::sigaction = std::mem::zeroed();
            act.sa_sigaction = on_signal as *const () as usize;
            libc::sigaction(signal, &raw const act, std::ptr::null_mut());
        }
    }
    while !ledger.stopped() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Round {
    seed: u64,
    dir: tempfile::TempDir,
    ledger: &'static Ledger,
}

impl Round {
    fn new(seed: u64) -> Round {
        let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable");
        let ledger = Ledger::map(&dir.path().join("ledger"));
        Round { seed, dir, ledger }
    }
    fn namespace(&self) -> PathBuf {
        self.dir.path().join("attacked")
    }
    fn other(&self) -> PathBuf {
        self.dir.path().join("other")
    }
    fn role(&self, role: &str) -> Command {
        let mut c = Command::new(std::env::current_exe().expect("this program"));
        c.arg(role).stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: a system call that concerns the child alone.
        unsafe {
            c.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        c
    }
    fn start_caller(&self, number: usize, life: u64) -> Child {
        let (kind, mortal) = CALLERS[number];
        let mut c = self.role(CALLER);
        let seed = self.seed << 16 | (number as u64) << 8 | life;
        c.arg(self.namespace()).arg(self.other()).arg(self.dir.path().join("ledger"));
        c.args([(number * THREADS).to_string(), seed.to_string(), kind.name().into(), if mortal { "mortal" } else { "lasting" }.into()]);
        c.stderr(File::options().append(true).create(true).open(self.said()).expect("a file"));
        if kind == Kind::Preload {
            c.env("LD_PRELOAD", preload_library().expect("the library")).env("MANYWAY_DIR", self.namespace());
        }
        c.spawn().expect("this program starts")
    }
    /// Where callers write what they have to say.
    fn said(&self) -> PathBuf {
        self.dir.path().join("said")
    }

    fn play(self, sum: &mut Sum) {
        let engine = caller::open(&self.namespace());
        let t = Thread::new();
        for (key, nsems) in SETS {
            let id = engine.semget(&t, key, nsems, IPC_CREAT | 0o666).expect("a set");
            engine.setall(&t, id, &vec![2; nsems as usize]).expect("own set");
        }
        let other = caller::open(&self.other());
        let mine = Thread::new();
        let id = other.semget(&mine, OTHER, 1 + ledger::THREADS as i32, IPC_CREAT | 0o666).expect("a set");
        other.setval(&mine, id, 0, 1).expect("own set");

        let mut innocent = self.role(INNOCENT).arg(self.dir.path().join("ledger")).spawn().expect("this program starts");
        let mut lives = 0;
        let mut callers: Vec<Child> = (0..CALLERS.len()).map(|n| self.start_caller(n, 0)).collect();
        let mut writer = self.role(MUTATOR);
        writer.arg(self.namespace()).arg(self.dir.path().join("ledger")).arg(self.seed.to_string());
        writer.args([1, std::process::id(), innocent.id()].map(|p| p.to_string()));
        let mut writer = writer.spawn().expect("this program starts");

        let mut rng = fastrand::Rng::with_seed(self.seed);
        let end = Instant::now() + ROUND;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(rng.u64(5..60)));
            sum.nudges += self.look_for_hangs();
            for n in (0..CALLERS.len()).filter(|n| CALLERS[*n].1) {
                if rng.u8(0..3) == 0 {
                    lives += 1;
                    let _ = callers[n].kill();
                    let status = callers[n].wait().expect("own child");
                    self.judge_end(n, status, true);
                    callers[n] = self.start_caller(n, lives);
                }
            }
            for (n, child) in callers.iter_mut().enumerate() {
                if let Some(status) = child.try_wait().expect("own child") {
                    self.judge_end(n, status, false);
                    if status.success() {
                        self.fail(&format!("caller {n} ended by itself"));
                    }
                }
            }
        }
        self.ledger.stop.store(1, SeqCst);
        let end = Instant::now() + 2 * HANG;
        for (n, child) in callers.iter_mut().enumerate() {
            let status = loop {
                match child.try_wait().expect("own child") {
                    Some(status) => break status,
                    None if Instant::now() > end => self.fail(&format!("caller {n} does not end\n{}", stacks(child.id()))),
                    None => sum.nudges += self.look_for_hangs(),
                }
                std::thread::sleep(Duration::from_millis(2));
            };
            self.judge_end(n, status, false);
        }
        assert!(writer.wait().expect("own child").success(), "the writer itself failed");
        assert!(innocent.wait().expect("own child").success(), "an innocent process was killed");
        assert_eq!(self.ledger.signals.load(Relaxed), 0, "an innocent process was signalled; seed {}", self.seed);
        let l = self.ledger;
        assert_eq!(l.counted.load(Relaxed), l.counted_well.load(Relaxed), "the other namespace's lock did not exclude; seed {}", self.seed);
        other.reap(&mine, None);
        let mut values = vec![9; 1 + ledger::THREADS];
        other.getall(&mine, id, &mut values).expect("own set");
        assert_eq!(values[0], 1, "the other namespace's lock is free again; seed {}", self.seed);
        self.add_to(sum);
        sum.kills += lives;
    }

    fn add_to(&self, sum: &mut Sum) {
        for line in &self.ledger.lines {
            let (done, failed) = (line.done.load(Relaxed), line.failed.load(Relaxed));
            sum.calls += done + failed;
            sum.well += done;
            sum.damaged += line.damaged.load(Relaxed);
            sum.other += line.other.load(Relaxed);
            sum.longest = sum.longest.max((line.longest.load(Relaxed), line.longest_call.load(Relaxed)));
        }
        sum.flips += self.ledger.flips.load(Relaxed);
    }

    fn judge_end(&self, n: usize, status: std::process::ExitStatus, killed: bool) {
        let well = status.success() || status.code() == Some(caller::REFUSED) || (killed && status.signal() == Some(libc::SIGKILL));
        if !well {
            self.fail(&format!("caller {n} ({}) ended with {status}", CALLERS[n].0.name()));
        }
    }

    /// A call that has waited long is nudged by a signal, which must end it; one that goes on hangs.
    fn look_for_hangs(&self) -> u64 {
        let mut nudges = 0;
        for (i, line) in self.ledger.lines.iter().enumerate() {
            let since = line.since.load(Acquire);
            let pid = line.pid.load(Relaxed);
            let took = Duration::from_nanos(now().saturating_sub(since));
            if since != 0 && took > LONG && took.subsec_millis() < 100 {
                nudges += 1;
                // SAFETY: takes numbers only; the thread is one of a child that has not been waited for, or there is none.
                unsafe { libc::syscall(libc::SYS_tgkill, pid, line.tid.load(Relaxed), caller::NUDGE) };
            }
            if since != 0 && took > HANG && Path::new(&format!("/proc/{pid}")).exists() {
                self.fail(&format!("thread {i} of process {pid} is in call {} for {took:?}\n{}", line.call.load(Relaxed), stacks(pid)));
            }
        }
        nudges
    }

    fn fail(&self, what: &str) -> ! {
        let said = std::fs::read_to_string(self.said()).unwrap_or_default();
        panic!("seed {}: {what}\n  said: {said}\n  last changes:\n{}", self.seed, self.ledger.last_changes());
    }
}

/// Where a process's threads are, if there is a debugger to tell.
fn stacks(pid: u32) -> String {
    let out = Command::new("gdb").args(["-p", &pid.to_string(), "-batch", "-ex", "thread apply all bt 16"]).stdin(Stdio::null()).output();
    let text = out.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().filter(|l| l.starts_with('#') || l.starts_with("Thread")).fold(String::new(), |t, l| t + "    " + l + "\n")
}
