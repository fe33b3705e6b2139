#!/bin/sh
# Runs the full matrix of faults against clusters of real processes: every fault in
# every phase on 2 and 3 ranks, also in network namespaces (on Linux as root; elsewhere
# these tests say NOT CHECKED). Takes about ten minutes and shows the measured times.
# Arguments are passed to go test.
set -eu
cd "$(dirname "$0")/../.."
scripts/prepare.sh
exec go test -count=1 -timeout 60m -v ./tests/cluster -exhaustive "$@"
