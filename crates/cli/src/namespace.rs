//! Which directory is the namespace, and opening it.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use manyway_sem::{Engine, OpenOptions};
use rustix::process::geteuid;

use crate::dirs::{self, Unfit};
use crate::exit::{Failure, Result};
use crate::explain;
use crate::people::is_alive;

/// Environment variable with the directory; `run` sets it for the program.
pub const DIR_VARIABLE: &str = "MANYWAY_DIR";
const NAME_VARIABLE: &str = "MANYWAY_NS";

/// The options that choose a namespace.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Choice {
    /// Directory of the namespace [env: MANYWAY_DIR]
    #[arg(long, value_name = "DIR", conflicts_with = "ns", help_heading = "Namespace")]
    pub dir: Option<PathBuf>,
    /// Name of one of your namespaces [env: MANYWAY_NS] [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Namespace")]
    pub ns: Option<String>,
}

/// Whether the directories above a namespace are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To use what exists.
    Find,
    /// To make it.
    Make,
}

/// What the choice depends on besides the options.
struct Surroundings {
    uid: u32,
    /// `/run`, `$XDG_RUNTIME_DIR`, `/dev/shm`.
    run: PathBuf,
    xdg_runtime: Option<PathBuf>,
    shm: PathBuf,
    dir_variable: Option<OsString>,
    name_variable: Option<OsString>,
}

impl Surroundings {
    fn real() -> Surroundings {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        Surroundings {
            uid: geteuid().as_raw(),
            run: "/run".into(),
            xdg_runtime: variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()),
            shm: "/dev/shm".into(),
            dir_variable: variable(DIR_VARIABLE),
            name_variable: variable(NAME_VARIABLE),
        }
    }

    /// The first that is given: --dir, --ns, MANYWAY_DIR, MANYWAY_NS. An option counts for more than the environment, so that
    /// `manyway run --ns other` inside a running program means another namespace.
    fn directory(&self, choice: &Choice, intent: Intent) -> Result<PathBuf> {
        if let Some(dir) = &choice.dir {
            return absolute(dir);
        }
        match &self.dir_variable {
            Some(dir) if choice.ns.is_none() => return absolute(Path::new(dir)),
            _ => {}
        }
        let from_environment = self.name_variable.as_ref().map(|name| name.to_string_lossy().into_owned());
        let name = choice.ns.clone().or(from_environment).unwrap_or_else(|| "default".into());
        check_name(&name)?;
        Ok(self.base(intent)?.join(name))
    }

    /// The directory that holds the user's namespaces: the first of three places that is fit.
    ///
    /// A disk-backed file would do as well for correctness, but the kernel writes its dirty pages back again and again and
    /// write-protects them each time, which a program on semaphores feels at every operation. So a place on a disk is passed over,
    /// even `/run/manyway`, which is a memory file system on nearly every machine.
    fn base(&self, intent: Intent) -> Result<PathBuf> {
        let system = || {
            let top = self.run.join("manyway");
            dirs::check_memory(if top.exists() { &top } else { &self.run })?;
            prepare(&top, 0o755, intent)?;
            self.own(top.join(self.uid.to_string()), 0o700, intent)
        };
        let session = || {
            let Some(runtime) = &self.xdg_runtime else {
                return Err(Unfit::Io("$XDG_RUNTIME_DIR".into(), ErrorKind::NotFound.into()));
            };
            dirs::check_memory(runtime)?;
            dirs::check(runtime)?;
            self.own(runtime.join("manyway"), 0o700, intent)
        };
        let shared = || {
            // Readable, because the library may be put beside the namespaces; each of these is the user's alone.
            self.own(self.shm.join(format!("manyway-{}", self.uid)), 0o755, intent)
        };
        system().or_else(|_: Unfit| session()).or_else(|_| shared()).map_err(|unfit| match (&unfit, intent) {
            (Unfit::Io(_, e), Intent::Find) if e.kind() == ErrorKind::NotFound => {
                Failure::new("you have no namespace yet").advise("The first `manyway run` makes one; name another's directory with --dir.")
            }
            _ => Failure::new(format!("no place for a namespace: {unfit}")).advise("Name a directory of your own with --dir."),
        })
    }

    /// A directory that must be the user's own, lest namespaces cannot be made in it.
    fn own(&self, path: PathBuf, mode: u32, intent: Intent) -> std::result::Result<PathBuf, Unfit> {
        prepare(&path, mode, intent)?;
        dirs::check_owner(&path, self.uid)?;
        Ok(path)
    }

    /// Directories of private namespaces whose first process is gone: their watchers end them, unless these were killed.
    fn orphans(&self) -> Vec<PathBuf> {
        let Ok(entries) = self.base(Intent::Find).and_then(|base| fs::read_dir(base).map_err(|e| Failure::io("base", e))) else {
            return Vec::new();
        };
        let starter = |name: &OsStr| name.to_str()?.strip_prefix(PRIVATE_PREFIX)?.split('-').next()?.parse().ok();
        let is_orphan = |entry: &fs::DirEntry| starter(&entry.file_name()).is_some_and(|pid: u32| !is_alive(pid));
        entries.flatten().filter(is_orphan).map(|entry| entry.path()).collect()
    }

    /// Makes a new directory for a namespace that ends with its last process.
    fn private(&self) -> Result<PathBuf> {
        let base = self.base(Intent::Make)?;
        for n in 0..u32::MAX {
            let dir = base.join(format!("{PRIVATE_PREFIX}{}-{n}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(dir),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Failure::io(format!("cannot make {}", dir.display()), e)),
            }
        }
        unreachable!("four thousand million directories");
    }
}

/// What the directory names of private namespaces begin with; `--ns` cannot name one.
const PRIVATE_PREFIX: &str = "private-";

fn prepare(path: &Path, mode: u32, intent: Intent) -> std::result::Result<(), Unfit> {
    match intent {
        Intent::Find => dirs::check(path),
        Intent::Make => dirs::make(path, mode),
    }
}

/// The program may change its working directory before it looks at the variable.
fn absolute(dir: &Path) -> Result<PathBuf> {
    std::path::absolute(dir).map_err(|e| Failure::io(format!("--dir {}", dir.display()), e))
}

fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(Failure::new(format!("{name:?} is not a namespace's name"))
            .advise("Use up to 64 letters, digits, `-`, `_` and `.`; a path goes with --dir."));
    }
    if name == "lib" || name.starts_with(PRIVATE_PREFIX) {
        return Err(Failure::new(format!("the name {name:?} is taken by Manyway itself")).advise("Choose another name."));
    }
    Ok(())
}

/// The directory that `choice` means.
pub fn directory(choice: &Choice, intent: Intent) -> Result<PathBuf> {
    Surroundings::real().directory(choice, intent)
}

/// A new directory for a private namespace.
pub fn private_directory() -> Result<PathBuf> {
    Surroundings::real().private()
}

/// Directories of private namespaces whose first process is gone.
pub fn private_orphans() -> Vec<PathBuf> {
    Surroundings::real().orphans()
}

/// Opens the namespace in `dir`.
pub fn open(dir: &Path, how: &OpenOptions) -> Result<Engine> {
    let name = CString::new(dir.as_os_str().as_bytes()).map_err(|e| Failure::io(dir.display(), e))?;
    Engine::open(&name, how).map_err(|error| explain::open_error(dir, &error))
}

/// How queries open a namespace: as it is.
pub const AS_IT_IS: OpenOptions = OpenOptions::FIND;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;
    use std::os::unix::fs::MetadataExt;

    /// A machine of its own below a directory in memory.
    fn machine(top: &TestDir) -> Surroundings {
        let make = |name| {
            let path = top.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        Surroundings {
            uid: geteuid().as_raw(),
            run: make("run"),
            xdg_runtime: Some(make("xdg")),
            shm: make("shm"),
            dir_variable: None,
            name_variable: None,
        }
    }

    fn named(name: &str) -> Choice {
        Choice { ns: Some(name.into()), dir: None }
    }

    #[test]
    fn options_before_environment() {
        let top = TestDir::new();
        let mut machine = machine(&top);
        machine.dir_variable = Some("/x/env".into());
        machine.name_variable = Some("envname".into());
        let uid = machine.uid.to_string();
        let run = top.path().join("run/manyway").join(uid);
        let find = |machine: &Surroundings, choice: Choice| machine.directory(&choice, Intent::Make).unwrap();
        assert_eq!(find(&machine, Choice { dir: Some("/x/opt".into()), ns: None }), Path::new("/x/opt"));
        assert_eq!(find(&machine, named("opt")), run.join("opt"));
        assert_eq!(find(&machine, Choice::default()), Path::new("/x/env"));
        machine.dir_variable = None;
        assert_eq!(find(&machine, Choice::default()), run.join("envname"));
        machine.name_variable = None;
        assert_eq!(find(&machine, Choice::default()), run.join("default"));
        assert_eq!(run.metadata().unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn places_in_order() {
        let top = TestDir::new();
        let mut machine = machine(&top);
        // On a disk (or anything else than memory) /run is passed over; so is a missing session directory.
        machine.run = "/proc".into();
        assert_eq!(machine.base(Intent::Make).unwrap(), top.path().join("xdg/manyway"));
        machine.xdg_runtime = None;
        let shared = top.path().join("shm").join(format!("manyway-{}", machine.uid));
        assert!(machine.base(Intent::Find).unwrap_err().what().contains("no namespace yet"));
        assert_eq!(machine.base(Intent::Make).unwrap(), shared);
        assert_eq!(machine.base(Intent::Find).unwrap(), shared);
        assert_eq!(shared.metadata().unwrap().mode() & 0o777, 0o755);
    }

    #[test]
    fn a_place_that_others_can_write_is_passed_over() {
        let top = TestDir::new();
        let machine = machine(&top);
        let run = machine.base(Intent::Make).unwrap();
        let open = |path: &Path| fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        open(&run);
        let session = machine.base(Intent::Make).unwrap();
        assert_eq!(session, top.path().join("xdg/manyway"));
        open(&session);
        let shared = machine.base(Intent::Make).unwrap();
        open(&shared);
        assert!(machine.base(Intent::Make).unwrap_err().what().contains("written by others"));
    }

    #[test]
    fn a_place_of_somebody_else_is_passed_over() {
        let top = TestDir::new();
        let mut machine = machine(&top);
        // What is made here belongs to the user that runs the test, not to this one.
        machine.uid += 1;
        assert!(machine.base(Intent::Make).unwrap_err().what().contains("belongs to user"));
    }

    #[test]
    fn private_ones_are_new_each_time() {
        let top = TestDir::new();
        let machine = machine(&top);
        let (one, two) = (machine.private().unwrap(), machine.private().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.metadata().unwrap().mode() & 0o777, 0o700);
        assert!(machine.orphans().is_empty(), "we live");
        let orphan = one.with_file_name("private-4194305-0");
        fs::create_dir(&orphan).unwrap();
        assert_eq!(machine.orphans(), [orphan]);
    }

    #[test]
    fn names() {
        for good in ["default", "web-1", "a.b_c"] {
            check_name(good).unwrap();
        }
        for bad in ["", ".", "..", ".x", "a/b", "a b", "a:b", "lib", "private-7-0", &"x".repeat(65)] {
            check_name(bad).unwrap_err();
        }
    }
}
