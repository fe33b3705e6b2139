// Measures llama.cpp v0.5.0 (npm node-llama-cpp 3.22.1) on a model file as
// `ringmaster bench --json` measures ours, and prints lines of the same form:
//
//     node scripts/bench-llamacpp.mjs --model F [--threads T] [--prefill N] [--decode M] [--repeat R]
//
// prefill: N tokens from empty in batches of 512, logits of the last. decode: M
// tokens one by one after 128. The first repetition touches the pages of the
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
const number = name => {
    const n = Number(values[name]);
    if (!Number.isInteger(n) || n < 0)
        throw new Error(`--${name} ${values[name]}: want a whole number`);
    return n;
};
const [threads, prefill, decode, repeat, batch] = ["threads", "prefill", "decode", "repeat", "batch"].map(number);
if (values.model == null)
    throw new Error("--model is needed");

const seconds = () => performance.now() / 1000;

// The most memory held so far, mapped pages of the file too, in MiB.
function peak() {
    const line = fs.readFileSync("/proc/self/status", "utf8").split("\n").find(l => l.startsWith("VmHWM"));
    return Number(line.match(/\d+/)[0]) / 1024;
}

const start = seconds();
const model = await loadModel(values.model);
const size = Math.ceil(Math.max(prefill, depth + decode) / 256) * 256;
const context = await model.context({context: size, batch, threads});
const load = seconds() - start;

// Seeded tokens from the whole vocabulary, as hash-routed layers choose experts
// by them (xorshift32).
const vocabulary = (await context.logits(await context.prefill([0]))).length;
let state = 2463534242;
const ids = Array.from({length: size}, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % vocabulary;
});

const measured = {
    prefill: async () => {
        const begin = seconds();
        await context.prefill(ids.slice(0, prefill));
        return seconds() - begin;
    },
    decode: async () => {
        await context.prefill(ids.slice(0, depth));
        const begin = seconds();
        for (let i = 0; i < decode; i++)
            await context.decode([ids[depth + i]], [0]);
        return seconds() - begin;
    }
};
for (const [what, n] of [["prefill", prefill], ["decode", decode]]) {
    if (n === 0)
        continue;
    const times = [];
    for (let i = 0; i <= repeat; i++) {
        context.clear();
        const took = await measured[what]();
        if (i > 0)
            times.push(took);
    }
    console.log(JSON.stringify({what, n, threads, seconds: times, load_s: load, peak_mib: peak()}));
}
await context.dispose();
await model.dispose();
