#!/bin/sh
# Makes release archives with checksums:
#
#   scripts/release.sh [OUT [URL]]       default is dist; URL is where the files will lie
#
# Linux for this machine's architecture, and for arm64 and amd64 where a cross compiler
# is installed (Debian: gcc-aarch64-linux-gnu, gcc-x86-64-linux-gnu). The kernels are C,
# so an archive without a compiler for its machine would have none. One for macOS needs
# Apple's SDK: run this on a Mac, where it makes that one.
#
# For each Linux there are two archives. The program of one is static and runs anywhere. That
# of the other (-rdma) loads the system's libibverbs or MPI, so it needs the C library of
# this machine, or a newer one.
#
# ARCHES names the architectures to make archives for, such as "amd64"; by default all.
#
# With URL it also writes get.sh, which installs, and a formula for Homebrew; both have the
# checksums of the archives.
set -eu
cd "$(dirname "$0")/.."
out=${1:-dist}
url=${2:-}
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
go build -trimpath -tags nomsgpack -o "$work/here" ./cmd/server

# archive NAME OS ARCH COMPILER FLAGS...: builds one archive; COMPILER is empty for the
# usual one.
archive() {
	name=$1 goos=$2 goarch=$3 cc=$4
	shift 4
	echo "building $name" >&2
	for program in ringmaster:server mkmodel:mkmodel; do
		env GOOS="$goos" GOARCH="$goarch" CGO_ENABLED=1 ${cc:+CC="$cc"} go build -trimpath "$@" -o "$work/${program%%:*}" "./cmd/${program#*:}"
	done
	system=Linux
	[ "$goos" != darwin ] || system=Darwin
	RUNNER=$work/here SYSTEM=$system DESTDIR=$work/$name PREFIX=/usr/local scripts/install.sh "$work/ringmaster" "$work/mkmodel"
	pack "$name"
}

# pack NAME: the folder of this name as NAME.tar.gz. The same source gives the same bytes,
# as far as this machine's tar can do that.
pack() {
	dir=$1
	set --
	if tar --version 2>/dev/null | grep -q GNU; then
		set -- --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH"
	fi
	tar -C "$work" "$@" -cf - "$dir" | gzip -n >"$out/$dir.tar.gz"
	made="$made $dir.tar.gz"
}

# linux ARCH COMPILER: both archives for Linux. netgo and osusergo: without C's resolver,
# which would load libraries.
linux() {
	archive "ringmaster-$version-linux-$1" linux "$1" "$2" -tags static,netgo,osusergo,nomsgpack -ldflags='-s -w -extldflags=-static'
	archive "ringmaster-$version-linux-$1-rdma" linux "$1" "$2" -tags nomsgpack -ldflags='-s -w'
}

# wanted ARCH: whether ARCHES has it.
wanted() { case " ${ARCHES:-$1} " in *" $1 "*) ;; *) return 1 ;; esac; }

made=""
if [ "$os" = linux ]; then
	wanted "$arch" && linux "$arch" ""
	for cross in arm64:aarch64-linux-gnu-gcc amd64:x86_64-linux-gnu-gcc; do
		if [ "${cross%%:*}" = "$arch" ] || ! wanted "${cross%%:*}"; then continue; fi
		if command -v "${cross#*:}" >/dev/null; then
			linux "${cross%%:*}" "${cross#*:}"
		else
			echo "NOT BUILT: linux ${cross%%:*}: ${cross#*:} is not installed" >&2
		fi
	done
	echo "NOT BUILT: darwin: needs Apple's SDK; run scripts/release.sh on a Mac" >&2
else
	archive "ringmaster-$version-$os-$arch" "$os" "$arch" "" -tags nomsgpack -ldflags='-s -w'
fi
mkdir "$work/ringmaster-$version-source"
git archive HEAD | tar -C "$work/ringmaster-$version-source" -xf -
pack "ringmaster-$version-source"

cd "$out"
sum="sha256sum"
command -v sha256sum >/dev/null || sum="shasum -a 256"
# shellcheck disable=SC2086 # the names have no spaces
$sum $made >SHA256SUMS
if [ -n "$url" ]; then
	plain=$(printf %s "${url%/}" | sed 's/[&|\\]/\\&/g') # for the right side of a substitution
	# The checksums take the place of a line of their own.
	for file in get.sh ringmaster.rb; do
		sed -e "s|@URL@|$plain|; s|@VERSION@|$version|; s|@SHA256@|$(sed -n 's/  .*-source.tar.gz$//p' SHA256SUMS)|" \
			-e '/^@SUMS@$/{' -e 'r SHA256SUMS' -e 'd' -e '}' "$OLDPWD/packaging/$file" >"$file"
	done
	chmod 755 get.sh
else
	echo "NOT MADE: get.sh and the formula, which name where the archives lie: scripts/release.sh OUT URL" >&2
fi
cat SHA256SUMS
