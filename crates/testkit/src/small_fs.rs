//! Small file systems in memory, and full ones.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file system of some MiB of its own, unmounted when dropped. Only root can have one.
pub struct SmallFs(TempDir);

impl SmallFs {
    /// Mounts one of so many MiB.
    pub fn new(mib: u32) -> SmallFs {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = format!("size={mib}m,mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).status();
        assert!(mounted.is_ok_and(|s| s.success()), "root may mount");
        SmallFs(dir)
    }

    /// Its root.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallFs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// A file that has all the room of its file system, until it is dropped.
pub struct Filler(PathBuf);

impl Filler {
    /// Takes all room of the file system on which the directory `dir` lies.
    pub fn new(dir: &Path) -> Filler {
        let filler = Filler(dir.join("filler"));
        let mut file = File::create(&filler.0).expect("a name costs no room");
        let block = vec![1u8; 64 << 10];
        let mut len = block.len();
        while len >= 512 {
            match file.write(&block[..len]) {
                Ok(n) if n > 0 => {}
                _ => len /= 2,
            }
        }
        filler
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
