//! What an arena holds at one moment, to be looked at, changed, told from others, and put back.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::ptr;

use nix::unistd::{Whence, lseek};

/// Bytes in a page.
pub const PAGE: usize = 4096;

type Page = Box<[u8; PAGE]>;

/// How much of the file is mapped: more than any test fills.
const MAPPED: usize = 1 << 30;

/// An arena's file, mapped to be read and written behind the engine's back. What it holds is read word by word: others may write it.
#[derive(Debug)]
pub struct Mapped {
    file: File,
    base: *mut u8,
}

impl Mapped {
    /// Maps the file.
    pub fn open(path: &Path) -> io::Result<Mapped> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), MAPPED, protection, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapped { file, base: base.cast() })
    }
    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn at<T>(&self, at: u64) -> *mut T {
        assert!(at as usize + size_of::<T>() <= MAPPED && (at as usize).is_multiple_of(align_of::<T>()), "offset {at:#x}");
        // SAFETY: in bounds of the mapping.
        unsafe { self.base.add(at as usize).cast() }
    }
    /// A word.
    pub fn u16(&self, at: u64) -> u16 {
        // SAFETY: mapped and aligned, by `at`; so in the following.
        unsafe { self.at::<u16>(at).read_volatile() }
    }
    /// A word.
    pub fn u32(&self, at: u64) -> u32 {
        // SAFETY: as above.
        unsafe { self.at::<u32>(at).read_volatile() }
    }
    /// A word.
    pub fn u64(&self, at: u64) -> u64 {
        // SAFETY: as above.
        unsafe { self.at::<u64>(at).read_volatile() }
    }
    /// Stores a word.
    pub fn put_u32(&self, at: u64, value: u32) {
        // SAFETY: as above.
        unsafe { self.at::<u32>(at).write_volatile(value) }
    }
    /// Stores a word.
    pub fn put_u64(&self, at: u64, value: u64) {
        // SAFETY: as above.
        unsafe { self.at::<u64>(at).write_volatile(value) }
    }
    /// Stores the low `size` bytes of a value.
    pub fn put(&self, at: u64, value: u64, size: usize) {
        assert!(size <= 8 && at as usize + size <= MAPPED);
        let bytes = value.to_le_bytes();
        // SAFETY: in bounds of the mapping.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at as usize), size) };
    }
    /// Where a word is in this mapping.
    pub fn pointer(&self, at: u64) -> *mut u64 {
        assert!((at as usize) < MAPPED);
        // SAFETY: in bounds of the mapping.
        unsafe { self.base.add(at as usize).cast() }
    }
    /// Where the mapping begins.
    pub fn address(&self) -> u64 {
        self.base.expose_provenance() as u64
    }
    fn page(&self, number: u32) -> *mut [u8; PAGE] {
        self.at::<u8>(number as u64 * PAGE as u64).cast()
    }

    /// The pages that are allocated.
    pub fn allocated(&self) -> impl Iterator<Item = u32> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let data = lseek(self.file.as_fd(), at, Whence::SeekData).ok()?;
            at = lseek(self.file.as_fd(), data, Whence::SeekHole).ok()?;
            Some((data / PAGE as i64) as u32..(at / PAGE as i64) as u32)
        })
        .flatten()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from the mapping.
        unsafe { libc::munmap(self.base.cast(), MAPPED) };
    }
}

/// The content of an arena. A page that is not there holds zeros, as one that is not allocated reads.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pages: BTreeMap<u32, Page>,
    hash: u128,
}

/// A share of an image's hash: of a word that is not 0 at an offset.
fn share(at: u64, word: u64) -> u128 {
    if word == 0 {
        return 0;
    }
    let fold = |a: u64, b: u64| {
        let p = u128::from(a) * u128::from(b);
        p as u64 ^ (p >> 64) as u64
    };
    let a = fold(at ^ 0x9e37_79b9_7f4a_7c15, word ^ 0xe703_7ed1_a0b4_28db);
    let b = fold(word ^ 0x8ebc_6af0_9c88_c6e3, at ^ 0x5896_34af_63c4_d1b5);
    let (a, b) = (fold(a ^ at, 0xd6e8_feb8_6659_fd93 ^ word), fold(b ^ word, 0xa076_1d64_78bd_642f ^ at));
    u128::from(a) << 64 | u128::from(b)
}

fn words(page: &[u8; PAGE]) -> impl Iterator<Item = (usize, u64)> + '_ {
    page.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes"))).enumerate().map(|(i, w)| (i * 8, w))
}

impl Image {
    /// What the arena holds now.
    pub fn of(arena: &Mapped) -> Image {
        let mut image = Image::default();
        for number in arena.allocated() {
            let mut page: Page = Box::new([0; PAGE]);
            // SAFETY: both are whole pages; the test sees to it that nobody writes meanwhile.
            unsafe { ptr::copy_nonoverlapping(arena.page(number), &raw mut *page, 1) };
            for (at, word) in words(&page) {
                image.hash ^= share(number as u64 * PAGE as u64 + at as u64, word);
            }
            image.pages.insert(number, page);
        }
        image
    }
    /// A number that tells images of different content apart.
    pub fn hash(&self) -> u128 {
        self.hash
    }
    /// The number of pages that were allocated.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Changes bytes.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let (mut at, mut bytes) = (at, bytes);
        while !bytes.is_empty() {
            let (number, within) = ((at / PAGE as u64) as u32, at as usize % PAGE);
            let n = bytes.len().min(PAGE - within);
            let page = self.pages.entry(number).or_insert_with(|| Box::new([0; PAGE]));
            let (first, end) = (within & !7, (within + n).next_multiple_of(8));
            let mut shares = |page: &[u8; PAGE]| {
                for w in (first..end).step_by(8) {
                    let word = u64::from_le_bytes(page[w..w + 8].try_into().expect("eight bytes"));
                    self.hash ^= share(number as u64 * PAGE as u64 + w as u64, word);
                }
            };
            shares(page);
            page[within..within + n].copy_from_slice(&bytes[..n]);
            shares(page);
            (at, bytes) = (at + n as u64, &bytes[n..]);
        }
    }
    /// Makes whole pages zero.
    pub fn punch(&mut self, at: u64, len: u64) {
        let (first, end) = ((at / PAGE as u64) as u32, ((at + len) / PAGE as u64) as u32);
        let gone: Vec<u32> = self.pages.range(first..end).map(|(&n, _)| n).collect();
        for number in gone {
            if let Some(page) = self.pages.remove(&number) {
                for (at, word) in words(&page) {
                    self.hash ^= share(number as u64 * PAGE as u64 + at as u64, word);
                }
            }
        }
    }
    /// Bytes of a word; it lies in one page.
    fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let within = at as usize % PAGE;
        self.pages.get(&((at / PAGE as u64) as u32)).map_or([0; N], |p| p[within..within + N].try_into().expect("within a page"))
    }
    /// A word.
    pub fn u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }
    /// A word.
    pub fn u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    /// Makes the arena hold this: writes what differs.
    pub fn put_back(&self, arena: &Mapped) {
        const ZEROS: [u8; PAGE] = [0; PAGE];
        let put = |number: u32, wanted: &[u8; PAGE]| {
            let page = arena.page(number);
            // SAFETY: whole pages; only this thread touches the arena now.
            unsafe {
                if *page != *wanted {
                    ptr::copy_nonoverlapping(wanted, page, 1);
                }
            }
        };
        for number in arena.allocated() {
            if !self.pages.contains_key(&number) {
                put(number, &ZEROS);
            }
        }
        for (&number, page) in &self.pages {
            put(number, page);
        }
    }

    /// The first offset at which the arena holds something else.
    pub fn differs(&self, arena: &Mapped) -> Option<u64> {
        let now = Image::of(arena);
        if now.hash == self.hash {
            return None;
        }
        let zeros: Page = Box::new([0; PAGE]);
        let numbers = self.pages.keys().chain(now.pages.keys());
        numbers
            .filter_map(|n| {
                let (a, b) = (self.pages.get(n).unwrap_or(&zeros), now.pages.get(n).unwrap_or(&zeros));
                let i = a.iter().zip(b.iter()).position(|(a, b)| a != b)?;
                Some(*n as u64 * PAGE as u64 + i as u64)
            })
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_content_not_history() {
        let mut a = Image::default();
        let empty = a.hash();
        a.write(4090, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let once = a.hash();
        assert_ne!(once, empty);
        a.write(4090, &[0; 9]);
        assert_eq!(a.hash(), empty);
        a.write(4091, &[2, 3]);
        a.write(4090, &[1]);
        a.write(4093, &[4, 5, 6, 7, 8, 9]);
        assert_eq!(a.hash(), once);
        a.punch(0, 2 * PAGE as u64);
        assert_eq!(a.hash(), empty);
    }
}
