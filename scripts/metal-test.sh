#!/bin/sh
# Passes the tests of metal/ on the software device, in every mode and order.
#   MODES="lazy async"  SEEDS="0 1 2 3"  PACKAGES="./metal/..."
# More arguments go to go test: scripts/metal-test.sh -run TestMatMul
set -eu
. "$(dirname "$0")/metal-env.sh"
for seed in ${SEEDS:-0 1 2 3}; do
	for mode in ${MODES:-lazy async}; do
		echo "metal-test: mode $mode, seed $seed"
		# shellcheck disable=SC2086 # a list of packages
		MTLSIM_MODE=$mode MTLSIM_SEED=$seed go test -tags metalsim -timeout 10m "$@" ${PACKAGES:-./metal/...}
	done
done
