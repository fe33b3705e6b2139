// Ollama's own JavaScript client against a scripted server: see server_test.go.
import assert from "node:assert/strict";
import {Ollama} from "ollama";
import {apiKey, check, hello, model, root as host} from "./scripted.mjs";

const client = new Ollama({host, headers: {Authorization: `Bearer ${apiKey}`}});
const ask = (text, more) => ({model, think: false, messages: [{role: "system", content: "Be brief."}, {role: "user", content: text}], ...more});

// send joins the parts of an answer, as programs do.
async function send(request, stream) {
  if (!stream) return client.chat({...request, stream: false});
  let last, content = "", thinking = "", calls = [];
  for await (const part of await client.chat({...request, stream: true})) {
    content += part.message.content;
    thinking += part.message.thinking ?? "";
    calls.push(...part.message.tool_calls ?? []);
    last = part;
  }
  const message = {role: "assistant", content};
  if (thinking) message.thinking = thinking;
  if (calls.length) message.tool_calls = calls;
  return {...last, message};
}

await check("server", async () => {
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
  assert.deepEqual((await client.list()).models.map(m => [m.name, m.model]), [[model, model]]);
  assert.equal((await client.ps()).models[0].context_length, 4096);
  assert.deepEqual((await client.show({model})).capabilities, ["completion", "tools", "thinking"]);
});

for (const stream of [false, true]) {
  const how = stream ? " in a stream" : "";
  await check("chat" + how, async () => {
    const r = await send(ask("Hi"), stream);
    assert.deepEqual(r.message, {role: "assistant", content: hello});
    assert.deepEqual([r.done, r.done_reason, r.eval_count], [true, "stop", 20]);
    assert.ok(r.total_duration > 0 && r.prompt_eval_count > 0);
    assert.equal((await send(ask("Hi", {options: {num_predict: 3}}), stream)).done_reason, "length");
  });
  await check("thinking" + how, async () => {
    for (const think of [true, "low"]) {
      const r = await send(ask("The capital?", {think}), stream);
      assert.deepEqual(r.message, {role: "assistant", content: "Paris.", thinking: "Let me think."});
    }
  });
  await check("format" + how, async () => {
    const format = {type: "object", properties: {ok: {const: true}}, required: ["ok"], additionalProperties: false};
    assert.deepEqual(JSON.parse((await send(ask("Hi", {format, options: {temperature: 0}}), stream)).message.content), {ok: true});
  });
  await check("tools" + how, async () => {
    const tools = [{type: "function", function: {name: "weather", description: "The weather of a place", parameters: {
      type: "object", properties: {place: {type: "string"}, days: {type: "integer"}}, required: ["place", "days"]}}}];
    const request = ask("weather?", {tools});
    const r = await send(request, stream);
    assert.equal(r.message.content, "I look.");
    assert.deepEqual(r.message.tool_calls.map(c => [c.function.name, c.function.arguments]), [["weather", {place: 'Paris "<x>"', days: 2}]]);
    request.messages.push(r.message, {role: "tool", tool_name: "weather", content: "22"});
    assert.equal((await send(request, stream)).message.content, "22 degrees.");
  });
}

await check("generate", async () => {
  const r = await client.generate({model, prompt: "The capital?", think: false});
  assert.deepEqual([r.response, r.done], ["Paris.", true]);
  let text = "";
  for await (const part of await client.generate({model, prompt: "Hi", think: false, stream: true})) text += part.response;
  assert.equal(text, hello);
});

await check("errors", async () => {
  const fails = (promise, status, text) => assert.rejects(promise, e => {
    assert.equal(e.status_code, status);
    assert.match(e.message, text);
    return true;
  });
  await fails(client.chat({...ask("Hi"), model: "llama3"}), 404, /llama3/);
  await fails(client.chat(ask("Hi", {options: {temperature: 5}})), 400, /options.temperature/);
  await fails(client.chat(ask("busy")), 429, /queue/);
  await fails(client.pull({model: "llama3"}), 501, /ringmaster pull/);
  await fails(client.embed({model, input: "x"}), 400, /embeddings/);
  await fails(new Ollama({host, headers: {Authorization: "Bearer wrong"}}).chat(ask("Hi")), 401, /key/);
  await assert.rejects(send(ask("break"), true), /The model has failed/);
});

await check("abort", async () => {
  const stream = await client.chat({...ask("hold"), stream: true});
  await assert.rejects(async () => {
    for await (const part of stream) if (part) client.abort();
  }, {name: "AbortError"});
});

console.log("done");
