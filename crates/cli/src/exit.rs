//! Exit codes, in one place, and the error that ends a command.

use std::fmt::Display;
use std::process::ExitCode;

/// What an exit code means. Success is 0; otherwise `run` becomes the program, whose own codes it leaves alone: hence the high ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The command could not do what was asked.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// `run`: refused, or could not be prepared; the program was not started.
    NotRun = 125,
    /// `run`: the program was found and cannot be executed.
    NotExecutable = 126,
    /// `run`: there is no such program.
    NotFound = 127,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status as u8)
    }
}

/// Why a command ends without having done its work: what is wrong, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    status: Status,
    what: String,
    advice: Option<String>,
}

/// Result of everything that may end a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with exit code 1; `what` is wrong.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure { status: Status::Failed, what: what.into(), advice: None }
    }

    /// A system call or other operation `doing` failed with `error`.
    pub fn io(doing: impl Display, error: impl Display) -> Failure {
        Failure::new(format!("{doing}: {error}"))
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Failure {
        self.advice = Some(advice.into());
        self
    }

    /// Ends with another code.
    #[must_use]
    pub fn status(mut self, status: Status) -> Failure {
        self.status = status;
        self
    }

    /// What is wrong, in one line.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What the user can do about it; empty when there is nothing to say.
    pub fn advice(&self) -> &str {
        self.advice.as_deref().unwrap_or_default()
    }

    /// Prints the failure to standard error; returns the code to end with.
    pub fn report(&self) -> ExitCode {
        eprintln!("manyway: {}", self.what);
        if let Some(advice) = &self.advice {
            eprintln!("  {advice}");
        }
        self.status.into()
    }

    /// The code to end with.
    #[cfg(test)]
    pub fn code(&self) -> Status {
        self.status
    }
}
