//! What the tests share: the reference, programs, the judge of histories, the store.
#![allow(dead_code, reason = "each test uses its part")]

pub mod doing;
pub mod fs;
pub mod history;
pub mod low;
pub mod program;
pub mod small;
pub mod spec;
pub mod store;
pub mod subject;

/// A number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v}: not a number")))
}

/// `1234567` as `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}
