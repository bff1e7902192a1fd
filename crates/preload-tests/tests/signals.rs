//! A signal after each instruction of each call, with handlers that do everything handlers do: what comes of it on Manyway must be something that
//! comes of it on the kernel.
//!
//! Instruction for instruction the two cannot be compared: the kernel's call is one instruction of the program's, Manyway's a thousand. So the
//! kernel's outcomes with the signal before, in and after its call are the set of what may be.
//!
//! `MANYWAY_SIGNALS=all` takes every instruction.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::{Arguments, Failed, Trial, run};
use manyway_preload_tests::{CC, On, Scratch, compile, run as run_program};

const PROGRAM: &str = "signals";
/// So many instructions of each call with each handler, if not all.
const FEW: &str = "6";
/// The kernel's calls are short.
const KERNEL: &str = "20";

fn main() {
    let mut args = Arguments::from_args();
    // The program keeps to a processor, with precedence.
    args.test_threads = Some(1);
    run(&args, vec![Trial::test("outcomes_are_the_kernels", outcomes)]).exit();
}

type Outcomes = BTreeMap<String, BTreeSet<String>>;

/// What a run printed: for each call and handler what came of it; and the number of signals.
fn parse(text: &str) -> Result<(Outcomes, u64), Failed> {
    let mut outcomes = Outcomes::new();
    let mut signals = None;
    for line in text.lines() {
        match (line.strip_prefix("signals "), line.split_once(": ")) {
            (Some(n), _) => signals = Some(n.parse()?),
            (None, Some((pair, outcome))) => drop(outcomes.entry(pair.to_owned()).or_default().insert(outcome.to_owned())),
            (None, None) => return Err(format!("what is {line:?}?").into()),
        }
    }
    Ok((outcomes, signals.ok_or("it does not say how many signals it sent")?))
}

fn outcomes() -> Result<(), Failed> {
    let dir = Scratch::new();
    // Bound at its start: else a first call is mostly the dynamic linker's.
    let program = compile(CC, &dir, PROGRAM, &["-Wl,-z,now"]);
    let samples = if std::env::var("MANYWAY_SIGNALS").is_ok_and(|v| v == "all") { ["0", "0"] } else { [KERNEL, FEW] };
    let (kernel, _) = parse(&run_program(On::Kernel, &program, &samples[..1]))?;
    let (manyway, signals) = parse(&run_program(On::Manyway, &program, &samples[1..]))?;
    let mut strange = Vec::new();
    for (pair, outcomes) in &manyway {
        let may_be = kernel.get(pair).ok_or_else(|| format!("{pair}: nothing on the kernel"))?;
        for outcome in outcomes.difference(may_be) {
            let may_be: Vec<_> = may_be.iter().map(|o| format!("\n    {o}")).collect();
            strange.push(format!("{pair}:\n    {outcome}\n  on the kernel:{}", may_be.concat()));
        }
    }
    println!(
        "proof: signals: {signals} signals in the middle of calls, {} pairs of a call and a handler, {} outcomes, {} violations",
        manyway.len(),
        manyway.values().map(BTreeSet::len).sum::<usize>(),
        strange.len()
    );
    let pairs = kernel.len();
    if manyway.len() != pairs || pairs == 0 || signals < pairs as u64 {
        return Err(format!("{} pairs on Manyway, {pairs} on the kernel, {signals} signals", manyway.len()).into());
    }
    if strange.is_empty() { Ok(()) } else { Err(strange.join("\n").into()) }
}
