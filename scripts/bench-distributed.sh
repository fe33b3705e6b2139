#!/bin/sh
# Benchmarks a model alternately on one rank and on several ranks of this host, and
# prints the figures of docs/distributed-benchmark.md as tables in Markdown.
#
#     scripts/bench-distributed.sh MODEL.gguf
#
# Environment: RANKS=2, THREADS=1 (of each rank), PREFILL=512, DECODE=64,
# REPEAT=3 (repetitions per run), ROUNDS=2 (runs of each configuration),
# VARIANTS="exact exact-all shares auto" (configurations besides one rank, with the
# other processors idle and with them doing the same work over and over, and groups
# with --share experts and all; also stages), BASE="one busy sum all" (which of these), KEEP=FILE
# (measurements are added to those of the file, so that they may be made in several
# short runs; default: none), RINGMASTER=path of the binary
# (default: built), LINKS="--rate 1gbit --delay 200us" (ranks in network namespaces, with
# such links between them; needs root; default: loopback), CPU=0.5 (of a core, for each
# thread of a rank, by a control group; needs root). Needs node. If taskset is available each rank is pinned to its
# own processors, as if on its own host: the system tends to move processes that
# exchange messages to one processor.
set -eu

if [ $# -ne 1 ] || [ ! -f "$1" ]; then
    echo "usage: $0 MODEL.gguf" >&2
    exit 2
fi
command -v node >/dev/null || { echo "$0: node is not installed" >&2; exit 1; }
model=$(realpath "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'quiet; kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"; [ -z "${groups:-}" ] || rmdir "$groups"/rank* "$groups"' EXIT
trap 'exit 1' INT TERM
# quiet ends what neighbours started.
quiet() {
    [ ! -f "$work/busy" ] || while read -r pid; do kill -- "-$pid" 2>/dev/null || true; done <"$work/busy"
    rm -f "$work/busy"
    wait
}
ranks=${RANKS:-2}

# With LINKS the script runs again within the network: HOSTS is what namespaces are named.
if [ -n "${LINKS:-}" ] && [ -z "${HOSTS:-}" ]; then
    (cd "$root" && go build -o "$work/links" ./tests/cluster/links)
    # shellcheck disable=SC2086
    "$work/links" --hosts "$ranks" $LINKS -- "$0" "$@"
    exit
fi

ours=${RINGMASTER:-}
if [ -z "$ours" ]; then
    ours=$work/ringmaster
    (cd "$root" && go build -o "$ours" ./cmd/server)
fi

# on RANK COMMAND...: runs a command on the processors of a rank.
threads=${THREADS:-1}
pin=false
cores=$(getconf _NPROCESSORS_ONLN)
if command -v taskset >/dev/null && { [ "$cores" -ge $((ranks * threads)) ] || [ -n "${CPU:-}" ]; }; then pin=true; fi
on() {
    rank=$1
    first=$((rank * threads % cores))
    shift
    if $pin; then set -- taskset -c "$first-$((first + threads - 1))" "$@"; fi
    if [ -n "${HOSTS:-}" ]; then set -- ip netns exec "$HOSTS$rank" "$@"; fi
    if [ -n "${CPU:-}" ]; then
        # shellcheck disable=SC2016
        set -- sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$groups/rank$rank" "$@"
    fi
    "$@"
}

# Control groups with a quota, of version 1 or 2.
groups=
if [ -n "${CPU:-}" ]; then
    base=/sys/fs/cgroup
    [ ! -d "$base/cpu" ] || base=$base/cpu
    groups=$base/ringmaster-bench-$$
    mkdir "$groups"
    quota=$(node -e 'console.log(Math.round(10000 * process.argv[1] * process.argv[2]))' "$CPU" "$threads")
    # A group of many processes would else weigh as much as one process outside.
    if [ -f "$base/cpu.cfs_quota_us" ]; then
        echo 262144 >"$groups/cpu.shares"
    else
        echo 10000 >"$groups/cpu.weight"
        echo +cpu >"$groups/cgroup.subtree_control"
    fi
    for rank in $(seq 0 $((ranks - 1))); do
        mkdir "$groups/rank$rank"
        if [ -f "$base/cpu.cfs_quota_us" ]; then
            echo 10000 >"$groups/rank$rank/cpu.cfs_period_us"
            echo "$quota" >"$groups/rank$rank/cpu.cfs_quota_us"
        else
            echo "$quota 10000" >"$groups/rank$rank/cpu.max"
        fi
    done
fi

common="--model $model --threads $threads --log error"
repeat="--repeat ${REPEAT:-3} --stream=false --json"
prefill="--prefill ${PREFILL:-512} --decode 0"
decode="--prefill 0 --decode ${DECODE:-64}"
measure="--prefill ${PREFILL:-512} --decode ${DECODE:-64} $repeat"

# neighbours WORK: on the processors of every other rank an independent process does
# the work over and over, until quiet. The cores of one chip share clock, caches and
# memory, so this is what one rank of a group has of them.
neighbours() {
    for rank in $(seq 1 $((ranks - 1))); do
        # shellcheck disable=SC2016
        on "$rank" setsid sh -c 'echo $$ >>"$0"; while :; do "$@" >/dev/null 2>&1; done' "$work/busy" "$ours" bench $common $1 --stream=false --repeat 20 &
    done
}

# group NAME FLAGS...: one run of a group; its JSON lines get the name.
group() {
    name=$1
    shift
    at=127.0.0.1
    [ -z "${HOSTS:-}" ] || at=10.77.0.1
    port=$(node -e 's=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})')
    where="--distributed --world-size $ranks --coordinator $at:$port"
    for rank in $(seq 1 $((ranks - 1))); do
        # shellcheck disable=SC2086
        on "$rank" "$ours" serve $common $where --rank "$rank" &
    done
    # shellcheck disable=SC2086
    on 0 "$ours" bench $common $where --rank 0 "$@" $measure | sed "s/^{/{\"name\":\"$name\",/" >>"$work/lines"
    wait
}

# All experts on rank 0: the others compute only what every rank does.
lone="1000000"
for _ in $(seq 2 "$ranks"); do lone="$lone,0.000001"; done

for _ in $(seq "${ROUNDS:-2}"); do
    for variant in ${BASE-one busy sum all} ${VARIANTS-exact exact-all shares auto}; do
        case $variant in
        one)
            # shellcheck disable=SC2086
            on 0 "$ours" bench $common $measure | sed 's/^{/{"name":"one",/' >>"$work/lines" ;;
        busy)
            for what in "$prefill" "$decode"; do
                neighbours "$what"
                # shellcheck disable=SC2086
                on 0 "$ours" bench $common $what $repeat | sed 's/^{/{"name":"busy",/' >>"$work/lines"
                quiet
            done ;;
        sum) group sum --share experts ;;
        all) group all --share all ;;
        auto) group auto --share auto ;;
        exact) group exact --reduce exact --share experts ;;
        exact-all) group exactall --reduce exact --share all ;;
        stages) group stages --stages "$ranks" ;;
        shares) group lone --share "experts:$lone" ;;
        *) echo "$0: unknown variant $variant" >&2; exit 2 ;;
        esac
    done
done

if [ -n "${KEEP:-}" ]; then
    [ ! -f "$work/lines" ] || cat "$work/lines" >>"$KEEP"
    cp "$KEEP" "$work/lines"
fi
node - "$work/lines" "$ranks" "$threads" <<'SCRIPT'
const fs = require("node:fs");
const [path, ranks, threads] = process.argv.slice(2);
const all = new Map();
for (const line of fs.readFileSync(path, "utf8").trim().split("\n")) {
    const l = JSON.parse(line);
    const key = `${l.name} ${l.what}`;
    const m = all.get(key) ?? {...l, seconds: [], ranks: null};
    m.expected_s = l.expected_s; // of the last calibration
    m.seconds.push(...l.seconds);
    if (l.ranks) {
        m.ranks ??= l.ranks.map(() => ({compute: 0, waiting: 0, wire: 0, exchanges: 0, sent: 0, by: new Map()}));
        l.ranks.forEach((r, i) => {
            const t = m.ranks[i];
            t.compute += r.compute_s; t.waiting += r.waiting_s; t.wire += r.wire_s;
            t.exchanges += r.exchanges; t.sent += r.sent_bytes;
            for (const x of r.by_exchange ?? []) {
                const key = `${x.purpose}, ${x.op}`;
                const y = t.by.get(key) ?? {count: 0, compute: 0, waiting: 0, wire: 0, sent: 0};
                y.count += x.count; y.compute += x.compute_s; y.waiting += x.waiting_s; y.wire += x.wire_s; y.sent += x.sent_bytes;
                t.by.set(key, y);
            }
        });
    }
    all.set(key, m);
}
const median = xs => xs.toSorted((a, b) => a - b)[Math.floor(xs.length / 2)];
const speed = m => m.n / median(m.seconds);
const names = {one: "1 rank", busy: "1 rank, the other cores busy", sum: `${ranks} ranks, --share experts`, all: `${ranks} ranks, --share all`,
    exact: `${ranks} ranks, --share experts --reduce exact`, exactall: `${ranks} ranks, --share all --reduce exact`,
    stages: `${ranks} ranks, --stages ${ranks}`, auto: `${ranks} ranks, --share auto`, lone: `${ranks} ranks, all experts on rank 0`};
for (const what of ["prefill", "decode"]) {
    console.log(`| measurement | ranks of ${threads} thread${threads === "1" ? "" : "s"} | t/s, median (min, max) | over 1 busy rank | over 1 rank | rank 0 compute / wait / wire, ms per step | last rank | us per exchange | bytes per exchange | expected over measured |`);
    console.log("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    const one = all.get(`one ${what}`) ?? all.get(`busy ${what}`), busy = all.get(`busy ${what}`) ?? one;
    const over = (m, base) => base ? (speed(m) / speed(base)).toFixed(2) : "";
    for (const name of Object.keys(names)) {
        const m = all.get(`${name} ${what}`);
        if (!m) continue;
        const expected = m.expected_s;
        const s = m.seconds, steps = m.seconds.length * (what === "decode" ? m.n : 1);
        const of = r => r ? [r.compute, r.waiting, r.wire].map(x => (1e3 * x / steps).toFixed(1)).join(" / ") : "";
        const a = m.ranks?.[0], z = m.ranks?.[m.ranks.length - 1];
        console.log(`| ${what} ${m.n} | ${names[name]} | ${speed(m).toFixed(2)} (${(m.n / Math.max(...s)).toFixed(2)}, ${(m.n / Math.min(...s)).toFixed(2)}) ` +
            `| ${over(m, busy)} | ${over(m, one)} | ${of(a)} | ${of(z)} | ${a ? (1e6 * (a.waiting + a.wire) / a.exchanges).toFixed(0) : ""} ` +
            `| ${a ? Math.round(a.sent / a.exchanges) : ""} | ${expected ? (expected / median(s)).toFixed(2) : ""} |`);
    }
    const three = ["auto", "sum", "all"].map(name => all.get(`${name} ${what}`));
    if (three.every(m => m)) {
        const [auto, ...fixed] = three.map(speed);
        console.log(`\n${what}: auto has ${(auto / Math.max(...fixed)).toFixed(3)} of the rate of the better of experts and all.\n`);
    }
    const lone = all.get(`lone ${what}`), sum = all.get(`sum ${what}`);
    if (lone && sum && one) {
        // Rank 0 did everything, the last rank only what every rank does.
        const whole = lone.ranks[0].compute, dense = lone.ranks.at(-1).compute;
        const share = (whole - dense) / whole;
        console.log(`\n${what}: the routed experts take ${(100 * share).toFixed(1)} % of one rank's time, so ${ranks} ranks with equal loads ` +
            `can reach at most ${(1 / (1 - share + share / ranks)).toFixed(2)}x of one rank with --share experts; measured ${(speed(sum) / speed(one)).toFixed(2)}x.\n`);
    }
}
// What each exchange costs: computing is attributed to the exchange that follows.
const split = [];
for (const [key, m] of all) {
    const steps = m.seconds.length * (m.what === "decode" ? m.n : 1);
    const of = y => y ? [y.compute, y.waiting, y.wire].map(x => (1e3 * x / steps).toFixed(2)).join(" / ") : "";
    const last = m.ranks?.at(-1);
    for (const [name, y] of m.ranks?.[0].by ?? [])
        split.push(`| ${m.what} ${m.n} | ${names[key.split(" ")[0]]} | ${name} | ${(y.count / steps).toFixed(0)} | ${of(y)} | ${of(last.by.get(name))} | ${Math.round(y.sent / y.count)} |`);
}
if (split.length > 0)
    console.log(["", "| measurement | | exchange | in a step | rank 0 compute / wait / wire, ms per step | last rank | bytes of one, rank 0 |",
        "| --- | --- | --- | --- | --- | --- | --- |", ...split].join("\n"));
SCRIPT
