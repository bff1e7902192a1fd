//! What the tests of the command share: a namespace for each, and programs that use it.

pub mod cast;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The command, with nothing of the surroundings that would change what it does.
pub fn manyway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manyway"));
    for name in ["MANYWAY_DIR", "MANYWAY_NS", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    command
}

/// A directory of its own for each test; removed when dropped.
pub struct Namespace(PathBuf);

impl Namespace {
    pub fn new() -> Namespace {
        static COUNT: Mutex<u32> = Mutex::new(0);
        let mut count = COUNT.lock().unwrap();
        *count += 1;
        Namespace(PathBuf::from(format!("/dev/shm/manyway-cli-{}-{}", std::process::id(), *count)))
    }

    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// `manyway SUBCOMMAND --dir … ARGUMENTS…`
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = manyway();
        command.arg(arguments[0]).arg("--dir").arg(&self.0).args(&arguments[1..]);
        command
    }

    /// Runs it to its end.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs it; it must succeed. Returns what it printed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// Runs a query with --json.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Starts `manyway run -- semtool ARGUMENTS…`.
    pub fn semtool(&self, arguments: &[&str]) -> Program {
        let semtool = semtool().to_str().unwrap();
        Program::start(self.command(&[&["run", "--", semtool], arguments].concat()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A test that asks for nothing of the namespace never made it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running program, killed when dropped.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub fn start(mut command: Command) -> Program {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Program { input: child.stdin.take(), child, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    /// Ends its input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Ends its input, and waits until it has ended; returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        self.close_input();
        self.child.wait().unwrap().code()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The compiled semtool.c.
pub fn semtool() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/semtool.c");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("semtool-{}", std::process::id()));
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let status = Command::new(&compiler).args(["-Wall", "-Werror", "-o"]).arg(&path).arg(&source).status();
        assert!(status.expect("a C compiler is needed").success());
        path
    })
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Waits until `what` is the case; for what another process does in its own time.
#[track_caller]
pub fn eventually(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(20), "still not the case");
        std::thread::sleep(Duration::from_millis(2));
    }
}
