//! What a name is said to lead to.

use crate::Handle;

/// What a node is, as far as names go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Has names below it.
    Directory,
    /// A symbolic link: a walk goes on with its target.
    Link,
    /// Anything else.
    File,
}

/// What a name leads to, as the store has said: a new node, or one that the cache has already.
pub struct Binding<I: Send + Sync + 'static>(pub(crate) To<I>);

pub(crate) enum To<I: Send + Sync + 'static> {
    New { kind: Kind, inode: I, id: Option<u64>, target: Option<Box<[u8]>> },
    Node(Handle<I>),
}

impl<I: Send + Sync + 'static> Binding<I> {
    /// A node that is met for the first time.
    pub fn new(kind: Kind, inode: I) -> Self {
        Binding(To::New { kind, inode, id: None, target: None })
    }

    /// One more name of a node (hard link), or the node under another name.
    pub fn node(node: &Handle<I>) -> Self {
        Binding(To::Node(node.clone()))
    }

    /// The store's own number of the inode. If the cache has a node with this number, the name leads to that one and the new inode is
    /// dropped: so that two names of a file are one node, and a directory that is found somewhere else has moved. To be given where an
    /// inode can be met twice: directories, and files of several links; it costs about 100 bytes more. No effect on [`Binding::node`].
    pub fn id(mut self, number: u64) -> Self {
        if let To::New { id, .. } = &mut self.0 {
            *id = Some(number);
        }
        self
    }

    /// A symbolic link's target, if it is known already. If not, the first walk through it gets
    /// [`Outcome::Target`](crate::Outcome::Target).
    pub fn target(mut self, bytes: impl Into<Box<[u8]>>) -> Self {
        if let To::New { target, .. } = &mut self.0 {
            *target = Some(bytes.into());
        }
        self
    }
}
