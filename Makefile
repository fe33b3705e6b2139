# Everything is a script or a go command; these are their short names.
# "make help" lists them.

.PHONY: help build install release test test-full race lint fmt generate bench bench-compare \
	metal-check metal-test metal-tsan metal-asan

help: # this list
	@sed -n 's/^\([a-z-]*\):[^#]*# /\1	/p' Makefile | expand -t 16

build: # bin/ringmaster and bin/mkmodel
	scripts/prepare.sh
	go build -trimpath -o bin/ringmaster ./cmd/server
	go build -trimpath -o bin/mkmodel ./cmd/mkmodel

install: # programs, manual pages, completions, documents, unit: PREFIX=/usr/local, DESTDIR=
	scripts/prepare.sh
	go build -trimpath -o bin/ringmaster ./cmd/server
	go build -trimpath -o bin/mkmodel ./cmd/mkmodel
	PREFIX='$(subst ','\'',$(PREFIX))' DESTDIR='$(subst ','\'',$(DESTDIR))' scripts/install.sh bin/ringmaster bin/mkmodel

release: # archives with checksums in dist/; with URL=, where they will lie, get.sh and a formula
	scripts/release.sh dist $(URL)

test: # most features once, in under 10 minutes on two cores
	scripts/test.sh

test-full: # what continuous integration runs
	scripts/test.sh --full

race: # the packages with goroutines under the race detector
	scripts/race.sh
	scripts/race-model.sh

lint: # format, vet, staticcheck, dead code, C warnings, other systems, the rules of the tree
	RINGMASTER_FULL=1 go test -count=1 -timeout 30m -tags full ./tests/lint

fmt: # gofmt, and clang-format for the lines of C, Objective-C and Metal changed since HEAD
	gofmt -w $$(git ls-files '*.go')
	scripts/format.sh

generate: # files that programs of this repository write
	go generate ./...

bench: # the benchmarks of the CPU kernels and of the transports
	go test -run xxx -bench . ./kernels/cpu ./distributed/tcp ./tests/mpi ./tests/rdma

bench-compare: # speed beside llama.cpp, in turns: make bench-compare [MODEL=F.gguf]
	scripts/bench-compare.sh $(MODEL)

metal-check: # shaders and host code of metal/, without running them
	scripts/metal-check.sh

metal-test: # metal/ on the software device, in several modes and orders
	scripts/metal-test.sh

metal-tsan: # dispatches of metal/'s tests under ThreadSanitizer
	scripts/metal-tsan.sh

metal-asan: # metal/'s tests with AddressSanitizer in the kernels
	scripts/metal-asan.sh
