#!/bin/sh
# Passes the tests of metal/ on the software device in every mode and order, the
# modes beside each other, and then those of whole models once.
#   MODES="lazy async"  SEEDS="0 1 2 3"  PACKAGES="./metal/..."  MODELS="./tests/metal/..."
# An empty MODELS leaves these out. More arguments go to go test:
#   SEEDS=1 MODELS= scripts/metal-test.sh -run TestMatMul
set -eu
. "$(dirname "$0")/metal-env.sh"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# shellcheck disable=SC2086 # a list of packages
go vet -tags metalsim ${PACKAGES:-./metal/...}
failed=""
for seed in ${SEEDS:-0 1 2 3}; do
	for mode in ${MODES:-lazy async}; do
		# Go's cache of results knows nothing of variables that C reads: -count=1.
		# shellcheck disable=SC2086
		(MTLSIM_MODE=$mode MTLSIM_SEED=$seed go test -count=1 -tags metalsim -timeout 15m "$@" ${PACKAGES:-./metal/...} \
			>"$logs/$mode" 2>&1 || echo failed >"$logs/$mode.failed") &
	done
	wait
	for mode in ${MODES:-lazy async}; do
		echo "metal-test: mode $mode, seed $seed"
		cat "$logs/$mode"
		[ ! -f "$logs/$mode.failed" ] || failed="$failed $mode/$seed"
		rm -f "$logs/$mode.failed"
	done
done
for models in ${MODELS-./tests/metal/...}; do
	MTLSIM_MODE=lazy MTLSIM_SEED=1 go test -count=1 -tags metalsim -timeout 15m "$@" "$models" || failed="$failed models"
done
if [ -n "$failed" ]; then
	echo "metal-test: failed:$failed" >&2
	exit 1
fi
