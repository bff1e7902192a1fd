//! What the dynamic loader would load for a program: it is asked itself, by its `--list`, with the library before all others. It maps the
//! files and runs nothing of them.

use std::env;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::library::{self, PRELOAD_VARIABLE};

/// What a loader said.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The library comes before every other.
    pub ours_first: bool,
    /// Files that are loaded, in order, without the library.
    pub files: Vec<PathBuf>,
    /// Names for which there is no file.
    pub missing: Vec<String>,
    /// What it complained of.
    pub complaints: Vec<String>,
}

/// Which C library's loader this is, as far as its name tells.
pub fn family(interpreter: &Path) -> Option<&'static str> {
    let name = interpreter.file_name()?.to_str()?;
    [("ld-linux", "glibc"), ("ld-musl-", "musl")].iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, family)| *family)
}

/// Asks the loader `interpreter` about `program`; why it was not asked, or cannot answer.
pub fn list(interpreter: &Path, program: &Path) -> Result<Loaded, String> {
    let shown = interpreter.display();
    if family(interpreter).is_none() {
        return Err(format!("its loader {shown} is neither glibc's nor musl's"));
    }
    // Who names a loader of his own would have it run by whoever asks.
    let meta = interpreter.canonicalize().and_then(|path| path.metadata()).map_err(|e| format!("its loader {shown}: {e}"))?;
    if meta.uid() != 0 || meta.mode() & 0o022 != 0 {
        return Err(format!("its loader {shown} is not the system's, and is not run to be asked"));
    }
    // In no file system: nothing is changed by being asked.
    let copy = memfd_create(c"libmanyway", MemfdFlags::empty()).map_err(|e| format!("no memory file for the library: {e}"))?;
    let ours = PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd()));
    let mut copy = std::fs::File::from(copy);
    copy.write_all(library::CONTENT).map_err(|e| format!("no memory file for the library: {e}"))?;
    let mut command = Command::new(interpreter);
    command.arg("--list").arg(program).env(PRELOAD_VARIABLE, library::preload_list(&ours, env::var_os(PRELOAD_VARIABLE).as_deref()));
    command.env_remove("LD_DEBUG").env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(|e| format!("its loader {shown} cannot be run: {e}"))?;
    Ok(understand(&String::from_utf8_lossy(&output.stdout), &String::from_utf8_lossy(&output.stderr), &ours))
}

/// Lines like `libm.so.6 => /lib/libm.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`, `libx.so => not found`.
fn understand(said: &str, complained: &str, ours: &Path) -> Loaded {
    let mut loaded = Loaded::default();
    let mut first = true;
    for line in said.lines().map(str::trim) {
        let without_address = line.rsplit_once(" (0x").map_or(line, |(start, _)| start);
        let (name, file) = without_address.split_once(" => ").unwrap_or((without_address, without_address));
        if file == "not found" {
            loaded.missing.push(name.into());
        } else if file.starts_with('/') {
            // A doctor that is itself on Manyway hands on the library that it has, too.
            let is_ours = Path::new(file) == ours || library::is_one(file.as_bytes());
            match is_ours {
                true => loaded.ours_first |= first,
                false => loaded.files.push(file.into()),
            }
            // musl's loader, which is its C library, too, is listed first and searched last.
            first &= family(Path::new(file)).is_some();
        }
    }
    // glibc: a program that was built with a later one; musl: libraries that are not there.
    loaded.complaints = complained.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    loaded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loaders_say() {
        let ours = Path::new("/proc/self/fd/9");
        let said = "\tlinux-vdso.so.1 (0x7f1)\n\t/proc/self/fd/9 (0x7f2)\n\tlibm.so.6 => /lib/libm.so.6 (0x7f3)\n\tlibx.so => not found\n";
        let loaded = understand(said, "\n", ours);
        assert!(loaded.ours_first, "{loaded:?}");
        assert_eq!((loaded.files, loaded.missing), (vec![PathBuf::from("/lib/libm.so.6")], vec!["libx.so".to_owned()]));
        assert!(loaded.complaints.is_empty());

        let loaded = understand("\t/x/libother.so (0x1)\n\t/proc/self/fd/9 (0x2)\n", "error while loading\n", ours);
        assert!(!loaded.ours_first, "another one is before it");
        assert_eq!(loaded.complaints, ["error while loading"]);
        let musl =
            "\t/lib/ld-musl-x86_64.so.1 (0x1)\n\t/proc/self/fd/9 => /proc/self/fd/9 (0x2)\n\tlibc.so => /lib/ld-musl-x86_64.so.1 (0x1)\n";
        assert!(understand(musl, "", ours).ours_first);
        assert!(!understand("\tlibc.so => /lib/ld-musl-x86_64.so.1 (0x1)\n", "", ours).ours_first, "it is not there");
    }

    #[test]
    fn a_loader_of_ones_own_is_not_run() {
        let own = Path::new("/tmp/ld-linux-mine.so");
        assert!(list(own, Path::new("/bin/sh")).is_err());
        assert_eq!(family(Path::new("/lib/ld-musl-x86_64.so.1")), Some("musl"));
        assert_eq!(family(Path::new("/system/bin/linker64")), None);
    }
}
