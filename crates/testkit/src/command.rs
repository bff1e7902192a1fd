//! Where the command is.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of `manyway` of this build, built by a nested cargo if need be.
pub fn manyway_command() -> Result<&'static Path, String> {
    static MANYWAY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MANYWAY.get_or_init(find).as_deref().map_err(|why| format!("no command manyway to test: {why}"))
}

fn find() -> Result<PathBuf, String> {
    let test = env::current_exe().map_err(|e| e.to_string())?;
    // A test lies in <target>/<profile>/deps.
    let [_, _, profile, target] = [0, 1, 2, 3].map(|n| test.ancestors().nth(n));
    let (Some(profile), Some(target)) = (profile, target) else {
        return Err(format!("{} is not in a target directory", test.display()));
    };
    let manyway = profile.join("manyway");
    // `cargo test` does not build the command, or not always, and one of an earlier build would be the wrong one.
    let cargo = env::var_os("CARGO");
    if cargo.is_some() || !manyway.exists() {
        let mut build = Command::new(cargo.unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "--package", "manyway", "--target-dir"]).arg(target);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().map_err(|e| format!("cannot run cargo: {e}"))?;
        if !built.status.success() {
            return Err(format!("it does not build:\n{}", String::from_utf8_lossy(&built.stderr)));
        }
    }
    Ok(manyway)
}
