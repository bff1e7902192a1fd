//! Locks and recoveries.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use manyway_sem::abi::{IPC_NOWAIT, IPC_PRIVATE, SEM_UNDO, Timespec};
use manyway_sem::journal::{Kind, head};
use manyway_sem::{Damage, Errno, Thread, word};
use manyway_shm::layout::*;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use crate::place::{Place, op};

/// After so long a wait for somebody who lives a call gives up.
const SECOND: Duration = Duration::from_secs(1);

/// The three locks, each with a call that needs it.
fn each_lock(p: &Place, owner: u32, doctor: &str) {
    let noted = |index| {
        assert_eq!(p.noted(), Some((Some(Damage::Lock), index)));
        p.doctor_says("last a lock of nobody's, which was opened");
    };
    let word = &p.cell(0).word;
    let was = p.value(0).expect("own set");
    word.store(word::lock(word.load(Acquire), owner), Release);
    p.doctor_says(&format!("semaphore 0 is locked by thread{doctor}"));
    p.shows(0, "Semaphores");
    word.store(word::lock(word.load(Acquire), owner), Release);
    assert_eq!(p.semop(&[op(0, 1, 0)]), Ok(()));
    assert_eq!(p.value(0), Ok(was + 1));
    noted(p.index());

    p.head().lock.store(word::locked_by(owner), Release);
    p.doctor_says(&format!("locked by thread{doctor}"));
    let mut values = [0; 3];
    assert_eq!(p.engine.getall(&p.t, p.id, &mut values), Ok(()));
    assert_eq!(i32::from(values[0]), was + 1);
    noted(p.index());

    p.arena.header().registry.store(word::locked_by(owner), Release);
    p.doctor_says(&format!("the registry is locked by thread{doctor}"));
    let id = p.engine.semget(&p.t, IPC_PRIVATE, 1, 0o600).expect("a set");
    assert_eq!(p.engine.remove(&p.t, id), Ok(()));
    noted(None);
}

/// Of no slot in use, of the one who waits, of one who knows nothing of it: opened after about 50 ms.
pub fn of_nobody() {
    let p = Place::new();
    each_lock(&p, 999, " slot 999, which is nobody's");
    let me = p.my_slot();
    each_lock(&p, me, "");
    each_lock(&p, p.idler(), "");
    p.is_removed();
}

/// Of a thread that is gone and whose journal knows nothing of it.
pub fn of_the_dead() {
    let p = Place::new();
    let (engine, key) = (p.engine.clone(), crate::place::KEY);
    let dead = std::thread::spawn(move || {
        let t = Thread::new();
        engine.semget(&t, key, 0, 0).expect("it is there");
        // It ends without a word: its slot stays, with the kernel's mark.
        crate::place::gettid()
    });
    let slot = p.slot(dead.join().expect("it ends well"));
    p.until(|| p.ctl(slot).robust.load(Acquire) & libc::FUTEX_OWNER_DIED != 0);
    each_lock(&p, slot, "");
    p.is_removed();
}

/// Makes a cell look as if its owner were stopped in the middle of a section; what undoes it.
fn locked_by_the_living<'a>(p: &'a Place, owner: u32, num: u16) -> impl Fn() + 'a {
    p.ctl(owner).head.store(head(Kind::Cell, p.page(), num), Release);
    let cell = p.cell(num.into());
    let was = cell.word.load(Acquire);
    cell.word.store(word::lock(was, owner), Release);
    move || {
        cell.word.store(was, Release);
        p.ctl(owner).head.store(0, Release);
    }
}

/// Waited for: a call that does not wait, a timeout and a signal end it after a second, with nothing changed.
pub fn of_somebody_who_lives() {
    extern "C" fn nothing(_: libc::c_int) {}
    let p = Place::new();
    assert_eq!(p.semop(&[op(0, 2, 0)]), Ok(()));
    let unlock = locked_by_the_living(&p, p.idler(), 0);
    let id = p.id;
    let soon = Timespec { sec: 0, nsec: 100_000_000 };
    for call in [
        p.other(move |e, t| e.semop(t, id, &[op(0, -1, IPC_NOWAIT)], None)),
        p.other(move |e, t| e.semop(t, id, &[op(0, -1, 0)], Some(soon))),
    ] {
        let (r, took) = call.ended();
        assert_eq!(r, Err(Errno::EAGAIN));
        assert!(took >= SECOND, "{took:?}");
    }
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.expect("a handler");
    for call in [p.other(move |e, t| e.semop(t, id, &[op(0, -1, 0)], None)), p.other(move |e, t| e.getval(t, id, 0).map(drop))] {
        // Until one has come in the middle of the wait.
        let (r, took) = loop {
            // SAFETY: takes numbers only; the thread is one of this process, or there is none.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), call.tid, libc::SIGUSR1) };
            if let Some(ended) = call.ended_within(Duration::from_millis(100)) {
                break ended;
            }
        };
        assert_eq!(r, Err(Errno::EINTR));
        assert!(took >= SECOND, "{took:?}");
    }
    assert_eq!(p.noted(), None, "it is no damage");
    p.doctor_is_content();
    let waits = p.other(move |e, t| e.semop(t, id, &[op(0, -1, 0)], None));
    unlock();
    assert_eq!(waits.ended().0, Ok(()), "it waits for the owner to go on");
    assert_eq!(p.value(0), Ok(1));
    p.shows(0, "Semaphores");
    p.is_removed();
}

/// A sleeper whose time is up leaves with its node linked; it takes it out before it sleeps again.
pub fn queue_cannot_be_left() {
    let p = Place::new();
    let owner = p.idler();
    let id = p.id;
    let (left, go) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let tell = left.0;
    let sleeper = p.other(move |e, t| {
        let _ = tell.send(e.semop(t, id, &[op(0, -1, 0)], Some(Timespec { sec: 0, nsec: 300_000_000 })));
        let _ = go.1.recv();
        e.semop(t, id, &[op(1, -1, 0)], None)
    });
    let slot = p.slot(sleeper.tid);
    let ctl = p.ctl(slot);
    p.until(|| p.cell(0).alter.head.load(Acquire) == slot + 1 && ctl.state.load(Acquire) & 7 == 1);
    let unlock = locked_by_the_living(&p, owner, 0);
    assert_eq!(left.1.recv_timeout(crate::place::PATIENCE), Ok(Err(Errno::EAGAIN)));
    assert_ne!(ctl.linked.load(Acquire), 0, "it is still in the queue");
    unlock();
    go.0.send(()).expect("it waits for that");
    p.until(|| p.engine.getncnt(&p.t, p.id, 1) == Ok(1));
    assert_eq!((p.cell(0).alter.head.load(Acquire), p.engine.getncnt(&p.t, p.id, 0)), (0, Ok(0)));
    assert_eq!(p.semop(&[op(0, 1, 0)]), Ok(()));
    assert_eq!((p.value(0), sleeper.has_ended()), (Ok(1), None));
    assert_eq!(p.semop(&[op(1, 1, 0)]), Ok(()));
    assert_eq!(sleeper.ended().0, Ok(()));
    assert_eq!(p.noted(), None, "it is no damage");
    p.doctor_is_content();
}

/// Who is gone and said to be recovered by somebody: after a second it is as if nobody had died.
pub fn recoverer_does_nothing() {
    let p = Place::new();
    assert_eq!(p.semop(&[op(0, 5, 0)]), Ok(()));
    let idler = p.idler();
    let (told, tell) = nix::unistd::pipe().expect("a pipe");
    let engine = p.engine.clone();
    // SAFETY: the child uses the engine and ends by a signal.
    let child = match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            let ok = engine.semop(&Thread::new(), p.id, &[op(0, -2, SEM_UNDO)], None) == Ok(());
            let _ = nix::unistd::write(&tell, &[u8::from(ok)]);
            loop {
                nix::unistd::pause();
            }
        }
        ForkResult::Parent { child } => child,
    };
    let mut ok = [0];
    nix::unistd::read(&told, &mut ok).expect("its word");
    assert_eq!((ok, p.value(0)), ([1], Ok(3)));
    let slots = (0..p.arena.header().procs_high.load(Acquire)).map(|i| {
        let at = PROCS_AT + u64::from(i) * size_of::<ProcSlot>() as u64;
        p.arena.at::<AtomicU64>(at).expect("in the file")
    });
    let word = slots.into_iter().find(|w| w.load(Acquire) >> 2 & 0x3f_ffff == child.as_raw() as u64).expect("it is attached");
    let was = word.load(Acquire);
    word.store(was | u64::from(idler + 1) << 24, Release);
    nix::sys::signal::kill(child, Signal::SIGKILL).expect("own child");
    waitpid(child, None).expect("own child");
    let began = std::time::Instant::now();
    assert_eq!(p.value(0), Ok(3), "its undo is not applied");
    assert!(began.elapsed() >= SECOND, "{:?}", began.elapsed());
    word.store(was, Release);
    assert_eq!(p.value(0), Ok(5));
    p.doctor_is_content();
    p.shows(0, "Semaphores");
}
