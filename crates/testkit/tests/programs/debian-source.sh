#!/bin/sh
# debian-source.sh PACKAGE DIR PATTERN...
# Unpacks the files that match PATTERN from the source of the Debian package PACKAGE into the directory DIR. It asks the mirror that apt
# uses for this release, with lists of its own, so that apt's state stays as it is and any account will do.
set -eu

package=$1 dir=$2
shift 2
. /etc/os-release

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p lists/partial cache/archives/partial

# The release itself only: its updates and security archives need not have the sources of what they serve.
apt-get indextargets --format 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(SITE) $(RELEASE) main' \
    'Created-By: Packages' 'Component: main' 'Origin: Debian' "Codename: ${VERSION_CODENAME:-}" | sort -u >sources.list
test -s sources.list || { echo "apt has no lists of a Debian release; run apt-get update" >&2; exit 1; }

apt() {
    apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$work/lists" \
        -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=0 -o Acquire::http::Timeout=10 "$@"
}
apt update
apt source --download-only "$package"

for pattern; do
    found=no
    for archive in ./*.orig.tar.*[!c]; do # not the signatures, *.asc
        tar -xf "$archive" -C "$dir" --strip-components=1 --wildcards "$pattern" 2>/dev/null && found=yes
    done
    test $found = yes || { echo "the source of $package has no $pattern" >&2; exit 1; }
done
