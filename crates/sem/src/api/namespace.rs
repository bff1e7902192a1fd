//! Namespaces: opening them, and one engine for each in a process.

use std::ffi::CString;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use manyway_sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::error::{Error, NamespaceError};
use super::set::{Key, Set, SetOptions};
use super::thread::{self, Pool};
use crate::abi::{SemInfo, SetStat};
use crate::engine::{Engine, Fairness, Limits, OpenOptions, Share};

/// The variable that `manyway run` sets to the directory of the namespace.
const DIR_VARIABLE: &str = "MANYWAY_DIR";
/// The one that it sets to the number of the namespace's owner when that is somebody else.
const OWNER_VARIABLE: &str = "MANYWAY_OWNER";

/// A namespace's mapping in this process. It stays until the process ends, as what the process has to give back does: threads that used
/// it are linked into it, and handles are plain references.
pub(super) struct Shared {
    pub(super) engine: Engine,
    pub(super) pool: Pool,
    dir: PathBuf,
}

/// Namespaces that this process has opened. One engine for each: a process has one place in a namespace.
static OPENED: Mutex<Vec<&'static Shared>> = Mutex::new(Vec::new());

/// Private namespaces that this process has made.
static PRIVATE: AtomicU64 = AtomicU64::new(0);

/// A namespace: a directory whose semaphore sets all processes share that open it.
///
/// A namespace is its owner's alone (directory mode 0700). Its files belong on a file system in memory, such as `/dev/shm`; they vanish
/// with it at a reboot. `manyway ls --dir DIR` shows what is in it, and `manyway run --dir DIR` lets programs that use semop(2) share it.
///
/// The mapping stays until the process ends; opening a namespace again finds the same one.
#[derive(Clone, Copy)]
pub struct Namespace(&'static Shared);

/// How to open a namespace: [`Namespace::options`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct NamespaceOptions(OpenOptions);

impl NamespaceOptions {
    /// Limits that a new namespace gets (the kernel's current ones otherwise) and that an existing one must have.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.0.limits = Some(limits);
        self
    }
    /// Fairness that a new namespace gets ([`Fairness::Strict`] otherwise) and that an existing one must have.
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.0.fairness = Some(fairness);
        self
    }
    /// With whom a new namespace is shared (nobody otherwise), and an existing one must be.
    ///
    /// Whoever shares a namespace can write all of its memory. The modes of the sets in it are kept between programs that keep them; they
    /// protect from mistakes, not from an attacker.
    pub fn share(mut self, share: Share) -> Self {
        self.0.share = Some(share);
        self
    }
    /// The user whose namespace it may be, besides the caller's own and root's: somebody who shares it with the caller.
    pub fn owner(mut self, uid: u32) -> Self {
        self.0.owner = Some(uid);
        self
    }
    /// Whether a namespace that does not exist is made; true unless this says otherwise. Directories above it never are.
    pub fn create(mut self, create: bool) -> Self {
        self.0.create = create;
        self
    }
    /// Opens the namespace in the directory `dir`.
    ///
    /// # Errors
    /// [`NamespaceError::Open`] says what is wrong with the directory or its arena and what to do; [`NamespaceError::Directory`] that the
    /// path cannot be a directory's.
    pub fn open(&self, dir: impl AsRef<Path>) -> Result<Namespace, NamespaceError> {
        open(dir.as_ref(), &self.0)
    }
}

fn open(dir: &Path, how: &OpenOptions) -> Result<Namespace, NamespaceError> {
    let unfit = |source| NamespaceError::Directory { dir: dir.into(), source };
    // The process may change its working directory later.
    let dir = std::path::absolute(dir).map_err(unfit)?;
    let name = CString::new(dir.as_os_str().as_bytes()).map_err(|e| unfit(e.into()))?;
    let mut opened = OPENED.lock().unwrap_or_else(|e| e.into_inner());
    let engine = Engine::open(&name, how).map_err(|source| NamespaceError::Open { dir: dir.clone(), source })?;
    if let Some(&shared) = opened.iter().find(|s| s.engine.file() == engine.file()) {
        return Ok(Namespace(shared));
    }
    let shared: &'static Shared = Box::leak(Box::new(Shared { engine, pool: Pool::new(), dir }));
    opened.push(shared);
    Ok(Namespace(shared))
}

impl Namespace {
    /// Opens the namespace in the directory `dir`; makes it, with the kernel's limits, when it does not exist.
    ///
    /// ```
    /// # let own = manyway_sem::Namespace::private()?;
    /// # let dir = own.dir().join("inner");
    /// let namespace = manyway_sem::Namespace::open(&dir)?;
    /// assert_eq!(namespace, manyway_sem::Namespace::open(&dir)?);
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`NamespaceOptions::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Namespace, NamespaceError> {
        Namespace::options().open(dir)
    }

    /// Options for opening: limits, fairness, whether it is made.
    ///
    /// ```
    /// use manyway_sem::{Fairness, Limits, Namespace};
    ///
    /// # let own = Namespace::private()?;
    /// # let dir = own.dir().join("inner");
    /// let few = Limits { mni: 16, ..Limits::of_kernel() };
    /// let namespace = Namespace::options().limits(few).fairness(Fairness::Barging).open(&dir)?;
    /// assert_eq!(namespace.limits(), few);
    /// // An existing namespace keeps its limits; asking for others is an error.
    /// assert!(Namespace::options().limits(Limits::of_kernel()).open(&dir).is_err());
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn options() -> NamespaceOptions {
        NamespaceOptions(OpenOptions::CREATE)
    }

    /// Opens the namespace that this process was started in by `manyway run`: the directory that `MANYWAY_DIR` names, of the caller, of root
    /// or of the user that `MANYWAY_OWNER` names. It must exist. A program that was executed with more rights than its caller has (set-user-id)
    /// does not listen to the variables.
    ///
    /// # Errors
    /// [`NamespaceError::NotInEnvironment`] when the variable is not set; else as [`NamespaceOptions::open`].
    pub fn from_env() -> Result<Namespace, NamespaceError> {
        let told = |name| std::env::var_os(name).filter(|value| !value.is_empty() && !manyway_sync::sys::is_secure_execution());
        let dir = told(DIR_VARIABLE).ok_or(NamespaceError::NotInEnvironment)?;
        let mut options = Namespace::options().create(false);
        options.0.owner = told(OWNER_VARIABLE).and_then(|uid| uid.to_str()?.parse().ok());
        options.open(dir)
    }

    /// Makes a namespace in a new directory that goes when the returned value is dropped. For programs whose processes find it through
    /// [`Namespace::dir`] or by fork(2), and for tests.
    ///
    /// # Errors
    /// [`NamespaceError`] when no directory can be made in /dev/shm (or, where that is absent, the directory for temporary files).
    pub fn private() -> Result<PrivateNamespace, NamespaceError> {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.into() } else { std::env::temp_dir() };
        loop {
            // A name is not used again in this process, whoever may still know it.
            let n = PRIVATE.fetch_add(1, Relaxed);
            let dir = base.join(format!("manyway-private-{}-{n}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {
                    let made = open(&dir, &Namespace::options().0);
                    if made.is_err() {
                        let _ = fs::remove_dir_all(&dir);
                    }
                    return made.map(|namespace| PrivateNamespace { namespace, owner: std::process::id() });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(NamespaceError::Directory { dir, source }),
            }
        }
    }

    /// The directory.
    pub fn dir(&self) -> &'static Path {
        &self.0.dir
    }
    /// The limits: SEMMSL, SEMMNS, SEMOPM, SEMMNI (`kernel.sem` in proc(5)).
    pub fn limits(&self) -> Limits {
        self.0.engine.limits()
    }
    /// Who shares the namespace, as it was when it was opened.
    pub fn share(&self) -> Share {
        self.0.engine.share()
    }
    /// Who gets a unit that is released while others wait for it.
    pub fn fairness(&self) -> Fairness {
        self.0.engine.fairness()
    }
    /// Limits and how much of them is in use (SEM_INFO of semctl(2)).
    pub fn info(&self) -> SemInfo {
        self.0.engine.info()
    }

    /// The set with the key `key`: options that end with `open`, `create` or `create_new` (semget(2)).
    pub fn set(&self, key: Key) -> SetOptions {
        SetOptions::new(*self, key)
    }
    /// Makes a set without a key (IPC_PRIVATE of semget(2)), mode 0600, with one semaphore for each of the values. Others find it by
    /// [`Set::id`].
    ///
    /// # Errors
    /// [`Error::BadSize`], [`Error::BadValue`], [`Error::NoSpace`], [`Error::NoMemory`].
    pub fn private_set(&self, values: &[u16]) -> Result<Set, Error> {
        SetOptions::private(*self, values)
    }
    /// The set with the id `id`, which [`Set::id`] gave or `manyway ls` shows.
    ///
    /// # Errors
    /// [`Error::Removed`] when there is none (any more).
    pub fn set_by_id(&self, id: i32) -> Result<Set, Error> {
        Set::find(*self, id)
    }
    /// Every set, with its status.
    pub fn sets(&self) -> Vec<SetStat> {
        let mut sets = Vec::new();
        self.with(|t| self.0.engine.for_each_set(t, &mut |stat, _creator| sets.push(stat)));
        sets
    }

    /// Gives back now what processes that have died held; returns how many processes there were. The next call that looks at a semaphore
    /// does so of itself; this also lets those run that sleep already, who would find out within 50 ms. For a supervisor, after
    /// wait(2).
    pub fn reap(&self) -> usize {
        self.with(|t| self.0.engine.reap(t, None))
    }
    /// How many operations have been carried out in the namespace, about: of operations that race on one semaphore some are not counted.
    pub fn operations(&self) -> u64 {
        self.with(|t| self.0.engine.operations(t))
    }
    /// Forgets what is cached of this process's user, groups and capabilities: call it after the process has changed any of them
    /// (setuid(2), setgroups(2), capset(2)).
    pub fn forget_credentials(&self) {
        self.0.engine.forget_credentials();
    }
    /// The same after the calling thread alone has changed them (capset(2), setfsgid(2), or system calls that go past the C library). From
    /// then on each check asks anew, which costs a system call or more.
    pub fn forget_credentials_of_thread(&self) {
        self.0.engine.forget_group_of_thread();
    }

    pub(super) fn engine(&self) -> &'static Engine {
        &self.0.engine
    }
    pub(super) fn shared(&self) -> &'static Shared {
        self.0
    }
    fn with<R>(&self, f: impl FnOnce(&crate::engine::Thread) -> R) -> R {
        thread::with(self.0, f)
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Namespace) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}
impl Eq for Namespace {}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Namespace").field(&self.0.dir).finish()
    }
}

/// A namespace that ends with this value: its sets and its directory are removed when it is dropped. The copies of it that a fork's
/// children have do nothing when dropped.
#[derive(Debug)]
pub struct PrivateNamespace {
    namespace: Namespace,
    /// The process that made it.
    owner: u32,
}

impl Deref for PrivateNamespace {
    type Target = Namespace;
    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl Drop for PrivateNamespace {
    fn drop(&mut self) {
        if std::process::id() != self.owner {
            return;
        }
        // The mapping stays; without its sets it costs little. Whoever still waits learns it.
        for stat in self.namespace.sets() {
            let _ = self.namespace.set_by_id(stat.id).and_then(Set::remove);
        }
        let _ = fs::remove_dir_all(self.namespace.dir());
    }
}
