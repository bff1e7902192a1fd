//! Process-shared `sem_t` in a mapped file: what one counter costs at the least.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use manyway_sem::Errno;
use manyway_sem::abi::SemBuf;

use super::kernel::last_errno;
use super::{Backend, Kind, Place, Set, SetId};
use crate::Error;

/// One `sem_t` on a cache line of its own.
#[repr(C, align(64))]
struct Slot(libc::sem_t);

/// The folder of the shared files: a file per set.
#[derive(Debug)]
pub struct Posix {
    dir: PathBuf,
}

/// A set's file, mapped.
#[derive(Debug)]
pub struct PosixSet {
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

    fn remove(&self, id: SetId) -> Result<(), Error> {
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
        Ok(PosixSet { slots: at.cast(), len: bytes / size_of::<Slot>() })
    }

    #[inline(always)]
    fn sem(&self, num: usize) -> *mut libc::sem_t {
        assert!(num < self.len, "semaphore {num} of {}", self.len);
        // SAFETY: within the mapping, which has `len` slots.
        unsafe { &raw mut (*self.slots.add(num)).0 }
    }
}

impl Drop for PosixSet {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, of this length; no pointer into it outlives `self`.
        unsafe { libc::munmap(self.slots.cast(), self.len * size_of::<Slot>()) };
    }
}

impl Set for PosixSet {
    /// One operation of +1 or −1 without flags.
    #[inline(always)]
    fn call(&self, ops: &[SemBuf]) -> Result<(), Errno> {
        let &[SemBuf { num, op: op @ (1 | -1), flg: 0 }] = ops else {
            return Err(Errno::EINVAL);
        };
        let sem = self.sem(num.into());
        // SAFETY: `sem` was made by sem_init as process-shared, and is mapped.
        let result = unsafe { if op > 0 { libc::sem_post(sem) } else { libc::sem_wait(sem) } };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    fn sleepers(&self, _: u16) -> Result<u32, Errno> {
        Err(Errno::ENOSYS)
    }
}
