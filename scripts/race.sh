#!/bin/sh
# Runs the fast form of the packages with goroutines under the race detector. Left out are
# long computations of one goroutine, and groups of more than four ranks. Arguments go to
# go test.
set -eu
cd "$(dirname "$0")/.."
serial='TestEveryOperationGivesTheReference|TestPlan(Presets|Predicts|Table|CountsWaits|sAtTheBoundaries)|TestBoundarySizes|LongTexts|TestEncodeMemory|TestCutCalls|TestHugeSchemas|TestHostileSchemasAreBounded|TestCostlySchemas|TestBodyMemory|TestPolicy|TestWithinTheBounds|TestAmplification'
exec go test -race -vet=off -timeout 20m -skip "$serial|Test(Contract|Split)/.*ranks=[5-8]" "$@" ./distributed/... ./engine/... ./replica/... ./parallel/... \
	./internal/pull/... ./internal/fanout ./api/... ./internal/reload ./gguf/... ./model/tokenizer/... ./model/chat/... ./constraint/... ./model/snapshot/... ./moe/... \
	./cmd/server ./node ./groupplan ./internal/server ./internal/host ./internal/program ./internal/chatclient ./internal/doctor ./internal/verify ./internal/traces ./internal/progress ./internal/logits ./internal/bench ./internal/subprocess ./internal/pairing ./internal/gather ./internal/discovery
