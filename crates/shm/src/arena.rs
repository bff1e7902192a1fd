//! Opening the arena and reaching into it.

use core::ffi::CStr;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use manyway_sync::atomic::{AtomicU64, Ordering::*};
use manyway_sync::idmap::{self, Kind};
use manyway_sync::sys::{self, Fd, Stat, flags};
use manyway_sync::{Errno, memory};

use crate::layout::*;
use crate::trust::{self, Share};

/// Limits of a namespace, as `kernel.sem` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// SEMMSL: semaphores in a set.
    pub msl: u32,
    /// SEMMNS: semaphores in the namespace.
    pub mns: u32,
    /// SEMOPM: operations in a call.
    pub opm: u32,
    /// SEMMNI: sets.
    pub mni: u32,
}

impl Limits {
    /// The kernel's current ones, as far as the layout can hold them; Linux's defaults where /proc does not tell.
    pub fn of_kernel() -> Limits {
        let [msl, mns, opm, mni] = sys::read_numbers::<4>(c"/proc/sys/kernel/sem").unwrap_or([32000, 1_024_000_000, 500, 32000]);
        Limits {
            msl: msl.clamp(1, MAX_MSL as u64) as u32,
            mns: mns.clamp(1, i32::MAX as u64) as u32,
            opm: opm.clamp(1, MAX_OPM as u64) as u32,
            mni: mni.clamp(1, MAX_SETS as u64) as u32,
        }
    }

    pub(crate) fn check(self) -> Result<(), OpenError> {
        let bad = |what| Err(OpenError::BadLimits(what));
        if self.msl == 0 || self.msl > MAX_MSL {
            return bad("SEMMSL must be 1 to 65470");
        }
        if self.mns == 0 || self.mns > i32::MAX as u32 {
            return bad("SEMMNS must be 1 to 2147483647");
        }
        if self.opm == 0 || self.opm > MAX_OPM {
            return bad("SEMOPM must be 1 to 512");
        }
        if self.mni == 0 || self.mni > MAX_SETS {
            return bad("SEMMNI must be 1 to 32768");
        }
        Ok(())
    }
}

/// Of an arena that is not open yet.
const LEAST: Limits = Limits { msl: 1, mns: 1, opm: 1, mni: 1 };

/// Who gets a unit that is released while others sleep for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// The first sleeper that fits, at once: the kernel's order.
    Strict,
    /// Whoever comes first, until a sleeper has been passed over for about a millisecond; then the sleeper.
    Barging,
}

/// How to open a namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Make it when it does not exist.
    pub create: bool,
    /// Limits for a new namespace (default: the kernel's); an existing one must have them.
    pub limits: Option<Limits>,
    /// Fairness for a new namespace (default strict); an existing one must have it.
    pub fairness: Option<Fairness>,
    /// Who shares a new namespace (default nobody); an existing one must be shared so.
    pub share: Option<Share>,
    /// Whose namespace it may be besides the caller's and root's: somebody who shares it with the caller.
    pub owner: Option<u32>,
}

impl OpenOptions {
    /// To use what is there, of the caller's or root's.
    pub const FIND: OpenOptions = OpenOptions { create: false, limits: None, fairness: None, share: None, owner: None };
    /// The same; to make it when it does not exist.
    pub const CREATE: OpenOptions = OpenOptions { create: true, ..OpenOptions::FIND };
}

/// Why a namespace could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// A system call failed: which, and how.
    Os(&'static str, Errno),
    /// It belongs to a user who is neither the caller nor root, nor one that was named.
    Foreign {
        /// "directory" or "arena".
        what: &'static str,
        /// The user's number.
        owner: u32,
    },
    /// Others may write the directory or the file, or put another in its place: how.
    Untrusted(&'static str),
    /// The file is no arena, or is cut short or damaged: what is wrong.
    NotAnArena(&'static str),
    /// Made by another layout version.
    OtherLayout(u32),
    /// Made in another PID namespace, whose process numbers mean other processes.
    OtherPidNamespace,
    /// Made in another user namespace, whose numbers of users cannot be told in those of this one.
    OtherUserNamespace,
    /// Exists with other limits: those it has.
    LimitsDiffer(Limits),
    /// Exists with other fairness: that it has.
    FairnessDiffers(Fairness),
    /// Exists and is shared with others: with whom.
    SharingDiffers(Share),
    /// The limits asked for are outside what the layout can hold: which.
    BadLimits(&'static str),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            OpenError::Os(what, e) => write!(f, "{what}: {e}"),
            OpenError::Foreign { what, owner } => write!(f, "the {what} belongs to another user ({owner})"),
            OpenError::Untrusted(what) => write!(f, "{what}"),
            OpenError::NotAnArena(what) => write!(f, "its arena is not usable: {what}"),
            OpenError::OtherLayout(v) => write!(f, "its arena has layout version {v}, this program has {VERSION}"),
            OpenError::OtherPidNamespace => write!(f, "it was made in another PID namespace, whose process numbers mean other processes"),
            OpenError::OtherUserNamespace => write!(f, "it was made in another user namespace, whose numbers mean other users"),
            OpenError::SharingDiffers(Share::Nobody) => write!(f, "it exists and is not shared"),
            OpenError::SharingDiffers(Share::Group(gid)) => write!(f, "it exists and is shared with group {gid}"),
            OpenError::SharingDiffers(Share::All) => write!(f, "it exists and is shared with all users"),
            OpenError::LimitsDiffer(l) => {
                write!(f, "it exists with the limits {},{},{},{} (SEMMSL,SEMMNS,SEMOPM,SEMMNI)", l.msl, l.mns, l.opm, l.mni)
            }
            OpenError::FairnessDiffers(x) => {
                write!(f, "it exists with {} fairness", if x == Fairness::Strict { "strict" } else { "barging" })
            }
            OpenError::BadLimits(what) => write!(f, "{what}"),
        }
    }
}
impl core::error::Error for OpenError {}

/// The first window; it doubles when an offset beyond it is asked for.
const FIRST_WINDOW_LOG2: u32 = 26;

/// How often a window can be outgrown until it spans the file.
const OUTGROWN: usize = (FILE_BYTES.ilog2() - FIRST_WINDOW_LOG2) as usize;
const _: () = assert!(FILE_BYTES.is_power_of_two());

/// A mapped arena.
#[derive(Debug)]
pub struct Arena {
    /// {address of the window | log2 of its length}: one word, so that both change together.
    window: AtomicU64,
    /// Windows that were outgrown, each twice the length of the one before; 0: not there. Other threads may be in them as long as the arena
    /// lives, so they go with it: at most [`OUTGROWN`] mappings, and the length of the last window in all.
    outgrown: [AtomicU64; OUTGROWN],
    /// Tells this mapping from all others of the process.
    serial: u64,
    /// Device and inode.
    file: (u64, u64),
    share: Share,
    /// Limits at the opening.
    opened: Limits,
}

impl Arena {
    /// Opens the arena in directory `dir`; with `create`, makes directory and arena when they are absent.
    pub fn open(dir: &CStr, how: &OpenOptions) -> Result<Arena, OpenError> {
        let dir = Dir::open(dir, how)?;
        let here = Here::now();
        // First without O_CREAT, as fs.protected_regular asks for.
        let mut share = how.share.unwrap_or(Share::Nobody);
        match dir.arena() {
            Ok(fd) => match Self::map_existing(&fd, &dir, how, &here)? {
                Found::Usable(arena) => return arena.matching(how),
                Found::OtherBoot(_) if !how.create => return Err(OpenError::Os("the arena is of an earlier boot", Errno::ENOENT)),
                Found::Ended(_) if !how.create => return Err(OpenError::Os("the namespace has ended", Errno::ENOENT)),
                Found::OtherBoot(was) | Found::Ended(was) => share = how.share.unwrap_or(was),
            },
            Err(Errno::ENOENT) if how.create => {}
            Err(e) => return Err(OpenError::Os("cannot open the arena", e)),
        }
        // One maker at a time; a second one finds the first one's file.
        sys::flock_exclusive(&dir.fd).map_err(|e| OpenError::Os("cannot lock the directory", e))?;
        if let Ok(fd) = dir.arena()
            && let Found::Usable(arena) = Self::map_existing(&fd, &dir, how, &here)?
        {
            return arena.matching(how);
        }
        Self::make(&dir, how, share, &here)
    }

    fn map_existing(fd: &Fd, dir: &Dir, how: &OpenOptions, here: &Here) -> Result<Found, OpenError> {
        let st = sys::fstat(fd).map_err(|e| OpenError::Os("cannot stat the arena", e))?;
        let share = trust::check_arena(&st, &dir.st, how)?;
        if st.size < PAGE {
            return Err(OpenError::NotAnArena("it is shorter than its header"));
        }
        if st.size != FILE_BYTES {
            return Err(OpenError::NotAnArena("its size is wrong; it was cut short or is another file"));
        }
        let mut arena = Self::map(fd, &st, share)?;
        let h = arena.header();
        if h.magic.load(Acquire) != MAGIC {
            return Err(OpenError::NotAnArena("it does not begin with MANYWAY1"));
        }
        if h.version.load(Relaxed) != VERSION {
            return Err(OpenError::OtherLayout(h.version.load(Relaxed)));
        }
        if h.hash.load(Relaxed) != layout_hash() {
            return Err(OpenError::NotAnArena("it was made by a development build with another layout"));
        }
        trust::check_meant(share, h)?;
        let boot = [h.boot[0].load(Relaxed), h.boot[1].load(Relaxed)];
        if boot != [0, 0] && here.boot != [0, 0] && boot != here.boot {
            return Ok(Found::OtherBoot(share));
        }
        let ns = h.pid_ns.load(Relaxed);
        if ns != 0 && here.pid_ns != 0 && ns != here.pid_ns {
            return Err(OpenError::OtherPidNamespace);
        }
        let ns = h.user_ns.load(Relaxed) as u64;
        if ns != 0 && here.user_ns != 0 && ns != here.user_ns && idmap::to_parent(Kind::User, st.uid) != Some(h.owner.load(Relaxed)) {
            return Err(OpenError::OtherUserNamespace);
        }
        arena.opened = arena.raw_limits();
        if arena.opened.check().is_err() {
            return Err(OpenError::NotAnArena("its limits are impossible"));
        }
        if arena.has_ended() {
            return Ok(Found::Ended(share));
        }
        Ok(Found::Usable(arena))
    }

    /// The arena of an open file; None: of another boot, or ended.
    pub(crate) fn usable(fd: &Fd, dir: &Dir, how: &OpenOptions) -> Result<Option<Arena>, OpenError> {
        match Self::map_existing(fd, dir, how, &Here::now())? {
            Found::Usable(arena) => Ok(Some(arena)),
            Found::OtherBoot(_) | Found::Ended(_) => Ok(None),
        }
    }

    fn make(dir: &Dir, how: &OpenOptions, share: Share, here: &Here) -> Result<Arena, OpenError> {
        let limits = how.limits.unwrap_or_else(Limits::of_kernel);
        limits.check()?;
        if share != Share::Nobody {
            trust::share_directory(&dir.fd, &dir.st, share)?;
        }
        const TMP: &CStr = c"arena-v1.new";
        let _ = sys::unlinkat(&dir.fd, TMP); // left by a maker that died; the lock is ours
        let fd = sys::openat(dir.fd.raw(), TMP, flags::O_RDWR | flags::O_CREAT | flags::O_EXCL | flags::O_NOFOLLOW, 0o600)
            .map_err(|e| OpenError::Os("cannot make the arena", e))?;
        let made = (|| {
            let owned = |e| OpenError::Os("cannot give the arena its owner and mode", e);
            let st = sys::fstat(&fd).map_err(owned)?;
            // What root makes in a user's directory is the user's.
            let (uid, gid) = (dir.st.uid, share.group(st.gid));
            if (uid, gid) != (st.uid, st.gid) {
                sys::fchown(&fd, uid, gid).map_err(owned)?;
            }
            sys::fchmod(&fd, share.file_mode()).map_err(owned)?;
            sys::ftruncate(&fd, FILE_BYTES).map_err(|e| OpenError::Os("cannot size the arena", e))?;
            let mut arena = Self::map(&fd, &st, share)?;
            arena.opened = limits;
            let space = |e| OpenError::Os("no room for the arena", e);
            arena.populate(0, KEY_HASH_AT + KEY_BUCKETS as u64 * 2).map_err(space)?;
            let h = arena.header();
            h.version.store(VERSION, Relaxed);
            h.hash.store(layout_hash(), Relaxed);
            for i in 0..2 {
                h.boot[i].store(here.boot[i], Relaxed);
            }
            h.pid_ns.store(here.pid_ns, Relaxed);
            h.user_ns.store(here.user_ns as u32, Relaxed);
            h.owner.store(uid, Relaxed);
            h.share.store(share.code(), Relaxed);
            for (word, v) in h.limits.iter().zip([limits.msl, limits.mns, limits.opm, limits.mni]) {
                word.store(v, Relaxed);
            }
            h.fairness.store((how.fairness == Some(Fairness::Barging)) as u32, Relaxed);
            h.magic.store(MAGIC, Release);
            sys::rename_in(&dir.fd, TMP, FILE_NAME).map_err(|e| OpenError::Os("cannot name the arena", e))?;
            Ok(arena)
        })();
        if made.is_err() {
            let _ = sys::unlinkat(&dir.fd, TMP);
        }
        made
    }

    fn map(fd: &Fd, st: &Stat, share: Share) -> Result<Arena, OpenError> {
        let p = memory::map_shared(fd, 1 << FIRST_WINDOW_LOG2).map_err(|e| OpenError::Os("cannot map the arena", e))?;
        static MAPPED: AtomicU64 = AtomicU64::new(0);
        Ok(Arena {
            window: AtomicU64::new(p as u64 | FIRST_WINDOW_LOG2 as u64),
            outgrown: [const { AtomicU64::new(0) }; OUTGROWN],
            serial: MAPPED.fetch_add(1, Relaxed),
            file: (st.dev, st.ino),
            share,
            opened: LEAST,
        })
    }

    fn matching(self, how: &OpenOptions) -> Result<Arena, OpenError> {
        let (limits, fairness, share) = (self.limits(), self.fairness(), self.share);
        if how.limits.is_some_and(|l| l != limits) {
            return Err(OpenError::LimitsDiffer(limits));
        }
        if how.fairness.is_some_and(|f| f != fairness) {
            return Err(OpenError::FairnessDiffers(fairness));
        }
        if how.share.is_some_and(|s| s != share) {
            return Err(OpenError::SharingDiffers(share));
        }
        Ok(self)
    }

    /// Device and inode of the file: what tells namespaces apart.
    pub fn file(&self) -> (u64, u64) {
        self.file
    }
    /// Who shares the namespace, as it was when it was opened.
    pub fn share(&self) -> Share {
        self.share
    }

    /// A number that no other mapping of this process has had.
    #[cfg_attr(shuttle, expect(dead_code, reason = "only real regions ask"))]
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// The namespace's limits as they are now; those at its opening when somebody has written impossible ones.
    pub fn limits(&self) -> Limits {
        let now = self.raw_limits();
        if now.check().is_ok() { now } else { self.opened }
    }
    fn raw_limits(&self) -> Limits {
        let [msl, mns, opm, mni] = [0, 1, 2, 3].map(|i: usize| self.header().limits[i].load(Relaxed));
        Limits { msl, mns, opm, mni }
    }
    /// The namespace's fairness.
    pub fn fairness(&self) -> Fairness {
        if self.header().fairness.load(Relaxed) == 1 { Fairness::Barging } else { Fairness::Strict }
    }

    /// The window as it is now, for several looks at the price of one.
    #[inline]
    pub fn view(&self) -> View<'_> {
        let w = self.window.load(Acquire);
        View { base: w & !0xfff, len: 1 << (w & 63), arena: PhantomData }
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> &Header {
        let w = self.window.load(Acquire);
        // SAFETY: the window begins with the header, is at least 64 MiB long and stays mapped while the arena lives.
        unsafe { &*((w & !0xfff) as *const Header) }
    }

    /// The object of type `T` at byte offset `at`; None when it lies outside the file or is not aligned.
    #[inline]
    pub fn at<T: Shared>(&self, at: u64) -> Option<&T> {
        let w = self.window.load(Acquire);
        let end = at.checked_add(size_of::<T>() as u64)?;
        if end > 1 << (w & 63) || !at.is_multiple_of(align_of::<T>() as u64) {
            return self.at_slow(at, end);
        }
        // SAFETY: in bounds of a mapping that lives as long as the arena; aligned, as the window is by pages; T is Shared.
        Some(unsafe { &*(((w & !0xfff) + at) as *const T) })
    }

    #[cold]
    #[inline(never)]
    fn at_slow<T: Shared>(&self, at: u64, end: u64) -> Option<&T> {
        if !at.is_multiple_of(align_of::<T>() as u64) || end > FILE_BYTES || self.extend(end).is_err() {
            return None;
        }
        self.at(at)
    }

    /// Makes the window reach `end`. The old mapping stays until the arena goes: other threads may be in it.
    fn extend(&self, end: u64) -> Result<(), Errno> {
        loop {
            let w = self.window.load(Acquire);
            if end <= 1 << (w & 63) {
                return Ok(());
            }
            let log2 = u64::BITS - (end - 1).leading_zeros();
            let len = 1usize << log2;
            // SAFETY: the window is a shared file mapping from its start.
            let p = unsafe { memory::remap_larger((w & !0xfff) as *mut u8, len)? };
            if self.window.compare_exchange(w, p as u64 | log2 as u64, AcqRel, Relaxed).is_err() {
                // SAFETY: nobody has seen it.
                unsafe { memory::unmap(p, len) };
            } else if let Some(kept) = self.outgrown.get((w & 63) as usize - FIRST_WINDOW_LOG2 as usize) {
                // A window only grows, so it had this length once.
                kept.store(w & !0xfff, Relaxed);
            }
        }
    }

    /// For a handler of SIGBUS. When `address` lies in a mapping of this arena, whose file has been cut short under it (or has a hole that a
    /// full file system cannot fill), puts private zeros over the whole mapping, so that the access can be repeated; the arena is of no
    /// use then, which `first` is told before any other thread can meet the zeros. False: it lies elsewhere, and the signal means something
    /// else.
    pub fn replace_lost(&self, address: usize, first: impl Fn()) -> bool {
        if crate::region::replace_lost(self, address, &first) {
            return true;
        }
        let w = self.window.load(Acquire);
        let outgrown = self.outgrown.iter().zip(FIRST_WINDOW_LOG2..).map(|(old, log2)| (old.load(Acquire), log2));
        let mut windows = core::iter::once((w & !0xfff, (w & 63) as u32)).chain(outgrown);
        let found = windows.find(|&(base, log2)| base != 0 && (base..base + (1 << log2)).contains(&(address as u64)));
        found.is_some_and(|(base, log2)| {
            first();
            // SAFETY: a window is this arena's; what it showed is lost, and zeros are a value of every Shared type.
            unsafe { memory::clear(base as *mut u8, 1 << log2) }.is_ok()
        })
    }

    /// The address of a page, for the robust word's alias.
    pub fn page_address(&self, at: u64) -> Option<*mut u8> {
        self.at::<AtomicU64>(at).map(|p| core::ptr::from_ref(p) as *mut u8)
    }

    /// Allocates the pages of a range, so that no access to it can fail later.
    pub fn populate(&self, at: u64, len: u64) -> Result<(), Errno> {
        let first = at & !(PAGE - 1);
        let end = at.checked_add(len).filter(|&e| e <= FILE_BYTES).ok_or(Errno::ENOMEM)?.next_multiple_of(PAGE);
        self.extend(end)?;
        let base = self.window.load(Acquire) & !0xfff;
        // SAFETY: the range lies in the window.
        unsafe { memory::populate((base + first) as *mut u8, (end - first) as usize) }
    }

    /// Gives the whole pages of a range back. The caller owns what lies there and has no more use for it.
    pub fn release(&self, at: u64, len: u64) {
        let (first, end) = (at.next_multiple_of(PAGE), (at + len) & !(PAGE - 1));
        if first < end && self.extend(end).is_ok() {
            let base = self.window.load(Acquire) & !0xfff;
            // SAFETY: the range lies in the window, a shared mapping; the caller owns it.
            unsafe { memory::release((base + first) as *mut u8, (end - first) as usize) };
        }
    }
}

/// A window of the arena. It stays mapped while the arena lives.
#[derive(Clone, Copy)]
pub struct View<'e> {
    base: u64,
    len: u64,
    arena: PhantomData<&'e Arena>,
}

impl<'e> View<'e> {
    /// The object of type `T` at byte offset `at`; None when it lies outside this window or is not aligned.
    #[inline(always)]
    pub fn at<T: Shared>(self, at: u64) -> Option<&'e T> {
        // A window is longer than any object: one comparison also tells a sum that would wrap.
        const { assert!(size_of::<T>() as u64 <= 1 << FIRST_WINDOW_LOG2) };
        if at > self.len - size_of::<T>() as u64 || !at.is_multiple_of(align_of::<T>() as u64) {
            return None;
        }
        // SAFETY: in bounds of a mapping that lives as long as the arena; not null, since the window is not; aligned, as the window is
        // by pages; T is Shared.
        Some(unsafe { NonNull::new_unchecked((self.base + at) as *mut T).as_ref() })
    }

    /// Element `i` of the id table. The first window is the least one, and holds it.
    #[inline(always)]
    pub fn id(self, i: u32) -> &'e AtomicU64 {
        const { assert!(IDS_AT + MAX_SETS as u64 * 8 <= 1 << FIRST_WINDOW_LOG2) };
        // SAFETY: in bounds by the assertion above and the mask; aligned; AtomicU64 is Shared.
        unsafe { NonNull::new_unchecked((self.base + IDS_AT + (i & (MAX_SETS - 1)) as u64 * 8) as *mut AtomicU64).as_ref() }
    }

    /// Process slot `i`; likewise.
    #[inline(always)]
    pub fn proc_slot(self, i: u32) -> &'e ProcSlot {
        const { assert!(PROCS_AT + MAX_SLOTS as u64 * size_of::<ProcSlot>() as u64 <= 1 << FIRST_WINDOW_LOG2) };
        // SAFETY: as in `id`.
        unsafe {
            NonNull::new_unchecked((self.base + PROCS_AT + (i & (MAX_SLOTS - 1)) as u64 * size_of::<ProcSlot>() as u64) as *mut ProcSlot)
                .as_ref()
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let w = self.window.load(Acquire);
        // SAFETY: references into the arena borrow it.
        unsafe { memory::unmap((w & !0xfff) as *mut u8, 1 << (w & 63)) };
        for (old, log2) in self.outgrown.iter().zip(FIRST_WINDOW_LOG2..) {
            let old = old.load(Acquire);
            if old != 0 {
                // SAFETY: as above; `extend` put it there, with this length.
                unsafe { memory::unmap(old as *mut u8, 1 << log2) };
            }
        }
    }
}

enum Found {
    Usable(Arena),
    /// Of another boot; who shared it.
    OtherBoot(Share),
    /// Removed, but for its files; who shared it.
    Ended(Share),
}

/// The directory of a namespace, open and found to be trusted. All that follows goes through its descriptor.
pub(crate) struct Dir {
    pub(crate) fd: Fd,
    pub(crate) st: Stat,
}

impl Dir {
    pub(crate) fn open(path: &CStr, how: &OpenOptions) -> Result<Dir, OpenError> {
        let os = |what| move |e| OpenError::Os(what, e);
        const NAMED: i32 = flags::O_DIRECTORY | flags::O_NOFOLLOW;
        if how.create {
            match sys::mkdir(path, 0o700) {
                // A umask may have taken even the owner's bits.
                Ok(()) => sys::openat(flags::AT_FDCWD, path, flags::O_PATH | NAMED, 0)
                    .and_then(|fd| match sys::fstat(&fd)? {
                        st if st.mode & 0o777 == 0o700 || st.uid != sys::geteuid() => Ok(()),
                        _ => sys::fchmod(&fd, 0o700),
                    })
                    .map_err(os("cannot give the directory its mode"))?,
                Err(Errno::EEXIST) => {}
                Err(e) => return Err(OpenError::Os("cannot make the directory", e)),
            }
        }
        let fd = sys::openat(flags::AT_FDCWD, path, flags::O_RDONLY | NAMED, 0).map_err(os("cannot open the directory"))?;
        let st = trust::check_directory(&fd, how)?;
        Ok(Dir { fd, st })
    }

    /// Opens the file with the arena's name. Something else that has it must neither make this wait nor become a terminal.
    pub(crate) fn arena(&self) -> Result<Fd, Errno> {
        sys::openat(self.fd.raw(), FILE_NAME, flags::O_RDWR | flags::O_NOFOLLOW | flags::O_NONBLOCK | flags::O_NOCTTY, 0)
    }
}

/// What an arena must have in common with who opens it.
struct Here {
    boot: [u64; 2],
    pid_ns: u64,
    user_ns: u64,
}

impl Here {
    fn now() -> Here {
        let mut buf = [0u8; 64];
        let text = sys::read_file(c"/proc/sys/kernel/random/boot_id", &mut buf).unwrap_or(&[]);
        let mut boot = 0u128;
        for digit in text.iter().filter_map(|&b| (b as char).to_digit(16)) {
            boot = boot << 4 | digit as u128;
        }
        let pid_ns = sys::stat(c"/proc/self/ns/pid").map_or(0, |s| s.ino);
        Here { boot: [(boot >> 64) as u64, boot as u64], pid_ns, user_ns: sys::user_namespace() }
    }
}
