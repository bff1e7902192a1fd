//! Short paths, built on the stack.

use core::ffi::CStr;
use core::fmt::{self, Write};

use crate::Errno;

/// A C string that is written to with `write!`; what does not fit is an error.
pub(crate) struct Path {
    buf: [u8; 64],
    len: usize,
}

impl Path {
    pub(crate) const fn new() -> Path {
        Path { buf: [0; 64], len: 0 }
    }
    pub(crate) fn as_c_str(&self) -> Result<&CStr, Errno> {
        CStr::from_bytes_until_nul(&self.buf).map_err(|_| Errno::EINVAL)
    }
}

impl Write for Path {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let end = self.len + s.len();
        if end >= self.buf.len() {
            return Err(fmt::Error);
        }
        self.buf[self.len..end].copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}
