//! System call errors as values, with what a user needs to know about each.

use core::fmt;

/// An error number of Linux, always positive (`errno(3)`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $n:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($n);)*

            /// The symbolic name, `"EAGAIN"`, or `"E?"` for one this crate does not use.
            pub const fn name(self) -> &'static str {
                match self.0 { $($n => stringify!($name),)* _ => "E?" }
            }
            /// A short description, as strerror(3) would give.
            pub const fn text(self) -> &'static str {
                match self.0 { $($n => $text,)* _ => "unknown error" }
            }
        }
    };
}

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file or directory";
    ESRCH = 3, "no such process";
    EINTR = 4, "interrupted system call";
    EIO = 5, "input/output error";
    E2BIG = 7, "argument list too long";
    ENXIO = 6, "no such device or address";
    ENOEXEC = 8, "exec format error";
    EBADF = 9, "bad file descriptor";
    EAGAIN = 11, "resource temporarily unavailable";
    ENOMEM = 12, "cannot allocate memory";
    EACCES = 13, "permission denied";
    EFAULT = 14, "bad address";
    EBUSY = 16, "device or resource busy";
    EEXIST = 17, "file exists";
    ENOTDIR = 20, "not a directory";
    EINVAL = 22, "invalid argument";
    ENFILE = 23, "too many open files in system";
    EMFILE = 24, "too many open files";
    EFBIG = 27, "file too large";
    ENOSPC = 28, "no space left on device";
    EROFS = 30, "read-only file system";
    ERANGE = 34, "numerical result out of range";
    EDEADLK = 35, "resource deadlock avoided";
    ENAMETOOLONG = 36, "file name too long";
    ENOSYS = 38, "function not implemented";
    ELOOP = 40, "too many levels of symbolic links";
    EIDRM = 43, "identifier removed";
    EOPNOTSUPP = 95, "operation not supported";
    ETIMEDOUT = 110, "connection timed out";
    EDQUOT = 122, "disk quota exceeded";
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.name())
    }
}
impl core::error::Error for Errno {}
