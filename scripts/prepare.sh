#!/bin/sh
# Provides what building needs: Go and a C compiler. On Debian and its
# derivatives missing packages are installed with apt-get (as root or through
# sudo); elsewhere the script lists what is missing.
#
#   scripts/prepare.sh         what building needs
#   scripts/prepare.sh tests   and what scripts/test.sh uses
#   scripts/prepare.sh full    and what scripts/test.sh --full uses; none may be missing
#   scripts/prepare.sh metal   what the software Metal device needs
#
# Tests whose tools cannot be installed are skipped and say so.
set -eu
what=${1:-}
system=$(uname -s)

missing="" # without these nothing can be built
lacking="" # without these some tests are skipped
have() { command -v "$1" >/dev/null 2>&1; }
need() { have "$1" || missing="$missing $2"; }  # need COMMAND DEBIAN-PACKAGES
use() { have "$1" || lacking="$lacking $2"; }   # use COMMAND DEBIAN-PACKAGES
file() { [ -f "$1" ] || lacking="$lacking $2"; } # file FILE DEBIAN-PACKAGES

need gcc "gcc libc6-dev"
case $what in tests | full)
	need git git
	# The golden models are made by a Python script, where golden data exists.
	if [ -d "${RINGMASTER_GOLDEN:-../shared/golden}" ] &&
		! /usr/bin/python3 -c 'import numpy' 2>/dev/null && ! python3 -c 'import numpy' 2>/dev/null; then
		lacking="$lacking python3-numpy"
	fi
	if [ "$system" = Linux ]; then
		use mpirun "openmpi-bin libopenmpi-dev" # jobs of the MPI transport
		use ip iproute2                         # links that are cut and slowed
		use script bsdutils                     # a terminal for ringmaster launch
		use ps procps
		# The headers with which our own declarations of verbs are compared.
		file /usr/include/infiniband/verbs.h libibverbs-dev
		# A Vulkan device in software, and the headers for our own declarations of it.
		file "/usr/share/vulkan/icd.d/lvp_icd.$(uname -m).json" mesa-vulkan-drivers
		file /usr/include/vulkan/vulkan_core.h libvulkan-dev
	fi
	;;
esac
if [ "$what" = full ]; then
	for tool in make curl openssl; do # commands of the documents
		use $tool $tool
	done
	use ccache ccache # the same C in static, race and other builds
	use node nodejs
	use npm npm
	have chromium-browser || have google-chrome || use chromium chromium # the pages
	if [ "$system" = Linux ]; then
		use aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
		use qemu-aarch64 qemu-user
		use promtool prometheus # checks the alert rules
		use nft nftables # firewalls between the ranks of a group
		use haproxy haproxy # several groups behind a proxy
		use glslc glslc # the shaders of Vulkan
		use spirv-val spirv-tools
		file /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json vulkan-validationlayers
		have clang-format-19 || use clang-format clang-format-19
	fi
fi
# The software Metal device runs on Linux x86-64 only.
if [ -n "$what" ] && [ "$system $(uname -m)" = "Linux x86_64" ]; then
	use clang-19 "clang-19 llvm-19 libclang-rt-19-dev"
	file "$(gcc -print-file-name=libobjc.so 2>/dev/null || :)" gobjc
	file /usr/include/GNUstep/Foundation/Foundation.h libgnustep-base-dev
	file /usr/include/Block.h libblocksruntime-dev
fi

# give_up CURE reports what is missing, and exits if that is indispensable.
give_up() {
	if [ -n "$missing" ] || [ "$what" = full ]; then
		echo "Missing (names of Debian's packages):$missing$lacking. $1" >&2
		exit 1
	fi
	echo "NOT CHECKED: some tests need what is missing here (names of Debian's packages):$lacking" >&2
}

if [ -n "$missing$lacking" ]; then
	as_root=""
	[ "$(id -u)" = 0 ] || as_root=sudo
	if [ "$system" = Darwin ]; then
		give_up "Get the C compiler with 'xcode-select --install'; Node.js from nodejs.org."
	elif ! have apt-get; then
		give_up "Please install them."
	elif [ -n "$as_root" ] && ! have sudo; then
		give_up "Install them as root: apt-get install$missing$lacking"
	else
		echo "Installing:$missing$lacking" >&2
		# shellcheck disable=SC2086 # a list of packages
		{
			$as_root apt-get update -qq &&
				$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing $lacking >&2
		} || give_up "apt-get cannot install them."
	fi
fi

if ! have go; then
	echo "Missing: Go 1.26 or later, from https://go.dev/dl/" >&2
	exit 1
fi
