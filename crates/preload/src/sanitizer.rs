//! AddressSanitizer. Its shared runtime (gcc's default) wants to be the first library and ends the program if it is not; but it needs that only
//! to catch the allocation functions, of which this library defines none.

use core::ffi::c_char;

/// Options that the runtime asks the program for. A program that defines this function itself has to name this one among its own.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}
