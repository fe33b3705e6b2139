#!/bin/sh
# Passes every test: lint, unit and end-to-end tests, then the packages with
# goroutines again under the race detector. More arguments go to go test.
set -eu
cd "$(dirname "$0")/.."
scripts/prepare.sh tests
scripts/prepare.sh metal
go build ./...
go test -timeout 20m "$@" ./...
go test -race -timeout 15m "$@" ./distributed/... ./engine/... ./api/... ./gguf/... ./model/tokenizer/... ./model/prompt/... ./moe/... ./cmd/server/...
go test -race -timeout 10m "$@" -run 'OnAnyRanks|OverTCP|Epochs' ./model/deepseek4
scripts/arm64-test.sh
scripts/metal-check.sh
scripts/metal-test.sh "$@"
