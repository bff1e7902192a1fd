//! Is there an order of the calls, with none before one that had ended when it began, in which the reference answers each as it was answered?
//! Then the history is linearizable. All orders are searched; a state that was reached with the same calls done is not searched again.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// What calls are made on, as a plain value.
pub trait Spec: Clone + Eq + Hash {
    type Call: Clone + Debug;
    type Answer: Clone + Debug + PartialEq;
    /// Makes the call in this state. The answer that was seen is given for what the reference is free to choose (the number of a new inode);
    /// says whether the reference answers so.
    fn answers(&mut self, call: &Self::Call, seen: &Self::Answer) -> bool;
}

/// One call, from when to when (numbers that only grow), and its answer.
#[derive(Clone, Debug)]
pub struct Done<S: Spec> {
    pub thread: usize,
    pub began: u64,
    pub ended: u64,
    pub call: S::Call,
    pub answer: S::Answer,
}

/// The states that all calls can have led to: none when no order explains the answers.
pub fn ends<S: Spec>(start: &S, calls: &[Done<S>]) -> HashSet<S> {
    assert!(calls.len() <= 32, "too many to search");
    let mut search = Search { calls, seen: HashSet::new(), ends: HashSet::new() };
    search.go(0, start);
    search.ends
}

struct Search<'a, S: Spec> {
    calls: &'a [Done<S>],
    seen: HashSet<(u32, S)>,
    ends: HashSet<S>,
}

impl<S: Spec> Search<'_, S> {
    fn go(&mut self, done: u32, state: &S) {
        if !self.seen.insert((done, state.clone())) {
            return;
        }
        let left = || (0..self.calls.len()).filter(|i| done & 1 << i == 0);
        let Some(first_end) = left().map(|i| self.calls[i].ended).min() else {
            self.ends.insert(state.clone());
            return;
        };
        for i in left() {
            // None that began after another had ended comes before it.
            if self.calls[i].began > first_end {
                continue;
            }
            let mut next = state.clone();
            if next.answers(&self.calls[i].call, &self.calls[i].answer) {
                self.go(done | 1 << i, &next);
            }
        }
    }
}

/// The calls in the order in which they began, one a line.
pub fn show<S: Spec>(calls: &[Done<S>]) -> String {
    let mut calls: Vec<_> = calls.iter().collect();
    calls.sort_by_key(|c| c.began);
    calls.iter().map(|c| format!("  thread {} [{:3} … {:3}] {:?} = {:?}\n", c.thread, c.began, c.ended, c.call, c.answer)).collect()
}
