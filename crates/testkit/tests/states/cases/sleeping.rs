//! Going to sleep and coming back: by the timeout, by a signal with or without the trampoline.

use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use manyway_sem::Fairness;
use manyway_sem::abi::{SemBuf, Timespec};

use super::{Case, HOLD, HOLD_BOTH, Outcome, Plain, TAKE, TAKE_BOTH, ZERO, ZERO_BOTH, settle};
use crate::clock;
use crate::stage::Stage;

pub fn all() -> Vec<Case> {
    let timed = |(name, sleepers, values, asleep, setup, call): Sleep| {
        let same: Outcome = (values, asleep.len());
        Plain { name, sleepers, entry: &["semop"], values, asleep, setup, call, none: same, all: same }.case()
    };
    timing_out()
        .into_iter()
        .map(timed)
        .chain(interrupted())
        .chain([looking_about(Fairness::Strict), looking_about(Fairness::Barging)])
        .collect()
}

/// Sleeps longer than a tick: looks about, and in a barging namespace tries for itself.
fn looking_about(fairness: Fairness) -> Case {
    let call: fn(&Stage) = |s| {
        let _ = s.victim.engine.semop(s.victim.t, s.id.get(), HOLD, Some(Timespec { sec: 0, nsec: 70_000_000 }));
    };
    let setup: fn(&Stage) = |s| {
        settle(s);
        clock::step(20_000_000);
    };
    let name = if fairness == Fairness::Strict { "take undo, a tick" } else { "take undo, a tick, barging" };
    let same: Outcome = (&[0], 1);
    let plain = Plain { name, sleepers: "alter", entry: &["semop"], values: &[0], asleep: &[TAKE], setup, call, none: same, all: same };
    Case { fairness, ..plain.case() }
}

type Sleep = (&'static str, &'static str, &'static [u16], &'static [&'static [SemBuf]], fn(&Stage), fn(&Stage));

/// The deadline has passed when the call is about to sleep.
fn settle_late(s: &Stage) {
    settle(s);
    clock::step(2_000_000);
}
/// It passes while the call sleeps.
fn settle_soon(s: &Stage) {
    settle(s);
    clock::step(600_000);
}

fn sleep(s: &Stage, ops: &[SemBuf]) {
    let _ = s.victim.engine.semop(s.victim.t, s.id.get(), ops, Some(Timespec { sec: 0, nsec: 1_000_000 }));
}

fn timing_out() -> Vec<Sleep> {
    let take: fn(&Stage) = |s| sleep(s, TAKE);
    let hold: fn(&Stage) = |s| sleep(s, HOLD);
    let zero: fn(&Stage) = |s| sleep(s, ZERO);
    let both: fn(&Stage) = |s| sleep(s, HOLD_BOTH);
    let zero_both: fn(&Stage) = |s| sleep(s, ZERO_BOTH);
    vec![
        ("take times out", "none", &[0], &[], settle_late, take),
        ("take sleeps and times out", "none", &[0], &[], settle_soon, take),
        ("take undo times out", "none", &[0], &[], settle_late, hold),
        ("take times out", "alter", &[0], &[TAKE, HOLD], settle_late, take),
        ("take times out", "zero", &[1], &[ZERO, ZERO], settle_late, |s| sleep(s, super::TAKE_TWO_UNITS)),
        ("take times out", "complex", &[0, 1], &[TAKE_BOTH, TAKE], settle_late, take),
        ("zero sleeps and times out", "none", &[1], &[], settle_soon, zero),
        ("zero times out", "zero", &[1], &[ZERO], settle_late, zero),
        ("zero times out", "alter", &[1], &[super::TAKE_TWO_UNITS], settle_late, zero),
        ("zero times out", "complex", &[1, 0], &[TAKE_BOTH, ZERO_BOTH], settle_late, zero),
        ("take both times out", "none", &[0, 1], &[], settle_late, both),
        ("take both sleeps and times out", "none", &[0, 1], &[], settle_soon, both),
        ("take both times out", "zero", &[1, 0], &[ZERO, ZERO], settle_late, both),
        ("take both times out", "alter", &[0, 1], &[TAKE, HOLD], settle_late, both),
        ("take both times out", "complex", &[0, 1], &[TAKE_BOTH, ZERO_BOTH, TAKE], settle_late, both),
        ("zero both times out", "none", &[1, 0], &[], settle_late, zero_both),
        ("zero both times out", "zero", &[1, 0], &[ZERO], settle_late, zero_both),
        ("zero both times out", "alter", &[1, 0], &[super::TAKE_TWO_UNITS], settle_late, zero_both),
        ("zero both times out", "complex", &[1, 0], &[ZERO_BOTH, TAKE_BOTH], settle_late, zero_both),
    ]
}

static INTERRUPTED: AtomicPtr<Stage> = AtomicPtr::new(std::ptr::null_mut());

/// What the library's trampoline does around a program's handler.
extern "C" fn through_the_trampoline(_: libc::c_int) {
    let stage = INTERRUPTED.load(Relaxed);
    // SAFETY: set to a stage that lives over the call which this interrupts, or null.
    if let Some(s) = unsafe { stage.as_ref() } {
        if manyway_sem::Engine::in_section(s.victim.t) {
            return;
        }
        let token = s.victim.engine.before_handler(s.victim.t);
        s.victim.engine.after_handler(s.victim.t, token);
    }
}
/// What the library does as a thread is cancelled in the middle of its sleep: the clean-up handlers find the call over.
extern "C" fn cancelled(_: libc::c_int) {
    let stage = INTERRUPTED.load(Relaxed);
    // SAFETY: as above.
    if let Some(s) = unsafe { stage.as_ref() }
        && !manyway_sem::Engine::in_section(s.victim.t)
    {
        s.victim.engine.abandon(s.victim.t);
    }
}
extern "C" fn plain_handler(_: libc::c_int) {}

/// Sleeps until the alarm, which comes again and again: the first ones may come before it sleeps.
fn until_alarm(s: &Stage, ops: &[SemBuf], handler: extern "C" fn(libc::c_int)) {
    let again = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
    let never = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let timer = |t| {
        let t = libc::itimerval { it_interval: t, it_value: t };
        // SAFETY: reads a structure that lives over the call.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const t, std::ptr::null_mut()) };
    };
    INTERRUPTED.store(std::ptr::from_ref(s).cast_mut(), Relaxed);
    // SAFETY: all zeros is a valid sigaction; the handlers call the engine as the library's trampoline does, or nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
    }
    timer(again);
    let _ = s.victim.engine.semop(s.victim.t, s.id.get(), ops, None);
    timer(never);
    INTERRUPTED.store(std::ptr::null_mut(), Relaxed);
}

fn interrupted() -> Vec<Case> {
    let plain = |name, sleepers, values, asleep: &'static [&'static [SemBuf]], call| {
        let same: Outcome = (values, asleep.len());
        Plain { name, sleepers, entry: &["semop"], values, asleep, setup: settle, call, none: same, all: same }.case()
    };
    let caught = |name, sleepers, values, asleep: &'static [&'static [SemBuf]], call| {
        let same: Outcome = (values, asleep.len());
        let entry = &["semop", "before_handler", "after_handler"];
        Plain { name, sleepers, entry, values, asleep, setup: settle, call, none: same, all: same }.case().by_protection()
    };
    let left = |name, sleepers, values, asleep: &'static [&'static [SemBuf]], call| {
        let same: Outcome = (values, asleep.len());
        let entry = &["semop", "abandon"];
        Plain { name, sleepers, entry, values, asleep, setup: settle, call, none: same, all: same }.case().by_protection()
    };
    vec![
        plain("take undo, EINTR", "alter", &[0], &[TAKE], |s| until_alarm(s, HOLD, plain_handler)),
        plain("take both, EINTR", "complex", &[0, 1], &[TAKE_BOTH], |s| until_alarm(s, HOLD_BOTH, plain_handler)),
        plain("zero, EINTR", "zero", &[1], &[ZERO], |s| until_alarm(s, ZERO, plain_handler)),
        left("take undo, cancelled", "none", &[0], &[], |s| until_alarm(s, HOLD, cancelled)),
        left("take undo, cancelled", "alter", &[0], &[TAKE], |s| until_alarm(s, HOLD, cancelled)),
        left("zero, cancelled", "zero", &[1], &[ZERO], |s| until_alarm(s, ZERO, cancelled)),
        left("take both, cancelled", "complex", &[0, 1], &[TAKE_BOTH, TAKE], |s| until_alarm(s, HOLD_BOTH, cancelled)),
        caught("take undo, handler", "none", &[0], &[], |s| until_alarm(s, HOLD, through_the_trampoline)),
        caught("take undo, handler", "alter", &[0], &[TAKE], |s| until_alarm(s, HOLD, through_the_trampoline)),
        caught("zero, handler", "zero", &[1], &[ZERO], |s| until_alarm(s, ZERO, through_the_trampoline)),
        caught("take both, handler", "complex", &[0, 1], &[TAKE_BOTH, TAKE], |s| until_alarm(s, HOLD_BOTH, through_the_trampoline)),
    ]
}
