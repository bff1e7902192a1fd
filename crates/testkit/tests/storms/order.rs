//! A look at the sleepers, over and over, while they come and go: who was served, and who that came before still waits. And who recovers
//! whom, so that it can be killed over it.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use manyway_sem::node::{self, Outcome, State};
use manyway_sem::slotword::{SlotState, is_marked};

use crate::audit::Audit;
use crate::ledger::Count;

/// Looks until told to stop. `strict`: the order of arrival is kept. `kill` is given the pid of a recoverer.
pub fn watch(a: &Audit<'_>, strict: bool, stop: &AtomicBool, kill: &dyn Fn(u32)) {
    while !stop.load(SeqCst) {
        if strict {
            look(a);
        }
        for _ in 0..20 {
            if let Some(pid) = recoverer(a) {
                kill(pid);
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// Of two simple sleepers for as much of the same semaphore, the one that came first is served first.
fn look(a: &Audit<'_>) {
    let before: Vec<_> = a.nodes().into_iter().filter(|n| n.call.nops == 1).collect();
    std::thread::sleep(Duration::from_micros(60));
    // Who was served first, then who still waits: a later look at the one who came earlier.
    let served: Vec<_> = before
        .iter()
        .filter(|n| {
            let w = n.ctl.state.load(Acquire);
            node::seq(w) == n.seq && node::state(w) == State::Finished(Outcome::Done)
        })
        .collect();
    for n in served {
        for m in before.iter().filter(|m| m.slot != n.slot && m.call == n.call) {
            let waits = node::is_queued(m.ctl, m.seq);
            a.ledger.count(Count::OrdersJudged);
            if waits && m.ticket < n.ticket && !is_marked(m.ctl) && node::is_queued(m.ctl, m.seq) {
                a.ledger.complain(format_args!(
                    "slot {} (ticket {}) was served before slot {} (ticket {}), which still waits: {:x?}",
                    n.slot, n.ticket, m.slot, m.ticket, n.call
                ));
            }
        }
    }
}

/// The process that recovers a slot now, if there is one.
fn recoverer(a: &Audit<'_>) -> Option<u32> {
    let threads = (0..a.threads_high()).find_map(|s| a.thread_word(s).recoverer());
    let slot = threads.or_else(|| (0..a.procs_high()).find_map(|p| a.proc_word(p).recoverer()))?;
    let of = a.thread_word(slot);
    let process = a.proc_word(of.by());
    (of.state() == SlotState::Live && process.state() == SlotState::Live).then(|| process.by())
}
