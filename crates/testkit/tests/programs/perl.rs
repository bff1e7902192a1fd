//! Perl: IPC::Semaphore in a program of several processes, and Perl's own tests of it.

use std::path::PathBuf;

use libtest_mimic::Trial;

use crate::case::{Absent, Outcome, case, expect, number_after, program, repository};
use crate::source::debian;
use crate::space::{Space, output};

pub fn cases() -> Vec<Trial> {
    let perl = || program("perl", "perl");
    let tests = perl().and_then(|_| program("prove", "perl")).and_then(|prove| Ok((prove, own_tests()?)));
    vec![case("perl_counter_with_undo", perl(), counter), case("perl_own_tests", tests, prove)]
}

/// Several processes count under one lock with SEM_UNDO, one is killed holding it.
fn counter(perl: PathBuf, space: &Space) -> Outcome<u64> {
    let said = output(space.command(perl).arg(repository("examples/counter.pl")))?;
    let counted = number_after(&said, "counted")?;
    expect(said.contains(&format!("{counted} of {counted}")) && said.contains("the lock is free"), "wrong count or lock", &said)?;
    Ok(2 * counted)
}

/// The core's test of semget, semop and semctl, and the distribution's of IPC::SysV and IPC::Semaphore.
fn prove((prove, source): (PathBuf, PathBuf), space: &Space) -> Outcome<u64> {
    let tests = ["t/io/sem.t", "cpan/IPC-SysV/t/sem.t", "cpan/IPC-SysV/t/ipcsysv.t"].map(|test| source.join(test));
    let mut command = space.command(prove);
    // The core's tests load their library from the working directory.
    let said = output(command.args(tests).current_dir(&source))?;
    expect(said.contains("Result: PASS") && !said.contains("skipped"), "not all passed", &said)?;
    expect(number_after(&said, "Tests=")? >= 72, "some tests did not run", &said)?;
    Ok(1)
}

fn own_tests() -> Result<PathBuf, Absent> {
    debian("perl", "perl", &["*/t/io/sem.t", "*/t/test.pl", "*/cpan/IPC-SysV/t/*.t"])
}
