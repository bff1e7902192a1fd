//! Finding a function in the libraries that are loaded, without dlsym: until glibc 2.34 that was in a library of its own, which many
//! programs do not load.

use core::ffi::{CStr, c_char, c_int};

/// An entry of a dynamic section: tag, value.
type Dyn = [usize; 2];

/// The beginning of `struct link_map`: a loaded object, in the order in which symbols are looked for.
#[repr(C)]
pub(crate) struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const LinkMap,
}

/// The beginning of `struct r_debug`, by which debuggers, too, find the list.
#[repr(C)]
pub(crate) struct Debug {
    version: c_int,
    map: *const LinkMap,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// The address of the first function of this name in the objects after the one that has the dynamic section `own`; 0 for none.
///
/// # Safety
/// `debug` must be the dynamic linker's `_r_debug`, and no object may be unloaded meanwhile.
pub(crate) unsafe fn find_after(debug: *const Debug, own: *const Dyn, name: &CStr) -> usize {
    // SAFETY: the caller's promise: the list and what it leads to are valid.
    unsafe {
        let mut map = (*debug).map;
        let mut after = false;
        while let Some(object) = map.as_ref() {
            if after && let Some(address) = find_in(object, name) {
                return address;
            }
            after |= object.dynamic == own;
            map = object.next;
        }
    }
    0
}

/// Looks in one object's hash table (`DT_GNU_HASH`: counts, a Bloom filter that this does not need, buckets, chains).
///
/// # Safety
/// The object must be loaded.
unsafe fn find_in(object: &LinkMap, name: &CStr) -> Option<usize> {
    const DT_STRTAB: usize = 5;
    const DT_SYMTAB: usize = 6;
    const DT_GNU_HASH: usize = 0x6fff_fef5;
    const DT_VERSYM: usize = 0x6fff_fff0;
    const HIDDEN_VERSION: u16 = 0x8000;
    const FUNCTION: u8 = 2;

    let (mut hash, mut symbols, mut strings, mut versions) = (0, 0, 0, 0);
    let mut at = object.dynamic;
    // SAFETY: the caller's promise. All tables are mapped as long as the object; indices come from the tables themselves.
    unsafe {
        while (*at)[0] != 0 {
            // glibc has made these absolute, except in the vDSO.
            let address = if (*at)[1] < object.base { object.base + (*at)[1] } else { (*at)[1] };
            match (*at)[0] {
                DT_GNU_HASH => hash = address,
                DT_SYMTAB => symbols = address,
                DT_STRTAB => strings = address,
                DT_VERSYM => versions = address,
                _ => {}
            }
            at = at.add(1);
        }
        if hash == 0 || symbols == 0 || strings == 0 {
            return None;
        }
        let [buckets_n, first, filter_n, _] = *(hash as *const [u32; 4]);
        let buckets = (hash as *const u32).add(4 + 2 * filter_n as usize);
        let chains = buckets.add(buckets_n as usize);
        let wanted = gnu_hash(name);
        if buckets_n == 0 {
            return None;
        }
        let mut i = *buckets.add((wanted % buckets_n) as usize);
        if i < first {
            return None;
        }
        loop {
            let h = *chains.add((i - first) as usize);
            if h | 1 == wanted | 1 {
                let symbol = &*(symbols as *const Symbol).add(i as usize);
                let visible = versions == 0 || *(versions as *const u16).add(i as usize) & HIDDEN_VERSION == 0;
                let same = CStr::from_ptr((strings + symbol.name as usize) as *const c_char) == name;
                if same && visible && symbol.section != 0 && symbol.info & 15 == FUNCTION {
                    return Some(object.base.wrapping_add(symbol.value as usize));
                }
            }
            if h & 1 != 0 {
                return None;
            }
            i += 1;
        }
    }
}

/// The hash function of `DT_GNU_HASH`.
fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |h: u32, &b| h.wrapping_mul(33).wrapping_add(b.into()))
}
