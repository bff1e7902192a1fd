//! Who sleeps on a set, for the instruments. They have memory to sort in; the C library has not, and does not ask.

use manyway_shm::layout::MAX_OPM;
use manyway_sync::atomic::{Ordering::*, fence};
use manyway_sync::{Errno, clock};

use crate::abi::SemBuf;
use crate::attach::Thread;
use crate::engine::{Engine, Sleeper};
use crate::node;

impl Engine {
    /// Reads nodes without a lock: a sleeper that leaves meanwhile may be missing.
    pub(crate) fn each_sleeper(&self, t: &Thread, id: i32, f: &mut dyn FnMut(Sleeper, &[SemBuf])) -> Result<(), Errno> {
        let set = self.set_of_id(id)?;
        self.reap_threads(t);
        let now = clock::monotonic_ns();
        let mut asleep: Vec<_> = (0..self.threads_high())
            .filter_map(|slot| {
                let ctl = self.ctl(slot)?;
                let (_, seq) = self.asleep_here(&set, ctl)?;
                Some((ctl.ticket.load(Relaxed), slot, seq))
            })
            .collect();
        asleep.sort_unstable();
        for (ticket, slot, seq) in asleep {
            let Some(ctl) = self.ctl(slot) else { continue };
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
                age_ns: now.saturating_sub(ticket),
            };
            fence(Acquire); // NODE-CALL: as in `node::read`, a look again behind all that was read.
            if node::is_queued(ctl, seq) {
                f(s, &ops[..n]);
            }
        }
        Ok(())
    }
}
