#!/bin/sh
# Runs the full matrix of faults against clusters of real processes: every
# fault in every phase on 2 and 3 ranks, in network namespaces too (needs
# Linux and root; elsewhere these say NOT CHECKED). Takes some ten minutes,
# and shows what was measured. Arguments go to go test.
set -eu
cd "$(dirname "$0")/../.."
scripts/prepare.sh
RINGMASTER_FULL=all exec go test -count=1 -timeout 60m -v "$@" ./tests/cluster
