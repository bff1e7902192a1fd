//! A process that carries out commands, and how it is talked to: a command is a line of JSON into its standard input, the answer a line from
//! its standard output, with the reason in place of the answer when it could not.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The process as who started it holds it: takes commands `C`, gives answers `A`. Dropping it kills it, unless it was to be left to end by
/// itself, which it is asked to.
pub struct Process<C, A> {
    child: Child,
    backend: &'static str,
    ends_itself: bool,
    /// None once the input has been closed.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    speaks: PhantomData<fn(C) -> A>,
}

impl<C: Serialize, A: DeserializeOwned + Debug> Process<C, A> {
    /// Starts a program that calls [`serve`], and waits until it is ready. `backend` is told in errors.
    pub fn spawn(mut command: std::process::Command, backend: &'static str, ends_itself: bool) -> Result<Process<C, A>, Error> {
        let program = command.get_program().to_owned();
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(Error::io(format!("cannot start {program:?}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes");
        };
        let output = BufReader::new(output);
        let mut process = Process { child, backend, ends_itself, input: Some(input), output, speaks: PhantomData };
        process.read::<()>()?;
        Ok(process)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command and waits for the answer.
    pub fn ask(&mut self, command: &C) -> Result<A, Error> {
        self.send(command)?;
        self.receive()
    }

    /// Sends a command whose answer `receive` will get.
    pub fn send(&mut self, command: &C) -> Result<(), Error> {
        let mut line = serde_json::to_vec(command).map_err(|e| Error::io("a worker's command")(e.into()))?;
        line.push(b'\n');
        let written = self.input.as_mut().map(|input| input.write_all(&line));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(self.lost("takes no more commands")),
        }
    }

    /// Waits for the answer to the command that was sent.
    pub fn receive(&mut self) -> Result<A, Error> {
        self.read()
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(self.lost("ended")),
            Ok(_) => match serde_json::from_str::<Result<T, String>>(&line) {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(what)) => Err(Error::Worker { pid: self.pid(), what }),
                Err(_) => Err(self.lost(&format!("wrote {line:?}"))),
            },
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// True when [`Process::receive`] will not wait.
    pub fn has_answered(&self) -> bool {
        let mut output = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
        !self.output.buffer().is_empty() || poll(&mut output, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// The error of an answer that does not fit the command.
    pub fn surprised(&self, answer: &A) -> Error {
        self.lost(&format!("answered {answer:?}"))
    }

    fn lost(&self, what: &str) -> Error {
        Error::Lost { pid: self.pid(), backend: self.backend, what: what.to_owned() }
    }

    /// Kills it with SIGKILL and returns at once.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().map_err(Error::io(format!("cannot kill worker {}", self.pid())))
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<(), Error> {
        self.child.wait().map(drop).map_err(Error::io(format!("cannot wait for worker {}", self.pid())))
    }
}

impl<C, A> Drop for Process<C, A> {
    fn drop(&mut self) {
        drop(self.input.take());
        if !self.ends_itself {
            // Fails only when it has ended and been waited for.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// The process's own side: says that it is ready, and carries out each command until its input ends.
pub fn serve<C, A>(mut obey: impl FnMut(C) -> Result<A, Error>) -> Result<(), Error>
where
    C: for<'a> Deserialize<'a>,
    A: Serialize,
{
    let mut result = answer(&Ok(()));
    let mut lines = std::io::stdin().lock().lines();
    while result.is_ok() {
        let Some(line) = lines.next() else { break };
        let command = line.and_then(|text| Ok(serde_json::from_str(&text)?)).map_err(Error::io("a worker's command"))?;
        result = answer(&obey(command).map_err(|error| error.to_string()));
    }
    // A coordinator that does not listen any more has ended: so does this process, in good order.
    Ok(())
}

/// Ends this process after `served`. When it failed, who started it is told, which waits for a line.
pub fn end(served: Result<(), Error>) -> ! {
    std::process::exit(match served {
        Ok(()) => 0,
        Err(error) => {
            // When nobody reads this, the need to tell is gone.
            let _ = answer::<()>(&Err(error.to_string()));
            1
        }
    })
}

fn answer<A: Serialize>(answer: &Result<A, String>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}
