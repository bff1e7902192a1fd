//! The walks: rows and ratios of the workload, short; what a hot walk writes, from a look at each of its instructions; the memory of an entry.
#![cfg(feature = "walk")]

mod optimised;

use clap::Parser;
use manyway_bench::walk::backend::Kind;
use manyway_bench::walk::worker::{Answer, Command, Start};
use manyway_bench::walk::{Case, Walker};
use manyway_bench::{Env, Error, Report, cli};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: cli::Args,
}

fn env() -> Env {
    Env { worker: vec![optimised::optimised().unwrap_or_else(|e| panic!("{e:?}")).into()], preload: None, watcher: None }
}

/// Runs `bench walk LINE`.
fn walk(line: &str) -> Result<Report, Error> {
    let args = Program::parse_from(["bench", "walk"].into_iter().chain(line.split(' '))).args;
    cli::run(&args, &env())
}

fn rows(report: &Report) -> Vec<(&str, &str)> {
    report.results.iter().map(|r| (r.case.as_str(), r.backend.as_str())).collect()
}

fn ratio(report: &Report, case: &str, backend: &str, over: &str) -> f64 {
    let found = report.ratios.iter().find(|r| (r.case.as_str(), r.backend.as_str(), r.over.as_str()) == (case, backend, over));
    found.unwrap_or_else(|| panic!("no ratio of {backend} over {over} in {case}: {:?}", report.ratios)).median
}

fn median(report: &Report, case: &str, backend: &str) -> f64 {
    let found = report.results.iter().find(|r| (r.case.as_str(), r.backend.as_str()) == (case, backend));
    found.unwrap_or_else(|| panic!("no {case} on {backend}: {report}")).median
}

/// Each back end is asked for each path of each tree before it is timed, and must say what all others say.
#[test]
fn every_back_end_finds_the_same_in_every_case() {
    let backends = "dcache,dcache-counted,floor,global-lock,fastwalk,kernel-tmpfs,mutex-hashmap,rwlock-hashmap,dashmap,papaya,moka";
    let cases = "hot,cold,missing,negative,deep,wide,rename,rename-dir-100";
    let report = walk(&format!("--backend {backends} --case {cases} --threads 1,2 --pin none --secs 0.001 --rounds 1")).unwrap();
    assert!(report.notes.is_empty(), "{report}");
    assert!(report.results.iter().all(|r| r.rounds == 1 && r.min > 0.0 && r.min <= r.median && r.median <= r.max), "{report}");
    let count = |case: &str| rows(&report).iter().filter(|row| row.0 == case).count();
    for case in ["hot", "hot-2", "negative", "negative-2", "deep", "deep-2", "wide", "wide-2"] {
        assert_eq!(count(case), 11, "{case}: {report}");
    }
    // What only looks up, and file systems in memory, cannot be cold.
    assert_eq!(["cold", "cold-2", "missing", "rename", "rename-2", "rename-dir-100"].map(count), [7, 7, 8, 8, 8, 8], "{report}");
    for over in ["kernel-tmpfs", "floor"] {
        assert!(ratio(&report, "hot", "dcache", over) > 0.0);
    }
    assert!(ratio(&report, "hot-2", "dcache", "hot") > 0.0 && ratio(&report, "negative", "dcache", "hot") > 0.0);
}

/// A file system on a disk needs rights, programs and a kernel that has it; without them its rows are left out, and the reason is told.
#[test]
fn ext4_is_measured_or_the_reason_told() {
    let report = walk("--backend kernel-tmpfs,kernel-ext4,dcache --case hot,cold,negative --threads 1 --secs 0.002 --rounds 2").unwrap();
    let has = |case: &str| rows(&report).contains(&(case, "kernel-ext4"));
    for case in ["hot", "cold", "negative"] {
        let told = report.notes.iter().any(|note| note.starts_with(&format!("{case} on kernel-ext4 is left out: ")));
        assert!(has(case) != told, "{case}: {report}");
        assert!(!has(case) || ratio(&report, case, "dcache", "kernel-ext4") > 0.0);
    }
}

#[test]
fn a_case_that_no_back_end_can_do_is_refused() {
    assert!(matches!(walk("--backend floor --case cold --rounds 1"), Err(Error::NothingToDo)));
}

/// The worker removes what it made when its input ends: also when the coordinator is killed.
#[test]
fn a_worker_leaves_nothing_behind() {
    let mut worker = Walker::start(&env(), Kind::KernelTmpfs, &[]).unwrap();
    assert_eq!(worker.ask(&Command::Prepare(Case::RenameDir100)).unwrap(), Answer::Done);
    let cmdline = std::fs::read_to_string(format!("/proc/{}/cmdline", worker.pid())).unwrap();
    let start: Start = serde_json::from_str(cmdline.split('\0').nth(2).unwrap()).unwrap();
    assert!(start.dir.join("rename-dir-100").is_dir());
    drop(worker);
    assert!(!start.dir.exists());
}

/// Of a hundred descendants and of a hundred thousand, all stay cached; a cost for each of them would make the second a thousand times the first.
#[test]
fn renaming_a_directory_costs_the_same_with_many_descendants() {
    let report = walk("--backend dcache --case rename-dir,rename-dir-100 --rounds 5").unwrap();
    assert!(ratio(&report, "rename-dir", "dcache", "rename-dir-100") > 0.05, "{report}");
}

#[test]
#[cfg_attr(not(target_env = "gnu"), ignore = "this C library does not tell what is allocated")]
fn an_entry_takes_160_bytes_at_most() {
    let report = walk("--backend dcache,mutex-hashmap --case bytes --rounds 1").unwrap();
    println!("proof: dcache memory: {} bytes for each entry of a full cache, at most 160", median(&report, "bytes", "dcache"));
    assert!(median(&report, "bytes", "dcache") <= 160.0, "{report}");
    // A key with a boxed name of 16 bytes, and its value: less would mean that something was not counted.
    assert!(median(&report, "bytes", "mutex-hashmap") > 60.0 && median(&report, "bytes", "dcache") > 60.0, "{report}");
}

/// What is counted comes from the instructions themselves: the same walks with one shared counter, or with locks, show it.
#[cfg(target_arch = "x86_64")]
mod trace {
    use manyway_bench::walk::trace::{Profile, profile};

    use super::*;

    /// More than the collector's rounds of 128 pins.
    const WALKS: u64 = 160;

    fn hot(kind: Kind) -> Profile {
        // Each of them does the same.
        let profile = profile(&env(), kind, Case::Hot, 32).unwrap();
        println!("{kind}: {profile:?}");
        profile
    }

    #[test]
    fn a_hot_walk_takes_no_lock_and_writes_no_shared_line() {
        for (kind, case) in [(Kind::Dcache, Case::Hot), (Kind::Dcache, Case::Negative), (Kind::Floor, Case::Hot)] {
            let p = profile(&env(), kind, case, WALKS).unwrap();
            println!(
                "proof: walk {} on {kind}: {} locks, {} shared writes a walk; {} writes of its own by the guard, {} of the collector",
                case.name(),
                p.locks,
                p.writes,
                p.guard_writes,
                p.collector_writes
            );
            assert_eq!((p.locks, p.locked, p.writes), (0.0, 0.0, 0.0), "{kind}, {}: {p:?}", case.name());
            assert!(p.guard_writes > 0.0 && p.collector_writes < 0.25, "{p:?}");
        }
    }

    #[test]
    fn a_seeded_shared_write_is_seen() {
        let p = hot(Kind::DcacheCounted);
        assert_eq!((p.locked, p.writes), (1.0, 1.0));
    }

    #[test]
    fn comparators_take_the_locks_that_they_say() {
        assert_eq!(hot(Kind::GlobalLock).locks, 4.0);
        assert_eq!(hot(Kind::Fastwalk).locks, 1.0);
        assert_eq!(hot(Kind::MutexHashmap).locks, 4.0);
        assert_eq!(hot(Kind::RwlockHashmap).locks, 4.0);
    }
}
