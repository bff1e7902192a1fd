//! What the instruments show: sets, holders, sleepers, processes.

use manyway_shm::layout::*;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::{Errno, clock};

use crate::abi::{SemBuf, SetStat};
use crate::attach::Thread;
use crate::engine::{Engine, Holder, Sleeper};
use crate::node;
use crate::slots::{ProcWord, SlotState};

impl Engine {
    pub(crate) fn each_set(&self, f: &mut dyn FnMut(SetStat, u32)) {
        for index in 0..self.arena.header().ids_ready.load(Acquire).min(MAX_SETS) {
            if let Some((_, set)) = self.set_of_index(index) {
                f(self.status(&set), set.head.creator.load(Relaxed));
            }
        }
    }

    pub(crate) fn each_adjustment(&self, id: i32, f: &mut dyn FnMut(Holder)) -> Result<(), Errno> {
        let set = self.set_of_id(id)?;
        for proc in 0..self.procs_high() {
            let Some(p) = self.proc_slot(proc) else { continue };
            let w = ProcWord(p.word.load(Acquire));
            if w.state() != SlotState::Live || self.record(proc, set.index, set.tag).is_none() {
                continue;
            }
            let alive = !self.process_suspect(proc) || !self.process_gone(proc);
            for (num, _) in set.cells() {
                let adj = self.adjustment(proc, &set, num);
                if adj != 0 {
                    f(Holder { pid: w.by(), num, adj: adj as i16, alive });
                }
            }
        }
        Ok(())
    }

    /// Reads nodes without a lock: what a sleeper that leaves meanwhile shows is its last state.
    pub(crate) fn each_sleeper(&self, t: &Thread, id: i32, f: &mut dyn FnMut(Sleeper, &[SemBuf])) -> Result<(), Errno> {
        let set = self.set_of_id(id)?;
        self.reap_threads(t);
        let now = clock::monotonic_ns();
        let mut after = (0, 0);
        // In order of arrival without keeping a list: the next ticket each time.
        loop {
            let next = (0..self.threads_high())
                .filter_map(|slot| {
                    let ctl = self.ctl(slot)?;
                    let here = ctl.set.load(Relaxed) == set.page() && ctl.set_tag.load(Relaxed) == set.tag;
                    let asleep = node::state(ctl.state.load(Acquire)) == node::State::Queued;
                    let at = (ctl.ticket.load(Relaxed), slot + 1);
                    (here && asleep && at > after).then_some((at, slot, ctl))
                })
                .min_by_key(|(at, ..)| *at);
            let Some((at, slot, ctl)) = next else { return Ok(()) };
            after = at;
            let mut ops = [SemBuf::default(); MAX_OPM as usize];
            let mut n = 0;
            for (o, op) in ops.iter_mut().zip(self.node_ops(slot, ctl)) {
                *o = op;
                n += 1;
            }
            let s = Sleeper {
                pid: ctl.pid.load(Relaxed),
                tid: ctl.tid.load(Relaxed),
                blocker: self.blocker(slot, ctl),
                nops: n as u32,
                age_ns: now.saturating_sub(at.0),
            };
            f(s, &ops[..n]);
        }
    }

    pub(crate) fn each_process(&self, f: &mut dyn FnMut(u32)) {
        for proc in 0..self.procs_high() {
            if let Some(p) = self.proc_slot(proc) {
                let w = ProcWord(p.word.load(Acquire));
                if w.state() == SlotState::Live {
                    f(w.by());
                }
            }
        }
    }

    pub(crate) fn count_operations(&self) -> u64 {
        (0..self.arena.header().ids_ready.load(Acquire).min(MAX_SETS))
            .filter_map(|i| self.set_of_index(i))
            .flat_map(|(_, set)| set.cells())
            .map(|(_, c)| c.operations.load(Relaxed))
            .fold(self.arena.header().operations.load(Relaxed), u64::wrapping_add)
    }
}
