//! A name that nobody knows yet, and the one who asks the store for it.

use crate::*;

/// The right and the duty to say what a name leads to. While it is held, others who want the name wait. Dropped without an answer, those who wait are
/// released, and one of them gets the next ticket. It may be sent to another thread and kept for long; no lock and no guard is held.
#[must_use]
pub struct Ticket<I: Send + Sync + 'static>(std::marker::PhantomData<I>);

impl<I: Send + Sync + 'static> Ticket<I> {
    /// The directory in which the name is to be looked up.
    pub fn directory(&self) -> &Handle<I> {
        todo!()
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        todo!()
    }

    /// Whether the name was known and its time is over ([`Outcome::Stale`]).
    pub fn is_stale(&self) -> bool {
        todo!()
    }

    /// What a stale name led to; none: it did not exist, or the ticket is not a stale name's.
    pub fn known(&self) -> Option<&Handle<I>> {
        todo!()
    }

    /// The name leads to this. For a stale one: from now on, which may be the same as before.
    pub fn publish(self, _binding: Binding<I>, _ttl: Ttl) -> Filled<I> {
        todo!()
    }

    /// The name does not exist: the store has said so with authority.
    pub fn absent(self, _ttl: Ttl) -> Filled<I> {
        todo!()
    }

    /// A stale name: it is as it was. As a drop if the ticket is not a stale name's.
    pub fn same(self, _ttl: Ttl) -> Filled<I> {
        todo!()
    }

    /// The store could not say. Those who wait at this moment get the same error; nothing is kept.
    pub fn failed(self, _error: Error) {
        todo!()
    }
}

/// A ticket that was answered: the walk can go on with [`Cache::resume`].
pub struct Filled<I: Send + Sync + 'static>(std::marker::PhantomData<I>);

impl<I: Send + Sync + 'static> Filled<I> {
    /// Whether the answer is in the cache now. No: a change or an invalidation came between the question and the answer, there was no room for it, or its time to
    /// live is nothing. Then it is the asker's alone.
    pub fn kept(&self) -> bool {
        todo!()
    }

    /// What the name leads to; none: it does not exist.
    pub fn node(&self) -> Option<&Handle<I>> {
        todo!()
    }
}
