//! The test kit's only unsafe code: C's semaphore functions and the process calls that std lacks.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use libc::{c_int, c_long, c_ulong, c_void};
use manyway_sem::Errno;
use manyway_sem::abi::{self, SemBuf};

use crate::protocol::{Clone, Info, Op, Pointer, Res, Stat};

unsafe extern "C" {
    fn semtimedop(id: c_int, ops: *mut SemBuf, nsops: usize, timeout: *const libc::timespec) -> c_int;
}

/// An address that no process maps.
const UNMAPPED: usize = 0x10;

fn errno() -> Errno {
    Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}
fn check(ret: c_int) -> Res {
    if ret == -1 { Err(errno()) } else { Ok(i64::from(ret)) }
}
fn address<T>(p: Pointer, valid: *mut T) -> *mut T {
    match p {
        Pointer::Null => std::ptr::null_mut(),
        Pointer::Unmapped => std::ptr::without_provenance_mut(UNMAPPED),
        Pointer::Valid => valid,
    }
}

pub fn semget(key: i32, nsems: i32, flags: i32) -> Res {
    // SAFETY: takes numbers only.
    check(unsafe { libc::semget(key, nsems, flags) })
}

/// semop, or semtimedop when there is a timeout. The second result is false when the call changed the timeout.
pub fn semop(id: i32, ops: &[SemBuf], timeout: Option<(i64, i64)>) -> (Res, bool) {
    let mut ops = ops.to_vec();
    let Some((tv_sec, tv_nsec)) = timeout else {
        // SAFETY: `ops` holds `len` elements that live over the call; the layouts of SemBuf and sembuf are the same.
        return (check(unsafe { libc::semop(id, ops.as_mut_ptr().cast(), ops.len()) }), true);
    };
    let ts = libc::timespec { tv_sec, tv_nsec };
    // SAFETY: as above, and `ts` lives over the call.
    let ret = check(unsafe { semtimedop(id, ops.as_mut_ptr(), ops.len(), &raw const ts) });
    // The callee got a pointer to it: read what is there now.
    // SAFETY: `ts` is a live local.
    let now = unsafe { std::ptr::read_volatile(&raw const ts) };
    (ret, now.tv_sec == tv_sec && now.tv_nsec == tv_nsec)
}

/// semtimedop with pointers that may be bad: what they lead to is the callee's to find out.
pub fn raw_semop(id: i32, ops: Pointer, nsops: usize, timeout: Option<Pointer>) -> Res {
    let mut good = vec![SemBuf::default(); nsops.clamp(1, 1 << 16)];
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let ops = address(ops, good.as_mut_ptr());
    // SAFETY: a good pointer leads to `nsops` elements (the tests ask for fewer than 65,536); a bad one is refused by the callee.
    check(unsafe {
        match timeout {
            None => libc::semop(id, ops.cast(), nsops),
            Some(t) => semtimedop(id, ops, nsops, address(t, &raw mut ts)),
        }
    })
}

/// semctl with a command that takes a number or nothing.
pub fn semctl(id: i32, num: i32, cmd: i32, val: i32) -> Res {
    // SAFETY: the callee reads the argument as a number, or not at all.
    check(unsafe { libc::semctl(id, num, cmd, c_long::from(val)) })
}
/// semctl without a fourth argument.
pub fn semctl3(id: i32, num: i32, cmd: i32) -> Res {
    // SAFETY: for commands that take no argument.
    check(unsafe { libc::semctl(id, num, cmd) })
}

/// semctl with a pointer that may be bad; a good one has room for anything.
pub fn raw_semctl(id: i32, num: i32, cmd: i32, arg: Pointer) -> Res {
    let mut room = vec![0u16; 1 << 15];
    // SAFETY: 64 KiB hold the largest array and every structure; a bad pointer is refused by the callee.
    check(unsafe { libc::semctl(id, num, cmd, address(arg, room.as_mut_ptr())) })
}

pub fn getall(id: i32) -> Result<Vec<u16>, Errno> {
    let mut vals = vec![0u16; 1 << 15];
    // SAFETY: room for the largest set.
    check(unsafe { libc::semctl(id, 0, abi::GETALL, vals.as_mut_ptr()) })?;
    Ok(vals)
}

pub fn setall(id: i32, vals: &[u16]) -> Res {
    // The callee reads as many as the set has, whatever the caller thinks.
    let mut room = vec![0u16; 1 << 15];
    room[..vals.len()].copy_from_slice(vals);
    // SAFETY: room for the largest set.
    check(unsafe { libc::semctl(id, 0, abi::SETALL, room.as_ptr()) })
}

/// IPC_STAT, SEM_STAT, SEM_STAT_ANY.
pub fn stat(id: i32, cmd: i32) -> Result<(i64, Stat), Errno> {
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut ds: libc::semid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: `ds` is the structure that these commands fill.
    let ret = check(unsafe { libc::semctl(id, 0, cmd, &raw mut ds) })?;
    let p = &ds.sem_perm;
    let stat = Stat {
        key: p.__key,
        uid: p.uid,
        gid: p.gid,
        cuid: p.cuid,
        cgid: p.cgid,
        mode: u32::from(p.mode),
        nsems: ds.sem_nsems,
        otime: ds.sem_otime,
        ctime: ds.sem_ctime,
    };
    Ok((ret, stat))
}

pub fn set_perm(id: i32, uid: u32, gid: u32, mode: u32) -> Res {
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut ds: libc::semid_ds = unsafe { std::mem::zeroed() };
    ds.sem_perm.uid = uid;
    ds.sem_perm.gid = gid;
    ds.sem_perm.mode = mode as _;
    // SAFETY: `ds` is the structure that IPC_SET reads.
    check(unsafe { libc::semctl(id, 0, abi::IPC_SET, &raw mut ds) })
}

/// IPC_INFO, or SEM_INFO when `used`.
pub fn info(used: bool) -> Result<(i64, Info), Errno> {
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut i: libc::seminfo = unsafe { std::mem::zeroed() };
    let cmd = if used { abi::SEM_INFO } else { abi::IPC_INFO };
    // SAFETY: `i` is the structure that both commands fill.
    let ret = check(unsafe { libc::semctl(0, 0, cmd, &raw mut i) })?;
    let (sets, sems) = if used { (i.semusz, i.semaem) } else { (0, 0) };
    Ok((ret, Info { msl: i.semmsl, mns: i.semmns, opm: i.semopm, mni: i.semmni, sets, sems }))
}

/// fork, or clone(CLONE_SYSVSEM) without shared memory: 0 in the child.
pub fn clone_process(how: Clone) -> Res {
    match how {
        // SAFETY: the worker's other threads hold no lock that the child needs: they wait for commands.
        Clone::Fork => check(unsafe { libc::fork() }),
        Clone::ShareUndo => {
            let flags = (libc::CLONE_SYSVSEM | libc::SIGCHLD) as c_ulong;
            // SAFETY: no memory is shared, so the child goes on as after fork.
            let ret = unsafe { libc::syscall(libc::SYS_clone, flags, 0 as c_ulong, 0, 0, 0) };
            check(ret as c_int)
        }
        Clone::Thread => Err(Errno::EINVAL),
    }
}

/// Closes every descriptor except the standard ones and this.
pub fn close_all_but(keep: &impl AsRawFd) {
    let keep = keep.as_raw_fd() as libc::c_uint;
    for (first, last) in [(3, keep - 1), (keep + 1, libc::c_uint::MAX)] {
        // SAFETY: nothing in this process, a fresh child of one thread, uses another descriptor.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

pub fn waitpid(pid: i32) -> Res {
    loop {
        // SAFETY: asks for no status.
        match check(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

pub fn unshare_undo() -> Res {
    // SAFETY: gives up the shared list of adjustments only.
    check(unsafe { libc::unshare(libc::CLONE_SYSVSEM) })
}

/// Sets all user and group ids.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Res {
    // SAFETY: `groups` lives over the call; the others take numbers only.
    unsafe {
        check(libc::setgroups(groups.len(), groups.as_ptr()))?;
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))
    }
}

/// Seconds since 1970, by the kernel's coarse clock, which semaphores' times come from too.
pub fn seconds() -> i64 {
    // SAFETY: asks for the result only.
    unsafe { libc::time(std::ptr::null_mut()) }
}
pub fn gettid() -> i32 {
    // SAFETY: has no precondition.
    unsafe { libc::gettid() }
}
pub fn effective_uid() -> u32 {
    // SAFETY: has no precondition.
    unsafe { libc::geteuid() }
}

/// Ends the calling thread alone, even the process's first.
pub fn exit_thread() -> ! {
    // SAFETY: nothing of the thread's is needed any more; the process goes on with its other threads.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit returns to nobody")
}

/// Waits until something can be read, or for so long.
pub fn wait_readable(from: &impl AsRawFd, wait: std::time::Duration) {
    let mut fd = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let ts = libc::timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos().into() };
    // SAFETY: one descriptor and a timeout, both live over the call.
    unsafe { libc::ppoll(&raw mut fd, 1, &raw const ts, std::ptr::null()) };
}

/// Sends a signal to one thread.
pub fn signal_thread(pid: i32, tid: i32, signal: i32) {
    // SAFETY: takes numbers only; `pid` is one of this test's workers, not yet waited for.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
}
/// Sends a signal to one process.
pub fn signal_process(pid: i32, signal: i32) {
    // SAFETY: as above.
    unsafe { libc::kill(pid, signal) };
}

static HANDLED: AtomicU32 = AtomicU32::new(0);
static THEN_SET: AtomicI32 = AtomicI32::new(-1);
static THEN_OP: AtomicU32 = AtomicU32::new(0);
static THEN_FAILED: AtomicU32 = AtomicU32::new(0);

/// Called in a handler with what the handler is to do: does it, now or later.
type Around = fn(c_int, fn());
static AROUND: OnceLock<Around> = OnceLock::new();

/// Has every handler run through `around`.
pub fn handle_through(around: Around) {
    AROUND.get_or_init(|| around);
}

extern "C" fn handler(signal: c_int) {
    match AROUND.get() {
        Some(around) => around(signal, handled_now),
        None => handled_now(),
    }
}

fn handled_now() {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    let set = THEN_SET.load(Ordering::Relaxed);
    if set >= 0 {
        let packed = THEN_OP.load(Ordering::Relaxed);
        let mut op = SemBuf { num: packed as u16, op: (packed >> 16) as i16, flg: abi::IPC_NOWAIT as i16 };
        // SAFETY: one element that lives over the call.
        if unsafe { libc::semop(set, (&raw mut op).cast(), 1) } != 0 {
            THEN_FAILED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Installs a handler that counts `signal`, and then does `then` if asked to.
pub fn handle(signal: i32, restart: bool, then: Option<(i32, Op)>) -> Res {
    if let Some((id, op)) = then {
        THEN_OP.store(u32::from(op.num) | u32::from(op.op as u16) << 16, Ordering::Relaxed);
        THEN_SET.store(id, Ordering::Relaxed);
    }
    // SAFETY: all zeros is a valid sigaction; the handler uses atomics and semop only, which may be called in a handler.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = handler as *const () as usize;
        act.sa_flags = if restart { libc::SA_RESTART } else { 0 };
        check(libc::sigaction(signal, &raw const act, std::ptr::null_mut::<libc::sigaction>().cast::<c_void>().cast()))
    }
}

/// How often the handler ran, and how often its semop failed.
pub fn handled() -> (u32, u32) {
    (HANDLED.load(Ordering::Relaxed), THEN_FAILED.load(Ordering::Relaxed))
}

/// An IPC namespace of its own, with the given `kernel.sem`; it ends with its last process and descriptor.
pub fn new_ipc_namespace(limits: Option<[u32; 4]>) -> io::Result<OwnedFd> {
    // Namespaces belong to threads: one that ends does not touch the others.
    let make = move || {
        // SAFETY: changes this short-lived thread's namespace only.
        if unsafe { libc::unshare(libc::CLONE_NEWIPC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if let Some([msl, mns, opm, mni]) = limits {
            std::fs::write("/proc/sys/kernel/sem", format!("{msl} {mns} {opm} {mni}"))?;
        }
        Ok(std::fs::File::open("/proc/thread-self/ns/ipc")?.into())
    };
    std::thread::spawn(make).join().unwrap_or_else(|_| Err(io::Error::other("thread panicked")))
}

/// Makes `command` start in an IPC namespace, as a user, and end with this process.
pub fn start_in(command: &mut Command, namespace: Option<&OwnedFd>, user: Option<(u32, u32)>) {
    let fd: Option<RawFd> = namespace.map(AsRawFd::as_raw_fd);
    let enter = move || {
        // SAFETY: system calls only, between fork and exec.
        unsafe {
            if let Some(fd) = fd
                && libc::setns(fd, libc::CLONE_NEWIPC) != 0
            {
                return Err(io::Error::last_os_error());
            }
            if let Some((uid, gid)) = user
                && (libc::setgroups(0, std::ptr::null()) != 0 || libc::setresgid(gid, gid, gid) != 0 || libc::setresuid(uid, uid, uid) != 0)
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `enter` is async-signal-safe.
    unsafe { command.pre_exec(enter) };
}
