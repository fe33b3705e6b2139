#!/bin/bash
# replay.sh FOLDER: replays the dispatches in FOLDER under ThreadSanitizer, in
# the environment of env.sh. Exits with an error if a race was found.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${MSLSIM_HOME:?run tests/metalsim/env.sh first}
cxx=${MSLSIM_CXX:-clang++-19}
shopt -s nullglob
dumps=("$1"/*.dump)
[ ${#dumps[@]} -gt 0 ] || { echo "replay: no dispatches in $1" >&2; exit 1; }
[ -f "$("$cxx" -print-file-name=libclang_rt.tsan-x86_64.so)" ] || { echo "metalsim: missing (Debian packages): libclang-rt-19-dev" >&2; exit 1; }
flags="-fsanitize=thread -shared-libsan -g -O1"
rt=$(dirname "$("$cxx" -print-file-name=libclang_rt.tsan-x86_64.so)")
runner=$home/runner
# shellcheck disable=SC2086 # a list of flags
[ -x "$runner" ] || { "$cxx" -std=c++17 -Wall -Wextra $flags -Wl,-rpath,"$rt" "$here/runner.cpp" -o "$runner.$$" -ldl && mv "$runner.$$" "$runner"; }
"$runner" -l "${dumps[@]}" | while read -r base; do
	[ -f "$base.tsan.so" ] && continue
	# shellcheck disable=SC2086
	MSL_O=1 "$home/mslcc" "$base.$$.so" "$base.metal" "$base.h" $flags
	mv "$base.$$.so" "$base.tsan.so"
	rm -f "$base.$$.cpp"
done
TSAN_OPTIONS="exitcode=66 halt_on_error=0 ${TSAN_OPTIONS:-}" "$runner" "${dumps[@]}"
echo "replay: ${#dumps[@]} dispatches without a race"
