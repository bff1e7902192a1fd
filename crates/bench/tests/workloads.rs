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

/// Runs a workload of a crowd for a moment: each row has samples, and the crate's rows a ratio over the kernel's.
fn crowd(line: &str, expected: &[(&str, &str)]) -> Report {
    let report = bench(&format!("{line} --rounds 2")).unwrap_or_else(|e| panic!("{line}: {e}"));
    assert_eq!(rows(&report), expected, "{report}");
    // In a round of a workload that runs for a time nobody may have come so far, on a busy machine.
    assert!(report.results.iter().all(|r| r.rounds == 2 && r.max > 0.0), "{report}");
    for (case, backend) in expected.iter().filter(|(_, backend)| *backend != "kernel") {
        ratio(&report, case, backend, "kernel");
    }
    report
}

#[test]
fn semscale_has_a_case_for_each_mode_and_number() {
    let expected = [
        ("zero 2", "kernel"),
        ("zero 2", "manyway"),
        ("ping-pong 2", "kernel"),
        ("ping-pong 2", "manyway"),
        ("ping-pong 2", "posix"),
        ("double 2", "kernel"),
        ("double 2", "manyway"),
    ];
    let report = crowd("semscale --threads 2 --backend kernel,manyway,posix --secs 0.05", &expected);
    // A system call against a few instructions.
    assert!(ratio(&report, "zero 2", "manyway", "kernel") > 2.0, "{report}");
}

#[test]
fn semscale_with_delay_distance_and_calls_of_two_operations() {
    let line = "semscale --mode ping-pong -p 3 -i 2 -d 2 --distance 3 -x 4 --processes --backend kernel,manyway --secs 0.5";
    crowd(line, &[("ping-pong 4", "kernel"), ("ping-pong 4", "manyway")]);
}

#[test]
fn semop_multi_runs_on_all_kinds() {
    let all = ["kernel", "manyway", "manyway-barging", "posix"].map(|kind| ("8 2, spread", kind));
    crowd("semop-multi 8 2 --backend kernel,manyway,manyway-barging,posix --secs 0.05", &all);
}

#[test]
fn osim_does_the_loops_that_it_was_told() {
    let report = crowd(
        "osim 2 4 400 3 3 --pin one --backend kernel,manyway --secs 0.05",
        &[("2 4, one CPU", "kernel"), ("2 4, one CPU", "manyway")],
    );
    assert_eq!(report.args["loops"], 400);
}

#[test]
fn waitforzero_wakes_sleepers() {
    crowd(
        "waitforzero 1,5 --backend kernel,manyway --secs 0.6",
        &[("1, spread", "kernel"), ("1, spread", "manyway"), ("5, spread", "kernel"), ("5, spread", "manyway")],
    );
}

#[test]
fn sembench_burns_in_each_way() {
    crowd(
        "sembench -t 6 -w 3 -o semaphores,timeouts,futex --backend kernel,manyway,posix --secs 0.3",
        &[
            ("6 3, spread", "kernel"),
            ("6 3, spread", "manyway"),
            ("6 3, spread", "posix"),
            ("6 3, timeouts, spread", "kernel"),
            ("6 3, timeouts, spread", "manyway"),
            ("6 3, timeouts, spread", "posix"),
            ("6 3, futex, spread", "kernel"),
        ],
    );
}

#[test]
fn lockloop_tells_how_long_the_waits_are() {
    let report = crowd(
        "lockloop 1,3 --backend kernel,manyway-barging --secs 0.05",
        &[("1", "kernel"), ("1", "manyway-barging"), ("3", "kernel"), ("3", "manyway-barging")],
    );
    let times: Vec<_> = report.results.iter().filter_map(|r| r.times).collect();
    assert_eq!(times.len(), 4);
    assert!(times.iter().all(|t| t.p50 <= t.p99 && t.p99 <= t.worst), "{report}");
    // A loop works for eleven microseconds.
    assert!(report.results[0].min > 5_000.0, "{report}");
}

#[test]
fn a_token_goes_to_and_fro_idle_and_loaded() {
    crowd("lat-sem --pin one --backend kernel,manyway --secs 0.05", &[("call, one CPU", "kernel"), ("call, one CPU", "manyway")]);
    let cases = ["round trip, one CPU", "round trip, spread", "round trip, one CPU, loaded", "round trip, spread, loaded"];
    let report = crowd("handoff --backend kernel --secs 0.05", &cases.map(|case| (case, "kernel")));
    assert!(report.results.iter().all(|r| r.times.is_some()), "{report}");
}

#[test]
fn undo_on_many_sets() {
    let report = bench("undo 20 --backend kernel,manyway --secs 0.02 --rounds 2").unwrap();
    let cases = ["one set", "one of 20", "20 in turn"];
    let expected: Vec<_> = ["kernel", "manyway"].into_iter().flat_map(|kind| cases.map(|case| (case, kind))).collect();
    assert_eq!(rows(&report), expected);
    assert!(ratio(&report, "20 in turn", "manyway", "one set") > 0.0);
}

#[test]
fn attach_times_first_calls() {
    let report = bench("attach --backend kernel,manyway --rounds 3").unwrap();
    assert_eq!(rows(&report).len(), 6);
    let median = |case: usize| report.results[case].median;
    // The fork is longer than the call.
    assert!(median(2) > median(1) && median(5) > median(4), "{report}");
}

#[test]
fn a_crowd_that_a_back_end_cannot_play_is_refused() {
    assert!(matches!(bench("lat-sem --backend posix"), Err(Error::NothingToDo)));
}

/// A crowd that is killed with its worker leaves no process.
#[test]
fn a_killed_worker_takes_its_crowd_along() {
    let mut run = Command::new(exe())
        .args(["lockloop", "7", "--backend", "kernel", "--secs", "60", "--rounds", "1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (keeper, _) = wait_for(|| keeper_of(run.id()));
    let crowd = wait_for(|| Some(children_of(keeper)).filter(|c| c.len() == 7));
    run.kill().unwrap();
    run.wait().unwrap();
    // The keeper would go on until its crowd is done.
    let keeper = keeper.to_string();
    Command::new("kill").args(["-9", &keeper]).status().unwrap();
    wait_for(|| crowd.iter().all(|pid| !is_running(*pid)).then_some(()));
}

fn children_of(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// False when it has ended, waited for or not.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
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
