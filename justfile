# What a developer does here; `just` alone lists it.

_list:
    @just --list --unsorted

# The whole test suite; what needs a program that is absent is reported as ignored
test *ARGS:
    cargo test {{ARGS}}

# The atomics that loom replaces come from crates/sync alone; the test kit and the benchmarks are no part of what loom runs.
# Format, clippy without a warning, atomics only through crates/sync, dependencies as deny.toml wants them
lint:
    cargo fmt --all --check
    cargo clippy --all-targets -- --deny warnings
    cargo clippy --package manyway-preload -- --deny warnings
    ! grep -rnE '(core|std)::sync::atomic' crates/*/src | grep -vE '^crates/(sync|testkit|bench)/'
    cargo deny check

# The memory-ordering edges of one crate under loom's scheduler: just loom sem
loom CRATE *ARGS:
    RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom cargo test --release --package manyway-{{CRATE}} --test 'loom*' {{ARGS}}

# One workload of the benchmarks, for example: just bench uncontended
bench *ARGS:
    cargo run --release -- bench {{ARGS}}

# All that must hold before a change is merged, on a machine that may be changed: installs Debian packages
ci:
    bash .ci/run

# The whole engine in a simulated machine, at random: just shuttle; MANYWAY_SHUTTLE_ITERATIONS, MANYWAY_SHUTTLE_SEED
shuttle *ARGS:
    RUSTFLAGS='--cfg shuttle' CARGO_TARGET_DIR=target/shuttle cargo test --release --package manyway-sem --test shuttle {{ARGS}}

# The engine broken in one way after another, each to be found by the test named for it: just mutations [loom|shuttle|test|NAME...]
mutations *ARGS:
    cargo run --package manyway-testkit --example mutations -- {{ARGS}}

# Debian package, wheel and cargo install: built, installed and used; `just packages build` only builds
packages *ARGS:
    bash .ci/packages {{ARGS}}

# Built for aarch64, and run under qemu-user where that can do it
aarch64:
    bash .ci/aarch64

# Fifty ordinary programs, without Manyway and with it
everyday *ARGS:
    MANYWAY_EVERYDAY=all cargo test --package manyway-testkit --test everyday {{ARGS}}

# That nothing is lost, whoever dies and whatever they write: states, kills, signals, storms, hostile writers, schedules, mutations, and what the dentry cache answers
proof:
    bash .ci/proof

# The same in full: hours
proof-full:
    bash .ci/proof full
