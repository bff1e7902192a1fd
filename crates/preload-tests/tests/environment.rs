//! What surrounds a program: no namespace, or plug-ins with a scope of their own.

use std::process::Command;

use manyway_preload_tests::{CC, On, Scratch, compile, library, run, run_command};

/// How often the kernel's list of semaphore sets names this key.
fn kernel_has(key: i32) -> bool {
    let list = std::fs::read_to_string("/proc/sysvipc/sem").unwrap_or_default();
    list.lines().any(|l| l.split_whitespace().next() == Some(&key.to_string()))
}

#[test]
fn without_a_namespace_calls_fail_and_one_line_says_why() {
    let dir = Scratch::new();
    let program = compile(CC, &dir, "no_namespace", &[]);
    let run = |name: Option<&str>| {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", library()).env_remove("MANYWAY_DIR");
        if let Some(name) = name {
            command.env("MANYWAY_DIR", name);
        }
        run_command(&mut command)
    };
    let calls = "semget: ENOSYS\nsemop: ENOSYS\nsemtimedop: ENOSYS\nsemctl: ENOSYS\nsyscall: ENOSYS\n";
    let unset = run(None);
    let (said, rest) = unset.split_once('\n').expect("a line");
    assert_eq!(rest, calls);
    assert!(said.starts_with("manyway: no_namespace: ") && said.contains("MANYWAY_DIR is not set"), "{said}");

    let missing = run(Some("/nonexistent/namespace"));
    let (said, rest) = missing.split_once('\n').expect("a line");
    assert_eq!(rest, calls);
    assert!(said.starts_with("manyway: no_namespace: cannot open namespace /nonexistent/namespace: "), "{said}");
    assert!(said.contains("ENOENT"), "{said}");
    assert!(!kernel_has(0x6d776e6e));
}

#[test]
fn a_program_that_uses_no_semaphores_hears_nothing() {
    let quiet = run_command(Command::new("/bin/echo").arg("hello").env("LD_PRELOAD", library()).env_remove("MANYWAY_DIR"));
    assert_eq!(quiet, "hello\n");
}

#[test]
fn an_empty_directory_variable_is_a_wish_for_the_kernels() {
    let dir = Scratch::new();
    let program = compile(CC, &dir, "no_namespace", &[]);
    // The first list is the kernel's, the second, in an empty environment, the namespace's.
    let script =
        format!("{} >/dev/null; MANYWAY_DIR= LD_PRELOAD= cat /proc/sysvipc/sem; echo; env -i cat /proc/sysvipc/sem", program.display());
    let said = run(On::Manyway, std::path::Path::new("/bin/sh"), &["-c", &script]);
    let (kernel, namespace) = said.split_once("\n\n").expect("two lists");
    let key = 0x6d776e6e.to_string();
    assert!(!kernel.contains(&key) && namespace.contains(&key), "{said}");
}

#[test]
fn plug_ins_with_their_own_scope_use_the_same_semaphores() {
    let dir = Scratch::new();
    let plugin = compile(CC, &dir, "plugin", &["-shared", "-fPIC"]);
    let program = compile(CC, &dir, "deepbind", &["-ldl"]);
    let plugin = plugin.to_str().expect("a plain path");
    let kernel = run(On::Kernel, &program, &[plugin]);
    assert!(kernel.starts_with("the same set: 1\n"), "{kernel}");
    assert_eq!(run(On::Manyway, &program, &[plugin]), kernel);
}

/// It has nothing of its own to keep an adjustment in, and must not write into its parent's. It may look (GETVAL).
#[test]
fn a_child_of_vfork_is_told_that_it_has_no_semaphores() {
    let dir = Scratch::new();
    let program = compile(CC, &dir, "vfork_child", &[]);
    assert_eq!(run(On::Kernel, &program, &[]), "0\n0\n0\nENOENT\n0\n0 1 0\n");
    assert_eq!(run(On::Manyway, &program, &[]), "ENOSYS\nENOSYS\n0\nENOSYS\nENOSYS\n0 1 0\n");
}

/// In the kernel its sets are out of sight. Here it stays among those who share the namespace; its adjustments are applied, as there.
#[test]
fn who_leaves_the_ipc_namespace_stays_in_manyways() {
    let dir = Scratch::new();
    let program = compile(CC, &dir, "leaves_ipc", &[]);
    // In one of its own from the beginning, so that the set that it leaves behind goes with it.
    let mut kernel = Command::new("unshare");
    kernel.args(["--ipc", "--map-root-user"]).arg(&program);
    assert_eq!(run_command(&mut kernel), "0: EINVAL\n");
    let shell = format!("unshare --user --map-root-user {}", program.display());
    assert_eq!(run(On::Manyway, std::path::Path::new("/bin/sh"), &["-c", &shell]), "0: 2\n");
}
