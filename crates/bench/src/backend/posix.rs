//! Process-shared `sem_t` in a mapped file: what one counter costs at the least.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use manyway_sem::Errno;

use super::kernel::last_errno;
use super::{Backend, Kind, Place, Sem, Set, SetId};
use crate::Error;

/// How many sleepers of a semaphore a removal wakes.
const MOST_SLEEPERS: usize = 4096;

/// One `sem_t` on a cache line of its own.
#[repr(C, align(64))]
struct Slot(libc::sem_t);

/// The folder of the shared files: a file per set.
#[derive(Debug)]
pub struct Posix {
    dir: PathBuf,
}

/// A set's file, mapped.
#[derive(Clone, Debug)]
pub struct PosixSet(Rc<Mapping>);

/// One semaphore of a set, which stays mapped with it.
#[derive(Debug)]
pub struct PosixSem {
    sem: *mut libc::sem_t,
    _set: PosixSet,
}

#[derive(Debug)]
struct Mapping {
    slots: *mut Slot,
    len: usize,
}

impl Backend for Posix {
    type Set = PosixSet;

    fn join(place: &Place) -> Result<Posix, Error> {
        Ok(Posix { dir: place.dir.clone() })
    }

    fn create(&self, values: &[u16]) -> Result<SetId, Error> {
        let (id, file) = self.new_file()?;
        file.set_len((values.len() * size_of::<Slot>()) as u64).map_err(Error::io("cannot size a set's file"))?;
        let set = PosixSet::map(&file)?;
        for (num, &value) in values.iter().enumerate() {
            // SAFETY: the slot lies in the mapping, which is writable, and no other process knows it yet.
            if unsafe { libc::sem_init(set.sem(num), 1, value.into()) } != 0 {
                return Err(Error::Call { backend: Kind::Posix, call: "sem_init", errno: last_errno() });
            }
        }
        Ok(id)
    }

    fn open(&self, id: SetId) -> Result<PosixSet, Error> {
        let path = self.path(id);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        PosixSet::map(&file.map_err(Error::io(format!("cannot open {}", path.display())))?)
    }

    fn keyed(&self, _: i32, _: u16) -> Result<SetId, Error> {
        Err(Error::Unsupported { backend: Kind::Posix, what: "keys" })
    }

    fn list(&self) -> Result<usize, Error> {
        Err(Error::Unsupported { backend: Kind::Posix, what: "lists of sets" })
    }

    fn failed(&self, call: &'static str, errno: Errno) -> Error {
        Error::Call { backend: Kind::Posix, call, errno }
    }

    fn remove(&self, id: SetId) -> Result<(), Error> {
        // Whoever sleeps in it has been told that it is over, but a `sem_t` has no way to say so: units for all.
        let set = self.open(id)?;
        for num in 0..set.0.len {
            for _ in 0..MOST_SLEEPERS {
                // SAFETY: as in `give`.
                unsafe { libc::sem_post(set.sem(num)) };
            }
        }
        let path = self.path(id);
        std::fs::remove_file(&path).map_err(Error::io(format!("cannot remove {}", path.display())))
    }
}

impl Posix {
    fn path(&self, id: SetId) -> PathBuf {
        self.dir.join(format!("set-{}", id.0))
    }

    fn new_file(&self) -> Result<(SetId, File), Error> {
        let mut id = 0;
        loop {
            let path = self.path(SetId(id));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((SetId(id), file)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => id += 1,
                Err(e) => return Err(Error::io(format!("cannot make {}", path.display()))(e)),
            }
        }
    }
}

impl PosixSet {
    fn map(file: &File) -> Result<PosixSet, Error> {
        let bytes = file.metadata().map_err(Error::io("cannot look at a set's file"))?.len() as usize;
        // SAFETY: a new mapping at a place of the system's choice; the file keeps its length while a run lasts.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(Error::io("cannot map a set's file")(std::io::Error::last_os_error()));
        }
        Ok(PosixSet(Rc::new(Mapping { slots: at.cast(), len: bytes / size_of::<Slot>() })))
    }

    #[inline(always)]
    fn sem(&self, num: usize) -> *mut libc::sem_t {
        assert!(num < self.0.len, "semaphore {num} of {}", self.0.len);
        // SAFETY: within the mapping, which has `len` slots.
        unsafe { &raw mut (*self.0.slots.add(num)).0 }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, of this length; no pointer into it outlives `self`.
        unsafe { libc::munmap(self.slots.cast(), self.len * size_of::<Slot>()) };
    }
}

impl Set for PosixSet {
    type Sem = PosixSem;

    fn sem(&self, num: u16, undo: bool) -> Result<PosixSem, Errno> {
        if undo { Err(Errno::ENOSYS) } else { Ok(PosixSem { sem: self.sem(num.into()), _set: self.clone() }) }
    }
    type Several = std::convert::Infallible;
    fn several(&self, _: &[(u16, i16)]) -> Result<Self::Several, Errno> {
        Err(Errno::ENOSYS)
    }
    fn give_each(&self, nums: &[u16]) -> Result<(), Errno> {
        // SAFETY: made by sem_init as process-shared, and mapped as long as `self` lives.
        nums.iter().try_for_each(|&num| checked(unsafe { libc::sem_post(self.sem(num.into())) }))
    }
    fn set_values(&self, _: &[u16]) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
}

impl Sem for PosixSem {
    #[inline(always)]
    fn take(&self) -> Result<(), Errno> {
        // SAFETY: made by sem_init as process-shared, and mapped as long as `_set` lives.
        checked(unsafe { libc::sem_wait(self.sem) })
    }
    #[inline(always)]
    fn try_take(&self) -> Result<(), Errno> {
        // SAFETY: as in `take`.
        checked(unsafe { libc::sem_trywait(self.sem) })
    }
    #[inline(always)]
    fn give(&self) -> Result<(), Errno> {
        // SAFETY: as in `take`.
        checked(unsafe { libc::sem_post(self.sem) })
    }
    fn wait_zero(&self) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    fn take_for(&self, time: Duration) -> Result<(), Errno> {
        // The clock of sem_timedwait is that of the day.
        let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + time;
        let until = libc::timespec { tv_sec: until.as_secs() as _, tv_nsec: until.subsec_nanos() as _ };
        // SAFETY: as in `take`; the time outlives the call.
        checked(unsafe { libc::sem_timedwait(self.sem, &raw const until) })
            .map_err(|e| if e == Errno::ETIMEDOUT { Errno::EAGAIN } else { e })
    }
    fn zero_sleepers(&self) -> Result<u32, Errno> {
        Err(Errno::ENOSYS)
    }
    fn sleepers(&self) -> Result<u32, Errno> {
        Err(Errno::ENOSYS)
    }
}

#[inline(always)]
fn checked(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
