//! What the C library's allocator has given out, its own overhead included.
#![allow(unsafe_code)]

/// Bytes in use; None where the C library does not tell.
#[cfg(target_env = "gnu")]
pub fn in_use() -> Option<u64> {
    // SAFETY: has no conditions.
    let info = unsafe { libc::mallinfo2() };
    // Pieces with their headers, of all arenas, and what was mapped because it is large.
    Some(info.uordblks as u64 + info.hblkhd as u64)
}

#[cfg(not(target_env = "gnu"))]
pub fn in_use() -> Option<u64> {
    None
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    #[test]
    fn a_piece_counts_with_its_header_and_a_large_one_too() {
        let before = super::in_use().unwrap();
        let small: Vec<Box<[u8; 40]>> = (0..1000).map(|_| Box::new([1; 40])).collect();
        let large = vec![1u8; 8 << 20];
        let grown = super::in_use().unwrap() - before;
        // 48 for each of 40, and 8 for each pointer. Other tests allocate at the same time, by far less than the margin.
        let least = 1000 * (48 + 8) + large.len() as u64;
        assert!((least..least + (1 << 20)).contains(&grown), "{grown}, {} pieces", small.len());
    }
}
