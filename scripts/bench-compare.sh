#!/bin/sh
# Benchmarks ringmaster and llama.cpp alternately on model files and prints the
# speed ratio, the share of the memory bandwidth, the time to the first token and
# the memory use.
#
#     scripts/bench-compare.sh [MODEL.gguf...]
#
# The default models are small256 (1 GB) and bench (6.6 GB) of cmd/mkmodel in
# ${XDG_CACHE_HOME:-~/.cache}/ringmaster/bench, created if they are missing.
# Environment: THREADS="1 2" (default: 1 and all processors), PREFILL="128 512
# 2048", DECODE=64, DEPTHS=128 (tokens before the decode; with several, each has a
# load of its own and the first alone measures prefill), REPEAT=5 (repetitions per
# load), ROUNDS=1 (loads of each engine; the order alternates between rounds),
# STATES=folder in which the state after each depth is kept (default: none, every load
# evaluates it), RINGMASTER=path of the binary (default: built). Needs node 20 or later and npm;
# llama.cpp comes from the packages of tests/llamacpp.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for model in "$@"; do
    [ -f "$model" ] || { echo "usage: $0 [MODEL.gguf...]; $model is not a file" >&2; exit 2; }
done
for tool in node npm; do
    command -v $tool >/dev/null || { echo "$0: $tool is not installed" >&2; exit 1; }
done
(cd "$root" && go run ./tests/npm/install tests/llamacpp) >&2

ours=${RINGMASTER:-}
if [ -z "$ours" ]; then
    ours=$work/ringmaster
    (cd "$root" && go build -o "$ours" ./cmd/server)
fi

# preset NAME SIZE: creates the model of a preset if it is missing.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster/bench
preset() {
    [ -f "$cache/$1.gguf" ] && return
    echo "$0: creating $cache/$1.gguf ($2)" >&2
    mkdir -p "$cache"
    # mkmodel writes to a temporary name: the file is there as a whole or not at all.
    (cd "$root" && go run ./cmd/mkmodel --preset "$1" --out "$cache/$1.gguf") >&2
}
if [ $# -eq 0 ]; then
    preset small256 "1 GB"
    preset bench "6.6 GB"
    set -- "$cache/small256.gguf" "$cache/bench.gguf"
fi

processors=$(getconf _NPROCESSORS_ONLN)
all=1
[ "$processors" -eq 1 ] || all="1 $processors"
lengths=$(echo "${PREFILL-128 512 2048}" | tr -s ' ' ',')

# turn ENGINE MODEL THREADS DEPTH PREFILL: one load of one engine; its JSON lines go to
# a file.
turn() {
    flags="--threads $3 --prefill $5 --decode ${DECODE:-64} --depth $4 --repeat ${REPEAT:-5}"
    [ -z "${STATES:-}" ] || [ "$4" -eq 0 ] || flags="$flags --state $STATES/$(basename "$2" .gguf).$4.$1"
    # shellcheck disable=SC2086
    case $1 in
    ours) "$ours" bench --model "$2" $flags --json --log error >>"$work/ours.jsonl" ;;
    theirs) node "$root/scripts/bench-llamacpp.mjs" --model "$2" $flags >>"$work/theirs.jsonl" ;;
    esac
}

for model in "$@"; do
    rm -f "$work"/*.jsonl
    for round in $(seq "${ROUNDS:-1}"); do
        order="ours theirs"
        [ $((round % 2)) -eq 1 ] || order="theirs ours"
        for threads in ${THREADS:-$all}; do
            prefill=${lengths:-0}
            for depth in ${DEPTHS:-128}; do
                for engine in $order; do
                    turn $engine "$model" "$threads" "$depth" "$prefill"
                done
                prefill=0
            done
        done
    done
    echo "$(basename "$model")"
    node "$root/scripts/bench-compare.mjs" "$work/ours.jsonl" "$work/theirs.jsonl"
done
