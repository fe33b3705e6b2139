#!/bin/sh
# Runs the tests of metal/ once, keeps some dispatches of each kernel, and
# replays them under ThreadSanitizer. Additional arguments go to go test.
#   MTLSIM_DUMP_EACH=2: how many dispatches of a kernel a test program keeps
set -eu
. "$(dirname "$0")/metal-env.sh"
MTLSIM_DUMP=$(mktemp -d)
trap 'rm -rf "$MTLSIM_DUMP"' EXIT
export MTLSIM_DUMP MTLSIM_DUMP_EACH="${MTLSIM_DUMP_EACH:-2}"
# shellcheck disable=SC2086 # a list of packages
go test -count=1 -tags metalsim -timeout 20m "$@" ${PACKAGES:-./kernels/gpu}
tests/metalsim/runner/replay.sh "$MTLSIM_DUMP"
