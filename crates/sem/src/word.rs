//! The cell word and the lock words: bits and the changes that are allowed. docs/segment.md has the tables.

/// Value, 0..=32767.
pub const VALUE: u64 = 0x7fff;
/// Owned by the thread slot in the top bits.
pub const LOCKED: u64 = 1 << 15;
/// A simple operation sleeps in one of the cell's queues.
pub const WAITERS: u64 = 1 << 16;
/// A complex operation that names the cell sleeps; the set lock owns the cell.
pub const COMPLEX: u64 = 1 << 17;
/// The set is removed.
pub const REMOVED: u64 = 1 << 18;
const PID_SHIFT: u32 = 20;
const PID: u64 = 0x3f_ffff << PID_SHIFT;
const TOP_SHIFT: u32 = 42;
const TOP: u64 = !0 << TOP_SHIFT;
const FLAGS: u64 = LOCKED | WAITERS | COMPLEX | REMOVED;

/// The largest incarnation tag.
pub const MAX_TAG: u32 = 0x3f_ffff;

/// A pid in its place.
#[inline]
pub const fn pid_bits(pid: u32) -> u64 {
    (pid as u64) << PID_SHIFT & PID
}
/// A tag in its place.
#[inline]
pub const fn tag_bits(tag: u32) -> u64 {
    (tag as u64) << TOP_SHIFT
}
/// LOCKED by a thread slot.
#[inline]
pub const fn locked_by(slot: u32) -> u64 {
    LOCKED | (slot as u64) << TOP_SHIFT
}
/// The value.
#[inline]
pub const fn value(w: u64) -> i32 {
    (w & VALUE) as i32
}
/// The pid of the last operation.
#[inline]
pub const fn pid(w: u64) -> u32 {
    ((w & PID) >> PID_SHIFT) as u32
}
/// The owner of a LOCKED word.
#[inline]
pub const fn owner(w: u64) -> u32 {
    (w >> TOP_SHIFT) as u32
}
/// The tag of a word that is not LOCKED.
#[inline]
pub const fn tag(w: u64) -> u32 {
    (w >> TOP_SHIFT) as u32
}
/// True when the word has this tag and no flag: the fast path's one test.
#[inline]
pub const fn is_free(w: u64, tag: u32) -> bool {
    (w ^ tag_bits(tag)) & (TOP | FLAGS) == 0
}
/// The value after `op` (±32,768) on a word that has this tag and no flag; None when there is a flag, the value would leave 0..=32767, or
/// `op` is 0 and the value is not. One test: what leaves the value's range carries or borrows into the flags.
#[inline(always)]
pub const fn free_value(w: u64, tag: u32, op: i32) -> Option<u64> {
    let new = w.wrapping_add_signed(op as i64);
    if ((w ^ tag_bits(tag)) | (new ^ tag_bits(tag))) & (TOP | FLAGS) != 0 || (op == 0 && w & VALUE != 0) {
        return None;
    }
    Some(new & VALUE)
}
/// True when the word is LOCKED by the slot.
#[inline]
pub const fn is_locked_by(w: u64, slot: u32) -> bool {
    w & LOCKED != 0 && owner(w) == slot
}
/// The word, LOCKED by a slot.
#[inline]
pub const fn lock(w: u64, slot: u32) -> u64 {
    w & !TOP | locked_by(slot)
}
/// The word of a LOCKED cell, unlocked.
#[inline]
pub const fn unlock(w: u64, tag: u32) -> u64 {
    w & !(TOP | LOCKED) | tag_bits(tag)
}
/// The word with another value and pid.
#[inline]
pub const fn with(w: u64, value: i32, pid: u32) -> u64 {
    w & !(VALUE | PID) | value as u64 & VALUE | pid_bits(pid)
}
/// The word with a flag set or cleared.
#[inline]
pub const fn flag(w: u64, flag: u64, on: bool) -> u64 {
    if on { w | flag } else { w & !flag }
}

/// `otime`: {tag 22 | seconds 42}.
#[inline]
pub const fn stamp(tag: u32, secs: u64) -> u64 {
    tag_bits(tag) | secs
}
/// The seconds of an `otime` with this tag; 0 when it is another incarnation's.
pub const fn stamped(otime: u64, t: u32) -> u64 {
    if tag(otime) == t { otime & !TOP } else { 0 }
}

/// A cell's `holders`.
pub mod holders {
    /// The number of processes whose adjustment is not 0.
    pub const fn count(h: u64) -> u32 {
        (h >> 32) as u32
    }
    /// The slot of the only one.
    pub const fn only(h: u64) -> Option<u32> {
        if count(h) == 1 { Some(h as u32) } else { None }
    }
    /// After a process's adjustment went from `was` to `is`.
    #[inline]
    pub const fn changed(h: u64, proc: u32, was: i32, is: i32) -> u64 {
        match (was == 0, is == 0) {
            (true, false) => (h ^ proc as u64).wrapping_add(1 << 32),
            (false, true) => (h ^ proc as u64).wrapping_sub(1 << 32),
            _ => h,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_overlap() {
        assert_eq!(VALUE & FLAGS | VALUE & PID | FLAGS & PID | PID & TOP, 0);
        assert_eq!((VALUE | FLAGS | PID | TOP) | 1 << 19, u64::MAX);
    }

    #[test]
    fn a_word_survives_lock_and_unlock() {
        let w = with(tag_bits(77) | WAITERS, 32767, 0x3f_ffff);
        let l = lock(w, 65535);
        assert!(is_locked_by(l, 65535) && !is_locked_by(l, 77));
        assert_eq!(unlock(l, 77), w);
        assert_eq!((value(l), pid(l)), (32767, 0x3f_ffff));
        assert!(!is_free(w, 77) && is_free(flag(w, WAITERS, false), 77) && !is_free(flag(w, WAITERS, false), 78));
    }

    #[test]
    fn one_test_finds_flags_and_range() {
        let free = |value| with(tag_bits(5), value, 0x3f_ffff);
        for (value, op, after) in [
            (0, 1, Some(1)),
            (1, -1, Some(0)),
            (0, -1, None),
            (0, -32768, None),
            (32767, -32768, None),
            (32767, -32767, Some(0)),
            (32767, 1, None),
            (32767, 32767, None),
            (1, 32767, None),
            (0, 32767, Some(32767)),
            (0, 0, Some(0)),
            (3, 0, None),
        ] {
            assert_eq!(free_value(free(value), 5, op), after, "{value} {op}");
            assert_eq!(free_value(free(value), 6, op), None);
            for flag in [LOCKED, WAITERS, COMPLEX, REMOVED] {
                assert_eq!(free_value(free(value) | flag, 5, op), None);
            }
        }
    }

    #[test]
    fn holders_name_the_only_one() {
        let mut h = 0;
        h = holders::changed(h, 5, 0, 1);
        assert_eq!(holders::only(h), Some(5));
        h = holders::changed(h, 9, 0, -3);
        h = holders::changed(h, 9, -3, -4);
        assert_eq!((holders::count(h), holders::only(h)), (2, None));
        h = holders::changed(h, 5, 1, 0);
        assert_eq!(holders::only(h), Some(9));
        assert_eq!(holders::changed(h, 9, -4, 0), 0);
    }
}
