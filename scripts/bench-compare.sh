#!/bin/sh
# Measures ringmaster and llama.cpp on one model file, in turns, and prints the
# ratio of the speeds.
#
#     scripts/bench-compare.sh MODEL.gguf
#
# Environment: THREADS="1 2", PREFILL=512, DECODE=64, REPEAT=3 (repetitions of a
# turn), ROUNDS=2 (turns of each), RINGMASTER=path of the binary (built when
# not given). Needs node 20 or later and npm; llama.cpp comes from the packages
# of tests/llamacpp.
set -eu

if [ $# -ne 1 ] || [ ! -f "$1" ]; then
    echo "usage: $0 MODEL.gguf" >&2
    exit 2
fi
model=$(realpath "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for tool in node npm; do
    command -v $tool >/dev/null || { echo "$0: $tool is not installed" >&2; exit 1; }
done
[ -d "$root/tests/llamacpp/node_modules/node-llama-cpp" ] ||
    (cd "$root/tests/llamacpp" && npm install --no-save --ignore-scripts --no-audit --no-fund >&2)

ours=${RINGMASTER:-}
if [ -z "$ours" ]; then
    ours=$work/ringmaster
    (cd "$root" && go build -o "$ours" ./cmd/server)
fi

for round in $(seq "${ROUNDS:-2}"); do
    for threads in ${THREADS:-1 2}; do
        set -- --model "$model" --threads "$threads" --prefill "${PREFILL:-512}" --decode "${DECODE:-64}" \
            --repeat "${REPEAT:-3}"
        "$ours" bench "$@" --json >>"$work/ours.jsonl"
        node "$root/scripts/bench-llamacpp.mjs" "$@" >>"$work/theirs.jsonl"
    done
done

node - "$work/ours.jsonl" "$work/theirs.jsonl" <<'SCRIPT'
const fs = require("node:fs");
const read = path => fs.readFileSync(path, "utf8").trim().split("\n").map(line => JSON.parse(line));
// All repetitions of one measurement, over the rounds.
const gather = lines => {
    const all = new Map();
    for (const l of lines) {
        const key = `${l.what} ${l.n} ${l.threads}`;
        const m = all.get(key) ?? {...l, seconds: [], load_s: Infinity, peak_mib: 0};
        m.seconds.push(...l.seconds);
        m.load_s = Math.min(m.load_s, l.load_s);
        m.peak_mib = Math.max(m.peak_mib, l.peak_mib);
        all.set(key, m);
    }
    return all;
};
const [ours, theirs] = process.argv.slice(2).map(path => gather(read(path)));
const median = xs => xs.toSorted((a, b) => a - b)[Math.floor(xs.length / 2)];
const cell = (x, n) => String(x).padStart(n);
console.log("what     tokens threads | ringmaster t/s  llama.cpp t/s  ratio | best ratio | MiB ours, theirs | load s ours, theirs");
for (const [key, o] of ours) {
    const l = theirs.get(key);
    if (l == null)
        continue;
    const speed = m => m.n / median(m.seconds), best = m => m.n / Math.min(...m.seconds);
    console.log(o.what.padEnd(8), cell(o.n, 6), cell(o.threads, 7), "|", cell(speed(o).toFixed(2), 14),
        cell(speed(l).toFixed(2), 14), cell((speed(o) / speed(l)).toFixed(2), 6), "|", cell((best(o) / best(l)).toFixed(2), 10), "|",
        cell(o.peak_mib.toFixed(0), 7), cell(l.peak_mib.toFixed(0), 8), "|", cell(o.load_s.toFixed(2), 8), cell(l.load_s.toFixed(2), 8));
}
SCRIPT
