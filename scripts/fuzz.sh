#!/usr/bin/env bash
# Fuzzes every target in turn: scripts/fuzz.sh [MINUTES] [TARGET...]
# MINUTES (default 1) are for each target. It runs at low priority with PROCS
# workers (default 1), prints for each target the CPU time and the inputs tried,
# and ends with status 1 if one failed; the input is then in testdata/fuzz of its
# package. New inputs that matter stay in the cache of the go command.
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=${1:-1}
[ $# -eq 0 ] || shift
procs=${PROCS:-1}
log=$(mktemp)
binary=$log.test
trap 'rm -f "$log" "$log".*' EXIT

failed=0
total=0
printf '%-52s %8s %12s  %s\n' target 'CPU s' inputs result
for package in $(git grep -l -E '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do
	targets=$(git grep -h -o -E '^func Fuzz[A-Za-z0-9_]+' -- ":(glob)$package/*_test.go" | sed 's/^func //' | sort -u)
	[ $# -eq 0 ] || targets=$(printf '%s\n' "$@" | grep -Fx -e "$targets" || true)
	[ -n "$targets" ] || continue
	# One test binary for all targets of a package, built beforehand, so that building does not count.
	go test -c -fuzz=. -o "$binary" "./$package"
	cache=$(go env GOCACHE)/fuzz/$(go list "./$package")
	for target in $targets; do
		result=ok
		times >"$log.before"
		(
			cd "$package"
			nice -n 19 "$binary" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="${minutes}m" -test.parallel="$procs" \
				-test.fuzzcachedir="$cache"
		) >"$log" 2>&1 || { result=FAILED; failed=1; }
		times >"$log.after"
		# The second line is user and system time of the children, like 1m2.345s.
		cpu=$(awk 'function s(t) { split(t, x, "[ms]"); return 60 * x[1] + x[2] } FNR == 2 { sum = s($1) + s($2) - sum } END { printf "%d", sum }' "$log.before" "$log.after")
		inputs=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$log" | tail -1)
		printf '%-52s %8s %12s  %s\n' "$package $target" "$cpu" "${inputs:-?}" "$result"
		[ $result = ok ] || tail -30 "$log"
		total=$((total + cpu))
	done
done
echo "CPU time in all: $total s"
exit $failed
