// Greedy tokens of llama.cpp for prompts given as token ids, to compare with our own.
//   npm i node-llama-cpp@3.22.1   (anywhere; run node from that folder)
//   node check_llamacpp.mjs MODEL.gguf PROMPTS.json OUT.json
// PROMPTS.json: {"limit": 24, "stop": 1, "prompts": [[ids], ...], "texts": ["...", ...]}
// OUT.json: for every prompt the greedy continuation and, for every prompt position, the
// likeliest next token with its probability; for every text its ids.
import {createRequire} from "node:module";
import {readFileSync, writeFileSync} from "node:fs";
import {pathToFileURL} from "node:url";
import path from "node:path";

const from = createRequire(path.join(process.cwd(), "x.js"));
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(from.resolve("node-llama-cpp")));
const [file, input, output] = process.argv.slice(2);
const {prompts, texts = [], limit, stop} = JSON.parse(readFileSync(input));

const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.warn, maxThreads: 2});
const model = await llama.loadModel({modelPath: path.resolve(file)});
const context = await model.createContext({contextSize: 1024, sequences: 1, batchSize: 512});
const sequence = context.getSequence();
const result = [];
for (const prompt of prompts) {
    await sequence.clearHistory();
    const options = {generateNext: {token: true, probabilities: true}};
    const best = (r) => {
        const [token, p] = [...r.next.probabilities][0];
        return [token, p];
    };
    const forced = (await sequence.controlledEvaluate(prompt.map((t) => [t, options]))).map(best);
    const greedy = [];
    for (let t = forced.at(-1)[0]; greedy.push(t) < limit && t !== stop;)
        t = best((await sequence.controlledEvaluate([[t, options]]))[0])[0];
    result.push({forced, greedy});
}
writeFileSync(output, JSON.stringify({result, texts: texts.map((t) => model.tokenize(t, true))}));
await llama.dispose();
