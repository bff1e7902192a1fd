//! Will a program run on Manyway's semaphores? What its files tell, and what its loader says.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Look, State, draw, look};
use crate::library::PRELOAD_VARIABLE;
use crate::output::Sheet;
use crate::people::printable;
use crate::program::elf::{self, Object, SEMAPHORE_CALLS, Version};
use crate::program::{self, loader};

/// A program, and what was found out about it.
#[derive(Debug, Serialize)]
pub struct Program {
    /// As it was named.
    name: String,
    /// Its semaphores will be Manyway's, as far as can be told.
    fit: bool,
    /// The file that was found, its interpreter and so on.
    chain: Vec<PathBuf>,
    /// What the loader loads with the last of these.
    libraries: Vec<PathBuf>,
    pub looks: Vec<Look>,
}

impl Program {
    pub fn draw(&self, sheet: &mut Sheet) {
        let verdict = if self.fit { "runs on Manyway" } else { "does not run on Manyway" };
        sheet.heading(&format!("Program {}: {verdict}", self.name));
        draw(sheet, &self.looks);
    }
}

/// Looks into `name`, a path or a program on PATH.
pub fn examine(name: &OsStr, arguments: &[OsString]) -> Program {
    let (mut chain, mut outcome) = program::chain(name);
    // What `env A=b PROGRAM` starts is meant.
    if let (Ok(()), Some(target)) = (&outcome, chain.last().and_then(|file| program::target_of_env(file, arguments))) {
        let (more, its) = program::chain(target);
        chain.extend(more);
        outcome = its;
    }
    let mut found =
        Program { name: printable(&name.to_string_lossy()), fit: outcome.is_ok(), chain, libraries: Vec::new(), looks: Vec::new() };
    found.file();
    match outcome {
        Ok(()) => found.executable(),
        Err(failure) => found.add("verdict", State::Bad, failure.what(), failure.advice()),
    }
    found.fit = found.looks.iter().all(|look| look.state != State::Bad);
    found
}

impl Program {
    fn add(&mut self, subject: &str, state: State, what: impl Into<String>, advice: &str) {
        self.looks.push(look(subject, state, what, advice));
    }

    /// Which file is executed, and with whose rights.
    fn file(&mut self) {
        let shown: Vec<_> = self.chain.iter().map(|file| file.display().to_string()).collect();
        let Some((last, before)) = shown.split_last() else { return };
        match before {
            [] => self.add("file", State::Good, last, ""),
            _ => self.add("file", State::Good, format!("{} leads to {last}, which is executed", before.join(", ")), ""),
        }
        let Some(meta) = self.chain.last().and_then(|file| file.metadata().ok()) else { return };
        let set_ids = meta.mode() & (libc::S_ISUID | libc::S_ISGID);
        if set_ids & libc::S_ISUID != 0 || set_ids & libc::S_ISGID != 0 && meta.mode() & libc::S_IXGRP != 0 {
            self.add(
                "set-id bits",
                State::Note,
                format!("user {}, group {}, mode {:o}", meta.uid(), meta.gid(), meta.mode() & 0o7777),
                "who gains rights by it is given no library: it depends on who starts the program",
            );
        }
    }

    /// The file can be preloaded: what with?
    fn executable(&mut self) {
        let Some(file) = self.chain.last().cloned() else { return };
        let interpreter = fs::File::open(&file).ok().and_then(|file| elf::header(&file)?.interpreter);
        let Some(interpreter) = interpreter else {
            return self.add("loader", State::Note, "the file cannot be read", "ask as a user who may read it");
        };
        let mut objects = Vec::new();
        match loader::list(&interpreter, &file) {
            Ok(loaded) => {
                self.loaded(&interpreter, &loaded);
                self.libraries.clone_from(&loaded.files);
                objects.extend(loaded.files.iter().filter_map(|file| Some((file.clone(), elf::object(file)?))));
            }
            Err(why) => self.add("loader", State::Note, why, "`manyway run --report` tells whether the library was loaded"),
        }
        match elf::object(&file) {
            Some(own) => objects.insert(0, (file, own)),
            None => {
                self.add("tables", State::Note, "the file has no tables that could be read", "`manyway run --report` tells what it uses")
            }
        }
        self.glibc(&objects);
        // What the C library does is known; the others are asked about.
        let own = |(file, _): &&(PathBuf, Object)| !is_c_library(file);
        let objects: Vec<_> = objects.iter().filter(own).collect();
        self.semaphores(&objects);
        self.own_calls(&objects);
        self.later(&objects);
        self.other_preloads();
    }

    fn loaded(&mut self, interpreter: &Path, loaded: &loader::Loaded) {
        let family = loader::family(interpreter).unwrap_or("another C library");
        if !loaded.missing.is_empty() || (!loaded.complaints.is_empty() && !loaded.ours_first) {
            let reasons: Vec<_> =
                loaded.missing.iter().map(|name| format!("there is no {name}")).chain(loaded.complaints.iter().cloned()).collect();
            return self.add(
                "loader",
                State::Bad,
                format!("{} ({family}): {}", interpreter.display(), reasons.join("; ")),
                "the program does not start, with or without Manyway: install what is missing",
            );
        }
        let n = loaded.files.len();
        let what = format!("{} ({family}) puts the library before {n} others", interpreter.display());
        match (loaded.ours_first, loaded.complaints.as_slice()) {
            (true, []) => self.add("loader", State::Good, what, ""),
            (true, complaints) => {
                self.add("loader", State::Bad, complaints.join("; "), "the program may not start: install what is missing")
            }
            (false, _) => self.add(
                "loader",
                State::Bad,
                format!("{} does not load the library", interpreter.display()),
                "its semaphores would be the kernel's; `manyway run --no-kernel` makes it fail instead",
            ),
        }
    }

    /// Which glibc is asked for; whether this one is enough, the loader has said.
    fn glibc(&mut self, objects: &[(PathBuf, Object)]) {
        let needed: Option<Version> = objects.iter().filter(|(file, _)| !is_c_library(file)).filter_map(|(_, object)| object.glibc).max();
        if let Some((major, minor)) = needed {
            self.add("C library", State::Good, format!("glibc {major}.{minor} or later is needed; the library itself needs none"), "");
        }
        let paths: BTreeSet<_> = objects.iter().flat_map(|(_, object)| &object.paths).cloned().collect();
        if !paths.is_empty() {
            let paths: Vec<_> = paths.into_iter().collect();
            self.add("search path", State::Good, format!("of its own for libraries: {}", some_of(&paths)), "");
        }
    }

    /// Who names semaphore calls.
    fn semaphores(&mut self, objects: &[&(PathBuf, Object)]) {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut users = Vec::new();
        for (file, object) in objects {
            let used: Vec<_> = SEMAPHORE_CALLS.iter().filter(|name| object.imports.contains(**name)).collect();
            if !used.is_empty() {
                users.push(file.display().to_string());
                names.extend(used);
            }
            if !object.defines.is_empty() {
                let defined: Vec<_> = object.defines.iter().map(String::as_str).collect();
                self.looks.push(look(
                    "semaphores",
                    State::Bad,
                    format!("{} defines {} itself", file.display(), defined.join(", ")),
                    "who is linked first is called: build it without, or see `manyway run --report`",
                ));
            }
        }
        if users.is_empty() {
            self.add(
                "semaphores",
                State::Good,
                "neither it nor its libraries name them; what it loads or starts later may, and is answered likewise",
                "",
            );
        } else {
            let names: Vec<_> = names.into_iter().collect();
            self.add("semaphores", State::Good, format!("{} called by {}: answered by Manyway", names.join(", "), some_of(&users)), "");
        }
        let by_number = users_of(objects, &["syscall"]);
        if !by_number.is_empty() {
            self.add(
                "syscall(2)",
                State::Good,
                format!("used by {}: semaphore calls by number are answered by Manyway", some_of(&by_number)),
                "",
            );
        }
    }

    /// System calls that pass no library.
    fn own_calls(&mut self, objects: &[&(PathBuf, Object)]) {
        for (file, object) in objects {
            let calls: Vec<_> = object.own_semaphore_calls.iter().copied().collect();
            if !calls.is_empty() {
                self.add(
                    "own calls",
                    State::Note,
                    format!("{} seems to call the kernel's {} itself, past every library", file.display(), calls.join(", ")),
                    "`manyway run --no-kernel` makes such a call fail, `--report` names it",
                );
            }
            if object.go {
                self.add(
                    "own calls",
                    State::Note,
                    format!("{} is a Go program: it makes its system calls itself", file.display()),
                    "semaphores that it uses by package syscall or unix are the kernel's; `manyway run --report` names it",
                );
            }
        }
        let with: Vec<_> = objects.iter().filter(|(_, object)| object.own_calls > 0).map(|(file, _)| file.display().to_string()).collect();
        if with.is_empty() {
            self.add("own calls", State::Good, "no file has an instruction that enters the kernel: all goes through the C library", "");
        } else if objects.iter().all(|(_, object)| object.own_semaphore_calls.is_empty()) {
            self.add(
                "own calls",
                State::Good,
                format!("{} can enter the kernel without the C library; no semaphore call was seen", some_of(&with)),
                "",
            );
        }
    }

    /// What cannot be seen before it happens.
    fn later(&mut self, objects: &[&(PathBuf, Object)]) {
        let plugins = users_of(objects, &["dlopen", "dlmopen"]);
        if !plugins.is_empty() {
            self.add(
                "plug-ins",
                State::Note,
                format!("{} can load others at run time (dlopen)", some_of(&plugins)),
                "these are answered likewise, except what asks the C library's own handle for a function (ctypes' CDLL(\"libc.so.6\"))",
            );
        }
        let spaces = users_of(objects, &["dlmopen"]);
        if !spaces.is_empty() {
            self.add(
                "link maps",
                State::Note,
                format!("{} can load libraries beside the library (dlmopen)", some_of(&spaces)),
                "semaphores used in there are the kernel's; `manyway run --report` names it",
            );
        }
        let starters = users_of(objects, &EXECUTE);
        if !starters.is_empty() {
            self.add(
                "other programs",
                State::Note,
                format!("{} can execute others", some_of(&starters)),
                "ask the doctor about these, or at the end `manyway run --report`",
            );
        }
        let clearers = users_of(objects, &["clearenv"]);
        if !clearers.is_empty() && !users_of(objects, &["system", "popen"]).is_empty() {
            self.add(
                "environment",
                State::Note,
                format!("{} can clear the environment", some_of(&clearers)),
                "what system(3) or popen(3) starts afterwards is on the kernel's semaphores; `manyway run --report` names it",
            );
        }
    }

    /// Other libraries before the program's own.
    fn other_preloads(&mut self) {
        let list = env::var_os(PRELOAD_VARIABLE).unwrap_or_default().to_string_lossy().into_owned();
        let mut files: Vec<String> = list.split([' ', ':']).map(str::to_owned).collect();
        files.extend(fs::read_to_string("/etc/ld.so.preload").unwrap_or_default().split_whitespace().map(str::to_owned));
        files.retain(|file| !file.is_empty() && !file.contains("libmanyway"));
        if !files.is_empty() {
            self.add("other preloads", State::Good, format!("{}: kept, behind the library", some_of(&files)), "");
        }
    }
}

/// Functions that execute a program.
const EXECUTE: [&str; 13] = [
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
    "posix_spawnp",
    "system",
    "popen",
];

/// The files that take any of these functions from a library.
fn users_of(objects: &[&(PathBuf, Object)], names: &[&str]) -> Vec<String> {
    let uses = |object: &Object| names.iter().any(|name| object.imports.contains(*name));
    objects.iter().filter(|(_, object)| uses(object)).map(|(file, _)| file.display().to_string()).collect()
}

/// The C library itself, in all of its parts.
fn is_c_library(file: &Path) -> bool {
    const PARTS: [&str; 10] = [
        "libc.so",
        "libc.musl-",
        "libpthread.so",
        "libdl.so",
        "librt.so",
        "libm.so",
        "libresolv.so",
        "libnsl.so",
        "libutil.so",
        "libanl.so",
    ];
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ld-") || PARTS.iter().any(|part| name.starts_with(part))
}

/// The first of them, and how many there are.
fn some_of(files: &[String]) -> String {
    const SHOWN: usize = 3;
    match files.len() {
        0..=SHOWN => files.join(", "),
        n => format!("{} and {} more", files[..SHOWN].join(", "), n - SHOWN),
    }
}
