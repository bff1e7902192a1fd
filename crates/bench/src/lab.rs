//! One back end's place and its workers, as the coordinator holds them.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use manyway_sem::Namespace;
use tempfile::TempDir;

use crate::backend::{Kind, Place, SetId, namespace};
use crate::process::Process;
use crate::worker::{Answer, Command, Start};
use crate::{Env, Error};

/// A place with its keeper, the worker that makes the sets. Dropping it ends the keeper, which cleans up.
pub struct Lab {
    launch: Launch,
    place: Place,
    keeper: Worker,
    /// The namespace that the preloaded library has to use, to see that it does.
    preloaded: Option<Namespace>,
}

/// A worker process. Dropping it kills it, unless it is a keeper, which is asked to end.
pub type Worker = Process<Command, Answer>;

/// How to start a worker.
struct Launch {
    command: Vec<OsString>,
    preload: Option<PathBuf>,
}

impl Lab {
    /// A new place of the given kind, its keeper on `cpu`.
    pub fn open(env: &Env, kind: Kind, cpu: Option<usize>) -> Result<Lab, Error> {
        let preload = match (kind, &env.preload) {
            (Kind::ManywayPreload, None) => return Err(Error::NoLibrary),
            (Kind::ManywayPreload, library) => library.clone(),
            _ => None,
        };
        let launch = Launch { command: env.worker.clone(), preload };
        let dir = new_dir()?;
        let place = Place { kind, dir: dir.path().to_owned() };
        // The library opens a namespace and makes none.
        let preloaded = if kind == Kind::ManywayPreload { Some(namespace(&place)?) } else { None };
        let keeper = Worker::start(&launch, &Start { place: place.clone(), cpu, keeper: true })?;
        // From here on the keeper removes it, even when this process is killed.
        let _ = dir.keep();
        Ok(Lab { launch, place, keeper, preloaded })
    }

    /// The directory of the place.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// The worker that makes the sets.
    pub fn keeper(&mut self) -> &mut Worker {
        &mut self.keeper
    }

    /// A new set; the keeper removes it at its end.
    pub fn create(&mut self, values: &[u16]) -> Result<SetId, Error> {
        let id = match self.keeper.ask(&Command::Create(values.to_vec()))? {
            Answer::Set(id) => id,
            other => return Err(self.keeper.surprised(&other)),
        };
        if let (Some(library), Some(namespace)) = (&self.launch.preload, &self.preloaded)
            && namespace.info().sets == 0
        {
            return Err(Error::NotPreloaded(library.clone()));
        }
        Ok(id)
    }

    /// Another worker that joins the place.
    pub fn worker(&self, cpu: Option<usize>) -> Result<Worker, Error> {
        Worker::start(&self.launch, &Start { place: self.place.clone(), cpu, keeper: false })
    }
}

/// An empty directory for what processes share, in memory where there is such a place. It is removed when dropped.
pub(crate) fn new_dir() -> Result<TempDir, Error> {
    let parent = [Path::new("/dev/shm"), &std::env::temp_dir()].into_iter().find(|dir| dir.is_dir()).map(Path::to_owned);
    let parent = parent.unwrap_or_else(|| PathBuf::from("."));
    let made = tempfile::Builder::new().prefix("manyway-bench-").tempdir_in(&parent);
    made.map_err(Error::io(format!("cannot make a directory in {}", parent.display())))
}

impl Worker {
    fn start(launch: &Launch, start: &Start) -> Result<Worker, Error> {
        let Some((program, args)) = launch.command.split_first() else {
            return Err(Error::io("cannot start a worker")(std::io::ErrorKind::NotFound.into()));
        };
        let mut command = std::process::Command::new(program);
        let json = serde_json::to_string(start).map_err(|e| Error::io("a worker's argument")(e.into()))?;
        // An own process group: an interrupt from the terminal ends the coordinator, and the workers at the end of their input.
        command.args(args).arg("worker").arg(json).process_group(0);
        match &launch.preload {
            Some(library) => command.env("LD_PRELOAD", library).env("MANYWAY_DIR", &start.place.dir),
            // Even when the benchmark itself runs preloaded, its reference is the kernel.
            None => command.env_remove("LD_PRELOAD"),
        };
        Worker::spawn(command, start.place.kind.name(), start.keeper)
    }

    /// A copy of this process, which must be a worker, with another role.
    pub(crate) fn copy(start: &Start) -> Result<Worker, Error> {
        let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
        args.pop();
        let json = serde_json::to_string(start).map_err(|e| Error::io("a worker's argument")(e.into()))?;
        let mut command = std::process::Command::new("/proc/self/exe");
        command.args(args).arg(OsStr::new(&json));
        Worker::spawn(command, start.place.kind.name(), start.keeper)
    }
}
