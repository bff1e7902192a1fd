//! Changes that break the engine, and the test that must find each: `mutations.txt`, which docs/memory-model.md shows as a table.

use std::path::{Path, PathBuf};

/// The workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Lines of a file, whole, and what takes their place.
#[derive(Clone, Debug, Default)]
pub struct Hunk {
    /// The lines, each with its end.
    pub from: String,
    /// Those in their place.
    pub to: String,
}

/// Which build and test program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instrument {
    /// The model checker: `tests/loom_*.rs` of the crate that is changed.
    Loom,
    /// Schedules of the whole engine: `crates/sem/tests/shuttle`.
    Shuttle,
    /// An ordinary test: of the test kit, or of the dentry cache if that is changed.
    Test,
}

impl Instrument {
    /// As `mutations.txt` has it.
    pub fn name(self) -> &'static str {
        match self {
            Instrument::Loom => "loom",
            Instrument::Shuttle => "shuttle",
            Instrument::Test => "test",
        }
    }
}

/// One change, or several that go together.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// Its name.
    pub name: String,
    /// What it breaks: an edge, or a part of the engine.
    pub of: String,
    /// What it does.
    pub is: String,
    /// The file.
    pub file: PathBuf,
    /// With what it is found.
    pub by: Instrument,
    /// The test program.
    pub program: String,
    /// The test in it.
    pub test: String,
    /// The changes.
    pub hunks: Vec<Hunk>,
}

impl Mutation {
    /// The directory in `crates` whose tests are to find it.
    pub fn tests_of(&self) -> &'static str {
        match (self.file.starts_with("crates/dcache"), self.by) {
            (true, _) => "dcache",
            (false, Instrument::Test) => "testkit",
            (false, _) => "sem",
        }
    }

    /// The file's text with the changes made; or what is wrong with them.
    pub fn apply(&self, source: &str) -> Result<String, String> {
        let mut text = source.to_owned();
        for hunk in &self.hunks {
            // Whole lines: a line's end is not enough.
            let at: Vec<usize> =
                text.match_indices(&hunk.from).map(|(at, _)| at).filter(|&at| at == 0 || text.as_bytes()[at - 1] == b'\n').collect();
            let [at] = at[..] else {
                let first = hunk.from.lines().next().unwrap_or_default().trim();
                return Err(format!("its lines are there {} times ({first:?}): bring mutations.txt up to date", at.len()));
            };
            text.replace_range(at..at + hunk.from.len(), &hunk.to);
        }
        Ok(text)
    }
}

/// All of them, in the file's order.
pub fn all() -> Vec<Mutation> {
    let text = include_str!("../mutations.txt");
    let blocks = text.split("\nmutation ").skip(1);
    blocks.map(|block| parse(block).unwrap_or_else(|| panic!("mutations.txt: cannot read {:?}", block.lines().next()))).collect()
}

fn parse(block: &str) -> Option<Mutation> {
    let mut lines = block.lines();
    let name = lines.next()?.to_owned();
    let (mut of, mut is, mut file, mut by) = (None, None, None, None);
    let mut hunks: Vec<Hunk> = vec![];
    for line in lines {
        let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
        match mark {
            "of" => of = Some(rest.to_owned()),
            "is" => is = Some(rest.to_owned()),
            "in" => file = Some(PathBuf::from(rest)),
            "by" => by = Some(rest.to_owned()),
            "-" => {
                if hunks.last().is_none_or(|h| !h.to.is_empty()) {
                    hunks.push(Hunk::default());
                }
                hunks.last_mut()?.from += &(rest.to_owned() + "\n");
            }
            "+" => hunks.last_mut()?.to += &(rest.to_owned() + "\n"),
            "" | "#" => {}
            _ => return None,
        }
    }
    let by = by?;
    let [instrument, program, test] = by.split(' ').collect::<Vec<_>>()[..] else { return None };
    let by = [Instrument::Loom, Instrument::Shuttle, Instrument::Test].into_iter().find(|i| i.name() == instrument)?;
    let is = is.unwrap_or_else(|| name.replace('_', " "));
    (!hunks.is_empty() && hunks.iter().all(|h| !h.from.is_empty() && !h.to.is_empty())).then_some(Mutation {
        name,
        of: of?,
        is,
        file: file?,
        by,
        program: program.to_owned(),
        test: test.to_owned(),
        hunks,
    })
}

/// The table of docs/memory-model.md: a line for what the same test finds in one part.
pub fn table() -> String {
    let mut rows: Vec<(String, String, Vec<String>)> = vec![];
    for m in all() {
        let by = match m.by {
            Instrument::Loom => format!("`{}`", m.test),
            Instrument::Shuttle => format!("shuttle, {}", m.test),
            Instrument::Test if m.tests_of() == "dcache" => format!("dcache, `{}`", m.test),
            Instrument::Test => format!("`{}.rs`", m.program),
        };
        match rows.iter_mut().find(|r| (&r.0, &r.1) == (&m.of, &by)) {
            Some(row) => row.2.push(m.is),
            None => rows.push((m.of, by, vec![m.is])),
        }
    }
    let mut out = "| of | change | found by |\n|---|---|---|\n".to_owned();
    for (of, by, changes) in rows {
        out += &format!("| {of} | {} | {by} |\n", changes.join("; "));
    }
    out
}
