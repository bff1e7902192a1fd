//! What can go wrong, as an author of a file system tells it to a program.

use std::sync::Arc;

/// Why a walk or a change has no answer but an error. `errno` gives the number that a system call would return.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name does not exist (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// A component before the last one, or one that had to be a directory, is none (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// A directory, where none may be (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// The name exists already (EEXIST).
    #[error("file exists")]
    Exists,
    /// A directory that is not empty (ENOTEMPTY).
    #[error("directory not empty")]
    NotEmpty,
    /// More symbolic links than [`MAX_LINKS`](crate::MAX_LINKS) on one walk (ELOOP).
    #[error("too many levels of symbolic links")]
    Loop,
    /// A second name for a directory (EPERM).
    #[error("operation not permitted")]
    NotPermitted,
    /// The search-permission hook said no (EACCES).
    #[error("permission denied")]
    Denied,
    /// A name is longer than [`Config::name_max`](crate::Config::name_max) (ENAMETOOLONG).
    #[error("file name too long")]
    NameTooLong,
    /// What cannot be asked for: an empty name, `.`, `..`, a slash or a zero byte in a name; a directory that would come to lie below
    /// itself; an inode of another cache (EINVAL).
    #[error("invalid argument")]
    Invalid,
    /// A mount point, or a root, that a change would take away (EBUSY).
    #[error("device or resource busy")]
    Busy,
    /// The two names of a link or rename lie in different mounts (EXDEV).
    #[error("cross-device link")]
    CrossDevice,
    /// What was found has changed its place in the store meanwhile; ask again from the root (ESTALE).
    #[error("stale file handle")]
    Stale,
    /// The store does not have the operation (ENOSYS).
    #[error("function not implemented")]
    Unsupported,
    /// Any other error of the store, by its number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// An error of the store that has no number of its own (EIO).
    #[error(transparent)]
    Store(Arc<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of the store that has no number.
    pub fn store(e: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Store(Arc::new(e))
    }

    /// The number that a system call would return, positive.
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound => 2,
            Error::NotDirectory => 20,
            Error::IsDirectory => 21,
            Error::Exists => 17,
            Error::NotEmpty => 39,
            Error::Loop => 40,
            Error::NotPermitted => 1,
            Error::Denied => 13,
            Error::NameTooLong => 36,
            Error::Invalid => 22,
            Error::Busy => 16,
            Error::CrossDevice => 18,
            Error::Stale => 116,
            Error::Unsupported => 38,
            Error::Os(n) => *n,
            Error::Store(_) => 5,
        }
    }
}

/// By the same number.
impl PartialEq for Error {
    fn eq(&self, other: &Error) -> bool {
        self.errno() == other.errno()
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Error {
        match e.raw_os_error() {
            Some(1) => Error::NotPermitted,
            Some(2) => Error::NotFound,
            Some(13) => Error::Denied,
            Some(16) => Error::Busy,
            Some(17) => Error::Exists,
            Some(18) => Error::CrossDevice,
            Some(20) => Error::NotDirectory,
            Some(21) => Error::IsDirectory,
            Some(22) => Error::Invalid,
            Some(36) => Error::NameTooLong,
            Some(38) => Error::Unsupported,
            Some(39) => Error::NotEmpty,
            Some(40) => Error::Loop,
            Some(116) => Error::Stale,
            Some(n) => Error::Os(n),
            None => Error::store(e),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(e: Error) -> std::io::Error {
        match e {
            Error::Store(e) => std::io::Error::other(e),
            e => std::io::Error::from_raw_os_error(e.errno()),
        }
    }
}
