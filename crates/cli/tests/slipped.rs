//! `manyway run --no-kernel` and `--report`: who slips past to the kernel's semaphores is stopped, or told of.

#[allow(dead_code)]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use common::{Namespace, semtool, stderr, stdout};
use serde_json::Value;

/// A program of the same source that no library can be preloaded into.
fn static_tool() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("static-semtool-{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/semtool.c");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        assert!(Command::new(compiler).args(["-static", "-o"]).args([&path, &source]).status().unwrap().success());
        path
    })
}

/// Runs a shell script: `$0` is the preloadable program, `$1` the static one. The kernel's set is removed by the script.
fn script(options: &[&str], text: &str) -> Output {
    let namespace = Namespace::new();
    let tools = [semtool().to_str().unwrap(), static_tool().to_str().unwrap()];
    namespace.output(&[&["run"], options, &["--", "sh", "-c", text], &tools].concat())
}

/// One operation by each; the static program's set is the kernel's.
const ONE_EACH: &str = "\"$0\" get 77 1 op 0 1 >/dev/null; \"$1\" get 1297546753 1 op 0 1 2>&1; echo $?; exit 7";
const KERNEL_KEY: &str = "1297546753";

/// Runs it with `--report=FILE`; what the file says.
fn reported(options: &[&str], text: &str) -> (Output, Value) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{}-{}", std::process::id(), options.len()));
    let option = format!("--report={}", file.display());
    let output = script(&[options, &[&option]].concat(), text);
    let report = serde_json::from_str(&std::fs::read_to_string(&file).expect("the report")).expect("JSON");
    std::fs::remove_file(file).unwrap();
    (output, report)
}

/// The names of the processes that the report has under `which`.
fn names(report: &Value, which: &str) -> Vec<String> {
    let name = |entry: &Value| entry.get("name").unwrap_or(&entry[0]).as_str().expect("a name").to_owned();
    report[which].as_object().expect("by process").values().map(name).collect()
}

#[test]
fn no_kernel_refuses_the_kernels_semaphores_of_the_whole_tree() {
    let output = script(&["--no-kernel"], "sh -c '\"$0\" get 1 1 op 0 1' \"$1\"; echo $?; \"$0\" get 1 1 op 0 1");
    let said = stderr(&output);
    assert!(said.contains("not implemented"), "{said}");
    let lines = stdout(&output);
    let last: Vec<&str> = lines.lines().rev().take(2).collect();
    assert_eq!(last[0], "done", "the preloaded program works: {lines}");
    assert_ne!(lines.lines().next(), Some("0"), "the static program got a semaphore: {lines}");
}

#[test]
fn the_report_names_who_used_which_and_why() {
    let (output, report) = reported(&[], ONE_EACH);
    assert!(Command::new("ipcrm").args(["-S", KERNEL_KEY]).status().unwrap().success(), "the static program's set is the kernel's");
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert!(names(&report, "manyway").iter().any(|name| name.starts_with("semtool")), "{report:#}");
    let kernel = report["kernel"].as_object().unwrap();
    assert_eq!(kernel.len(), 1, "{report:#}");
    let slipped = kernel.values().next().unwrap();
    assert!(slipped["name"].as_str().unwrap().starts_with("static-semtool"), "{report:#}");
    assert!(slipped["why"].as_str().unwrap().contains("statically linked"), "{report:#}");
    let calls = &slipped["calls"];
    assert_eq!((&calls["semget"], calls["semop"].as_u64().or(calls["semtimedop"].as_u64())), (&1.into(), Some(1)), "{report:#}");
    assert!(report["operations"].as_u64().unwrap() >= 1, "{report:#}");
    assert!(report["blind"].is_null() && report["refused"] == false, "{report:#}");
    assert!(stdout(&output).contains("done"), "the kernel answered: {}", stdout(&output));
}

#[test]
fn the_report_of_a_refused_call_and_of_an_emptied_environment() {
    let (output, report) = reported(&["--no-kernel"], &ONE_EACH.replace("\"$0\" get", "env -i \"$0\" get"));
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert!(report["refused"] == true && !stdout(&output).contains("done"), "{report:#} {}", stdout(&output));
    assert_eq!(names(&report, "kernel").len(), 1, "{report:#}");
    assert!(names(&report, "manyway").iter().any(|name| name.starts_with("semtool")), "{report:#}");
}

/// Compiles a program and runs it with --no-kernel and --report; its output, and why the report says that each process slipped past.
fn slips(name: &str, source: &str, arguments: &[&str]) -> (Output, Vec<String>) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [program, text, file] = ["", ".c", ".json"].map(|end| dir.join(format!("{name}-{}{end}", std::process::id())));
    std::fs::write(&text, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    assert!(Command::new(compiler).args(["-w", "-o"]).args([&program, &text]).arg("-ldl").status().unwrap().success());
    let option = format!("--report={}", file.display());
    let output = Namespace::new().output(&[&["run", "--no-kernel", &option, "--", program.to_str().unwrap()], arguments].concat());
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("the report")).expect("JSON");
    for path in [program, text, file] {
        std::fs::remove_file(path).unwrap();
    }
    let whys = report["kernel"].as_object().unwrap().values().map(|slipped| slipped["why"].as_str().unwrap().to_owned()).collect();
    (output, whys)
}

#[test]
fn who_asks_the_c_library_by_its_name_is_reported() {
    // RTLD_DEFAULT finds Manyway's functions, the C library's own handle the C library's.
    let source = "
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <errno.h>
        #include <stdio.h>
        int main(void) {
            int (*any)(int, int, int) = dlsym(RTLD_DEFAULT, \"semget\"), (*its)(int, int, int) = dlsym(dlopen(\"libc.so.6\", RTLD_NOW), \"semget\");
            int first = any(77, 1, 01600), second = its(77, 1, 0);
            printf(\"%d %d\\n\", first > 0, second < 0 && errno == ENOSYS);
        }";
    let (output, whys) = slips("by-handle", source, &[]);
    assert_eq!(stdout(&output), "1 1\n", "{}", stderr(&output));
    assert_eq!(whys.len(), 1, "{whys:?}");
    assert!(whys[0].contains("asked the C library's own handle"), "{whys:?}");
}

#[test]
fn what_a_program_without_environment_starts_by_system_is_reported() {
    let source = "
        #include <stdlib.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            char command[4096];
            snprintf(command, sizeof command, \"%s get 77 1 >/dev/null 2>&1\", argv[1]);
            clearenv();
            system(command);
            pclose(popen(command, \"r\"));
        }";
    let (_, whys) = slips("clears", source, &[semtool().to_str().unwrap()]);
    assert_eq!(whys.len(), 2, "{whys:?}");
    assert!(whys.iter().all(|why| why.contains("started without LD_PRELOAD")), "{whys:?}");
}

#[test]
fn the_report_for_people() {
    let output = script(&["--report"], "exit 3");
    assert_eq!(output.status.code(), Some(3));
    let said = stderr(&output);
    assert!(said.starts_with("manyway: report of `sh -c exit 3"), "{said}");
    assert!(said.contains("Nobody used Manyway's semaphores") && said.ends_with("Nobody used the kernel's semaphores.\n"), "{said}");
    // It cannot be written: the program's exit code all the same.
    let output = script(&["--report=/no/such/directory/report"], "exit 4");
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("cannot write the report to /no/such/directory/report"), "{}", stderr(&output));
}

#[test]
fn a_supervised_program_gets_its_signals_and_its_end_is_told_as_a_shell_tells_it() {
    assert_eq!(script(&["--report"], "kill -KILL $$").status.code(), Some(137));
    assert_eq!(
        script(&["--report"], "trap 'exit 9' TERM; (exec sh -c 'kill -TERM $0' $PPID); while :; do sleep 0.05; done").status.code(),
        Some(9)
    );
    let namespace = Namespace::new();
    assert_eq!(namespace.output(&["run", "--report", "--", "/no/such/program"]).status.code(), Some(127));
}

/// Whoever is left behind would have nobody to answer its calls: so its end is waited for.
#[test]
fn the_report_comes_when_all_have_ended() {
    let start = Instant::now();
    let output = script(&["--report"], "(sleep 1; \"$0\" get 77 1 op 0 1) >/dev/null 2>&1 & exit 2");
    assert_eq!(output.status.code(), Some(2));
    assert!(start.elapsed() >= Duration::from_secs(1), "it did not wait");
    let said = stderr(&output);
    assert!(said.contains("some that it started have not") && said.contains("used Manyway's semaphores"), "{said}");
}
