// Benchmarks llama.cpp v0.5.0 (npm node-llama-cpp 3.22.1) on a model file in the
// same way as `ringmaster bench --json`, and prints lines of the same form:
//
//     node scripts/bench-llamacpp.mjs --model F [--threads T] [--prefill N,N] [--decode M] [--depth D] [--repeat R] [--state FILE]
//
// first token: from the start of loading to the logits after a prompt of one token.
// prefill: N tokens from an empty context in batches of 512, logits of the last one,
// for each N. decode: M tokens one by one after D, 128 by default. The first repetition maps the
// pages of the file and is not counted. --state keeps the state after D tokens in a file. Flash attention and the type of the KV cache
// are llama.cpp's defaults. The package is that of tests/llamacpp (npm install
// --no-save there).
import fs from "node:fs";
import {parseArgs} from "node:util";
import {loadModel} from "../tests/llamacpp/llama.mjs";

const {values} = parseArgs({options: {
    model: {type: "string"}, threads: {type: "string", default: "1"}, prefill: {type: "string", default: "512"},
    decode: {type: "string", default: "64"}, depth: {type: "string", default: "128"},
    repeat: {type: "string", default: "3"}, batch: {type: "string", default: "512"},
    state: {type: "string"}
}});
const numbers = name => values[name].split(",").map(part => {
    const n = Number(part);
    if (!Number.isInteger(n) || n < 0)
        throw new Error(`--${name} ${values[name]}: expected integers of 0 or more`);
    return n;
});
const [[threads], prefill, [decode], [depth], [repeat], [batch]] =
    ["threads", "prefill", "decode", "depth", "repeat", "batch"].map(numbers);
if (values.model == null)
    throw new Error("--model is required");

const seconds = () => performance.now() / 1000;

// Resident memory in MiB: the peak, and the current file-backed and anonymous parts.
function memory() {
    const status = fs.readFileSync("/proc/self/status", "utf8");
    const mib = key => Number(status.match(new RegExp(`^${key}:\\s+(\\d+)`, "m"))[1]) / 1024;
    return {peak_mib: mib("VmHWM"), file_mib: mib("RssFile"), own_mib: mib("RssAnon")};
}

const start = seconds();
const model = await loadModel(values.model);
const size = Math.ceil(Math.max(...prefill, depth + decode) / 256) * 256;
const context = await model.context({context: size, batch, threads});
const load = seconds() - start;

// Random tokens (xorshift32, fixed seed) from the whole vocabulary, because
// hash-routed layers choose the experts by the token.
const vocabulary = (await context.logits(await context.prefill([0]))).length;
const first = seconds() - start;
let state = 2463534242;
const ids = Array.from({length: size}, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % vocabulary;
});

// The tokens before the decode.
async function build() {
    context.clear();
    const before = ids.slice(0, depth);
    if (values.state != null && fs.existsSync(values.state)) {
        if (await context.restore(values.state, size) !== depth)
            throw new Error(`--state ${values.state}: it has other than the ${depth} tokens of --depth`);
        return;
    }
    await context.prefill(before);
    if (values.state != null)
        await context.save(values.state, before);
}

const measured = {
    prefill: async n => {
        const begin = seconds();
        await context.prefill(ids.slice(0, n));
        return seconds() - begin;
    },
    decode: async n => {
        if (context.length === 0 || !context.rewind(depth)) {
            await build();
        }
        const begin = seconds();
        for (let i = 0; i < n; i++)
            await context.decode([ids[depth + i]], [0]);
        return seconds() - begin;
    }
};
for (const [what, n] of [...prefill.map(n => ["prefill", n]), ["decode", decode]]) {
    if (n === 0)
        continue;
    const times = [];
    for (let i = 0; i <= repeat; i++) {
        if (what === "prefill" || i === 0)
            context.clear();
        const took = await measured[what](n);
        if (i > 0)
            times.push(took);
    }
    console.log(JSON.stringify({what, n, depth: what === "decode" ? depth : 0, threads, seconds: times, load_s: load, first_token_s: first, ...memory()}));
}
await context.dispose();
await model.dispose();
