// Vercel's ai with @ai-sdk/openai-compatible against a scripted server: see server_test.go.
import assert from "node:assert/strict";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {APICallError, generateText, jsonSchema, stepCountIs, streamText, tool} from "ai";
import {apiKey, baseURL, check, hello, model as id} from "./scripted.mjs";

const connect = apiKey => createOpenAICompatible({name: "ringmaster", baseURL, apiKey, includeUsage: true});
const model = connect(apiKey)(id);
const quiet = {maxRetries: 0, onError() {}};

await check("generate", async () => {
  const r = await generateText({model, system: "Be brief.", prompt: "Hi", temperature: 0, seed: 1, maxOutputTokens: 100, maxRetries: 0});
  assert.deepEqual([r.text, r.finishReason, r.usage.outputTokens], [hello, "stop", 20]);
  assert.equal(r.usage.totalTokens, r.usage.inputTokens + 20);
  assert.equal(r.response.modelId, id);
});

await check("conversation", async () => {
  const r = await generateText({model, maxRetries: 0, stopSequences: ["s"], messages: [
    {role: "user", content: "Hi"}, {role: "assistant", content: hello}, {role: "user", content: [{type: "text", text: "The capital?"}]},
  ]});
  assert.deepEqual([r.text, r.finishReason], ["Pari", "stop"]);
});

await check("stream", async () => {
  const r = streamText({model, prompt: "Hi", ...quiet});
  const kinds = [];
  let text = "";
  for await (const part of r.fullStream) {
    if (part.type === "text-delta") text += part.text;
    if (kinds.at(-1) !== part.type) kinds.push(part.type);
  }
  assert.equal(text, hello);
  assert.deepEqual(kinds.filter(k => k.startsWith("text") || k === "error" || k === "finish"), ["text-start", "text-delta", "text-end", "finish"]);
  assert.equal((await r.usage).outputTokens, 20);
  assert.equal(await r.finishReason, "stop");
});

await check("tools, in a stream and without", async () => {
  const seen = [];
  const tools = {weather: tool({description: "The weather of a place", execute: async a => { seen.push(a); return "22"; }, inputSchema: jsonSchema({
    type: "object", properties: {place: {type: "string"}, days: {type: "integer"}}, required: ["place", "days"], additionalProperties: false})})};
  const options = {model, prompt: "weather?", tools, stopWhen: stepCountIs(3), ...quiet};
  const r = await generateText(options);
  assert.deepEqual([r.text, r.finishReason, r.steps.length], ["22 degrees.", "stop", 2]);
  const s = streamText(options);
  let text = "";
  for await (const part of s.fullStream) if (part.type === "text-delta") text += part.text;
  assert.equal(text, "I look.22 degrees.");
  assert.deepEqual(seen, [{place: 'Paris "<x>"', days: 2}, {place: 'Paris "<x>"', days: 2}]);
});

const thinking = {providerOptions: {ringmaster: {thinking: {type: "enabled"}}}};

await check("reasoning", async () => {
  const r = await generateText({model, prompt: "The capital?", maxRetries: 0, ...thinking});
  assert.deepEqual([r.reasoningText, r.text], ["Let me think.", "Paris."]);
});

await check("reasoning in the stream", async () => {
  const r = streamText({model, prompt: "The capital?", providerOptions: {ringmaster: {reasoningEffort: "high"}}, ...quiet});
  let reasoning = "", text = "";
  for await (const part of r.fullStream) {
    if (part.type === "reasoning-delta") { assert.equal(text, ""); reasoning += part.text; }
    if (part.type === "text-delta") text += part.text;
  }
  assert.deepEqual([reasoning, text], ["Let me think.", "Paris."]);
  assert.equal((await r.usage).outputTokenDetails.reasoningTokens, 21);
});

const fails = (promise, status, text) => assert.rejects(promise, e => {
  assert.ok(APICallError.isInstance(e), String(e));
  assert.equal(e.statusCode, status);
  assert.match(e.message, text);
  return true;
});

await check("errors", async () => {
  await fails(generateText({model, prompt: "Hi", temperature: 3, maxRetries: 0}), 400, /'temperature'/);
  await fails(generateText({model: connect(apiKey)("gpt-5"), prompt: "Hi", maxRetries: 0}), 404, /gpt-5/);
  await fails(generateText({model: connect("sk-wrong")(id), prompt: "Hi", maxRetries: 0}), 401, /key/);
  await fails(generateText({model, prompt: "busy", maxRetries: 0}), 429, /queue/);
});

await check("error in the stream", async () => {
  const r = streamText({model, prompt: "break", ...quiet});
  let text = "", errors = 0;
  for await (const part of r.fullStream) {
    if (part.type === "text-delta") text += part.text;
    if (part.type === "error") { errors++; assert.match(JSON.stringify(part.error), /model has failed/); }
  }
  assert.deepEqual([text, errors], ["H", 1]);
});

await check("abort", async () => {
  const abort = new AbortController();
  const r = streamText({model, prompt: "hold", abortSignal: abort.signal, ...quiet});
  let text = "", aborted = false;
  for await (const part of r.fullStream) {
    if (part.type === "text-delta") { text += part.text; abort.abort(); }
    if (part.type === "abort") aborted = true;
  }
  assert.deepEqual([text, aborted], ["H", true]);
});

console.log("done");
