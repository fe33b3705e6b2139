#!/bin/sh
# Runs the tests of metal/ and kernels/gpu/ on the software device, in lazy mode with seed 0 and
# in async mode with 1, and the tests of whole models once; JOBS of these runs at a time. With
# MODES or SEEDS every mode is run with every seed:
#   MODES="lazy async"  SEEDS="0 1 2 3"  PACKAGES="./metal/... ./kernels/gpu/..."  MODELS="./tests/metal/..."  JOBS=2
# An empty MODELS leaves the whole models out. Arguments go to go test:
#   SEEDS=1 MODELS= scripts/metal-test.sh -run TestMatMul
# A run without a single test is a failure. Where the software device cannot run
# the script only warns, unless METAL_REQUIRED=1 makes that a failure too.
set -eu
. "$(dirname "$0")/metal-env.sh"
packages=${PACKAGES:-./metal/... ./kernels/gpu/...}
models=${MODELS-./tests/metal/...}
# Gin's MessagePack, which no one here speaks, takes long to compile.
tags=metalsim,nomsgpack
# shellcheck disable=SC2086 # lists of packages
# Addresses that the host code returns are not Go pointers.
go vet -unsafeptr=false -tags "$tags" $packages $models
LOGS=$(mktemp -d)
trap 'rm -rf "$LOGS"' EXIT
ARGS=$*
export LOGS ARGS tags
{
	for p in $models; do echo "lazy 1 $p"; done
	for seed in ${SEEDS:-0 1 2 3}; do
		for mode in ${MODES:-lazy async}; do
			[ -n "${MODES:-}${SEEDS:-}" ] || case $mode$seed in
			lazy0 | async1) ;;
			*) continue ;;
			esac
			for p in $packages; do echo "$mode $seed $p"; done
		done
	done
} | xargs -P "${JOBS:-2}" -n 3 sh -c '
	log=$LOGS/$$
	[ -z "${TEST_RESULTS:-}" ] || ARGS="-json $ARGS"
	# The cache of test results ignores variables that C code reads: -count=1.
	if MTLSIM_MODE=$1 MTLSIM_SEED=$2 go test -count=1 -vet=off -tags "$tags" -timeout 15m $ARGS "$3" >"$log" 2>&1; then
		echo "metal-test: mode $1, seed $2: passed $3"
		grep -q "no tests to run\|no test files" "$log" || : >"$LOGS/checked"
	else
		echo "metal-test: FAILED in mode $1, seed $2:"
		cat "$log"
		exit 1
	fi
	# For the summary of scripts/test.sh.
	[ -z "${TEST_RESULTS:-}" ] || cp "$log" "$TEST_RESULTS/metal-test-$1-$2-$$.json"' job
[ -f "$LOGS/checked" ] || {
	echo "FAILED: metal-test ran no test: NOTHING WAS CHECKED" >&2
	exit 1
}
