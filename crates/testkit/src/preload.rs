//! Where the library to preload is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of `libmanyway.so`, readable by every user: `MANYWAY_LIB`, or built once by a nested cargo.
pub fn preload_library() -> Result<&'static Path, String> {
    static LIB: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    LIB.get_or_init(find).as_deref().map_err(Clone::clone)
}

fn find() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("MANYWAY_LIB") {
        return Ok(path.into());
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = workspace.join("target/preload");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&workspace).args(["rustc", "--quiet", "--release", "-p", "manyway-preload", "--crate-type", "cdylib"]);
    cargo.arg("--target-dir").arg(&target);
    // What the outer cargo was told concerns its own build only.
    for name in
        ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"]
    {
        cargo.env_remove(name);
    }
    let built = cargo.output().map_err(|e| format!("cannot run cargo to build the preload library: {e}"))?;
    if !built.status.success() {
        return Err(format!("the preload library does not build:\n{}", String::from_utf8_lossy(&built.stderr)));
    }
    let lib = target.join("release/libmanyway.so");
    if lib.exists() { Ok(lib) } else { Err(format!("{} was not built", lib.display())) }
}
