#!/bin/sh
# postgres-sysv.sh DIR
# Builds Debian's PostgreSQL source with System V semaphores instead of POSIX ones and installs it into DIR, for the case postgres_sysv:
# MANYWAY_POSTGRES=DIR MANYWAY_EVERYDAY=all cargo test -p manyway-testkit --test everyday -- postgres_sysv
# Needs gcc, make and bison, flex, perl as far as the source wants them; some minutes.
set -eu
package=${PACKAGE:-postgresql-15} here=$(dirname "$(realpath "$0")") dir=$(realpath -m "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source" "$work/build"
sh "$here/../programs/debian-source.sh" "$package" "$work/source" '*'
cd "$work/build"
PREFERRED_SEMAPHORES=SYSV "$work/source/configure" --prefix="$dir" --without-readline --without-zlib --without-icu
grep -q 'define USE_SYSV_SEMAPHORES 1' src/include/pg_config.h
make -s -j"$(nproc)" -C src/backend generated-headers
for part in common port timezone backend interfaces/libpq fe_utils bin/initdb bin/pg_ctl bin/psql bin/pgbench pl/plpgsql/src \
    backend/utils/mb/conversion_procs backend/snowball; do
    make -s -j"$(nproc)" -C src/$part install
done
