#!/bin/sh
# Compares the answers of a cluster on this host with those of one rank:
#
#	scripts/correctness.sh [--ranks 2] [--model F] [--reduce exact,sum] [-- flags of every rank]
#
# Prompts of 1, 130, 700 and 3000 tokens, answers of 300 tokens. Exits with code 1 if
# they differ, and shows the first difference. See --help for more.
set -eu
cd "$(dirname "$0")/.."
scripts/prepare.sh
mkdir -p bin
go build -o bin/ringmaster ./cmd/server
go build -o bin/correctness ./tests/cluster/correctness
exec bin/correctness "$@"
