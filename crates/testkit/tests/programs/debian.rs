//! Debian's tools: fakeroot, which serialises its messages by a semaphore, building a package; and those that list and make semaphores.

use std::path::PathBuf;

use libtest_mimic::Trial;

use crate::case::{Outcome, case, expect, program};
use crate::space::{Space, output};

pub fn cases() -> Vec<Trial> {
    let tools = || program("lsipc", "util-linux").and(program("sysctl", "procps"));
    let builder = || program("dpkg-deb", "dpkg").and(program("fakeroot-sysv", "fakeroot"));
    vec![case("fakeroot_builds_a_package", builder(), package), case("ipcs_and_its_kin_agree", tools(), listings)]
}

/// A package whose files belong to users that the builder is not.
fn package(fakeroot: PathBuf, space: &Space) -> Outcome<u64> {
    let script = "set -e
        mkdir -p tree/DEBIAN tree/usr/share/thing
        printf 'Package: thing\\nVersion: 1\\nArchitecture: all\\nMaintainer: A <a@example.org>\\nDescription: a thing\\n' > tree/DEBIAN/control
        for n in 1 2 3 4 5 6 7 8 9; do echo $n > tree/usr/share/thing/$n; done
        chown -R 0:0 tree
        chown 1234:5678 tree/usr/share/thing/7
        dpkg-deb --build tree thing.deb
        dpkg-deb --contents thing.deb";
    let mut command = space.command(fakeroot);
    command.args(["sh", "-c", script]);
    let said = output(&mut command)?;
    let line = |name: &str| said.lines().find(|line| line.ends_with(name)).unwrap_or_default();
    expect(line("/thing/3").contains(" root/root "), "its files are not root's", &said)?;
    expect(line("/thing/7").contains(" 1234/5678 "), "one file's owner is lost", &said)?;
    // One chown for each file and folder at least, each of which takes and gives.
    Ok(24)
}

/// What the tools print about a set that ipcmk made, and about limits, comes from where the set is.
fn listings(_: PathBuf, space: &Space) -> Outcome<u64> {
    let script = "set -e
        ipcmk --semaphore 7 --mode 0640
        perl -e 'semop($ARGV[0], pack(\"s3\", 6, 1, 0)) or die $!' $(ipcs -s | awk '$5 == 7 { print $2 }')
        ipcs -s; ipcs -s -u; ipcs -s -l; ipcs -s -i $(ipcs -s | awk '$5 == 7 { print $2 }')
        lsipc -s; lsipc -s -g; sysctl kernel.sem
        ipcrm --all=sem
        ipcs -s -u";
    let mut command = space.command("sh");
    command.args(["-c", script]);
    let said = output(&mut command)?;
    for wanted in [
        "640        7",
        "used arrays = 1\nallocated semaphores = 7",
        "max ops per semop call = ",
        "nsems = 7",
        "6          1          0          0",
        "rw-r-----",
        "kernel.sem = ",
        "used arrays = 0\nallocated semaphores = 0",
    ] {
        expect(said.contains(wanted), &format!("no {wanted:?}"), &said)?;
    }
    Ok(1)
}
