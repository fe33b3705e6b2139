#!/bin/sh
# Builds ringmaster and runs it with the given arguments; without arguments it
# serves the built-in model on http://127.0.0.1:8080.
set -eu
cd "$(dirname "$0")/.."
scripts/prepare.sh
mkdir -p bin
go build -o bin/ringmaster ./cmd/server
go build -o bin/mkmodel ./cmd/mkmodel
exec bin/ringmaster "$@"
