//! semctl: one function a command. Before each the holders of the semaphores it looks at are looked at: no undo of the dead is missing.

use manyway_shm::layout::*;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::idmap::Kind::{Group, User};
use manyway_sync::{Errno, clock};

use crate::abi::*;
use crate::attach::{Me, Thread};
use crate::edges::{self, commit};
use crate::engine::Engine;
use crate::journal::{self, Fin, Kind, Step};
use crate::lock::Wait;
use crate::node;
use crate::queue::Where;
use crate::set::SetRef;
use crate::step::Journal;
use crate::wake::Wakes;
use crate::word;

/// What GETNCNT and GETZCNT count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Alter,
    Zero,
}

fn nums(set: &SetRef<'_>) -> impl Iterator<Item = u16> + Clone + use<> {
    (0..set.nsems.min(MAX_MSL)).map(|n| n as u16)
}

impl Engine {
    /// The set and number of a GET* command: id, then EACCES, then the number.
    fn readable(&self, id: i32, num: i32) -> Result<(SetRef<'_>, u16), Errno> {
        let set = self.set_of_id(id)?;
        if !self.permits(&set, 0o444) {
            return Err(Errno::EACCES);
        }
        if num < 0 || num as u32 >= set.nsems {
            return Err(Errno::EINVAL);
        }
        Ok((set, num as u16))
    }

    /// The word of a cell between operations: no half of a multi-operation is seen.
    fn settled_word(&self, t: &Thread, set: &SetRef<'_>, num: u16) -> Result<u64, Errno> {
        self.bury_all(t, set, [num].into_iter());
        let cell = set.cell(num as u32).ok_or(Errno::EIO)?;
        let w = cell.word.load(Acquire);
        if w & (word::LOCKED | word::COMPLEX | word::REMOVED) == 0 && word::tag(w) == set.tag {
            return Ok(w);
        }
        self.with_cells(t, set, [num], |_, _| cell.word.load(Relaxed))
    }

    /// Runs `f` with the set locked and the cells `nums` (ascending) owned.
    fn with_cells<'e, R, const N: usize>(
        &'e self,
        t: &Thread,
        set: &SetRef<'e>,
        nums: [u16; N],
        f: impl FnMut(&Me<'e>, &mut Wakes<'e>) -> R,
    ) -> Result<R, Errno> {
        self.with_set(t, set, nums.into_iter(), f)
    }

    fn with_set<'e, R>(
        &'e self,
        t: &Thread,
        set: &SetRef<'e>,
        nums: impl Iterator<Item = u16> + Clone,
        mut f: impl FnMut(&Me<'e>, &mut Wakes<'e>) -> R,
    ) -> Result<R, Errno> {
        let mut looked = false;
        loop {
            let mut wakes = Wakes::new();
            let me = self.enter_as_me(t)?;
            me.ctl.begin(Kind::Set, set, 0);
            if let Err(e) = self.lock_set(t, me.slot, set, Wait::Call) {
                self.leave(t);
                return Err(e);
            }
            let locked = self.lock_cells(t, me.slot, set, nums.clone(), Wait::Call);
            // A lock that was taken over from the dead makes them holders only then: look once more.
            let held = || nums.clone().any(|n| set.cell(n as u32).is_some_and(|c| c.holders.load(Relaxed) != 0));
            let again = locked.is_ok() && !looked && held();
            let r = if again { None } else { Some(locked.map(|()| f(&me, &mut wakes))) };
            self.unlock_cells(me.slot, set, nums.clone());
            self.unlock_set(set);
            wakes.wake();
            self.leave(t);
            match r {
                Some(r) => return r,
                None => {
                    self.bury_marked(t, set, nums.clone());
                    looked = true;
                }
            }
        }
    }

    pub(crate) fn get_val(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        let (set, num) = self.readable(id, num)?;
        self.settled_word(t, &set, num).map(word::value)
    }
    pub(crate) fn get_pid(&self, t: &Thread, id: i32, num: i32) -> Result<i32, Errno> {
        let (set, num) = self.readable(id, num)?;
        self.settled_word(t, &set, num).map(|w| word::pid(w) as i32)
    }

    /// GETNCNT, GETZCNT: simple sleepers of this semaphore, and complex ones that it blocks (count_semcnt in ipc/sem.c).
    pub(crate) fn get_count(&self, t: &Thread, id: i32, num: i32, what: Count) -> Result<i32, Errno> {
        let (set, num) = self.readable(id, num)?;
        self.bury_all(t, &set, [num].into_iter());
        let cell = set.cell(num as u32).ok_or(Errno::EIO)?;
        let w = cell.word.load(Acquire);
        if w & (word::LOCKED | word::WAITERS | word::COMPLEX | word::REMOVED) == 0 && word::tag(w) == set.tag {
            return Ok(0);
        }
        let (n, dead) = self.with_cells(t, &set, [num], |_, _| self.count_sleepers(&set, num, what))?;
        if dead {
            self.reap_threads(t);
        }
        Ok(n)
    }

    fn count_sleepers(&self, set: &SetRef<'_>, num: u16, what: Count) -> (i32, bool) {
        let (mut n, mut dead) = (0, false);
        let own = if what == Count::Zero { Where::Zero } else { Where::Alter };
        for (which, simple) in [(own, true), (Where::SetAlter, false), (Where::SetConst, false)] {
            for (slot, ctl) in self.walk(set, num, which) {
                if node::state(ctl.state.load(Acquire)) != node::State::Queued {
                    continue;
                }
                if self.context_gone(slot) || self.sleeper_gone_for_certain(slot, ctl) {
                    dead = true;
                    continue;
                }
                let op = self.blocker(slot, ctl);
                let counts = op.num == num && (op.op == 0) == (what == Count::Zero);
                n += (simple || counts) as i32;
            }
        }
        (n, dead)
    }

    /// SETVAL: a negative id, then ERANGE even for an unknown one; then the id; then the number before EACCES.
    pub(crate) fn set_val(&self, t: &Thread, id: i32, num: i32, val: i32) -> Result<(), Errno> {
        if id < 0 {
            return Err(Errno::EINVAL);
        }
        if !(0..=SEMVMX).contains(&val) {
            return Err(Errno::ERANGE);
        }
        let set = self.set_of_id(id)?;
        if num < 0 || num as u32 >= set.nsems {
            return Err(Errno::EINVAL);
        }
        if !self.permits(&set, 0o222) {
            return Err(Errno::EACCES);
        }
        let num = num as u16;
        self.bury_all(t, &set, [num].into_iter());
        self.with_cells(t, &set, [num], |me, wakes| {
            me.ctl.fin.store(Fin { value: val, adj: None, pid: me.pid }.bits(), Relaxed);
            commit(&me.ctl.step, Step::SetVal { num }.bits()); // STEP-COMMIT
            self.apply_step(me.ctl, &set, wakes);
            self.scan_changed(me.slot, me.ctl, &set, [num].into_iter(), wakes);
        })
    }

    pub(crate) fn array_length(&self, id: i32, alter: bool) -> Result<usize, Errno> {
        let set = self.set_of_id(id)?;
        if !self.permits(&set, if alter { 0o222 } else { 0o444 }) {
            return Err(Errno::EACCES);
        }
        Ok(set.nsems as usize)
    }

    pub(crate) fn get_all(&self, t: &Thread, id: i32, out: &mut [u16]) -> Result<(), Errno> {
        self.array_length(id, false)?;
        let set = self.set_of_id(id)?;
        self.bury_all(t, &set, nums(&set));
        self.with_set(t, &set, nums(&set), |_, _| {
            for ((_, cell), o) in set.cells().zip(out.iter_mut()) {
                *o = word::value(cell.word.load(Relaxed)) as u16;
            }
        })
    }

    pub(crate) fn set_all(&self, t: &Thread, id: i32, vals: &[u16]) -> Result<(), Errno> {
        self.array_length(id, true)?;
        let set = self.set_of_id(id)?;
        if vals.len() < set.nsems as usize {
            return Err(Errno::EINVAL);
        }
        if vals[..set.nsems as usize].iter().any(|&v| v as i32 > SEMVMX) {
            return Err(Errno::ERANGE);
        }
        self.bury_all(t, &set, nums(&set));
        self.with_set(t, &set, nums(&set), |me, wakes| {
            let values = set.cells().map(|(_, cell)| cell).zip(vals.iter().copied());
            edges::commit_setall(me.ctl, journal::head(Kind::SetAllCommit, set.page(), 0), me.pid, values);
            self.apply_setall(me.slot, me.ctl, &set);
            self.scan_all(me.slot, me.ctl, &set, wakes);
        })
    }

    /// Applies a committed SETALL.
    pub(crate) fn apply_setall(&self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'_>) {
        set.head.ctime.store(clock::realtime_secs(), Relaxed);
        let clear = |num, cell: &Cell| self.clear_adjustments(set, num, cell);
        edges::apply_setall(ctl, slot, journal::head(Kind::Set, set.page(), 0), set.cells(), clear);
    }

    pub(crate) fn status(&self, set: &SetRef<'_>) -> SetStat {
        let h = set.head;
        let otime = set.cells().map(|(_, c)| word::stamped(c.otime.load(Relaxed), set.tag)).max().unwrap_or(0);
        SetStat {
            id: set.id(),
            key: h.key.load(Relaxed) as i32,
            uid: self.shown(User, h.uid.load(Relaxed)),
            gid: self.shown(Group, h.gid.load(Relaxed)),
            cuid: self.shown(User, h.cuid.load(Relaxed)),
            cgid: self.shown(Group, h.cgid.load(Relaxed)),
            mode: h.mode.load(Relaxed),
            seq: h.seq.load(Relaxed),
            nsems: set.nsems,
            otime: otime as i64,
            ctime: h.ctime.load(Relaxed) as i64,
        }
    }

    pub(crate) fn ipc_stat(&self, t: &Thread, id: i32) -> Result<SetStat, Errno> {
        let set = self.set_of_id(id)?;
        if !self.permits(&set, 0o444) {
            return Err(Errno::EACCES);
        }
        // Also those who hold nothing: their end moves sem_otime of every set they have a record for.
        self.reap_processes(t, None, false);
        Ok(self.status(&set))
    }

    pub(crate) fn stat_by_index(&self, t: &Thread, index: i32, any: bool) -> Result<SetStat, Errno> {
        // A whole id works too: the kernel masks it.
        let (_, set) = self.set_of_index(index as u32 & (MAX_SETS - 1)).filter(|_| index >= 0).ok_or(Errno::EINVAL)?;
        if !any && !self.permits(&set, 0o444) {
            return Err(Errno::EACCES);
        }
        // Also those who hold nothing: their end moves sem_otime of every set they have a record for.
        self.reap_processes(t, None, false);
        Ok(self.status(&set))
    }

    pub(crate) fn set_perms(&self, t: &Thread, id: i32, uid: u32, gid: u32, mode: u32) -> Result<(), Errno> {
        let set = self.set_of_id(id)?;
        if !self.owns(&set) {
            return Err(Errno::EPERM);
        }
        let (uid, gid) = self.asked(uid, gid).ok_or(Errno::EINVAL)?;
        self.with_cells(t, &set, [], |me, _| {
            me.ctl.pair.store((uid as u64) << 32 | gid as u64, Relaxed);
            me.ctl.fin.store((mode & 0o777) as u64, Relaxed);
            // A new owner never goes with the old mode, should this thread die in between.
            commit(&me.ctl.head, journal::head(Kind::Access, set.page(), 0));
            self.apply_access(me.ctl, &set);
        })
    }

    /// Applies a committed IPC_SET; its head is a plain section's again afterwards.
    pub(crate) fn apply_access(&self, ctl: &ThreadCtl, set: &SetRef<'_>) {
        let (h, ids) = (set.head, ctl.pair.load(Relaxed));
        h.uid.store((ids >> 32) as u32, Relaxed);
        h.gid.store(ids as u32, Relaxed);
        h.mode.store(ctl.fin.load(Relaxed) as u32 & 0o777, Relaxed);
        h.mode_gen.store(h.mode_gen.load(Relaxed).wrapping_add(1), Release);
        h.ctime.store(clock::realtime_secs(), Relaxed);
        commit(&ctl.head, journal::head(Kind::Set, set.page(), 0));
    }

    pub(crate) fn sem_info(&self) -> SemInfo {
        let (h, l) = (self.arena.header(), self.limits());
        let highest = (0..h.ids_ready.load(Acquire).min(MAX_SETS)).rev().find(|&i| self.set_of_index(i).is_some());
        SemInfo {
            msl: l.msl as i32,
            mns: l.mns as i32,
            opm: l.opm as i32,
            mni: l.mni as i32,
            sets: h.sets.load(Relaxed) as i32,
            sems: h.sems.load(Relaxed) as i32,
            highest: highest.unwrap_or(0) as i32,
        }
    }
}
