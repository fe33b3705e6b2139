#!/bin/sh
# Builds ringmaster and runs it with the given arguments in the current folder; without
# arguments it serves the built-in model on http://127.0.0.1:8080.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
(cd "$root" && scripts/prepare.sh && mkdir -p bin && go build -o bin/ringmaster ./cmd/server && go build -o bin/mkmodel ./cmd/mkmodel)
exec "$root/bin/ringmaster" "$@"
