//! A set as a call sees it: found by id, cells by number.

use manyway_shm::Arena;
use manyway_shm::layout::*;
use manyway_sync::Errno;
use manyway_sync::atomic::{AtomicU64, Ordering::*};

use crate::engine::Engine;
pub(crate) use crate::id::{INDEX_BITS, IdEntry};

/// A set in the arena, of one incarnation.
#[derive(Clone, Copy)]
pub(crate) struct SetRef<'e> {
    pub(crate) arena: &'e Arena,
    pub(crate) head: &'e SetHead,
    /// Byte offset of the set.
    pub(crate) at: u64,
    pub(crate) tag: u32,
    pub(crate) nsems: u32,
    pub(crate) index: u32,
}

impl<'e> SetRef<'e> {
    /// The set at `at`, whatever its incarnation is now; the caller says which one it means.
    #[inline]
    pub(crate) fn at(arena: &'e Arena, at: u64, tag: u32, index: u32) -> Option<SetRef<'e>> {
        let head: &SetHead = arena.at(at)?;
        let nsems = head.nsems.load(Relaxed);
        // More than any set can have is damage.
        (nsems <= MAX_MSL).then_some(SetRef { arena, head, at, tag, nsems, index })
    }
    /// The cell of a semaphore; None beyond the last one.
    #[inline]
    pub(crate) fn cell(&self, num: u32) -> Option<&'e Cell> {
        if num >= self.nsems {
            return None;
        }
        self.arena.at(self.at + size_of::<SetHead>() as u64 + num as u64 * size_of::<Cell>() as u64)
    }
    /// All cells, with their numbers. Ends early where the set's size is not to be believed.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (u16, &'e Cell)> + Clone + use<'e> {
        let set = *self;
        (0..self.nsems.min(MAX_MSL)).map_while(move |n| set.cell(n).map(|c| (n as u16, c)))
    }
    /// Page offset, as journals and nodes name it.
    pub(crate) fn page(&self) -> u32 {
        (self.at / PAGE) as u32
    }
    /// The id that programs use.
    pub(crate) fn id(&self) -> i32 {
        (self.head.seq.load(Relaxed) << INDEX_BITS | self.index) as i32
    }
}

impl Engine {
    /// The word of the id table for an index.
    #[inline]
    pub(crate) fn id_word(&self, index: u32) -> Option<&AtomicU64> {
        if index >= self.ids_known.load(Relaxed) {
            let ready = self.arena.header().ids_ready.load(Acquire).min(MAX_SETS);
            self.ids_known.store(ready, Relaxed);
            if index >= ready {
                return None;
            }
        }
        self.arena.at(IDS_AT + index as u64 * 8)
    }

    /// ID-PUBLISH: this acquire pairs with the release store of a set's creation: who finds the id sees the set initialised.
    #[inline]
    pub(crate) fn set_of_index(&self, index: u32) -> Option<(IdEntry, SetRef<'_>)> {
        let e = IdEntry::find(self.id_word(index)?);
        // Where no set begins, or there is none, is damage.
        if e.0 == 0 || !self.arena.is_set(e.at()) {
            return None;
        }
        SetRef::at(&self.arena, e.at(), e.tag(), index).filter(|set| set.nsems > 0).map(|set| (e, set))
    }

    /// The set of an id; EINVAL when there is none.
    #[inline]
    pub(crate) fn set_of_id(&self, id: i32) -> Result<SetRef<'_>, Errno> {
        if id < 0 {
            return Err(Errno::EINVAL);
        }
        match self.set_of_index(id as u32 & ((1 << INDEX_BITS) - 1)) {
            Some((e, set)) if e.seq() == id as u32 >> INDEX_BITS => Ok(set),
            _ if self.is_lost() => Err(Errno::EIO),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Why there is no semaphore of a number that is beyond the set's size: EFBIG, unless the set was removed after it was looked up. Then its size
    /// may have been read from what lies in its place now.
    #[cold]
    pub(crate) fn beyond(&self, set: &SetRef<'_>) -> Errno {
        match self.set_of_index(set.index) {
            Some((e, _)) if e.tag() == set.tag => Errno::EFBIG,
            _ => Errno::EIDRM,
        }
    }

    /// The set that lies on a page, of whatever incarnation: what a dead slot has locked of it keeps it from being removed.
    pub(crate) fn set_on_page(&self, page: u32) -> Option<SetRef<'_>> {
        let head: &SetHead = self.arena.at(page as u64 * PAGE)?;
        self.set_of_page(page, head.tag.load(Relaxed))
    }

    /// The set that a node names, provided that the page is where sets begin.
    pub(crate) fn set_of_page(&self, page: u32, tag: u32) -> Option<SetRef<'_>> {
        let at = page as u64 * PAGE;
        if !self.arena.is_set(at) {
            return None;
        }
        let set = SetRef::at(&self.arena, at, tag, 0)?;
        let index = set.head.index.load(Relaxed);
        (index < MAX_SETS).then_some(SetRef { index, ..set })
    }
}
