//! What `run --report` says at the end: who used Manyway's semaphores, and who the kernel's, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::people::printable;
use crate::program;

/// What was seen of a run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The program and its arguments.
    pub command: String,
    /// Where Manyway's semaphores were.
    pub namespace: String,
    /// Operations carried out there meanwhile, at least about so many.
    pub operations: u64,
    /// Who used them, by process id.
    pub manyway: BTreeMap<u32, BTreeSet<String>>,
    /// Who used the kernel's.
    pub kernel: BTreeMap<u32, Slipped>,
    /// The kernel's were refused (ENOSYS).
    pub refused: bool,
    /// Why calls of the kernel's semaphores could not be seen, if they could not.
    pub blind: Option<String>,
}

/// A process that made calls of the kernel's semaphores.
#[derive(Debug, Serialize)]
pub struct Slipped {
    /// Its name.
    pub name: String,
    /// Why the library did not answer.
    pub why: String,
    /// How often it made which call.
    pub calls: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Process `pid` has taken a place in the namespace.
    pub fn uses_manyway(&mut self, pid: u32) {
        self.manyway.entry(pid).or_default().insert(name(pid));
    }

    /// Process `pid` makes a call of the kernel's semaphores.
    pub fn uses_kernel(&mut self, pid: u32, call: &'static str, native: bool) {
        let slipped = self.kernel.entry(pid).or_insert_with(|| Slipped { name: name(pid), why: why(pid, native), calls: BTreeMap::new() });
        *slipped.calls.entry(call).or_default() += 1;
    }
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| "?".into(), |name| printable(name.trim_end()))
}

/// Why the library does not answer in a living process.
fn why(pid: u32, native: bool) -> String {
    if !native {
        return "it is a 32-bit program".into();
    }
    let exe = format!("/proc/{pid}/exe");
    if let Some(obstacle) = program::obstacle(Path::new(&exe)) {
        return obstacle;
    }
    match fs::read_to_string(format!("/proc/{pid}/maps")) {
        Ok(maps) if maps.contains("/libmanyway") => {
            "it makes the system call itself, or asked the C library's own handle for the function (dlsym, ctypes)".into()
        }
        Ok(_) => "the library is not loaded: it was started without LD_PRELOAD, or gained privileges".into(),
        Err(_) => "it could not be looked at".into(),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "manyway: report of `{}`", self.command)?;
        match self.manyway.len() {
            0 => writeln!(f, "  Nobody used Manyway's semaphores ({}).", self.namespace)?,
            n => {
                let about = format!("about {} operation{}", self.operations, plural(self.operations));
                writeln!(f, "  {n} process{} used Manyway's semaphores ({}), {about}:", plural_es(n), self.namespace)?;
                for (pid, names) in &self.manyway {
                    writeln!(f, "    {pid:>8}  {}", names.iter().cloned().collect::<Vec<_>>().join(", "))?;
                }
            }
        }
        if let Some(why) = &self.blind {
            return writeln!(f, "  Whether somebody used the kernel's semaphores is not known: {why}.");
        }
        match self.kernel.len() {
            0 => writeln!(f, "  Nobody used the kernel's semaphores."),
            n => {
                let end = if self.refused { ", which were refused (ENOSYS)" } else { "" };
                writeln!(f, "  {n} process{} called the kernel's semaphores{end}:", plural_es(n))?;
                for (pid, slipped) in &self.kernel {
                    let mut calls = String::new();
                    for (call, n) in &slipped.calls {
                        write!(calls, "{}{call} {n}", if calls.is_empty() { "" } else { ", " })?;
                    }
                    writeln!(f, "    {pid:>8}  {}: {calls}; {}", slipped.name, slipped.why)?;
                }
                Ok(())
            }
        }
    }
}

fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn plural_es(n: usize) -> &'static str {
    if n == 1 { "" } else { "es" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_and_somebody() {
        let mut report = Report { command: "true".into(), namespace: "/n".into(), ..Report::default() };
        assert_eq!(
            report.to_string(),
            "manyway: report of `true`\n  Nobody used Manyway's semaphores (/n).\n  Nobody used the kernel's semaphores.\n"
        );
        report.operations = 1;
        report.uses_manyway(std::process::id());
        report.uses_kernel(std::process::id(), "semop", true);
        report.uses_kernel(std::process::id(), "semop", true);
        report.uses_kernel(std::process::id(), "semget", true);
        let text = report.to_string();
        assert!(text.contains("1 process used Manyway's semaphores (/n), about 1 operation:"), "{text}");
        assert!(text.contains("semget 1, semop 2; the library is not loaded"), "{text}");
        report.refused = true;
        assert!(report.to_string().contains("semaphores, which were refused (ENOSYS):"));
        report.blind = Some("because".into());
        assert!(report.to_string().ends_with("is not known: because.\n"));
    }
}
