//! The C library's `semop` and kin: the kernel's semaphores, or in a worker with the preloaded library, Manyway's.
#![allow(unsafe_code)]

use std::time::Duration;

use manyway_sem::Errno;
use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO, SemBuf};

use super::{Backend, Kind, Place, Sem, Set, SetId, Several};
use crate::Error;

unsafe extern "C" {
    // The libc crate lacks it.
    fn semtimedop(set: libc::c_int, ops: *mut libc::sembuf, count: libc::size_t, time: *const libc::timespec) -> libc::c_int;
}

/// The C symbols.
#[derive(Debug)]
pub struct Kernel {
    kind: Kind,
}

/// A set by its id.
#[derive(Debug)]
pub struct KernelSet(libc::c_int);

/// A semaphore by its set's id and its number.
#[derive(Debug)]
pub struct KernelSem {
    set: libc::c_int,
    num: u16,
    flags: i16,
}

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

    fn keyed(&self, key: i32, sems: u16) -> Result<SetId, Error> {
        // SAFETY: takes no pointers.
        let id = unsafe { libc::semget(key, sems.into(), libc::IPC_CREAT | 0o600) };
        self.checked("semget", id).map(SetId)
    }

    fn part(&self) {
        if self.kind == Kind::Kernel {
            // SAFETY: concerns this process alone. Without the right to it, the kernel's only sets are shared as ever.
            let _ = unsafe { libc::unshare(libc::CLONE_NEWIPC) };
        }
    }

    fn list(&self) -> Result<usize, Error> {
        let mut room = [0u64; 16];
        // SAFETY: SEM_INFO fills a `struct seminfo`, which is shorter than the room.
        let highest = self.checked("semctl(SEM_INFO)", unsafe { libc::semctl(0, 0, libc::SEM_INFO, room.as_mut_ptr()) })?;
        // SAFETY: SEM_STAT_ANY fills a `struct semid_ds`, likewise.
        let stat = |index| unsafe { libc::semctl(index, 0, libc::SEM_STAT_ANY, room.as_mut_ptr()) };
        Ok((0..=highest).map(stat).filter(|&id| id >= 0).count())
    }

    fn failed(&self, call: &'static str, errno: Errno) -> Error {
        Error::Call { backend: self.kind, call, errno }
    }
}

impl Kernel {
    fn checked(&self, call: &'static str, result: libc::c_int) -> Result<libc::c_int, Error> {
        checked(result).map_err(|errno| self.failed(call, errno))
    }
}

impl Set for KernelSet {
    type Sem = KernelSem;

    fn sem(&self, num: u16, undo: bool) -> Result<KernelSem, Errno> {
        Ok(KernelSem { set: self.0, num, flags: if undo { SEM_UNDO as i16 } else { 0 } })
    }
    type Several = KernelCall;
    fn several(&self, ops: &[(u16, i16)]) -> Result<KernelCall, Errno> {
        Ok(KernelCall { set: self.0, ops: ops.iter().map(|&(num, op)| SemBuf { num, op, flg: 0 }).collect() })
    }
    fn give_each(&self, nums: &[u16]) -> Result<(), Errno> {
        const MOST: usize = 64;
        let mut ops = [SemBuf { num: 0, op: 1, flg: IPC_NOWAIT as i16 }; MOST];
        nums.chunks(MOST).try_for_each(|nums| {
            ops.iter_mut().zip(nums).for_each(|(op, &num)| op.num = num);
            semop(self.0, &ops[..nums.len()])
        })
    }
    fn set_values(&self, values: &[u16]) -> Result<(), Errno> {
        // SAFETY: SETALL reads as many u16 as the set has semaphores: the caller has one value for each.
        checked(unsafe { libc::semctl(self.0, 0, libc::SETALL, values.as_ptr()) }).map(drop)
    }
}

/// A call of several operations.
pub struct KernelCall {
    set: i32,
    ops: Vec<SemBuf>,
}

impl Several for KernelCall {
    #[inline(always)]
    fn call(&self) -> Result<(), Errno> {
        semop(self.set, &self.ops)
    }
}

impl Sem for KernelSem {
    #[inline(always)]
    fn take(&self) -> Result<(), Errno> {
        semop(self.set, &[SemBuf { num: self.num, op: -1, flg: self.flags }])
    }
    #[inline(always)]
    fn try_take(&self) -> Result<(), Errno> {
        semop(self.set, &[SemBuf { num: self.num, op: -1, flg: self.flags | IPC_NOWAIT as i16 }])
    }
    #[inline(always)]
    fn give(&self) -> Result<(), Errno> {
        semop(self.set, &[SemBuf { num: self.num, op: 1, flg: self.flags }])
    }
    #[inline(always)]
    fn wait_zero(&self) -> Result<(), Errno> {
        semop(self.set, &[SemBuf { num: self.num, op: 0, flg: self.flags }])
    }
    fn take_for(&self, time: Duration) -> Result<(), Errno> {
        let mut op = SemBuf { num: self.num, op: -1, flg: self.flags };
        let time = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
        // SAFETY: `SemBuf` is `struct sembuf`; both outlive the call.
        checked(unsafe { semtimedop(self.set, (&raw mut op).cast(), 1, &raw const time) }).map(drop)
    }
    fn zero_sleepers(&self) -> Result<u32, Errno> {
        // SAFETY: GETZCNT takes no argument.
        let result = unsafe { libc::semctl(self.set, self.num.into(), libc::GETZCNT) };
        checked(result).map(|count| count as u32)
    }
    fn sleepers(&self) -> Result<u32, Errno> {
        // SAFETY: GETNCNT takes no argument.
        let result = unsafe { libc::semctl(self.set, self.num.into(), libc::GETNCNT) };
        checked(result).map(|count| count as u32)
    }
}

#[inline(always)]
fn semop(set: libc::c_int, ops: &[SemBuf]) -> Result<(), Errno> {
    // SAFETY: `SemBuf` is `struct sembuf`, and semop reads `ops.len()` of them and writes none.
    let result = unsafe { libc::semop(set, ops.as_ptr().cast_mut().cast(), ops.len()) };
    checked(result).map(drop)
}

#[inline(always)]
fn checked(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result >= 0 { Ok(result) } else { Err(last_errno()) }
}

#[cold]
pub(super) fn last_errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}
