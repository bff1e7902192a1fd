//! Who gets in, and what may be done inside: real users, groups, capabilities and user namespaces, by real system calls. The kernel is asked
//! first and must be agreed with. Needs root; it becomes others by itself.

mod callers;
mod matrix;
mod planted;
mod privileged;
mod probe;
mod sys;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_testkit::{kernel_namespaces, preload_library, running_as_root};

/// Calls that were compared, those that the kernel (and so Manyway) refused, and things that were planted.
static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static PLANTED: AtomicU64 = AtomicU64::new(0);

fn main() {
    probe::become_probe_if_asked();
    let mut args = Arguments::from_args();
    // Children are made by fork, and threads become other users.
    args.test_threads = Some(1);
    let can = running_as_root() && kernel_namespaces();
    if can {
        // The kernel's semaphores of these tests are theirs alone.
        sys::unshare(libc::CLONE_NEWIPC).expect("root may");
    }
    let tests = [matrix::TESTS, planted::TESTS, privileged::TESTS].concat();
    let trials = tests.into_iter().map(|(name, test)| {
        let kind = if can { "" } else { "needs root" };
        Trial::test(name, move || carried_out(test)).with_ignored_flag(!can).with_kind(kind)
    });
    let conclusion = libtest_mimic::run(&args, trials.collect());
    let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
    println!(
        "proof: access: {} attempts, {} refused as the kernel refuses, {} planted files, {} got in",
        count(&ATTEMPTS),
        count(&REFUSED),
        count(&PLANTED),
        conclusion.num_failed
    );
    if let Some(dir) = LIBRARY.get().and_then(|path| path.parent()) {
        // What cannot be removed stays in the directory for temporary files.
        let _ = std::fs::remove_dir_all(dir);
    }
    conclusion.exit();
}

/// A test and its name.
type Test = (&'static str, fn());

fn carried_out(run: fn()) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|e| {
        let text = e.downcast_ref::<String>().cloned().or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        text.unwrap_or_else(|| "panicked".to_owned()).into()
    })
}

/// A copy of the library.
static LIBRARY: OnceLock<PathBuf> = OnceLock::new();

/// The library, where every user can read it.
fn library() -> &'static Path {
    LIBRARY.get_or_init(|| {
        let built = preload_library().unwrap_or_else(|e| panic!("{e}"));
        // Removed by `main`.
        let path = open_directory(&std::env::temp_dir()).keep().join("libmanyway.so");
        std::fs::copy(built, &path).expect("room for a copy of the library");
        path
    })
}

/// A new directory that everybody can look into.
fn open_directory(within: &Path) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new().prefix("manyway-access-").tempdir_in(within).expect("a new directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("own directory");
    dir
}
