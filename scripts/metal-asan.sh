#!/bin/sh
# Runs the tests of metal/ with AddressSanitizer in the kernels: an access
# beyond a buffer or beyond threadgroup memory is reported with its line.
# Additional arguments go to go test.
set -eu
. "$(dirname "$0")/metal-env.sh"
lib=$(clang++-19 -print-file-name=libclang_rt.asan-x86_64.so)
if [ ! -f "$lib" ]; then
	echo "metal-asan: missing (Debian packages): libclang-rt-19-dev" >&2
	exit 1
fi
test=$(mktemp)
trap 'rm -f "$test"' EXIT
go test -c -tags metalsim -o "$test" ./kernels/gpu
cd kernels/gpu
# Only the test program preloads the library, not the tools that build it.
LD_PRELOAD=$lib ASAN_OPTIONS="detect_leaks=0 ${ASAN_OPTIONS:-}" PATH="$PATH:/usr/lib/llvm-19/bin" \
	MSLSIM_FLAGS="-fsanitize=address -g -shared-libsan" "$test" -test.timeout 20m "$@"
