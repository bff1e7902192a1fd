//! Sets: the id table, cells, queues, holders, keys.

use std::collections::BTreeMap;
use std::mem::offset_of;

use manyway_sem::abi::{IPC_NOWAIT, SEMVMX, SemBuf};
use manyway_sem::id::{INDEX_BITS, IdEntry};
use manyway_sem::word;
use manyway_shm::layout::*;

use super::slots::{Node, Sleepers};
use super::{Seen, SetAt, SetMeaning};

const HEAD: u64 = size_of::<SetHead>() as u64;
const CELL: u64 = size_of::<Cell>() as u64;

/// A queue's place in a set: the numbers that `linked` has.
const ZERO: u32 = 1;
const ALTER: u32 = 2;
const SET_ALTER: u32 = 3;
const SET_CONST: u32 = 4;

impl Seen<'_> {
    pub(super) fn look_at_sets(&mut self) {
        let a = self.arena;
        let header = |field: usize| a.u32(field as u64);
        self.same("the registry's lock", a.u64(offset_of!(Header, registry) as u64), 0);
        // Nobody who died in good order is taken for a broken writer.
        self.same("the count of damages noted", header(offset_of!(Header, damages)), 0);
        let (mut sets, mut sems) = (0, 0);
        for index in 0..header(offset_of!(Header, ids_ready)).min(MAX_SETS) {
            let e = IdEntry(a.u64(IDS_AT + u64::from(index) * 8));
            if e.0 == 0 {
                continue;
            }
            let field = |offset: usize| a.u32(e.at() + offset as u64);
            let nsems = field(offset_of!(SetHead, nsems));
            let id = (e.seq() << INDEX_BITS | index) as i32;
            self.same(&format!("set {id}'s tag"), field(offset_of!(SetHead, tag)), e.tag());
            self.same(&format!("set {id}'s index"), field(offset_of!(SetHead, index)), index);
            self.same(&format!("set {id}'s sequence number"), field(offset_of!(SetHead, seq)), e.seq());
            self.same(&format!("set {id}'s lock"), a.u64(e.at() + offset_of!(SetHead, lock) as u64), word::tag_bits(e.tag()));
            self.expect((1..=MAX_MSL).contains(&nsems), || format!("set {id} has {nsems} semaphores"));
            if !(1..=MAX_MSL).contains(&nsems) {
                continue;
            }
            self.uses(e.at(), HEAD + u64::from(nsems) * CELL);
            self.sets.insert(index, SetAt { at: e.at(), tag: e.tag(), nsems, id });
            sets += 1;
            sems += nsems;
        }
        self.same("the number of sets", header(offset_of!(Header, sets)), sets);
        self.same("the number of semaphores", header(offset_of!(Header, sems)), sems);
    }

    pub(super) fn look_at_cells(&mut self, sleepers: &Sleepers) -> BTreeMap<i32, SetMeaning> {
        let sets: Vec<(u32, SetAt)> = self.sets.iter().map(|(i, s)| (*i, *s)).collect();
        let mut homeless = sleepers.asleep.clone();
        let mut meaning = BTreeMap::new();
        for (index, set) in sets {
            let here: Vec<Node> = sleepers.asleep.iter().filter(|n| n.set == (set.at, set.tag)).cloned().collect();
            homeless.retain(|n| n.set != (set.at, set.tag));
            meaning.insert(set.id, self.look_at_set(index, set, here));
        }
        for n in homeless {
            self.expect(false, || format!("thread slot {} sleeps on a set that is not there, at {:#x}", n.slot, n.set.0));
        }
        meaning
    }

    fn look_at_set(&mut self, index: u32, set: SetAt, mut here: Vec<Node>) -> SetMeaning {
        let a = self.arena;
        here.sort_by_key(|n| (n.ticket, n.slot));
        let cell_at = |num: u32| set.at + HEAD + u64::from(num) * CELL;
        let values: Vec<u16> = (0..set.nsems).map(|num| word::value(a.u64(cell_at(num))) as u16).collect();
        for n in &here {
            let inside = n.ops.iter().all(|o| u32::from(o.num) < set.nsems) && !n.ops.is_empty();
            self.expect(inside, || format!("thread slot {} sleeps with operations that its set has not: {:?}", n.slot, n.ops));
            if !inside {
                return SetMeaning { key: 0, access: (0, 0, 0), values, adjustments: Vec::new(), sleepers: Vec::new() };
            }
        }
        let complex = here.iter().filter(|n| n.ops.len() > 1);
        let mut named: BTreeMap<u32, u32> = BTreeMap::new();
        for n in complex.clone() {
            let mut nums: Vec<u32> = n.ops.iter().map(|o| u32::from(o.num)).collect();
            nums.sort_unstable();
            nums.dedup();
            nums.into_iter().for_each(|num| *named.entry(num).or_default() += 1);
        }
        self.same(
            &format!("set {}'s count of complex sleepers", set.id),
            a.u32(set.at + offset_of!(SetHead, complex) as u64),
            complex.count() as u32,
        );
        let adjustments = self.adjustments(index, set);
        let mut holders: BTreeMap<u16, u64> = BTreeMap::new();
        for &(proc, num, adj) in &adjustments {
            let h = holders.entry(num).or_default();
            *h = word::holders::changed(*h, proc, 0, adj.into());
        }
        // Which queue each sleeper belongs in.
        let mut queues: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        for n in &here {
            let num = u32::from(n.ops[0].num);
            let alters = n.ops.iter().any(|o| o.op != 0);
            let which = match (n.ops.len() == 1, alters) {
                (true, false) => (ZERO, num),
                (true, true) if named.contains_key(&num) => (SET_ALTER, 0),
                (true, true) => (ALTER, num),
                (false, true) => (SET_ALTER, 0),
                (false, false) => (SET_CONST, 0),
            };
            self.same(&format!("thread slot {}'s queue", n.slot), n.linked, which.0);
            queues.entry(which).or_default().push(n.slot);
        }
        let mut take = |which, num| queues.remove(&(which, num)).unwrap_or_default();
        for num in 0..set.nsems {
            let (zero, alter) = (take(ZERO, num), take(ALTER, num));
            let waiters = !(zero.is_empty() && alter.is_empty());
            let at = cell_at(num);
            self.look_at_queue(&format!("set {} semaphore {num}, zero", set.id), at + offset_of!(Cell, zero) as u64, &zero);
            self.look_at_queue(&format!("set {} semaphore {num}, alter", set.id), at + offset_of!(Cell, alter) as u64, &alter);
            let is_named = named.get(&num).copied().unwrap_or(0);
            self.look_at_word(set, num, a.u64(at), waiters, is_named > 0);
            let name = || format!("set {} semaphore {num}", set.id);
            let (ncomplex, held) = (a.u32(at + offset_of!(Cell, ncomplex) as u64), a.u64(at + offset_of!(Cell, holders) as u64));
            if ncomplex != is_named {
                self.same(&format!("{}'s count of complex sleepers", name()), ncomplex, is_named);
            }
            let should = holders.get(&(num as u16)).copied().unwrap_or(0);
            if held != should {
                self.same(&format!("{}'s holders", name()), held, should);
            }
        }
        self.look_at_queue(&format!("set {}, alter", set.id), set.at + offset_of!(SetHead, alter) as u64, &take(SET_ALTER, 0));
        self.look_at_queue(&format!("set {}, const", set.id), set.at + offset_of!(SetHead, consts) as u64, &take(SET_CONST, 0));
        // In a barging namespace a sleeper that could proceed has been nudged, and tries for itself.
        let strict = a.u32(offset_of!(Header, fairness) as u64) == 0;
        for n in here.iter().filter(|_| strict) {
            let can = proceeds(&values, |num| self.adjustment(index, n.proc, num), &n.ops);
            self.expect(!can, || format!("thread slot {} sleeps in set {} and could proceed: {:?} with {values:?}", n.slot, set.id, n.ops));
        }
        let field = |offset: usize| a.u32(set.at + offset as u64);
        SetMeaning {
            key: field(offset_of!(SetHead, key)) as i32,
            access: (field(offset_of!(SetHead, mode)), field(offset_of!(SetHead, uid)), field(offset_of!(SetHead, gid))),
            values,
            adjustments,
            sleepers: here.iter().map(|n| n.slot).collect(),
        }
    }

    fn look_at_word(&mut self, set: SetAt, num: u32, w: u64, waiters: bool, complex: bool) {
        let flag = |f| w & f != 0;
        let right = !flag(word::LOCKED)
            && !flag(word::REMOVED)
            && w & 1 << 19 == 0
            && word::tag(w) == set.tag
            && flag(word::COMPLEX) == complex
            // While the set lock owns a cell, its flag for simple sleepers says nothing.
            && (complex || flag(word::WAITERS) == waiters);
        self.expect(right, || {
            let flags = [(word::LOCKED, "LOCKED"), (word::WAITERS, "WAITERS"), (word::COMPLEX, "COMPLEX"), (word::REMOVED, "REMOVED")];
            let names: Vec<&str> = flags.into_iter().filter(|(f, _)| flag(*f)).map(|(_, n)| n).collect();
            format!(
                "set {} semaphore {num}'s word {w:#x} has {names:?} and tag or owner {}; simple sleepers: {waiters}, complex ones: {complex}, tag {}",
                set.id,
                word::tag(w),
                set.tag
            )
        });
    }

    /// A queue holds these thread slots, in this order, linked both ways.
    fn look_at_queue(&mut self, name: &str, at: u64, expected: &[u32]) {
        let a = self.arena;
        let (head, tail) = (a.u32(at), a.u32(at + 4));
        if expected.is_empty() && head == 0 && tail == 0 {
            return;
        }
        let mut found = Vec::new();
        let (mut next, mut last) = (head, 0);
        while let Some(slot) = next.checked_sub(1) {
            found.push(slot);
            let Some(ctl) = self.ctl(slot).filter(|_| found.len() <= MAX_SLOTS as usize) else { break };
            let prev = a.u32(ctl + offset_of!(ThreadCtl, prev) as u64);
            self.same(&format!("{name}: what comes before thread slot {slot}"), prev, last);
            last = next;
            next = a.u32(ctl + offset_of!(ThreadCtl, next) as u64);
        }
        self.same(&format!("{name}: the queue"), found.as_slice(), expected);
        self.same(&format!("{name}: its end"), tail, last);
    }

    fn adjustment(&self, index: u32, proc: u32, num: u16) -> i16 {
        self.records.get(&(index, proc)).map_or(0, |at| self.arena.u16(at + u64::from(num) * 2) as i16)
    }

    /// The adjustments of a set that are not 0.
    fn adjustments(&self, index: u32, set: SetAt) -> Vec<(u32, u16, i16)> {
        let mut all = Vec::new();
        for (&(_, proc), &at) in self.records.range((index, 0)..(index + 1, 0)) {
            for num in 0..set.nsems as u16 {
                let adj = self.arena.u16(at + u64::from(num) * 2) as i16;
                if adj != 0 {
                    all.push((proc, num, adj));
                }
            }
        }
        all
    }

    /// Every set with a key is in one chain, once, and the chains have nothing else.
    pub(super) fn look_at_keys(&mut self) {
        let a = self.arena;
        let mut chained: BTreeMap<u32, u32> = BTreeMap::new();
        for bucket in 0..KEY_BUCKETS as u64 {
            let mut next = u32::from(a.u16(KEY_HASH_AT + bucket * 2));
            while let Some(index) = next.checked_sub(1) {
                let times = chained.entry(index).or_default();
                *times += 1;
                let Some(set) = self.sets.get(&index).filter(|_| *times == 1) else { break };
                next = a.u32(set.at + offset_of!(SetHead, next_key) as u64);
            }
        }
        let keyed = |s: &SetAt| a.u32(s.at + offset_of!(SetHead, key) as u64) != 0;
        let should: BTreeMap<u32, u32> = self.sets.iter().filter(|(_, s)| keyed(s)).map(|(i, _)| (*i, 1)).collect();
        self.same("the key hash (index, how often)", chained, should);
    }
}

/// True when all operations of a call can be carried out, in order.
fn proceeds(values: &[u16], adjustment: impl Fn(u16) -> i16, ops: &[SemBuf]) -> bool {
    const SEM_UNDO: i16 = 0x1000;
    let mut running: BTreeMap<u16, (i32, i32)> = BTreeMap::new();
    ops.iter().all(|o| {
        let (value, adj) = running.entry(o.num).or_insert_with(|| (values[o.num as usize].into(), adjustment(o.num).into()));
        let blocked = if o.op == 0 { *value != 0 } else { *value + i32::from(o.op) < 0 };
        *value += i32::from(o.op);
        if o.flg & SEM_UNDO != 0 {
            *adj -= i32::from(o.op);
        }
        debug_assert!(o.flg as i32 & IPC_NOWAIT == 0 || !blocked, "who does not wait does not sleep");
        !blocked && *value <= SEMVMX && i16::try_from(*adj).is_ok()
    })
}
