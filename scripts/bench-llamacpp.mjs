// Measures llama.cpp v0.5.0 (npm node-llama-cpp 3.22.1) on a model file as
// `ringmaster bench --json` measures ours, and prints lines of the same form:
//
//     node scripts/bench-llamacpp.mjs --model F [--threads T] [--prefill N,N] [--decode M] [--repeat R]
//
// first token: from the start of loading to the logits of a prompt of one token.
// prefill: N tokens from empty in batches of 512, logits of the last, for each N;
// the context holds the longest. decode: M tokens one by one after 128. The first repetition touches the pages of the
// file and is not counted. Flash attention and f16 caches as llama.cpp has them.
// The package is taken from tests/llamacpp (npm install --no-save there).
import fs from "node:fs";
import {parseArgs} from "node:util";
import {loadModel} from "../tests/llamacpp/llama.mjs";

const depth = 128; // tokens before those of the decode
const {values} = parseArgs({options: {
    model: {type: "string"}, threads: {type: "string", default: "1"}, prefill: {type: "string", default: "512"},
    decode: {type: "string", default: "64"}, repeat: {type: "string", default: "3"}, batch: {type: "string", default: "512"}
}});
const numbers = name => values[name].split(",").map(part => {
    const n = Number(part);
    if (!Number.isInteger(n) || n < 0)
        throw new Error(`--${name} ${values[name]}: want a whole number`);
    return n;
});
const [[threads], prefill, [decode], [repeat], [batch]] = ["threads", "prefill", "decode", "repeat", "batch"].map(numbers);
if (values.model == null)
    throw new Error("--model is needed");

const seconds = () => performance.now() / 1000;

// The most memory held so far, and what is held now of files and of the process's
// own, in MiB.
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

// Seeded tokens from the whole vocabulary, as hash-routed layers choose experts
// by them (xorshift32).
const vocabulary = (await context.logits(await context.prefill([0]))).length;
const first = seconds() - start;
let state = 2463534242;
const ids = Array.from({length: size}, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % vocabulary;
});

const measured = {
    prefill: async n => {
        const begin = seconds();
        await context.prefill(ids.slice(0, n));
        return seconds() - begin;
    },
    decode: async n => {
        await context.prefill(ids.slice(0, depth));
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
        context.clear();
        const took = await measured[what](n);
        if (i > 0)
            times.push(took);
    }
    console.log(JSON.stringify({what, n, threads, seconds: times, load_s: load, first_token_s: first, ...memory()}));
}
await context.dispose();
await model.dispose();
