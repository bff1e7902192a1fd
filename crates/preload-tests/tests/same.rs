//! C programs that must print the same on the kernel's semaphores and on Manyway's.

use manyway_preload_tests::{CC, same_on_both};

macro_rules! same {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            same_on_both(CC, stringify!($name));
        })*
    };
}

same! {
    arguments,
    credentials,
    dispositions,
    environments,
    every_instruction,
    handlers,
    pointers,
    proc_files,
    processes,
    raw_syscall,
    storm,
    surroundings,
    threads,
    waits,
}
