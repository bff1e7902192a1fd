//! Sorting a list of links in place: for queues that are made anew, where nothing can be allocated.

/// The lists of a merge: the one at place i has 2^i nodes, or none.
const PLACES: usize = 20;

/// A list's nodes, from outside: each is named by a number that is not 0, and 0 ends the list.
pub(crate) trait Links {
    /// The node behind `node`; 0 when there is none.
    fn next(&self, node: u32) -> u32;
    /// Puts `next` behind `node`.
    fn set_next(&self, node: u32, next: u32);
    /// True when `a` must not come behind `b`.
    fn in_order(&self, a: u32, b: u32) -> bool;
}

/// Sorts the list that begins with `first`, which has at most `most` nodes; returns its new first node. n log n comparisons. Whatever the
/// links say and however they change meanwhile, it ends; but out of a ring may come a ring, so that walks have bounds of their own.
pub(crate) fn sort(list: &impl Links, first: u32, most: u32) -> u32 {
    let mut sorted = [0; PLACES];
    let mut next = first;
    for _ in 0..most {
        if next == 0 {
            break;
        }
        let mut run = next;
        next = list.next(run);
        list.set_next(run, 0);
        // As in adding one to a binary number.
        for place in &mut sorted {
            match core::mem::take(place) {
                0 => {
                    *place = run;
                    run = 0;
                    break;
                }
                earlier => run = merge(list, earlier, run, most),
            }
        }
        if run != 0 {
            // More than fit: `most` is less, so the links lied.
            sorted[PLACES - 1] = run;
        }
    }
    sorted.into_iter().fold(0, |later, earlier| merge(list, earlier, later, most))
}

/// Two sorted lists as one. Of nodes that are in order either way, those of `a` come first.
fn merge(list: &impl Links, mut a: u32, mut b: u32, most: u32) -> u32 {
    if a == 0 || b == 0 {
        return a | b;
    }
    let (mut first, mut last) = (0, 0);
    for _ in 0..most {
        let from = if list.in_order(a, b) { &mut a } else { &mut b };
        let node = *from;
        *from = list.next(node);
        match last {
            0 => first = node,
            last => list.set_next(last, node),
        }
        last = node;
        if a == 0 || b == 0 {
            list.set_next(last, a | b);
            return first;
        }
    }
    list.set_next(last, 0);
    first
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};

    use super::*;

    /// Node i has key `keys[i - 1]`.
    struct List {
        keys: Vec<u64>,
        next: RefCell<Vec<u32>>,
        looks: Cell<u64>,
    }

    impl List {
        fn new(keys: Vec<u64>) -> List {
            let n = keys.len() as u32;
            List { next: RefCell::new((1..=n).map(|i| (i + 1) % (n + 1)).collect()), keys, looks: Cell::new(0) }
        }
        fn keys_from(&self, mut node: u32) -> Vec<u64> {
            let mut keys = Vec::new();
            while node != 0 {
                keys.push(self.keys[node as usize - 1]);
                node = self.next(node);
            }
            keys
        }
    }

    impl Links for List {
        fn next(&self, node: u32) -> u32 {
            self.next.borrow()[node as usize - 1]
        }
        fn set_next(&self, node: u32, next: u32) {
            self.next.borrow_mut()[node as usize - 1] = next;
        }
        fn in_order(&self, a: u32, b: u32) -> bool {
            self.looks.set(self.looks.get() + 1);
            self.keys[a as usize - 1] <= self.keys[b as usize - 1]
        }
    }

    #[test]
    fn sorts_in_n_log_n_looks() {
        const N: u64 = 60_000;
        let shuffled = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        for key in [|i| i, |i| N - i, |_| 7, shuffled] {
            let keys: Vec<u64> = (0..N).map(key).collect();
            let list = List::new(keys.clone());
            let first = sort(&list, 1, 65_536);
            let mut wanted = keys;
            wanted.sort_unstable();
            assert_eq!(list.keys_from(first), wanted);
            assert!(list.looks.get() <= N * 17, "{} looks at {N} nodes", list.looks.get());
        }
    }

    #[test]
    fn small_lists_and_equal_keys() {
        assert_eq!(sort(&List::new(vec![]), 0, 9), 0);
        assert_eq!(sort(&List::new(vec![3]), 1, 9), 1);
        let list = List::new(vec![2, 1, 2, 1]);
        let first = sort(&list, 1, 9);
        assert_eq!((first, list.next(2), list.next(4), list.next(1), list.next(3)), (2, 4, 1, 3, 0), "first come, first served");
    }

    #[test]
    fn links_that_lie_end() {
        for back_to in 1..=5 {
            let list = List::new(vec![5, 4, 3, 2, 1]);
            list.set_next(5, back_to);
            sort(&list, 1, 100);
            assert!(list.looks.get() <= 100 * 100, "{} looks", list.looks.get());
        }
    }
}
