//! A sleeper's node: the state machine of its word, {sequence 28 | PARKED | state 3}.
//!
//! | from | to | who | under |
//! |---|---|---|---|
//! | Idle(s) | Queued(s+1) | its thread | the lock that owns the queue |
//! | Queued | Queued + PARKED | its thread, before it sleeps | nothing: CAS |
//! | Queued, PARKED or not | Done(result) | who completes it | the lock: CAS, since the thread may park meanwhile |
//! | Queued, PARKED or not | Idle (same s) | its thread (signal, timeout), or who buries it | the lock |
//! | Queued + PARKED | Queued | a nudge (barging) | the lock: CAS |
//!
//! From the publication to the end of its sleep the node belongs to the lock of its queue, from then on to its thread, which may be in
//! another sleep a moment later: who ends a sleep takes the node out of its queue *before* the mark, and reads nothing of it behind.
//!
//! The sequence never goes back, also when the slot is recycled: a step that names an older sleep finds another number.

use manyway_shm::layout::ThreadCtl;
use manyway_sync::Errno;
use manyway_sync::atomic::{AtomicU32, Ordering::*, fence};

const STATE: u32 = 7;
const PARKED: u32 = 8;
const SEQ_SHIFT: u32 = 4;
/// Sequence numbers wrap here.
pub const SEQ_MASK: u32 = 0xfff_ffff;

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// The operation was carried out.
    Done = 2,
    /// EAGAIN: an IPC_NOWAIT operation became the one that blocks.
    Again = 3,
    /// ERANGE.
    Range = 4,
    /// EIDRM.
    Removed = 5,
}

impl Outcome {
    /// As the call's result.
    pub fn result(self) -> Result<(), Errno> {
        match self {
            Outcome::Done => Ok(()),
            Outcome::Again => Err(Errno::EAGAIN),
            Outcome::Range => Err(Errno::ERANGE),
            Outcome::Removed => Err(Errno::EIDRM),
        }
    }
    /// The outcome for an error of an evaluation.
    pub fn of(e: Errno) -> Outcome {
        if e == Errno::ERANGE { Outcome::Range } else { Outcome::Again }
    }
}

/// What a state word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not asleep.
    Idle,
    /// Asleep or about to.
    Queued,
    /// Completed.
    Finished(Outcome),
}

/// The state of a word.
pub const fn state(w: u32) -> State {
    match w & STATE {
        1 => State::Queued,
        2 => State::Finished(Outcome::Done),
        3 => State::Finished(Outcome::Again),
        4 => State::Finished(Outcome::Range),
        5 => State::Finished(Outcome::Removed),
        _ => State::Idle,
    }
}
/// The sequence number of a word.
pub const fn seq(w: u32) -> u32 {
    w >> SEQ_SHIFT
}
/// The word of a queued node that has not parked.
pub const fn queued(seq: u32) -> u32 {
    (seq & SEQ_MASK) << SEQ_SHIFT | 1
}
/// The same, parked.
pub const fn parked(seq: u32) -> u32 {
    queued(seq) | PARKED
}

/// A sleeping call, as far as those read it who hold no lock that keeps it asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Page offset of the set, and the set's tag.
    pub set: (u32, u32),
    /// Its first operation.
    pub op: u64,
    /// How many operations.
    pub nops: u32,
}

/// Writes the call into the node, before it is published. NODE-CALL: the fence puts the end of the last sleep, which the thread has seen,
/// before the new call: whoever reads some of the new one in [`read`] finds, looking again, that the last sleep is over.
pub fn write(ctl: &ThreadCtl, call: Call) {
    fence(Release);
    ctl.op.store(call.op, Relaxed);
    ctl.nops.store(call.nops, Relaxed);
    ctl.set.store(call.set.0, Relaxed);
    ctl.set_tag.store(call.set.1, Relaxed);
}

/// The call of a sleeping node and its sequence number; None when it does not sleep, or its sleep ended meanwhile. NODE-PUBLISH, NODE-CALL.
pub fn read(ctl: &ThreadCtl) -> Option<(Call, u32)> {
    let w = ctl.state.load(Acquire);
    if state(w) != State::Queued {
        return None;
    }
    let set = (ctl.set.load(Relaxed), ctl.set_tag.load(Relaxed));
    let call = Call { set, op: ctl.op.load(Relaxed), nops: ctl.nops.load(Relaxed) };
    fence(Acquire);
    is_queued(ctl, seq(w)).then_some((call, seq(w)))
}

/// Publishes the node as queued; its fields have been written. Returns the sequence number. NODE-PUBLISH: the release pairs with the
/// acquire of whoever walks the nodes in a rebuild.
pub fn publish(ctl: &ThreadCtl) -> u32 {
    let s = seq(ctl.state.load(Relaxed)).wrapping_add(1) & SEQ_MASK;
    ctl.state.store(queued(s), Release);
    s
}

/// True while the node still sleeps with this sequence number.
pub fn is_queued(ctl: &ThreadCtl, s: u32) -> bool {
    ctl.state.load(Acquire) & !PARKED == queued(s)
}

/// How the sleep with this sequence number ended; None: it has not. NODE-DONE: the acquire pairs with the release of [`finish`].
pub fn ended(ctl: &ThreadCtl, s: u32) -> Option<State> {
    let w = ctl.state.load(Acquire);
    (w & !PARKED != queued(s)).then(|| state(w))
}

/// Marks the sleeper as completed. Returns whether it had parked and must be woken; None when it no longer sleeps with this number (the
/// mark was made already). NODE-DONE: the release makes the operation's effects visible to the sleeper, which reads the word by acquire.
pub fn finish(ctl: &ThreadCtl, s: u32, outcome: Outcome) -> Option<bool> {
    let mut w = ctl.state.load(Acquire);
    loop {
        if w & !PARKED != queued(s) {
            return None;
        }
        let done = s << SEQ_SHIFT | outcome as u32;
        match ctl.state.compare_exchange(w, done, AcqRel, Acquire) {
            Ok(_) => return Some(w & PARKED != 0),
            Err(now) => w = now,
        }
    }
}

/// Takes the sleeper out: it is idle again. False: it had been completed.
pub fn withdraw(ctl: &ThreadCtl, s: u32) -> bool {
    let mut w = ctl.state.load(Acquire);
    loop {
        if w & !PARKED != queued(s) {
            return false;
        }
        match ctl.state.compare_exchange(w, s << SEQ_SHIFT, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(now) => w = now,
        }
    }
}

/// The thread is about to sleep. False: something happened, it must not; look again. (A zero-sleeper that was completed before it parked
/// is not woken: only who parked is.)
pub fn park(ctl: &ThreadCtl, s: u32) -> bool {
    match ctl.state.compare_exchange(queued(s), parked(s), AcqRel, Acquire) {
        Ok(_) => true,
        Err(w) => w == parked(s),
    }
}

/// What a sleeper is to wait for: a futex word and the value it must still have. None: the sleep has ended; look again. ZERO-EPOCH: zero
/// sleepers wait for their cell's epoch, which is read before the node is parked. Who ends the sleep finds it parked and bumps the epoch,
/// so that the wait ends; or ends it before it parks, and then it does not park.
pub fn ready_to_wait<'a>(ctl: &'a ThreadCtl, s: u32, epoch: Option<&'a AtomicU32>) -> Option<(&'a AtomicU32, u32)> {
    let (word, expected) = match epoch {
        Some(e) => (e, e.load(Acquire)),
        None => (&ctl.state, parked(s)),
    };
    park(ctl, s).then_some((word, expected))
}

/// Lets all zero-sleepers of a cell look again. ZERO-EPOCH: after the marks (which its release puts before it), before the wake.
pub fn bump_epoch(epoch: &AtomicU32) {
    epoch.fetch_add(1, AcqRel);
}

/// Makes the thread look again without taking it out. True: it had parked and must be woken.
pub fn nudge(ctl: &ThreadCtl, s: u32) -> bool {
    ctl.state.compare_exchange(parked(s), queued(s), AcqRel, Acquire).is_ok()
}
