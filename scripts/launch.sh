#!/bin/sh
# Builds ringmaster and starts a group: see ringmaster launch --help. On other hosts it
# starts the program that is installed there, or that of --binary.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
(cd "$root" && scripts/prepare.sh && mkdir -p bin && go build -o bin/ringmaster ./cmd/server)
exec "$root/bin/ringmaster" launch "$@"
