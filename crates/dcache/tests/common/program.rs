//! Random programs: what one user of the cache does after another, with changes beside it, failures, and time. They say what they mean by
//! number where something must be there (the third name, the second directory): the reference knows which it is.

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;

use super::fs::{Flags, Fs, How, Make, ROOT};

/// The names that programs use: few, so that they meet. One is long, to be counted in bytes.
pub const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"a-name-that-is-longer-than-a-word-of-the-hash", b"\xff\x80"];

/// A path in bytes, shown as text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Path(pub Vec<u8>);

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// A path: as it stands, or to one of the names there are.
#[derive(Clone, Debug)]
pub enum Route {
    Free(Path),
    To(usize),
}

/// A directory: what a path leads to, or one of those there are.
#[derive(Clone, Debug)]
pub enum Dir {
    Free(Path),
    There(usize),
}

/// A name in a directory: any, or one of those in it.
#[derive(Clone, Debug)]
pub enum Name {
    Free(Path),
    There(usize),
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct Spot {
    pub dir: Dir,
    pub name: Name,
}

/// One name in the directory that a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct At {
    pub dir: Path,
    pub name: Path,
}

impl Route {
    pub fn path(&self, fs: &Fs) -> Path {
        let names = fs.names();
        match self {
            Route::To(_) if names.is_empty() => Path(b"/".to_vec()),
            Route::To(n) => {
                let (dir, name, _) = &names[n % names.len()];
                Path([&fs.path_of(*dir), name.as_slice()].join(&b'/'))
            }
            Route::Free(path) => path.clone(),
        }
    }
}

impl Dir {
    pub fn path(&self, fs: &Fs) -> Path {
        match self {
            Dir::Free(path) => path.clone(),
            Dir::There(n) => {
                let dirs = fs.dirs();
                Path(fs.path_of(dirs[n % dirs.len()]))
            }
        }
    }
}

impl Spot {
    pub fn at(&self, fs: &Fs) -> At {
        let dir = self.dir.path(fs);
        let there = fs.walk(ROOT, &dir.0, Flags::default()).and_then(|d| fs.list(d)).unwrap_or_default();
        let name = match &self.name {
            Name::Free(name) => name.clone(),
            Name::There(n) if there.is_empty() => Path(NAMES[n % NAMES.len()].to_vec()),
            Name::There(n) => Path(there[n % there.len()].0.clone()),
        };
        At { dir, name }
    }
}

/// What a change made beside the cache is followed by: the cache must be right after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amends {
    /// Each name that changed is invalidated.
    Names,
    /// The whole tree below the root.
    Subtree,
    /// Everything.
    All,
    /// Everything's time ends.
    Time,
}

/// A change of the tree.
#[derive(Clone, Debug)]
pub enum Change {
    Create(Spot, Make),
    Link(Route, Spot),
    Unlink(Spot),
    Rmdir(Spot),
    Rename(Spot, Spot, How),
}

/// How the store fails at a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It has done nothing.
    Before,
    /// It has done it, and the answer is lost.
    After,
}

/// One step of a program.
#[derive(Clone, Debug)]
pub enum Op {
    Walk(Dir, Route, Flags),
    Change(Change),
    /// The store fails at it.
    Fails(Change, Failure),
    List(Dir),
    /// The listing is given up after so many names.
    ListPart(Dir, usize),
    Aside(Change, Amends),
    /// The store fails at the first thing that it is asked for this walk.
    WalkFails(Route),
    /// Time passes, in milliseconds.
    Clock(u64),
    /// What the path leads to may not be evicted, or may again.
    Pin(Route),
    Unpin(usize),
    /// Nobody may search this directory, or everybody may again.
    Close(Dir, bool),
    Invalidate(Spot),
    InvalidateSubtree(Dir),
    InvalidateAll,
    /// Room is made, as if so many entries were to come.
    Shrink(usize),
    /// A handle to the directory is kept, and later walked from.
    Hold(Dir),
    WalkHeld(usize, Route, Flags),
    /// A ticket is drawn for the name, the store is asked, and what it has said is kept for a while.
    Draw(Spot),
    /// The oldest such answer is handed in, or the ticket dropped, or said to have failed.
    Answer(Reply),
}

/// What becomes of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Publish,
    Drop,
    Fail,
}

fn any_name() -> impl Strategy<Value = Path> {
    prop_oneof![6 => 0..1usize, 4 => 1..2usize, 4 => 2..4usize, 1 => 4..NAMES.len()].prop_map(|i| Path(NAMES[i].to_vec()))
}

fn component() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![12 => any_name().prop_map(|p| p.0), 1 => Just(b".".to_vec()), 2 => Just(b"..".to_vec())]
}

/// A path of up to so many components.
pub fn path(most: usize) -> impl Strategy<Value = Path> {
    let slashes = prop_oneof![10 => Just(1usize), 1 => Just(2usize)];
    let parts = vec((component(), slashes), 0..=most);
    (any::<bool>(), parts, prop::bool::weighted(0.15)).prop_map(|(absolute, parts, slash)| {
        let mut path = if absolute { b"/".to_vec() } else { vec![] };
        let n = parts.len();
        for (i, (part, slashes)) in parts.into_iter().enumerate() {
            path.extend(part);
            path.extend(vec![b'/'; if i + 1 < n { slashes } else { usize::from(slash) }]);
        }
        Path(path)
    })
}

fn route() -> impl Strategy<Value = Route> {
    prop_oneof![1 => path(5).prop_map(Route::Free), 2 => any::<usize>().prop_map(Route::To)]
}

fn dir() -> impl Strategy<Value = Dir> {
    prop_oneof![1 => path(2).prop_map(|p| Dir::Free(Path([b"/", p.0.as_slice()].concat()))), 8 => any::<usize>().prop_map(Dir::There)]
}

/// A name that is there more often than not.
fn spot() -> impl Strategy<Value = Spot> {
    let name = prop_oneof![1 => any_name().prop_map(Name::Free), 3 => any::<usize>().prop_map(Name::There)];
    (dir(), name).prop_map(|(dir, name)| Spot { dir, name })
}

/// Any name.
fn open_spot() -> impl Strategy<Value = Spot> {
    (dir(), any_name().prop_map(Name::Free)).prop_map(|(dir, name)| Spot { dir, name })
}

/// A link to somewhere.
fn target() -> impl Strategy<Value = Make> {
    path(3).prop_map(|p| Make::Link(if p.0.is_empty() { b".".to_vec() } else { p.0 }))
}

fn make() -> impl Strategy<Value = Make> {
    prop_oneof![5 => Just(Make::Dir), 2 => Just(Make::File), 2 => target()]
}

/// What there is to begin with: mostly directories.
fn early() -> impl Strategy<Value = Make> {
    prop_oneof![6 => Just(Make::Dir), 1 => Just(Make::File), 1 => target()]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![3 => Just(How::Replace), 1 => Just(How::NoReplace), 1 => Just(How::Exchange)]
}

/// A change.
pub fn change() -> impl Strategy<Value = Change> {
    let target = prop_oneof![2 => open_spot(), 1 => spot()];
    prop_oneof![
        6 => (open_spot(), make()).prop_map(|(at, make)| Change::Create(at, make)),
        2 => (route(), open_spot()).prop_map(|(of, at)| Change::Link(of, at)),
        3 => spot().prop_map(Change::Unlink),
        2 => spot().prop_map(Change::Rmdir),
        7 => (spot(), target, how()).prop_map(|(from, to, how)| Change::Rename(from, to, how)),
    ]
}

fn flags() -> impl Strategy<Value = Flags> {
    (prop::bool::weighted(0.2), prop::bool::weighted(0.1)).prop_map(|(no_follow, directory)| Flags { no_follow, directory })
}

fn op() -> impl Strategy<Value = Op> {
    let amends = prop_oneof![3 => Just(Amends::Names), 1 => Just(Amends::Subtree), 1 => Just(Amends::All), 1 => Just(Amends::Time)];
    let failure = prop_oneof![Just(Failure::Before), Just(Failure::After)];
    prop_oneof![
        20 => (dir(), route(), flags()).prop_map(|(from, to, flags)| Op::Walk(from, to, flags)),
        16 => change().prop_map(Op::Change),
        1 => (change(), failure).prop_map(|(change, failure)| Op::Fails(change, failure)),
        2 => dir().prop_map(Op::List),
        1 => (dir(), 0..3usize).prop_map(|(dir, n)| Op::ListPart(dir, n)),
        2 => (change(), amends).prop_map(|(change, amends)| Op::Aside(change, amends)),
        1 => route().prop_map(Op::WalkFails),
        2 => (1..3000u64).prop_map(Op::Clock),
        2 => route().prop_map(Op::Pin),
        1 => any::<usize>().prop_map(Op::Unpin),
        1 => (dir(), any::<bool>()).prop_map(|(dir, closed)| Op::Close(dir, closed)),
        1 => spot().prop_map(Op::Invalidate),
        1 => dir().prop_map(Op::InvalidateSubtree),
        1 => Just(Op::InvalidateAll),
        1 => (1..200usize).prop_map(Op::Shrink),
        1 => dir().prop_map(Op::Hold),
        2 => (any::<usize>(), path(4).prop_map(Route::Free), flags()).prop_map(|(n, path, flags)| Op::WalkHeld(n, path, flags)),
        4 => prop_oneof![spot(), open_spot()].prop_map(Op::Draw),
        4 => prop_oneof![4 => Just(Reply::Publish), 1 => Just(Reply::Drop), 1 => Just(Reply::Fail)].prop_map(Op::Answer),
    ]
}

/// A program: a tree to begin with is made by its first steps.
pub fn program(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let begin = vec((open_spot(), early()).prop_map(|(at, make)| Op::Change(Change::Create(at, make))), 6..16);
    (begin, vec(op(), 1..most)).prop_map(|(begin, rest)| begin.into_iter().chain(rest).collect())
}
