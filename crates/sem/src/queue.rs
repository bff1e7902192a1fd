//! The queues of sleepers: links between nodes. They are caches: the truth is the nodes' states and tickets, from which
//! [`Engine::rebuild`] makes them anew after a death.

use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU32, Ordering::*};

use crate::abi::SemBuf;
use crate::engine::{Damage, Engine};
use crate::links::{self, Links};
use crate::node;
use crate::set::SetRef;
use crate::word;

/// Which queue a node is linked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Where {
    /// None.
    Nowhere = 0,
    /// A cell's zero queue.
    Zero,
    /// A cell's alter queue.
    Alter,
    /// The set's alter queue.
    SetAlter,
    /// The set's const queue.
    SetConst,
}

impl Where {
    fn parse(w: u32) -> Where {
        [Where::Nowhere, Where::Zero, Where::Alter, Where::SetAlter, Where::SetConst].get(w as usize).copied().unwrap_or(Where::Nowhere)
    }
}

/// A sembuf as one word of the segment.
pub(crate) fn pack(op: SemBuf) -> u64 {
    op.num as u64 | (op.op as u16 as u64) << 16 | (op.flg as u16 as u64) << 32
}
/// And back.
pub(crate) fn unpack(w: u64) -> SemBuf {
    SemBuf { num: w as u16, op: (w >> 16) as u16 as i16, flg: (w >> 32) as u16 as i16 }
}

impl Engine {
    /// The operations of a sleeping node: one in the node, several in the slot's first page.
    pub(crate) fn node_op(&self, slot: u32, ctl: &ThreadCtl, i: u32) -> Option<SemBuf> {
        let nops = ctl.nops.load(Relaxed);
        if i >= nops {
            return None;
        }
        if nops == 1 {
            return Some(unpack(ctl.op.load(Relaxed)));
        }
        let w: &manyway_sync::atomic::AtomicU64 = self.arena.at(self.thread_at(slot)? + i as u64 * 8)?;
        (i < MAX_OPM).then(|| unpack(w.load(Relaxed)))
    }
    /// All of them.
    pub(crate) fn node_ops<'a>(&'a self, slot: u32, ctl: &'a ThreadCtl) -> impl Iterator<Item = SemBuf> + Clone + 'a {
        (0..MAX_OPM).map_while(move |i| self.node_op(slot, ctl, i))
    }

    pub(crate) fn queue<'a>(&self, set: &SetRef<'a>, num: u16, which: Where) -> Option<&'a Queue> {
        match which {
            Where::Nowhere => None,
            Where::Zero => set.cell(num as u32).map(|c| &c.zero),
            Where::Alter => set.cell(num as u32).map(|c| &c.alter),
            Where::SetAlter => Some(&set.head.alter),
            Where::SetConst => Some(&set.head.consts),
        }
    }

    /// The slots of a queue in order. The next link is read before the item is handed out, so that the item may be unlinked. Bounded, whatever
    /// the links say: a node that is not of this queue ends it, as does one slot more than there are, and is noted as damage, whereupon
    /// the section's end makes the queue anew ([`Engine::rebuild`]).
    pub(crate) fn walk<'a>(&'a self, set: &SetRef<'a>, num: u16, which: Where) -> impl Iterator<Item = (u32, &'a ThreadCtl)> + use<'a> {
        let set = *set;
        let mut next = self.queue(&set, num, which).map_or(0, |q| q.head.load(Relaxed));
        let mut left = self.threads_high();
        core::iter::from_fn(move || {
            let slot = next.checked_sub(1)?;
            let node = self.ctl(slot).filter(|ctl| left > 0 && self.is_of(&set, num, which, ctl));
            let Some(ctl) = node else {
                self.damaged(Damage::Queue, set.index);
                next = 0;
                return None;
            };
            left -= 1;
            next = ctl.next.load(Relaxed);
            Some((slot, ctl))
        })
    }

    /// True when a node says of itself that it is linked in this queue.
    pub(crate) fn is_of(&self, set: &SetRef<'_>, num: u16, which: Where, ctl: &ThreadCtl) -> bool {
        ctl.linked.load(Relaxed) == which as u32
            && ctl.set.load(Relaxed) == set.page()
            && ctl.set_tag.load(Relaxed) == set.tag
            && (matches!(which, Where::SetAlter | Where::SetConst) || unpack(ctl.op.load(Relaxed)).num == num)
    }

    /// True when a node's neighbours, or the ends of its queue, point back at it. Certain under the lock that owns the queue only.
    pub(crate) fn is_linked(&self, set: &SetRef<'_>, slot: u32, ctl: &ThreadCtl) -> bool {
        let which = Where::parse(ctl.linked.load(Relaxed));
        let Some(q) = self.queue(set, unpack(ctl.op.load(Relaxed)).num, which) else { return false };
        let of = |neighbour: u32, end: &AtomicU32, link: fn(&ThreadCtl) -> &AtomicU32| match neighbour {
            0 => end.load(Relaxed) == slot + 1,
            n => self.ctl(n - 1).is_some_and(|c| link(c).load(Relaxed) == slot + 1),
        };
        of(ctl.prev.load(Relaxed), &q.head, |c| &c.next) && of(ctl.next.load(Relaxed), &q.tail, |c| &c.prev)
    }

    /// The ticket for who arrives now: the time, made later than the last one's in each queue it could meet.
    pub(crate) fn ticket_after(&self, queues: &[&Queue], now: u64) -> u64 {
        queues.iter().fold(now, |t, q| {
            let tail = q.tail.load(Relaxed);
            match tail.checked_sub(1).and_then(|s| self.ctl(s)) {
                // A time far ahead is no ticket but damage.
                Some(ctl) => t.max(ctl.ticket.load(Relaxed).saturating_add(1).min(now + 1_000_000_000)),
                None => t,
            }
        })
    }

    /// Puts a node at the head of a queue that has no order yet: [`Engine::put_in_order`] follows.
    fn push(&self, set: &SetRef<'_>, num: u16, which: Where, slot: u32, ctl: &ThreadCtl) {
        let Some(q) = self.queue(set, num, which) else { return };
        ctl.linked.store(which as u32, Relaxed);
        ctl.next.store(q.head.load(Relaxed), Relaxed);
        q.head.store(slot + 1, Relaxed);
    }

    /// Makes a queue of what was pushed: by ticket, and linked both ways.
    fn put_in_order(&self, q: &Queue) {
        let most = self.threads_high();
        let mut next = links::sort(&ByTicket(self), q.head.load(Relaxed), most);
        let mut last = 0;
        q.head.store(next, Relaxed);
        for _ in 0..most {
            let Some(ctl) = next.checked_sub(1).and_then(|s| self.ctl(s)) else { break };
            ctl.prev.store(last, Relaxed);
            last = next;
            next = ctl.next.load(Relaxed);
        }
        q.tail.store(last, Relaxed);
    }

    /// Links a node at the place of its ticket, looking from the end.
    pub(crate) fn link(&self, set: &SetRef<'_>, num: u16, which: Where, slot: u32, ctl: &ThreadCtl) {
        let Some(q) = self.queue(set, num, which) else { return };
        let ticket = ctl.ticket.load(Relaxed);
        let mut before = q.tail.load(Relaxed);
        let mut after = 0;
        let mut left = self.threads_high();
        while let Some(last) = before.checked_sub(1) {
            let node = self.ctl(last).filter(|c| left > 0 && self.is_of(set, num, which, c));
            let Some(c) = node else {
                // The section's end makes the queue anew.
                self.damaged(Damage::Queue, set.index);
                before = 0;
                break;
            };
            if c.ticket.load(Relaxed) <= ticket {
                break;
            }
            left -= 1;
            after = before;
            before = c.prev.load(Relaxed);
        }
        ctl.prev.store(before, Relaxed);
        ctl.next.store(after, Relaxed);
        ctl.linked.store(which as u32, Relaxed);
        match before.checked_sub(1).and_then(|s| self.ctl(s)) {
            Some(c) => c.next.store(slot + 1, Relaxed),
            None => q.head.store(slot + 1, Relaxed),
        }
        match after.checked_sub(1).and_then(|s| self.ctl(s)) {
            Some(c) => c.prev.store(slot + 1, Relaxed),
            None => q.tail.store(slot + 1, Relaxed),
        }
    }

    /// Takes a node out of the queue it is linked in, and its call out of the counts of the cells that it names.
    pub(crate) fn unlink(&self, set: &SetRef<'_>, slot: u32, ctl: &ThreadCtl) {
        let which = Where::parse(ctl.linked.load(Relaxed));
        if let Some(q) = self.queue(set, unpack(ctl.op.load(Relaxed)).num, which) {
            if self.is_linked(set, slot, ctl) {
                let (prev, next) = (ctl.prev.load(Relaxed), ctl.next.load(Relaxed));
                match prev.checked_sub(1).and_then(|s| self.ctl(s)) {
                    Some(c) => c.next.store(next, Relaxed),
                    None => q.head.store(next, Relaxed),
                }
                match next.checked_sub(1).and_then(|s| self.ctl(s)) {
                    Some(c) => c.prev.store(prev, Relaxed),
                    None => q.tail.store(prev, Relaxed),
                }
            } else {
                self.damaged(Damage::Queue, set.index);
            }
            if ctl.nops.load(Relaxed) > 1 {
                self.count_complex(set, slot, ctl, false);
            }
        }
        ctl.linked.store(Where::Nowhere as u32, Relaxed);
    }

    /// Counts a complex sleeper in, or out of, its set and the cells that it names.
    pub(crate) fn count_complex(&self, set: &SetRef<'_>, slot: u32, ctl: &ThreadCtl, add: bool) {
        let step = |n: &manyway_sync::atomic::AtomicU32| {
            let v = n.load(Relaxed);
            n.store(if add { v.saturating_add(1) } else { v.saturating_sub(1) }, Relaxed);
        };
        step(&set.head.complex);
        for (i, op) in self.node_ops(slot, ctl).enumerate() {
            // Once a cell, however often the call names it.
            if self.node_ops(slot, ctl).take(i).all(|o| o.num != op.num)
                && let Some(cell) = set.cell(op.num as u32)
            {
                step(&cell.ncomplex);
            }
        }
    }

    /// Makes a cell COMPLEX: its simple altering sleepers join the set's queue, in order of arrival. The cell is LOCKED by the caller, who
    /// also holds the set lock.
    pub(crate) fn promote(&self, set: &SetRef<'_>, num: u16, cell: &Cell) {
        let w = cell.word.load(Relaxed);
        cell.word.store(word::flag(w, word::COMPLEX, true), Relaxed);
        for (slot, ctl) in self.walk(set, num, Where::Alter) {
            self.link(set, num, Where::SetAlter, slot, ctl);
        }
        cell.alter.head.store(0, Relaxed);
        cell.alter.tail.store(0, Relaxed);
    }

    /// The reverse, for a COMPLEX cell that no complex sleeper names any more; one store of the word at the end gives it back. The
    /// caller holds the set lock.
    pub(crate) fn demote(&self, set: &SetRef<'_>, num: u16, cell: &Cell) {
        for (slot, ctl) in self.walk(set, num, Where::SetAlter) {
            if ctl.nops.load(Relaxed) == 1 && unpack(ctl.op.load(Relaxed)).num == num {
                self.unlink(set, slot, ctl);
                self.link(set, num, Where::Alter, slot, ctl);
            }
        }
        let waiters = cell.zero.head.load(Relaxed) != 0 || cell.alter.head.load(Relaxed) != 0;
        let w = word::flag(cell.word.load(Relaxed), word::WAITERS, waiters);
        cell.word.store(word::flag(w, word::COMPLEX, false), Release);
    }

    /// Makes the queues of a dead owner's section anew: of one cell, or (`only` None) of the set and all cells that the owner's
    /// section owns (COMPLEX, or LOCKED by it). Sleepers that are gone themselves are left out.
    pub(crate) fn rebuild(&self, owner: u32, set: &SetRef<'_>, only: Option<u16>) {
        let owns = |cell: &Cell| {
            let w = cell.word.load(Relaxed);
            w & word::COMPLEX != 0 || word::is_locked_by(w, owner)
        };
        let clear = |q: &Queue| {
            q.head.store(0, Relaxed);
            q.tail.store(0, Relaxed);
        };
        for (num, cell) in set.cells() {
            if only.is_none_or(|n| n == num) && owns(cell) {
                clear(&cell.zero);
                clear(&cell.alter);
                if only.is_none() {
                    cell.ncomplex.store(0, Relaxed);
                }
            }
        }
        if only.is_none() {
            clear(&set.head.alter);
            clear(&set.head.consts);
            set.head.complex.store(0, Relaxed);
        }
        // In order of slots, which is no order of tickets: sorted afterwards, so that thousands of sleepers take no time in their square.
        for slot in 0..self.threads_high() {
            let Some(ctl) = self.ctl(slot) else { continue };
            let Some((call, _)) = self.asleep_here(set, ctl) else {
                self.forget_link(set, ctl, |num| only.is_none_or(|n| n == num) && set.cell(num as u32).is_some_and(owns), only.is_none());
                continue;
            };
            let op = unpack(call.op);
            let simple = call.nops == 1;
            if simple {
                let Some(cell) = set.cell(op.num as u32) else { continue };
                if only.is_some_and(|n| n != op.num) || !owns(cell) {
                    continue;
                }
            } else if only.is_some() {
                continue;
            }
            ctl.linked.store(Where::Nowhere as u32, Relaxed);
            if self.context_gone(slot) {
                continue;
            }
            let which = self.queue_for(set, slot, ctl);
            self.push(set, op.num, which, slot, ctl);
            if !simple {
                self.count_complex(set, slot, ctl, true);
            }
        }
        for (num, cell) in set.cells() {
            if only.is_none_or(|n| n == num) && owns(cell) {
                self.put_in_order(&cell.zero);
                self.put_in_order(&cell.alter);
            }
        }
        if only.is_none() {
            self.put_in_order(&set.head.alter);
            self.put_in_order(&set.head.consts);
        }
    }

    /// A node that does not sleep any more is in none of the queues that are made anew; its thread finds it unlinked.
    fn forget_link(&self, set: &SetRef<'_>, ctl: &ThreadCtl, cell: impl Fn(u16) -> bool, whole: bool) {
        let which = Where::parse(ctl.linked.load(Relaxed));
        if which != Where::Nowhere && (ctl.set.load(Relaxed), ctl.set_tag.load(Relaxed)) == (set.page(), set.tag) {
            let here = match which {
                Where::SetAlter | Where::SetConst => whole,
                _ => cell(unpack(ctl.op.load(Relaxed)).num),
            };
            if here {
                ctl.linked.store(Where::Nowhere as u32, Relaxed);
            }
        }
    }

    /// The call and the sequence number of a node that sleeps on this set.
    pub(crate) fn asleep_here(&self, set: &SetRef<'_>, ctl: &ThreadCtl) -> Option<(node::Call, u32)> {
        node::read(ctl).filter(|(call, _)| call.set == (set.page(), set.tag))
    }

    /// Where a sleeper belongs.
    pub(crate) fn queue_for(&self, set: &SetRef<'_>, slot: u32, ctl: &ThreadCtl) -> Where {
        let alters = self.node_ops(slot, ctl).any(|o| o.op != 0);
        let op = unpack(ctl.op.load(Relaxed));
        match (ctl.nops.load(Relaxed) == 1, alters) {
            (true, false) => Where::Zero,
            (true, true) => match set.cell(op.num as u32) {
                Some(c) if c.word.load(Relaxed) & word::COMPLEX != 0 => Where::SetAlter,
                _ => Where::Alter,
            },
            (false, false) => Where::SetConst,
            (false, true) => Where::SetAlter,
        }
    }
}

/// Sleepers by their tickets; a node is its slot + 1.
struct ByTicket<'e>(&'e Engine);

impl ByTicket<'_> {
    fn ticket(&self, node: u32) -> u64 {
        node.checked_sub(1).and_then(|s| self.0.ctl(s)).map_or(u64::MAX, |c| c.ticket.load(Relaxed))
    }
}

impl Links for ByTicket<'_> {
    fn next(&self, node: u32) -> u32 {
        node.checked_sub(1).and_then(|s| self.0.ctl(s)).map_or(0, |c| c.next.load(Relaxed))
    }
    fn set_next(&self, node: u32, next: u32) {
        if let Some(c) = node.checked_sub(1).and_then(|s| self.0.ctl(s)) {
            c.next.store(next, Relaxed);
        }
    }
    fn in_order(&self, a: u32, b: u32) -> bool {
        self.ticket(a) <= self.ticket(b)
    }
}
