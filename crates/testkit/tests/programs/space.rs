//! Where a program runs: an IPC namespace of its own, so that nobody else's semaphores of the kernel are in the picture, and in it a fresh
//! namespace of Manyway's.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use serde_json::Value;
use tempfile::TempDir;

use crate::case::Outcome;

/// Longer than this no program takes, by far.
const DEADLINE_SECONDS: &str = "120";

/// Whose semaphores the programs get.
enum Subject {
    /// Manyway's: the command.
    Manyway(&'static Path),
    Kernel,
}

/// The surroundings of one case. Belongs to the thread that made it: the programs that this thread starts are in its IPC namespace.
pub struct Space {
    subject: Subject,
    /// Manyway's namespace.
    dir: TempDir,
    scratch: TempDir,
    kernel: KernelSets,
}

impl Space {
    /// Makes fresh surroundings and moves the calling thread there.
    pub fn enter() -> Outcome<Space> {
        let on_kernel = env::var_os("MANYWAY_TEST_ON_KERNEL").is_some_and(|v| v == "1");
        Ok(Space {
            subject: if on_kernel { Subject::Kernel } else { Subject::Manyway(manyway()?) },
            dir: tempfile::Builder::new().prefix("manyway-programs-").tempdir_in("/dev/shm")?,
            scratch: TempDir::new()?,
            kernel: KernelSets::enter()?,
        })
    }

    /// The programs' working directory, where they may write.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The command that runs `program` on the semaphores in question, for at most the deadline.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", DEADLINE_SECONDS]);
        if let Subject::Manyway(manyway) = self.subject {
            command.arg(manyway).args(["run", "--dir"]).arg(self.dir.path()).arg("--");
        }
        command.arg(program).current_dir(self.scratch.path()).stdin(Stdio::null());
        command
    }

    /// How many sets there are now.
    pub fn sets(&self) -> Outcome<usize> {
        match self.subject {
            Subject::Manyway(manyway) => Ok(self.listing(manyway)?["sets"].as_array().ok_or("manyway ls --json has no sets")?.len()),
            Subject::Kernel => Ok(self.kernel.made()?.len()),
        }
    }

    /// Whether the program, which made `known` operations at least, made them where it should have.
    pub fn judge(&self, known: u64) -> Outcome {
        let touched = self.kernel.touched()?;
        let Subject::Manyway(manyway) = self.subject else {
            // Without a namespace of its own, sets that came and went left no trace.
            return if touched || !self.kernel.own { Ok(()) } else { Err("the program made no semaphores of the kernel's".into()) };
        };
        if touched {
            return Err("the program made semaphores of the kernel's".into());
        }
        let counted = self.listing(manyway)?["operations"].as_u64().ok_or("manyway ls --json has no operations")?;
        // Counts of operations that race may be lost.
        if counted == 0 || counted < known / 2 {
            return Err(format!("the program made {known} operations at least, the namespace counted {counted}").into());
        }
        Ok(())
    }

    fn listing(&self, manyway: &Path) -> Outcome<Value> {
        let mut ls = Command::new(manyway);
        ls.arg("ls").arg("--dir").arg(self.dir.path()).arg("--json");
        Ok(serde_json::from_str(&output(&mut ls)?)?)
    }
}

/// The kernel's semaphore sets, seen from the IPC namespace of the thread that entered.
struct KernelSets {
    /// The thread could get a namespace of its own.
    own: bool,
    before: Vec<String>,
}

impl KernelSets {
    fn enter() -> Outcome<KernelSets> {
        let own = unshare(CloneFlags::CLONE_NEWIPC).is_ok();
        Ok(KernelSets { own, before: sets_of_mine()? })
    }

    /// The sets that were not there at first.
    fn made(&self) -> Outcome<Vec<String>> {
        Ok(sets_of_mine()?.into_iter().filter(|set| !self.before.contains(set)).collect())
    }

    /// Whether any set was made, in a namespace of the thread's own also one that has been removed since: the first set of a namespace has the
    /// id 0, and ids go up. It makes a set to see its id, so it can be asked once.
    fn touched(&self) -> Outcome<bool> {
        if !self.own {
            return Ok(!self.made()?.is_empty());
        }
        let said = output(Command::new("ipcmk").args(["--semaphore", "1"]))?;
        Ok(!said.trim_end().ends_with(": 0"))
    }
}

/// The lines of the kernel's table that name sets of the calling user: key, id, mode, size and owners, without the times.
fn sets_of_mine() -> Outcome<Vec<String>> {
    let uid = geteuid().to_string();
    let table = fs::read_to_string("/proc/sysvipc/sem")?;
    let fields = table.lines().skip(1).map(|line| line.split_whitespace().take(8).collect::<Vec<_>>());
    Ok(fields.filter(|fields| fields.get(6) == Some(&uid.as_str())).map(|fields| fields.join(" ")).collect())
}

/// Lets an ordinary user's threads have IPC namespaces of their own, by a user namespace in which they may. To be called while there is one
/// thread. Where the system forbids it, the cases share the user's IPC namespace and look at its sets before and after.
pub fn own_user_namespace() {
    let (uid, gid) = (geteuid(), getegid());
    // Some systems allow the namespace but nothing inside it, and there is no way back: let another process try it.
    let mut attempt = Command::new("unshare");
    attempt.args(["--user", "--map-current-user", "--ipc", "true"]).stdin(Stdio::null()).stderr(Stdio::null());
    if uid.is_root() || !attempt.status().is_ok_and(|status| status.success()) {
        return;
    }
    let map = |file: &str, line: String| fs::write(format!("/proc/self/{file}"), line).unwrap_or_else(|e| panic!("{file}: {e}"));
    unshare(CloneFlags::CLONE_NEWUSER).expect("a user namespace, as just before");
    map("setgroups", "deny".into());
    map("uid_map", format!("{uid} {uid} 1"));
    map("gid_map", format!("{gid} {gid} 1"));
}

/// Runs a command; its output, both streams in the order of writing. Fails with it when the command fails.
pub fn output(command: &mut Command) -> Outcome<String> {
    // A file and not a pipe: whoever outlives the command with its output open cannot hold us up.
    let said = tempfile::NamedTempFile::new()?;
    let append = || fs::OpenOptions::new().append(true).open(said.path());
    let status = command
        .stdin(Stdio::null())
        .stdout(append()?)
        .stderr(append()?)
        .status()
        .map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
    let said = String::from_utf8_lossy(&fs::read(said.path())?).into_owned();
    if status.success() { Ok(said) } else { Err(format!("{command:?}: {status}\n{said}").into()) }
}

/// The command `manyway` of this build.
fn manyway() -> Outcome<&'static Path> {
    Ok(manyway_testkit::manyway_command()?)
}
