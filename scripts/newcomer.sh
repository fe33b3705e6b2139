#!/bin/sh
# Tries what a new user does: a fresh Debian 12 in a chroot, what README.md says is needed,
# a clone of the last commit of this repository, a build, a first question, and a verified
# cluster of three ranks with keys, TLS, pages and metrics, by the commands of README.md and
# docs/operations.md (tests/commands/newcomer_test.go).
#
#   scripts/newcomer.sh FOLDER
#
# FOLDER must not exist; it is removed in the end. It needs Linux, root, debootstrap, Go,
# 4 GB, and the network: a Debian mirror and Go's modules. Exit codes: 0 all worked; 1 a
# step failed; 2 it cannot be tried here.
set -eu
cannot() {
	echo "newcomer: NOT CHECKED: $*" >&2
	exit 2
}
[ $# = 1 ] || cannot "give a folder that does not exist: scripts/newcomer.sh FOLDER"
[ ! -e "$1" ] || cannot "$1 is there already"
[ "$(uname -s)" = Linux ] || cannot "it needs Linux"
[ "$(id -u)" = 0 ] || cannot "it makes a system in a chroot, which needs root"
for tool in debootstrap unshare chroot git go; do
	command -v $tool >/dev/null || cannot "$tool is missing"
done
folder=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/.."
exec go test ./tests/commands -count 1 -timeout 3h -run '^TestNewcomer$' -v -args -newcomer "$folder"
