//! What is counted by instructions is counted of an optimised build.

use std::path::{Path, PathBuf};
use std::process::Command as Program;

use libtest_mimic::Failed;

/// The benchmark program as users build it. A debug build would count something else.
pub fn optimised() -> Result<PathBuf, Failed> {
    let exe = Path::new(env!("CARGO_BIN_EXE_manyway-bench"));
    let target = exe.parent().and_then(Path::parent).ok_or("the program lies outside of a target directory")?;
    let mut cargo = Program::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release", "--package", "manyway-bench", "--target-dir"]).arg(target);
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
    if !built.status.success() {
        return Err(format!("cannot build the benchmark:\n{}", String::from_utf8_lossy(&built.stderr)).into());
    }
    Ok(target.join("release").join("manyway-bench"))
}
