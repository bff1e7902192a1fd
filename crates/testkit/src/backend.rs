//! The two ways to call semaphores: C's functions (the kernel's, or Manyway's when preloaded) and Manyway's engine.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use manyway_sem::abi::{self, Timespec};
use manyway_sem::{Engine, Errno, Fairness, Limits, OpenOptions, Thread};

use crate::protocol::{Clone, Info, Op, Res, Stat};
use crate::sys;
use crate::worker::Namespace;

/// Semaphore calls of one worker.
pub trait Calls: Sync {
    fn get(&self, key: i32, nsems: i32, flags: i32) -> Res;
    /// The second result is false when the caller's timespec was changed.
    fn op(&self, id: i32, ops: &[Op], timeout: Option<(i64, i64)>) -> (Res, bool);
    fn ctl(&self, id: i32, num: i32, cmd: i32, val: i32) -> Res;
    fn get_all(&self, id: i32) -> Result<Vec<u16>, Errno>;
    fn set_all(&self, id: i32, vals: &[u16]) -> Res;
    fn stat(&self, id: i32, cmd: i32) -> Result<(i64, Stat), Errno>;
    fn set_perm(&self, id: i32, uid: u32, gid: u32, mode: u32) -> Res;
    fn info(&self, used: bool) -> Result<(i64, Info), Errno>;
    /// Who sleeps, if the backend can tell.
    fn sleepers(&self, id: i32) -> Result<Vec<i32>, Errno>;
    fn wait_pid(&self, pid: i32) -> Res;
    fn become_user(&self, uid: u32, gid: u32, groups: &[u32]) -> Res;
    fn unshare_undo(&self) -> Res;
    fn clone_process(&self, how: Clone) -> Res {
        sys::clone_process(how)
    }
}

/// C's functions.
pub struct C;

impl Calls for C {
    fn get(&self, key: i32, nsems: i32, flags: i32) -> Res {
        sys::semget(key, nsems, flags)
    }
    fn op(&self, id: i32, ops: &[Op], timeout: Option<(i64, i64)>) -> (Res, bool) {
        let ops: Vec<_> = ops.iter().map(|o| o.sembuf()).collect();
        sys::semop(id, &ops, timeout)
    }
    fn ctl(&self, id: i32, num: i32, cmd: i32, val: i32) -> Res {
        // As programs do: the fourth argument only where the command takes one.
        if cmd == abi::SETVAL { sys::semctl(id, num, cmd, val) } else { sys::semctl3(id, num, cmd) }
    }
    fn get_all(&self, id: i32) -> Result<Vec<u16>, Errno> {
        sys::getall(id)
    }
    fn set_all(&self, id: i32, vals: &[u16]) -> Res {
        sys::setall(id, vals)
    }
    fn stat(&self, id: i32, cmd: i32) -> Result<(i64, Stat), Errno> {
        sys::stat(id, cmd)
    }
    fn set_perm(&self, id: i32, uid: u32, gid: u32, mode: u32) -> Res {
        sys::set_perm(id, uid, gid, mode)
    }
    fn info(&self, used: bool) -> Result<(i64, Info), Errno> {
        sys::info(used)
    }
    fn sleepers(&self, _id: i32) -> Result<Vec<i32>, Errno> {
        Err(Errno::ENOSYS)
    }
    fn wait_pid(&self, pid: i32) -> Res {
        sys::waitpid(pid)
    }
    fn become_user(&self, uid: u32, gid: u32, groups: &[u32]) -> Res {
        sys::become_user(uid, gid, groups)
    }
    fn unshare_undo(&self) -> Res {
        sys::unshare_undo()
    }
}

/// Manyway's engine, on the namespace that this process opened.
pub struct Direct;

static ENGINE: OnceLock<Engine> = OnceLock::new();
thread_local! {
    static THREAD: Thread = const { Thread::new() };
}

/// Opens the namespace for this process.
pub fn open_engine(namespace: &Namespace) {
    let limits = namespace.limits.map(|[msl, mns, opm, mni]| Limits { msl, mns, opm, mni });
    let fairness = namespace.barging.then_some(Fairness::Barging);
    let path = CString::new(namespace.dir.as_os_str().as_bytes()).expect("directory without NUL");
    let how = OpenOptions { limits, fairness, ..OpenOptions::CREATE };
    let mut engine = Engine::open(&path, &how).unwrap_or_else(|e| panic!("{}: {e:?}", namespace.dir.display()));
    engine.set_deferred_hook(|_| {
        sys::signal_thread(std::process::id() as i32, sys::gettid(), DEFERRED.swap(0, Ordering::Relaxed));
    });
    sys::handle_through(trampoline);
    assert!(ENGINE.set(engine).is_ok(), "one namespace a worker");
}

/// The signal that came in a locked section, and comes again at its end.
static DEFERRED: AtomicI32 = AtomicI32::new(0);

/// What the engine asks of a program with signal handlers.
fn trampoline(signal: i32, handler: fn()) {
    with(|e, t| {
        if Engine::in_section(t) {
            DEFERRED.store(signal, Ordering::Relaxed);
            return Engine::defer(t);
        }
        let token = e.before_handler(t);
        handler();
        e.after_handler(t, token);
    });
}

fn with<R>(f: impl FnOnce(&Engine, &Thread) -> R) -> R {
    THREAD.with(|t| f(ENGINE.get().expect("opened at start"), t))
}

impl Calls for Direct {
    fn get(&self, key: i32, nsems: i32, flags: i32) -> Res {
        with(|e, t| e.semget(t, key, nsems, flags)).map(i64::from)
    }
    fn op(&self, id: i32, ops: &[Op], timeout: Option<(i64, i64)>) -> (Res, bool) {
        let ops: Vec<_> = ops.iter().map(|o| o.sembuf()).collect();
        let timeout = timeout.map(|(sec, nsec)| Timespec { sec, nsec });
        (with(|e, t| e.semop(t, id, &ops, timeout)).map(|()| 0), true)
    }
    fn ctl(&self, id: i32, num: i32, cmd: i32, val: i32) -> Res {
        with(|e, t| match cmd {
            abi::GETVAL => e.getval(t, id, num),
            abi::GETPID => e.getpid(t, id, num),
            abi::GETNCNT => e.getncnt(t, id, num),
            abi::GETZCNT => e.getzcnt(t, id, num),
            abi::SETVAL => e.setval(t, id, num, val).map(|()| 0),
            abi::IPC_RMID => e.remove(t, id).map(|()| 0),
            _ => panic!("command {cmd} is for the C interface"),
        })
        .map(i64::from)
    }
    fn get_all(&self, id: i32) -> Result<Vec<u16>, Errno> {
        with(|e, t| {
            let mut vals = vec![0; e.array_len(t, id, false)?];
            e.getall(t, id, &mut vals)?;
            Ok(vals)
        })
    }
    fn set_all(&self, id: i32, vals: &[u16]) -> Res {
        with(|e, t| {
            let len = e.array_len(t, id, true)?;
            let mut all = vals.to_vec();
            all.resize(len.max(vals.len()), 0);
            e.setall(t, id, &all).map(|()| 0)
        })
    }
    fn stat(&self, id: i32, cmd: i32) -> Result<(i64, Stat), Errno> {
        with(|e, t| {
            let s = match cmd {
                abi::IPC_STAT => e.stat(t, id)?,
                abi::SEM_STAT => e.stat_index(t, id, false)?,
                _ => e.stat_index(t, id, true)?,
            };
            let ret = if cmd == abi::IPC_STAT { 0 } else { i64::from(s.id) };
            let (key, mode, nsems) = (s.key, s.mode, u64::from(s.nsems));
            let (uid, gid, cuid, cgid) = (s.uid, s.gid, s.cuid, s.cgid);
            Ok((ret, Stat { key, uid, gid, cuid, cgid, mode, nsems, otime: s.otime, ctime: s.ctime }))
        })
    }
    fn set_perm(&self, id: i32, uid: u32, gid: u32, mode: u32) -> Res {
        with(|e, t| e.set_perm(t, id, uid, gid, mode)).map(|()| 0)
    }
    fn info(&self, used: bool) -> Result<(i64, Info), Errno> {
        let i = with(|e, _| e.info());
        let (sets, sems) = if used { (i.sets, i.sems) } else { (0, 0) };
        Ok((i64::from(i.highest), Info { msl: i.msl, mns: i.mns, opm: i.opm, mni: i.mni, sets, sems }))
    }
    fn sleepers(&self, id: i32) -> Result<Vec<i32>, Errno> {
        let mut tids = Vec::new();
        with(|e, t| e.for_each_sleeper(t, id, &mut |s, _| tids.push(s.tid as i32)))?;
        Ok(tids)
    }
    fn wait_pid(&self, pid: i32) -> Res {
        let ret = sys::waitpid(pid)?;
        with(|e, t| e.reap(t, Some(ret as u32)));
        Ok(ret)
    }
    fn become_user(&self, uid: u32, gid: u32, groups: &[u32]) -> Res {
        let ret = sys::become_user(uid, gid, groups);
        with(|e, _| e.forget_credentials());
        ret
    }
    fn unshare_undo(&self) -> Res {
        with(|e, t| e.apply_own_undo(t));
        Ok(0)
    }
}
