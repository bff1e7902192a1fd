# What a developer does here; `just` alone lists it.

_list:
    @just --list --unsorted

# The whole test suite; what needs a program that is absent is reported as ignored
test *ARGS:
    cargo test {{ARGS}}

# The atomics that loom replaces come from crates/sync alone; the test kit is no part of what loom runs.
# Format, clippy without a warning, atomics only through crates/sync, dependencies as deny.toml wants them
lint:
    cargo fmt --all --check
    cargo clippy --all-targets -- --deny warnings
    cargo clippy --package manyway-preload -- --deny warnings
    ! grep -rnE '(core|std)::sync::atomic' crates/*/src | grep -vE '^crates/(sync|testkit)/'
    cargo deny check

# The memory-ordering edges of one crate under loom's scheduler: just loom sem
loom CRATE *ARGS:
    RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom cargo test --release --package manyway-{{CRATE}} --test 'loom*' {{ARGS}}

# One workload of the benchmarks, for example: just bench uncontended
bench *ARGS:
    cargo run --release -- bench {{ARGS}}

# All that must hold before a change is merged, as CI runs it
proof:
    bash .ci/run
