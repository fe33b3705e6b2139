#!/bin/sh
# Formats the lines of C, Objective-C, C++ and Metal files that have changed since
# a commit (HEAD by default) according to .clang-format. With --check it only
# shows what it would change, and exits with 1 if there is anything.
set -eu
cd "$(dirname "$0")/.."
check=""
[ "${1:-}" != --check ] || {
	check=1
	shift
}
for format in clang-format-19 clang-format; do
	! command -v "$format" >/dev/null 2>&1 || break
done
command -v "$format" >/dev/null 2>&1 || {
	echo "NOT CHECKED: the format of C, no clang-format here (Debian: clang-format-19)" >&2
	exit 0
}
tool=git-$format
set -- --binary "$format" --extensions c,h,m,cpp,metal,inc "${1:-HEAD}"
if [ -z "$check" ]; then
	# The tool exits with 1 if it has changed something.
	"$tool" --force "$@" || [ $? -eq 1 ]
	exit
fi
# The tool exits with 1 if it would change something.
"$tool" --diff "$@"
