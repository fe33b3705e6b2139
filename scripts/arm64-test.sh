#!/bin/sh
# Runs the tests of the CPU kernels for linux/arm64 under qemu-user, on three
# emulated processors: with int8 dot products and matrix products (max), with dot
# products only (neoverse-n1), and with neither, where the portable level runs
# (cortex-a72). Emulation is slow: only the first runs every type and op of the
# neon level, the others a selection of types.
set -eu
cd "$(dirname "$0")/.."
if [ "$(uname -s)" != Linux ] || [ "$(uname -m)" != x86_64 ]; then
	echo "NOT CHECKED: scripts/arm64-test.sh emulates arm64 on Linux x86-64 only; on arm64 go test runs these kernels natively" >&2
	exit 0
fi
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
	command -v "$tool" >/dev/null 2>&1 || {
		echo "NOT CHECKED: kernels for arm64: $tool is not installed (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user)" >&2
		exit 0
	}
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
CC=aarch64-linux-gnu-gcc CGO_ENABLED=1 GOARCH=arm64 go test -c -o "$dir/cpu.test" ./kernels/cpu

# Go's preemption by signals now and then hangs or breaks a program under qemu-user
# (golang.org/issue/36981, 70329). Without them goroutines yield at function calls.
export GODEBUG=asyncpreemptoff=1

# Of the tests below the full form: all levels of the table of ops.
export RINGMASTER_FULL=1

# emulate CPU TESTS SKIPPED runs tests; their output goes to the file $dir/CPU. A run
# that hangs is shown, with what its goroutines wait for, and tried once more: the emulator
# is known to hang, and the thread pool runs natively on x86-64 without a second try.
emulate() {
	for try in first second; do
		status=0
		(cd kernels/cpu && timeout -k 10 700 qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu "$1" "$dir/cpu.test" \
			-test.v -test.timeout 10m -test.run "$2" -test.skip "$3") >"$dir/$1" 2>&1 || status=$?
		[ "$status" -ne 0 ] || break
		tail -n 60 "$dir/$1"
		if [ "$try" = second ] || { [ "$status" -ne 124 ] && ! grep -q '^panic: test timed out' "$dir/$1"; }; then
			echo "FAILED on $1 with status $status" >&2
			return 1
		fi
		echo "arm64 as $1: hung in the first run, above; once more"
	done
	# For the summary of scripts/test.sh.
	[ -z "${TEST_RESULTS:-}" ] || go tool test2json -p ringmaster/kernels/cpu <"$dir/$1" >"$TEST_RESULTS/arm64-$1.json"
	echo "arm64 as $1: $(grep -c -- '--- PASS' "$dir/$1") tests passed"
}

few='TestLevelNames|TestNew|TestMatMulNotFinite|TestMatMulExactActivations'
emulate neoverse-n1 "$few|TestMatMulBitEquality" '/(Q4_0|Q4_1|Q5_0|Q5_1|IQ4_NL|Q5_K|IQ1_S|IQ1_M|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S)$' &
other=$!
emulate max "$few|TestMatMulBitEquality|TestMatMulExtremes|TestMatMulGrouped|TestOps$" 'TestOps/portable'
wait "$other"
emulate cortex-a72 "$few" 'none'
for machine in max neoverse-n1; do
	grep -q -- '--- PASS: TestMatMulNotFinite/neon' "$dir/$machine" || {
		echo "FAILED: the neon level did not run on $machine" >&2
		exit 1
	}
done
if grep -q 'TestMatMulNotFinite/neon' "$dir/cortex-a72"; then
	echo "FAILED: the neon level ran on a processor without dot products" >&2
	exit 1
fi
