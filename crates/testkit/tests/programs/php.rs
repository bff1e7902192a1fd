//! PHP: sem_acquire and its kin in a program of several processes, and PHP's own tests of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;

use crate::case::{Absent, Outcome, case, expect, number_after, program, repository};
use crate::source::debian;
use crate::space::{Space, output};

pub fn cases() -> Vec<Trial> {
    let php = || program("php", "php-cli");
    let tests = php().and_then(|php| {
        source_package(&php).and_then(|source| Ok((debian(&source, &source, &["*/run-tests.php", "*/ext/sysvsem/tests/*"])?, php)))
    });
    vec![case("php_turnstile", php(), turnstile), case("php_own_tests", tests, own_tests)]
}

/// Several processes share two permits, and count under a lock how many have one.
fn turnstile(php: PathBuf, space: &Space) -> Outcome<u64> {
    let said = output(space.command(php).arg(repository("examples/turnstile.php")))?;
    expect(said.contains("at most 2 of 2 were inside") && said.contains("permits back at the end: 2"), "permits lost or forged", &said)?;
    // Two semaphores are taken and given back by each, one of them twice.
    Ok(6 * number_after(&said, "6 processes went through")? * 6)
}

fn own_tests((source, php): (PathBuf, PathBuf), space: &Space) -> Outcome<u64> {
    // The tests write beside themselves.
    output(Command::new("cp").arg("-r").arg(source).arg(space.scratch().join("tests")))?;
    let mut command = space.command(&php);
    command.args(["run-tests.php", "-q", "ext/sysvsem/tests"]).current_dir(space.scratch().join("tests"));
    let said = output(command.env("TEST_PHP_EXECUTABLE", &php).env("NO_COLOR", "1"))?;
    let (passed, skipped) = (number_after(&said, "Tests passed")?, number_after(&said, "Tests skipped")?);
    expect(passed >= 2 && skipped == 0, "not all ran and passed", &said)?;
    Ok(1)
}

/// Debian's name of the source that this PHP was built from.
fn source_package(php: &Path) -> Result<String, Absent> {
    output(Command::new(php).args(["-r", "echo 'php', PHP_MAJOR_VERSION, '.', PHP_MINOR_VERSION;"]))
        .map_err(|e| Absent::known_by("php-cli", &e))
}
