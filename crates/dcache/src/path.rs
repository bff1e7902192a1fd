//! Names out of paths: the next component and its hash, eight bytes at a time.
//!
//! A name's hash is the same whether it comes out of a path or stands alone. It does not depend on the directory, so that the processor
//! hashes the next component while it waits for the entry of this one; [`in_directory`] mixes the directory in.

/// Odd, of no structure; from the digits of pi.
const MULTIPLIER: u64 = 0x2434_6a88_85a3_08d3 | 1;
const SLASHES: u64 = 0x2f2f_2f2f_2f2f_2f2f;
const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// A name with its hash.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub bytes: &'a [u8],
    /// Of the name alone.
    pub hash: u64,
    /// The last `len % 8` bytes, the first in the lowest place, zeros above.
    pub last: u64,
}

#[inline(always)]
fn mix(h: u64, word: u64) -> u64 {
    let wide = u128::from(h ^ word) * u128::from(MULTIPLIER);
    wide as u64 ^ (wide >> 64) as u64
}

/// Up to seven bytes that begin at `at` and end with the path.
#[inline(always)]
fn tail(path: &[u8], at: usize) -> u64 {
    let n = path.len() - at;
    if n == 0 {
        return 0;
    }
    if let Some(last) = path.last_chunk::<8>() {
        return u64::from_le_bytes(*last) >> (8 * (8 - n));
    }
    let bytes = &path[at..];
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (n - 4));
    }
    u64::from(bytes[0]) | u64::from(bytes[n / 2]) << (8 * (n / 2)) | u64::from(bytes[n - 1]) << (8 * (n - 1))
}

/// The name at the head of `path`, up to a slash or the end.
#[inline(always)]
pub(crate) fn first(path: &[u8], seed: u64) -> Name<'_> {
    let mut h = seed;
    let mut rest = path;
    loop {
        let (word, behind) = match rest.split_first_chunk::<8>() {
            Some((chunk, behind)) => (u64::from_le_bytes(*chunk), behind),
            // The end is as a slash.
            None => (tail(path, path.len() - rest.len()) | SLASHES << (8 * rest.len()), rest),
        };
        // A byte's top bit is set where the first slash is; above it, what is set means nothing.
        let x = word ^ SLASHES;
        let found = x.wrapping_sub(ONES) & !x & TOPS;
        if found == 0 {
            h = mix(h, word);
            rest = behind;
            continue;
        }
        // The lowest bit set, but for its own byte: the bytes before the slash.
        let last = word & ((found & found.wrapping_neg()) >> 7).wrapping_sub(1);
        let len = path.len() - rest.len() + (found.trailing_zeros() / 8) as usize;
        return Name { bytes: path.get(..len).unwrap_or(path), hash: mix(h ^ len as u64, last), last };
    }
}

/// The hash by which the table has the name in the directory at address `dir`.
#[inline(always)]
pub(crate) fn in_directory(name: u64, dir: usize) -> u32 {
    (mix(name, (dir as u64).rotate_right(4)) >> 16) as u32
}

/// `path` without the slashes at its head.
#[inline(always)]
pub(crate) fn skip_slashes(path: &[u8]) -> &[u8] {
    match path {
        [b'/', rest @ ..] if rest.first() != Some(&b'/') => rest,
        [b'/', rest @ ..] => skip_more(rest),
        _ => path,
    }
}

#[cold]
fn skip_more(mut path: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] = path {
        path = rest;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_out_and_hashed_as_if_alone() {
        for len in 0..40 {
            let name: Vec<u8> = (0..len).map(|i| b'a' + i as u8 % 26).collect();
            let alone = first(&name, 7);
            assert_eq!(alone.bytes, &name[..]);
            for behind in ["/", "/x", "//", "/abcdefgh", "/abcdefghijklmnopqr/st"] {
                let path = [&name[..], behind.as_bytes()].concat();
                let found = first(&path, 7);
                assert_eq!((found.bytes, found.hash, found.last), (&name[..], alone.hash, alone.last), "{len} {behind}");
            }
            let mut word = [0; 8];
            word[..len % 8].copy_from_slice(&name[len - len % 8..]);
            assert_eq!(alone.last, u64::from_le_bytes(word));
        }
    }

    #[test]
    fn all_bytes_may_be_in_a_name() {
        for b in (0..=255u8).filter(|&b| b != b'/') {
            for len in 1..20 {
                let name = vec![b; len];
                assert_eq!(first(&[&name[..], b"/."].concat(), 1).bytes, &name[..]);
            }
        }
    }

    #[test]
    fn hashes_differ() {
        let mut seen = std::collections::HashSet::new();
        for i in 0..20_000u32 {
            for name in [format!("{i}"), format!("file{i:06}.txt"), format!("\0{i}")] {
                assert!(seen.insert(first(name.as_bytes(), 3).hash), "{name}");
            }
        }
        let name = first(b"a", 1).hash;
        let spread: std::collections::HashSet<u32> = (0..4096).map(|i| in_directory(name, 0x7000_0000 + 48 * i) >> 20).collect();
        assert!(spread.len() > 2048, "{} of 4096 places", spread.len());
    }
}
