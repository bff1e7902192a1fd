//! Manyway through its crate, as a Rust program uses it.

use std::time::Duration;

use manyway_sem::{Errno, Error as SemError, Fairness, Key, Namespace, Op, Prepared, Semaphore};

use super::{Backend, Kind, Place, Sem, Set, SetId, Several};
use crate::Error;

/// A namespace.
pub struct Manyway {
    namespace: Namespace,
    kind: Kind,
}

impl Backend for Manyway {
    type Set = manyway_sem::Set;

    fn join(place: &Place) -> Result<Manyway, Error> {
        Ok(Manyway { namespace: namespace(place)?, kind: place.kind })
    }

    fn create(&self, values: &[u16]) -> Result<SetId, Error> {
        self.namespace.private_set(values).map(|set| SetId(set.id())).map_err(self.told("Namespace::private_set"))
    }

    fn open(&self, id: SetId) -> Result<manyway_sem::Set, Error> {
        self.namespace.set_by_id(id.0).map_err(self.told("Namespace::set_by_id"))
    }

    fn remove(&self, id: SetId) -> Result<(), Error> {
        self.open(id)?.remove().map_err(self.told("Set::remove"))
    }

    fn keyed(&self, key: i32, sems: u16) -> Result<SetId, Error> {
        let found = self.namespace.set(Key::new(key)).create(&vec![0; sems.into()]);
        found.map(|set| SetId(set.id())).map_err(self.told("SetOptions::create"))
    }

    fn list(&self) -> Result<usize, Error> {
        Ok(self.namespace.sets().len())
    }

    fn failed(&self, call: &'static str, errno: Errno) -> Error {
        Error::Call { backend: self.kind, call, errno }
    }
}

impl Manyway {
    fn told(&self, call: &'static str) -> impl FnOnce(SemError) -> Error {
        move |error| self.failed(call, error.errno())
    }
}

/// Opens the namespace of a place, and makes it when it is new.
pub(crate) fn namespace(place: &Place) -> Result<Namespace, Error> {
    let fairness = if place.kind == Kind::ManywayBarging { Fairness::Barging } else { Fairness::Strict };
    Ok(Namespace::options().fairness(fairness).open(&place.dir)?)
}

impl Set for manyway_sem::Set {
    type Sem = Semaphore;

    fn sem(&self, num: u16, undo: bool) -> Result<Semaphore, Errno> {
        let sem = self.sem(num).map_err(errno)?;
        Ok(if undo { sem.with_undo() } else { sem })
    }
    type Several = Prepared;
    fn several(&self, ops: &[(u16, i16)]) -> Result<Prepared, Errno> {
        let one = |&(num, op): &(u16, i16)| match op {
            0 => Op::zero(num),
            1.. => Op::add(num, op.unsigned_abs()),
            _ => Op::take(num, op.unsigned_abs()),
        };
        self.prepare(&ops.iter().map(one).collect::<Vec<_>>()).map_err(errno)
    }
    fn give_each(&self, nums: &[u16]) -> Result<(), Errno> {
        const MOST: usize = 64;
        let mut ops = [Op::add(0, 1).no_wait(); MOST];
        nums.chunks(MOST).try_for_each(|nums| {
            ops.iter_mut().zip(nums).for_each(|(op, &num)| *op = Op::add(num, 1).no_wait());
            self.run(&ops[..nums.len()]).map_err(errno)
        })
    }
    fn set_values(&self, values: &[u16]) -> Result<(), Errno> {
        self.set_values(values).map_err(errno)
    }
}

impl Several for Prepared {
    #[inline(always)]
    fn call(&self) -> Result<(), Errno> {
        self.run().map_err(errno)
    }
}

impl Sem for Semaphore {
    #[inline(always)]
    fn take(&self) -> Result<(), Errno> {
        self.take(1).map_err(errno)
    }
    #[inline(always)]
    fn try_take(&self) -> Result<(), Errno> {
        self.try_take(1).map_err(errno)
    }
    #[inline(always)]
    fn give(&self) -> Result<(), Errno> {
        self.add(1).map_err(errno)
    }
    #[inline(always)]
    fn wait_zero(&self) -> Result<(), Errno> {
        self.wait_zero().map_err(errno)
    }
    fn take_for(&self, time: Duration) -> Result<(), Errno> {
        self.take_timeout(1, time).map_err(|e| if e == SemError::TimedOut { Errno::EAGAIN } else { errno(e) })
    }
    fn zero_sleepers(&self) -> Result<u32, Errno> {
        self.zero_waiters().map(|count| count as u32).map_err(errno)
    }
    fn sleepers(&self) -> Result<u32, Errno> {
        self.takers().map(|count| count as u32).map_err(errno)
    }
}

#[cold]
fn errno(error: SemError) -> Errno {
    error.errno()
}
