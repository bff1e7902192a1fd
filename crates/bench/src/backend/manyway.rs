//! Manyway through its crate.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use manyway_sem::abi::{IPC_CREAT, IPC_PRIVATE, SemBuf};
use manyway_sem::{Engine, Errno, Fairness, OpenOptions, Thread};

use super::{Backend, Kind, Place, Set, SetId};
use crate::Error;

/// A namespace and what it keeps of this thread. Both live as long as the process: it is a worker, with one namespace.
pub struct Manyway {
    engine: &'static Engine,
    thread: &'static Thread,
    kind: Kind,
}

/// A set by its id.
pub struct ManywaySet {
    engine: &'static Engine,
    thread: &'static Thread,
    id: i32,
}

static ENGINE: OnceLock<Engine> = OnceLock::new();

impl Backend for Manyway {
    type Set = ManywaySet;

    fn join(place: &Place) -> Result<Manyway, Error> {
        let engine = match ENGINE.get() {
            Some(engine) => engine,
            None => {
                let opened = namespace(place)?;
                ENGINE.get_or_init(|| opened)
            }
        };
        Ok(Manyway { engine, thread: Box::leak(Box::default()), kind: place.kind })
    }

    fn create(&self, values: &[u16]) -> Result<SetId, Error> {
        let id = self.engine.semget(self.thread, IPC_PRIVATE, values.len() as i32, IPC_CREAT | 0o600);
        let id = id.map_err(self.failed("semget"))?;
        self.engine.setall(self.thread, id, values).map_err(self.failed("semctl(SETALL)"))?;
        Ok(SetId(id))
    }

    fn open(&self, id: SetId) -> Result<ManywaySet, Error> {
        Ok(ManywaySet { engine: self.engine, thread: self.thread, id: id.0 })
    }

    fn remove(&self, id: SetId) -> Result<(), Error> {
        self.engine.remove(self.thread, id.0).map_err(self.failed("semctl(IPC_RMID)"))
    }
}

impl Manyway {
    fn failed(&self, call: &'static str) -> impl FnOnce(Errno) -> Error {
        let backend = self.kind;
        move |errno| Error::Call { backend, call, errno }
    }
}

/// Opens the namespace of a place, and makes it when it is new.
pub fn namespace(place: &Place) -> Result<Engine, Error> {
    let dir = CString::new(place.dir.as_os_str().as_bytes()).map_err(|e| Error::io("the namespace's directory")(e.into()))?;
    let fairness = if place.kind == Kind::ManywayBarging { Fairness::Barging } else { Fairness::Strict };
    let how = OpenOptions { create: true, limits: None, fairness: Some(fairness) };
    Engine::open(&dir, &how).map_err(|error| Error::Namespace { dir: place.dir.clone(), error })
}

impl Set for ManywaySet {
    #[inline(always)]
    fn call(&self, ops: &[SemBuf]) -> Result<(), Errno> {
        self.engine.semop(self.thread, self.id, ops, None)
    }

    fn sleepers(&self, num: u16) -> Result<u32, Errno> {
        self.engine.getncnt(self.thread, self.id, num.into()).map(|count| count as u32)
    }
}
