//! The processes of a storm: started, continued, killed, waited for.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use nix::errno::Errno as Os;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{FLEET, Storm};
use crate::audit::Losses;
use crate::ledger::{Count, Crew, Ledger, Unit};
use crate::worker::{self, Orders};

/// Kills a process of the storm, if it still is one.
pub(super) fn kill_worker(ledger: &Ledger, killed: &Mutex<HashSet<u32>>, pid: u32) -> bool {
    let mut killed = killed.lock().expect("nobody panics here");
    let known = ledger.enlisted().any(|(_, p)| p == pid);
    known && killed.insert(pid) && kill(Pid::from_raw(pid as i32), Signal::SIGKILL).is_ok()
}

impl Storm<'_> {
    pub(super) fn kill(&self, pid: u32) {
        if kill_worker(self.ledger, self.killed, pid) {
            self.ledger.count(Count::Kills);
        }
    }

    /// Continues the stopped whose time has come, or all.
    pub(super) fn let_go(&mut self, all: bool) {
        let now = Instant::now();
        self.stopped.retain(|(pid, until)| {
            let stay = !all && now < *until;
            if !stay {
                let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGCONT);
            }
            stay
        });
    }

    /// Starts workers until there are as many as there should be.
    pub(super) fn keep_up(&mut self) {
        let now: HashSet<u32> = self.ledger.enlisted().map(|(_, pid)| pid).collect();
        for pid in now.difference(&self.present) {
            if self.past.remove(pid) {
                self.ledger.count(Count::PidsReused);
            }
        }
        self.present = now;
        self.starting.retain(|pid| !self.present.contains(pid));
        for _ in self.present.len() + self.starting.len()..FLEET {
            self.started += 1;
            let orders = Orders {
                dir: self.dir.clone(),
                ledger: self.ledger_path.clone(),
                seed: self.weather.seed.wrapping_mul(0x9e37_79b9).wrapping_add(self.started),
                c: self.random.u8(..4) == 0,
                before: None,
            };
            let mut command = worker::command(&orders, &self.weather.library);
            match command.stdin(Stdio::null()).spawn() {
                Ok(child) => self.starting.insert(child.id()),
                // No pid is left.
                Err(_) => break,
            };
        }
    }

    /// The watcher, or the next one when it was killed.
    pub(super) fn start_watcher(&mut self) {
        if let Some(command) = &self.weather.command {
            let mut watcher = Command::new(command);
            watcher.args(["__watcher", "--reap", "--stay"]).arg(&self.dir).stdin(Stdio::null());
            self.watcher = watcher.spawn().ok().map(|child| child.id());
        }
    }

    /// Waits for those who have ended. Only those may have ended that were killed, or had done enough.
    pub(super) fn reap(&mut self) -> Result<(), String> {
        loop {
            let mut killed = self.killed.lock().expect("nobody panics here");
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Os::ECHILD) => return Ok(()),
                Err(e) => return Err(format!("waitpid: {e}")),
                Ok(status) => status,
            };
            let Some(pid) = status.pid().map(|p| p.as_raw() as u32) else { continue };
            let was_killed = killed.remove(&pid);
            for (crew, _) in self.ledger.enlisted().filter(|(_, p)| *p == pid) {
                Self::close(self.ledger, &mut self.losses, crew);
            }
            drop(killed);
            self.past.insert(pid);
            self.starting.remove(&pid);
            let watcher = self.watcher == Some(pid);
            if watcher {
                self.watcher = None;
                if !self.over {
                    self.start_watcher();
                }
            }
            match status {
                WaitStatus::Exited(_, 0) if !watcher => {}
                WaitStatus::Signaled(_, Signal::SIGKILL, _) if was_killed || self.over => {}
                // Its complaint is in the ledger.
                WaitStatus::Exited(_, worker::COMPLAINED) => {}
                other => return Err(format!("{} ended by itself: {other:?}", if watcher { "the watcher" } else { "a worker" })),
            }
        }
    }

    /// An entry whose process is gone, or has another one: what plain units it notes are lost.
    pub(super) fn close(ledger: &Ledger, losses: &mut Losses, crew: &Crew) {
        for hand in &crew.hands {
            let (which, certain, perhaps) = match hand.noted() {
                Unit::None => (None, 0, 0),
                Unit::Taking(s, num) | Unit::Giving(s, num) => (Some((s, num)), 0, 1),
                Unit::Held(s, num) => (Some((s, num)), 1, 0),
            };
            if let Some(which) = which {
                let lost = losses.entry(which).or_default();
                *lost = (lost.0 + certain, lost.1 + perhaps);
                ledger.count(Count::Losses);
            }
            hand.note(Unit::None);
            hand.at.store(0, SeqCst);
            hand.until.store(0, SeqCst);
        }
        crew.ended.store(0, SeqCst);
        crew.pid.store(0, SeqCst);
    }
}
