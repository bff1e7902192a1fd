//! Sources of others' tests, got through the package clients once and kept below the target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::case::{Absent, Outcome, program, repository};
use crate::space::output;

/// The files that match `patterns` of the source of Debian's package `package`; kept under the name `name`.
pub fn debian(package: &str, name: &str, patterns: &[&str]) -> Result<PathBuf, Absent> {
    program("apt-get", "a Debian system").and_then(|_| {
        kept(name, &format!("the source of Debian's package {package}"), |dir| {
            let script = repository("crates/testkit/tests/programs/debian-source.sh");
            output(Command::new("sh").arg(script).arg(package).arg(dir).args(patterns)).map(drop)
        })
    })
}

/// A release of a project on PyPI, built from its source: unpacked below `source`, installed below `site`.
pub fn pypi(python: &Path, project: &str, version: &str) -> Result<PathBuf, Absent> {
    kept(&format!("{project}-{version}"), &format!("{project} from PyPI (and python3-pip, python3-dev, gcc)"), |dir| {
        let pip = |verb: &str| {
            let mut pip = Command::new(python);
            pip.args(["-m", "pip", verb, "--quiet", "--disable-pip-version-check", "--retries", "0", "--timeout", "10", "--no-deps"]);
            pip
        };
        let archive = dir.join(format!("{project}-{version}.tar.gz"));
        output(pip("download").args(["--no-binary", project, "--dest"]).arg(dir).arg(format!("{project}=={version}")))?;
        output(pip("install").arg("--target").arg(dir.join("site")).arg(&archive))?;
        fs::create_dir(dir.join("source"))?;
        output(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(dir.join("source")).arg("--strip-components=1")).map(drop)
    })
}

/// The directory `name` of the cache, filled by `fill` if it is not there yet. `fill` gets the path of a directory.
fn kept(name: &str, package: &str, fill: impl FnOnce(&Path) -> Outcome) -> Result<PathBuf, Absent> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sources");
    let dir = cache.join(name);
    if dir.is_dir() {
        return Ok(dir);
    }
    let filled = || -> Outcome {
        fs::create_dir_all(&cache)?;
        let new = tempfile::Builder::new().prefix(".new-").tempdir_in(&cache)?;
        fill(new.path())?;
        // Another run may have been faster; its copy is as good.
        fs::rename(new.path(), &dir).or_else(|e| if dir.is_dir() { Ok(()) } else { Err(e) })?;
        Ok(())
    };
    filled().map(|()| dir.clone()).map_err(|e| Absent::known_by(package, &e))
}
