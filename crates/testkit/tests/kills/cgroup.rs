//! A memory cgroup, of either version, whichever is mounted.

use std::fs;
use std::path::{Path, PathBuf};

/// A new one. Dropped, it is removed.
pub struct Cgroup {
    dir: PathBuf,
    /// The file that counts kills.
    events: &'static str,
}

impl Cgroup {
    /// One whose processes may have so many bytes together.
    pub fn new(limit: u64) -> Result<Cgroup, String> {
        let mounts = fs::read_to_string("/proc/mounts").map_err(|e| e.to_string())?;
        let found = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let (_, dir, kind, options) = (fields.next()?, Path::new(fields.next()?), fields.next()?, fields.next()?);
            match kind {
                "cgroup" if options.split(',').any(|o| o == "memory") => Some((dir, "memory.limit_in_bytes", "memory.oom_control")),
                "cgroup2" if offers_memory(dir) => Some((dir, "memory.max", "memory.events")),
                _ => None,
            }
        });
        let Some((root, limit_file, events)) = found else {
            return Err("no cgroup file system with the memory controller is mounted".into());
        };
        let dir = root.join(format!("manyway-kills-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let group = Cgroup { dir, events };
        group.write(limit_file, &limit.to_string())?;
        // Without it a machine with swap space never comes to the end.
        for (file, value) in [("memory.swappiness", "0"), ("memory.swap.max", "0")] {
            if group.dir.join(file).exists() {
                let _ = group.write(file, value);
            }
        }
        group.kills()?;
        Ok(group)
    }
    /// Puts a process in it.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        self.write("cgroup.procs", &pid.to_string())
    }
    /// How often the kernel has killed in it.
    pub fn kills(&self) -> Result<u64, String> {
        let path = self.dir.join(self.events);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|n| n.trim().parse().ok()).ok_or_else(|| format!("{} does not count kills", path.display()))
    }
    fn write(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.dir.join(file);
        fs::write(&path, value).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// True when groups below the root have the controller.
fn offers_memory(root: &Path) -> bool {
    let has = |file: &str| fs::read_to_string(root.join(file)).is_ok_and(|t| t.split_whitespace().any(|c| c == "memory"));
    has("cgroup.subtree_control") || (has("cgroup.controllers") && fs::write(root.join("cgroup.subtree_control"), "+memory").is_ok())
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Who died in it may need a moment to leave.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            crate::live::nap(10_000);
        }
    }
}
