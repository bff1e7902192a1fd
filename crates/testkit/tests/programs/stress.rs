//! stress-ng's stressor of System V semaphores, which verifies what it does.

use std::path::PathBuf;

use libtest_mimic::Trial;

use crate::case::{Outcome, case, expect, program};
use crate::space::{Space, output};

pub fn cases() -> Vec<Trial> {
    vec![case("stress_ng_sem_sysv", program("stress-ng", "stress-ng"), stress)]
}

fn stress(stress_ng: PathBuf, space: &Space) -> Outcome<u64> {
    let mut command = space.command(stress_ng);
    command.args(["--sem-sysv", "4", "--sem-sysv-ops", "40000", "--timeout", "60", "--verify", "--metrics-brief", "--temp-path", "."]);
    let said = output(&mut command)?;
    expect(said.contains("successful run completed") && !said.contains("fail:"), "not successful", &said)?;
    let done =
        said.lines().filter_map(|line| line.split_once("] sem-sysv ")).find_map(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    expect(done == Some(40000), "not all operations were done", &said)?;
    Ok(40000)
}
