//! A directory for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Removed when dropped.
pub struct TestDir(PathBuf);

impl TestDir {
    /// A new, empty directory in memory.
    pub fn new() -> TestDir {
        TestDir::within("/dev/shm".as_ref())
    }

    /// A new, empty directory whose files can be executed: containers mount /dev/shm noexec.
    pub fn exec() -> TestDir {
        TestDir::within(&std::env::temp_dir())
    }

    fn within(top: &Path) -> TestDir {
        static COUNT: Mutex<u32> = Mutex::new(0);
        let mut count = COUNT.lock().unwrap();
        *count += 1;
        let path = top.join(format!("manyway-unit-{}-{}", std::process::id(), *count));
        fs::create_dir(&path).unwrap();
        TestDir(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
