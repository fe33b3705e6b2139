#!/bin/bash
# Builds the software Metal device into a cache and prints the environment in
# which the host code of metal/ builds and runs on it:
#   eval "$(tests/metalsim/env.sh)" && go test -tags metalsim ./metal/
set -euo pipefail
src=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

clang=${MSLSIM_CLANG:-clang-19} clangxx=${MSLSIM_CXX:-clang++-19}
missing=""
command -v "$clang" >/dev/null && command -v "$clangxx" >/dev/null || missing="$missing clang-19"
gcclib=$(dirname "$(gcc -print-file-name=libobjc.so 2>/dev/null || echo .)")
[ -f "$gcclib/libobjc.so" ] || missing="$missing gobjc"
[ -f /usr/include/GNUstep/Foundation/Foundation.h ] || missing="$missing libgnustep-base-dev"
[ -f /usr/include/Block.h ] || missing="$missing libblocksruntime-dev"
if [ "$(uname -sm)" != "Linux x86_64" ]; then
	echo "metalsim: the software Metal device runs on Linux x86-64, not on $(uname -sm)" >&2
	exit 1
fi
if [ -n "$missing" ]; then
	echo "metalsim: missing (Debian packages):$missing" >&2
	exit 1
fi

objc="-fobjc-runtime=gcc -fblocks -fobjc-exceptions -fconstant-string-class=NSConstantString -D_NATIVE_OBJC_EXCEPTIONS"
flags="-O1 -g -fPIC -Wall -Wextra -Wno-unused-parameter -Werror -pthread $objc ${MSLSIM_DEVICE_FLAGS:-}"
cd "$src"
hash=$({
	find include msl rt mslgen device runner mslcc env.sh -type f ! -name '*_test.go' ! -path '*/testdata/*' -print0 | sort -z | xargs -0 cat
	find include msl rt mslgen device runner -type f | sort
	echo "$clang $flags $gcclib"
} | sha256sum | cut -c1-16)
home=${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster/metalsim/$hash

if [ ! -f "$home/complete" ]; then
	mkdir -p "$home"
	exec 9>"$home/lock"
	flock 9
	if [ ! -f "$home/complete" ]; then
		echo "metalsim: building the software device" >&2
		# The headers are copied, so that a change to them changes the paths in
		# the flags and with them the key in Go's build cache.
		cp -r include msl rt mslcc "$home/"
		(cd mslgen && CGO_ENABLED=0 go build -o "$home/mslgen" .)
		objs=""
		for m in device/*.m; do
			o=$home/$(basename "$m" .m).o
			# shellcheck disable=SC2086 # lists of flags
			"$clang" $flags -Iinclude -I/usr/include/GNUstep -isystem "$gcclib/include" -c "$m" -o "$o" >&2
			objs="$objs $o"
		done
		# libgnustep-base has a _Block_copy that copies nothing: BlocksRuntime
		# must precede it in symbol lookup everywhere.
		# shellcheck disable=SC2086
		"$clang" ${MSLSIM_DEVICE_FLAGS:-} -shared -o "$home/libmetalsim.so" $objs -L"$gcclib" -Wl,--no-as-needed \
			-lBlocksRuntime -lgnustep-base -lobjc -lpthread -ldl
		# Only gcc's runtime headers: its other headers do not work with clang.
		mkdir -p "$home/gcc" && ln -sfn "$gcclib/include/objc" "$home/gcc/objc"
		touch "$home/complete"
	fi
	flock -u 9
fi

say() { printf 'export %s=%q\n' "$1" "$2"; }
say CC "$clang"
say CGO_ENABLED 1
say CGO_CFLAGS "-O1 -g $objc -I$home/include -I/usr/include/GNUstep -isystem $home/gcc -Wno-unused-command-line-argument"
say CGO_LDFLAGS "-L$home -Wl,-rpath,$home -L$gcclib -Wl,--no-as-needed -lBlocksRuntime -lmetalsim -lgnustep-base -lobjc -lpthread -ldl"
say MSLSIM_HOME "$home"
say MSLSIM_CC "$home/mslcc"
say MSLSIM_STRICT "${MSLSIM_STRICT-1}"
