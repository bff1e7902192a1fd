//! Allocation: the bitmaps and counts of each extent against the objects that the roots reach.

use std::collections::BTreeSet;
use std::mem::offset_of;

use manyway_shm::layout::*;

use super::Seen;

/// Bytes of an object of each kind, from 1, as docs/segment.md lists them.
const SIZES: [u64; 15] = {
    let page = 4096;
    [page, 4 * page, 16 * page, 64 * page, 256 * page, 1023 * page, 2 * page, page, 64, 256, 1024, page, 4 * page, 16 * page, 64 * page]
};
const THREADS: usize = 7;
/// An extent that is left for the next one, and one whose taker died before it said for what: that costs address space only.
const NONE: usize = 0;
const TAKING: usize = 0xff;
const SMALLEST_RECORDS: usize = 9;

impl Seen<'_> {
    pub(super) fn look_at_objects(&mut self) {
        let a = self.arena;
        let extents = a.u32(offset_of!(Header, extents) as u64).min(a.u32(offset_of!(Header, extents_ready) as u64)).min(MAX_EXTENTS);
        let mut placed = 0;
        for e in 0..u64::from(extents) {
            let entry = a.u64(EXTENT_TABLE_AT + e * 8);
            let kind = (entry & 0xff) as usize;
            if [NONE, TAKING, THREADS].contains(&kind) {
                continue;
            }
            let Some(&size) = SIZES.get(kind - 1) else {
                self.expect(false, || format!("extent {e} is of kind {kind}"));
                continue;
            };
            let bitmap = if kind == SMALLEST_RECORDS { 2 * PAGE } else { PAGE };
            let (start, objects) = (EXTENTS_AT + e * EXTENT, (EXTENT - bitmap) / size);
            let mut reached = BTreeSet::new();
            let within: Vec<(u64, u64)> = self.used.range(start..start + EXTENT).map(|(a, n)| (*a, *n)).collect();
            for (at, bytes) in within {
                let off = (at - start).checked_sub(bitmap);
                let place = off.filter(|o| o % size == 0 && bytes <= size).map(|o| o / size).filter(|n| *n < objects);
                self.expect(place.is_some(), || format!("{bytes} bytes at {at:#x} are no object of extent {e}, whose objects have {size}"));
                reached.extend(place);
                placed += 1;
            }
            let marked: BTreeSet<u64> = (0..objects.div_ceil(64))
                .flat_map(|i| {
                    let w = a.u64(start + i * 8);
                    (0..64).filter(move |b| w >> b & 1 == 1).map(move |b| i * 64 + b)
                })
                .collect();
            self.same(&format!("extent {e} (kind {kind}): the objects in use"), &marked, &reached);
            self.same(&format!("extent {e} (kind {kind}): its free objects"), entry >> 8, objects - reached.len() as u64);
        }
        self.same("objects that lie in an extent of their kind", placed, self.used.len());
    }
}
