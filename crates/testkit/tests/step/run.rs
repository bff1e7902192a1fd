//! Runs the cases: watches for those that hang, and prints the table.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_testkit::step::Path;

use crate::cases;
use crate::stage::{Child, Stage};

/// Up to so many instructions, all are taken.
const SHORT: usize = 600;
/// Later rounds of a loop are all alike.
const ROUNDS: u32 = 3;
/// A call that has not ended by then sleeps.
const SOON: Duration = Duration::from_millis(20);
/// No single round takes so long, if nothing hangs.
const HANG: Duration = Duration::from_secs(60);

/// What must hold after a death.
type After = dyn Fn(&Stage, u32) + Send + Sync;

/// A call that is cut short.
pub struct Case {
    /// As the table and the test list have it.
    pub name: String,
    /// Makes the state from which it starts, the same each time.
    pub before: Box<dyn Fn(&Stage) + Send>,
    /// What the child does beforehand.
    pub setup: fn(&Child),
    /// What is cut.
    pub call: fn(&Child),
    /// What must hold after the death of the process `u32`.
    pub after: Arc<After>,
}

/// A line of the table.
struct Row {
    name: String,
    instructions: usize,
    kills: usize,
    seconds: f64,
}

static TABLE: Mutex<Vec<Row>> = Mutex::new(Vec::new());

/// The test program.
pub fn main() {
    let args = Arguments::from_args();
    std::panic::set_hook(Box::new(|info| SAID.set(info.to_string())));
    let trials = cases::all().into_iter().map(|case| Trial::test(case.name.clone(), move || run_watched(case))).collect();
    let conclusion = libtest_mimic::run(&args, trials);
    let mut table = TABLE.lock().expect("no panic while held");
    table.sort_by(|a, b| a.name.cmp(&b.name));
    println!("{:<44} {:>12} {:>7} {:>8}", "entry point", "instructions", "kills", "seconds");
    for row in table.iter() {
        println!("{:<44} {:>12} {:>7} {:>8.1}", row.name, row.instructions, row.kills, row.seconds);
    }
    conclusion.exit();
}

/// True when cost does not matter.
pub fn everything() -> bool {
    manyway_testkit::asks_for_all("MANYWAY_STEP")
}

/// Runs a case on a thread of its own, which may hang.
fn run_watched(case: Case) -> Result<(), Failed> {
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || catch_unwind(AssertUnwindSafe(|| run(&case, &tell))).unwrap_or_else(|_| Err(SAID.take())));
    let mut last = Cut { k: 0, of: 0, address: 0 };
    loop {
        match told.recv_timeout(HANG) {
            Ok(cut) => last = cut,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => return Err(format!("hangs, killed {last}").into()),
        }
    }
    let row = thread.join().expect("a case reports its panics")?;
    TABLE.lock().expect("no panic while held").push(row);
    Ok(())
}

/// How often a case is begun again because its first call was not like the others.
const TRIES: usize = 5;

/// Once a second a call takes the path that stamps the time. When that is the one that is recorded, it says nothing of the others: record again.
fn run(case: &Case, tell: &Sender<Cut>) -> Result<Row, String> {
    for _ in 0..TRIES {
        if let Some(row) = attempt(case, tell)? {
            return Ok(row);
        }
    }
    Err(format!("in {TRIES} tries most calls took another path than the first one: the test does not cut where it says"))
}

/// None: the recorded call was not like the others.
fn attempt(case: &Case, tell: &Sender<Cut>) -> Result<Option<Row>, String> {
    let began = Instant::now();
    let stage = Stage::new();
    // What is made once for all is made in this round.
    (case.before)(&stage);
    let made = stage.stepped(case.setup, case.call);
    let dead = made.pid();
    made.run(SOON);
    drop(made);
    check(case, &stage, dead).map_err(|e| format!("killed at its end or asleep: {e}"))?;
    stage.record(true);
    (case.before)(&stage);
    let first = stage.stepped(case.setup, case.call);
    let dead = first.pid();
    let path = Path::record(first, || stage.arena());
    stage.record(false);
    check(case, &stage, dead).map_err(|e| format!("after the whole call: {e}"))?;
    let all = path.len() <= SHORT || everything();
    let mut kills = 1;
    let mut strayed = 0;
    for k in (0..path.len()).filter(|&k| all || path.changed(k) || (k % 7 == 0 && path.visits(k) <= ROUNDS)) {
        let cut = Cut { k, of: path.len(), address: path.at(k) };
        let _ = tell.send(cut);
        stage.round.set(k);
        (case.before)(&stage);
        let child = stage.stepped(case.setup, case.call);
        let dead = child.pid();
        strayed += usize::from(!path.walk(&child, k));
        drop(child);
        check(case, &stage, dead).map_err(|e| format!("killed {cut}: {e}"))?;
        kills += 1;
        if strayed > 20 && strayed * 10 > kills {
            return Ok(None);
        }
    }
    if strayed * 10 > kills {
        return Ok(None);
    }
    Ok(Some(Row { name: case.name.clone(), instructions: path.len(), kills, seconds: began.elapsed().as_secs_f64() }))
}

thread_local! {
    /// What the thread's last panic said.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

fn check(case: &Case, stage: &Stage, dead: u32) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (case.after)(stage, dead))).map_err(|_| SAID.take())
}

/// Where a call is cut.
#[derive(Clone, Copy)]
struct Cut {
    k: usize,
    of: usize,
    address: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} of {} instructions, in front of {:#x}", self.k, self.of, self.address)?;
        let mut lines = Vec::new();
        backtrace::resolve(std::ptr::without_provenance_mut(self.address as usize), |symbol| {
            let file = symbol.filename().and_then(|f| f.file_name()).unwrap_or_default().to_string_lossy().into_owned();
            let name = symbol.name().map(|n| n.to_string()).unwrap_or_default();
            lines.push(format!("{name} ({file}:{})", symbol.lineno().unwrap_or(0)));
        });
        write!(f, ", {}", lines.join(" in "))
    }
}
