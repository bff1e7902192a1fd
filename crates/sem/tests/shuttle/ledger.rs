//! Calls of every kind by processes that die, end, execute another image, get signals and run out of time; all effects are written down. Values
//! are what was there, and the calls that were carried out, whole; of a call in whose midst somebody died: all of it or nothing.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO, SemBuf, Timespec};
use manyway_sem::{Engine, Errno, Fairness};
use manyway_sync::sim;

use crate::stage::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Came {
    /// Not back yet.
    Pending,
    Done,
    Failed,
}

struct Entry {
    /// The process's inode, its number and the thread's.
    by: (u64, u32, u32),
    ops: Vec<SemBuf>,
    came: Came,
}

/// All calls.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<Entry>>>);

impl Ledger {
    fn call(&self, p: &Process, id: i32, ops: &[SemBuf], timeout: Option<Timespec>) -> Result<(), Errno> {
        let (pid, tid) = sim::who().expect("a thread");
        let at = {
            let mut all = self.0.lock().expect("no panic");
            all.push(Entry { by: (sim::inode_of(pid).expect("a process"), pid, tid), ops: ops.to_vec(), came: Came::Pending });
            all.len() - 1
        };
        sim::note(|| format!("{ops:?} {timeout:?}"));
        let r = p.engine.semop(&p.t, id, ops, timeout);
        sim::note(|| format!("{r:?}"));
        self.0.lock().expect("no panic")[at].came = if r.is_ok() { Came::Done } else { Came::Failed };
        r
    }

    /// Values and adjustments are those of the calls that were carried out, and of some of those in whose midst somebody died.
    fn check(&self, stage: &Stage, initial: &[i32]) {
        let all = self.0.lock().expect("no panic");
        let done: Vec<_> = all.iter().filter(|e| e.came == Came::Done).collect();
        let unknown: Vec<_> = all.iter().filter(|e| e.came == Came::Pending && !sim::thread_lives(e.by.2)).collect();
        let mut found = (stage.values(), stage.adjustments());
        found.1.sort_unstable();
        let after = |which: u32| {
            let (mut values, mut held) = (initial.to_vec(), BTreeMap::new());
            for e in done.iter().chain(unknown.iter().enumerate().filter(|(i, _)| which >> i & 1 == 1).map(|(_, e)| e)) {
                let lives = sim::lives(e.by.0);
                values.iter_mut().zip(effect(&e.ops, stage.nsems, !lives)).for_each(|(v, e)| *v += e);
                for op in e.ops.iter().filter(|op| lives && op.flg as i32 & SEM_UNDO != 0) {
                    *held.entry((e.by.1, op.num as usize)).or_insert(0) -= op.op as i32;
                }
            }
            (values, held.into_iter().filter(|h| h.1 != 0).map(|((pid, num), adj)| (pid, num, adj)).collect::<Vec<_>>())
        };
        let calls: Vec<_> = unknown.iter().map(|e| &e.ops).collect();
        let fits = (0..1 << unknown.len()).any(|which| after(which) == found);
        assert!(fits, "{found:?}; by the calls {:?}, and of each of {calls:?} all or nothing", after(0));
    }
}

/// A call, and what gives back what it takes for good measure; SEM_UNDO only for what is taken first, so that no adjustment is negative.
fn draw_call(nsems: usize) -> (Vec<SemBuf>, Vec<SemBuf>) {
    let (a, n) = (draw(nsems), 1 + draw(2) as i16);
    let b = (a + 1 + draw(nsems.max(2) - 1)) % nsems;
    let undo = if once_in(2) { SEM_UNDO } else { 0 };
    let nowait = if once_in(5) { IPC_NOWAIT } else { 0 };
    match draw(8) {
        0 | 1 => (vec![op(a, -1, undo | nowait)], vec![op(a, 1, undo)]),
        2 => (vec![op(a, -n, undo | nowait)], vec![op(a, n, undo)]),
        3 => (vec![op(a, n, 0)], vec![]),
        4 => (vec![op(a, 0, nowait)], vec![]),
        5 if a != b => (vec![op(a, -1, undo), op(b, -1, nowait)], vec![op(b, 1, 0), op(a, 1, undo)]),
        // Moves a unit: two plain semaphores, the fast pair.
        6 if a != b => (vec![op(a, -1, 0), op(b, 1, 0)], vec![]),
        7 if a != b => (vec![op(a, 0, 0), op(b, -1, nowait), op(a, 1, 0)], vec![op(a, -1, 0), op(b, 1, 0)]),
        _ => (vec![op(a, -1, undo), op(a, 0, 0)], vec![op(a, 1, undo)]),
    }
}

/// What a thread of a process does.
fn live(place: Place, image: Image, id: i32, nsems: usize, ledger: Ledger, alone: bool) {
    let mut p = Rc::new(image.thread());
    drop(image);
    if once_in(3) {
        sim::dies_before(draw(1 << (3 + draw(6))));
    }
    let signalled = once_in(3);
    if signalled {
        sim::signal_before(draw(1 << (3 + draw(7))));
    }
    for _ in 0..1 + draw(3) {
        if signalled {
            let (p, ledger) = (p.clone(), ledger.clone());
            let does = draw(4);
            // As the preloaded library's trampoline: not within a section; the sleep ends first.
            sim::set_handler(move || {
                if Engine::in_section(&p.t) {
                    return false;
                }
                let token = p.engine.before_handler(&p.t);
                let soon = Some(Timespec { sec: 0, nsec: 2_000_000 });
                let _ = match does {
                    0 => ledger.call(&p, id, &[op(0, 1, 0)], None),
                    // It may sleep itself.
                    1 => ledger.call(&p, id, &[op(0, -1, SEM_UNDO)], soon),
                    2 => ledger.call(&p, id, &[op(0, 0, 0)], soon),
                    _ => Ok(()),
                };
                p.engine.after_handler(&p.t, token);
                crate::run::note_signal();
                true
            });
        }
        let (take, back) = draw_call(nsems);
        let timeout = once_in(4).then_some(Timespec { sec: 0, nsec: 1_000_000 * draw(20) as i64 });
        let done = ledger.call(&p, id, &take, timeout);
        if !matches!(done, Ok(()) | Err(Errno::EAGAIN | Errno::EINTR)) {
            assert!(matches!(done, Err(Errno::EIDRM | Errno::EINVAL)), "{done:?} of {take:?}");
            break;
        }
        if done.is_ok() && !back.is_empty() && !once_in(4) {
            let _ = ledger.call(&p, id, &back, None);
        }
        if alone && once_in(8) {
            // Another image: its own engine, the same process. Its handlers are gone.
            sim::set_handler(|| true);
            sim::exec();
            p = Rc::new(place.process());
        }
    }
    if once_in(2) {
        p.engine.detach_thread(&p.t);
    }
    // A handler holds on to the process.
    sim::set_handler(|| true);
}

pub fn run() {
    let nsems = 1 + draw(3);
    let initial: Vec<u16> = (0..nsems).map(|_| draw(3) as u16).collect();
    let rules = sim::Rules { early_ticks: once_in(3), no_marks: once_in(8) };
    let stage = Stage::new(&initial, if once_in(3) { Fairness::Barging } else { Fairness::Strict }, rules);
    let initial: Vec<i32> = initial.into_iter().map(i32::from).collect();
    let ledger = Ledger::default();
    let mut threads = vec![];
    let mut begin = |pid: u32| {
        sim::new_process(pid);
        let image = stage.place().image();
        let several = once_in(4);
        for _ in 0..1 + several as usize {
            let (place, image, ledger, id) = (stage.place(), image.clone(), ledger.clone(), stage.id);
            threads.push(sim::spawn(pid, move || live(place, image, id, nsems, ledger, !several)));
        }
    };
    let pids = 100..102 + draw(3) as u32;
    pids.clone().for_each(&mut begin);
    if once_in(3) {
        sim::signal(100);
    }
    let check = || {
        stage.idle();
        stage.check();
        ledger.check(&stage, &initial);
    };
    check();
    if once_in(2) {
        // One more dies or gets a signal, wherever it is; and a newcomer has a number that was used before, if one is free.
        if once_in(2) {
            sim::kill(101)
        } else {
            sim::signal(101)
        }
        if let Some(free) = pids.clone().find(|&p| sim::inode_of(p).is_some_and(|i| !sim::lives(i))) {
            begin(free);
        }
        check();
    }
    stage.remove();
    for t in threads {
        t.join();
    }
    stage.check_alone();
    assert_eq!(stage.objects(), (0, 0), "sets and undo records in use");
}
