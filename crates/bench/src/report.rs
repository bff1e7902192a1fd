//! What a benchmark found: the form that is written as JSON, and a plain table of it.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::backend::Kind;
use crate::machine::Machine;
use crate::rounds::{Costs, Series, Times};
use crate::stats::{self, Summary};

/// The spread (see [`Summary::spread`]) of the reference from which on a run is called noisy.
const NOISY: f64 = 0.10;

/// The outcome of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The workload's name.
    pub workload: String,
    /// Its parameters, defaults filled in.
    pub args: serde_json::Value,
    /// Where it ran.
    pub machine: Machine,
    /// One row per case and back end.
    pub results: Vec<Measured>,
    /// Rows set against each other, round by round.
    pub ratios: Vec<Ratio>,
    /// What was left out, and why; for who reads the table.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// The samples of one case on one back end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was done.
    pub case: String,
    /// On which back end.
    pub backend: String,
    /// What the numbers are.
    pub unit: Unit,
    /// The middle sample.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// How many samples.
    pub rounds: usize,
    /// How the single times in all rounds are distributed, where they were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// What each count cost all tasks together, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// Interquartile range ÷ median.
    #[serde(skip)]
    pub spread: f64,
}

/// How many times better one row is than another: 80 means 80 times faster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The case.
    pub case: String,
    /// The back end that is judged.
    pub backend: String,
    /// What it is compared with: a back end in the same case, or a case on the same back end.
    pub over: String,
    /// The median of the rounds' ratios.
    pub median: f64,
    /// The median is no less than this, to 95 % (of fewer than five rounds: the least of them).
    pub low: f64,
}

/// What a number counts, and so whether more of it is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds per call.
    #[serde(rename = "ns")]
    Ns,
    /// Microseconds.
    #[serde(rename = "us")]
    Us,
    /// Calls per second.
    #[serde(rename = "op/s")]
    PerSecond,
    /// Bytes of memory.
    #[serde(rename = "bytes")]
    Bytes,
    /// 1 for each time that it held, 0 for each that it did not: a minimum of 1 is "always".
    #[serde(rename = "held")]
    Held,
    /// How many.
    #[serde(rename = "count")]
    Count,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Us => "us",
            Unit::PerSecond => "op/s",
            Unit::Bytes => "bytes",
            Unit::Held => "held",
            Unit::Count => "count",
        }
    }

    /// How many times better `sample` is than `reference`; None where the question has no meaning.
    fn better(self, sample: f64, reference: f64) -> Option<f64> {
        match self {
            Unit::Ns | Unit::Us => Some(reference / sample),
            Unit::PerSecond => Some(sample / reference),
            Unit::Bytes | Unit::Held | Unit::Count => None,
        }
    }
}

impl Report {
    /// A report of `series`, with every back end's ratio over the kernel's row of its case.
    pub fn new(workload: &str, args: &impl Serialize, series: &[Series]) -> Report {
        Report::over(Kind::Kernel.name(), workload, args, series)
    }

    /// The same over the row of another back end.
    pub fn over(reference: &str, workload: &str, args: &impl Serialize, series: &[Series]) -> Report {
        let results = series.iter().map(Measured::of).collect();
        let ratios = series
            .iter()
            .filter(|s| s.backend != reference)
            .filter_map(|s| Ratio::of(s, series.iter().find(|r| r.case == s.case && r.backend == reference)?, reference))
            .collect();
        let args = serde_json::to_value(args).unwrap_or_default();
        Report { workload: workload.to_owned(), args, machine: Machine::here(), results, ratios, notes: Vec::new() }
    }

    /// Writes the report as JSON into a file.
    pub fn write_json(&self, path: &Path) -> Result<(), Error> {
        std::fs::write(path, self.to_json()).map_err(Error::io(format!("cannot write {}", path.display())))
    }

    /// The report as JSON, ending in a newline.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The table's cells: a header, then a row per case and back end.
    pub fn table(&self) -> Vec<Vec<String>> {
        let header = ["case", "backend", "unit", "median", "min", "max", "rounds"].into_iter();
        // Of the single times, where any were recorded.
        let timed = self.results.iter().any(|r| r.times.is_some());
        let times = if timed { &["mean us", "p50", "p99", "worst"][..] } else { &[] };
        let counted = self.results.iter().any(|r| r.costs.is_some());
        let costs = if counted { &["cpu us", "sleeps"][..] } else { &[] };
        let header = header.chain(times.iter().chain(costs).copied()).chain(["ratio", ""]);
        let mut rows = vec![header.map(str::to_owned).collect::<Vec<_>>()];
        rows.extend(self.results.iter().map(|r| {
            let ratio = self.ratios.iter().filter(|x| x.case == r.case && x.backend == r.backend);
            let ratio: Vec<_> = ratio.map(|x| format!("{} (> {}) x {}", number(x.median), number(x.low), x.over)).collect();
            let note = if r.spread > NOISY { format!("noisy: middle half within {:.0} %", r.spread * 100.0) } else { String::new() };
            let figures = [r.median, r.min, r.max].map(number);
            let mut row = vec![r.case.clone(), r.backend.clone(), r.unit.name().to_owned()];
            row.extend(figures.into_iter().chain([r.rounds.to_string()]));
            if timed {
                let times = r.times.map_or([const { String::new() }; 4], |t| [t.mean, t.p50, t.p99, t.worst].map(number));
                row.extend(times);
            }
            if counted {
                row.extend(r.costs.map_or([const { String::new() }; 2], |c| [c.cpu, c.sleeps].map(number)));
            }
            row.extend([ratio.join(", "), note]);
            row
        }));
        rows
    }
}

impl Measured {
    fn of(series: &Series) -> Measured {
        let Summary { median, min, max, spread } = Summary::of(&series.samples);
        Measured {
            case: series.case.to_string(),
            backend: series.backend.to_owned(),
            unit: series.unit,
            median,
            min,
            max,
            rounds: series.samples.len(),
            times: series.times,
            costs: series.costs,
            spread,
        }
    }
}

impl Ratio {
    /// `series` over `reference`, round by round; `over` says what the reference is.
    pub fn of(series: &Series, reference: &Series, over: &str) -> Option<Ratio> {
        let pairs = series.samples.iter().zip(&reference.samples);
        let ratios: Vec<f64> = pairs.filter_map(|(&s, &r)| series.unit.better(s, r)).collect();
        let (case, backend) = (series.case.to_string(), series.backend.to_owned());
        (!ratios.is_empty()).then(|| Ratio {
            case,
            backend,
            over: over.to_owned(),
            median: stats::median(&ratios),
            low: stats::low(&ratios),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.machine;
        let kind = if m.virtual_machine { ", virtual" } else { "" };
        writeln!(
            f,
            "{}: {} ({}{kind}), {} of {} CPUs, Linux {}, load {}",
            self.workload, m.cpu, m.arch, m.allowed, m.cpus, m.kernel, m.load
        )?;
        let rows = self.table();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        for row in &rows {
            let line: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| match column {
                    _ if (3..rows[0].len() - 2).contains(&column) => format!("{cell:>width$}"),
                    _ => format!("{cell:<width$}"),
                })
                .collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

/// Four significant digits or all digits before the point.
fn number(x: f64) -> String {
    let digits = if x == 0.0 { 0 } else { x.abs().log10().floor() as i32 };
    let decimals = if x.fract() == 0.0 { 0 } else { (2 - digits).clamp(0, 3) as usize };
    format!("{x:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(backend: Kind, unit: Unit, samples: &[f64]) -> Series {
        Series { samples: samples.to_vec(), ..Series::new("inc-dec", backend, unit) }
    }

    #[test]
    fn ratio_is_the_median_of_the_rounds_ratios() {
        let kernel = series(Kind::Kernel, Unit::Ns, &[600.0, 1200.0, 610.0]);
        let ours = series(Kind::Manyway, Unit::Ns, &[6.0, 10.0, 10.0]);
        let report = Report::new("uncontended", &(), &[kernel, ours]);
        // Round by round 100, 120 and 61; the ratio of the medians would be another number, 61.
        assert_eq!(
            report.ratios,
            [Ratio { case: "inc-dec".into(), backend: "manyway".into(), over: "kernel".into(), median: 100.0, low: 61.0 }]
        );
    }

    #[test]
    fn more_per_second_is_better() {
        let one = series(Kind::Kernel, Unit::PerSecond, &[1e6]);
        let two = series(Kind::Kernel, Unit::PerSecond, &[1.9e6]);
        assert_eq!(Ratio::of(&two, &one, "one").map(|r| r.median), Some(1.9));
    }

    #[test]
    fn json_has_the_documented_fields_only() {
        let report = Report::new("uncontended", &serde_json::json!({"rounds": 1}), &[series(Kind::Kernel, Unit::Ns, &[600.0])]);
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&json), ["args", "machine", "ratios", "results", "workload"]);
        assert_eq!(keys(&json["results"][0]), ["backend", "case", "max", "median", "min", "rounds", "unit"]);
        assert_eq!(json["results"][0]["unit"], "ns");
        let back: Report = serde_json::from_value(json).unwrap();
        assert_eq!(back.results[0].median, 600.0);
    }

    #[test]
    fn table_flags_a_noisy_row() {
        let quiet = Report::new("w", &(), &[series(Kind::Kernel, Unit::Ns, &[600.0, 601.0, 602.0])]);
        let noisy = Report::new("w", &(), &[series(Kind::Kernel, Unit::Ns, &[600.0, 900.0, 1200.0])]);
        assert!(!quiet.to_string().contains("noisy"));
        assert!(noisy.to_string().contains("noisy: middle half within 33 %"));
    }

    #[test]
    fn numbers_keep_what_matters() {
        let shown: Vec<_> = [0.0, 5.0, 4.5678, 61.234, 615.42, 1234567.8].into_iter().map(number).collect();
        assert_eq!(shown, ["0", "5", "4.57", "61.2", "615", "1234568"]);
    }
}
