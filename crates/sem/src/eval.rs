//! Evaluation of a call's operations against the values and adjustments that the lock's holder sees (perform_atomic_semop in
//! ipc/sem.c): in array order with running values, all or nothing.

use manyway_sync::Errno;
use manyway_sync::atomic::Ordering::Relaxed;

use crate::abi::{IPC_NOWAIT, SEM_UNDO, SEMAEM, SEMVMX, SemBuf};
use crate::engine::Engine;
use crate::set::SetRef;
use crate::word;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All operations can be carried out.
    Proceeds,
    /// The operation of this index blocks.
    Blocks(u32),
    /// EAGAIN (the first one that blocks carries IPC_NOWAIT) or ERANGE.
    Fails(Errno),
}

impl Engine {
    /// Evaluates `ops` of process slot `proc`. The cells belong to the caller's section.
    pub(crate) fn evaluate(&self, set: &SetRef<'_>, proc: u32, ops: impl Iterator<Item = SemBuf> + Clone) -> Verdict {
        // Bit (num mod 64) of the semaphores seen: a clear bit says that no earlier operation named this one.
        let mut seen = 0u64;
        for (i, op) in ops.clone().enumerate() {
            let Some(cell) = set.cell(op.num as u32) else {
                return Verdict::Fails(Errno::EIO);
            };
            let undo = op.flg as i32 & SEM_UNDO != 0;
            let mut value = word::value(cell.word.load(Relaxed));
            let mut adj = if undo { self.adjustment(proc, set, op.num) } else { 0 };
            let bit = 1 << (op.num % 64);
            if seen & bit != 0 {
                for before in ops.clone().take(i).filter(|b| b.num == op.num) {
                    value += before.op as i32;
                    if before.flg as i32 & SEM_UNDO != 0 {
                        adj -= before.op as i32;
                    }
                }
            }
            seen |= bit;
            let after = value + op.op as i32;
            if (op.op == 0 && value != 0) || after < 0 {
                return if op.flg as i32 & IPC_NOWAIT != 0 { Verdict::Fails(Errno::EAGAIN) } else { Verdict::Blocks(i as u32) };
            }
            if after > SEMVMX {
                return Verdict::Fails(Errno::ERANGE);
            }
            if undo {
                let adj = adj - op.op as i32;
                if !(-SEMAEM - 1..=SEMAEM).contains(&adj) {
                    return Verdict::Fails(Errno::ERANGE);
                }
            }
        }
        Verdict::Proceeds
    }
}
