#!/bin/sh
# Sees to what building needs: Go and a C compiler, with "tests" also what the
# tests need, and with "metal" what the software Metal device needs. On Debian and its kin missing packages are installed with
# apt-get (as root or through sudo); elsewhere what is missing is named.
set -eu

missing=""
need() { # need COMMAND DEBIAN-PACKAGES
	command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

need gcc "gcc libc6-dev"
if [ "${1:-}" = tests ]; then
	need git git
	need node nodejs
	need npm npm
	if [ "$(uname -s)" = Linux ]; then
		need mpirun "openmpi-bin libopenmpi-dev" # jobs of the MPI transport
		need ip iproute2 # links that are cut and slowed
		# What our own declarations of verbs are compared with.
		[ -f /usr/include/infiniband/verbs.h ] || missing="$missing libibverbs-dev"
	fi
	# The golden models are made by a Python script, where the data are.
	if [ -d "${RINGMASTER_GOLDEN:-../shared/golden}" ] &&
		! /usr/bin/python3 -c 'import numpy' 2>/dev/null && ! python3 -c 'import numpy' 2>/dev/null; then
		missing="$missing python3-numpy"
	fi
	if [ "$(uname -s)" = Linux ]; then
		need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
		need qemu-aarch64 qemu-user
	fi
fi

# The software Metal device, on Linux x86-64 only. Where its packages cannot be
# installed its tests are left out, loudly.
if [ "${1:-}" = metal ]; then
	if [ "$(uname -sm)" != "Linux x86_64" ]; then
		echo "NOT CHECKED: metal/ needs Linux x86-64 for the software device" >&2
		exit 0
	fi
	need clang-19 "clang-19 llvm-19 libclang-rt-19-dev"
	[ -f "$(gcc -print-file-name=libobjc.so)" ] || missing="$missing gobjc"
	[ -f /usr/include/GNUstep/Foundation/Foundation.h ] || missing="$missing libgnustep-base-dev"
	[ -f /usr/include/Block.h ] || missing="$missing libblocksruntime-dev"
	if [ -n "$missing" ] && { ! command -v apt-get >/dev/null 2>&1 || { [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1; }; }; then
		echo "NOT CHECKED: metal/. Missing (names of Debian's packages):$missing" >&2
		exit 0
	fi
fi

if [ -n "$missing" ]; then
	case "$(uname -s)" in
	Darwin)
		echo "Missing:$missing. Get the C compiler with 'xcode-select --install'; Node.js from nodejs.org." >&2
		exit 1
		;;
	esac
	if ! command -v apt-get >/dev/null 2>&1; then
		echo "Missing (names of Debian's packages):$missing. Please install them." >&2
		exit 1
	fi
	as_root=""
	if [ "$(id -u)" != 0 ]; then
		as_root=sudo
		if ! command -v sudo >/dev/null 2>&1; then
			echo "Missing:$missing. Install them as root: apt-get install$missing" >&2
			exit 1
		fi
	fi
	echo "Installing:$missing" >&2
	$as_root apt-get update -qq
	# shellcheck disable=SC2086 # a list of packages
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2 || {
		[ "${1:-}" = metal ] || exit 1
		echo "NOT CHECKED: metal/. This system lacks some of:$missing" >&2
	}
fi

if ! command -v go >/dev/null 2>&1; then
	echo "Missing: Go 1.26 or later, from https://go.dev/dl/" >&2
	exit 1
fi
