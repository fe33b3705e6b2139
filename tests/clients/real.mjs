// Both JavaScript clients against the real program with its built-in model: their
// results must agree, whatever they are.
import assert from "node:assert/strict";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {generateText, streamText} from "ai";
import OpenAI from "openai";

const {BASE_URL: baseURL, API_KEY: apiKey} = process.env;
const client = new OpenAI({baseURL, apiKey, maxRetries: 0});
const question = "What is the capital of France?";
const greedy = {messages: [{role: "user", content: question}], temperature: 0, max_tokens: 40};

const model = (await client.models.list()).data[0].id;
console.log("ok model " + model);

const whole = await client.chat.completions.create({model, ...greedy, logprobs: true, top_logprobs: 2});
const text = whole.choices[0].message.content;
assert.ok(text.length > 0);
assert.equal(Buffer.concat(whole.choices[0].logprobs.content.map(t => Buffer.from(t.bytes))).toString(), text);
for (const t of whole.choices[0].logprobs.content) assert.equal(t.token, t.top_logprobs[0].token, "greedy decoding takes the most likely token");
console.log("ok chat: " + JSON.stringify(text));

let streamed = "", usage;
for await (const chunk of await client.chat.completions.create({model, ...greedy, stream: true, stream_options: {include_usage: true}})) {
  streamed += chunk.choices[0]?.delta.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(streamed, text);
assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
console.log("ok stream");

const sampled = {...greedy, temperature: 1, seed: 11, n: 2};
const texts = r => r.choices.map(c => c.message.content);
assert.deepEqual(texts(await client.chat.completions.create({model, ...sampled})), texts(await client.chat.completions.create({model, ...sampled})));
console.log("ok seed");

const vercel = createOpenAICompatible({name: "ringmaster", baseURL, apiKey, includeUsage: true})(model);
const options = {model: vercel, prompt: question, temperature: 0, maxOutputTokens: 40, maxRetries: 0};
assert.equal((await generateText(options)).text, text);
let parts = "";
for await (const part of streamText(options).textStream) parts += part;
assert.equal(parts, text);
console.log("ok vercel");

await assert.rejects(client.chat.completions.create({model, ...greedy, top_p: 2}), OpenAI.BadRequestError);
await assert.rejects(new OpenAI({baseURL, apiKey: "no", maxRetries: 0}).models.list(), OpenAI.AuthenticationError);
console.log("ok errors");

const long = await client.chat.completions.create({model, ...greedy, ignore_eos: true, max_tokens: 200, stream: true});
for await (const chunk of long) if (chunk.choices[0].delta.content) break; // leaving the loop aborts
assert.equal((await client.chat.completions.create({model, ...greedy})).choices[0].message.content, text);
console.log("ok abort");

console.log("done");
