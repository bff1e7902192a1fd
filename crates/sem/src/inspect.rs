//! What the instruments show: sets, holders, processes. (Sleepers: `sleepers`.)

use manyway_shm::layout::*;
use manyway_sync::Errno;
use manyway_sync::atomic::Ordering::*;

use crate::abi::SetStat;
use crate::engine::{Engine, Holder};
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
            let alive = !self.process_gone(proc);
            for (num, _) in set.cells() {
                let adj = self.adjustment(proc, &set, num);
                if adj != 0 {
                    f(Holder { pid: w.by(), num, adj: adj as i16, alive });
                }
            }
        }
        Ok(())
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
