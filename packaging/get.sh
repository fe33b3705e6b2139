#!/bin/sh
# Installs Ringmaster @VERSION@ on Linux: it fetches the archive for this machine, compares
# its SHA-256 with the one below, and unpacks it.
#
#   sh get.sh          into /usr/local as root, else into ~/.local
#   PREFIX=/opt/ringmaster sh get.sh
#   RDMA=1 sh get.sh   the program that loads libibverbs or MPI; it needs a recent C library
set -eu
url='@URL@'
version='@VERSION@'
sums() {
	cat <<'END'
@SUMS@
END
}
fail() {
	echo "get.sh: $*" >&2
	exit 1
}
[ "$(uname -s)" = Linux ] || fail "there are programs for Linux only; on a Mac use the formula or build from source"
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "there is no program for $(uname -m); build from source" ;;
esac
if [ -n "${PREFIX:-}" ]; then
	prefix=$PREFIX
elif [ "$(id -u)" = 0 ]; then
	prefix=/usr/local
else
	prefix=$HOME/.local
fi
name=ringmaster-$version-linux-$arch${RDMA:+-rdma}
want=$(sums | sed -n "s/  $name.tar.gz\$//p")
[ -n "$want" ] || fail "this release has no $name.tar.gz"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
if command -v curl >/dev/null; then
	curl -fsSL --retry 3 -o "$work/a.tar.gz" "$url/$name.tar.gz" || fail "$url/$name.tar.gz cannot be fetched"
elif command -v wget >/dev/null; then
	wget -q -O "$work/a.tar.gz" "$url/$name.tar.gz" || fail "$url/$name.tar.gz cannot be fetched"
else
	fail "neither curl nor wget is installed"
fi
got=$(sha256sum "$work/a.tar.gz" | cut -d ' ' -f 1)
[ "$got" = "$want" ] || fail "$name.tar.gz has the SHA-256 $got, expected $want; nothing is installed"
tar -C "$work" -xzf "$work/a.tar.gz"
from=$work/$name/usr/local
# The unit names /usr/local/bin.
[ "$prefix" = /usr/local ] || rm -rf "$from/lib"
mkdir -p "$prefix"
# Removed first: a program that runs cannot be written to.
rm -f "$prefix/bin/ringmaster" "$prefix/bin/mkmodel"
cp -R "$from/." "$prefix/"
echo "installed $("$prefix/bin/ringmaster" --version) in $prefix"
case :$PATH: in
*:"$prefix/bin":*) echo "start it with: ringmaster" ;;
*) echo "start it with: $prefix/bin/ringmaster" ;;
esac
