//! A case: a program, what it needs, and how to judge it.

use std::env;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use crate::space::Space;

/// How a case, or a part of it, ended.
pub type Outcome<T = ()> = Result<T, Failed>;

/// Something that a case needs and this machine does not have.
#[derive(Clone, Debug)]
pub struct Absent {
    /// The package that brings it.
    pub package: String,
    /// What was looked for, or what went wrong.
    pub why: String,
}

impl Absent {
    /// `package` is not there, as `failure` tells.
    pub fn known_by(package: &str, failure: &Failed) -> Absent {
        Absent { package: package.into(), why: failure.message().unwrap_or_default().into() }
    }
}

/// A case named `name`. `body` gets what it `needs`, runs the program in the space, and returns how many semaphore operations it knows the
/// program to have made.
pub fn case<N, F>(name: &str, needs: Result<N, Absent>, body: F) -> Trial
where
    N: Send + 'static,
    F: FnOnce(N, &Space) -> Outcome<u64> + Send + 'static,
{
    match needs {
        Ok(needs) => Trial::test(name, move || {
            let space = Space::enter()?;
            let operations = body(needs, &space)?;
            space.judge(operations)
        }),
        Err(absent) => {
            let required = env::var_os("MANYWAY_REQUIRE_ALL").is_some_and(|v| v == "1");
            let kind = format!("needs {}", absent.package);
            Trial::test(name, move || Err(format!("needs {}: {}", absent.package, absent.why).into()))
                .with_kind(kind)
                .with_ignored_flag(!required)
        }
    }
}

/// The program `name`, which Debian's `package` brings.
pub fn program(name: &str, package: &str) -> Result<PathBuf, Absent> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Daemons are not on an ordinary user's path.
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| Absent { package: package.into(), why: format!("there is no program {name}") })
}

/// A file of this repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The number that follows `label` in a program's output.
pub fn number_after(output: &str, label: &str) -> Outcome<u64> {
    let digits = |rest: &str| rest.trim_start_matches([' ', ':', '\t']).chars().take_while(char::is_ascii_digit).collect::<String>();
    output
        .split_once(label)
        .and_then(|(_, rest)| digits(rest).parse().ok())
        .ok_or_else(|| format!("no number after {label:?} in:\n{output}").into())
}

/// Fails with `what` and the program's output unless `holds`.
pub fn expect(holds: bool, what: &str, output: &str) -> Outcome {
    if holds { Ok(()) } else { Err(format!("{what}:\n{output}").into()) }
}
