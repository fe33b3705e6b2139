#!/bin/sh
# Compares the answers of a cluster on this host with those of one rank, in the current
# folder:
#
#	scripts/correctness.sh [--ranks 2] [--model F] [--reduce exact,sum] [-- flags of every rank]
#
# or those of a cluster that runs with those of a server of one rank that runs:
#
#	scripts/correctness.sh --one URL --many URL [flags of ringmaster verify]
#
# Prompts of 1, 130, 700 and 3000 tokens, answers of 300 tokens. Exits with code 1 if
# they differ, and shows the first difference. See --help for more.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
(cd "$root" && scripts/prepare.sh && mkdir -p bin && go build -o bin/ringmaster ./cmd/server)
one='' many=''
if [ "${1-}" = --one ] || [ "${1-}" = --many ]; then
	while [ $# -ge 2 ]; do
		case $1 in
		--one) one=$2 ;;
		--many) many=$2 ;;
		*) break ;;
		esac
		shift 2
	done
	if [ -z "$one" ] || [ -z "$many" ]; then
		echo "correctness: give both, --one URL and --many URL" >&2
		exit 2
	fi
	exec "$root/bin/ringmaster" verify --url "$many" --against "$one" "$@"
fi
(cd "$root" && go build -o bin/correctness ./tests/cluster/correctness)
exec "$root/bin/correctness" --binary "$root/bin/ringmaster" "$@"
