//! Where namespaces are: which directory the options and the surroundings mean.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use manyway_sem::Share;
use rustix::process::geteuid;

use crate::dirs::{self, Unfit};
use crate::exit::{Failure, Result};
use crate::layouts;
use crate::namespace::{Choice, DIR_VARIABLE, Intent, OWNER_VARIABLE, Place};
use crate::people::{self, is_alive};

const NAME_VARIABLE: &str = "MANYWAY_NS";

/// What the choice depends on besides the options.
pub struct Surroundings {
    uid: u32,
    /// `/run`, `$XDG_RUNTIME_DIR`, `/dev/shm`.
    run: PathBuf,
    xdg_runtime: Option<PathBuf>,
    shm: PathBuf,
    dir_variable: Option<OsString>,
    owner_variable: Option<u32>,
    name_variable: Option<OsString>,
}

impl Surroundings {
    /// This machine, this user, this environment; of a set-user-id program the environment does not count.
    pub fn real() -> Surroundings {
        let believed = !manyway_sync::sys::is_secure_execution();
        let variable = |name| env::var_os(name).filter(|value| believed && !value.is_empty());
        Surroundings {
            uid: geteuid().as_raw(),
            run: "/run".into(),
            xdg_runtime: variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()),
            shm: "/dev/shm".into(),
            dir_variable: variable(DIR_VARIABLE),
            owner_variable: variable(OWNER_VARIABLE).and_then(|uid| uid.to_str()?.parse().ok()),
            name_variable: variable(NAME_VARIABLE),
        }
    }

    /// The first that is given: --dir, --ns, MANYWAY_DIR, MANYWAY_NS. An option counts for more than the environment, so that
    /// `manyway run --ns other` inside a running program means another namespace.
    ///
    /// Somebody else's namespace is meant only by who says so: names its owner, or asks for one that is shared, or (root, and who only looks)
    /// its directory. Otherwise a directory that another user has put where one was to be made would be used without a word.
    pub fn place(&self, choice: &Choice, intent: Intent, share: Option<Share>) -> Result<Place> {
        let shared = share.is_some_and(|share| share != Share::Nobody);
        if let Some(dir) = &choice.dir {
            let dir = absolute(dir)?;
            let any = shared || intent == Intent::Find || self.uid == 0;
            let owner = dir.symlink_metadata().ok().filter(|_| any).map(|meta| meta.uid());
            return Ok(Place { dir, owner });
        }
        match &self.dir_variable {
            Some(dir) if choice.ns.is_none() => return Ok(Place { dir: absolute(Path::new(dir))?, owner: self.owner_variable }),
            _ => {}
        }
        let from_environment = self.name_variable.as_ref().map(|name| name.to_string_lossy().into_owned());
        let name = choice.ns.clone().or(from_environment).unwrap_or_else(|| "default".into());
        match name.split_once('/') {
            Some((owner, name)) => self.of_other(owner, name),
            None => {
                check_name(&name)?;
                Ok(Place { dir: self.named(&name, intent, shared)?, owner: None })
            }
        }
    }

    /// One's own namespace with this name: where there is one, else where one is made.
    fn named(&self, name: &str, intent: Intent, shared: bool) -> Result<PathBuf> {
        let places = [Self::system, Self::session, Self::shared];
        let existing = places.iter().find_map(|place| Some(place(self, Intent::Find).ok()?.join(name)).filter(|dir| dir.is_dir()));
        match existing {
            // What is in a session's directory nobody else can reach.
            Some(dir) if !shared || !self.session(Intent::Find).is_ok_and(|session| dir.starts_with(session)) => {
                if shared {
                    self.open_up(&dir)?;
                }
                Ok(dir)
            }
            _ if shared => {
                let base = self.system(intent).or_else(|_| self.shared(intent)).map_err(|unfit| no_place(&unfit, intent))?;
                let dir = base.join(name);
                self.open_up(&dir)?;
                Ok(dir)
            }
            _ => Ok(self.base(intent)?.join(name)),
        }
    }

    /// Lets others through the directory that the user's namespaces are in; each of these says itself who may look into it.
    fn open_up(&self, dir: &Path) -> Result<()> {
        let Some(base) = dir.parent() else { return Ok(()) };
        let mode = base.metadata().map_err(|e| Failure::io(base.display(), e))?.mode() & 0o7777;
        if mode & 0o011 == 0o011 {
            return Ok(());
        }
        fs::set_permissions(base, Permissions::from_mode(mode | 0o011)).map_err(|e| Failure::io(base.display(), e))
    }

    /// `OWNER/NAME`: a namespace of that user's, in a place that others can reach.
    fn of_other(&self, owner: &str, name: &str) -> Result<Place> {
        check_name(name)?;
        let uid = people::user_id(owner).ok_or_else(|| {
            Failure::new(format!("\"{owner}/{name}\" is not a namespace's name: there is no user {owner:?}"))
                .advise("Before the slash of --ns stands a user's name or number.")
        })?;
        let bases = [self.run.join("manyway").join(uid.to_string()), self.shm.join(format!("manyway-{uid}"))];
        let found = bases.iter().map(|base| base.join(name)).find(|dir| dir.symlink_metadata().is_ok());
        // Where nothing can be seen, the attempt to open tells why.
        let dir = found.unwrap_or_else(|| bases.iter().find(|base| base.is_dir()).unwrap_or(&bases[1]).join(name));
        Ok(Place { dir, owner: Some(uid) })
    }

    /// The directory that holds the user's namespaces: the first of three places that is fit.
    ///
    /// A disk-backed file would do as well for correctness, but the kernel writes its dirty pages back again and again and
    /// write-protects them each time, which a program on semaphores feels at every operation. So a place on a disk is passed over,
    /// even `/run/manyway`, which is a memory file system on nearly every machine.
    fn base(&self, intent: Intent) -> Result<PathBuf> {
        self.system(intent).or_else(|_| self.session(intent)).or_else(|_| self.shared(intent)).map_err(|unfit| no_place(&unfit, intent))
    }

    fn system(&self, intent: Intent) -> std::result::Result<PathBuf, Unfit> {
        let top = self.run.join("manyway");
        dirs::check_memory(if top.exists() { &top } else { &self.run })?;
        prepare(&top, 0o755, intent)?;
        self.own(top.join(self.uid.to_string()), 0o700, intent)
    }

    fn session(&self, intent: Intent) -> std::result::Result<PathBuf, Unfit> {
        let Some(runtime) = &self.xdg_runtime else {
            return Err(Unfit::Io("$XDG_RUNTIME_DIR".into(), ErrorKind::NotFound.into()));
        };
        dirs::check_memory(runtime)?;
        dirs::check(runtime)?;
        self.own(runtime.join("manyway"), 0o700, intent)
    }

    fn shared(&self, intent: Intent) -> std::result::Result<PathBuf, Unfit> {
        // Readable, because the library may be put beside the namespaces; each of these says itself whose it is.
        self.own(self.shm.join(format!("manyway-{}", self.uid)), 0o755, intent)
    }

    /// A directory that must be the user's own, lest namespaces cannot be made in it.
    fn own(&self, path: PathBuf, mode: u32, intent: Intent) -> std::result::Result<PathBuf, Unfit> {
        prepare(&path, mode, intent)?;
        dirs::check_owner(&path, self.uid)?;
        Ok(path)
    }

    /// Directories of private namespaces whose first process is gone: their watchers end them, unless these were killed.
    pub fn orphans(&self) -> Vec<PathBuf> {
        let Ok(entries) = self.base(Intent::Find).and_then(|base| fs::read_dir(base).map_err(|e| Failure::io("base", e))) else {
            return Vec::new();
        };
        let starter = |name: &OsStr| name.to_str()?.strip_prefix(PRIVATE_PREFIX)?.split('-').next()?.parse().ok();
        let is_orphan = |entry: &fs::DirEntry| starter(&entry.file_name()).is_some_and(|pid: u32| !is_alive(pid));
        entries.flatten().filter(is_orphan).map(|entry| entry.path()).collect()
    }

    /// Namespaces by their names: the user's own, and with `all` those of others, by OWNER/NAME.
    pub fn list(&self, all: bool) -> Vec<(String, Place)> {
        let mut list = Vec::new();
        let mut add = |base: &Path, owner: Option<(&str, u32)>| {
            for entry in fs::read_dir(base).into_iter().flatten().flatten() {
                let dir = entry.path();
                let name = entry.file_name().to_string_lossy().into_owned();
                if name != "lib" && !layouts::arenas(&dir).is_empty() {
                    let name = owner.map_or(name.clone(), |(owner, _)| format!("{owner}/{name}"));
                    list.push((name, Place { dir, owner: owner.map(|(_, uid)| uid) }));
                }
            }
        };
        for base in [self.system(Intent::Find), self.session(Intent::Find), self.shared(Intent::Find)].into_iter().flatten() {
            add(&base, None);
        }
        if all {
            let names = people::Names::new();
            for (top, prefix) in [(self.run.join("manyway"), ""), (self.shm.clone(), "manyway-")] {
                for entry in fs::read_dir(top).into_iter().flatten().flatten() {
                    let uid = entry.file_name().to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
                    // A directory of that name that is somebody else's is no place of that user's.
                    if let Some(uid) = uid.filter(|&uid| uid != self.uid && dirs::check_owner(&entry.path(), uid).is_ok()) {
                        add(&entry.path(), Some((&names.user(uid), uid)));
                    }
                }
            }
        }
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        list
    }

    /// Lets others reach the namespace in `dir`, if it is where names lead to.
    pub fn let_through(&self, dir: &Path) -> Result<()> {
        let base = [self.system(Intent::Find), self.shared(Intent::Find)].into_iter().flatten().find(|base| dir.parent() == Some(base));
        if base.is_some() { self.open_up(dir) } else { Ok(()) }
    }

    /// Makes a new directory for a namespace that ends with its last process.
    pub fn private(&self) -> Result<PathBuf> {
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

fn no_place(unfit: &Unfit, intent: Intent) -> Failure {
    match (unfit, intent) {
        (Unfit::Io(_, e), Intent::Find) if e.kind() == ErrorKind::NotFound => {
            Failure::new("you have no namespace yet").advise("The first `manyway run` makes one; name another's directory with --dir.")
        }
        _ => Failure::new(format!("no place for a namespace: {unfit}")).advise("Name a directory of your own with --dir."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

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
            owner_variable: None,
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
        let find = |machine: &Surroundings, choice: Choice| machine.place(&choice, Intent::Make, None).unwrap().dir;
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
    fn whose_it_may_be() {
        let top = TestDir::new();
        let mut machine = machine(&top);
        let (uid, dir) = (machine.uid, top.path().to_owned());
        let owner = |machine: &Surroundings, choice: &Choice, intent, share| machine.place(choice, intent, share).unwrap().owner;
        let by_dir = Choice { dir: Some(dir.clone()), ns: None };
        machine.uid = 4_000_000; // not root
        assert_eq!(owner(&machine, &by_dir, Intent::Make, None), None);
        assert_eq!(owner(&machine, &by_dir, Intent::Make, Some(Share::Nobody)), None);
        assert_eq!(owner(&machine, &by_dir, Intent::Make, Some(Share::All)), Some(uid));
        assert_eq!(owner(&machine, &by_dir, Intent::Find, None), Some(uid));
        machine.dir_variable = Some(dir.into());
        assert_eq!(owner(&machine, &Choice::default(), Intent::Make, None), None);
        machine.owner_variable = Some(7);
        assert_eq!(owner(&machine, &Choice::default(), Intent::Make, None), Some(7));
        let other = machine.place(&named("1234/web"), Intent::Make, None).unwrap();
        assert_eq!((other.dir, other.owner), (top.path().join("shm/manyway-1234/web"), Some(1234)));
        fs::create_dir_all(top.path().join("run/manyway/1234/web")).unwrap();
        assert_eq!(machine.place(&named("1234/web"), Intent::Find, None).unwrap().dir, top.path().join("run/manyway/1234/web"));
        for bad in ["no-such-user-at-all/web", "/web", "1234/", "1234/../web", "1234/a/b"] {
            machine.place(&named(bad), Intent::Find, None).unwrap_err();
        }
    }

    #[test]
    fn a_shared_one_is_where_others_can_reach_it() {
        let top = TestDir::new();
        let mut machine = machine(&top);
        let make = |machine: &Surroundings, share| machine.place(&named("web"), Intent::Make, share).unwrap().dir;
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        let run = top.path().join("run/manyway").join(machine.uid.to_string());
        assert_eq!(make(&machine, Some(Share::All)), run.join("web"));
        assert_eq!(mode(&run), 0o711);
        machine.run = "/proc".into();
        let shm = top.path().join("shm").join(format!("manyway-{}", machine.uid));
        assert_eq!(make(&machine, Some(Share::Group(1))), shm.join("web"));
        // Made there, it is found there; one of another name is made where it would be.
        fs::create_dir(shm.join("web")).unwrap();
        assert_eq!(make(&machine, None), shm.join("web"));
        assert_eq!(machine.place(&named("other"), Intent::Make, None).unwrap().dir, top.path().join("xdg/manyway/other"));
        assert_eq!(mode(&shm), 0o755);
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
