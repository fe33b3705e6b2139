// Runs llama.cpp as a judge on standard input and output: one JSON request and one
// JSON response per line.
//
//     node judge.mjs MODEL.gguf [--vocab-only]
//
//     {"op": "tokens", "count": N}            -> {tokens: [text of ids 0 to N-1]}
//     {"op": "tokenize", "text": T}           -> {ids}
//     {"ids": [...], "predict": N}            -> {ids: N tokens, greedily}
//     {"op": "logits", "ids": [...], "out": FILE, "single": N} -> {}
//
// The last two take "batch" (default 512); of "logits" the
// last "single" tokens are evaluated one by one, and "exact": true keeps the KV cache
// in float32. The response to a failed request is
// {error}.
import readline from "node:readline";
import {dumpLogits, loadModel} from "./llama.mjs";

const [path, flag] = process.argv.slice(2);
const model = await loadModel(path, {vocabOnly: flag === "--vocab-only"});

// llama.cpp allocates its KV cache in multiples of 256 positions.
const padded = n => Math.ceil(n / 256) * 256;

const answers = {
    // The addon does not report the size, and aborts beyond the end.
    tokens: ({count}) => ({tokens: Array.from({length: count}, (_, id) => model.model.getTokenString(id))}),
    tokenize: ({text}) => ({ids: model.tokenize(text)}),
    generate: async ({ids, predict, batch = 512}) => {
        const context = await model.context({context: padded(ids.length + predict), batch});
        try {
            const out = [];
            let handle = await context.prefill(ids);
            for (;;) {
                out.push(await context.greedy(handle));
                if (out.length === predict)
                    return {ids: out};
                [handle] = await context.decode(out.slice(-1), [0]);
            }
        } finally {
            await context.dispose();
        }
    },
    logits: async ({ids, out, single = 0, batch = 512, exact = false}) => {
        const context = await model.context({context: padded(ids.length), batch, exact});
        try {
            await dumpLogits(context, ids, single, out);
            return {};
        } finally {
            await context.dispose();
        }
    }
};

for await (const line of readline.createInterface({input: process.stdin})) {
    if (line.trim() === "")
        continue;
    let answer;
    try {
        const request = JSON.parse(line);
        const op = request.op ?? "generate";
        if (!Object.hasOwn(answers, op))
            throw new Error(`no op ${op}`);
        answer = await answers[op](request);
    } catch (err) {
        answer = {error: String(err?.stack ?? err)};
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
}
await model.dispose();
