//! A directory in memory for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Removed when dropped.
pub struct TestDir(PathBuf);

impl TestDir {
    /// A new, empty directory.
    pub fn new() -> TestDir {
        static COUNT: Mutex<u32> = Mutex::new(0);
        let mut count = COUNT.lock().unwrap();
        *count += 1;
        let path = PathBuf::from(format!("/dev/shm/manyway-unit-{}-{}", std::process::id(), *count));
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
