//! What docs/ and the pages beside it name is there: each test, each file.

use std::collections::BTreeSet;
use std::path::Path;

use manyway_testkit::mutations::workspace;

fn pages() -> Vec<(String, String)> {
    let root = workspace();
    let docs = std::fs::read_dir(root.join("docs")).expect("docs").map(|e| e.expect("an entry").path());
    let beside = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name));
    let pages = docs.chain(beside).filter(|path| path.extension().is_some_and(|e| e == "md"));
    pages.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("a page"))).collect()
}

/// What a page has between backticks, outside of blocks of code.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// The text of all Rust files below a directory.
fn sources(dir: &Path, into: &mut String) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push_str(&std::fs::read_to_string(&path).expect("a source file"));
        }
    }
}

/// Tests' names are sentences: four words or more. Macros make tests of names too, so any whole word will do. (semantics.md names functions of
/// the kernel; its scenarios are looked for by `rules.rs`.)
#[test]
fn tests_that_pages_name_are_there() {
    let mut text = String::new();
    sources(&workspace().join("crates"), &mut text);
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let is_sentence = |word: &&str| word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')) && word.matches('_').count() >= 3;
    let (mut named, mut missing) = (0, Vec::new());
    for (page, text) in pages().into_iter().filter(|(page, _)| !page.ends_with("semantics.md")) {
        for name in quoted(&text).filter(is_sentence) {
            named += 1;
            if !words.contains(name) {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named >= 100, "{named} names found");
}

/// Paths in backticks, and what links lead to.
#[test]
fn files_that_pages_name_are_there() {
    let root = workspace();
    let (mut named, mut missing) = (0, Vec::new());
    for (page, text) in pages() {
        let links =
            text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|to| !to.contains("://") && !to.starts_with('#'));
        let links = links.map(|to| (to.split('#').next().unwrap_or(to), Path::new(&page).parent().unwrap_or(&root)));
        let paths = quoted(&text).filter(|q| ["crates/", "docs/", "examples/", "results/"].iter().any(|d| q.starts_with(d)));
        let paths = paths.filter(|q| !q.contains(['*', ' ', '<', '{'])).map(|q| (q.split(':').next().unwrap_or(q), root.as_path()));
        for (to, from) in links.chain(paths) {
            named += 1;
            if !from.join(to).exists() && !from.join(format!("{to}.rs")).exists() {
                missing.push(format!("{page}: {to}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named >= 25, "{named} files named");
}
