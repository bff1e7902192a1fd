//! The preloaded library: embedded in the command, put where every program can load it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::process::geteuid;

use crate::dirs::{self, Unfit};
use crate::exit::{Failure, Result};

/// What the loader preloads.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// The library itself.
pub const CONTENT: &[u8] = include_bytes!(env!("MANYWAY_LIBRARY"));
const PREFIX: &str = "libmanyway-";
const NAME: &str = concat!("libmanyway-", env!("MANYWAY_BUILD_ID"), ".so");

/// Makes sure that the library is in the file system; returns its path.
///
/// A program may give up its privileges and then start others, so the places that every user can read come first.
pub fn install() -> Result<PathBuf> {
    let mut reasons = String::new();
    for place in places() {
        match put(&place) {
            Ok(path) => return Ok(path),
            Err(unfit) => reasons.push_str(&format!("\n  {unfit}")),
        }
    }
    Err(Failure::new(format!("no directory fit for the preloaded library:{reasons}"))
        .advise("Make /run/manyway/lib (as root), or set XDG_CACHE_HOME to a directory of yours on a file system mounted exec."))
}

/// Directories to make, outermost first; the library goes into the last.
type Place = Vec<(PathBuf, u32)>;

fn places() -> Vec<Place> {
    let uid = geteuid().as_raw();
    let public = |path: String| (PathBuf::from(path), 0o755);
    let mut places = vec![
        vec![public("/run/manyway".into()), public("/run/manyway/lib".into())],
        vec![public(format!("/dev/shm/manyway-{uid}")), public(format!("/dev/shm/manyway-{uid}/lib"))],
        vec![public(format!("/tmp/manyway-{uid}")), public(format!("/tmp/manyway-{uid}/lib"))],
    ];
    for variable in ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME"] {
        if let Some(base) = env::var_os(variable).map(PathBuf::from).filter(|base| base.is_absolute()) {
            let own = base.join("manyway");
            let lib = own.join("lib");
            places.push(vec![(own, 0o700), (lib, 0o755)]);
        }
    }
    places
}

fn put(place: &Place) -> std::result::Result<PathBuf, Unfit> {
    let Some((dir, _)) = place.last() else { unreachable!("a place has a directory") };
    dirs::check_separators(dir)?;
    for (dir, mode) in place {
        dirs::make(dir, *mode)?;
    }
    dirs::check_exec(dir)?;
    let path = dir.join(NAME);
    if !is_there(&path) {
        write(dir, &path).map_err(|e| Unfit::Io(path.clone(), e))?;
    }
    Ok(path)
}

/// Whether `path` is this very library, in a file that only we or root can change.
fn is_there(path: &Path) -> bool {
    let Ok(mut file) = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) else {
        return false;
    };
    let Ok(meta) = file.metadata() else { return false };
    let trusted = meta.is_file() && (meta.uid() == 0 || meta.uid() == geteuid().as_raw()) && meta.mode() & 0o022 == 0;
    let readable = meta.mode() & 0o444 == 0o444;
    let whole = meta.mtime_nsec() == i64::from(mark()) || has_content(&mut file);
    trusted && readable && meta.len() == CONTENT.len() as u64 && whole
}

/// The nanoseconds of the time of a library that has been written to the end and not been touched since: reading all of it at each start would
/// take a tenth of a millisecond. Where a file system keeps no nanoseconds it is read.
fn mark() -> u32 {
    let id = env!("MANYWAY_BUILD_ID").bytes().fold(0_u64, |id, byte| id.wrapping_mul(31).wrapping_add(byte.into()));
    // Not 0: that is a file system without them.
    (id % 999_999_999 + 1) as u32
}

fn has_content(file: &mut File) -> bool {
    let mut buffer = [0; 16 << 10];
    CONTENT.chunks(buffer.len()).all(|expected| {
        let part = &mut buffer[..expected.len()];
        file.read_exact(part).is_ok() && part == expected
    })
}

/// Writes the library under another name and renames it, so that nobody ever loads a part of it.
fn write(dir: &Path, path: &Path) -> io::Result<()> {
    let draft = dir.join(format!(".{NAME}.{}", std::process::id()));
    let result = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(CONTENT)?;
        file.set_permissions(Permissions::from_mode(0o755))?;
        // The mark says that all is on the disk.
        file.sync_all()?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(now.as_secs(), mark()))?;
        fs::rename(&draft, path)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&draft);
    }
    result
}

/// Whether a file of this name is a Manyway library, of whatever build.
pub fn is_one(file: &[u8]) -> bool {
    file.rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(PREFIX.as_bytes()))
}

/// The value of LD_PRELOAD with the library first and what `others` had after it; a Manyway library of an outer `run` is replaced.
pub fn preload_list(library: &Path, others: Option<&OsStr>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    for entry in others.unwrap_or_default().as_bytes().split(|b| matches!(b, b' ' | b':')) {
        if !entry.is_empty() && !is_one(entry) {
            list.push(":");
            list.push(OsStr::from_bytes(entry));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn written_once_and_mended() {
        let top = TestDir::exec();
        let place: Place = vec![(top.path().join("lib"), 0o755)];
        let path = put(&place).unwrap();
        assert_eq!(fs::read(&path).unwrap(), CONTENT);
        let meta = path.metadata().unwrap();
        assert_eq!(meta.mode() & 0o777, 0o755);
        assert_eq!(put(&place).unwrap().metadata().unwrap().ino(), meta.ino(), "written again");

        // A file that was copied has its own time, and is as good.
        let copy = fs::read(&path).unwrap();
        fs::write(&path, copy).unwrap();
        assert_ne!(path.metadata().unwrap().mtime_nsec(), i64::from(mark()));
        assert_eq!(put(&place).unwrap().metadata().unwrap().ino(), meta.ino(), "written again");

        fs::write(&path, vec![0; CONTENT.len()]).unwrap();
        put(&place).unwrap();
        assert_eq!(fs::read(&path).unwrap(), CONTENT);
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        put(&place).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o755);
        let names: Vec<_> = fs::read_dir(top.path().join("lib")).unwrap().collect();
        assert_eq!(names.len(), 1, "drafts left: {names:?}");
    }

    #[test]
    fn a_link_in_its_place_is_replaced() {
        let top = TestDir::exec();
        let place: Place = vec![(top.path().join("lib"), 0o755)];
        let path = put(&place).unwrap();
        let elsewhere = top.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        put(&place).unwrap();
        assert!(path.symlink_metadata().unwrap().is_file());
    }

    #[test]
    fn preload_lists() {
        let lib = Path::new("/run/manyway/lib/libmanyway-2.so");
        assert_eq!(preload_list(lib, None), "/run/manyway/lib/libmanyway-2.so");
        assert_eq!(
            preload_list(lib, Some(OsStr::new("/x/libmanyway-1.so:libfakeroot.so /y/libz.so:"))),
            "/run/manyway/lib/libmanyway-2.so:libfakeroot.so:/y/libz.so"
        );
    }
}
