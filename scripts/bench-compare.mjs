// Prints the results of `ringmaster bench --json` and of bench-llamacpp.mjs side
// by side as Markdown tables: node scripts/bench-compare.mjs OURS.jsonl THEIRS.jsonl
import fs from "node:fs";

const read = path => fs.readFileSync(path, "utf8").trim().split("\n").map(line => JSON.parse(line));

// Merges the repetitions of each measurement over all rounds. Load and first-token
// times are the best of all loads; so is the memory bandwidth, which stands for
// what the host can deliver. Memory use is the largest.
function gather(lines) {
    const all = new Map();
    for (const l of lines) {
        const key = `${l.what} ${l.n} ${l.threads} ${l.depth ?? 0}`;
        const m = all.get(key);
        if (m == null) {
            all.set(key, l);
            continue;
        }
        m.seconds.push(...l.seconds);
        for (const least of ["load_s", "first_token_s"])
            m[least] = Math.min(m[least], l[least]);
        for (const most of ["peak_mib", "file_mib", "own_mib", "stream_gbs"])
            m[most] = Math.max(m[most] ?? 0, l[most] ?? 0);
    }
    return all;
}

const sorted = xs => xs.toSorted((a, b) => a - b);
const speeds = m => sorted(m.seconds.map(s => m.n / s));
const median = xs => xs[Math.floor((xs.length - 1) / 2)];
const digits = x => x >= 100 ? x.toFixed(0) : x.toFixed(2);
const spread = xs => `${digits(median(xs))} (${digits(xs[0])} to ${digits(xs.at(-1))})`;

function table(heads, rows) {
    const widths = heads.map((h, i) => Math.max(h.length, ...rows.map(r => r[i].length)));
    const line = cells => `| ${cells.map((c, i) => c.padEnd(widths[i])).join(" | ")} |`;
    console.log([line(heads), line(widths.map(w => "-".repeat(w))), ...rows.map(line)].join("\n") + "\n");
}

const [ours, theirs] = process.argv.slice(2).map(path => gather(read(path)));
const pairs = [...ours].filter(([key]) => theirs.has(key)).map(([key, o]) => [o, theirs.get(key)]);

// The share of the memory bandwidth: bytes per token times tokens per second,
// divided by what the same threads reach when they only read. llama.cpp is assumed
// to read the same number of bytes.
const share = (o, m) => o.bytes_per_token && o.stream_gbs
    ? (o.bytes_per_token * median(speeds(m)) / 1e9 / o.stream_gbs).toFixed(2) : "";

table(
    ["measurement", "threads", "ringmaster t/s", "llama.cpp t/s", "ratio", "ratio of best", "share of memory bandwidth, ringmaster", "llama.cpp"],
    pairs.map(([o, l]) => {
        const [a, b] = [speeds(o), speeds(l)];
        return [`${o.what} ${o.n}` + (o.depth ? ` after ${o.depth}` : ""), `${o.threads}`, spread(a), spread(b), (median(a) / median(b)).toFixed(2),
            (a.at(-1) / b.at(-1)).toFixed(2), share(o, o), share(o, l)];
    })
);
for (const [o] of pairs)
    if (o.stream_gbs)
        console.log(`${o.threads} threads: ${(o.bytes_per_token / 1e6).toFixed(1)} MB per token, memory bandwidth ${o.stream_gbs.toFixed(1)} GB/s`);
    else if (o.stream_error)
        console.log(`${o.threads} threads: memory bandwidth not measured: ${o.stream_error}`);
console.log();

// The last measurement for each number of threads: by then all pages are mapped.
const last = new Map(pairs.map(pair => [pair[0].threads, pair]));
const mib = x => x ? x.toFixed(0) : "";
const part = m => m.file_mib ? (m.own_mib / m.file_mib).toFixed(2) : "";
table(
    ["threads", "engine", "load s", "first token s", "peak MiB", "file-backed MiB", "anonymous MiB", "anonymous / file-backed"],
    [...last].flatMap(([threads, [o, l]]) => [["ringmaster", o], ["llama.cpp", l]].map(([name, m]) =>
        [`${threads}`, name, m.load_s.toFixed(2), m.first_token_s.toFixed(2), mib(m.peak_mib), mib(m.file_mib), mib(m.own_mib), part(m)]))
);
