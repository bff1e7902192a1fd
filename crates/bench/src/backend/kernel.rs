//! The C library's `semop` and kin: the kernel's semaphores, or in a worker with the preloaded library, Manyway's.
#![allow(unsafe_code)]

use manyway_sem::Errno;
use manyway_sem::abi::SemBuf;

use super::{Backend, Kind, Place, Set, SetId};
use crate::Error;

/// The C symbols.
#[derive(Debug)]
pub struct Kernel {
    kind: Kind,
}

/// A set by its id.
#[derive(Debug)]
pub struct KernelSet(libc::c_int);

impl Backend for Kernel {
    type Set = KernelSet;

    fn join(place: &Place) -> Result<Kernel, Error> {
        Ok(Kernel { kind: place.kind })
    }

    fn create(&self, values: &[u16]) -> Result<SetId, Error> {
        // SAFETY: takes no pointers.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, values.len() as libc::c_int, libc::IPC_CREAT | 0o600) };
        let id = self.checked("semget", id)?;
        // SAFETY: SETALL reads as many u16 as the set has semaphores, which was made with `values.len()`.
        let set = unsafe { libc::semctl(id, 0, libc::SETALL, values.as_ptr()) };
        if let Err(error) = self.checked("semctl(SETALL)", set) {
            self.remove(SetId(id))?;
            return Err(error);
        }
        Ok(SetId(id))
    }

    fn open(&self, id: SetId) -> Result<KernelSet, Error> {
        Ok(KernelSet(id.0))
    }

    fn remove(&self, id: SetId) -> Result<(), Error> {
        // SAFETY: IPC_RMID takes no argument.
        let result = unsafe { libc::semctl(id.0, 0, libc::IPC_RMID) };
        self.checked("semctl(IPC_RMID)", result).map(drop)
    }
}

impl Kernel {
    fn checked(&self, call: &'static str, result: libc::c_int) -> Result<libc::c_int, Error> {
        checked(result).map_err(|errno| Error::Call { backend: self.kind, call, errno })
    }
}

impl Set for KernelSet {
    #[inline(always)]
    fn call(&self, ops: &[SemBuf]) -> Result<(), Errno> {
        // SAFETY: `SemBuf` is `struct sembuf`, and semop reads `ops.len()` of them and writes none.
        let result = unsafe { libc::semop(self.0, ops.as_ptr().cast_mut().cast(), ops.len()) };
        checked(result).map(drop)
    }

    fn sleepers(&self, num: u16) -> Result<u32, Errno> {
        // SAFETY: GETNCNT takes no argument.
        let result = unsafe { libc::semctl(self.0, num.into(), libc::GETNCNT) };
        checked(result).map(|count| count as u32)
    }
}

#[inline(always)]
fn checked(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result >= 0 { Ok(result) } else { Err(last_errno()) }
}

#[cold]
pub(super) fn last_errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}
