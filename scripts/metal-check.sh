#!/bin/sh
# Checks the Metal backend without running it: every shader library with the
# lints and strict address spaces, the host code for macOS on arm64, and both
# against the list of what is in Apple's API.
set -eu
. "$(dirname "$0")/metal-env.sh"
exec go test -timeout 5m -run '^(TestHeader|TestHostSyntax|TestHostSelectors|TestShaders)$' "$@" ./tests/metalsim
