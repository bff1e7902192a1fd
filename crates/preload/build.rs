//! How the library is linked; and where its source is, for the command's build script.

fn main() {
    // No start files: the constructor is in .init_array, and crtbegin.o would only bring references to a C library.
    println!("cargo::rustc-link-arg=-nostartfiles");
    println!("cargo::rustc-link-arg=-Wl,-soname,libmanyway.so.0");
    // Signal handlers point into it: once loaded it must stay.
    println!("cargo::rustc-link-arg=-Wl,-z,nodelete");
    println!("cargo::metadata=root={}", std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
}
