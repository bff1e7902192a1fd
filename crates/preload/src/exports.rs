//! semget, semop, semtimedop, semctl.
//!
//! The order of checks is the kernel's: its tests for a call's arguments are here as far as they come before the set is looked
//! up, the others in the engine.

use core::ffi::{c_int, c_void};
use core::ptr;

use manyway_sem::abi::{SemBuf, Timespec};
use manyway_sem::{Engine, Thread};
use manyway_sync::Errno;

use crate::decode::{Command, SemidDs, Seminfo};
use crate::{arch, errno, scratch, start, tls, user};

/// The result of a C function.
#[inline(always)]
fn c(r: Result<c_int, Errno>) -> c_int {
    match r {
        Ok(v) => v,
        Err(e) => errno::fail(e),
    }
}

/// The personality routine of the functions below: the unwinder calls it when it takes their frames away, which only an asynchronous
/// cancellation makes it do, before the thread's clean-up handlers run. For them, as with the kernel's semaphores, the call is over.
pub(crate) extern "C" fn cancelled(_version: c_int, actions: c_int, _class: u64, _exception: *mut c_void, _context: *mut c_void) -> c_int {
    const CLEANUP_PHASE: c_int = 2;
    const CONTINUE_UNWIND: c_int = 8;
    if actions & CLEANUP_PHASE != 0
        && let Some(e) = start::opened()
    {
        e.abandon(&tls::block().thread);
    }
    CONTINUE_UNWIND
}

/// semget(2).
#[unsafe(no_mangle)]
pub extern "C" fn semget(key: c_int, nsems: c_int, flags: c_int) -> c_int {
    arch::when_cancelled!(cancelled);
    c(start::engine().and_then(|e| e.semget(&tls::block().thread, key, nsems, flags)))
}

/// semop(2). The usual call, one operation in memory that needs no question, is here; all others are in [`operate`].
#[unsafe(no_mangle)]
pub extern "C" fn semop(id: c_int, ops: *const SemBuf, nsops: usize) -> c_int {
    arch::when_cancelled!(cancelled);
    // The kernel takes an unsigned int.
    if let (1, Some(engine)) = (nsops as u32, start::opened())
        && let Some((num, op, flags)) = user::read_known(ops)
        && engine.try_one(&tls::block().thread, id, num, op, flags)
    {
        return 0;
    }
    operate(id, ops, nsops as u32, ptr::null())
}

/// semtimedop(2).
#[unsafe(no_mangle)]
pub extern "C" fn semtimedop(id: c_int, ops: *const SemBuf, nsops: usize, timeout: *const Timespec) -> c_int {
    arch::when_cancelled!(cancelled);
    operate(id, ops, nsops as u32, timeout)
}

/// semctl(2). On these machines a variable argument is passed as a named one is.
#[unsafe(no_mangle)]
pub extern "C" fn semctl(id: c_int, num: c_int, cmd: c_int, arg: *mut c_void) -> c_int {
    arch::when_cancelled!(cancelled);
    c(start::engine().and_then(|e| control(e, id, num, cmd, arg)))
}

#[inline(never)]
fn operate(id: c_int, ops: *const SemBuf, nsops: u32, timeout: *const Timespec) -> c_int {
    // Those who call it have left their frames.
    arch::when_cancelled!(cancelled);
    c(start::engine().and_then(|engine| {
        let timeout = if timeout.is_null() { None } else { Some(user::read(timeout)?) };
        let limit = engine.limits().opm;
        match nsops {
            n if n > limit => Err(Errno::E2BIG),
            0 => Err(Errno::EINVAL),
            n => scratch::with(n as usize, |copy: &mut [SemBuf]| {
                user::read_all(ops, copy)?;
                engine.semop(&tls::block().thread, id, copy, timeout).map(|()| 0)
            }),
        }
    }))
}

fn control(engine: &Engine, id: c_int, num: c_int, cmd: c_int, arg: *mut c_void) -> Result<c_int, Errno> {
    let t = &tls::block().thread;
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    match Command::from_number(cmd).ok_or(Errno::EINVAL)? {
        Command::Value => engine.getval(t, id, num),
        Command::Pid => engine.getpid(t, id, num),
        Command::AlterSleepers => engine.getncnt(t, id, num),
        Command::ZeroSleepers => engine.getzcnt(t, id, num),
        Command::SetValue => engine.setval(t, id, num, arg as usize as c_int).map(|()| 0),
        Command::Values => get_all(engine, t, id, arg.cast()),
        Command::SetValues => set_all(engine, t, id, arg.cast()),
        Command::Remove => engine.remove(t, id).map(|()| 0),
        Command::SetOwner => {
            let perm = user::read(arg.cast::<SemidDs>())?.perm;
            engine.set_perm(t, id, perm.uid, perm.gid, perm.mode).map(|()| 0)
        }
        Command::Stat => {
            let s = engine.stat(t, id)?;
            // SAFETY: IPC_STAT's argument is a struct semid_ds to be filled.
            unsafe { user::write_all(arg.cast(), &[SemidDs::from(s)]) }?;
            Ok(0)
        }
        Command::StatIndex { any } => {
            let s = engine.stat_index(t, id, any)?;
            // SAFETY: SEM_STAT's argument is a struct semid_ds to be filled.
            unsafe { user::write_all(arg.cast(), &[SemidDs::from(s)]) }?;
            Ok(s.id)
        }
        Command::Info { used } => {
            let i = engine.info();
            // SAFETY: IPC_INFO's argument is a struct seminfo to be filled.
            unsafe { user::write_all(arg.cast(), &[Seminfo::new(i, used)]) }?;
            Ok(i.highest)
        }
    }
}

fn get_all(engine: &Engine, t: &Thread, id: c_int, array: *mut u16) -> Result<c_int, Errno> {
    let n = engine.array_len(t, id, false)?;
    scratch::with(n, |values| {
        engine.getall(t, id, values)?;
        // SAFETY: GETALL's argument is an array of as many values as the set has.
        unsafe { user::write_all(array, values) }
    })?;
    Ok(0)
}

fn set_all(engine: &Engine, t: &Thread, id: c_int, array: *const u16) -> Result<c_int, Errno> {
    let n = engine.array_len(t, id, true)?;
    scratch::with(n, |values| {
        user::read_all(array, values)?;
        engine.setall(t, id, values)
    })?;
    Ok(0)
}
