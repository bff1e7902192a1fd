//! Directories that only trusted users can change.

use std::fmt;
use std::fs::{DirBuilder, Permissions, set_permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statfs, statvfs};
use rustix::process::geteuid;

/// Why a directory is not to be used.
#[derive(Debug)]
pub enum Unfit {
    /// It does not exist or cannot be made.
    Io(PathBuf, io::Error),
    /// Something else has its name.
    NotADirectory(PathBuf),
    /// It belongs to another user.
    Foreign(PathBuf, u32),
    /// Others may write it.
    Writable(PathBuf, u32),
    /// Its file system is on a disk.
    Disk(PathBuf),
    /// Its file system is mounted noexec.
    NoExec(PathBuf),
    /// The dynamic loader would take a part of the path for the whole.
    Separator(PathBuf),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Unfit::NotADirectory(path) => write!(f, "{} is not a directory", path.display()),
            Unfit::Foreign(path, uid) => write!(f, "{} belongs to user {uid}", path.display()),
            Unfit::Writable(path, mode) => write!(f, "{} can be written by others (mode {mode:o})", path.display()),
            Unfit::Disk(path) => write!(f, "{} is not on a memory file system", path.display()),
            Unfit::NoExec(path) => write!(f, "{} is mounted noexec", path.display()),
            Unfit::Separator(path) => write!(f, "{} has a space or a colon in it", path.display()),
        }
    }
}

/// Checks that the directory `path` is ours or root's and that nobody else can write it.
pub fn check(path: &Path) -> Result<(), Unfit> {
    let io = |e| Unfit::Io(path.into(), e);
    let meta = path.symlink_metadata().map_err(io)?;
    if !meta.is_dir() {
        return Err(Unfit::NotADirectory(path.into()));
    }
    if meta.uid() != 0 && meta.uid() != geteuid().as_raw() {
        return Err(Unfit::Foreign(path.into(), meta.uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(Unfit::Writable(path.into(), meta.mode() & 0o7777));
    }
    Ok(())
}

/// Checks that the directory `path` belongs to user `uid`, not only to one that is trusted.
pub fn check_owner(path: &Path, uid: u32) -> Result<(), Unfit> {
    let owner = path.symlink_metadata().map_err(|e| Unfit::Io(path.into(), e))?.uid();
    if owner == uid { Ok(()) } else { Err(Unfit::Foreign(path.into(), owner)) }
}

/// Makes the directory `path` with `mode` whatever the umask, unless it exists; either way checks it.
pub fn make(path: &Path, mode: u32) -> Result<(), Unfit> {
    match DirBuilder::new().mode(mode & 0o700).create(path) {
        Ok(()) => set_permissions(path, Permissions::from_mode(mode)).map_err(|e| Unfit::Io(path.into(), e))?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(Unfit::Io(path.into(), e)),
    }
    check(path)
}

/// Checks that `path` is on a memory file system.
pub fn check_memory(path: &Path) -> Result<(), Unfit> {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    match statfs(path) {
        Ok(fs) if matches!(fs.f_type as u32, TMPFS | RAMFS) => Ok(()),
        Ok(_) => Err(Unfit::Disk(path.into())),
        Err(e) => Err(Unfit::Io(path.into(), e.into())),
    }
}

/// Checks that a library in `path` can be mapped executable.
pub fn check_exec(path: &Path) -> Result<(), Unfit> {
    match statvfs(path) {
        Ok(fs) if fs.f_flag.contains(StatVfsMountFlags::NOEXEC) => Err(Unfit::NoExec(path.into())),
        Ok(_) => Ok(()),
        Err(e) => Err(Unfit::Io(path.into(), e.into())),
    }
}

/// Checks that `path` can stand in LD_PRELOAD, whose entries spaces and colons separate.
pub fn check_separators(path: &Path) -> Result<(), Unfit> {
    let bad = path.as_os_str().as_bytes().iter().any(|b| b.is_ascii_whitespace() || *b == b':');
    if bad { Err(Unfit::Separator(path.into())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_with_the_mode_asked_for_and_refused_when_others_write_it() {
        let base = crate::testdir::TestDir::new();
        let dir = base.path().join("d");
        make(&dir, 0o755).unwrap();
        assert_eq!(dir.metadata().unwrap().mode() & 0o777, 0o755);
        make(&dir, 0o700).unwrap();
        set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(check(&dir), Err(Unfit::Writable(_, 0o777))));
        std::os::unix::fs::symlink(&dir, base.path().join("link")).unwrap();
        assert!(matches!(make(&base.path().join("link"), 0o700), Err(Unfit::NotADirectory(_))));
    }

    #[test]
    fn kinds_of_file_systems() {
        assert!(check_memory(Path::new("/dev/shm")).is_ok());
        assert!(matches!(check_memory(Path::new("/proc")), Err(Unfit::Disk(_))));
        assert!(check_separators(Path::new("/run/manyway/lib")).is_ok());
        assert!(check_separators(Path::new("/run/my way")).is_err());
        assert!(check_separators(Path::new("/run/a:b")).is_err());
    }
}
