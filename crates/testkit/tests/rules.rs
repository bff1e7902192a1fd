//! Every rule of docs/semantics.md as a program, on the kernel and on Manyway.
//!
//! A scenario's tests are `…::kernel` (its own assertions hold on the kernel), `…::engine` and `…::preload` (they hold on Manyway, and the
//! trace is the kernel's), and, run by root, the same on an ordinary user's account: `…::kernel_user`, `…::user`, `…::preload_user`.
//! `…::barging` is the engine in a barging namespace, where the assertions hold and the trace may differ.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_testkit::scenarios::{Scenario, all};
use manyway_testkit::{Backend, Setup, World, become_worker_if_asked, kernel_has_semaphores, kernel_namespaces, running_as_root};

fn main() {
    become_worker_if_asked();
    let mut args = Arguments::from_args();
    // Most of them wait for a worker, a timeout or the next second.
    args.test_threads.get_or_insert(8);
    let kernel = kernel_has_semaphores();
    let trials = all().flat_map(|s| variants(s).map(move |(name, setup)| trial(s, name, setup, kernel)));
    let documented = Trial::test("semantics_md_lists_every_scenario", documented);
    libtest_mimic::run(&args, trials.chain([documented]).collect()).exit();
}

/// docs/semantics.md names each scenario, and no test that does not exist.
fn documented() -> Result<(), Failed> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/semantics.md"))?;
    let named: BTreeSet<&str> =
        page.split('`').filter(|s| (s.starts_with("rule_") || s.starts_with("fault_")) && !s.contains(':')).collect();
    let exist: BTreeSet<&str> = all().map(|s| s.name).collect();
    let wrong: Vec<_> = named.symmetric_difference(&exist).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("named or existing only: {wrong:?}").into()) }
}

/// The backends and accounts a scenario is executed on.
fn variants(s: &'static Scenario) -> impl Iterator<Item = (&'static str, Setup)> {
    let user = |backend| Setup { as_user: true, ..Setup::of(backend) };
    let [kernel, engine, preload] = [Backend::Kernel, Backend::Engine, Backend::Preload];
    let own = [("kernel", Setup::of(kernel)), ("engine", Setup::of(engine)), ("preload", Setup::of(preload))];
    let users = [("kernel_user", user(kernel)), ("user", user(engine)), ("preload_user", user(preload))];
    // One that takes root has no second form, and without root the first form is an ordinary user's already.
    let users = users.into_iter().filter(|_| running_as_root() && !s.root);
    let barging = Some(("barging", Setup { barging: true, ..Setup::of(engine) })).filter(|_| !s.strict);
    let all = own.into_iter().chain(users).chain(barging).filter(|(_, setup)| s.fits(setup.backend));
    all.map(|(name, setup)| (name, Setup { limits: s.limits, ..setup }))
}

fn trial(s: &'static Scenario, name: &str, setup: Setup, kernel: bool) -> Trial {
    let kernel = kernel && (s.limits.is_none() || kernel_namespaces());
    let backend = setup.backend;
    let ignored = (backend == Backend::Kernel && !kernel) || (s.root && !running_as_root());
    let run = move || {
        let seen = run(s, setup)?;
        if backend != Backend::Kernel && kernel && !s.differs && !setup.barging {
            let oracle = kernel_trace(s, Setup { backend: Backend::Kernel, ..setup })?;
            if seen != oracle {
                return Err(difference(&oracle, &seen).into());
            }
        }
        Ok(())
    };
    Trial::test(format!("{}::{name}", s.name), run).with_ignored_flag(ignored)
}

/// Executes a scenario; its trace.
fn run(s: &Scenario, setup: Setup) -> Result<Vec<String>, Failed> {
    let world = World::new(setup);
    match catch_unwind(AssertUnwindSafe(|| (s.run)(&world))) {
        Ok(()) => Ok(world.into_trace()),
        Err(e) => {
            let text = e.downcast_ref::<String>().cloned().or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Err(text.unwrap_or_else(|| "panicked".to_owned()).into())
        }
    }
}

/// What the kernel does in this scenario: executed once.
fn kernel_trace(s: &Scenario, setup: Setup) -> Result<Vec<String>, Failed> {
    type Once = Arc<OnceLock<Result<Vec<String>, Failed>>>;
    static TRACES: OnceLock<Mutex<HashMap<(&'static str, bool), Once>>> = OnceLock::new();
    let traces = TRACES.get_or_init(Mutex::default);
    let once = traces.lock().expect("no panic while held").entry((s.name, setup.as_user)).or_default().clone();
    once.get_or_init(|| run(s, setup)).clone()
}

fn difference(oracle: &[String], seen: &[String]) -> String {
    let at = oracle.iter().zip(seen).take_while(|(a, b)| a == b).count();
    let line = |t: &[String]| t.get(at).cloned().unwrap_or_else(|| "(ended)".to_owned());
    let before = seen[..at].iter().fold(String::new(), |s, l| s + "  " + l + "\n");
    format!("not as the kernel:\n{before}  kernel:  {}\n  Manyway: {}", line(oracle), line(seen))
}
