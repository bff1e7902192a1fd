//! `manyway devel`: what C programs are linked with.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::args::Devel;
use crate::exit::{Failure, Result};
use crate::library;
use crate::output::print;

const HEADER: &str = include_str!(env!("MANYWAY_HEADER"));
/// The name by which programs ask for the library, as crates/preload/build.rs has it.
const SONAME: &str = "libmanyway.so.0";

pub fn run(args: &Devel) -> Result<()> {
    let prefix = std::path::absolute(&args.prefix).map_err(|e| Failure::io(args.prefix.display(), e))?;
    let (include, libdir) = (prefix.join("include"), prefix.join(&args.libdir));
    let description = format!(
        "prefix={}\nincludedir={}\nlibdir={}\n\nName: manyway\nDescription: System V semaphores in user space\nVersion: {}\nCflags: -I${{includedir}}\nLibs: -L${{libdir}} -lmanyway\n",
        prefix.display(),
        include.display(),
        libdir.display(),
        env!("CARGO_PKG_VERSION"),
    );
    let real = libdir.join(SONAME);
    put(&include.join("manyway.h"), HEADER.as_bytes(), 0o644)?;
    put(&real, library::CONTENT, 0o644)?;
    put(&libdir.join("pkgconfig/manyway.pc"), description.as_bytes(), 0o644)?;
    let link = staged(&libdir.join("libmanyway.so"));
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link).map_err(|e| Failure::io(link.display(), e))?;
    }
    symlink(SONAME, &link).map_err(|e| Failure::io(link.display(), e))?;
    print(&format!("{}\n", libdir.join("pkgconfig").display()))
}

/// Where a file is put that is to be at `path` when a package is installed.
fn staged(path: &Path) -> PathBuf {
    match env::var_os("DESTDIR").filter(|stage| !stage.is_empty()) {
        Some(stage) => Path::new(&stage).join(path.strip_prefix("/").unwrap_or(path)),
        None => path.into(),
    }
}

/// Writes a file anew, so that a program that runs with the old one keeps it.
fn put(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let path = staged(path);
    let failed = |e| Failure::io(format!("cannot write {}", path.display()), e);
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    let draft = path.with_extension("new");
    fs::write(&draft, content).map_err(failed)?;
    fs::set_permissions(&draft, Permissions::from_mode(mode)).map_err(failed)?;
    fs::rename(&draft, &path).map_err(failed)
}
