//! Threads that begin, use the namespace and end.

use std::thread;

use manyway_sem::abi::SEM_UNDO;
use manyway_sem::{Namespace, Thread};

use crate::children;
use crate::cycles::op;
use crate::footprint::Place;

/// Through the Rust API, which gives a thread's slot back at its end.
pub fn api(p: &Place, n: usize) {
    let namespace = Namespace::options().create(false).open(p.dir.path()).expect("it is there");
    let id = p.set(2);
    let set = namespace.set_by_id(id).expect("own set");
    for i in 0..n {
        let sem = set.sem((i % 2) as u16).expect("it has two").with_undo();
        let work = move || {
            sem.add(1).expect("never waits");
            sem.take(1).expect("there is one");
        };
        thread::spawn(work).join().expect("it does not panic");
    }
    p.remove(id);
}

/// As cancelled threads do: the kernel's mark alone tells of their end.
pub fn undetached(p: &Place, n: usize) {
    let id = p.set(1);
    for _ in 0..n {
        thread::scope(|s| {
            let thread = s.spawn(|| {
                let t = Thread::new();
                assert_eq!(p.engine.semop(&t, id, &[op(0, 1, SEM_UNDO)], None), Ok(()));
                assert_eq!(p.engine.semop(&t, id, &[op(0, -1, SEM_UNDO)], None), Ok(()));
            });
            // The scope's end would wait for the closure, not for the thread.
            thread.join().expect("it does not panic");
        });
    }
    p.remove(id);
}

/// Threads of the C library in a program with the preloaded library, which counts for itself, too.
pub fn preloaded(p: &Place, n: usize) {
    children::run_preloaded(p, "threads", n);
}
