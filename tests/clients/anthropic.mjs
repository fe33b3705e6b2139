// Anthropic's own client against a scripted server: see server_test.go.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import {apiKey, check, hello, model, root, wanted} from "./scripted.mjs";

const client = new Anthropic({baseURL: root, apiKey, maxRetries: 0});
const ask = (text, more) => ({model, max_tokens: 1000, system: "Be brief.", messages: [{role: "user", content: text}], ...more});

await check("message", async () => {
  const r = await client.messages.create(ask("Hi"));
  assert.deepEqual([r.type, r.role, r.stop_reason, r.content], ["message", "assistant", "end_turn", [{type: "text", text: hello}]]);
  assert.equal(r.usage.output_tokens, 20);
  assert.equal((await client.messages.create(ask("Hi", {max_tokens: 3}))).stop_reason, "max_tokens");
});

await check("stream", async () => {
  const stream = client.messages.stream(ask("The capital?", {thinking: {type: "enabled", budget_tokens: 1024}, max_tokens: 2000}));
  const kinds = [];
  stream.on("streamEvent", e => { if (kinds.at(-1) !== e.type) kinds.push(e.type); });
  const r = await stream.finalMessage();
  assert.deepEqual(r.content.map(b => b.type), ["thinking", "text"]);
  assert.deepEqual([r.content[0].thinking, r.content[1].text], ["Let me think.", "Paris."]);
  assert.ok(r.content[0].signature);
  assert.deepEqual(kinds, ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"]);
});

const tool = {name: "weather", description: "The weather of a place", input_schema: {
  type: "object", properties: {place: {type: "string"}, days: {type: "integer"}}, required: ["place", "days"]}};

for (const streams of [false, true]) {
  await check("tools" + (streams ? " in a stream" : ""), async () => {
    const send = body => streams ? client.messages.stream(body).finalMessage() : client.messages.create(body);
    const body = ask("weather?", {tools: [tool]});
    let r = await send(body);
    assert.equal(r.stop_reason, "tool_use");
    assert.deepEqual(r.content.map(b => b.type), ["text", "tool_use"]);
    assert.deepEqual([r.content[1].name, r.content[1].input], ["weather", wanted]);
    body.messages.push({role: "assistant", content: r.content}, {role: "user", content: [{type: "tool_result", tool_use_id: r.content[1].id, content: "22"}]});
    assert.ok((await client.messages.countTokens({model, messages: body.messages, tools: body.tools})).input_tokens > 500);
    r = await send(body);
    assert.deepEqual([r.stop_reason, r.content], ["end_turn", [{type: "text", text: "22 degrees."}]]);
    assert.ok(r.usage.cache_read_input_tokens > 0, "the prompt of the turn before is in the cache");
  });
}

await check("a forced tool", async () => {
  const now = {name: "now", input_schema: {type: "object", properties: {zone: {enum: ["UTC"]}}, required: ["zone"]}};
  const r = await client.messages.create(ask("Hi", {tools: [tool, now], tool_choice: {type: "tool", name: "now"}, temperature: 0}));
  assert.deepEqual(r.content.map(b => [b.type, b.name, b.input]), [["tool_use", "now", {zone: "UTC"}]]);
});

await check("models", async () => {
  const names = [];
  for await (const m of client.models.list()) names.push(m.id);
  assert.deepEqual(names, [model]);
});

await check("errors", async () => {
  const fails = (promise, kind, status) => assert.rejects(promise, e => {
    assert.ok(e instanceof kind, `${e.constructor.name}: ${e.message}`);
    assert.equal(e.status, status);
    return true;
  });
  await fails(client.messages.create(ask("Hi", {temperature: 3})), Anthropic.BadRequestError, 400);
  await fails(client.messages.create(ask("busy")), Anthropic.RateLimitError, 429);
  await fails(client.messages.create(ask("Hi", {model: "other"})), Anthropic.NotFoundError, 404);
  await fails(new Anthropic({baseURL: root, apiKey: "wrong", maxRetries: 0}).messages.create(ask("Hi")), Anthropic.AuthenticationError, 401);
  await assert.rejects(client.messages.stream(ask("break")).finalMessage(), Anthropic.APIError);
});

await check("abort", async () => {
  const stream = client.messages.stream(ask("hold"));
  let text = "";
  stream.on("text", t => { text += t; stream.abort(); });
  await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
  assert.equal(text, "H");
});

console.log("done");
