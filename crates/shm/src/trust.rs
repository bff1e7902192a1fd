//! Whose a namespace is and who shares it. Owner, group and mode of its directory and of its arena tell, as they are when both are open:
//! a name may mean something else a moment later, a descriptor may not.

use manyway_sync::Errno;
use manyway_sync::atomic::Ordering::Relaxed;
use manyway_sync::idmap::{self, Kind};
use manyway_sync::sys::{self, Fd, Stat, flags};

use crate::arena::{OpenError, OpenOptions};
use crate::layout::Header;

/// Who may use a namespace besides its owner (and root). Whoever may can write all of the arena: the modes of the sets in it are kept
/// between programs that keep them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Nobody: directory 0700, arena 0600.
    Nobody,
    /// The members of a group: 0750, 0660.
    Group(u32),
    /// Everybody: 0755, 0666.
    All,
}

impl Share {
    /// The directory's mode. Only its owner ever changes what is in it.
    pub const fn directory_mode(self) -> u32 {
        match self {
            Share::Nobody => 0o700,
            Share::Group(_) => 0o750,
            Share::All => 0o755,
        }
    }
    /// The mode of the files in it.
    pub const fn file_mode(self) -> u32 {
        match self {
            Share::Nobody => 0o600,
            Share::Group(_) => 0o660,
            Share::All => 0o666,
        }
    }
    /// The files' group: `group` unless it is a certain one.
    pub(crate) const fn group(self, group: u32) -> u32 {
        match self {
            Share::Group(gid) => gid,
            _ => group,
        }
    }

    /// As the header has it.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Share::Nobody => 0,
            Share::Group(_) => 1,
            Share::All => 2,
        }
    }

    /// What the modes say; None: something that no `Share` makes.
    fn of(dir: &Stat, arena: &Stat) -> Option<Share> {
        let has = |st: &Stat, bits| st.mode & bits == bits;
        match arena.mode & 0o066 {
            bits if bits & 0o022 == 0 => Some(Share::Nobody),
            0o060 if has(dir, 0o050) && dir.gid == arena.gid => Some(Share::Group(arena.gid)),
            0o066 if has(dir, 0o055) => Some(Share::All),
            _ => None,
        }
    }
}

const TYPE: u32 = 0o170000;
const REGULAR: u32 = 0o100000;
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o022;

/// The owner that the kernel shows for whoever has no number in this user namespace.
const OVERFLOW: u32 = 65534;

fn check_owner(what: &'static str, st: &Stat, how: &OpenOptions) -> Result<(), OpenError> {
    let known = st.uid != OVERFLOW || idmap::to_parent(Kind::User, OVERFLOW).is_some();
    if known && (st.uid == sys::geteuid() || st.uid == 0 || Some(st.uid) == how.owner) {
        return Ok(());
    }
    Err(OpenError::Foreign { what, owner: st.uid })
}

/// Checks that only a trusted user can change what is in the directory, or put another in its place.
pub(crate) fn check_directory(dir: &Fd, how: &OpenOptions) -> Result<Stat, OpenError> {
    let st = sys::fstat(dir).map_err(|e| OpenError::Os("cannot stat the directory", e))?;
    check_owner("directory", &st, how)?;
    if st.mode & OTHERS_WRITE != 0 {
        return Err(OpenError::Untrusted("the directory can be written by others: chmod go-w it"));
    }
    // Where this cannot be looked at, nobody but root can have put the directory there.
    if let Ok(above) = sys::openat(dir.raw(), c"..", flags::O_PATH | flags::O_DIRECTORY, 0).and_then(|fd| sys::fstat(&fd))
        && above.mode & 0o002 != 0
        && above.mode & STICKY == 0
    {
        return Err(OpenError::Untrusted("anybody can rename the directory, since the one above it is writable by all: chmod +t that one"));
    }
    Ok(st)
}

/// Checks the file that was found in the directory under the arena's name; who shares it.
pub(crate) fn check_arena(st: &Stat, dir: &Stat, how: &OpenOptions) -> Result<Share, OpenError> {
    if st.mode & TYPE != REGULAR {
        return Err(OpenError::NotAnArena("it is not a regular file"));
    }
    if st.links == 0 {
        return Err(OpenError::Os("the arena has just been removed", Errno::ENOENT));
    }
    check_owner("arena", st, how)?;
    if st.uid != dir.uid {
        return Err(OpenError::Untrusted("the arena and its directory belong to different users"));
    }
    if st.links > 1 {
        return Err(OpenError::Untrusted("the arena has another name somewhere (a hard link), which may lead others to it"));
    }
    Share::of(dir, st).ok_or(OPEN_TO_OTHERS)
}

/// Modes that nobody meant.
const OPEN_TO_OTHERS: OpenError =
    OpenError::Untrusted("the arena can be written by others, who are not those that it is shared with: chmod go-w it");

/// Checks that the modes let nobody in who was not meant to share it.
pub(crate) fn check_meant(share: Share, header: &Header) -> Result<(), OpenError> {
    if share.code() <= header.share.load(Relaxed) { Ok(()) } else { Err(OPEN_TO_OTHERS) }
}

/// Lets those into the directory who share the namespace, and shuts the others out who shared it before. Bits that neither made are left.
pub(crate) fn share_directory(dir: &Fd, st: &Stat, share: Share) -> Result<(), OpenError> {
    let given = |e| OpenError::Os("cannot share the directory", e);
    let group = share.group(st.gid);
    let others = if share == Share::Nobody || group != st.gid { 0o055 } else { 0 };
    let mode = st.mode & 0o7777 & !others | share.directory_mode();
    if group != st.gid {
        sys::fchown(dir, u32::MAX, group).map_err(given)?;
    }
    sys::fchmod(dir, mode).map_err(given)
}
