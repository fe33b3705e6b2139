#!/bin/sh
# Runs the tests and sums them up.
#
#   scripts/test.sh          most features once, in under 10 minutes on two cores
#   scripts/test.sh --full   also the linters, other compilers, sanitizers, the race
#                            detector, arm64 under emulation, the software Metal device,
#                            a guest with soft-RoCE, programs from npm, and more shapes,
#                            seeds and faults
#
# --allow FILE makes a skipped test a failure unless FILE allows it (see tests/report).
# Further arguments go to go test. The last line is "N passed, N failed, N skipped"; the
# lines above it say why tests were skipped. Campaigns, which run every combination of
# something for up to hours, are run by hand (docs/testing.md).
set -eu
cd "$(dirname "$0")/.."

full=""
allow=""
while [ $# -gt 0 ]; do
	case $1 in
	--full) full=1 ;;
	--all)
		echo "test.sh: there is no --all; every combination of something is a campaign, run by hand: go test ./PACKAGE -run TEST -exhaustive" >&2
		exit 2
		;;
	--allow)
		allow=$2
		shift
		;;
	*) break ;;
	esac
	shift
done

# Without debug information compiling C takes 0.6 of the time and linking a test a third.
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g0}"
# Gin without MessagePack, which no one here speaks, and in the full form the clients written
# in Go and what checks types for other systems: all of it takes long to compile.
tags=nomsgpack
[ -z "$full" ] || tags=$tags,full
export GOFLAGS="${GOFLAGS:-} -ldflags=-w -tags=$tags"
if [ -n "$full" ]; then
	# Release archives, which tests/install makes, are built with it: both share the build cache.
	export GOFLAGS="$GOFLAGS -trimpath"
	# Go compiles C again for static builds and for the race detector, with another random seed
	# and nothing else changed. The seed has no effect on C.
	export PATH="/usr/lib/ccache:$PATH" CCACHE_SLOPPINESS=random_seed
fi

chosen="$*"
TEST_RESULTS=$(mktemp -d) # read by the scripts that run tests on their own
export TEST_RESULTS
report=$TEST_RESULTS/report
status=0
# The summary is printed even if something ends the script.
finish() {
	[ $? -eq 0 ] || status=1
	trap - EXIT
	if [ -x "$report" ]; then
		"$report" -dir "$TEST_RESULTS" -summary ${allow:+-allow "$allow"} || status=1
	else
		status=1
		echo "0 passed, 1 failed, 0 skipped"
	fi
	rm -rf "$TEST_RESULTS"
	exit "$status"
}
# stage NAME LEAST COMMAND... runs one part of the tests; later parts run even if it
# fails. It fails if fewer than LEAST functions of test files passed: about nine tenths of
# what there is, so that tests that vanish are noticed. Arguments of a person choose some.
stage() {
	name=$1 least=$2
	shift 2
	[ -z "$chosen" ] || least=0
	echo "== $name"
	"$report" -dir "$TEST_RESULTS" -stage "$name" -least "$least" "$@" || status=1
}

trap finish EXIT
trap 'exit 1' INT TERM
if [ -n "$full" ]; then scripts/prepare.sh full; else scripts/prepare.sh tests; fi
go build -o "$report" ./tests/report
export RINGMASTER_FULL="$full"
go build ./...
# The program that tests start is linked once for all packages (internal/testenv).
go build -o "$TEST_RESULTS/ringmaster" ./cmd/server && export TEST_PROGRAM="$TEST_RESULTS/ringmaster"
# tests/lint vets everything in the full form. The packages that take longest start first, so
# that none is left alone at the end, and one package more than there are processors runs at a
# time, because those of ranks mostly wait.
first="./tests/cluster ./tests/rdmavm ./tests/rdma ./tests/install ./cmd/server ./tests/lint ./tests/golden ./tests/llamacpp ./tests/reuse ./tests/mpi"
at_once=$(($(getconf _NPROCESSORS_ONLN) + 1))
if [ -z "$full" ]; then
	# shellcheck disable=SC2086 # a list of packages
	stage tests 1150 go test -json -vet=off -timeout 30m -p "$at_once" "$@" $first ./...
	echo "NOT CHECKED: the race detector, arm64, and the kernels and models on the software Metal device (scripts/metal-test.sh alone: some minutes) run with scripts/test.sh --full" >"$TEST_RESULTS/rest.json"
	exit
fi
# shellcheck disable=SC2086 # a list of packages
stage tests 1300 go test -json -vet=off -timeout 30m -p "$at_once" "$@" $first ./...
stage metal-test 80 scripts/metal-test.sh "$@"
# These have run already: here their fast form runs under the race detector and under the
# emulator.
export RINGMASTER_FULL=""
stage race 800 scripts/race.sh -json "$@"
stage model-race 2 scripts/race-model.sh -json "$@"
stage arm64 15 scripts/arm64-test.sh
