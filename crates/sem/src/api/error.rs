//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use manyway_sync::Errno;

use crate::engine::OpenError;

/// Why an operation on a set or a semaphore failed. [`Error::errno`] is the number that System V gives for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A try could not proceed at once.
    #[error("the operation cannot proceed at once; wait for it with the form that waits, or try again later")]
    WouldBlock,
    /// The time given passed before the operation could proceed.
    #[error("the operation could not proceed within the time given; wait longer, or look at holders() for who keeps it from proceeding")]
    TimedOut,
    /// A signal handler ran during the wait; only handles made by `interruptible()` report it.
    #[error("a signal handler ran during the wait; call again to wait on")]
    Interrupted,
    /// The set was removed, before the call or while it waited.
    #[error("semaphore set {id} has been removed; open or create it again by its key")]
    Removed {
        /// The set's id.
        id: i32,
    },
    /// The set's mode does not allow it.
    #[error("the mode of semaphore set {id} does not let this user do that; ask its owner for a wider mode (Set::set_permissions)")]
    Denied {
        /// The set's id.
        id: i32,
    },
    /// Only the owner, the creator and root may do it.
    #[error("only the owner or the creator of semaphore set {id}, or root, may remove it or change its permissions")]
    NotOwner {
        /// The set's id.
        id: i32,
    },
    /// The value would pass 32767, or what this process gives back at its end would pass ±32767.
    #[error("the semaphore's value, or what this process is to give back at its end, would pass 32767; take before you add more")]
    Overflow,
    /// An amount to take or add that no semaphore can have.
    #[error("an amount must be 1 to 32767, not {0}; waiting for zero is an operation of its own")]
    BadAmount(u16),
    /// A value that no semaphore can have.
    #[error("a semaphore's value must be 0 to 32767, not {0}")]
    BadValue(u16),
    /// The set has fewer semaphores.
    #[error("there is no semaphore {num} in this set, which has {len}, numbered from 0")]
    NoSuchSemaphore {
        /// The semaphore asked for.
        num: u32,
        /// How many the set has.
        len: u32,
    },
    /// A call with no operation.
    #[error("a call must have at least one operation")]
    NoOperations,
    /// More operations than one call may have.
    #[error("{got} operations in one call; this namespace allows {limit} (SEMOPM): split the call, or use a namespace with larger limits")]
    TooManyOperations {
        /// How many the call had.
        got: u32,
        /// The namespace's limit.
        limit: u32,
    },
    /// As many values as semaphores are needed.
    #[error("{got} values for a set of {len} semaphores; give one for each")]
    WrongLength {
        /// How many values there were.
        got: u32,
        /// How many semaphores the set has.
        len: u32,
    },
    /// No set has the key.
    #[error("no semaphore set has the key {key:#x}; create() makes it")]
    NotFound {
        /// The key.
        key: i32,
    },
    /// A set has the key already.
    #[error("a semaphore set with the key {key:#x} exists already; open() or create() it, or remove it first")]
    Exists {
        /// The key.
        key: i32,
    },
    /// The set with the key has fewer semaphores than asked for.
    #[error("the semaphore set with the key {key:#x} has fewer than {wanted} semaphores; use another key, or remove it first")]
    TooSmall {
        /// The key.
        key: i32,
        /// How many were asked for.
        wanted: u32,
    },
    /// The set with the key does not let this user in.
    #[error("the mode of the semaphore set with the key {key:#x} does not let this user open it; use another key, or ask its owner")]
    KeyDenied {
        /// The key.
        key: i32,
    },
    /// A set of no semaphores, or of more than one set may have.
    #[error("a set must have 1 to {limit} semaphores (SEMMSL of this namespace), not {wanted}")]
    BadSize {
        /// How many were asked for.
        wanted: u32,
        /// The namespace's limit.
        limit: u32,
    },
    /// The namespace is full.
    #[error(
        "no room for another semaphore set: the namespace's limits are reached (SEMMNI sets, SEMMNS semaphores), or its file system is full; \
         remove sets that nobody uses (`manyway rm --stale`), or use a namespace with larger limits"
    )]
    NoSpace,
    /// The namespace's file system, or a memory limit, has no room left.
    #[error("no memory left for the namespace; free space on its file system, or raise the memory limit")]
    NoMemory,
    /// Called from a signal handler that interrupted a call on the same namespace.
    #[error("called from a signal handler in the middle of another call on this namespace; leave semaphores to the program's normal flow")]
    InHandler,
    /// Another system error.
    #[error("{0}; the namespace may be damaged: end the programs that use it and remove its directory")]
    Other(Errno),
}

impl Error {
    /// The error number that semget(2), semop(2) or semctl(2) has for it.
    pub const fn errno(&self) -> Errno {
        match self {
            Error::WouldBlock | Error::TimedOut => Errno::EAGAIN,
            Error::Interrupted => Errno::EINTR,
            Error::Removed { .. } => Errno::EIDRM,
            Error::Denied { .. } | Error::KeyDenied { .. } => Errno::EACCES,
            Error::NotOwner { .. } => Errno::EPERM,
            Error::Overflow | Error::BadAmount(_) | Error::BadValue(_) => Errno::ERANGE,
            Error::NoSuchSemaphore { .. } => Errno::EFBIG,
            Error::NoOperations | Error::WrongLength { .. } | Error::TooSmall { .. } | Error::BadSize { .. } => Errno::EINVAL,
            Error::TooManyOperations { .. } => Errno::E2BIG,
            Error::NotFound { .. } => Errno::ENOENT,
            Error::Exists { .. } => Errno::EEXIST,
            Error::NoSpace => Errno::ENOSPC,
            Error::NoMemory => Errno::ENOMEM,
            Error::InHandler => Errno::EDEADLK,
            Error::Other(e) => *e,
        }
    }

    /// What the engine's `errno` means for a call on the set `id`.
    pub(super) fn of_set(id: i32, errno: Errno) -> Error {
        match errno {
            Errno::EAGAIN => Error::WouldBlock,
            Errno::EINTR => Error::Interrupted,
            // The arguments have been checked: what is invalid is the id.
            Errno::EIDRM | Errno::EINVAL => Error::Removed { id },
            Errno::EACCES => Error::Denied { id },
            Errno::EPERM => Error::NotOwner { id },
            Errno::ERANGE => Error::Overflow,
            Errno::ENOSPC => Error::NoSpace,
            Errno::ENOMEM => Error::NoMemory,
            Errno::EDEADLK => Error::InHandler,
            e => Error::Other(e),
        }
    }
}

impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        let kind = match e {
            Error::TimedOut => io::ErrorKind::TimedOut,
            Error::Removed { .. } => io::ErrorKind::NotFound,
            other => io::Error::from_raw_os_error(other.errno().0).kind(),
        };
        io::Error::new(kind, e)
    }
}

/// Why a namespace could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The directory does not hold a usable namespace.
    #[error("cannot open the namespace in {}: {source}; {}", dir.display(), advice(source))]
    Open {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with it.
        source: OpenError,
    },
    /// The name of the directory cannot be used, or no directory could be made.
    #[error("cannot use the directory {}: {source}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `MANYWAY_DIR` is not set.
    #[error(
        "MANYWAY_DIR is not set, or not for this program (set-user-id); start the program with `manyway run`, or set the variable to the namespace's directory"
    )]
    NotInEnvironment,
}

fn advice(e: &OpenError) -> &'static str {
    match e {
        OpenError::Os(_, Errno::ENOENT) => "create it with Namespace::open, or check the path: only the last directory of it is made",
        OpenError::Os(_, Errno::EACCES | Errno::EPERM) => "a namespace is its owner's alone: become that user, or use another directory",
        OpenError::Os(_, Errno::ENOSPC | Errno::ENOMEM) => "free space on that file system, or use a directory on another",
        OpenError::Os(..) => "use a directory on a file system that can map shared memory, such as /dev/shm",
        OpenError::Foreign { .. } => {
            "if its owner shares it with you, name the owner with NamespaceOptions::owner; else use another directory"
        }
        OpenError::OtherUserNamespace => "use another directory in this container",
        OpenError::Untrusted(_) => "the directory must have mode 0700 and the arena 0600, both owned by you",
        OpenError::NotAnArena(_) => "remove it if no program uses it, or use another directory",
        OpenError::OtherLayout(_) => "end the programs that use it and remove the directory, or use another directory",
        OpenError::OtherPidNamespace => "use another directory in this container",
        OpenError::LimitsDiffer(_) | OpenError::FairnessDiffers(_) | OpenError::SharingDiffers(_) => {
            "open it without asking for others, or use another directory"
        }
        OpenError::BadLimits(_) => "Limits::of_kernel() are possible ones to start from",
    }
}

impl From<NamespaceError> for io::Error {
    fn from(e: NamespaceError) -> io::Error {
        let kind = match &e {
            NamespaceError::Open { source: OpenError::Os(_, errno), .. } => io::Error::from_raw_os_error(errno.0).kind(),
            NamespaceError::Open { .. } => io::ErrorKind::InvalidData,
            NamespaceError::Directory { source, .. } => source.kind(),
            NamespaceError::NotInEnvironment => io::ErrorKind::NotFound,
        };
        io::Error::new(kind, e)
    }
}
