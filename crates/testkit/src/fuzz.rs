//! What the fuzzers call, each with an input of any bytes: `fuzz/` has them for libFuzzer, `tests/fuzz.rs` calls them with a deterministic stream.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use manyway_sem::abi::{IPC_CREAT, IPC_NOWAIT, IPC_PRIVATE, IPC_RMID, SEM_UNDO, SETVAL, SemBuf, Timespec};
use manyway_sem::{Engine, OpenOptions, Thread};
use manyway_shm::Arena;

use crate::protocol::Pointer;
use crate::sys;

/// Semaphores of the sets that inputs work on.
const SEMS: u16 = 5;

/// An input; zeros behind its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = self.0.len().min(N);
        out[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        out
    }
    fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }
    fn i32(&mut self) -> i32 {
        i32::from_le_bytes(self.take())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    fn pointer(&mut self) -> Pointer {
        [Pointer::Valid, Pointer::Valid, Pointer::Null, Pointer::Unmapped][usize::from(self.u8() & 3)]
    }
    /// An operation that never sleeps.
    fn op(&mut self) -> SemBuf {
        let [num, op, how] = self.take();
        let op = match op {
            0..=1 => i16::from_le_bytes(self.take()),
            _ => i16::from(op % 7) - 3,
        };
        let undo = if how & 1 == 0 { 0 } else { SEM_UNDO };
        SemBuf { num: u16::from(num) % (SEMS + 1), op, flg: (undo | IPC_NOWAIT) as i16 }
    }
    fn ops(&mut self) -> Vec<SemBuf> {
        let n = [1, 1, 1, 2, 2, 3, 8, 30][usize::from(self.u8() & 7)];
        (0..n).map(|_| self.op()).collect()
    }
}

/// C's functions with arguments of any kind, pointers that lead nowhere among them. For a process with the library preloaded: it must
/// not crash, and each call ends. Returns how many.
pub fn decoder(input: &[u8]) -> u64 {
    let mut b = Bytes(input);
    let own = sys::semget(IPC_PRIVATE, i32::from(SEMS), 0o600).map_or(-1, |id| id as i32);
    let (mut calls, mut made) = (0, Vec::new());
    while !b.is_empty() && calls < 64 {
        let id = if b.u8() & 7 == 0 { b.i32() } else { own };
        let _ = match b.u8() & 3 {
            0 => sys::semget(b.i32() & 0xff, b.i32() % 40_000, b.i32() & 0o7777).inspect(|&id| made.push(id as i32)),
            1 => {
                let (p, n) = (b.pointer(), b.u64() as usize);
                // Good pointers with counts that are refused, bad ones with any: no input sleeps.
                let (n, timeout) = match p {
                    Pointer::Valid => ([0, 600 + n % 60_000][n & 1], None),
                    _ => (n, [None, Some(Pointer::Null), Some(Pointer::Unmapped)][usize::from(b.u8() % 3)]),
                };
                sys::raw_semop(id, p, n, timeout)
            }
            // Where no argument is read a valid pointer is a number.
            _ => sys::raw_semctl(id, b.i32(), i32::from(b.u8()) % 24, b.pointer()),
        };
        calls += 1;
    }
    // An input leaves nothing behind.
    for id in made.into_iter().chain([own]).filter(|&id| id >= 0) {
        let _ = sys::semctl3(id, 0, IPC_RMID);
    }
    calls
}

fn open(dir: &Path) -> Engine {
    let name = CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it");
    Engine::open(&name, &OpenOptions { create: true, ..OpenOptions::default() }).expect("a namespace")
}

/// A namespace in memory that ends with the input.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable")
}

/// Bytes over the arena, then calls on it: none crashes, each ends. Returns how many.
pub fn arena(input: &[u8]) -> u64 {
    let mut b = Bytes(input);
    let dir = place();
    let (engine, t) = (open(dir.path()), Thread::new());
    let ids = [1, SEMS].map(|n| engine.semget(&t, i32::from(n), i32::from(n), IPC_CREAT | 0o600).expect("a set"));
    for id in ids {
        engine.semop(&t, id, &[SemBuf { num: 0, op: 3, flg: SEM_UNDO as i16 }], None).expect("own set");
    }
    scribble(dir.path(), &mut b);
    let mut calls = 0;
    while !b.is_empty() && calls < 32 {
        let id = ids[usize::from(b.u8() & 1)];
        let num = i32::from(b.u8()) % i32::from(SEMS);
        match b.u8() % 12 {
            0..=4 => _ = engine.semop(&t, id, &b.ops(), None),
            5 => {
                // One that may sleep, for a millisecond.
                let op = SemBuf { flg: 0, ..b.op() };
                _ = engine.semop(&t, id, &[op], Some(Timespec { sec: 0, nsec: 1_000_000 }));
            }
            6 => _ = engine.setval(&t, id, num, i32::from(b.u8())),
            7 => _ = engine.getncnt(&t, id, num).and_then(|_| engine.getzcnt(&t, id, num)),
            8 => _ = engine.getall(&t, id, &mut [0; 1 << 16]),
            9 => _ = engine.stat(&t, id).and_then(|_| engine.stat_index(&t, num, true)),
            10 => _ = engine.semget(&t, num, 1, IPC_CREAT | 0o600),
            _ => _ = engine.remove(&t, id),
        }
        calls += 1;
    }
    let _ = engine.check();
    engine.detach_thread(&t);
    calls
}

/// Words of pages that hold something: {page, word 16 | value 64}, up to the first that says so.
fn scribble(dir: &Path, b: &mut Bytes<'_>) {
    let name = CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it");
    let arena = Arena::open(&name, &OpenOptions::default()).expect("an arena");
    // docs/segment.md: header, key table, ids, thread words, processes, extents, and the first pages of the first extents.
    const STARTS: [u64; 16] = [
        0,
        4096,
        32 << 10,
        320 << 10,
        2 << 20,
        20 << 20,
        32 << 20,
        (32 << 20) + 4096,
        36 << 20,
        (36 << 20) + 4096,
        40 << 20,
        (40 << 20) + 4096,
        44 << 20,
        (44 << 20) + 4096,
        48 << 20,
        (48 << 20) + 4096,
    ];
    for _ in 0..b.u8() % 24 {
        let [page, low, high] = b.take();
        let at = STARTS[usize::from(page & 15)] + (u64::from(low) | u64::from(high & 1) << 8) * 8;
        let value = match page >> 6 {
            0 => u64::from(b.u8()),
            1 => !0,
            _ => b.u64(),
        };
        if let Some(w) = arena.at::<AtomicU64>(at).filter(|_| at >= 64) {
            w.store(value, Relaxed);
        }
    }
}

/// Operations on a set of Manyway's and on one of the kernel's: the same results, the same values. Returns how many calls; None where the
/// kernel has no semaphores.
pub fn program(input: &[u8]) -> Option<u64> {
    let mut b = Bytes(input);
    let dir = place();
    let (engine, t) = (open(dir.path()), Thread::new());
    let theirs = sys::semget(IPC_PRIVATE, i32::from(SEMS), 0o600).ok()? as i32;
    let ours = engine.semget(&t, IPC_PRIVATE, i32::from(SEMS), 0o600).expect("a set");
    let mut calls = 0;
    while !b.is_empty() && calls < 200 {
        let (a, k, what);
        if b.u8() & 15 == 0 {
            let (num, val) = (i32::from(b.u8()) % i32::from(SEMS + 1), i32::from(i16::from_le_bytes(b.take())));
            a = engine.setval(&t, ours, num, val);
            k = sys::semctl(theirs, num, SETVAL, val).map(drop);
            what = format!("SETVAL {num} {val}");
        } else {
            let ops = b.ops();
            a = engine.semop(&t, ours, &ops, None);
            k = sys::semop(theirs, &ops, None).0.map(drop);
            what = format!("{ops:?}");
        }
        assert_eq!(a, k, "{what}");
        let mut values = [0; SEMS as usize];
        engine.getall(&t, ours, &mut values).expect("own set");
        let theirs_has = sys::getall(theirs).map(|v| v[..values.len()].to_vec());
        assert_eq!(theirs_has.as_deref(), Ok(&values[..]), "after {what}");
        calls += 1;
    }
    let _ = sys::semctl3(theirs, 0, IPC_RMID);
    engine.apply_own_undo(&t);
    engine.detach_thread(&t);
    Some(calls)
}
