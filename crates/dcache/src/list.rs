//! Directories whose listing is known to be complete.

use crate::*;

/// A listing of a directory that the store is asked for. When all names were put and nothing came between, the directory is *complete*: names that the
/// cache does not have there are absent, without asking.
#[must_use]
pub struct Listing<I: Send + Sync + 'static>(std::marker::PhantomData<I>);

impl<I: Send + Sync + 'static> Listing<I> {
    /// The directory.
    pub fn directory(&self) -> &Handle<I> {
        todo!()
    }

    /// A name that the store has listed. False: it was not kept (a change of the name is under way, no room), and the directory will
    /// not be complete.
    pub fn put(&mut self, _name: &[u8], _binding: Binding<I>, _ttl: Ttl) -> bool {
        todo!()
    }

    /// The store has listed everything. True: the directory is complete, for `ttl`. A listing that ends otherwise (dropped, part of the names) leaves the
    /// names it has put and sets nothing.
    pub fn complete(self, _ttl: Ttl) -> bool {
        todo!()
    }
}
