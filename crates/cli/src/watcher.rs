//! The watcher: a small process, one for each namespace, that finds the death of a process at once and applies its undo.
//!
//! Nothing depends on it for correctness; without it a sleeper finds a death at its next look, within 50 ms. `run` starts it before it
//! becomes the program. It sleeps in epoll over the pidfds of all processes with a slot, while a second thread waits for new ones; it
//! ends when nobody is left (see [`users`]), and then removes a private namespace.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use manyway_sem::{Engine, OpenOptions, Share, Thread};
use rustix::event::epoll;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};

use crate::namespace::Place;
use crate::users::{self, Gate};

/// The first argument that makes this program a watcher; not for people.
const SUBCOMMAND: &str = "__watcher";
const REAP: &str = "--reap";
const STAY: &str = "--stay";
const REMOVE: &str = "--remove";
/// With the number of the namespace's owner, who may be somebody else.
const OWNER: &str = "--owner";
/// Whoever holds a lock on this file in the namespace's directory is its watcher.
const LOCK_FILE: &str = "watcher.lock";

/// What a watcher is to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Duty {
    /// The namespace.
    pub place: Place,
    /// Apply the undo of the dead.
    pub reap: bool,
    /// What to do when nobody is left.
    pub end: End,
}

/// What a watcher does when nobody uses its namespace any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ends.
    Leave,
    /// It removes the namespace and ends.
    Remove,
    /// It waits for others; whoever started it kills it.
    Stay,
}

impl Duty {
    /// The duty that a command line gives, if it is a watcher's.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Option<Duty> {
        let mut args = args.into_iter().skip(1).peekable();
        args.next_if(|arg| arg == SUBCOMMAND)?;
        let reap = args.next_if(|arg| arg == REAP).is_some();
        let end = match args.next_if(|arg| arg == REMOVE || arg == STAY) {
            None => End::Leave,
            Some(arg) if arg == REMOVE => End::Remove,
            Some(_) => End::Stay,
        };
        let owner = match args.next_if(|arg| arg == OWNER) {
            Some(_) => Some(args.next()?.to_str()?.parse().ok()?),
            None => None,
        };
        Some(Duty { place: Place { dir: args.next()?.into(), owner }, reap, end })
    }

    /// The command line's arguments.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args = self.flags();
        if let Some(owner) = self.place.owner {
            args.extend([OWNER.into(), owner.to_string().into()]);
        }
        args.push(self.place.dir.clone().into());
        args
    }

    /// The arguments before the owner and the directory.
    pub fn flags(&self) -> Vec<OsString> {
        let end = match self.end {
            End::Leave => None,
            End::Remove => Some(REMOVE),
            End::Stay => Some(STAY),
        };
        [Some(SUBCOMMAND), self.reap.then_some(REAP), end].into_iter().flatten().map(Into::into).collect()
    }
}

/// Starts a watcher, unless the namespace has one. It is no child of this process, has no part in its session, and none of its descriptors,
/// environment or working directory: neither a terminal nor a pipe stays open because of it.
///
/// The caller holds the namespace's gate open, so that a watcher that is there stays.
pub fn start(duty: &Duty) -> io::Result<()> {
    if is_watched(&duty.place.dir) {
        return Ok(());
    }
    let program = Path::new("/proc/self/exe");
    program.metadata()?;
    let mut command = Command::new(program);
    command.args(duty.to_args()).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    orphan(&mut command)
}

/// Whether a watcher has the lock. Whoever is told that none has starts one: it may be that this very question has turned one away.
fn is_watched(dir: &Path) -> bool {
    lock_file(dir).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK))
}

/// Executes the command in a child's child, whose parent ends at once: the program that this process becomes must not find an unknown child.
/// Nobody waits for the execve: it takes longer than all the rest, and the program's start would have to pay for it.
#[allow(unsafe_code)]
fn orphan(command: &mut Command) -> io::Result<()> {
    // SAFETY: this process has one thread, so the copies are whole and any code may run in them. They leave by execve or _exit, which runs nothing
    // of the copied program; no descriptor is closed, only marked to be closed by execve (an older kernel refuses, and the watcher keeps what
    // it inherited); waitpid is given a child of ours that nobody else waits for.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::setsid();
                match libc::fork() {
                    0 => {
                        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
                        let _ = command.exec();
                        libc::_exit(1)
                    }
                    forked => libc::_exit(i32::from(forked < 0)),
                }
            }
            child => {
                let mut status = 0;
                while libc::waitpid(child, &raw mut status, 0) < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {}
                if status == 0 { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
            }
        }
    }
}

/// Whether the process is a watcher, by its command line.
pub fn is_one(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|b| *b == 0).nth(1) == Some(SUBCOMMAND.as_bytes())
}

/// The watcher's main function. It has nobody to report an error to; the exit code is for one who traces it.
pub fn main(duty: &Duty) -> ExitCode {
    let _ = rustix::thread::set_name(c"manyway-watcher");
    match watch(duty) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn watch(duty: &Duty) -> io::Result<()> {
    let Ok(lock) = lock(&duty.place.dir) else { return Ok(()) };
    // A descriptor for each process: the usual thousand is too few.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let engine = if duty.reap {
        Some(duty.place.open(&OpenOptions::FIND).map_err(|failure| io::Error::other(failure.what().to_owned()))?)
    } else {
        None
    };
    let watch = Arc::new(Watch {
        engine,
        dir: duty.place.dir.clone(),
        events: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        watched: Mutex::default(),
    });
    if watch.engine.is_some() {
        // From here on a new process rings; those before are found by the first look.
        watch.set_mark(std::process::id());
        let listener = Arc::clone(&watch);
        thread::Builder::new().stack_size(256 << 10).spawn(move || listener.listen())?;
    }
    let _closed = watch.serve(duty.end == End::Stay)?;
    if duty.end == End::Remove {
        fs::remove_dir_all(&duty.place.dir)?;
    }
    // Before the gate: whoever comes through it must not take this one for a watcher.
    drop(lock);
    Ok(())
}

/// Becomes the watcher of the namespace in `dir`, unless there is one.
fn lock(dir: &Path) -> io::Result<OwnedFd> {
    let file = lock_file(dir)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file.into())
}

/// Opens the file that tells of a watcher.
fn lock_file(dir: &Path) -> io::Result<File> {
    let path = dir.join(LOCK_FILE);
    // What somebody may have put there instead must not make this wait.
    let mut how = fs::OpenOptions::new();
    how.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match how.open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => match how.clone().create_new(true).mode(0o600).open(&path) {
            // Another one was faster.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => how.open(&path)?,
            made => made?,
        },
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{} is not a regular file", path.display())));
    }
    Ok(file)
}

/// Lets those who share the namespace in `dir` be its watcher, too. The owner does so.
pub fn share(dir: &Path, share: Share) -> io::Result<()> {
    let file = lock_file(dir)?;
    let (owner, file_owner) = (dir.metadata()?, file.metadata()?);
    let group = if let Share::Group(gid) = share { gid } else { file_owner.gid() };
    if (owner.uid(), group) != (file_owner.uid(), file_owner.gid()) {
        fchown(&file, Some(owner.uid()), Some(group))?;
    }
    file.set_permissions(Permissions::from_mode(share.file_mode()))
}

/// Removes those private namespaces in `dirs` whose watcher was killed and that nobody uses.
pub fn remove_abandoned(dirs: &[PathBuf]) {
    for dir in dirs {
        let (Ok(_lock), Ok(_closed)) = (lock(dir), Gate::try_close(dir)) else {
            continue;
        };
        if users::find(dir).is_empty() {
            // What is left is tried again next time.
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// The watcher at work.
struct Watch {
    /// Absent when only the end of the namespace is waited for.
    engine: Option<Engine>,
    dir: PathBuf,
    /// An epoll of the pidfds in `watched`.
    events: OwnedFd,
    watched: Mutex<HashMap<u32, OwnedFd>>,
}

impl Watch {
    /// Waits for deaths until nobody is left (and on, if it is to `stay`); the gate stays closed.
    fn serve(&self, stay: bool) -> io::Result<Gate> {
        let thread = Thread::new();
        loop {
            self.add_all(&thread);
            while stay || !self.watched().is_empty() {
                self.wait(&thread)?;
            }
            let closed = Gate::close(&self.dir)?;
            for pid in users::find(&self.dir) {
                self.add(&thread, pid);
            }
            if !self.watched().is_empty() {
                continue;
            }
            // Only after the mark is gone do sleepers look by themselves: whoever takes a slot until then must be found here.
            self.set_mark(0);
            self.add_all(&thread);
            if self.watched().is_empty() {
                return Ok(closed);
            }
            self.set_mark(std::process::id());
        }
    }

    /// Waits for deaths; applies the undo of those who died.
    fn wait(&self, thread: &Thread) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 64];
        let dead = match epoll::wait(&self.events, &mut buffer, None) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        for event in dead {
            let pid = event.data.u64() as u32;
            self.reap(thread, pid);
            self.watched().remove(&pid);
        }
        // A number may have been taken by a new process before it left the list.
        self.add_all(thread);
        Ok(())
    }

    /// The second thread: adds every process that takes a slot.
    fn listen(&self) {
        let Some(engine) = &self.engine else { return };
        let thread = Thread::new();
        let mut seen = engine.wait_doorbell(0, 0);
        loop {
            self.add_all(&thread);
            seen = engine.wait_doorbell(seen, u32::MAX);
        }
    }

    fn add_all(&self, thread: &Thread) {
        let Some(engine) = &self.engine else { return };
        let mut pids = Vec::new();
        engine.for_each_process(&mut |pid| pids.push(pid));
        let own = std::process::id();
        for pid in pids.into_iter().filter(|pid| *pid != own) {
            self.add(thread, pid);
        }
    }

    /// Watches a process. It may be gone already, and its number may be another's: so it is looked at once after its pidfd is open.
    fn add(&self, thread: &Thread, pid: u32) {
        if self.watched().contains_key(&pid) {
            return;
        }
        if let Some(pidfd) = i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
            let mut watched = self.watched();
            if !watched.contains_key(&pid)
                && epoll::add(&self.events, &pidfd, epoll::EventData::new_u64(pid.into()), epoll::EventFlags::IN).is_ok()
            {
                watched.insert(pid, pidfd);
            }
        }
        self.reap(thread, pid);
    }

    fn reap(&self, thread: &Thread, pid: u32) {
        if let Some(engine) = &self.engine {
            engine.reap(thread, Some(pid));
        }
    }

    fn set_mark(&self, pid: u32) {
        if let Some(engine) = &self.engine {
            engine.set_watcher(pid);
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<u32, OwnedFd>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        for (reap, end, owner) in
            [(true, End::Leave, None), (true, End::Stay, Some(7)), (true, End::Remove, None), (false, End::Remove, Some(0))]
        {
            let duty = Duty { place: Place { dir: "/a b".into(), owner }, reap, end };
            let args = std::iter::once("manyway".into()).chain(duty.to_args());
            assert_eq!(Duty::from_args(args), Some(duty));
        }
        assert_eq!(Duty::from_args(["manyway", "run", SUBCOMMAND].map(Into::into)), None);
    }
}
