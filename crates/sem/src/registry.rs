//! Making, finding and removing sets; the registry lock's caches and how they are made anew.

use manyway_shm::alloc::Kind as Object;
use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU16, Ordering::*};
use manyway_sync::{Errno, clock, sys};

use crate::abi::*;
use crate::attach::{Me, Thread, wiped};
use crate::edges::{self, commit};
use crate::engine::Engine;
use crate::journal::{Kind, head};
use crate::lock::Wait;
use crate::set::{INDEX_BITS, IdEntry, SetRef};
use crate::slots::{ProcWord, SlotState, ThreadWord};
use crate::step::Journal;
use crate::wake::Wakes;
use crate::word;

/// The least number of ids that the cyclic index goes through (ipc_min_cycle in ipc/util.c).
const MIN_CYCLE: u32 = 64;
/// Sequence numbers wrap here (ipcid_seq_max: ids stay positive).
const SEQ_MAX: u32 = 0xffff;

fn bucket(key: u32) -> usize {
    // ftok's keys differ in few bits: mix them.
    (key.wrapping_mul(0x9e37_79b1) >> 19) as usize % KEY_BUCKETS
}

impl Engine {
    fn bucket_word(&self, key: u32) -> Option<&AtomicU16> {
        self.arena.at(KEY_HASH_AT + bucket(key) as u64 * 2)
    }

    pub(crate) fn find_key(&self, key: u32) -> Option<SetRef<'_>> {
        let mut next = self.bucket_word(key)?.load(Relaxed) as u32;
        for _ in 0..MAX_SETS {
            let (_, set) = self.set_of_index(next.checked_sub(1)?)?;
            if set.head.key.load(Relaxed) == key {
                return Some(set);
            }
            next = set.head.next_key.load(Relaxed);
        }
        None
    }

    fn hash_in(&self, set: &SetRef<'_>) {
        let key = set.head.key.load(Relaxed);
        if key != IPC_PRIVATE as u32
            && let Some(b) = self.bucket_word(key)
        {
            set.head.next_key.store(b.load(Relaxed) as u32, Relaxed);
            b.store(set.index as u16 + 1, Relaxed);
        }
    }

    fn hash_out(&self, set: &SetRef<'_>) {
        let key = set.head.key.load(Relaxed);
        let Some(b) = self.bucket_word(key).filter(|_| key != IPC_PRIVATE as u32) else {
            return;
        };
        let after = set.head.next_key.load(Relaxed);
        if b.load(Relaxed) as u32 == set.index + 1 {
            b.store(after as u16, Relaxed);
            return;
        }
        let mut next = b.load(Relaxed) as u32;
        for _ in 0..MAX_SETS {
            let Some((_, s)) = next.checked_sub(1).and_then(|i| self.set_of_index(i)) else {
                return;
            };
            next = s.head.next_key.load(Relaxed);
            if next == set.index + 1 {
                s.head.next_key.store(after, Relaxed);
                return;
            }
        }
    }

    fn begin_registry(&self, t: &Thread, me: &Me<'_>, set: Option<&SetRef<'_>>) -> Result<(), Errno> {
        match set {
            Some(set) => me.ctl.begin(Kind::Registry, set, 0),
            None => {
                me.ctl.step.store(0, Relaxed);
                commit(&me.ctl.head, head(Kind::Registry, 0, 0));
            }
        }
        self.lock_registry(t, me.slot, Wait::Call)
    }

    /// semget(2). A set that it makes has the first of its semaphores at `values`, the others at 0, when it is first seen.
    pub(crate) fn get(&self, t: &Thread, key: i32, nsems: i32, flags: i32, values: &[u16]) -> Result<i32, Errno> {
        let limits = self.limits();
        if nsems < 0 || nsems > limits.msl as i32 {
            return Err(Errno::EINVAL);
        }
        let me = self.enter_as_me(t)?;
        if let Err(e) = self.begin_registry(t, &me, None) {
            self.leave(t);
            return Err(e);
        }
        let r = if self.arena.has_ended() {
            // What was found here would not be what others find under the same name.
            Err(Errno::ENOSYS)
        } else if key == IPC_PRIVATE {
            self.make_set(&me, key, nsems as u32, flags, values)
        } else {
            match self.find_key(key as u32) {
                None if flags & IPC_CREAT == 0 => Err(Errno::ENOENT),
                None => self.make_set(&me, key, nsems as u32, flags, values),
                Some(_) if flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0 => Err(Errno::EEXIST),
                Some(set) if nsems as u32 > set.nsems => Err(Errno::EINVAL),
                Some(set) if !self.permits(&set, flags as u32) => Err(Errno::EACCES),
                Some(set) => Ok(set.id()),
            }
        };
        self.unlock_registry();
        self.leave(t);
        r
    }

    fn make_set(&self, me: &Me<'_>, key: i32, nsems: u32, flags: i32, values: &[u16]) -> Result<i32, Errno> {
        let (h, limits) = (self.arena.header(), self.limits());
        if nsems == 0 {
            return Err(Errno::EINVAL);
        }
        let (sets, sems) = (h.sets.load(Relaxed), h.sems.load(Relaxed));
        if sems as u64 + nsems as u64 > limits.mns as u64 || sets >= limits.mni {
            return Err(Errno::ENOSPC);
        }
        let (index, seq) = self.next_index(sets, limits.mni)?;
        if index >= h.ids_ready.load(Relaxed) {
            let first = index & !511;
            self.arena.populate(IDS_AT + first as u64 * 8, PAGE)?;
            h.ids_ready.store(first + 512, Release);
        }
        let kind = Object::for_set(nsems).ok_or(Errno::EINVAL)?;
        let bytes = size_of::<SetHead>() as u64 + nsems as u64 * size_of::<Cell>() as u64;
        let at = self.arena.alloc(kind, bytes).map_err(|e| if e == Errno::ENOSPC { Errno::ENOMEM } else { e })?;
        let mut tag = h.last_tag.load(Relaxed).wrapping_add(1) & word::MAX_TAG;
        if tag == 0 {
            tag = 1;
        }
        h.last_tag.store(tag, Relaxed);
        let set = SetRef::at(&self.arena, at, tag, index).ok_or(Errno::EIO)?;
        let s = set.head;
        let (uid, gid) = self.maker();
        for (w, v) in [
            (&s.tag, tag),
            (&s.nsems, nsems),
            (&s.mode, flags as u32 & 0o777),
            (&s.uid, uid),
            (&s.gid, gid),
            (&s.cuid, uid),
            (&s.cgid, gid),
            (&s.key, key as u32),
            (&s.index, index),
            (&s.seq, seq),
            (&s.mode_gen, 1),
            (&s.creator, me.pid),
            (&s.alter.head, 0),
            (&s.alter.tail, 0),
            (&s.consts.head, 0),
            (&s.consts.tail, 0),
            (&s.complex, 0),
            (&s.next_key, 0),
        ] {
            w.store(v, Relaxed);
        }
        s.ctime.store(clock::realtime_secs(), Relaxed);
        let set = SetRef { nsems, ..set };
        for (num, c) in set.cells() {
            for w in [&c.zero.head, &c.zero.tail, &c.alter.head, &c.alter.tail, &c.ncomplex] {
                w.store(0, Relaxed);
            }
            for w in [&c.otime, &c.staged, &c.holders, &c.operations] {
                w.store(0, Relaxed);
            }
            // Never set back: a sleeper of the last incarnation may still look at it.
            c.zepoch.fetch_add(1, Relaxed);
            let value = values.get(num as usize).map_or(0, |&v| v.min(SEMVMX as u16));
            c.word.store(word::tag_bits(tag) | value as u64, Release);
        }
        s.lock.store(word::tag_bits(tag), Release);
        // In this order: who dies in between has skipped a sequence number; the other way round ids would come again.
        h.last_seq.store(seq, Relaxed);
        h.last_index.store(index + 1, Relaxed);
        h.sets.store(sets.wrapping_add(1), Relaxed);
        h.sems.store(sems.wrapping_add(nsems), Relaxed);
        self.hash_in(&set);
        // ID-PUBLISH: the set is there from here on.
        IdEntry::new(seq, at, tag).publish(self.id_word(index).ok_or(Errno::EIO)?);
        Ok((seq << INDEX_BITS | index) as i32)
    }

    /// The next free index from the last one, cyclic (ipc_idr_alloc in ipc/util.c), and its sequence number, which grows at each wrap.
    fn next_index(&self, sets: u32, mni: u32) -> Result<(u32, u32), Errno> {
        let h = self.arena.header();
        let (start, seq) = (h.last_index.load(Relaxed), h.last_seq.load(Relaxed));
        let cycle = (sets.saturating_mul(3) / 2).max(MIN_CYCLE).min(mni);
        let free = |i: u32| self.id_word(i).is_none_or(|w| w.load(Relaxed) == 0);
        let from = |i: u32| if i < start { seq.wrapping_add(1) % (SEQ_MAX + 1) } else { seq };
        (start.min(cycle)..cycle)
            .chain(0..start.min(cycle))
            .chain(cycle..mni)
            .find(|&i| free(i) && (i != 0 || from(i) != 0))
            .map(|i| (i, from(i)))
            // Id 0 is the one that is never given out: with a single possible index take the next sequence number.
            .or_else(|| (mni == 1 && free(0)).then_some((0, 1)))
            .ok_or(Errno::ENOSPC)
    }

    /// IPC_RMID.
    pub(crate) fn remove_set(&self, t: &Thread, id: i32) -> Result<(), Errno> {
        let set = self.set_of_id(id)?;
        if !self.owns(&set) {
            return Err(Errno::EPERM);
        }
        let mut wakes = Wakes::new();
        let me = self.enter_as_me(t)?;
        if let Err(e) = self.begin_registry(t, &me, Some(&set)) {
            self.leave(t);
            return Err(e);
        }
        let r = self.remove_locked(t, &me, id, &set, &mut wakes);
        self.unlock_registry();
        wakes.wake();
        self.leave(t);
        r
    }

    fn remove_locked<'e>(&'e self, t: &Thread, me: &Me<'e>, id: i32, set: &SetRef<'e>, wakes: &mut Wakes<'e>) -> Result<(), Errno> {
        match self.set_of_id(id) {
            Ok(now) if now.tag == set.tag => {}
            _ => return Err(Errno::EINVAL),
        }
        // The id table has the set, and the registry is ours: words that say that it is gone are damaged, and go with it.
        match self.lock_set(t, me.slot, set, Wait::Call) {
            Ok(()) => {}
            Err(Errno::EIDRM | Errno::EIO) => set.head.lock.store(word::locked_by(me.slot), Release),
            Err(e) => return Err(e),
        }
        for (num, cell) in set.cells() {
            // Likewise a cell that says so: it is locked for nobody.
            if let Err(e) = self.lock_cell(t, me.slot, set, num, cell, Wait::Call) {
                self.unlock_cells(me.slot, set, set.cells().map(|(n, _)| n));
                self.unlock_set(set);
                return Err(e);
            }
        }
        // All locks are held: from here on the removal is carried through, by us or by who recovers us.
        commit(&me.ctl.head, head(Kind::Remove, set.page(), 0));
        self.carry_removal(set, false, wakes);
        // Sleepers look at the set no more once they are marked; wake before the memory goes, so that a wait on it ends.
        wakes.wake();
        // A removal that is begun again would be that of the next set in this memory.
        commit(&me.ctl.head, head(Kind::Registry, 0, 0));
        self.arena.free(set.at);
        Ok(())
    }

    /// Everything of a removal but freeing the memory. Begun again after a death (`again`) it does no harm.
    pub(crate) fn carry_removal<'e>(&'e self, set: &SetRef<'e>, again: bool, wakes: &mut Wakes<'e>) {
        let h = self.arena.header();
        if let Some(w) = self.id_word(set.index) {
            let e = IdEntry(w.load(Relaxed));
            if e.0 != 0 && e.tag() == set.tag {
                if !again {
                    self.hash_out(set);
                    h.sets.store(h.sets.load(Relaxed).saturating_sub(1), Relaxed);
                    h.sems.store(h.sems.load(Relaxed).saturating_sub(set.nsems), Relaxed);
                    let done = set.cells().fold(0u64, |n, (_, c)| n.wrapping_add(c.operations.load(Relaxed)));
                    h.operations.store(h.operations.load(Relaxed).wrapping_add(done), Relaxed);
                }
                IdEntry::withdraw(w);
            }
        }
        self.end_all(set, again, wakes);
        for proc in 0..self.procs_high() {
            self.free_record(proc, set.index);
        }
        edges::close_set(&set.head.lock, set.cells().map(|(_, cell)| cell));
    }

    /// Gives back the pages that freed objects have kept, if the calling process, which has just taken its place, is the only one here. Nobody
    /// can touch them then: whoever knows of a set looked it up when he had a place, places are given up by a process's end only, and
    /// what is free now no later look-up finds (docs/segment.md, *Pages of what is freed*).
    #[cold]
    pub(crate) fn give_back_if_alone(&self, t: &Thread) {
        // Other threads of this process may have looked something up already; a fork's child may be in the middle of its parent's call.
        if !self.arena.keeps_pages() || self.opener != sys::getpid() || sys::has_threads() {
            return;
        }
        let mine = self.wiped(wiped::PROC).load(Relaxed) as u32;
        let is_taken =
            |proc| proc != mine && self.proc_slot(proc).is_some_and(|p| ProcWord(p.word.load(Acquire)).state() != SlotState::Free);
        if (0..self.procs_high()).any(|proc| is_taken(proc) && !self.process_gone(proc)) {
            return;
        }
        // Journals of the dead name sets.
        self.reap_processes(t, None, true);
        let Ok(me) = self.enter_as_me(t) else { return };
        me.ctl.step.store(0, Relaxed);
        commit(&me.ctl.head, head(Kind::Registry, 0, 0));
        if self.lock_registry(t, me.slot, Wait::Brief).is_ok() {
            // KEPT-PAGES: who is not seen here looks for sets behind what has been withdrawn from the id table.
            edges::kept_pages();
            let is_claimed =
                |slot| slot != me.slot && self.thread_word(slot).is_some_and(|w| ThreadWord(w.load(Acquire)).state() != SlotState::Free);
            if !(0..self.procs_high()).any(is_taken) && !(0..self.threads_high()).any(is_claimed) {
                self.arena.give_back();
            }
            self.unlock_registry();
        }
        self.leave(t);
    }

    /// Makes the registry's caches anew from the roots: allocation bitmaps, key hash, counts. Under the registry lock.
    pub(crate) fn rebuild_registry(&self) {
        let h = self.arena.header();
        for b in 0..KEY_BUCKETS as u64 {
            if let Some(w) = self.arena.at::<AtomicU16>(KEY_HASH_AT + b * 2) {
                w.store(0, Relaxed);
            }
        }
        self.arena.clear_marks();
        let (mut sets, mut sems) = (0, 0);
        for index in 0..h.ids_ready.load(Relaxed).min(MAX_SETS) {
            if let Some((_, set)) = self.set_of_index(index)
                && self.arena.mark(set.at)
            {
                sets += 1;
                sems = u32::wrapping_add(sems, set.nsems);
                self.hash_in(&set);
            }
        }
        h.sets.store(sets, Relaxed);
        h.sems.store(sems, Relaxed);
        for proc in 0..self.procs_high() {
            let Some(p) = self.proc_slot(proc) else { continue };
            for dir in &p.dirs {
                let page = dir.load(Relaxed) as u64;
                if page == 0 || !self.arena.mark(page * PAGE) {
                    continue;
                }
                if let Some(words) = self.arena.at::<Directory>(page * PAGE) {
                    for w in &words.0 {
                        let off = w.load(Relaxed);
                        if off != 0 {
                            self.arena.mark(off as u64 * 64);
                        }
                    }
                }
            }
        }
    }
}
