//! What the tests of the preloaded library share: it is built, C programs are compiled, and each is run on the kernel's semaphores
//! and on Manyway's.
//!
//! The library cannot have tests of its own: it has its own panic handler, and what matters about it is what a C program sees.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use manyway_sem::{Engine, OpenOptions};
use manyway_sync::atomic::{AtomicU32, Ordering};

/// No program here runs longer, unless it hangs, or `MANYWAY_PATIENCE` (seconds) gives it more work.
const PATIENCE: Duration = Duration::from_secs(180);

/// The preloaded library, built as it is shipped.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // …/target/debug/deps/test → …/target/preload-tests
        let test = std::env::current_exe().expect("a test has a path");
        let target = test.ancestors().nth(3).expect("a test is three levels deep").join("preload-tests");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["rustc", "--quiet", "--locked", "--release", "--package", "manyway-preload", "--crate-type", "cdylib", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("RUSTFLAGS")
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the preloaded library could not be built");
        target.join("release/libmanyway.so")
    })
}

/// A directory that is removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one, under the system's directory for temporary files.
    pub fn new() -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("manyway-preload-{}-{n}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        Scratch(path)
    }
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The system's C compiler.
pub const CC: &str = "cc";

/// Compiles `c/NAME.c` into `dir`, with extra arguments for the compiler; the result's path.
pub fn compile(compiler: &str, dir: &Scratch, name: &str, args: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name).with_extension("c");
    let result = dir.path().join(name);
    let status = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wno-unused-result", "-pthread", "-rdynamic", "-o"])
        .arg(&result)
        .arg(&source)
        .args(args)
        .status()
        .unwrap_or_else(|e| panic!("{compiler}: {e}: a C compiler is needed"));
    assert!(status.success(), "{} does not compile", source.display());
    result
}

/// Which semaphores a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The kernel's.
    Kernel,
    /// Manyway's, in a namespace of its own.
    Manyway,
}

/// Runs a program; what it wrote to both outputs. It must exit with 0.
pub fn run(on: On, program: &Path, args: &[&str]) -> String {
    let dir = Scratch::new();
    let mut command = Command::new(program);
    command.args(args);
    if on == On::Manyway {
        let name = CString::new(dir.path().as_os_str().as_bytes()).expect("no zero in a path");
        Engine::open(&name, &OpenOptions::CREATE).expect("a new namespace");
        command.env("LD_PRELOAD", library()).env("MANYWAY_DIR", dir.path());
    }
    run_command(&mut command)
}

/// Runs a command that must exit with 0; what it wrote to both outputs.
pub fn run_command(command: &mut Command) -> String {
    let dir = Scratch::new();
    let path = dir.path().join("output");
    let output = fs::File::create(&path).expect("a new file");
    let mut child =
        command.stdin(Stdio::null()).stdout(output.try_clone().expect("a descriptor")).stderr(output).spawn().expect("the program starts");
    let start = Instant::now();
    let seconds = std::env::var("MANYWAY_PATIENCE").ok().and_then(|s| s.parse().ok());
    let patience = seconds.map_or(PATIENCE, Duration::from_secs);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if start.elapsed() > patience {
            // It may have ended meanwhile.
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = String::from_utf8_lossy(&fs::read(&path).expect("its output")).into_owned();
    assert!(status.success(), "{command:?}: {status}\n{text}");
    text
}

/// Compiles a program and runs it on both; its outputs must be the same, and not empty.
pub fn same_on_both(compiler: &str, name: &str) {
    let dir = Scratch::new();
    let program = compile(compiler, &dir, name, &[]);
    let kernel = run(On::Kernel, &program, &[]);
    let manyway = run(On::Manyway, &program, &[]);
    assert!(!kernel.is_empty(), "{name} says nothing");
    assert!(kernel == manyway, "{name} differs.\non the kernel:\n{kernel}\non Manyway:\n{manyway}");
}
