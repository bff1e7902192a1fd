//! Small concurrent histories: a little tree, two to four threads, ten calls at most.

use fastrand::Rng;

use super::fs::{Flags, Fs, How, Ino, Make, ROOT};
use super::program::Path;
use super::spec::Call;

/// What histories are about. Each kind has walks beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Directories and what is below them move.
    Renames,
    /// Two names change places.
    Exchanges,
    /// Names come and go.
    Names,
    /// Directories are removed while something is put there.
    Removals,
    /// Names change beside the cache; names are forgotten.
    Aside,
    /// All of it.
    Mixed,
}

pub const KINDS: [Kind; 6] = [Kind::Renames, Kind::Exchanges, Kind::Names, Kind::Removals, Kind::Aside, Kind::Mixed];

fn path(text: &str) -> Path {
    Path(text.as_bytes().to_vec())
}

/// `/a/c/d/f`, `/a/x`, `/b/c/d`, `/e`, and the link `/l` to `a/c`.
pub fn tree() -> Fs {
    let mut fs = Fs::default();
    let mut dir = |at: &str, name: &str, make: Make| {
        let at = fs.walk(ROOT, at.as_bytes(), Flags::default()).expect("made before");
        fs.create(at, name.as_bytes(), make).expect("is new");
    };
    dir("/", "a", Make::Dir);
    dir("/a", "c", Make::Dir);
    dir("/a/c", "d", Make::Dir);
    dir("/a/c/d", "f", Make::File);
    dir("/a", "x", Make::File);
    dir("/", "b", Make::Dir);
    dir("/b", "c", Make::Dir);
    dir("/b/c", "d", Make::File);
    dir("/", "e", Make::Dir);
    dir("/", "l", Make::Link(b"a/c".to_vec()));
    fs
}

const WALKS: [&str; 14] =
    ["/a/c/d", "/a/c/d/f", "/b/c/d", "/b/c/d/f", "/e/c/d", "/e/c/d/f", "/a/x", "/b/x", "/l/d", "/l/d/f", "/a/c/../x", "/b/c", "/e/d", "/e"];
const NAMES: [&str; 5] = ["c", "d", "x", "a", "e"];

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// The calls of each thread.
pub fn draw(rng: &mut Rng, kind: Kind, fs: &Fs) -> Vec<Vec<Call>> {
    let threads = rng.usize(2..=4);
    let each = 10 / threads;
    let walkers = rng.usize(1..threads);
    // Most walks of a history are of the same two paths: they meet.
    let favourites = [pick(rng, &WALKS), pick(rng, &WALKS)];
    (0..threads)
        .map(|thread| {
            let n = rng.usize(1..=each.min(4));
            (0..n).map(|_| if thread < walkers { walk(rng, favourites) } else { change(rng, kind, fs, favourites) }).collect()
        })
        .collect()
}

fn walk(rng: &mut Rng, favourites: [&str; 2]) -> Call {
    let text = if rng.u8(..4) == 0 { pick(rng, &WALKS) } else { pick(rng, &favourites) };
    Call::Walk(ROOT, path(text), Flags { no_follow: rng.u8(..8) == 0, directory: false })
}

fn change(rng: &mut Rng, kind: Kind, fs: &Fs, favourites: [&str; 2]) -> Call {
    let dirs = fs.dirs();
    let at = |rng: &mut Rng| (pick(rng, &dirs), path(pick(rng, &NAMES)));
    // A name that is there.
    let there = |rng: &mut Rng| -> (Ino, Path) {
        let dirs: Vec<_> = dirs.iter().copied().filter(|&d| fs.list(d).is_ok_and(|l| !l.is_empty())).collect();
        let dir = pick(rng, &dirs);
        let names = fs.list(dir).expect("a directory");
        (dir, Path(names[rng.usize(..names.len())].0.clone()))
    };
    let make = |rng: &mut Rng| if rng.bool() { Make::Dir } else { Make::File };
    let kind = if kind == Kind::Mixed { pick(rng, &KINDS[..5]) } else { kind };
    match (kind, rng.u8(..8)) {
        (_, 0) => walk(rng, favourites),
        (Kind::Renames, _) => Call::Rename(there(rng), at(rng), if rng.u8(..6) == 0 { How::NoReplace } else { How::Replace }),
        (Kind::Exchanges, _) => Call::Rename(there(rng), there(rng), How::Exchange),
        (Kind::Names, 1..=3) => {
            let (dir, name) = at(rng);
            Call::Create(dir, name, make(rng))
        }
        (Kind::Names, 4) => {
            let files: Vec<Ino> = fs.inodes().filter(|(_, n)| !matches!(n.body, super::fs::Body::Dir(_))).map(|(i, _)| i).collect();
            let (dir, name) = at(rng);
            Call::Link(pick(rng, &files), dir, name)
        }
        (Kind::Names, 5) => Call::List(pick(rng, &dirs)),
        (Kind::Names, _) => {
            let (dir, name) = if rng.bool() { there(rng) } else { at(rng) };
            Call::Unlink(dir, name)
        }
        (Kind::Removals, 1..=3) => {
            let (dir, name) = at(rng);
            Call::Create(dir, name, make(rng))
        }
        (Kind::Removals, 4..=6) => {
            let (dir, name) = there(rng);
            Call::Rmdir(dir, name)
        }
        (Kind::Removals, _) => Call::Rename(there(rng), there(rng), How::Replace),
        (Kind::Aside, 1) => Call::InvalidateSubtree(pick(rng, &dirs)),
        (Kind::Aside, 2 | 3) => {
            let (dir, name) = there(rng);
            Call::Invalidate(dir, name)
        }
        (Kind::Aside, 4 | 5) => {
            let (dir, name) = at(rng);
            Call::CreateAside(dir, name, make(rng))
        }
        (Kind::Aside, _) => {
            let (dir, name) = if rng.bool() { there(rng) } else { at(rng) };
            Call::UnlinkAside(dir, name)
        }
        (Kind::Mixed, _) => unreachable!("another was drawn"),
    }
}
