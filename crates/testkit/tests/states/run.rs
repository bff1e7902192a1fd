//! Runs the cases, each in a process of its own, and prints the table.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::cases::{self, Case};
use crate::entries;
use crate::explore::{PROGRESS, Row, everything, explore};

/// Tells a process of this program which case is its.
const CASE: &str = "MANYWAY_STATES_CASE";

const EVERY_ENTRY_POINT: &str = "every entry point has a case";
const READERS: &str = "readers store nothing";

/// No case takes so long, if nothing hangs.
fn hang() -> Duration {
    Duration::from_secs(if everything() { 3600 } else { 240 })
}

/// Characters of a failure that are shown.
const MOST: usize = 3000;

static TABLE: Mutex<Vec<(String, String, Row)>> = Mutex::new(Vec::new());

/// The test program.
pub fn main() {
    if let Ok(name) = std::env::var(CASE) {
        one(&name);
    }
    let args = Arguments::from_args();
    let trials = cases::all().into_iter().map(|c| {
        let (name, label, sleepers) = (c.name.clone(), label(&c), c.sleepers.to_owned());
        Trial::test(label.clone(), move || {
            let row = run_apart(&label)?;
            TABLE.lock().expect("no panic while held").push((name, sleepers, row));
            Ok(())
        })
    });
    let complete = Trial::test(EVERY_ENTRY_POINT, || entries::all_have_cases().map_err(Failed::from));
    let readers = Trial::test(READERS, || run_apart(READERS).map(drop));
    let conclusion = libtest_mimic::run(&args, trials.chain([complete, readers]).collect());
    print_table(conclusion.num_failed);
    conclusion.exit();
}

fn label(c: &Case) -> String {
    format!("{} × {}", c.name, c.sleepers)
}

/// The process of one case.
fn one(label_wanted: &str) -> ! {
    // SAFETY: the handler prints some numbers and ends the process.
    unsafe { libc::signal(libc::SIGUSR1, say_where as extern "C" fn(libc::c_int) as usize) };
    let done = if label_wanted == READERS {
        entries::readers_store_nothing().map(|()| Row::default())
    } else {
        explore(&cases::all().into_iter().find(|c| label(c) == label_wanted).expect("a case of this name"))
    };
    let status = match done {
        Ok(row) => {
            println!("{}", serde_json::to_string(&row).expect("numbers"));
            0
        }
        Err(e) => {
            eprintln!("{e}");
            1
        }
    };
    std::process::exit(status)
}

extern "C" fn say_where(_: libc::c_int) {
    let at = PROGRESS.each_ref().map(|p| p.load(Relaxed));
    eprintln!("hangs at level {}, state {}, further state {}", at[0], at[1], at[2] as i32);
    std::process::exit(2);
}

fn run_apart(label: &str) -> Result<Row, Failed> {
    let program = std::env::current_exe()?;
    let mut child = Command::new(program).env(CASE, label).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let deadline = Instant::now() + hang();
    let mut asked = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            if asked {
                child.kill()?;
            } else {
                // SAFETY: takes numbers only; the child is ours and not yet waited for.
                unsafe { libc::kill(child.id() as i32, libc::SIGUSR1) };
                asked = true;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (mut out, mut said) = (String::new(), String::new());
    if let (Some(mut o), Some(mut e)) = (child.stdout.take(), child.stderr.take()) {
        o.read_to_string(&mut out)?;
        e.read_to_string(&mut said)?;
    }
    if !status.success() {
        said.truncate(said.char_indices().nth(MOST).map_or(said.len(), |(i, _)| i));
        return Err(format!("{status}: {said}").into());
    }
    Ok(serde_json::from_str(&out)?)
}

fn print_table(failed: u64) {
    let table = TABLE.lock().expect("no panic while held");
    let mut rows: Vec<_> = table.iter().collect();
    rows.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    println!(
        "{:<36} {:<14} {:>12} {:>8} {:>8} {:>10} {:>10} {:>8} {:>8}",
        "entry point", "sleepers", "instructions", "stores", "states", "recovered", "recoveries", "further", "seconds"
    );
    let mut sum = Row::default();
    for (name, sleepers, r) in &rows {
        // Of a call that is traced by protection they are not counted.
        let instructions = if r.instructions == 0 { "-".to_owned() } else { r.instructions.to_string() };
        println!(
            "{name:<36} {sleepers:<14} {instructions:>12} {:>8} {:>8} {:>10} {:>10} {:>8} {:>8.1}",
            r.stores, r.states, r.recovered, r.recoveries, r.second, r.seconds
        );
        sum.instructions += r.instructions;
        sum.stores += r.stores;
        sum.states += r.states;
        sum.recovered += r.recovered;
        sum.recoveries += r.recoveries;
        sum.second += r.second;
        sum.seconds += r.seconds;
    }
    println!(
        "proof: states: {} calls of {} instructions and {} stores, {} distinct states, {} recovered, {} recoveries cut at every store, {} further \
         states, {failed} violations",
        rows.len(),
        sum.instructions,
        sum.stores,
        sum.states,
        sum.recovered,
        sum.recoveries,
        sum.second
    );
}
