//! The few statistics that the reports use.

/// What a series of samples says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Half of the samples are below.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Interquartile range ÷ median: how far the usual samples lie apart.
    pub spread: f64,
}

impl Summary {
    /// Of at least one sample.
    pub fn of(samples: &[f64]) -> Summary {
        let sorted = sorted(samples);
        let median = quantile(&sorted, 0.5);
        let range = quantile(&sorted, 0.75) - quantile(&sorted, 0.25);
        let spread = if median == 0.0 { 0.0 } else { range / median };
        Summary { median, min: sorted[0], max: sorted[sorted.len() - 1], spread }
    }
}

/// The median of at least one sample.
pub fn median(samples: &[f64]) -> f64 {
    quantile(&sorted(samples), 0.5)
}

/// A bound below the median of what the samples are drawn from, good to 95 %: the largest of them of which that can be said without
/// knowing how they are distributed. Of fewer than five nothing can be: the least.
pub fn low(samples: &[f64]) -> f64 {
    let sorted = sorted(samples);
    let n = sorted.len() as i32;
    // That at most `k` of n samples lie below the median has the chance sum(n over i) / 2^n; below 5 % sample k may be the bound.
    let (mut chance, mut term, mut k) = (0.0, 0.5f64.powi(n), 0);
    while chance + term <= 0.05 {
        chance += term;
        term *= f64::from(n - k) / f64::from(k + 1);
        k += 1;
    }
    sorted[(k - 1).max(0) as usize]
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Linear interpolation between the two nearest ranks.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn low_is_a_bound_of_95_percent() {
        let counted = |n: i32| low(&(1..=n).map(f64::from).collect::<Vec<_>>());
        // Tables of the sign test: of 8 samples the second, of 15 the fourth, of 30 the eleventh.
        assert_eq!([1, 4, 5, 8, 15, 30].map(counted), [1.0, 1.0, 1.0, 2.0, 4.0, 11.0]);
    }

    #[test]
    fn summary_ignores_an_outlier_in_spread() {
        let s = Summary::of(&[10.0, 10.0, 10.0, 10.0, 1000.0]);
        assert_eq!((s.median, s.min, s.max, s.spread), (10.0, 10.0, 1000.0, 0.0));
        let s = Summary::of(&[10.0, 20.0, 30.0]);
        assert_eq!((s.median, s.spread), (20.0, 0.5));
    }
}
