//! Builds the preloaded library and hands its path and build id to the command, which embeds it.
//!
//! The library is `no_std` with a panic handler of its own and must be a release build with `panic = "abort"`, whatever profile
//! the command is built with. A cargo of its own gives it that, in one way for `cargo run`, `cargo test` and `cargo install`. Its source is
//! a dependency that is never linked, so that it is there wherever the command is built.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// What the library is made of.
const CRATES: [&str; 4] = ["sync", "shm", "sem", "preload"];

fn main() {
    // crates/preload, or where cargo keeps what comes from a registry.
    let source = PathBuf::from(var("DEP_MANYWAY_ROOT"));
    println!("cargo::rustc-env=MANYWAY_HEADER={}", source.join("include/manyway.h").display());
    let workspace = source.ancestors().nth(2).filter(|root| CRATES.iter().all(|name| root.join("crates").join(name).is_dir()));
    let library = match workspace {
        Some(root) => {
            watch(root);
            build(&source, true)
        }
        None => {
            println!("cargo::rerun-if-changed={}", source.display());
            let copy = copy(&source).unwrap_or_else(|e| fail(&format!("cannot copy {}: {e}", source.display())));
            // Its lock file does not know the crates beside it.
            build(&copy, false)
        }
    };
    let bytes = fs::read(&library).unwrap_or_else(|e| fail(&format!("{}: {e}", library.display())));
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    println!("cargo::rustc-env=MANYWAY_LIBRARY={}", library.display());
    println!("cargo::rustc-env=MANYWAY_BUILD_ID={:016x}", hasher.finish());
}

/// The command is built again when the library's source changes.
fn watch(root: &Path) {
    for name in CRATES {
        let parts = ["src", "build.rs", "Cargo.toml"].map(|part| root.join("crates").join(name).join(part));
        for part in parts.iter().filter(|part| part.exists()) {
            println!("cargo::rerun-if-changed={}", part.display());
        }
    }
    for file in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(file).display());
    }
}

/// Copies the library's source as it comes from a registry: there it has lost the workspace's profile, nothing may be written, and a lock
/// file's versions may be others than those that the command is built with. The crates that lie beside it are taken as they are.
fn copy(source: &Path) -> io::Result<PathBuf> {
    let copy = PathBuf::from(var("OUT_DIR")).join("source");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    fs::create_dir_all(copy.join("src"))?;
    copy_files(&source.join("src"), &copy.join("src"))?;
    for file in ["build.rs", "Cargo.lock"] {
        if source.join(file).exists() {
            fs::copy(source.join(file), copy.join(file))?;
        }
    }
    let mut manifest = fs::read_to_string(source.join("Cargo.toml"))?;
    manifest.push_str("\n[workspace]\n\n[profile.release]\npanic = \"abort\"\nlto = \"thin\"\ncodegen-units = 1\n");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    for name in CRATES.iter().filter(|name| **name != "preload") {
        let beside = [format!("manyway-{name}-{version}"), format!("manyway-{name}")].map(|dir| source.with_file_name(dir));
        if let Some(dir) = beside.iter().find(|dir| dir.join("Cargo.toml").exists()) {
            manifest.push_str(&format!("\n[patch.crates-io.manyway-{name}]\npath = {:?}\n", dir.display().to_string()));
        }
    }
    fs::write(copy.join("Cargo.toml"), manifest)?;
    Ok(copy)
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let (entry, to) = (entry?.path(), to);
        let to = to.join(entry.file_name().unwrap_or_default());
        if entry.is_dir() {
            fs::create_dir_all(&to)?;
            copy_files(&entry, &to)?;
        } else {
            fs::copy(&entry, &to)?;
        }
    }
    Ok(())
}

/// Runs the nested cargo and returns the path of the library.
fn build(package: &Path, locked: bool) -> PathBuf {
    let target = var("TARGET");
    let target_dir = PathBuf::from(var("OUT_DIR")).join("preload");
    let mut cargo = Command::new(var("CARGO"));
    cargo.args(["rustc", "--release", "--lib", "--crate-type", "cdylib"]);
    if locked {
        cargo.arg("--locked");
    }
    cargo.arg("--manifest-path").arg(package.join("Cargo.toml"));
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
        Ok(status) => fail(&format!("building the library manyway-preload failed ({status}): see cargo's messages")),
        Err(e) => fail(&format!("cannot run cargo to build manyway-preload: {e}")),
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
