// OpenAI's Agents SDK, LangChain and the providers of Vercel's ai against a scripted
// server: see server_test.go. Each runs its own loop of tools.
import assert from "node:assert/strict";
import {createAnthropic} from "@ai-sdk/anthropic";
import {createOpenAI} from "@ai-sdk/openai";
import {HumanMessage, SystemMessage, ToolMessage} from "@langchain/core/messages";
import {tool as chainTool} from "@langchain/core/tools";
import {ChatAnthropic} from "@langchain/anthropic";
import {ChatOllama} from "@langchain/ollama";
import {ChatOpenAI} from "@langchain/openai";
import {Agent, OpenAIProvider, Runner, setTracingDisabled, tool} from "@openai/agents";
import {generateText, jsonSchema, stepCountIs, streamText, tool as vercelTool} from "ai";
import {z} from "zod";
import {answer, apiKey, baseURL, check, hello, model, root, wanted} from "./scripted.mjs";

const parameters = z.object({place: z.string(), days: z.number().int()});

setTracingDisabled(true);
for (const useResponses of [true, false]) {
  const api = useResponses ? "Responses" : "Chat Completions";
  const runner = () => new Runner({modelProvider: new OpenAIProvider({apiKey, baseURL, useResponses}), tracingDisabled: true});
  const seen = [];
  const weather = tool({name: "weather", description: "The weather of a place", parameters, execute: async a => { seen.push(a); return "22"; }});
  const agent = new Agent({name: "Forecaster", instructions: "Be brief.", model, tools: [weather], modelSettings: {temperature: 0, maxTokens: 1000}});
  await check(`Agents SDK over ${api}`, async () => {
    const r = await runner().run(agent, "weather?");
    assert.equal(r.finalOutput, answer);
    assert.ok(r.rawResponses.at(-1).usage.inputTokens > 0);
  });
  await check(`Agents SDK over ${api}, in a stream`, async () => {
    const r = await runner().run(agent, "weather?", {stream: true});
    let text = "";
    for await (const part of r.toTextStream()) text += part;
    await r.completed;
    assert.ok(text.endsWith(answer), text);
    assert.equal(r.finalOutput, answer);
    assert.deepEqual(seen, [wanted, wanted]);
  });
  await check(`Agents SDK over ${api}, with a typed output`, async () => {
    const typed = new Agent({name: "Typed", instructions: "Be brief.", model, outputType: z.object({greeting: z.string()}), modelSettings: {maxTokens: 100}});
    assert.deepEqual((await runner().run(typed, "salute")).finalOutput, {greeting: "Hi"});
  });
}

for (const [name, chain] of [
  ["OpenAI", new ChatOpenAI({model, apiKey, temperature: 0, maxRetries: 0, configuration: {baseURL}})],
  ["OpenAI, Responses", new ChatOpenAI({model, apiKey, maxRetries: 0, useResponsesApi: true, configuration: {baseURL}})],
  ["Anthropic", new ChatAnthropic({model, apiKey, maxRetries: 0, maxTokens: 1000, anthropicApiUrl: root})],
  ["Ollama", new ChatOllama({model, baseUrl: root, think: false, maxRetries: 0, headers: {Authorization: "Bearer " + apiKey}})],
]) {
  const text = m => typeof m.content === "string" ? m.content : m.content.filter(b => b.type === "text").map(b => b.text).join("");
  await check(`LangChain, ${name}`, async () => {
    const r = await chain.invoke([new SystemMessage("Be brief."), new HumanMessage("Hi")]);
    assert.equal(text(r), hello);
    assert.equal(r.usage_metadata.output_tokens, 20);
  });
  const weather = chainTool(async () => "22", {name: "weather", description: "The weather of a place", schema: parameters});
  for (const streams of [false, true]) await check(`LangChain, ${name}, tools${streams ? " in a stream" : ""}`, async () => {
    const bound = chain.bindTools([weather]);
    const ask = async messages => {
      if (!streams) return bound.invoke(messages);
      let all;
      for await (const chunk of await bound.stream(messages)) all = all ? all.concat(chunk) : chunk;
      return all;
    };
    const messages = [new HumanMessage("weather?")];
    const r = await ask(messages);
    assert.deepEqual(r.tool_calls.map(c => [c.name, c.args]), [["weather", wanted]]);
    assert.equal(text(r).trim(), "I look.");
    messages.push(r, new ToolMessage({content: "22", tool_call_id: r.tool_calls[0].id, name: "weather"}));
    assert.equal(text(await ask(messages)), answer);
  });
}

await check("@ai-sdk/openai, which refers to what it takes for stored unless told otherwise", async () => {
  const tools = {weather: vercelTool({description: "The weather of a place", execute: async () => "22", inputSchema: jsonSchema({type: "object", properties: {place: {type: "string"}, days: {type: "integer"}}})})};
  await assert.rejects(generateText({model: createOpenAI({baseURL, apiKey}).responses(model), prompt: "weather?", tools, temperature: 0, stopWhen: stepCountIs(3), maxRetries: 0}), /"store": false/);
});

for (const [name, connected] of [
  ["@ai-sdk/openai, Responses", createOpenAI({baseURL, apiKey}).responses(model)],
  ["@ai-sdk/openai, Chat Completions", createOpenAI({baseURL, apiKey}).chat(model)],
  ["@ai-sdk/anthropic", createAnthropic({baseURL, apiKey})(model)],
]) {
  await check(name, async () => {
    const seen = [];
    const tools = {weather: vercelTool({description: "The weather of a place", execute: async a => { seen.push(a); return "22"; }, inputSchema: jsonSchema({
      type: "object", properties: {place: {type: "string"}, days: {type: "integer"}}, required: ["place", "days"], additionalProperties: false})})};
    const options = {model: connected, prompt: "weather?", tools, stopWhen: stepCountIs(3), maxRetries: 0, maxOutputTokens: 1000, providerOptions: {openai: {store: false}}, onError() {}};
    const r = await generateText(options);
    assert.deepEqual([r.text, r.finishReason, r.steps.length], [answer, "stop", 2]);
    let text = "";
    for await (const part of streamText(options).fullStream) {
      if (part.type === "text-delta") text += part.text;
      assert.notEqual(part.type, "error", JSON.stringify(part.error));
    }
    assert.equal(text, "I look." + answer);
    assert.deepEqual(seen, [wanted, wanted]);
  });
}

console.log("done");
