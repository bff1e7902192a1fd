//! Python: the extension sysv_ipc with its own test suite, and the C library's functions called through ctypes.

use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::Trial;

use crate::case::{Absent, Outcome, case, expect, number_after, program, repository};
use crate::source::pypi;
use crate::space::{Space, output};

pub fn cases() -> Vec<Trial> {
    let suite = interpreter().and_then(|python| Ok((pypi(&python, "sysv_ipc", "1.2.0")?, python)));
    vec![case("python_barrier_through_ctypes", interpreter(), barrier), case("python_sysv_ipc_own_tests", suite, own_tests)]
}

/// The interpreter itself: what is on the path may be a script that chooses one.
pub fn interpreter() -> Result<PathBuf, Absent> {
    let python = program("python3", "python3")?;
    let mut ask = Command::new(python);
    let path = output(ask.args(["-c", "import sys; print(sys.executable)"]));
    path.map(|path| PathBuf::from(path.trim())).map_err(|e| Absent::known_by("python3", &e))
}

/// Processes meet at a barrier of three semaphores, with two operations in a call and waits for zero.
fn barrier(python: PathBuf, space: &Space) -> Outcome<u64> {
    let said = output(space.command(python).arg(repository("examples/barrier.py")))?;
    expect(said.contains("0 of them saw one that was late"), "the barrier leaks", &said)?;
    // Each of the four calls semop twice, with three operations in all.
    Ok(4 * 2 * number_after(&said, "4 processes met")?)
}

/// The suite's tests of semaphores, and of the module, whose functions remove and look up sets.
fn own_tests((release, python): (PathBuf, PathBuf), space: &Space) -> Outcome<u64> {
    let mut command = space.command(python);
    command.args(["-m", "unittest", "tests.test_semaphores", "tests.test_module"]);
    let said =
        output(command.current_dir(release.join("source")).env("PYTHONPATH", release.join("site")).env("PYTHONDONTWRITEBYTECODE", "1"))?;
    expect(said.trim_end().ends_with("\nOK") && number_after(&said, "Ran")? >= 53, "not all ran and passed", &said)?;
    Ok(1)
}
