//! Permissions (ipcperms and ipcctl_obtain_check in ipc/util.c): ids and capabilities are those at the time of the call.
//!
//! The user id is cached in the engine and verdicts per set incarnation and mode generation; [`Engine::forget_credentials`] drops both
//! when the process changes who it is.

use manyway_shm::layout::SetHead;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::sys::{self, cap};

use crate::engine::Engine;
use crate::set::SetRef;

/// `euid` when it is not known.
pub(crate) const UNKNOWN: u32 = u32::MAX;

impl Engine {
    fn euid(&self) -> u32 {
        match self.euid.load(Relaxed) {
            UNKNOWN => {
                let e = sys::geteuid();
                self.euid.store(e, Relaxed);
                e
            }
            e => e,
        }
    }

    /// True when the caller is the set's owner and the owner may do what the mode bits `want` (4 read, 2 alter) say. No system call.
    #[inline(always)]
    pub(crate) fn owner_permits(&self, head: &SetHead, want: u32) -> bool {
        // An unknown user id equals no owner's: IPC_SET refuses it.
        self.euid.load(Relaxed) == head.uid.load(Relaxed) && head.mode.load(Relaxed) >> 6 & want == want
    }

    /// True when the caller may access the set as `flag`'s mode bits ask (any of the three triples).
    #[inline]
    pub(crate) fn permits(&self, set: &SetRef<'_>, flag: u32) -> bool {
        let want = (flag >> 6 | flag >> 3 | flag) & 7;
        if self.owner_permits(set.head, want) {
            return true;
        }
        self.permits_slow(set, want)
    }

    #[cold]
    #[inline(never)]
    fn permits_slow(&self, set: &SetRef<'_>, want: u32) -> bool {
        // {tag 22 | mode generation 32 | rights 3}: one word, so that a verdict never goes with another set's name.
        let key = (set.tag as u64) << 42 | (set.head.mode_gen.load(Relaxed) as u64) << 10;
        let slot = &self.verdicts[set.tag as usize % self.verdicts.len()];
        let known = slot.load(Relaxed);
        if known & !7 == key && want & !(known as u32) == 0 {
            return true;
        }
        let (h, euid) = (set.head, self.euid());
        let mode = h.mode.load(Relaxed);
        let granted = if euid == h.cuid.load(Relaxed) || euid == h.uid.load(Relaxed) {
            mode >> 6
        } else if sys::in_group(h.cgid.load(Relaxed)) || sys::in_group(h.gid.load(Relaxed)) {
            mode >> 3
        } else {
            mode
        } & 7;
        let granted = if want & !granted != 0 && sys::has_capability(cap::IPC_OWNER) { 7 } else { granted };
        slot.store(key | granted as u64, Relaxed);
        want & !granted == 0
    }

    /// True when the caller may remove the set or change its owner.
    pub(crate) fn owns(&self, set: &SetRef<'_>) -> bool {
        let euid = self.euid();
        euid == set.head.cuid.load(Relaxed) || euid == set.head.uid.load(Relaxed) || sys::has_capability(cap::SYS_ADMIN)
    }
}
