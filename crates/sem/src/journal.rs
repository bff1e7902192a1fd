//! The journal of a thread slot: what it is about to lock or has locked, and the step that is committed. docs/crash-model.md has the
//! states and what a recoverer does in each.

/// What the slot holds or is about to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Nothing.
    Idle = 0,
    /// One cell, for an operation with SEM_UNDO. Committed, so that `fin` is to be applied, when `fin` has the head's sequence number.
    Undo,
    /// Two cells of a set, without the set lock. Committed likewise: then `pair` has the values and `fin` the pid.
    Pair,
    /// Some cells of a set, without the set lock; nothing has been changed.
    MultiIntent,
    /// The same; what is staged in them is to be applied.
    MultiCommit,
    /// One cell and its queues.
    Cell,
    /// The set lock, all COMPLEX cells, and the cells that are LOCKED by the slot.
    Set,
    /// As `Set`, all cells; the staged values are to be applied to all of them.
    SetAllCommit,
    /// The registry lock; with a set: perhaps its set lock and some cells too.
    Registry,
    /// Registry, set and all its cells; the removal is to be carried through.
    Remove,
    /// As `Set`; the owner and group in `pair` and the mode in `fin` are to be stored.
    Access,
}

const KINDS: [Kind; 11] = [
    Kind::Idle,
    Kind::Undo,
    Kind::Pair,
    Kind::MultiIntent,
    Kind::MultiCommit,
    Kind::Cell,
    Kind::Set,
    Kind::SetAllCommit,
    Kind::Registry,
    Kind::Remove,
    Kind::Access,
];

/// `head`: {set's page 32 | semnum 16 | sequence 8 | kind 8}, one word, so that a kind never goes with another one's cell.
#[inline]
pub const fn head(kind: Kind, page: u32, num: u16) -> u64 {
    (page as u64) << 32 | (num as u64) << 16 | kind as u64
}
/// A sequence number that `fin`, as it is, has not, in its place there. A head with it is committed by a `fin` with it: one store less than a
/// second head would be.
#[inline(always)]
pub const fn next_seq(fin: u64) -> u64 {
    fin.wrapping_add(1 << 54) & 0xff << 54
}
/// The same in its place in `head`.
#[inline(always)]
pub const fn head_seq(seq: u64) -> u64 {
    seq >> 46
}
/// True when `fin` commits what `head` announced.
pub const fn is_committed(head: u64, fin: u64) -> bool {
    (head >> 8) as u8 == (fin >> 54) as u8
}
/// `fin` from a pid that is in its place in a cell word.
#[inline(always)]
pub const fn fin(pid_bits: u64, value: u64, adj: Option<i16>) -> u64 {
    pid_bits << 12
        | value
        | match adj {
            Some(a) => 1 << 63 | (a as u16 as u64) << 16,
            None => 0,
        }
}

/// Two cells and their final values: {number 16 | value 15} twice.
#[inline]
pub const fn pair(a: (u16, i32), b: (u16, i32)) -> u64 {
    (a.0 as u64) << 16 | a.1 as u64 & 0x7fff | ((b.0 as u64) << 16 | b.1 as u64 & 0x7fff) << 32
}
/// The two cells and values.
pub const fn parse_pair(w: u64) -> [(u16, i32); 2] {
    [((w >> 16) as u16, (w & 0x7fff) as i32), ((w >> 48) as u16, (w >> 32 & 0x7fff) as i32)]
}

/// The parts of `head`; an unknown kind reads as idle.
pub fn parse_head(h: u64) -> (Kind, u32, u16) {
    (KINDS.get((h & 0xff) as usize).copied().unwrap_or(Kind::Idle), (h >> 32) as u32, (h >> 16) as u16)
}

/// Final value, adjustment and pid of one cell: {has adjustment 1 | sequence 8 (54..) | pid 22 (32..) | adjustment 16 | value 15}.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fin {
    /// Value.
    pub value: i32,
    /// Adjustment, when the operation carries SEM_UNDO.
    pub adj: Option<i16>,
    /// Who operated.
    pub pid: u32,
}

impl Fin {
    /// As a word.
    #[inline]
    pub const fn bits(self) -> u64 {
        let (has, adj) = match self.adj {
            Some(a) => (1 << 63, a as u16 as u64),
            None => (0, 0),
        };
        has | (self.pid as u64) << 32 | adj << 16 | self.value as u64 & 0x7fff
    }
    /// From a word.
    pub const fn parse(w: u64) -> Fin {
        let adj = if w >> 63 == 1 { Some((w >> 16) as u16 as i16) } else { None };
        Fin { value: (w & 0x7fff) as i32, adj, pid: (w >> 32) as u32 & 0x3f_ffff }
    }
}

/// A cell's staged final value and adjustment: {stamp 32 | has adjustment 1 | adjustment 16 | value 15}.
#[inline]
pub const fn staged(stamp: u32, value: i32, adj: Option<i16>) -> u64 {
    let (has, adj) = match adj {
        Some(a) => (1 << 31, a as u16 as u64),
        None => (0, 0),
    };
    (stamp as u64) << 32 | has | adj << 15 | value as u64 & 0x7fff
}
/// Stamp, value and adjustment of a staged word.
pub const fn parse_staged(w: u64) -> (u32, i32, Option<i16>) {
    let adj = if w & 1 << 31 != 0 { Some((w >> 15) as u16 as i16) } else { None };
    ((w >> 32) as u32, (w & 0x7fff) as i32, adj)
}

/// What a committed step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// None is committed.
    None,
    /// `fin` for cell `num`; then the sleeper, if any, is marked done.
    One {
        /// The semaphore.
        num: u16,
        /// The sleeper's slot and its node's sequence number.
        sleeper: Option<(u32, u32)>,
    },
    /// What is staged with the slot's stamp, in all cells of the set; then the sleeper, if any, is marked done.
    Many {
        /// The sleeper's slot and its node's sequence number.
        sleeper: Option<(u32, u32)>,
    },
    /// `fin`'s value and pid for cell `num`, and no process has an adjustment there any more (SETVAL).
    SetVal {
        /// The semaphore.
        num: u16,
    },
}

// {sequence 28 (35..) | num 16 (19..) | sleeper slot + 1, 17 (2..) | kind 2}
impl Step {
    /// As a word.
    pub const fn bits(self) -> u64 {
        const fn who(s: Option<(u32, u32)>) -> u64 {
            match s {
                Some((slot, seq)) => (slot as u64 + 1) << 2 | (seq as u64) << 35,
                None => 0,
            }
        }
        match self {
            Step::None => 0,
            Step::One { num, sleeper } => 1 | who(sleeper) | (num as u64) << 19,
            Step::Many { sleeper } => 2 | who(sleeper),
            Step::SetVal { num } => 3 | (num as u64) << 19,
        }
    }
    /// From a word.
    pub const fn parse(w: u64) -> Step {
        let slot = (w >> 2) as u32 & 0x1_ffff;
        let sleeper = if slot == 0 { None } else { Some((slot - 1, (w >> 35) as u32 & 0xfff_ffff)) };
        let num = (w >> 19) as u16;
        match w & 3 {
            1 => Step::One { num, sleeper },
            2 => Step::Many { sleeper },
            3 => Step::SetVal { num },
            _ => Step::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_written() {
        for kind in KINDS {
            assert_eq!(parse_head(head(kind, 0x3ff_ffff, 65469)), (kind, 0x3ff_ffff, 65469));
        }
        for adj in [None, Some(-32768), Some(32767), Some(0)] {
            let f = Fin { value: 32767, adj, pid: 0x3f_ffff };
            assert_eq!(Fin::parse(f.bits()), f);
            let pid_bits = crate::word::pid_bits(f.pid);
            assert_eq!(fin(pid_bits, 32767, adj), f.bits());
            let seq = next_seq(f.bits() | 0xfe << 54);
            assert_eq!((seq, next_seq(seq)), (0xff << 54, 0));
            let (h, w) = (head(Kind::Undo, 7, 9) | head_seq(seq), f.bits() | seq);
            assert_eq!((Fin::parse(w), parse_head(h)), (f, (Kind::Undo, 7, 9)));
            assert!(is_committed(h, w) && !is_committed(h, f.bits()));
        }
        assert_eq!(parse_pair(pair((65535, 32767), (1, 0))), [(65535, 32767), (1, 0)]);
        for sleeper in [None, Some((65535, 0xfff_ffff)), Some((0, 0))] {
            for s in [Step::One { num: 65535, sleeper }, Step::Many { sleeper }, Step::SetVal { num: 3 }, Step::None] {
                assert_eq!(Step::parse(s.bits()), s);
            }
        }
    }
}
