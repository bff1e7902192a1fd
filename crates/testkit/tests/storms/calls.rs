//! The two ways to call: the crate's, and C's through the preloaded library.

use std::collections::HashMap;
use std::time::Duration;

use manyway_sem::abi::{GETNCNT, GETVAL, GETZCNT, IPC_NOWAIT, IPC_RMID, SEM_UNDO, SemBuf};
use manyway_sem::{Errno, Error, Namespace, Op, Set};

use crate::sys;

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    None,
    For(Duration),
    Forever,
}

/// A thread's calls.
pub enum Calls {
    Crate { namespace: Namespace, sets: HashMap<i32, Set> },
    C,
}

const fn of_crate(e: Error) -> Errno {
    e.errno()
}

fn crate_op(o: SemBuf) -> Op {
    let op = match o.op {
        0 => Op::zero(o.num),
        n if n < 0 => Op::take(o.num, n.unsigned_abs()),
        n => Op::add(o.num, n as u16),
    };
    let op = if o.flg as i32 & SEM_UNDO != 0 { op.undo() } else { op };
    if o.flg as i32 & IPC_NOWAIT != 0 { op.no_wait() } else { op }
}

impl Calls {
    pub fn of_crate(namespace: Namespace) -> Calls {
        Calls::Crate { namespace, sets: HashMap::new() }
    }
    /// The same way for another thread.
    pub fn again(&self) -> Calls {
        match self {
            Calls::Crate { namespace, .. } => Calls::of_crate(*namespace),
            Calls::C => Calls::C,
        }
    }
    pub fn is_c(&self) -> bool {
        matches!(self, Calls::C)
    }

    fn set(&mut self, id: i32) -> Result<Set, Errno> {
        let Calls::Crate { namespace, sets } = self else { unreachable!("C has no handles") };
        if let Some(set) = sets.get(&id) {
            return Ok(*set);
        }
        if sets.len() > 200 {
            sets.clear();
        }
        let set = namespace.set_by_id(id).map_err(of_crate)?;
        sets.insert(id, set);
        Ok(set)
    }

    /// semop, semtimedop.
    pub fn op(&mut self, id: i32, ops: &[SemBuf], patience: Patience) -> Result<(), Errno> {
        if self.is_c() {
            let mut ops = ops.to_vec();
            return match patience {
                Patience::Forever => sys::c_op(id, &mut ops, None),
                Patience::For(t) => sys::c_op(id, &mut ops, Some(t)),
                Patience::None => {
                    ops.iter_mut().for_each(|o| o.flg |= IPC_NOWAIT as i16);
                    sys::c_op(id, &mut ops, None)
                }
            };
        }
        let set = self.set(id)?;
        // A semaphore by itself has fast paths of its own.
        if let [o] = *ops
            && o.flg as i32 & IPC_NOWAIT == 0
        {
            let sem = set.sem(o.num).map_err(of_crate)?;
            let sem = if o.flg as i32 & SEM_UNDO != 0 { sem.with_undo() } else { sem };
            let n = o.op.unsigned_abs();
            let r = match (o.op.signum(), patience) {
                (1, _) => sem.add(n),
                (0, Patience::None) => sem.try_wait_zero(),
                (0, Patience::For(t)) => sem.wait_zero_timeout(t),
                (0, Patience::Forever) => sem.wait_zero(),
                (_, Patience::None) => sem.try_take(n),
                (_, Patience::For(t)) => sem.take_timeout(n, t),
                (_, Patience::Forever) => sem.take(n),
            };
            return r.map_err(of_crate);
        }
        let ops: Vec<Op> = ops.iter().map(|o| crate_op(*o)).collect();
        let r = match patience {
            Patience::None => set.try_run(&ops),
            Patience::For(t) => set.run_timeout(&ops, t),
            Patience::Forever => set.run(&ops),
        };
        r.map_err(of_crate)
    }

    /// A new set without a key.
    pub fn make(&mut self, values: &[u16]) -> Result<i32, Errno> {
        match self {
            Calls::Crate { namespace, .. } => namespace.private_set(values).map(|s| s.id()).map_err(of_crate),
            Calls::C => sys::c_make(values),
        }
    }
    pub fn remove(&mut self, id: i32) -> Result<(), Errno> {
        if self.is_c() {
            return sys::c_ctl(id, 0, IPC_RMID).map(drop);
        }
        self.set(id)?.remove().map_err(of_crate)
    }
    pub fn values(&mut self, id: i32, n: u16) -> Result<Vec<u16>, Errno> {
        if self.is_c() {
            let mut values = vec![0; n.into()];
            return sys::c_values(id, &mut values).map(|()| values);
        }
        self.set(id)?.values().map_err(of_crate)
    }
    pub fn value(&mut self, id: i32, num: u16) -> Result<u16, Errno> {
        if self.is_c() {
            return sys::c_ctl(id, num, GETVAL).map(|v| v as u16);
        }
        self.set(id)?.sem(num).and_then(|s| s.value()).map_err(of_crate)
    }
    pub fn set_value(&mut self, id: i32, num: u16, value: u16) -> Result<(), Errno> {
        if self.is_c() {
            return sys::c_set_value(id, num, value);
        }
        self.set(id)?.sem(num).and_then(|s| s.set_value(value)).map_err(of_crate)
    }
    /// How many wait to take, and for zero.
    pub fn waiting(&mut self, id: i32, num: u16) -> Result<(usize, usize), Errno> {
        if self.is_c() {
            return Ok((sys::c_ctl(id, num, GETNCNT)? as usize, sys::c_ctl(id, num, GETZCNT)? as usize));
        }
        let sem = self.set(id)?.sem(num).map_err(of_crate)?;
        Ok((sem.takers().map_err(of_crate)?, sem.zero_waiters().map_err(of_crate)?))
    }
    /// IPC_STAT's number of semaphores.
    pub fn size(&mut self, id: i32) -> Result<u64, Errno> {
        if self.is_c() {
            return sys::c_size(id);
        }
        self.set(id)?.status().map(|s| u64::from(s.nsems)).map_err(of_crate)
    }
    /// What this process has to give back of a set, where the way can tell.
    pub fn held(&mut self, id: i32) -> Option<Result<Vec<(u16, i16)>, Errno>> {
        if self.is_c() {
            return None;
        }
        let own = std::process::id();
        let held = self.set(id).and_then(|s| s.holders().map_err(of_crate));
        Some(held.map(|all| all.into_iter().filter(|h| h.pid == own).map(|h| (h.num, h.adj)).collect()))
    }
}
