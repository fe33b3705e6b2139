#!/bin/sh
# Runs the tests of every architecture on groups of ranks under the race detector.
# Arguments go to go test.
set -eu
cd "$(dirname "$0")/.."
exec go test -race -vet=off -timeout 10m -run '^TestOnRanks$' "$@" ./model/deepseek4 ./model/deepseek41 ./model/deepseek2
