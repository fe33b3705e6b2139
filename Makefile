# Everything is a script; these are their short names.

.PHONY: test bench-compare metal-check metal-test metal-tsan metal-asan

test: # all tests
	scripts/test.sh

metal-check: # shaders and host code of metal/, without running them
	scripts/metal-check.sh

metal-test: # metal/ on the software device, in several modes and orders
	scripts/metal-test.sh

metal-tsan: # dispatches of metal/'s tests under ThreadSanitizer
	scripts/metal-tsan.sh

metal-asan: # metal/'s tests with AddressSanitizer in the kernels
	scripts/metal-asan.sh

bench-compare: # speed beside llama.cpp, in turns: make bench-compare [MODEL=F.gguf]
	scripts/bench-compare.sh $(MODEL)
