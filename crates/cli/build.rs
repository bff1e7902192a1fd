//! Builds the preloaded library and hands its path and build id to the command, which embeds it.
//!
//! The library is `no_std` with a panic handler of its own and must be a release build with `panic = "abort"`, whatever profile
//! the command is built with. A cargo of its own gives it that, in one way for `cargo run`, `cargo test` and `cargo install`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// What the library is made of.
const CRATES: [&str; 4] = ["sync", "shm", "sem", "preload"];

fn main() {
    let manifest_dir = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let Some(root) = manifest_dir.ancestors().nth(2) else {
        fail("crates/cli is not inside the workspace: build it from a checkout of the whole repository");
    };
    for name in CRATES {
        let parts = ["src", "build.rs", "Cargo.toml"].map(|part| root.join("crates").join(name).join(part));
        for part in parts.iter().filter(|part| part.exists()) {
            println!("cargo::rerun-if-changed={}", part.display());
        }
    }
    for file in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(file).display());
    }

    let library = build(root);
    let bytes = fs::read(&library).unwrap_or_else(|e| fail(&format!("{}: {e}", library.display())));
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    println!("cargo::rustc-env=MANYWAY_LIBRARY={}", library.display());
    println!("cargo::rustc-env=MANYWAY_BUILD_ID={:016x}", hasher.finish());
}

/// Runs the nested cargo and returns the path of the library.
fn build(root: &Path) -> PathBuf {
    let target = var("TARGET");
    let target_dir = PathBuf::from(var("OUT_DIR")).join("preload");
    let mut cargo = Command::new(var("CARGO"));
    cargo.args(["build", "--release", "--locked", "--package", "manyway-preload"]);
    cargo.arg("--manifest-path").arg(root.join("Cargo.toml"));
    cargo.arg("--target").arg(&target).arg("--target-dir").arg(&target_dir);
    if env::var("CARGO_NET_OFFLINE").is_ok_and(|v| v == "true" || v == "1") {
        cargo.arg("--offline");
    }
    // The outer build's flags and wrappers (clippy, coverage, `--cfg loom`) are not meant for the library.
    for (name, _) in env::vars_os() {
        if is_outer_setting(&name.to_string_lossy()) {
            cargo.env_remove(name);
        }
    }
    // Every `manyway run` compares the library in the file system with the embedded one: no debug information, a tenth of the size.
    cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "none");
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("building the library crates/preload failed ({status}): see cargo's messages")),
        Err(e) => fail(&format!("cannot run cargo to build crates/preload: {e}")),
    }
    target_dir.join(target).join("release").join("libmanyway.so")
}

fn is_outer_setting(name: &str) -> bool {
    const NAMES: [&str; 6] =
        ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR", "CARGO_INCREMENTAL"];
    NAMES.contains(&name) || name.starts_with("CARGO_BUILD_") || name.starts_with("CARGO_PROFILE_")
}

fn var(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| fail(&format!("cargo did not set {name}")))
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
