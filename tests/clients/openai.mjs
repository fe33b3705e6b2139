// The official JavaScript client against a scripted server: see server_test.go.
import assert from "node:assert/strict";
import OpenAI from "openai";
import {apiKey, baseURL, check, hello, model, wanted} from "./scripted.mjs";

const client = new OpenAI({baseURL, apiKey, maxRetries: 0});
const messages = text => [{role: "system", content: "Be brief."}, {role: "user", content: text}];

await check("models", async () => {
  const list = await client.models.list();
  assert.deepEqual(list.data.map(m => m.id), [model]);
  assert.equal((await client.models.retrieve(model)).object, "model");
});

await check("chat", async () => {
  const r = await client.chat.completions.create({model, messages: messages("Hi"), n: 2, max_completion_tokens: 50});
  assert.match(r.id, /^chatcmpl-/);
  assert.match(r._request_id, /^req_/);
  assert.equal(r.object, "chat.completion");
  assert.deepEqual(r.choices.map(c => [c.index, c.message.role, c.message.content, c.finish_reason]),
    [[0, "assistant", hello, "stop"], [1, "assistant", hello, "stop"]]);
  assert.equal(r.usage.completion_tokens, 40); // 19 bytes and EOS, twice
  assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + 40);
});

await check("content parts, stop, length", async () => {
  const parts = [{role: "user", content: [{type: "text", text: "The "}, {type: "text", text: "capital?"}]}];
  let r = await client.chat.completions.create({model, messages: parts, stop: ["is"]});
  assert.deepEqual([r.choices[0].message.content, r.choices[0].finish_reason], ["Par", "stop"]);
  r = await client.chat.completions.create({model, messages: parts, max_tokens: 2});
  assert.deepEqual([r.choices[0].message.content, r.choices[0].finish_reason], ["Pa", "length"]);
});

await check("stream", async () => {
  const stream = await client.chat.completions.create({model, messages: messages("Hi"), stream: true, stream_options: {include_usage: true}});
  const ids = new Set(), roles = [], finishes = [], usages = [];
  let text = "";
  for await (const chunk of stream) {
    ids.add(chunk.id + chunk.created + chunk.model);
    assert.equal(chunk.object, "chat.completion.chunk");
    if (chunk.usage) { usages.push(chunk.usage); assert.deepEqual(chunk.choices, []); }
    for (const c of chunk.choices) {
      if (c.delta.role) roles.push(c.delta.role);
      if (c.finish_reason) { finishes.push(c.finish_reason); assert.deepEqual(c.delta, {}); }
      text += c.delta.content ?? "";
    }
  }
  assert.equal(text, hello);
  assert.equal(ids.size, 1);
  assert.deepEqual([roles, finishes, usages.length], [["assistant"], ["stop"], 1]);
  assert.equal(usages[0].completion_tokens, 20);
});

await check("stream helper", async () => {
  const stream = client.chat.completions.stream({model, messages: messages("Hi"), n: 1, logprobs: true});
  let text = "";
  stream.on("content", delta => { text += delta; });
  const r = await stream.finalChatCompletion();
  assert.equal(text, hello);
  assert.equal(r.choices[0].message.content, hello);
  assert.equal(r.choices[0].logprobs.content.length, 19);
});

await check("logprobs", async () => {
  const r = await client.chat.completions.create({model, messages: messages("The capital?"), logprobs: true, top_logprobs: 20});
  const list = r.choices[0].logprobs.content;
  assert.equal(list.map(t => t.token).join(""), "Paris.");
  for (const t of list) {
    assert.deepEqual(t.bytes, [...Buffer.from(t.token)]);
    assert.equal(t.top_logprobs.length, 20);
    assert.equal(t.top_logprobs[0].token, t.token);
    assert.ok(t.logprob <= 0);
  }
});

await check("reasoning", async () => {
  const r = await client.chat.completions.create({model, messages: messages("The capital?"), thinking: {type: "enabled"}});
  assert.equal(r.choices[0].message.reasoning_content, "Let me think.");
  assert.equal(r.choices[0].message.content, "Paris.");
  assert.equal(r.usage.completion_tokens_details.reasoning_tokens, 21);
});

await check("completions", async () => {
  let r = await client.completions.create({model, prompt: ["capital", "greet"], max_tokens: 5});
  assert.deepEqual(r.choices.map(c => c.text), ["Paris", "Hello"]);
  r = await client.completions.create({model, prompt: [97, 98], echo: true, logprobs: 1, max_tokens: 1});
  assert.equal(r.choices[0].text, "abH");
  assert.equal(r.choices[0].logprobs.token_logprobs[0], null);
  assert.deepEqual(r.choices[0].logprobs.tokens, ["a", "b", "H"]);
  let text = "";
  for await (const chunk of await client.completions.create({model, prompt: "capital", stream: true})) text += chunk.choices[0].text;
  assert.equal(text, "Paris.");
});

const tools = [{type: "function", function: {name: "weather", strict: true, parameters: {
  type: "object", properties: {place: {type: "string"}, days: {type: "integer"}}, required: ["place", "days"], additionalProperties: false}}}];

await check("tools", async () => {
  const history = messages("weather?");
  let r = await client.chat.completions.create({model, messages: history, tools});
  const message = r.choices[0].message;
  assert.deepEqual([message.content, r.choices[0].finish_reason, message.tool_calls.length], ["I look.", "tool_calls", 1]);
  assert.equal(message.tool_calls[0].function.name, "weather");
  assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), wanted);
  history.push(message, {role: "tool", tool_call_id: message.tool_calls[0].id, content: "22"});
  r = await client.chat.completions.create({model, messages: history, tools});
  assert.deepEqual([r.choices[0].message.content, r.choices[0].finish_reason], ["22 degrees.", "stop"]);
});

await check("tools in a stream, with the client's own runner", async () => {
  const seen = [];
  const runner = client.chat.completions.runTools({model, stream: true, messages: messages("weather?"), tools: [{type: "function", function: {
    ...tools[0].function, parse: JSON.parse, function: a => { seen.push(a); return "22"; }}}]});
  assert.equal(await runner.finalContent(), "22 degrees.");
  assert.deepEqual(seen, [wanted]);
});

await check("a schema", async () => {
  const schema = {type: "object", properties: {a: {enum: ["x"]}}, required: ["a"], additionalProperties: false};
  const r = await client.chat.completions.create({model, messages: messages("Hi"), response_format: {type: "json_schema", json_schema: {name: "a", strict: true, schema}}});
  assert.deepEqual(JSON.parse(r.choices[0].message.content), {a: "x"});
});

await check("responses", async () => {
  let r = await client.responses.create({model, input: "Hi", instructions: "Be brief."});
  assert.deepEqual([r.status, r.output_text, r.usage.output_tokens], ["completed", hello, 20]);
  const flat = tools.map(t => ({type: "function", ...t.function}));
  const input = [{role: "user", content: "weather?"}];
  const stream = client.responses.stream({model, input, tools: flat, reasoning: {effort: "low"}});
  let reasoning = "";
  stream.on("event", e => { if (e.type === "response.reasoning_text.delta") reasoning += e.delta; });
  r = await stream.finalResponse();
  assert.equal(reasoning, "Let me think.");
  assert.deepEqual(r.output.map(i => i.type), ["reasoning", "message", "function_call"]);
  assert.deepEqual(JSON.parse(r.output[2].arguments), wanted);
  input.push(...r.output, {type: "function_call_output", call_id: r.output[2].call_id, output: "22"});
  assert.equal((await client.responses.create({model, input, tools: flat})).output_text, "22 degrees.");
});

const fails = (promise, kind, status, code, param) => assert.rejects(promise, e => {
  assert.ok(e instanceof kind, `${e.constructor.name}: ${e.message}`);
  assert.deepEqual([e.status, e.code, e.param], [status, code, param]);
  return true;
});

await check("errors", async () => {
  const chat = more => client.chat.completions.create({model, messages: messages("Hi"), ...more});
  await fails(chat({temperature: 3}), OpenAI.BadRequestError, 400, "out_of_range", "temperature");
  await fails(chat({tools: [{type: "function", function: {name: "a b"}}]}), OpenAI.BadRequestError, 400, "invalid_value", "tools[0].function.name");
  await fails(chat({response_format: {type: "xml"}}), OpenAI.BadRequestError, 400, "unsupported_parameter", "response_format.type");
  await fails(chat({model: "gpt-5"}), OpenAI.NotFoundError, 404, "model_not_found", "model");
  await fails(chat({messages: messages("busy")}), OpenAI.RateLimitError, 429, "server_busy", null);
  await fails(chat({messages: messages("busy"), stream: true}), OpenAI.RateLimitError, 429, "server_busy", null);
  const stranger = new OpenAI({baseURL, apiKey: "sk-wrong", maxRetries: 0});
  await fails(stranger.models.list(), OpenAI.AuthenticationError, 401, "invalid_api_key", null);
});

await check("error in the stream", async () => {
  const stream = await client.chat.completions.create({model, messages: messages("break"), stream: true});
  let text = "";
  await assert.rejects(async () => {
    for await (const chunk of stream) text += chunk.choices[0].delta.content ?? "";
  }, e => e instanceof OpenAI.APIError && e.code === "model_failed");
  assert.equal(text, "H");
});

await check("abort", async () => {
  const stream = await client.chat.completions.create({model, messages: messages("hold"), stream: true});
  let text = "";
  for await (const chunk of stream) {
    text += chunk.choices[0].delta.content ?? "";
    if (text) stream.controller.abort();
  }
  assert.equal(text, "H");
});

console.log("done");
