//! Semaphores between processes, for Rust programs: the engine behind a safe interface.
//!
//! A [`Namespace`] is a directory that holds semaphore sets; processes that open the same one share them. A [`Set`] is found by a
//! [`Key`] or made private; each [`Semaphore`] in it counts from 0 to 32767. All three are small values to copy, store and send to
//! other threads as you like. What a call means is what semop(2), semget(2) and semctl(2) say, without their traps:
//!
//! * A set is never seen before it has its initial values: [`SetOptions::create`] makes both in one step.
//! * A wait goes on after a signal's handler, as the standard library's waits do. [`Semaphore::interruptible`] asks for EINTR.
//! * Waiting for zero is an operation of its own; an amount of 0 is an error.
//! * A [`Permit`] gives back what it took when it is dropped, and also when its process is killed.
//!
//! # A limit shared by processes
//! ```
//! use manyway_sem::{Key, Namespace};
//!
//! # let own = Namespace::private()?;
//! # let dir = own.dir();
//! // Every process that does this has its share of the same four permits.
//! let namespace = Namespace::open(dir)?;
//! let jobs = namespace.set(Key::new(0x6a6f6273)).create(&[4])?.sem(0)?;
//!
//! let permit = jobs.acquire()?; // waits while four are at work
//! assert_eq!(jobs.value()?, 3);
//! drop(permit); // a kill -9 would have given it back, too
//! assert_eq!(jobs.value()?, 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Several semaphores at once
//! All operations of one call are carried out together or not at all:
//! ```
//! use manyway_sem::{Namespace, Op};
//!
//! let namespace = Namespace::private()?;
//! let set = namespace.private_set(&[1, 0])?; // a full slot, an empty one
//! set.run(&[Op::take(0, 1), Op::add(1, 1)])?;
//! assert_eq!(set.values()?, [0, 1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads, fork, exec
//! All types may be used from all threads. A child of fork(2) uses the copies it has; it begins with nothing to give back, so a
//! [`Permit`] that was copied by a fork gives nothing back in the child. What a process took with undo stays taken over execve(2).
//! Nothing here may be called by a signal's handler, or between `vfork` and `exec`.
//!
//! # Cost
//! An operation that need not wait makes no system call: some nanoseconds, against about 600 in the kernel. [`Semaphore`] has found its
//! place already, so it is the fastest way for one semaphore.

mod error;
mod namespace;
mod op;
mod permit;
mod prepared;
mod semaphore;
mod set;
mod thread;

pub use error::{Error, NamespaceError};
pub use namespace::{Namespace, NamespaceOptions, PrivateNamespace};
pub use op::Op;
pub use permit::Permit;
pub use prepared::Prepared;
pub use semaphore::Semaphore;
pub use set::{Key, Set, SetOptions, SleepingCall};
