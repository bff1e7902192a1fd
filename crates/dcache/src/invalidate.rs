//! Forgetting what the store may have changed by itself.

use std::sync::Arc;

use crate::Handle;
use crate::entry::{self, LIVE, MOUNT};
use crate::inner::{Inner, Trash};
use crate::mem::NodePtr;
use crate::node::Node;
use crate::section::Slot;

/// So many entries in one hold of the locks.
const BATCH: usize = 256;

impl<I: Send + Sync + 'static> Inner<I> {
    pub(crate) fn invalidate(self: &Arc<Self>, directory: &Handle<I>, name: &[u8]) {
        let Ok(slot) = Slot::new(self, directory, name) else { return };
        let mut trash = Trash::new();
        self.section(&[&slot], &[], None, |guard, locks| {
            // What a change is about to say of the name is not to be believed.
            let changing = &mut locks.get(slot.dir.raw()).1.changing;
            changing.iter_mut().filter(|c| c.hash == slot.hash && c.name == slot.name).for_each(|c| c.forgotten = true);
            self.forget(guard, locks, &[&slot], &mut trash);
        });
        self.dispose(trash);
    }

    /// Forgets the names in one directory; the directories that they led to are handed to `below`. What is mounted stays.
    fn forget_names(&self, node: &Node<I>, mut below: impl FnMut(NodePtr<I>)) {
        let Some(dir) = node.dir() else { return };
        // From the end, so that what takes a place that became free was seen already.
        let mut at = usize::MAX;
        loop {
            let mut trash = Trash::new();
            {
                let _passages = self.rename.lock();
                let mut names = dir.lock();
                dir.doubt();
                names.changing.iter_mut().for_each(|c| c.forgotten = true);
                at = at.min(names.list.len());
                while at > 0 && trash.len() < BATCH {
                    at -= 1;
                    let e = names.list[at].retain();
                    let state = e.state.load(manyway_sync::atomic::Ordering::Acquire);
                    if let Some(node) = e.node().filter(|n| entry::kind(state) == LIVE && n.dir().is_some()) {
                        below(node.retain());
                    }
                    if state & MOUNT == 0 {
                        self.take_out(dir, &mut names, e.borrow(), &mut trash);
                    }
                    self.release_entry(e);
                }
            }
            self.dispose(trash);
            if at == 0 {
                return;
            }
        }
    }

    pub(crate) fn invalidate_subtree(&self, top: &Node<I>) {
        self.forget_trees(false);
        self.forget_below(top);
    }

    /// Forgets all that is below a directory, as far as directories have their names in the cache.
    pub(crate) fn forget_below(&self, top: &Node<I>) {
        let mut stack = vec![top.retain()];
        while let Some(node) = stack.pop() {
            self.forget_names(&node, |below| stack.push(below));
            self.release_node(node);
        }
        self.settle();
    }

    pub(crate) fn invalidate_all(&self) {
        // First, so that what is begun from now on is not taken for what was before. Directories that have nothing in the table are complete no more.
        self.forget_trees(true);
        // Not by the lists of children from the root: what handles alone lead to is reached too.
        for i in 0..self.table.len() {
            let mut parents = Vec::new();
            let guard = self.reclaim.enter();
            self.table.each(&guard, i, |e| parents.push(e.parent().retain()));
            drop(guard);
            for parent in parents {
                self.forget_names(&parent, |below| self.release_node(below));
                self.release_node(parent);
            }
        }
        self.settle();
    }

    /// Forgets the names in one directory.
    pub(crate) fn forget_in(&self, node: &Node<I>) {
        self.forget_names(node, |below| self.release_node(below));
        self.settle();
    }
}
