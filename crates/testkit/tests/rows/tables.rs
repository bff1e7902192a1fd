//! Key table and allocation bitmaps.

use std::sync::atomic::{AtomicU64, Ordering::*};

use manyway_sem::Errno;
use manyway_sem::abi::{IPC_CREAT, IPC_PRIVATE};
use manyway_shm::layout::*;

use crate::place::{KEY, Place, op};

/// A chain is followed for as many steps as there can be sets: what is not found is not there, or made.
pub fn key_chain_is_a_ring() {
    let p = Place::new();
    let bucket = |key: i32| (key as u32).wrapping_mul(0x9e37_79b1) >> 19;
    let other = (KEY + 1..).find(|k| bucket(*k) == bucket(KEY)).expect("there are more keys than chains");
    p.head().next_key.store(p.index().expect("its index") + 1, Release);
    assert_eq!(p.engine.semget(&p.t, other, 1, 0), Err(Errno::ENOENT));
    let made = p.engine.semget(&p.t, other, 1, IPC_CREAT | 0o600).expect("a new set");
    assert_eq!(p.engine.semget(&p.t, other, 1, 0), Ok(made));
    assert_eq!(p.engine.semget(&p.t, KEY, 1, 0), Ok(p.id));
    p.shows(0, "Semaphores");
    p.doctor_says("key");
    p.is_removed();
}

/// A bitmap without a free object in an extent that counts some: refused once, then in another extent.
pub fn bitmap_says_full() {
    let p = Place::new();
    let bitmap = EXTENTS_AT + (p.at - EXTENTS_AT) / EXTENT * EXTENT;
    for word in 0..PAGE / 8 {
        p.arena.at::<AtomicU64>(bitmap + word * 8).expect("in the file").store(u64::MAX, Release);
    }
    p.doctor_says("objects are in use that nothing leads to");
    assert_eq!(p.engine.semget(&p.t, IPC_PRIVATE, 1, 0o600), Err(Errno::ENOMEM));
    let made = p.engine.semget(&p.t, IPC_PRIVATE, 1, 0o600).expect("a set elsewhere");
    assert_eq!(p.engine.semop(&p.t, made, &[op(0, 1, 0)], None), Ok(()));
    assert_eq!(p.semop(&[op(0, 1, 0)]), Ok(()), "sets that are there are not concerned");
    p.shows(0, "Semaphores");
    p.is_removed();
}
