//! How it fails.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use manyway_sem::abi::IPC_PRIVATE;
use manyway_sem::id::IdEntry;
use manyway_sem::{Damage, Errno, word};
use manyway_shm::layout::*;

use crate::place::{Place, op};

/// EINVAL, as if there were no set.
pub fn id_leads_nowhere() {
    for place in ["a page of the tables", "the middle of a large set", "behind the file's end"] {
        let p = Place::new();
        let page = match place {
            "a page of the tables" => 3,
            "behind the file's end" => (1 << 26) - 1,
            _ => {
                let large = p.engine.semget(&p.t, IPC_PRIVATE, 500, 0o600).expect("a set");
                let at = IdEntry::find(p.arena.at(IDS_AT + (large as u64 & 0x7fff) * 8).expect("in the table")).at() + PAGE;
                // Which looks like the begin of one.
                p.arena.at::<AtomicU32>(at + offset_of!(SetHead, nsems) as u64).expect("in the file").store(3, Release);
                at / PAGE
            }
        };
        let entry = p.arena.at::<AtomicU64>(IDS_AT + u64::from(p.index().expect("its index")) * 8).expect("in the file");
        let was = entry.load(Acquire);
        entry.store(was & !(0x3ff_ffff << 22) | page << 22, Release);
        assert_eq!(p.semop(&[op(0, 1, 0)]), Err(Errno::EINVAL));
        assert_eq!(p.value(0), Err(Errno::EINVAL));
        p.shows(1, "no set");
        p.doctor_says("where no set is");
        entry.store(was, Release);
        p.is_removed();
    }
}

/// EIO, until it is removed.
pub fn set_says_that_it_is_gone() {
    for cells in [false, true] {
        let p = Place::new();
        if cells {
            p.cell(0).word.store(word::REMOVED, Release);
            p.doctor_says("semaphore 0 says that it is gone");
        } else {
            p.head().lock.store(word::REMOVED, Release);
            p.doctor_says("is no lock word");
        }
        let mut values = [0; 3];
        assert_eq!(p.engine.getall(&p.t, p.id, &mut values), Err(Errno::EIO));
        assert_eq!(p.semop(&[op(0, 1, 0), op(1, 1, 0), op(2, 0, 0)]), if cells { Err(Errno::EIO) } else { Ok(()) });
        assert_eq!(p.noted(), Some((Some(Damage::Set), p.index())));
        p.shows(1, "is damaged");
        p.doctor_says("last a set whose words say that it is gone");
        p.is_removed();
    }
}

/// The thread takes another one.
pub fn slot_is_somebody_elses() {
    let p = Place::new();
    let slot = p.my_slot();
    let word = p.arena.at::<AtomicU64>(THREAD_WORDS_AT + u64::from(slot) * 8).expect("in the file");
    // The next generation.
    word.fetch_add(1 << 46, AcqRel);
    assert_eq!(p.engine.setval(&p.t, p.id, 0, 7), Ok(()));
    assert_eq!(p.noted().map(|(kind, _)| kind), Some(Some(Damage::Slot)));
    p.doctor_says("last a living thread's slot that was somebody else's");
    let high = p.arena.header().threads_high.load(Acquire);
    let mine = (0..high).filter(|&s| s != slot && p.ctl(s).tid.load(Acquire) == crate::place::gettid());
    assert_eq!(mine.count(), 1, "another slot");
    assert_eq!(p.value(0), Ok(7));
    p.shows(0, "Semaphores");
    p.is_removed();
}

/// EIO for the sleeper.
pub fn sleep_without_a_result() {
    let p = Place::new();
    let sleeper = p.sleeper(&[op(0, -1, 0)], None);
    let state = &p.ctl(p.slot(sleeper.tid)).state;
    // Out of its sleep, and not by its thread.
    state.fetch_and(!0xf, AcqRel);
    assert_eq!(sleeper.ended().0, Err(Errno::EIO));
    assert_eq!(p.semop(&[op(0, 1, 0)]), Ok(()));
    assert_eq!(p.value(0), Ok(1), "nobody has it");
    p.shows(0, "Semaphores");
    p.is_removed();
}
