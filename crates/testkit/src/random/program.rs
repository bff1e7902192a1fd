//! What a random program is, and how one is drawn.

use fastrand::Rng;

use crate::protocol::{Op, add};

/// One thing that a worker does, or that is done to it. `set` and `num` are taken modulo what there is.
#[expect(missing_docs, reason = "the fields are named as the C functions' parameters are")]
#[derive(Clone, Debug)]
pub enum Act {
    /// semop; with a timeout that ends within the step, or with one that never ends.
    Op { set: usize, ops: Vec<Op>, timeout: Timeout },
    /// SETVAL.
    SetVal { set: usize, num: u16, val: u16 },
    /// SETALL.
    SetAll { set: usize, vals: [u16; 4] },
    /// IPC_RMID, and a new set in its place.
    Remove { set: usize },
    /// A handled signal to a sleeper.
    Signal,
    /// SIGKILL to anybody; a new worker takes its place.
    Kill,
    /// exit; a new worker takes its place.
    Exit,
    /// execve.
    Exec,
    /// unshare(CLONE_SYSVSEM) of a process of one thread.
    Unshare,
    /// fork: the child takes part.
    Fork,
    /// A new thread, which takes part and shares its process's adjustments.
    Thread,
    /// The end of such a thread.
    ThreadExit,
}

/// The timeout of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// semop.
    None,
    /// A few milliseconds: the step waits for the end.
    Short,
    /// Longer than the test.
    Long,
}

/// One step. `who` is taken modulo the workers that can do it.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which worker.
    pub who: usize,
    /// What.
    pub act: Act,
}

/// A random program.
#[derive(Clone, Debug)]
pub struct Program {
    /// How many workers.
    pub workers: usize,
    /// How many semaphores each set has.
    pub sets: Vec<usize>,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Program {
    /// The program of a seed.
    pub fn draw(seed: u64) -> Program {
        let mut r = Rng::with_seed(seed);
        let workers = r.usize(2..=5);
        let sets: Vec<usize> = (0..r.usize(1..=2)).map(|_| r.usize(1..=4)).collect();
        // Some programs are of simple operations only: their sleepers have queues of their own.
        let simple_only = r.u8(0..4) == 0;
        let steps = (0..r.usize(8..=40)).map(|_| Step { who: r.usize(0..64), act: act(&mut r, &sets, simple_only) }).collect();
        Program { workers, sets, steps }
    }
}

fn act(r: &mut Rng, sets: &[usize], simple_only: bool) -> Act {
    let set = r.usize(0..sets.len());
    let n = sets[set] as u16;
    match r.u8(0..100) {
        0..69 => {
            let timeout = match r.u8(0..20) {
                0 => Timeout::Short,
                1..3 => Timeout::Long,
                _ => Timeout::None,
            };
            Act::Op { set, ops: ops(r, n, simple_only), timeout }
        }
        69..77 => Act::SetVal { set, num: r.u16(0..n), val: value(r) },
        77..80 => Act::SetAll { set, vals: [(); 4].map(|()| value(r)) },
        80..81 => Act::Remove { set },
        81..86 => Act::Signal,
        86..91 => Act::Kill,
        91..93 => Act::Exit,
        93..95 => Act::Exec,
        95..96 => Act::Fork,
        96..98 => Act::Thread,
        98..99 => Act::ThreadExit,
        _ => Act::Unshare,
    }
}

/// Mostly small, so that calls meet; sometimes at the upper end.
fn value(r: &mut Rng) -> u16 {
    match r.u8(0..12) {
        0 => 32_767,
        1 => 32_766,
        _ => r.u16(0..4),
    }
}

fn ops(r: &mut Rng, n: u16, simple_only: bool) -> Vec<Op> {
    let len = if simple_only { 1 } else { [1, 1, 1, 1, 2, 2, 2, 3, 4][r.usize(0..9)] };
    let mut ops: Vec<Op> = (0..len).map(|_| op(r, n)).collect();
    if len > 1 && ops.iter().all(|o| o.op == 0) {
        // Of such a call the kernel may count another operation than Manyway, unless it names every semaphore (rule 37).
        ops.extend((0..n).map(|num| add(num, 0)));
    }
    ops
}

fn op(r: &mut Rng, n: u16) -> Op {
    let by = match r.u8(0..60) {
        0..24 => -r.i16(1..=2),
        24..30 => -3,
        30..42 => 0,
        42..57 => r.i16(1..=2),
        57 => 32_767,
        58 => -32_767,
        _ => i16::MIN,
    };
    let mut op = add(r.u16(0..n), by);
    if r.u8(0..5) < 2 {
        op = op.undo();
    }
    if r.u8(0..8) == 0 {
        op = op.nowait();
    }
    op
}
