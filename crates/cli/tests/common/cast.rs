//! Real users: tests that run as root become others.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Program, semtool, stderr, stdout};

/// True when the tests can become other users; said otherwise.
pub fn can() -> bool {
    let can = rustix::process::geteuid().is_root();
    if !can {
        eprintln!("ignored: needs root");
    }
    can
}

/// A directory with command and program, where every user can execute them; removed when the last test that needs it ends.
struct Bin(PathBuf);

impl Bin {
    fn get() -> Arc<Bin> {
        static SHARED: Mutex<(Weak<Bin>, u32)> = Mutex::new((Weak::new(), 0));
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bin) = shared.0.upgrade() {
            return bin;
        }
        shared.1 += 1;
        let bin = Bin(std::env::temp_dir().join(format!("manyway-access-{}-{}", std::process::id(), shared.1)));
        fs::create_dir(&bin.0).unwrap();
        fs::set_permissions(&bin.0, Permissions::from_mode(0o755)).unwrap();
        for (from, name) in [(Path::new(env!("CARGO_BIN_EXE_manyway")), "manyway"), (semtool(), "semtool")] {
            // Not by this process: a program that another test starts meanwhile would inherit the open file, which then is busy.
            assert!(Command::new("cp").arg(from).arg(bin.0.join(name)).status().unwrap().success());
            fs::set_permissions(bin.0.join(name), Permissions::from_mode(0o755)).unwrap();
        }
        let bin = Arc::new(bin);
        shared.0 = Arc::downgrade(&bin);
        bin
    }
}

impl Drop for Bin {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Users and groups that nobody else has, a place for namespaces that all may write; gone at the end.
pub struct Cast {
    first: u32,
    /// Where all may make namespaces.
    pub top: PathBuf,
    bin: Arc<Bin>,
}

/// User and group.
pub type User = (u32, u32);

/// The first of all users.
pub const ROOT: User = (0, 0);

impl Cast {
    pub fn new() -> Cast {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let top = PathBuf::from(format!("/dev/shm/manyway-access-{}-{n}", std::process::id()));
        fs::create_dir(&top).unwrap();
        fs::set_permissions(&top, Permissions::from_mode(0o1777)).unwrap();
        Cast { first: 100_000 + std::process::id() % 100_000 * 100 + n * 10, top, bin: Bin::get() }
    }
    pub fn bin(&self, name: &str) -> PathBuf {
        self.bin.0.join(name)
    }
    /// The group that shares, and one that does not.
    pub fn group(&self) -> u32 {
        self.first + 5
    }
    pub fn owner(&self) -> User {
        (self.first + 1, self.group())
    }
    pub fn member(&self) -> User {
        (self.first + 2, self.group())
    }
    pub fn stranger(&self) -> User {
        (self.first + 3, self.first + 6)
    }
    pub fn dir(&self) -> PathBuf {
        self.top.join("ns")
    }
    pub fn with_group(&self) -> String {
        format!("group:{}", self.group())
    }

    /// `manyway ARGUMENTS…` as a user, with nothing of the surroundings that would change what it does.
    pub fn command(&self, (uid, gid): User, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.bin("manyway"));
        command.args(arguments).uid(uid).gid(gid).current_dir("/").stdin(Stdio::null());
        for name in ["MANYWAY_DIR", "MANYWAY_OWNER", "MANYWAY_NS", "LD_PRELOAD", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"] {
            command.env_remove(name);
        }
        command
    }
    pub fn output(&self, user: User, arguments: &[&str]) -> Output {
        self.command(user, arguments).output().unwrap()
    }
    #[track_caller]
    pub fn ok(&self, user: User, arguments: &[&str]) -> String {
        let output = self.output(user, arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }
    /// It must fail with this code and these words.
    #[track_caller]
    pub fn refused(&self, user: User, arguments: &[&str], code: i32, words: &[&str]) {
        let output = self.output(user, arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}{}", stdout(&output));
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
    }
    /// `manyway run OPTIONS… -- semtool STEPS…` as a user.
    pub fn run(&self, user: User, options: &[&str], steps: &[&str]) -> Program {
        let semtool = self.bin("semtool");
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["--", semtool.to_str().unwrap()]);
        arguments.extend(steps);
        Program::start(self.command(user, &arguments))
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.top);
        for user in [self.owner(), self.member(), self.stranger()] {
            for top in ["/dev/shm", "/tmp"] {
                let _ = fs::remove_dir_all(format!("{top}/manyway-{}", user.0));
            }
        }
    }
}
