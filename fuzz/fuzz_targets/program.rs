//! See `manyway_testkit::fuzz::program`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    manyway_testkit::fuzz::program(input);
});
