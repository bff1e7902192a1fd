//! A set-user-id program that has the library, and an attacker who chooses its environment.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

use crate::callers::{OTHER, OWNER, STRANGER as ATTACKER};
use crate::sys::{self, Via};
use crate::{ATTEMPTS, PLANTED, REFUSED, Test, library, open_directory};

pub const TESTS: &[Test] = &[("an_attackers_environment_leads_no_privileged_program_into_his_namespace", environment)];

/// A C program that has the library among those it needs: it prints what semget returns.
fn program(dir: &Path) -> PathBuf {
    let (source, path) = (dir.join("linked.c"), dir.join("linked"));
    let text = "#include <errno.h>\n#include <stdio.h>\n#include <sys/sem.h>\n\
        int main(void) { int id = semget(IPC_PRIVATE, 1, 0600); printf(\"%d\\n\", id == -1 ? -errno : 1); return 0; }\n";
    fs::write(&source, text).expect("a new file");
    // An absolute path is looked into in set-user-id programs, too.
    fs::copy(library(), dir.join("libmanyway.so.0")).expect("room");
    let place = dir.display();
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status =
        Command::new(cc).arg("-o").args([&path, &source]).arg(format!("-Wl,--no-as-needed,-rpath,{place}")).arg(library()).status();
    assert!(status.expect("a C compiler is needed").success());
    path
}

fn environment() {
    let dir = open_directory(&std::env::temp_dir());
    let linked = program(dir.path());
    let place = open_directory(Path::new("/dev/shm"));
    fs::set_permissions(place.path(), Permissions::from_mode(0o1777)).expect("own directory");
    let namespace = place.path().join("attackers");
    let run = |path: &Path, uid: u32| {
        let mut command = Command::new(path);
        command.env("MANYWAY_DIR", &namespace).env("MANYWAY_OWNER", ATTACKER.to_string());
        let become_user = move || {
            sys::set_groups(Via::Number, &[])?;
            sys::set_gids(Via::Number, [OTHER; 3])?;
            sys::set_uids(Via::Number, [uid; 3])
        };
        // SAFETY: system calls only.
        unsafe { command.pre_exec(become_user) };
        let output = command.output().expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (String::from_utf8_lossy(&output.stdout).trim().to_owned(), said)
    };
    // The attacker's namespace, good and open to all, which its owner's own programs use.
    let made = std::thread::spawn({
        let namespace = namespace.clone();
        move || {
            sys::set_gids(Via::Number, [OTHER; 3])?;
            sys::set_uids(Via::Number, [ATTACKER; 3])?;
            let name = std::ffi::CString::new(namespace.to_str().expect("ASCII")).expect("no NUL in it");
            let how = manyway_sem::OpenOptions { share: Some(manyway_sem::Share::All), ..manyway_sem::OpenOptions::CREATE };
            manyway_sem::Engine::open(&name, &how).map(drop).map_err(std::io::Error::other)
        }
    });
    made.join().expect("no panic").expect("its own");
    let (seen, said) = run(&linked, ATTACKER);
    assert_eq!(seen, "1", "an ordinary program gets in: else nothing is proved: {said}");
    assert_eq!(run(&linked, OWNER).0, "1", "and that of another user, who says whom it trusts");

    let copy = |name: &str, owner: u32, group: u32, mode: u32| {
        let path = dir.path().join(name);
        fs::copy(&linked, &path).expect("room");
        chown(&path, Some(owner), Some(group)).expect("root may");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("own file");
        path
    };
    let root = copy("set-user-id-root", 0, 0, 0o4755);
    let user = copy("set-user-id-owner", OWNER, 0, 0o4755);
    let group = copy("set-group-id", 0, 0, 0o2755);
    let capable = copy("capable", 0, 0, 0o755);
    // vfs_cap_data, revision 2, effective: CAP_NET_BIND_SERVICE.
    let data: Vec<u8> = [0x0200_0001u32, 1 << 10, 0, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    sys::set_xattr(&capable, c"security.capability", &data).expect("root may");
    for (path, uid) in [(&root, ATTACKER), (&user, ATTACKER), (&group, ATTACKER), (&capable, ATTACKER), (&user, 0)] {
        let (seen, said) = run(path, uid);
        assert_eq!(seen, "-38", "{} run by {uid}: {said}", path.display());
        assert!(said.contains("does not listen to MANYWAY_DIR"), "{}: {said}", path.display());
        ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        REFUSED.fetch_add(1, Ordering::Relaxed);
        PLANTED.fetch_add(1, Ordering::Relaxed);
    }
    // Set-user-id to who one is anyway brings nothing, and takes nothing away.
    assert_eq!(run(&user, OWNER).0, "1");
}
