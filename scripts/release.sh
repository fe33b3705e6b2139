#!/bin/sh
# Makes release archives with checksums:
#
#   scripts/release.sh [OUT]        default is dist
#
# Linux for this machine's architecture, and for arm64 and amd64 where a cross compiler
# is installed (Debian: gcc-aarch64-linux-gnu, gcc-x86-64-linux-gnu). The kernels are C,
# so an archive without a compiler for its machine would have none. One for macOS needs
# Apple's SDK: run this on a Mac, where it makes that one.
set -eu
cd "$(dirname "$0")/.."
out=${1:-dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
os=$(go env GOHOSTOS)
arch=$(go env GOHOSTARCH)
# What the pages and completions are made with: it must run here.
go build -trimpath -o "$work/here" ./cmd/server

# archive OS ARCH COMPILER: builds one archive; COMPILER is empty for the usual one.
archive() {
	name=ringmaster-$version-$1-$2
	echo "building $name" >&2
	env GOOS="$1" GOARCH="$2" CGO_ENABLED=1 ${3:+CC="$3"} go build -trimpath -ldflags="-s -w" -o "$work/ringmaster" ./cmd/server
	system=Linux
	[ "$1" != darwin ] || system=Darwin
	RUNNER=$work/here SYSTEM=$system DESTDIR=$work/$name PREFIX=/usr/local scripts/install.sh "$work/ringmaster"
	# The same source gives the same bytes, as far as this machine's tar can do that.
	set -- "$name"
	if tar --version 2>/dev/null | grep -q GNU; then
		set -- "$@" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH"
	fi
	dir=$1
	shift
	tar -C "$work" "$@" -cf - "$dir" | gzip -n >"$out/$dir.tar.gz"
	made="$made $dir.tar.gz"
}

made=""
archive "$os" "$arch" ""
if [ "$os" = linux ]; then
	for cross in arm64:aarch64-linux-gnu-gcc amd64:x86_64-linux-gnu-gcc; do
		[ "${cross%%:*}" != "$arch" ] || continue
		if command -v "${cross#*:}" >/dev/null; then
			archive linux "${cross%%:*}" "${cross#*:}"
		else
			echo "NOT BUILT: linux ${cross%%:*}: ${cross#*:} is not installed" >&2
		fi
	done
	echo "NOT BUILT: darwin: needs Apple's SDK; run scripts/release.sh on a Mac" >&2
fi
cd "$out"
sum="sha256sum"
command -v sha256sum >/dev/null || sum="shasum -a 256"
# shellcheck disable=SC2086 # the names have no spaces
$sum $made >SHA256SUMS
cat SHA256SUMS
