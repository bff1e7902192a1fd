//! The trees that are walked, the same for all back ends: for each case its directories, its files, and the paths in the order of the walks.

use std::collections::HashSet;
use std::ffi::CString;
use std::fmt::Write;

use super::Case;

/// A tree, and what is looked up in it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// In the order to make them. No path begins or ends with a slash.
    pub dirs: Vec<String>,
    /// Files.
    pub files: Vec<String>,
    /// What the walks look up.
    pub paths: Vec<CString>,
    /// Where a directory is moved to and back meanwhile, and so many of its descendants are cached.
    pub moving: Option<Move>,
}

/// A directory with two places.
#[derive(Clone, Debug)]
pub struct Move {
    /// Where it is at the begin.
    pub from: CString,
    /// Where it is after every second rename.
    pub to: CString,
}

/// What is cached below the directory of `rename-dir` and of `rename-dir-100`.
pub const MANY: usize = 100_000;
/// See [`MANY`].
pub const FEW: usize = 100;

impl Tree {
    /// The tree of a case, if it has one. `fresh` tells names apart that are to be missing for the first time.
    pub fn of(case: Case, fresh: u64) -> Option<Tree> {
        Some(match case {
            Case::Hot => branches([4, 4, 2, 2], Leaves::Files),
            Case::Cold => branches([8, 16, 8, 8], Leaves::Files),
            Case::Negative => branches([4, 4, 2, 2], Leaves::Missing),
            Case::Missing => missing(fresh),
            Case::Deep => deep(),
            Case::Wide => wide(1 << 16),
            Case::Rename => renamed(),
            Case::RenameDir => descendants(MANY),
            Case::RenameDir100 => descendants(FEW),
            Case::Bytes => return None,
        })
    }

    /// How many of the paths lead to a file before anything moves.
    pub fn present(&self) -> usize {
        let files: HashSet<&[u8]> = self.files.iter().map(String::as_bytes).collect();
        self.paths.iter().filter(|path| files.contains(path.as_bytes())).count()
    }

    fn dir(&mut self, path: String) {
        self.dirs.push(path);
    }
}

/// As the walks take them, one behind the other in memory, in an order that no prefetcher foresees and that is the same each time.
fn mixed(paths: &[String]) -> Vec<CString> {
    let mut order: Vec<usize> = (0..paths.len()).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for last in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(last, (state % (last as u64 + 1)) as usize);
    }
    order.into_iter().map(|at| for_walks(&paths[at])).collect()
}

fn for_walks(path: &str) -> CString {
    CString::new(path).expect("names are made here, without a zero byte")
}

enum Leaves {
    /// Are there and looked up.
    Files,
    /// Are looked up and not there.
    Missing,
}

/// Names as they are in home directories, 4 to 12 bytes.
const WORDS: [&str; 16] = [
    "home",
    "projects",
    "src",
    "include",
    "Makefile",
    "report-2024",
    "lib",
    "images",
    "README.md",
    "bin",
    "config.toml",
    "notes.txt",
    "target",
    "music",
    "archive",
    "main.rs",
];

fn name(level: usize, n: usize) -> String {
    let word = WORDS[(level * 5 + n) % WORDS.len()];
    if n < WORDS.len() { word.to_owned() } else { format!("{word}-{n}") }
}

/// A tree of four levels, each directory with so many children, and the paths of all leaves.
fn branches(width: [usize; 4], leaves: Leaves) -> Tree {
    let mut tree = Tree::default();
    let mut level = vec![String::new()];
    for (depth, &children) in width.iter().enumerate() {
        let below = |dir: &String| {
            let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
            (0..children).map(move |n| format!("{prefix}{}", name(depth, n))).collect::<Vec<_>>()
        };
        level = level.iter().flat_map(below).collect();
        if depth + 1 < width.len() {
            level.iter().for_each(|dir| tree.dir(dir.clone()));
        }
    }
    tree.paths = mixed(&level);
    if let Leaves::Files = leaves {
        tree.files = level;
    }
    tree
}

/// The directories of `hot`, and in each names that nobody has ever looked for.
fn missing(fresh: u64) -> Tree {
    const EACH: usize = 128;
    let mut tree = branches([4, 4, 2, 1], Leaves::Missing);
    let dirs: Vec<String> = tree.dirs.iter().filter(|dir| dir.matches('/').count() == 2).cloned().collect();
    let paths: Vec<String> = dirs.iter().flat_map(|dir| (0..EACH).map(move |n| format!("{dir}/x{fresh:x}-{n:x}"))).collect();
    tree.paths = mixed(&paths);
    tree
}

/// Sixteen components: four chains of fifteen directories, sixteen files at the end of each.
fn deep() -> Tree {
    let mut tree = Tree::default();
    let mut paths = Vec::new();
    for chain in 0..4 {
        let mut at = name(0, chain);
        tree.dir(at.clone());
        for depth in 1..15 {
            // Writing to a String cannot fail.
            let _ = write!(at, "/{}", name(depth, chain));
            tree.dir(at.clone());
        }
        paths.extend((0..16).map(|n| format!("{at}/{}", name(15, n))));
    }
    tree.paths = mixed(&paths);
    tree.files = paths;
    tree
}

/// One directory with so many files, all looked up: more entries than the processor's caches hold.
fn wide(files: usize) -> Tree {
    let mut tree = Tree::default();
    tree.dir("wide".to_owned());
    tree.files = (0..files).map(|n| format!("wide/file-{n:06}")).collect();
    tree.paths = mixed(&tree.files);
    tree
}

/// `hot`, and beside it a directory that moves: an eighth of the paths lead through it, half of them through its old place and half
/// through its new one.
fn renamed() -> Tree {
    let mut tree = branches([4, 4, 2, 2], Leaves::Files);
    let (from, to) = ("moved/from/dir".to_owned(), "moved/to/dir".to_owned());
    ["moved", "moved/from", "moved/to"].into_iter().for_each(|dir| tree.dir(dir.to_owned()));
    tree.dir(from.clone());
    let mut paths = tree.files.clone();
    for n in 0..4 {
        tree.files.push(format!("{from}/{}", name(3, n)));
        paths.extend([&from, &to].map(|dir| format!("{dir}/{}", name(3, n))));
    }
    tree.paths = mixed(&paths);
    tree.moving = Some(Move { from: for_walks(&from), to: for_walks(&to) });
    tree
}

/// A directory with so many files below it, at most a thousand in one directory, all looked up once before it moves.
fn descendants(count: usize) -> Tree {
    let mut tree = Tree::default();
    let (from, to) = ("from/dir".to_owned(), "to/dir".to_owned());
    ["from".to_owned(), "to".to_owned(), from.clone()].into_iter().for_each(|dir| tree.dir(dir));
    let each = 1000.min(count);
    for dir in 0..count / each {
        let dir = format!("{from}/{dir:03}");
        tree.files.extend((0..each).map(|n| format!("{dir}/file-{n:03}")));
        tree.dir(dir);
    }
    tree.paths = tree.files.iter().map(|file| for_walks(file)).collect();
    tree.moving = Some(Move { from: for_walks(&from), to: for_walks(&to) });
    tree
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_parent_is_made_before_its_children() {
        for &case in Case::value_variants() {
            let Some(tree) = Tree::of(case, 1) else { continue };
            let mut made = HashSet::from([""]);
            for path in tree.dirs.iter().chain(&tree.files) {
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                assert!(made.contains(parent), "{case:?}: {path}");
                assert!(made.insert(path), "{case:?}: twice {path}");
            }
        }
    }

    fn tree(case: Case, fresh: u64) -> Tree {
        Tree::of(case, fresh).unwrap()
    }

    fn paths(tree: &Tree) -> Vec<&str> {
        tree.paths.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn a_case_looks_up_what_it_says() {
        let components = |tree: &Tree| paths(tree).iter().map(|p| p.split('/').count()).collect::<HashSet<_>>();
        let hot = tree(Case::Hot, 0);
        assert_eq!((components(&hot), hot.paths.len(), hot.present()), (HashSet::from([4]), 64, 64));
        let deep = tree(Case::Deep, 0);
        assert_eq!((components(&deep), deep.present()), (HashSet::from([16]), deep.paths.len()));
        let negative = tree(Case::Negative, 0);
        assert_eq!((components(&negative), negative.paths.len(), negative.present()), (HashSet::from([4]), 64, 0));
        let (one, other) = (tree(Case::Missing, 1), tree(Case::Missing, 2));
        assert_eq!((components(&one), one.present()), (HashSet::from([4]), 0));
        let names: HashSet<_> = one.paths.iter().collect();
        assert!(names.len() == one.paths.len() && other.paths.iter().all(|p| !names.contains(p)));
        assert_eq!(tree(Case::RenameDir, 0).present(), MANY);
        assert_eq!(tree(Case::RenameDir100, 0).present(), FEW);
        let rename = tree(Case::Rename, 0);
        assert_eq!((rename.paths.len(), rename.present()), (72, 68));
    }

    #[test]
    fn mixing_keeps_every_path() {
        let wide = tree(Case::Wide, 0);
        let mixed: HashSet<&str> = paths(&wide).into_iter().collect();
        assert!(wide.files.iter().all(|file| mixed.contains(file.as_str())) && mixed.len() == wide.files.len());
        assert_ne!(paths(&wide)[0], wide.files[0]);
    }
}
