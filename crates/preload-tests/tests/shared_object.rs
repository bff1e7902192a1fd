//! What the library asks of a program, and what it defines in it.

use std::collections::BTreeSet;
use std::fs;

use manyway_preload_tests::library;

/// A 64-bit object file of this machine's byte order, as far as the tests need it.
struct Object(Vec<u8>);

/// A symbol of the dynamic symbol table.
struct Symbol {
    name: String,
    defined: bool,
    weak: bool,
}

impl Object {
    fn u64(&self, at: usize) -> usize {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().unwrap()) as usize
    }
    fn u16(&self, at: usize) -> usize {
        u16::from_ne_bytes(self.0[at..at + 2].try_into().unwrap()) as usize
    }
    fn u32(&self, at: usize) -> usize {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().unwrap()) as usize
    }
    /// (type, file offset, size, link) of each section.
    fn sections(&self) -> Vec<(usize, usize, usize, usize)> {
        let (start, n) = (self.u64(40), self.u16(60));
        (0..n).map(|i| start + 64 * i).map(|s| (self.u32(s + 4), self.u64(s + 24), self.u64(s + 32), self.u32(s + 40))).collect()
    }
    fn string(&self, at: usize) -> String {
        self.0[at..].iter().take_while(|b| **b != 0).map(|b| *b as char).collect()
    }
    /// The tags of the dynamic section.
    fn dynamic(&self) -> Vec<usize> {
        let (_, at, size, _) = self.sections().into_iter().find(|s| s.0 == 6).expect("a dynamic section");
        (0..size / 16).map(|i| self.u64(at + 16 * i)).collect()
    }
    fn symbols(&self) -> Vec<Symbol> {
        let sections = self.sections();
        let (_, at, size, link) = *sections.iter().find(|s| s.0 == 11).expect("a dynamic symbol table");
        let names = sections[link].1;
        (1..size / 24)
            .map(|i| at + 24 * i)
            .map(|s| Symbol { name: self.string(names + self.u32(s)), defined: self.u16(s + 6) != 0, weak: self.0[s + 4] >> 4 == 2 })
            .collect()
    }
}

fn object() -> Object {
    Object(fs::read(library()).expect("the library can be read"))
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(String::from).collect()
}

#[test]
fn needs_no_library_and_stays_loaded() {
    const DT_NEEDED: usize = 1;
    const DT_TEXTREL: usize = 22;
    let tags = object().dynamic();
    assert!(!tags.contains(&DT_NEEDED) && !tags.contains(&DT_TEXTREL), "{tags:?}");
}

#[test]
fn asks_the_program_for_these_symbols_only() {
    let symbols = object().symbols();
    let needed = symbols.iter().filter(|s| !s.defined && !s.weak).map(|s| s.name.clone()).collect::<BTreeSet<_>>();
    let allowed = set(["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"]);
    assert!(needed.is_subset(&allowed), "{needed:?}");
    let wanted = symbols.iter().filter(|s| !s.defined && s.weak).map(|s| s.name.clone()).collect::<BTreeSet<_>>();
    let allowed = set(["__errno_location", "dlsym", "_r_debug", "dl_iterate_phdr", "environ", "time", "clock_gettime", "setenv"]);
    assert!(wanted.is_subset(&allowed), "{wanted:?}");
}

#[test]
fn defines_these_symbols_only() {
    let defined = object().symbols().into_iter().filter(|s| s.defined).map(|s| s.name).collect::<BTreeSet<_>>();
    let expected = set([
        "semget",
        "semop",
        "semtimedop",
        "semctl",
        "manyway_open",
        "manyway_semget",
        "manyway_semop",
        "manyway_semtimedop",
        "manyway_semctl", //
        "syscall",
        "dlopen",
        "vfork",
        "unshare", //
        "wait",
        "waitpid",
        "wait3",
        "wait4",
        "waitid", //
        "sigaction",
        "__sigaction",
        "signal",
        "bsd_signal",
        "ssignal",
        "sysv_signal",
        "__sysv_signal",
        "sigset",
        "siginterrupt", //
        "setuid",
        "setgid",
        "seteuid",
        "setegid",
        "setreuid",
        "setregid",
        "setresuid",
        "setresgid",
        "setfsuid",
        "setfsgid", //
        "setgroups",
        "initgroups",
        "capset",
        "setns", //
        "execve",
        "execv",
        "execvp",
        "execvpe",
        "execl",
        "execlp",
        "execle",
        "fexecve",
        "execveat",
        "posix_spawn",
        "posix_spawnp", //
        "open",
        "open64",
        "openat",
        "openat64",
        "__open_2",
        "__open64_2",
        "__openat_2",
        "__openat64_2",
        "fopen",
        "fopen64", //
        "__asan_default_options",
    ]);
    assert_eq!(defined, expected);
}
