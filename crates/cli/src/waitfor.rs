//! Who waits for whom, and in which circles.
//!
//! A process waits for another when one of its threads sleeps for a unit that the other's death or release would give: for a
//! decrement, those who have taken units with SEM_UNDO; for zero, those who have added some.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;

/// One process waits for another because of one semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Edge {
    /// The process that sleeps.
    pub waiter: u32,
    /// The set's id.
    pub set: i32,
    /// The semaphore.
    pub num: u16,
    /// A process that holds it.
    pub holder: u32,
}

/// Shortest circles of the graph, one for each group of processes that wait for one another, beginning with its lowest pid.
pub fn cycles(edges: &[Edge]) -> Vec<Vec<Edge>> {
    let mut graph: BTreeMap<u32, Vec<Edge>> = BTreeMap::new();
    for edge in edges {
        graph.entry(edge.waiter).or_default().push(*edge);
    }
    let mut named = BTreeSet::new();
    let mut found = Vec::new();
    for &start in graph.keys() {
        if named.contains(&start) {
            continue;
        }
        if let Some(cycle) = shortest(&graph, start) {
            named.extend(group(&graph, start));
            found.push(cycle);
        }
    }
    found
}

/// The shortest way from `start` back to itself.
fn shortest(graph: &BTreeMap<u32, Vec<Edge>>, start: u32) -> Option<Vec<Edge>> {
    let mut came_by: BTreeMap<u32, Edge> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(process) = queue.pop_front() {
        for &edge in graph.get(&process).into_iter().flatten() {
            if edge.holder == start {
                return Some(way_back(&came_by, start, edge));
            }
            came_by.entry(edge.holder).or_insert_with(|| {
                queue.push_back(edge.holder);
                edge
            });
        }
    }
    None
}

fn way_back(came_by: &BTreeMap<u32, Edge>, start: u32, last: Edge) -> Vec<Edge> {
    let mut way = vec![last];
    let mut at = last.waiter;
    while at != start {
        way.push(came_by[&at]);
        at = came_by[&at].waiter;
    }
    way.reverse();
    way
}

/// The processes that `start` waits for, directly or not, and that wait for it.
fn group(graph: &BTreeMap<u32, Vec<Edge>>, start: u32) -> BTreeSet<u32> {
    let there = reachable(graph, start);
    there.iter().copied().filter(|&process| reachable(graph, process).contains(&start)).collect()
}

fn reachable(graph: &BTreeMap<u32, Vec<Edge>>, start: u32) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    let mut stack = vec![start];
    while let Some(process) = stack.pop() {
        for edge in graph.get(&process).into_iter().flatten() {
            if seen.insert(edge.holder) {
                stack.push(edge.holder);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(pairs: &[(u32, u32)]) -> Vec<Edge> {
        pairs.iter().map(|&(waiter, holder)| Edge { waiter, set: 0, num: 0, holder }).collect()
    }

    fn found(pairs: &[(u32, u32)]) -> Vec<Vec<u32>> {
        cycles(&edges(pairs)).iter().map(|cycle| cycle.iter().map(|edge| edge.waiter).collect()).collect()
    }

    #[test]
    fn no_circle() {
        assert!(found(&[]).is_empty());
        assert!(found(&[(1, 2), (2, 3), (1, 3), (4, 3)]).is_empty());
    }

    #[test]
    fn circles_of_one_two_and_three() {
        assert_eq!(found(&[(1, 1)]), [[1]]);
        assert_eq!(found(&[(2, 1), (1, 2), (3, 1)]), [[1, 2]]);
        assert_eq!(found(&[(3, 1), (1, 2), (2, 3)]), [[1, 2, 3]]);
    }

    #[test]
    fn one_circle_for_each_group() {
        assert_eq!(found(&[(1, 2), (2, 1), (2, 3), (3, 1), (7, 8), (8, 7), (3, 7)]), [[1, 2], [7, 8]]);
    }

    #[test]
    fn every_step_leads_to_the_next() {
        let cycle = &cycles(&edges(&[(1, 9), (9, 4), (4, 1), (1, 5), (5, 6)]))[0];
        for (step, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            assert_eq!(step.holder, next.waiter);
        }
    }
}
