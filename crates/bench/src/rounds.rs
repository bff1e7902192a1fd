//! Samples of all cases and back ends, taken in turn.

use std::borrow::Cow;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::report::Unit;

/// One case on one back end.
#[derive(Clone, Debug)]
pub struct Series {
    /// What is done.
    pub case: Cow<'static, str>,
    /// The back end as the report names it.
    pub backend: &'static str,
    /// What a sample is.
    pub unit: Unit,
    /// One per round.
    pub samples: Vec<f64>,
    /// Of the single times in all rounds, where the workload records them.
    pub times: Option<Times>,
    /// What each count cost all tasks together, where that was measured.
    pub costs: Option<Costs>,
}

/// What a count (a call, a loop, a wake-up) costs all tasks of a crowd together. It says more than the time on a machine that has other work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Microseconds of CPU time.
    pub cpu: f64,
    /// How often a task slept.
    pub sleeps: f64,
    /// How often a task was taken off its CPU.
    pub preemptions: f64,
}

/// How single times are distributed, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Their mean.
    pub mean: f64,
    /// Half of them are shorter.
    pub p50: f64,
    /// All but one in a hundred are shorter.
    pub p99: f64,
    /// The longest.
    pub worst: f64,
}

impl Times {
    /// Of a histogram of nanoseconds; None: it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<Times> {
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |q| us(histogram.value_at_quantile(q));
        (!histogram.is_empty()).then(|| Times { mean: histogram.mean() / 1e3, p50: at(0.5), p99: at(0.99), worst: us(histogram.max()) })
    }
}

impl Series {
    /// Nothing sampled yet.
    pub fn new(case: impl Into<Cow<'static, str>>, backend: impl Into<&'static str>, unit: Unit) -> Series {
        Series { case: case.into(), backend: backend.into(), unit, samples: Vec::new(), times: None, costs: None }
    }
}

/// Takes `rounds` samples of each series after `warm_up` rounds that are thrown away. Each round samples every series once, every
/// second one in the opposite order, so that no series always follows the same other.
pub fn interleave(
    series: &mut [Series],
    warm_up: usize,
    rounds: usize,
    mut sample: impl FnMut(usize, &Series) -> Result<f64, Error>,
) -> Result<(), Error> {
    for round in 0..warm_up + rounds {
        for turn in 0..series.len() {
            let index = if round % 2 == 0 { turn } else { series.len() - 1 - turn };
            let value = sample(index, &series[index])?;
            if round >= warm_up {
                series[index].samples.push(value);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_is_out_and_the_order_alternates() {
        let mut series = [Series::new("a", "kernel", Unit::Ns), Series::new("b", "kernel", Unit::Ns)];
        let mut order = Vec::new();
        interleave(&mut series, 1, 2, |index, _| {
            order.push(index);
            Ok(order.len() as f64)
        })
        .unwrap();
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        assert_eq!(series.map(|s| s.samples), [vec![4.0, 5.0], vec![3.0, 6.0]]);
    }
}
