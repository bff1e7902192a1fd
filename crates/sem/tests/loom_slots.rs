//! Slots: claiming, going live, being marked as gone, recovery; and what is published by one store.
//! `RUSTFLAGS="--cfg loom" cargo test --release -p manyway-sem --test loom_slots`
#![cfg(loom)]

mod model;

use loom::sync::Arc;
use loom::thread;
use manyway_sem::edges::{self, Attachment};
use manyway_sem::id::IdEntry;
use manyway_sem::node;
use manyway_sem::slotword::{ProcWord, SlotState, ThreadWord, is_marked, live, mark_gone, occupy};
use manyway_shm::layout::UndoHead;
use manyway_sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use manyway_sync::model::dies_before;
use model::*;

/// Another process's slot.
const OTHER: u32 = 9;

/// Recovers and recycles slot `of`, if its thread is gone, in the name of slot `by`: `Engine::recover_thread`.
fn recycle(w: &World, of: usize, by: usize) -> bool {
    let slot = &w.slots[of];
    let Some(word) = live(&slot.word).filter(|_| is_marked(&slot.ctl)) else { return false };
    let gone = |r: u32| is_marked(&w.slots[r as usize].ctl);
    let Some(mine) = word.recover(&slot.word, by as u32, &w.slots[by].ctl, gone) else { return false };
    assert_ne!(mine.by(), OTHER, "a living thread's slot is taken from it");
    node::withdraw(&slot.ctl, node::seq(slot.ctl.state.load(Relaxed)));
    mine.recycle(&slot.word)
}

/// Takes the slot, if it is free, for a thread of another process: `Engine::attach_thread`.
fn take(slot: &Slot) -> bool {
    take_for(slot, OTHER)
}
fn take_for(slot: &Slot, proc: u32) -> bool {
    let w = ThreadWord::read(&slot.word);
    if !w.claim(&slot.word, proc) {
        return false;
    }
    occupy(&slot.ctl, 2);
    w.go_live(&slot.word, proc);
    true
}

/// SLOT-LIVE: a slot that changes hands is never taken from its new owner for its old owner's mark.
#[test]
fn slot_that_changes_hands_is_not_taken_for_dead() {
    check(|| {
        let w = World::new([0, 0]);
        let old = node::publish(&w.slots[0].ctl);
        w.slots[0].mark();
        let heir = {
            let w = w.clone();
            thread::spawn(move || {
                if take(&w.slots[0]) {
                    assert_eq!(node::publish(&w.slots[0].ctl), old + 1);
                }
            })
        };
        let other = {
            let w = w.clone();
            thread::spawn(move || recycle(&w, 0, 1))
        };
        recycle(&w, 0, 2);
        heir.join().unwrap();
        other.join().unwrap();
    });
}

/// SLOT-FREE: who takes a slot sees all that was done to it by who gave it back.
#[test]
fn heir_sees_what_the_recoverer_did() {
    check_thoroughly(|| {
        let (w, data) = (World::new([0, 0]), Arc::new(Data::default()));
        w.slots[0].mark();
        let recoverer = {
            let (w, data) = (w.clone(), data.clone());
            thread::spawn(move || {
                let slot = &w.slots[0];
                let mine = live(&slot.word).unwrap().recover(&slot.word, 1, &w.slots[1].ctl, |_| false).unwrap();
                data.set(1);
                assert!(mine.recycle(&slot.word));
            })
        };
        if take(&w.slots[0]) {
            assert_eq!(data.get(), 1);
        }
        recoverer.join().unwrap();
    });
}

/// GONE-MARK: a slot judged by its process is marked only while it is still the same thread's.
#[test]
fn late_mark_does_not_meet_the_next_owner() {
    check_thoroughly(|| {
        let w = World::new([0, 0]);
        w.slots[0].ctl.robust.store(1, Relaxed);
        let other = {
            let w = w.clone();
            thread::spawn(move || {
                let slot = &w.slots[0];
                if live(&slot.word).is_some_and(|word| mark_gone(&slot.word, word, &slot.ctl)) && recycle(&w, 0, 1) {
                    assert!(take(slot));
                }
            })
        };
        let slot = &w.slots[0];
        // Its process is gone: so this thread has been told of the first owner.
        if let Some(word) = live(&slot.word).filter(|word| word.by() == PROC) {
            mark_gone(&slot.word, word, &slot.ctl);
        }
        other.join().unwrap();
        assert!(w.slots[0].word().by() != OTHER || !is_marked(&w.slots[0].ctl), "a living thread is marked");
    });
}

/// GONE-MARK: the same where the next owner's process has the slot of the last one's: the generation tells.
#[test]
fn late_mark_knows_the_generation() {
    check_thoroughly(|| {
        let w = World::new([0, 0]);
        w.slots[0].ctl.robust.store(1, Relaxed);
        // Judged from here on.
        let judged = live(&w.slots[0].word).unwrap();
        let other = {
            let w = w.clone();
            thread::spawn(move || {
                let slot = &w.slots[0];
                mark_gone(&slot.word, judged, &slot.ctl) && recycle(&w, 0, 1) && take_for(slot, PROC)
            })
        };
        mark_gone(&w.slots[0].word, judged, &w.slots[0].ctl);
        let taken = other.join().unwrap();
        assert!(!taken || !is_marked(&w.slots[0].ctl), "a living thread is marked");
    });
}

/// SLOT-FREE, SLOT-LIVE: who dies anywhere while it takes a slot leaves it to others: free, or claimed, which the end of its process settles, or
/// live and marked.
#[test]
fn claimant_that_dies_anywhere_leaves_the_slot() {
    let points = each_crash_point(|k| {
        let w = World::new([0, 0]);
        w.slots[0].word.store(0, Relaxed);
        let claimant = {
            let w = w.clone();
            thread::spawn(move || {
                let died = dies_before(k, || {
                    take_for(&w.slots[0], PROC);
                });
                if died {
                    w.slots[0].mark();
                }
                died
            })
        };
        // Nobody takes a slot that is not free, or recovers one that is not marked.
        recycle(&w, 0, 1);
        let died = claimant.join().unwrap();
        let slot = &w.slots[0];
        if died {
            // `Engine::recover_process_as`: its process is gone.
            let word = slot.word();
            match word.state() {
                SlotState::Free => {}
                SlotState::Claimed => assert!(word.recycle(&slot.word)),
                SlotState::Live => assert!(mark_gone(&slot.word, word, &slot.ctl) && recycle(&w, 0, 1)),
            }
            assert!(take(slot), "the slot is lost");
        } else {
            assert_eq!(slot.word().state(), SlotState::Live);
        }
        died
    });
    assert!(points > 6, "{points} crash points");
}

/// ATTACHED: who finds the process attached finds its pid and its slot; of two threads that attach it one does.
#[test]
fn process_is_attached_once_and_whole() {
    check_thoroughly(|| {
        let page = Arc::new([(); 5].map(|()| AtomicU64::new(0)));
        let attach = |page: &[AtomicU64; 5], tid: u64| {
            let place = Attachment { pid_bits: &page[0], epoch: &page[1], proc: &page[2], pid: &page[3] };
            if place.pid().is_none() {
                // `Engine::attach_process`: the lock, then another look.
                while page[4].compare_exchange(0, tid, Acquire, Relaxed).is_err() {
                    thread::yield_now();
                }
                if page[1].load(Relaxed) == 0 {
                    place.publish(tid as u32, PID, tid);
                }
                page[4].store(0, Release);
            }
            assert_eq!(place.pid(), Some(PID));
            page[2].load(Relaxed)
        };
        let other = {
            let page = page.clone();
            thread::spawn(move || attach(&page, 7))
        };
        let place = Attachment { pid_bits: &page[0], epoch: &page[1], proc: &page[2], pid: &page[3] };
        if let Some(pid) = place.pid() {
            assert_eq!((pid, page[2].load(Relaxed)), (PID, 7));
        }
        let mine = attach(&page, 8);
        assert_eq!(other.join().unwrap(), mine, "two places of one process");
    });
}

/// WATCHER: the watcher sees the slot that was taken, or who took it sees the watcher and wakes it.
#[test]
fn watcher_or_newcomer_sees_the_other() {
    check_thoroughly(|| {
        let w = World::new([0, 0]);
        w.slots[0].word.store(0, Relaxed);
        let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
        let newcomer = {
            let (w, words) = (w.clone(), words.clone());
            thread::spawn(move || {
                assert!(take(&w.slots[0]));
                edges::ring(&words.0, &words.1)
            })
        };
        edges::watch(&words.1, 5);
        let seen = w.slots[0].word.load(Relaxed) != 0;
        assert!(newcomer.join().unwrap() || seen, "neither sees the other");
    });
}

/// KEPT-PAGES: who gives a removed set's page back sees the newcomer's slot, or the newcomer does not find the set.
#[test]
fn page_is_kept_or_the_set_is_not_found() {
    check_thoroughly(|| {
        let w = World::new([0, 0]);
        w.slots[0].word.store(0, Relaxed);
        let id = Arc::new(AtomicU32::new(7));
        let newcomer = {
            let (w, id) = (w.clone(), id.clone());
            thread::spawn(move || {
                assert!(take(&w.slots[0]));
                edges::kept_pages();
                id.load(Acquire) == 7
            })
        };
        id.store(0, Release);
        edges::kept_pages();
        let kept = w.slots[0].word.load(Relaxed) != 0;
        assert!(!newcomer.join().unwrap() || kept, "found, and its page is given back");
    });
}

/// SLOT-RECOVER: one recoverer at a time, and each sees what the last one did.
#[test]
fn recoverers_exclude_each_other() {
    check_thoroughly(|| {
        let (w, data) = (World::new([0, 0]), Arc::new(Data::default()));
        w.slots[0].mark();
        let recover = |w: &World, data: &Data, by: u32| {
            let dead = &w.slots[0];
            let word = live(&dead.word).unwrap();
            if let Some(mine) = word.recover(&dead.word, by, &w.slots[by as usize].ctl, |r| is_marked(&w.slots[r as usize].ctl)) {
                data.set(data.get() + 1);
                mine.give_back(&dead.word);
                return 1;
            }
            0
        };
        let other = {
            let (w, data) = (w.clone(), data.clone());
            thread::spawn(move || recover(&w, &data, 1))
        };
        let n = recover(&w, &data, 2) + other.join().unwrap();
        assert_eq!(data.get(), n);
        assert_eq!(w.slots[0].word().recoverer(), None);
    });
}

/// SLOT-RECOVER: a recoverer that dies anywhere leaves the slot to the next one, also when its own slot has got another owner since.
#[test]
fn recoverer_that_dies_leaves_the_slot_to_the_next() {
    let points = each_crash_point(|k| {
        let w = World::new([0, 0]);
        w.slots[0].mark();
        let recoverer = {
            let w = w.clone();
            thread::spawn(move || {
                let died = dies_before(k, || {
                    w.release_locks(0, 1, || ());
                });
                if died {
                    w.slots[1].mark();
                    // A third party recycles its slot (Engine::forget_recoverer first), and another thread, which lives, takes it.
                    let gone = &w.slots[1];
                    if gone.ctl.recovered.load(Acquire) != 0 {
                        ThreadWord::forget(&w.slots[0].word, 1);
                        gone.ctl.recovered.store(0, Release);
                    }
                    assert!(recycle(&w, 1, 2));
                    assert!(take(gone));
                }
                died
            })
        };
        w.release_locks(0, 2, || ());
        let died = recoverer.join().unwrap();
        w.release_locks(0, 2, || ());
        assert!(w.slots[0].word().recoverer().is_none(), "nobody recovers it any more");
        died
    });
    assert!(points > 5, "{points} crash points");
}

/// PROC-LIVE: who finds a process live finds its identity.
#[test]
fn process_goes_live_with_its_identity() {
    check_thoroughly(|| {
        let p = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let claimant = {
            let p = p.clone();
            thread::spawn(move || {
                let w = ProcWord::read(&p.0);
                assert!(w.claim(&p.0, PID));
                p.1.store(77, Relaxed);
                w.go_live(&p.0, PID);
            })
        };
        if ProcWord::read(&p.0).state() == SlotState::Live {
            assert_eq!(p.1.load(Relaxed), 77);
        }
        claimant.join().unwrap();
    });
}

/// SLOT-FREE: one claimant gets a free slot.
#[test]
fn one_claimant_gets_a_free_slot() {
    check_thoroughly(|| {
        let w = World::new([0, 0]);
        w.slots[0].word.store(0, Relaxed);
        let other = {
            let w = w.clone();
            thread::spawn(move || take(&w.slots[0]))
        };
        let mine = take(&w.slots[0]);
        assert_ne!(other.join().unwrap(), mine);
    });
}

/// RECORD-PUBLISH: who finds a record by its tag finds its adjustments at zero, and its length; wherever its maker dies.
#[test]
fn undo_record_appears_zeroed() {
    let points = each_crash_point(|k| {
        let r = Arc::new(UndoHead::default());
        // What the last user left.
        r.adj[0].store(5, Relaxed);
        r.tag.store(TAG - 1, Relaxed);
        let maker = {
            let r = r.clone();
            thread::spawn(move || {
                dies_before(k, || {
                    edges::open_record(&r, 1);
                    r.adj[0].store(0, Relaxed);
                    edges::publish_record(&r, TAG);
                })
            })
        };
        let look = || {
            if edges::is_record_of(&r, TAG) {
                assert_eq!((r.adj[0].load(Relaxed), r.nsems.load(Relaxed)), (0, 1));
            }
        };
        look();
        let died = maker.join().unwrap();
        look();
        died
    });
    assert_eq!(points, 4);
}

/// ID-PUBLISH: who finds the id finds the set initialised, wherever its maker dies.
#[test]
fn set_appears_initialised() {
    let points = each_crash_point(|k| {
        let (id, nsems) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU32::new(0)));
        let maker = {
            let (id, nsems) = (id.clone(), nsems.clone());
            thread::spawn(move || {
                dies_before(k, || {
                    nsems.store(3, Relaxed);
                    IdEntry::new(1, 4096, TAG).publish(&id);
                })
            })
        };
        let look = || IdEntry::find(&id).tag() != TAG || nsems.load(Relaxed) == 3;
        assert!(look(), "a set is found before it is initialised");
        let died = maker.join().unwrap();
        assert!(look());
        died
    });
    assert_eq!(points, 2);
}
