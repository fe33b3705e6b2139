// An MCP server with one tool, over lines of JSON on its standard streams. The first
// argument is the file to which it appends the arguments of each call.
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";

const tool = {
  name: "forecast",
  description: "The weather of a place.",
  inputSchema: { type: "object", properties: { place: { type: "string" } }, required: ["place"], additionalProperties: false },
};
const answers = {
  initialize: (p) => ({ protocolVersion: p.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "weather", version: "1" } }),
  "tools/list": () => ({ tools: [tool] }),
  "tools/call": (p) => {
    appendFileSync(process.argv[2], JSON.stringify(p.arguments) + "\n");
    return { content: [{ type: "text", text: "22 degrees and rain" }] };
  },
  ping: () => ({}),
};
for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim() === "") continue;
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue; // a notification
  const answer = answers[method];
  const reply = answer ? { result: answer(params ?? {}) } : { error: { code: -32601, message: "no such method" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...reply }) + "\n");
}
