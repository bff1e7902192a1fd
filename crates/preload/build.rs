//! How the library is linked.

fn main() {
    // No start files: the constructor is in .init_array, and crtbegin.o would only bring references to a C library.
    println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmanyway.so");
    // Signal handlers point into it: once loaded it must stay.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
