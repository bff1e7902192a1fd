//! Each workload, short, on the back ends that every machine has, and what a run leaves behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use manyway_bench::worker::Start;
use manyway_bench::{Env, Error, Report, cli};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: cli::Args,
}

fn exe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_manyway-bench"))
}

/// Runs `bench LINE`.
fn bench(line: &str) -> Result<Report, Error> {
    let args = Program::parse_from(std::iter::once("bench").chain(line.split(' '))).args;
    let env = Env { worker: vec![exe().into()], preload: None, watcher: None };
    cli::run(&args, &env)
}

fn rows(report: &Report) -> Vec<(&str, &str)> {
    report.results.iter().map(|r| (r.case.as_str(), r.backend.as_str())).collect()
}

fn ratio(report: &Report, case: &str, backend: &str, over: &str) -> f64 {
    let found = report.ratios.iter().find(|r| (r.case.as_str(), r.backend.as_str(), r.over.as_str()) == (case, backend, over));
    found.unwrap_or_else(|| panic!("no ratio of {backend} over {over} in {case}: {:?}", report.ratios)).median
}

#[test]
fn uncontended_has_a_row_for_each_case_that_a_back_end_can_do() {
    let report = bench("uncontended --backend kernel,posix --secs 0.01 --rounds 2").unwrap();
    let expected = [
        ("inc-dec", "kernel"),
        ("inc-dec", "posix"),
        ("zero", "kernel"),
        ("undo", "kernel"),
        ("two", "kernel"),
        ("preload-inc-dec", "kernel"),
        ("preload-undo", "kernel"),
    ];
    assert_eq!(rows(&report), expected);
    assert!(report.results.iter().all(|r| r.rounds == 2 && r.min > 0.0 && r.min <= r.median && r.median <= r.max), "{report}");
    // A system call against one atomic instruction: on no machine are they alike.
    assert!(ratio(&report, "inc-dec", "posix", "kernel") > 2.0, "{report}");
}

#[test]
fn scaling_compares_two_processes_with_one() {
    match bench("scaling --backend kernel --secs 0.02 --rounds 2") {
        Ok(report) => {
            assert_eq!(rows(&report), [("one-process", "kernel"), ("two-processes", "kernel")]);
            assert!(ratio(&report, "two-processes", "kernel", "one-process") > 0.1, "{report}");
        }
        // A machine with one CPU: refused, with the reason.
        Err(error) => assert!(matches!(error, Error::Cpus { needed: 2, have: 1 }), "{error}"),
    }
}

#[test]
fn calls_cost_the_same_among_few_sets_and_among_many() {
    let report = bench("sets --backend kernel,manyway --sets 20000 --sample 400 --sems 4 --rounds 3").unwrap();
    assert_eq!(rows(&report).len(), 20, "{report}");
    for case in ["create", "find", "call", "list", "remove"] {
        let (few, many) = (format!("{case}-few"), format!("{case}-many"));
        // A cost that grew with the number of sets would be fifty times as much. Caches and a busy machine account for less.
        assert!(ratio(&report, &many, "manyway", &few) > 0.15, "{report}");
    }
}

#[test]
fn one_cpu_cannot_show_scaling() {
    let error = bench("scaling --backend kernel --pin 0,0").unwrap_err();
    assert_eq!(error.to_string(), "needs 2 CPUs, and --pin or the process's affinity leave 1");
}

#[test]
fn kill_measures_until_the_sleeper_runs() {
    let report = bench("kill --backend kernel --rounds 3").unwrap();
    assert_eq!(rows(&report), [("no-watcher", "kernel")]);
    assert!(report.results[0].min > 1.0, "{report}");
}

#[test]
fn the_kernel_undoes_before_wait_returns() {
    let report = bench("wait-undo --backend kernel --rounds 20").unwrap();
    assert_eq!((report.results[0].rounds, report.results[0].min), (20, 1.0));
}

#[test]
fn a_missing_library_is_named() {
    let error = bench("wait-undo --backend manyway-preload --rounds 1").unwrap_err().to_string();
    assert!(error.starts_with("no library to preload: build it with"), "{error}");
}

#[test]
fn a_workload_without_a_fitting_back_end_is_refused() {
    assert!(matches!(bench("kill --backend posix"), Err(Error::NothingToDo)));
}

/// A coordinator that is killed cannot clean up: its keeper does.
#[test]
fn a_killed_run_leaves_nothing_behind() {
    let mut run = Command::new(exe())
        .args(["uncontended", "--backend", "kernel", "--secs", "0.1", "--rounds", "1000000"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (keeper, place) = wait_for(|| keeper_of(run.id()));
    assert!(place.is_dir());
    run.kill().unwrap();
    run.wait().unwrap();
    // The keeper removes its sets first and then the place.
    wait_for(|| (!place.exists()).then_some(()));
    wait_for(|| (keeper_of_cmdline(keeper).is_none()).then_some(()));
}

/// The first child of a coordinator and the directory that it keeps.
fn keeper_of(pid: u32) -> Option<(u32, PathBuf)> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let keeper = children.split_whitespace().next()?.parse().ok()?;
    Some((keeper, keeper_of_cmdline(keeper)?))
}

fn keeper_of_cmdline(pid: u32) -> Option<PathBuf> {
    let cmdline = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    let start: Start = serde_json::from_str(cmdline.split('\0').nth(2)?).ok()?;
    Some(start.place.dir)
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited for 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}
