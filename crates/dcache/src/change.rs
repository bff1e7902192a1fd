//! Changes of names: begin, ask the store, commit.
//!
//! Between begin and commit the cache answers as before, and nobody's fill can bring in what the store has done already. Two changes of one
//! name go one after the other: the second begin waits for the end of the first. A thread must not begin a change while it holds another.

use crate::*;

/// How a rename treats its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// What the target's name led to is replaced.
    Replace,
    /// The target must not exist (RENAME_NOREPLACE).
    NoReplace,
    /// Both exist and change places (RENAME_EXCHANGE).
    Exchange,
}

/// A link, unlink, rmdir or rename that was begun. Commit it when the store has done it, drop it when not. **A drop does not know what the store did**:
/// the names are forgotten. [`Change::unchanged`] says that the store has refused.
#[must_use]
pub struct Change<I: Send + Sync + 'static>(std::marker::PhantomData<I>);

impl<I: Send + Sync + 'static> Change<I> {
    /// The node whose name is going to change, if the cache knows it: the one that is linked, unlinked, removed or renamed.
    pub fn node(&self) -> Option<&Handle<I>> {
        todo!()
    }

    /// What the target of a rename leads to now, if the cache knows.
    pub fn target(&self) -> Option<&Handle<I>> {
        todo!()
    }

    /// The store has done it: walkers see the change as a whole from here on.
    pub fn commit(self) {
        todo!()
    }

    /// The store has refused, and nothing is changed.
    pub fn unchanged(self) {
        todo!()
    }
}

/// The making of a name that was begun.
#[must_use]
pub struct Creation<I: Send + Sync + 'static>(std::marker::PhantomData<I>);

impl<I: Send + Sync + 'static> Creation<I> {
    /// The store has made it: the name leads to `binding`. A new directory is known to be empty if `empty` says so.
    pub fn commit(self, _binding: Binding<I>, _ttl: Ttl, _empty: bool) -> Handle<I> {
        todo!()
    }

    /// The store has refused, and nothing is changed.
    pub fn unchanged(self) {
        todo!()
    }
}
