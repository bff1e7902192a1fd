//! Programs built with a sanitizer: what they print is the same on both, and the sanitizer has nothing to say.

use manyway_preload_tests::{CC, On, Scratch, compile, run};

fn under(sanitizer: &str, programs: &[&str]) {
    let dir = Scratch::new();
    for name in programs {
        let program = compile(CC, &dir, name, &[sanitizer]);
        let kernel = run(On::Kernel, &program, &[]);
        let manyway = run(On::Manyway, &program, &[]);
        assert!(!kernel.is_empty(), "{name} says nothing");
        assert!(kernel == manyway, "{name} with {sanitizer} differs.\non the kernel:\n{kernel}\non Manyway:\n{manyway}");
    }
}

#[test]
fn address_sanitizer() {
    under("-fsanitize=address", &["arguments", "processes", "raw_syscall", "handlers"]);
}

/// (It knows of no order that semaphores make, the kernel's neither: programs in which they protect memory are reported on both.)
#[test]
fn thread_sanitizer() {
    under("-fsanitize=thread", &["arguments", "environments", "processes"]);
}

#[test]
fn undefined_behaviour_sanitizer() {
    under("-fsanitize=undefined", &["arguments", "handlers", "pointers"]);
}
