#!/bin/sh
# Runs the tests and sums them up.
#
#   scripts/test.sh          most features once, in under 10 minutes on two cores
#   scripts/test.sh --full   also the linters, other compilers, sanitizers, the race
#                            detector, arm64 under emulation, the software Metal device,
#                            a guest with soft-RoCE, programs from npm, RDMA as on other
#                            versions of macOS, and more shapes, seeds and faults
#   scripts/test.sh --all    also every combination: hours
#
# --allow FILE makes a skipped test a failure unless FILE allows its reason (see
# tests/report). Further arguments go to go test. The last line is
# "N passed, N failed, N skipped"; the lines above it say why tests were skipped.
set -eu
cd "$(dirname "$0")/.."

full=""
allow=""
while [ $# -gt 0 ]; do
	case $1 in
	--full) full=1 ;;
	--all) full=all ;;
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
# Gin without MessagePack, which nobody here speaks, and in the full form the clients written
# in Go and what checks types for other systems: all of it takes long to compile.
tags=nomsgpack
[ -z "$full" ] || tags=$tags,full
export GOFLAGS="${GOFLAGS:-} -ldflags=-w -tags=$tags"
if [ -n "$full" ]; then
	# Release archives, which tests/install makes, are built with it: both share the build cache.
	export GOFLAGS="$GOFLAGS -trimpath"
fi

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
# stage NAME COMMAND... runs one part of the tests; later parts run even if it
# fails.
stage() {
	name=$1
	shift
	echo "== $name"
	"$report" -dir "$TEST_RESULTS" -stage "$name" "$@" || status=1
}

trap finish EXIT
trap 'exit 1' INT TERM
if [ -n "$full" ]; then scripts/prepare.sh full; else scripts/prepare.sh tests; fi
go build -o "$report" ./tests/report
export RINGMASTER_FULL="$full"
stage build go build ./...
# The program that tests start is linked once for all packages (internal/testenv).
go build -o "$TEST_RESULTS/ringmaster" ./cmd/server && export TEST_PROGRAM="$TEST_RESULTS/ringmaster"
# tests/lint vets everything in the full form. In the fast one the packages that wait most,
# for deadlines of ranks, go first, and one package more than processors is under way.
first="" more=""
if [ -z "$full" ]; then
	first="./tests/rdma ./tests/mpi ./tests/cluster"
	more="-p $(($(getconf _NPROCESSORS_ONLN) + 1))"
fi
# shellcheck disable=SC2086 # lists
stage tests go test -json -vet=off -timeout 30m $more "$@" $first ./...
if [ -z "$full" ]; then
	stage rest echo "NOT CHECKED: the race detector, arm64, tests/rdma on macOS 26.2 and 27.0, and the kernels and models on the software Metal device (scripts/metal-test.sh alone: some minutes) run with scripts/test.sh --full"
	exit
fi
stage metal-test scripts/metal-test.sh "$@"
# These have run already; here their fast form runs on other versions of Apple's
# RDMA (26.3 was above; what chooses its version or has no part in it is left out),
# under the race detector and under the emulator.
export RINGMASTER_FULL=""
for version in 26.2 27.0; do
	stage "rdma-$version" env FAKEVERBS_PROFILE=$version go test -json -vet=off -timeout 20m -skip 'TestProfiles|TestKilledMember|TestContract/.*(macOS|helper)' "$@" ./tests/rdma
done
# Left out: long computations of one goroutine, and groups of more than four ranks.
serial='TestEveryOperationGivesTheReference|TestPlan(Presets|Predicts|Table|sAtTheBoundaries)|TestBoundarySizes|LongTexts|TestEncodeMemory|TestCutCalls|TestHugeSchemas|TestBodyMemory'
stage race go test -json -vet=off -race -timeout 20m -skip "$serial|Test(Contract|Split)/.*ranks=[5-8]" "$@" ./distributed/... ./engine/... ./replica/... ./parallel/... ./pull/... ./fanout ./api/... ./internal/reload ./gguf/... \
	./model/tokenizer/... ./model/chat/... ./constraint/... ./model/snapshot/... ./moe/... ./cmd/server/...
stage race-model go test -json -vet=off -race -timeout 10m "$@" -run 'OnAnyRanks|OverTCP|Epochs' ./model/deepseek4 ./model/deepseek2
stage arm64 scripts/arm64-test.sh
