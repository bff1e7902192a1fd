//! Work that takes a known time and no memory.

use std::hint::black_box;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// So many turns of an empty loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy(pub u64);

impl Busy {
    /// Work of about so many nanoseconds on this machine when it is quiet: the fastest of several tries says how long a turn takes.
    pub fn of(ns: u64) -> Busy {
        const TURNS: u64 = 100_000;
        let took = |_| {
            let start = Instant::now();
            Busy(TURNS).run();
            start.elapsed().as_nanos() as u64
        };
        let best = (0..50).map(took).min().unwrap_or(1).max(1);
        Busy(ns * TURNS / best)
    }

    /// Does it.
    #[inline(always)]
    pub fn run(self) {
        for turn in 0..self.0 {
            black_box(turn);
        }
    }
}
