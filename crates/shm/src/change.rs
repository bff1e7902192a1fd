//! Changing a namespace that is in use.
//!
//! Limits are words of the header that every process reads anew each time: a change counts from the next call on, as one of `kernel.sem`
//! does. Fairness is, too, but a sleeper waits for what the rule of its beginning promises. Sharing is the modes of the files: it decides who opens the namespace from then on. Whoever has it mapped keeps it.

use core::ffi::CStr;

use manyway_sync::Errno;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::sys;

use crate::arena::{Arena, Dir, Fairness, Limits, OpenError, OpenOptions};
use crate::layout::ENDED;
use crate::trust::{self, Share};

impl Arena {
    /// Sets other limits. What is beyond them stays, and nothing is added to it.
    pub fn set_limits(&self, limits: Limits) -> Result<(), OpenError> {
        limits.check()?;
        if limits.opm == 1 && self.limits().opm != 1 {
            // The fast path for two operations looks when the namespace is opened.
            return Err(OpenError::BadLimits("SEMOPM of a namespace that is in use cannot become 1"));
        }
        for (word, v) in self.header().limits.iter().zip([limits.msl, limits.mns, limits.opm, limits.mni]) {
            word.store(v, Relaxed);
        }
        Ok(())
    }

    /// Sets another fairness. Nobody may be asleep: who began under one rule may not be woken under the other.
    pub fn set_fairness(&self, fairness: Fairness) {
        self.header().fairness.store((fairness == Fairness::Barging) as u32, Relaxed);
    }

    /// Marks the namespace as ended: nobody makes a set in it any more, and who opens it finds it empty.
    pub fn end(&self) {
        self.header().ended.store(ENDED, SeqCst);
    }
    /// True when it has ended.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.header().ended.load(Acquire) == ENDED
    }

    /// Shares the namespace in directory `dir` with others than before. Its owner, and root, can.
    pub fn set_share(dir: &CStr, how: &OpenOptions, share: Share) -> Result<(), OpenError> {
        let failed = |e| OpenError::Os("cannot change who shares the namespace", e);
        let dir = Dir::open(dir, &OpenOptions { create: false, ..*how })?;
        sys::flock_exclusive(&dir.fd).map_err(failed)?;
        let fd = dir.arena().map_err(|e| OpenError::Os("cannot open the arena", e))?;
        let (arena, st) = Self::map_usable(&fd, &dir, how)?;
        let wider = share.code() >= arena.share().code();
        // Modes that say more than the header are refused: the header is the first to say more, and the last to say less.
        if wider {
            arena.header().share.store(share.code(), Release);
        } else {
            sys::fchmod(&fd, share.file_mode()).map_err(failed)?;
        }
        let group = share.group(st.gid);
        if group != st.gid {
            // The old group is out before the new one is in.
            sys::fchmod(&fd, Share::Nobody.file_mode()).and_then(|()| sys::fchown(&fd, st.uid, group)).map_err(failed)?;
        }
        trust::share_directory(&dir.fd, &dir.st, share)?;
        sys::fchmod(&fd, share.file_mode()).map_err(failed)?;
        arena.header().share.store(share.code(), Release);
        Ok(())
    }

    /// The arena of an open file, if it can be used now.
    fn map_usable(fd: &sys::Fd, dir: &Dir, how: &OpenOptions) -> Result<(Arena, sys::Stat), OpenError> {
        let st = sys::fstat(fd).map_err(|e| OpenError::Os("cannot stat the arena", e))?;
        match Self::usable(fd, dir, how)? {
            Some(arena) => Ok((arena, st)),
            None => Err(OpenError::Os("the namespace has ended", Errno::ENOENT)),
        }
    }
}
