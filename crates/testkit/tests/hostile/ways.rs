//! The ways to call: the engine's functions, C's, the crate's types.

use std::time::Duration;

use libc::c_int;
use manyway_sem::abi::*;
use manyway_sem::{Engine, Errno, Namespace, Op, Thread};

/// The calls of one thread on the namespace under attack.
pub trait Calls {
    fn get(&self, key: i32, nsems: i32, flags: i32) -> Result<i32, Errno>;
    fn op(&self, id: i32, ops: &mut [SemBuf], timeout: Option<Timespec>) -> Result<(), Errno>;
    fn ctl(&self, id: i32, num: i32, cmd: i32, val: i32) -> Result<i32, Errno>;
    fn get_all(&self, id: i32) -> Result<(), Errno>;
    fn set_all(&self, id: i32, value: u16) -> Result<(), Errno>;
    fn stat(&self, id: i32, by_index: bool) -> Result<(), Errno>;
    fn set_perm(&self, id: i32) -> Result<(), Errno>;
    fn info(&self) -> Result<(), Errno>;
    /// The end of the thread.
    fn leave(&self) {}
}

/// The engine's functions.
pub struct Direct<'e>(pub &'e Engine, pub Thread);

impl Calls for Direct<'_> {
    fn get(&self, key: i32, nsems: i32, flags: i32) -> Result<i32, Errno> {
        self.0.semget(&self.1, key, nsems, flags)
    }
    fn op(&self, id: i32, ops: &mut [SemBuf], timeout: Option<Timespec>) -> Result<(), Errno> {
        self.0.semop(&self.1, id, ops, timeout)
    }
    fn ctl(&self, id: i32, num: i32, cmd: i32, val: i32) -> Result<i32, Errno> {
        let (e, t) = (self.0, &self.1);
        match cmd {
            GETVAL => e.getval(t, id, num),
            GETPID => e.getpid(t, id, num),
            GETNCNT => e.getncnt(t, id, num),
            GETZCNT => e.getzcnt(t, id, num),
            SETVAL => e.setval(t, id, num, val).map(|()| 0),
            _ => e.remove(t, id).map(|()| 0),
        }
    }
    fn get_all(&self, id: i32) -> Result<(), Errno> {
        let mut out = vec![0; self.0.array_len(&self.1, id, false)?];
        self.0.getall(&self.1, id, &mut out)
    }
    fn set_all(&self, id: i32, value: u16) -> Result<(), Errno> {
        let vals = vec![value; self.0.array_len(&self.1, id, true)?];
        self.0.setall(&self.1, id, &vals)
    }
    fn stat(&self, id: i32, by_index: bool) -> Result<(), Errno> {
        if by_index { self.0.stat_index(&self.1, id & 7, false) } else { self.0.stat(&self.1, id) }.map(drop)
    }
    fn set_perm(&self, id: i32) -> Result<(), Errno> {
        self.0.set_perm(&self.1, id, 0, 0, 0o666)
    }
    fn info(&self) -> Result<(), Errno> {
        let _ = self.0.info();
        let mut n = 0;
        self.0.for_each_set(&self.1, &mut |s, _| n += s.nsems as u64);
        self.0.for_each_process(&mut |pid| n += u64::from(pid));
        n ^= self.0.operations(&self.1);
        std::hint::black_box(n);
        for index in 0..4 {
            if let Ok(s) = self.0.stat_index(&self.1, index, true) {
                self.0.for_each_holder(&self.1, s.id, &mut |h| _ = std::hint::black_box(h))?;
                self.0.for_each_sleeper(&self.1, s.id, &mut |s, ops| _ = std::hint::black_box((s, ops.len())))?;
            }
        }
        Ok(())
    }
    fn leave(&self) {
        self.0.detach_thread(&self.1);
    }
}

unsafe extern "C" {
    fn semtimedop(id: c_int, ops: *mut SemBuf, nsops: usize, timeout: *const Timespec) -> c_int;
}

/// C's functions.
pub struct C;

fn check(ret: c_int) -> Result<i32, Errno> {
    if ret == -1 { Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))) } else { Ok(ret) }
}

impl C {
    fn array(&self, id: i32) -> Result<Vec<u16>, Errno> {
        // The set's size is what the library says; it may be another one a moment later: room for all there can be.
        // SAFETY: all zeros is a semid_ds.
        let mut ds: libc::semid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: IPC_STAT fills the structure.
        check(unsafe { libc::semctl(id, 0, IPC_STAT, &raw mut ds) })?;
        Ok(vec![0; 1 << 16])
    }
}

impl Calls for C {
    fn get(&self, key: i32, nsems: i32, flags: i32) -> Result<i32, Errno> {
        // SAFETY: takes numbers only.
        check(unsafe { libc::semget(key, nsems, flags) })
    }
    fn op(&self, id: i32, ops: &mut [SemBuf], timeout: Option<Timespec>) -> Result<(), Errno> {
        let timeout = timeout.as_ref().map_or(std::ptr::null(), |t| t as *const Timespec);
        // SAFETY: the operations and the timeout live over the call.
        check(unsafe { semtimedop(id, ops.as_mut_ptr(), ops.len(), timeout) }).map(drop)
    }
    fn ctl(&self, id: i32, num: i32, cmd: i32, val: i32) -> Result<i32, Errno> {
        // SAFETY: these commands take a number or nothing.
        check(unsafe { libc::semctl(id, num, cmd, val) })
    }
    fn get_all(&self, id: i32) -> Result<(), Errno> {
        let mut array = self.array(id)?;
        // SAFETY: room for as many values as any set can have.
        check(unsafe { libc::semctl(id, 0, GETALL, array.as_mut_ptr()) }).map(drop)
    }
    fn set_all(&self, id: i32, value: u16) -> Result<(), Errno> {
        let mut array = self.array(id)?;
        array.fill(value);
        // SAFETY: as above.
        check(unsafe { libc::semctl(id, 0, SETALL, array.as_mut_ptr()) }).map(drop)
    }
    fn stat(&self, id: i32, by_index: bool) -> Result<(), Errno> {
        let (id, cmd) = if by_index { (id & 7, SEM_STAT) } else { (id, IPC_STAT) };
        // SAFETY: the command fills the structure.
        unsafe {
            let mut ds: libc::semid_ds = std::mem::zeroed();
            check(libc::semctl(id, 0, cmd, &raw mut ds)).map(drop)
        }
    }
    fn set_perm(&self, id: i32) -> Result<(), Errno> {
        // SAFETY: IPC_SET reads the structure.
        unsafe {
            let mut ds: libc::semid_ds = std::mem::zeroed();
            ds.sem_perm.mode = 0o666;
            check(libc::semctl(id, 0, IPC_SET, &raw mut ds)).map(drop)
        }
    }
    fn info(&self) -> Result<(), Errno> {
        let mut info = [0 as c_int; 10];
        // SAFETY: the command fills a struct seminfo, which is ten ints.
        check(unsafe { libc::semctl(0, 0, SEM_INFO, info.as_mut_ptr()) }).map(drop)
    }
}

/// The crate's types.
pub struct Types(pub Namespace);

impl Types {
    fn set(&self, key: i32) -> Result<manyway_sem::Set, Errno> {
        self.0.set(manyway_sem::Key::new(key)).open().map(manyway_sem::Set::interruptible).map_err(|e| e.errno())
    }
}

impl Calls for Types {
    fn get(&self, key: i32, nsems: i32, _flags: i32) -> Result<i32, Errno> {
        let values = vec![1; nsems as usize];
        self.0.set(manyway_sem::Key::new(key)).create(&values).map(|_| key).map_err(|e| e.errno())
    }
    fn op(&self, key: i32, ops: &mut [SemBuf], timeout: Option<Timespec>) -> Result<(), Errno> {
        let set = self.set(key)?;
        let result = if let [op] = *ops {
            let sem = set.sem(op.num).map_err(|e| e.errno())?;
            if op.op < 0 && op.flg as i32 & SEM_UNDO != 0 {
                return match sem.try_acquire(1) {
                    Ok(permit) => {
                        drop(permit);
                        Ok(())
                    }
                    Err(e) => Err(e.errno()),
                };
            }
            match (op.op, timeout) {
                (0, _) => sem.try_wait_zero(),
                (1.., _) => sem.add(op.op as u16),
                (_, Some(t)) => sem.take_timeout(op.op.unsigned_abs(), Duration::new(t.sec as u64, t.nsec as u32)),
                (_, None) => sem.try_take(op.op.unsigned_abs()),
            }
        } else {
            let ops: Vec<Op> = ops
                .iter()
                .map(|o| match o.op {
                    0 => Op::zero(o.num),
                    1.. => Op::add(o.num, o.op as u16),
                    _ => Op::take(o.num, o.op.unsigned_abs()),
                })
                .collect();
            set.run_timeout(&ops, timeout.map_or(Duration::from_millis(1), |t| Duration::new(t.sec as u64, t.nsec as u32)))
        };
        result.map_err(|e| e.errno())
    }
    fn ctl(&self, key: i32, num: i32, cmd: i32, val: i32) -> Result<i32, Errno> {
        let set = self.set(key)?;
        let num = num.max(0) as u16;
        let one = || set.sem(num);
        match cmd {
            SETVAL => one().and_then(|s| s.set_value(val as u16)).map(|()| 0),
            IPC_RMID => set.remove().map(|()| 0),
            _ => one().and_then(|s| s.value()).map(i32::from),
        }
        .map_err(|e| e.errno())
    }
    fn get_all(&self, key: i32) -> Result<(), Errno> {
        self.set(key)?.values().map(drop).map_err(|e| e.errno())
    }
    fn set_all(&self, key: i32, value: u16) -> Result<(), Errno> {
        let set = self.set(key)?;
        set.set_values(&vec![value; set.len()]).map_err(|e| e.errno())
    }
    fn stat(&self, key: i32, _by_index: bool) -> Result<(), Errno> {
        self.set(key)?.status().map(drop).map_err(|e| e.errno())
    }
    fn set_perm(&self, _key: i32) -> Result<(), Errno> {
        Ok(())
    }
    fn info(&self) -> Result<(), Errno> {
        let _ = self.0.info();
        Ok(())
    }
}
