//! A namespace, its arena's words, and others who use it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use manyway_sem::abi::{IPC_CREAT, SemBuf, Timespec};
use manyway_sem::check::Severity;
use manyway_sem::id::IdEntry;
use manyway_sem::{Damage, Engine, Errno, OpenOptions, Thread};
use manyway_shm::layout::*;
use manyway_shm::{Arena, OpenOptions as ArenaOptions};
use manyway_testkit::manyway_command;

pub const KEY: i32 = 0x0b5e;
/// In which everything ends: the bounds are seconds, and the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn op(num: u16, op: i16, flags: i32) -> SemBuf {
    SemBuf { num, op, flg: flags as i16 }
}

/// A namespace with a set of three semaphores, all 0, whose words can be changed.
pub struct Place {
    dir: tempfile::TempDir,
    pub engine: Arc<Engine>,
    pub t: Thread,
    pub arena: Arena,
    pub id: i32,
    /// Where the set lies.
    pub at: u64,
}

/// Where a sleep, or another call of another thread, has ended.
pub struct Other {
    pub tid: u32,
    ended: Receiver<(Result<(), Errno>, Duration)>,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable");
        let path = CString::new(dir.path().as_os_str().as_bytes()).expect("no NUL in it");
        let engine = Arc::new(Engine::open(&path, &OpenOptions { create: true, ..OpenOptions::default() }).expect("a namespace"));
        let arena = Arena::open(&path, &ArenaOptions::default()).expect("the same one");
        let t = Thread::new();
        let id = engine.semget(&t, KEY, 3, IPC_CREAT | 0o600).expect("a set");
        let index = id as u64 & 0x7fff;
        let entry = IdEntry::find(arena.at(IDS_AT + index * 8).expect("in the table"));
        Place { dir, engine, t, arena, id, at: entry.at() }
    }
    pub fn head(&self) -> &SetHead {
        self.arena.at(self.at).expect("in the file")
    }
    pub fn cell(&self, num: u64) -> &Cell {
        self.arena.at(self.at + size_of::<SetHead>() as u64 + num * size_of::<Cell>() as u64).expect("in the file")
    }
    pub fn page(&self) -> u32 {
        (self.at / PAGE) as u32
    }
    pub fn ctl(&self, slot: u32) -> &ThreadCtl {
        use std::sync::atomic::Ordering::Acquire;
        let e = self.arena.header().thread_extents[(slot / THREADS_PER_EXTENT) as usize].load(Acquire) - 1;
        let at = EXTENTS_AT + u64::from(e) * EXTENT + u64::from(slot % THREADS_PER_EXTENT) * THREAD_PAGES * PAGE + PAGE;
        self.arena.at(at).expect("in the file")
    }
    /// The slot of a thread of this process.
    pub fn slot(&self, tid: u32) -> u32 {
        use std::sync::atomic::Ordering::Acquire;
        let high = self.arena.header().threads_high.load(Acquire);
        (0..high).find(|&s| self.ctl(s).tid.load(Acquire) == tid).expect("it is attached")
    }
    pub fn my_slot(&self) -> u32 {
        self.slot(gettid())
    }

    /// Another thread's call.
    pub fn other(&self, call: impl FnOnce(&Engine, &Thread) -> Result<(), Errno> + Send + 'static) -> Other {
        let (tell, ended) = channel();
        let (name, named): (Sender<u32>, _) = channel();
        let engine = self.engine.clone();
        std::thread::spawn(move || {
            let t = Thread::new();
            // It has its slot from here on.
            let _ = engine.semget(&t, KEY, 0, 0);
            let _ = name.send(gettid());
            let began = Instant::now();
            let r = call(&engine, &t);
            let _ = tell.send((r, began.elapsed()));
            engine.detach_thread(&t);
        });
        Other { tid: named.recv().expect("it tells its name"), ended }
    }
    /// A thread that sleeps in a call on the set.
    pub fn sleeper(&self, ops: &[SemBuf], timeout: Option<Timespec>) -> Other {
        let (id, ops) = (self.id, ops.to_vec());
        let before = self.asleep();
        let other = self.other(move |e, t| e.semop(t, id, &ops, timeout));
        self.until(|| self.asleep() == before + 1);
        other
    }
    fn asleep(&self) -> usize {
        use std::sync::atomic::Ordering::Acquire;
        let high = self.arena.header().threads_high.load(Acquire);
        (0..high).filter(|&s| self.ctl(s).state.load(Acquire) & 7 == 1).count()
    }
    /// A thread that has a slot and does nothing.
    pub fn idler(&self) -> u32 {
        let idler = self.other(|_, _| {
            loop {
                std::thread::park();
            }
        });
        self.slot(idler.tid)
    }
    pub fn until(&self, done: impl Fn() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < PATIENCE, "it does not come about");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn semop(&self, ops: &[SemBuf]) -> Result<(), Errno> {
        self.engine.semop(&self.t, self.id, ops, None)
    }
    pub fn value(&self, num: i32) -> Result<i32, Errno> {
        self.engine.getval(&self.t, self.id, num)
    }
    /// What calls have noted: the kind, and the index of the set.
    pub fn noted(&self) -> Option<(Option<Damage>, Option<u32>)> {
        self.engine.damage().map(|d| (d.kind, d.index))
    }
    pub fn index(&self) -> Option<u32> {
        Some(self.id as u32 & 0x7fff)
    }

    fn command(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut c = Command::new(manyway_command().expect("the command"));
        let out = c.args(args).arg("--dir").arg(self.dir.path()).output().expect("it starts");
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        (out.status.code(), text)
    }
    /// `manyway doctor` calls the namespace damaged, and says this.
    pub fn doctor_says(&self, what: &str) {
        let (code, text) = self.command(&["doctor", "--json"]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(what), "{what:?}: {text}");
    }
    /// Does damage that a sleeper's next tick mends, and looks at once as `manyway doctor` does: it finds this.
    pub fn look_finds(&self, damage: impl Fn(), what: &str) {
        let found = (0..200).any(|_| {
            damage();
            self.engine.check().iter().any(|f| f.severity == Severity::Damage && f.what.contains(what))
        });
        assert!(found, "{what:?}: {:?}", self.engine.check());
    }
    /// `manyway doctor` finds no damage now.
    pub fn doctor_is_content(&self) {
        let (code, text) = self.command(&["doctor", "--json"]);
        assert_eq!(code, Some(0), "{text}");
    }
    /// `manyway show` ends with this status and says this.
    pub fn shows(&self, status: i32, what: &str) {
        let (code, text) = self.command(&["show", &self.id.to_string()]);
        assert_eq!(code, Some(status), "{text}");
        assert!(text.contains(what), "{what:?}: {text}");
    }
    /// The set can be removed, and a new one made.
    pub fn is_removed(&self) {
        assert_eq!(self.engine.remove(&self.t, self.id), Ok(()));
        assert_eq!(self.value(0), Err(Errno::EINVAL));
        let id = self.engine.semget(&self.t, KEY, 3, IPC_CREAT | 0o600).expect("a new set");
        assert_eq!(self.engine.semop(&self.t, id, &[op(0, 1, 0)], None), Ok(()));
    }
}

impl Other {
    /// How its call ended, and how long it took.
    pub fn ended(&self) -> (Result<(), Errno>, Duration) {
        self.ended.recv_timeout(PATIENCE).expect("it ends")
    }
    /// The same, if it does so within this time.
    pub fn ended_within(&self, time: Duration) -> Option<(Result<(), Errno>, Duration)> {
        self.ended.recv_timeout(time).ok()
    }
    pub fn has_ended(&self) -> Option<Result<(), Errno>> {
        self.ended.try_recv().ok().map(|(r, _)| r)
    }
}

pub fn gettid() -> u32 {
    nix::unistd::gettid().as_raw() as u32
}
