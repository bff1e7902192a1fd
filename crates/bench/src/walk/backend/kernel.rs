//! The kernel's own dentry cache: fstatat(2) relative to a directory of a file system in memory, and of one on a disk.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::{Names, Unable};
use crate::Error;
use crate::walk::tree::Tree;

/// f_type of statfs(2).
const TMPFS_MAGIC: i64 = 0x0102_1994;
const EXT4_MAGIC: i64 = 0xef53;

/// Space and inodes of an image: files are made sparse, and the largest tree has a hundred thousand names.
const IMAGE_BYTES: u64 = 256 << 20;
const IMAGE_INODES: u32 = 150_000;

/// A directory that is walked from.
#[derive(Debug)]
struct Root(OwnedFd);

impl Root {
    fn open(dir: &Path) -> Result<Root, Error> {
        let opened = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        opened.map(Root).map_err(|errno| Error::io(format!("cannot open {}", dir.display()))(errno.into()))
    }

    #[inline]
    fn walk(&self, path: &CStr) -> Option<u64> {
        rustix::fs::statat(&self.0, path, AtFlags::empty()).ok().map(|stat| stat.st_ino)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Result<(), Error> {
        rustix::fs::renameat(&self.0, from, &self.0, to).map_err(|errno| Error::io("renameat")(errno.into()))
    }
}

fn make(dir: &Path, tree: &Tree) -> Result<(), Error> {
    let failed = |path: &Path| Error::io(format!("cannot make {}", path.display()));
    for path in tree.dirs.iter().map(|path| dir.join(path)) {
        fs::create_dir(&path).map_err(failed(&path))?;
    }
    for path in tree.files.iter().map(|path| dir.join(path)) {
        File::create(&path).map_err(failed(&path))?;
    }
    Ok(())
}

/// The type of the file system that a directory lies on.
fn magic(dir: &Path) -> Result<i64, Error> {
    let asked = rustix::fs::statfs(dir).map_err(|errno| Error::io(format!("statfs({})", dir.display()))(errno.into()))?;
    Ok(asked.f_type as i64)
}

/// On a tmpfs, whose dentries are its only store.
#[derive(Debug)]
pub struct Tmpfs(Root);

impl Names for Tmpfs {
    fn build(dir: &Path, tree: &Tree) -> Result<Self, Unable> {
        if magic(dir)? != TMPFS_MAGIC {
            return Err(Unable::LeftOut(format!("{} is on no tmpfs", dir.display())));
        }
        make(dir, tree)?;
        Ok(Tmpfs(Root::open(dir)?))
    }

    #[inline]
    fn walk(&self, path: &CStr) -> Option<u64> {
        self.0.walk(path)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Result<(), Error> {
        self.0.rename(from, to)
    }

    fn forget(&mut self) -> Result<(), Unable> {
        Err(Unable::LeftOut("a tmpfs keeps its names in the dentries and nowhere else: they cannot be cold".to_owned()))
    }

    fn store_calls(&self) -> Option<u64> {
        None
    }
}

/// On an ext4: an image of its own, mounted where only this process sees it; where that is not possible, a directory of an ext4 that is there.
#[derive(Debug)]
pub struct Ext4 {
    /// None only while it is not mounted.
    root: Option<Root>,
    mounted: Result<Mounted, String>,
    /// The directory that was made on somebody else's file system, removed at the end.
    _guest: Option<tempfile::TempDir>,
}

/// An image and its place.
#[derive(Debug)]
struct Mounted {
    image: PathBuf,
    at: PathBuf,
}

impl Names for Ext4 {
    fn build(dir: &Path, tree: &Tree) -> Result<Self, Unable> {
        let (mounted, guest) = match Mounted::new(dir) {
            Ok(mounted) => (Ok(mounted), None),
            Err(reason) => (Err(reason.clone()), Some(Ext4::guest(&reason)?)),
        };
        let place = mounted.as_ref().map_or_else(|_| guest.as_ref().map_or(dir, |g| g.path()), |m| m.at.as_path());
        make(place, tree)?;
        Ok(Ext4 { root: Some(Root::open(place)?), mounted, _guest: guest })
    }

    #[inline]
    fn walk(&self, path: &CStr) -> Option<u64> {
        self.root.as_ref()?.walk(path)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Result<(), Error> {
        self.root.as_ref().map_or(Ok(()), |root| root.rename(from, to))
    }

    /// A file system that is mounted anew has no dentry. What lies on its disk is read again, from the memory of the image's file.
    fn forget(&mut self) -> Result<(), Unable> {
        let mounted = self.mounted.as_ref().map_err(|reason| Unable::LeftOut(reason.clone()))?;
        self.root = None;
        mounted.unmount()?;
        mounted.mount().map_err(Unable::LeftOut)?;
        self.root = Some(Root::open(&mounted.at)?);
        Ok(())
    }

    fn store_calls(&self) -> Option<u64> {
        None
    }
}

impl Ext4 {
    fn guest(reason: &str) -> Result<tempfile::TempDir, Unable> {
        let parent = std::env::temp_dir();
        if magic(&parent)? != EXT4_MAGIC {
            return Err(Unable::LeftOut(format!("{reason}; and {} is on no ext4", parent.display())));
        }
        let made = tempfile::Builder::new().prefix("manyway-bench-").tempdir_in(&parent);
        Ok(made.map_err(Error::io(format!("cannot make a directory in {}", parent.display())))?)
    }
}

impl Mounted {
    /// Why not, as text.
    fn new(dir: &Path) -> Result<Mounted, String> {
        let (image, at) = (dir.join("image"), dir.join("ext4"));
        let file = File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES));
        file.and_then(|()| fs::create_dir(&at)).map_err(|error| format!("cannot make {}: {error}", image.display()))?;
        let mut mkfs = Command::new("mkfs.ext4");
        run(mkfs.args(["-q", "-F", "-N", &IMAGE_INODES.to_string()]).arg(&image))?;
        let mounted = Mounted { image, at };
        mounted.mount().inspect_err(|_| {
            // The caller falls back to another place; what is left lies in a directory that goes as a whole.
            let _ = fs::remove_file(&mounted.image);
        })?;
        Ok(mounted)
    }

    /// The loop device goes with its mount, and the mount with the namespace of this process.
    fn mount(&self) -> Result<(), String> {
        run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&self.image).arg(&self.at))
    }

    fn unmount(&self) -> Result<(), Error> {
        nix::mount::umount2(&self.at, MntFlags::empty()).map_err(|errno| Error::io("umount2")(errno.into()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nobody is left to be told; it goes with the process at the latest.
        let _ = nix::mount::umount2(&self.at, MntFlags::MNT_DETACH);
    }
}

/// From now on this process's mounts are its own. To be called while it has one thread. A failure shows at the first mount.
pub fn own_mounts() {
    let own = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS);
    let _ = own.and_then(|()| nix::mount::mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>));
}

/// Runs a program; what it said when it failed.
fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
