#!/bin/sh
# Compares the answers of a cluster on this machine with those of one rank:
#
#	scripts/correctness.sh [--ranks 2] [--model F] [--reduce exact,sum] [-- flags of every rank]
#
# Prompts of 1, 130, 700 and 3000 tokens, 300 tokens of answer each. Exits with 1
# when they differ, and shows the first difference. --help tells the rest.
set -eu
cd "$(dirname "$0")/.."
scripts/prepare.sh
mkdir -p bin
go build -o bin/ringmaster ./cmd/server
go build -o bin/correctness ./tests/cluster/correctness
exec bin/correctness "$@"
