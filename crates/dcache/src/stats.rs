//! Counts.

/// Counts of a cache. Those of the moment are taken one after the other. A hot walk counts nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Entries in memory, those of tickets and retired ones included: never more than the bound.
    pub entries: usize,
    /// Bytes of entries, nodes and lists, retired ones included: never more than the bound.
    pub bytes: usize,
    /// Entries that are out of the table and not freed yet.
    pub retired: usize,
    /// Entries of names that do not exist.
    pub negatives: usize,
    /// Nodes in memory.
    pub nodes: usize,
    /// Pinned nodes.
    pub pinned: usize,
    /// Tickets handed out for names that were not known.
    pub misses: u64,
    /// Tickets handed out for names whose time was over.
    pub stale: u64,
    /// Waits for somebody else's ticket or change.
    pub waits: u64,
    /// Answers that were not kept because a change or an invalidation overtook them.
    pub overtaken: u64,
    /// Answers that were not kept for want of room.
    pub refused: u64,
    /// Entries evicted.
    pub evicted: u64,
    /// Walks that were done again because something changed under them.
    pub restarts: u64,
    /// Walks that had to take the rename lock.
    pub locked_walks: u64,
    /// Changes committed.
    pub changes: u64,
}
