# What a developer does here; `just` alone lists it.

_list:
    @just --list --unsorted

# The whole test suite; what needs a program that is absent is reported as ignored
test *ARGS:
    cargo test {{ARGS}}

# Clippy without a warning, atomics only through crates/sync, dependencies as deny.toml wants them
lint:
    cargo clippy --workspace --all-targets -- --deny warnings
    ! grep -rnE '(core|std)::sync::atomic' crates --include='*.rs' | grep -v '^crates/sync/'
    cargo deny check

# Every named memory-ordering edge under loom's scheduler
loom *ARGS:
    RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom cargo test --release --package manyway-sync --package manyway-shm --package manyway-sem {{ARGS}}

# One workload of the benchmarks, for example: just bench uncontended
bench *ARGS:
    cargo run --release -- bench {{ARGS}}

# All that must hold before a change is merged, as CI runs it
proof:
    bash .ci/run
