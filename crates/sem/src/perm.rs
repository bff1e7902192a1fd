//! Permissions (ipcperms and ipcctl_obtain_check in ipc/util.c): ids and capabilities are those at the time of the call.
//!
//! What a check has found out is kept: the user id in [`Engine::credentials`], verdicts per set incarnation and mode generation.
//! [`Engine::forget_credentials`] drops both when the process changes who it is. Threads may differ (the system calls change one thread, the C
//! library's functions all of them): from then on nothing is kept.
//!
//! Sets have the numbers of the user namespace in which the arena was made. For a process in one below it, its own are translated, and
//! its capabilities do not count, as the kernel counts those of the namespace that owns the semaphores only.

use manyway_shm::layout::SetHead;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::idmap::{self, Kind};
use manyway_sync::sys::{self, cap};

use crate::engine::Engine;
use crate::set::SetRef;

/// The user id when it is not known.
const UNKNOWN: u32 = u32::MAX;
/// What stands for a user or group that has no number where it is asked for.
const NOBODY: u32 = 65534;

/// [`Engine::credentials`]: {generation 28 | where 2 | FSGID | THREADS | user id 32}. The user id is in the arena's numbers.
///
/// | bits | meaning |
/// |---|---|
/// | generation | counts what was forgotten: what was found out meanwhile is not kept |
/// | where | 0 not known, [`HOME`], [`BELOW`]: the user namespace |
/// | FSGID | setfsgid(2) has been called: the group that counts may not be the effective one |
/// | THREADS | threads may differ: nothing is kept |
const GENERATION: u64 = 1 << 36;
const HOME: u64 = 1 << 34;
const BELOW: u64 = 2 << 34;
const WHERE: u64 = 3 << 34;
const FSGID: u64 = 1 << 33;
const THREADS: u64 = 1 << 32;

/// Credentials at first.
pub(crate) const NOTHING: u64 = UNKNOWN as u64;

impl Engine {
    /// The effective user id, in the arena's numbers.
    pub(crate) fn euid(&self) -> u32 {
        let known = self.credentials.load(Relaxed);
        if known as u32 != UNKNOWN {
            return known as u32;
        }
        let uid = self.home(Kind::User, sys::geteuid()).unwrap_or(UNKNOWN);
        self.keep(known, |now| now & !(UNKNOWN as u64) | uid as u64);
        uid
    }

    /// Keeps what was found out since `known` was read, unless something has changed.
    fn keep(&self, known: u64, with: impl Fn(u64) -> u64) {
        let now = self.credentials.load(Relaxed);
        if known & THREADS == 0 && now / GENERATION == known / GENERATION {
            let _ = self.credentials.compare_exchange(now, with(now), Relaxed, Relaxed);
        }
    }

    /// True when the caller is in another user namespace than the arena's.
    fn is_below(&self) -> bool {
        let known = self.credentials.load(Relaxed);
        if known & WHERE != 0 {
            return known & WHERE == BELOW;
        }
        let home = self.arena.header().user_ns.load(Relaxed);
        let here = if home == 0 { 0 } else { sys::user_namespace() as u32 };
        // What cannot be found out (there is no /proc after a chroot) is taken for home.
        let below = here != 0 && here != home;
        self.keep(known, |now| now & !WHERE | if below { BELOW } else { HOME });
        below
    }

    /// The caller's number `id` in the arena's numbers.
    fn home(&self, kind: Kind, id: u32) -> Option<u32> {
        if self.is_below() { idmap::to_parent(kind, id) } else { Some(id) }
    }
    /// A number of the arena's as the caller knows it.
    pub(crate) fn shown(&self, kind: Kind, id: u32) -> u32 {
        if self.is_below() { idmap::from_parent(kind, id).unwrap_or(NOBODY) } else { id }
    }
    /// What the caller asks to be written, user and group; None: no such number.
    pub(crate) fn asked(&self, uid: u32, gid: u32) -> Option<(u32, u32)> {
        if uid == u32::MAX || gid == u32::MAX {
            return None;
        }
        Some((self.home(Kind::User, uid)?, self.home(Kind::Group, gid)?))
    }
    /// User and group of what the caller makes.
    pub(crate) fn maker(&self) -> (u32, u32) {
        let uid = Some(self.euid()).filter(|&uid| uid != UNKNOWN);
        (uid.unwrap_or(NOBODY), self.home(Kind::Group, sys::getegid()).unwrap_or(NOBODY))
    }

    /// True when the caller is in one of the groups (of the arena's numbers).
    fn in_groups(&self, wanted: [u32; 2]) -> bool {
        let below = self.is_below();
        let is = |gid: u32| if below { idmap::to_parent(Kind::Group, gid) } else { Some(gid) }.is_some_and(|gid| wanted.contains(&gid));
        let own = if self.credentials.load(Relaxed) & FSGID != 0 { sys::fsgid() } else { sys::getegid() };
        is(own) || sys::with_groups(|groups| groups.iter().any(|&gid| is(gid)))
    }

    fn has_capability(&self, cap: u32) -> bool {
        !self.is_below() && sys::has_capability(cap)
    }

    /// True when the caller is the set's owner and the owner may do what the mode bits `want` (4 read, 2 alter) say. No system call.
    #[inline(always)]
    pub(crate) fn owner_permits(&self, head: &SetHead, want: u32) -> bool {
        // An unknown user id equals no owner's: IPC_SET refuses it.
        self.credentials.load(Relaxed) as u32 == head.uid.load(Relaxed) && head.mode.load(Relaxed) >> 6 & want == want
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
        // {tag 22 | mode generation 32 | generation of the credentials 7 | rights 3}: one word, so that a verdict never goes with another
        // set's name, nor with who the process was before.
        let credentials = self.credentials.load(Relaxed);
        let key = (set.tag as u64) << 42 | (set.head.mode_gen.load(Relaxed) as u64) << 10 | (credentials / GENERATION % 128) << 3;
        let slot = &self.verdicts[set.tag as usize % self.verdicts.len()];
        let known = slot.load(Relaxed);
        if credentials & THREADS == 0 && known & !7 == key && want & !(known as u32) == 0 {
            return true;
        }
        let (h, euid) = (set.head, self.euid());
        let mode = h.mode.load(Relaxed);
        let granted = if euid != UNKNOWN && (euid == h.cuid.load(Relaxed) || euid == h.uid.load(Relaxed)) {
            mode >> 6
        } else if self.in_groups([h.cgid.load(Relaxed), h.gid.load(Relaxed)]) {
            mode >> 3
        } else {
            mode
        } & 7;
        let granted = if want & !granted != 0 && self.has_capability(cap::IPC_OWNER) { 7 } else { granted };
        slot.store(key | granted as u64, Relaxed);
        want & !granted == 0
    }

    /// True when the caller may remove the set or change its owner.
    pub(crate) fn owns(&self, set: &SetRef<'_>) -> bool {
        let euid = self.euid();
        euid != UNKNOWN && (euid == set.head.cuid.load(Relaxed) || euid == set.head.uid.load(Relaxed))
            || self.has_capability(cap::SYS_ADMIN)
    }

    /// Drops what is known of the caller's user, groups and capabilities; call it after any of them changed, for all threads alike.
    pub fn forget_credentials(&self) {
        self.forget(|known| known & !WHERE | NOTHING);
    }
    /// The same after a change of the calling thread alone: from here on each check asks anew, since threads may differ.
    pub fn forget_credentials_of_thread(&self) {
        let apart = if sys::has_threads() { THREADS } else { 0 };
        self.forget(|known| known & !WHERE | NOTHING | apart);
    }
    /// The same after setfsgid(2), which no other thread sees.
    pub fn forget_group_of_thread(&self) {
        self.forget(|known| known | FSGID);
        self.forget_credentials_of_thread();
    }
    /// Drops what is known of groups and capabilities. A process that has entered a new user namespace by unshare(2) is who it was, though
    /// it has no number there yet.
    pub fn forget_capabilities(&self) {
        self.forget(|known| known & !WHERE);
    }

    fn forget(&self, what: impl Fn(u64) -> u64) {
        let mut known = self.credentials.load(Relaxed);
        while let Err(now) = self.credentials.compare_exchange(known, what(known).wrapping_add(GENERATION), Relaxed, Relaxed) {
            known = now;
        }
        self.verdicts.iter().for_each(|v| v.store(0, Relaxed));
    }
}
