//! The list of mutations is true: each can be made, each names a test that is there, and docs/memory-model.md shows it. That the tests find them is
//! another matter: `cargo run -p manyway-testkit --example mutations`.

use std::collections::BTreeSet;
use std::path::Path;

use manyway_testkit::mutations::{Instrument, Mutation, all, table, workspace};

/// The text of the Rust files at a path, or below it.
fn text(path: &Path) -> String {
    if path.is_file() {
        return std::fs::read_to_string(path).expect("a source file");
    }
    let Ok(entries) = std::fs::read_dir(path) else { return String::new() };
    entries.map(|e| text(&e.expect("an entry").path())).collect()
}

#[test]
fn each_can_be_made_once() {
    let mut names = BTreeSet::new();
    for m in all() {
        let source = std::fs::read_to_string(workspace().join(&m.file)).unwrap_or_else(|e| panic!("{}: {e}", m.name));
        let changed = m.apply(&source).unwrap_or_else(|e| panic!("{}: {e}", m.name));
        assert_ne!(changed, source, "{}", m.name);
        assert!(names.insert(m.name.clone()), "{} is there twice", m.name);
    }
    assert!(names.len() >= 100, "{} mutations", names.len());
}

#[test]
fn each_names_a_test_that_is_there() {
    let has = |m: &Mutation| match m.by {
        Instrument::Loom => {
            let program = format!("crates/{}/tests/{}.rs", m.tests_of(), m.program);
            text(&workspace().join(program)).contains(&format!("fn {}()", m.test))
        }
        Instrument::Shuttle => text(&workspace().join("crates/sem/tests/shuttle/run.rs")).contains(&format!("name: \"{}\"", m.test)),
        Instrument::Test => {
            let tests = workspace().join(format!("crates/{}/tests", m.tests_of()));
            let program = text(&tests.join(format!("{}.rs", m.program))) + &text(&tests.join(&m.program));
            let whole = program + &text(&workspace().join("crates/testkit/src"));
            whole.contains(m.test.rsplit("::").next().unwrap_or(&m.test))
        }
    };
    let missing: Vec<_> = all().into_iter().filter(|m| !has(m)).map(|m| (m.name, m.program, m.test)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// `MANYWAY_BLESS=1` writes the table.
#[test]
fn memory_model_shows_them() {
    let path = workspace().join("docs/memory-model.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once("<!-- mutations -->\n").expect("where the table begins");
    let (shown, after) = rest.split_once("<!-- end of mutations -->\n").expect("where the table ends");
    if std::env::var_os("MANYWAY_BLESS").is_some() {
        let page = format!("{before}<!-- mutations -->\n{}<!-- end of mutations -->\n{after}", table());
        return std::fs::write(&path, page).expect("the page");
    }
    assert!(
        shown == table(),
        "the table is not that of mutations.txt: write it with MANYWAY_BLESS=1 cargo test -p manyway-testkit --test mutations"
    );
}
