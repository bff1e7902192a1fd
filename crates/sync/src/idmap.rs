//! User and group numbers of one user namespace in those of the one above it (user_namespaces(7)).

use core::ffi::CStr;

use crate::sys;

/// Which numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Users.
    User,
    /// Groups.
    Group,
}

/// Bytes of a map that are looked at: more than a hundred lines. What comes behind them counts as not mapped.
const READ: usize = 4096;

fn find(kind: Kind, f: impl Fn(Extent) -> Option<u32>) -> Option<u32> {
    let path: &CStr = match kind {
        Kind::User => c"/proc/self/uid_map",
        Kind::Group => c"/proc/self/gid_map",
    };
    let mut buf = [0; READ];
    extents(sys::read_file(path, &mut buf).ok()?).find_map(f)
}

/// A line of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    inside: u32,
    outside: u32,
    len: u32,
}

fn extents(map: &[u8]) -> impl Iterator<Item = Extent> {
    map.split_inclusive(|&b| b == b'\n').filter(|line| line.ends_with(b"\n")).filter_map(|line| {
        let mut numbers = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let mut next = || core::str::from_utf8(numbers.next()?).ok()?.parse().ok();
        Some(Extent { inside: next()?, outside: next()?, len: next()? })
    })
}

fn within(id: u32, from: u32, len: u32, to: u32) -> Option<u32> {
    id.checked_sub(from).filter(|&n| n < len).and_then(|n| to.checked_add(n))
}

/// What the caller's number `id` is in the namespace above.
pub fn to_parent(kind: Kind, id: u32) -> Option<u32> {
    find(kind, |e| within(id, e.inside, e.len, e.outside))
}

/// What the number `id` of the namespace above is in the caller's.
pub fn from_parent(kind: Kind, id: u32) -> Option<u32> {
    find(kind, |e| within(id, e.outside, e.len, e.inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps() {
        let map = b"         0       1000          1\n         1     100000      65536\n     70000          7";
        let all: &[Extent] = &[Extent { inside: 0, outside: 1000, len: 1 }, Extent { inside: 1, outside: 100_000, len: 65536 }];
        // A line that was cut short is none.
        assert!(extents(map).eq(all.iter().copied()));
        assert_eq!(within(0, 0, 1, 1000), Some(1000));
        assert_eq!(within(1, 0, 1, 1000), None);
        assert_eq!(within(5, 1, 65536, 100_000), Some(100_004));
        assert_eq!(within(u32::MAX, 0, u32::MAX, 0), None);
    }

    #[test]
    fn first_namespace_is_its_own() {
        // Identity, or at least a map that leads back.
        if let Some(outside) = to_parent(Kind::User, 0) {
            assert_eq!(from_parent(Kind::User, outside), Some(0));
        }
    }
}
