// What the chat page offers beside the conversation itself: see kept_test.go.
import assert from "node:assert/strict";
import {readFile} from "node:fs/promises";
import {accessible, ask, check, done, narrow, page, picture} from "./browser.mjs";

const answered = (p, n) => p.waitForFunction(n => document.querySelectorAll("article.assistant:not(.busy)").length === n && !document.querySelector("article.busy"), n);

async function open(options = {}) {
  const p = await page("/", options);
  await p.waitForFunction(() => document.querySelector("#model").textContent === "scripted");
  return p;
}

// send sends a text and gives the request.
async function send(p, text) {
  await p.fill("#text", text);
  const [asked] = await Promise.all([p.waitForRequest("**/v1/chat/completions"), p.press("#text", "Enter")]);
  return asked.postDataJSON();
}

const titles = p => p.$$eval("[data-open]", l => l.map(e => e.textContent));

await check("the empty page offers questions", async () => {
  const p = await open();
  assert.equal(await p.$$eval(".question", l => l.length), 3);
  await picture(p, "empty");
  await accessible(p);
  await p.click(".question >> nth=0");
  await answered(p, 1);
  assert.equal(await p.textContent("article.user .said"), "What is the capital of France?");
  assert.equal(await p.isVisible(".question"), false);
  await p.finish();
});

await check("the progress of the prompt, the server's rate, the context that is used", async () => {
  const p = await open();
  await ask("hold 1");
  await send(p, "word ".repeat(1000));
  await p.waitForFunction(() => /reading the prompt: [\d,]+ of 5,\d+ tokens/.test(document.querySelector("article.busy .note")?.textContent));
  assert.ok(await p.isVisible("article.busy progress"));
  await picture(p, "prefill");
  await accessible(p);
  await ask("hold -1");
  await answered(p, 1);
  assert.match(await p.textContent("article.assistant .note"), /6 tokens · [\d.]+ tokens\/s · first token after [\d.]+ s · context 5,\d+ of 1,048,576/);
  const timed = {cache_n: 0, prompt_n: 9, prompt_ms: 90, predicted_n: 11, predicted_ms: 400};
  await p.route("**/v1/chat/completions", r => r.fulfill({status: 200, contentType: "text/event-stream", body:
    `data: ${JSON.stringify({choices: [{index: 0, delta: {content: "All at once."}, finish_reason: "stop"}], timings: timed})}\n\ndata: [DONE]\n\n`}), {times: 1});
  await send(p, "next");
  await answered(p, 2);
  assert.match(await p.textContent("article.assistant >> nth=1 >> .note"), / 25\.0 tokens\/s/);
  await p.finish();
});

await check("a group that recovers says so, before the first token and after it", async () => {
  const p = await open();
  const why = "recovering: the ranks re-form the group; the answer continues afterwards";
  // A response of a route comes as a whole, so the page's own reader gets it in two parts.
  await p.evaluate(why => {
    const real = fetch;
    window.fetch = (address, options) => {
      if (!String(address).endsWith("/chat/completions")) return real(address, options);
      const text = new TextEncoder();
      const body = new ReadableStream({start(c) {
        c.enqueue(text.encode(`: keep-alive: ${why}\n\n`));
        window.more = part => c.enqueue(text.encode(part));
        window.end = () => c.close();
      }});
      return Promise.resolve(new Response(body, {status: 200, headers: {"Content-Type": "text/event-stream"}}));
    };
  }, why);
  await p.fill("#text", "x");
  await p.press("#text", "Enter");
  const says = text => p.waitForFunction(text => document.querySelector("article.busy .note")?.textContent.includes(text), text);
  await says(why);
  await p.evaluate(() => window.more('data: {"choices":[{"index":0,"delta":{"content":"Half"}}]}\n\n'));
  await says("1 token");
  await p.evaluate(why => window.more(`: keep-alive: ${why}\n\n`), why);
  await says(why);
  await p.evaluate(() => { window.more("data: [DONE]\n\n"); window.end(); });
  await answered(p, 1);
  await p.finish();
});

await check("search, rename, export, import", async () => {
  const p = await open();
  await send(p, "about apples");
  await answered(p, 1);
  await p.click("#new");
  await send(p, "about pears, markdown");
  await answered(p, 1);
  await p.click("#menu");
  await p.fill("#search", "EMPHASIS"); // a word of an answer
  assert.deepEqual(await titles(p), ["about pears, markdown"]);
  await p.fill("#search", "nothing has this");
  assert.match(await p.textContent("#none"), /No conversation has these words/);
  await p.fill("#search", "");
  await p.click("[data-rename] >> nth=1");
  await p.keyboard.type("Fruit of autumn");
  await p.keyboard.press("Enter");
  assert.deepEqual((await titles(p)).sort(), ["Fruit of autumn", "about pears, markdown"]);
  await p.click("[data-rename] >> nth=0");
  await p.keyboard.type("not this");
  await p.keyboard.press("Escape");
  assert.deepEqual((await titles(p)).sort(), ["Fruit of autumn", "about pears, markdown"]);
  await picture(p, "side");
  await accessible(p);
  const saved = async selector => {
    const [file] = await Promise.all([p.waitForEvent("download"), p.click(selector)]);
    return [file.suggestedFilename(), await readFile(await file.path(), "utf8")];
  };
  const [name, all] = await saved("#export");
  assert.equal(name, "ringmaster-conversations.json");
  assert.equal(JSON.parse(all).conversations.length, 2);
  const [one] = await saved("[aria-label='Export: Fruit of autumn']");
  assert.equal(one, "Fruit-of-autumn.json");
  p.once("dialog", d => d.accept());
  await p.click("#forget");
  assert.deepEqual(await titles(p), []);
  await p.setInputFiles("#imported", {name: "all.json", mimeType: "application/json", buffer: Buffer.from(all)});
  await p.waitForFunction(() => document.querySelector("#note").textContent === "2 conversations imported.");
  assert.deepEqual((await titles(p)).sort(), ["Fruit of autumn", "about pears, markdown"]);
  await p.click("[data-open] >> text=pears");
  await p.waitForSelector(".text em");
  for (const [text, says] of [["{", /cannot be imported/], ["[]", /not an export/], ['{"conversations":[{"id":"q","messages":[{"role":"user","content":"loop","id":"a","parent":"b"},{"role":"user","content":"x","id":"b","parent":"a"}]}]}', /^$/]]) {
    await p.evaluate(() => { document.querySelector("#note").textContent = "?"; });
    await p.setInputFiles("#imported", {name: "wrong.json", mimeType: "application/json", buffer: Buffer.from(text)});
    await p.waitForFunction(() => document.querySelector("#note").textContent !== "?");
    assert.match(await p.textContent("#note"), says);
  }
  // What an edited file says of figures and files breaks nothing.
  await p.setInputFiles("#imported", {name: "odd.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify({conversations: [{id: "odd", messages: [
    {role: "user", content: "", files: []}, {role: "assistant", content: "An odd *answer*.", figures: {tokens: 3, rate: "<b>", first: null}, tool_calls: [{}]}]}]}))});
  await p.waitForFunction(() => document.querySelector("#note").textContent === "1 conversation imported.");
  await p.click("[data-open='odd']");
  await p.waitForSelector(".text em >> text=answer");
  assert.equal(await p.textContent("article.assistant .note"), "3 tokens");
  await p.finish();
});

await check("text files are attached and dropped, sent with the question, kept with it; others are refused", async () => {
  const p = await open();
  await p.setInputFiles("#files", {name: "main.go", mimeType: "text/plain", buffer: Buffer.from("package main\n\n// ``` is a fence\n")});
  await p.waitForSelector("#attached summary");
  await p.setInputFiles("#files", {name: "x.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0xff, 0xfe, 0])});
  await p.waitForFunction(() => document.querySelector("#note").textContent.includes("x.bin is not a text file"));
  await p.setInputFiles("#files", {name: "big.txt", mimeType: "text/plain", buffer: Buffer.alloc(300 << 10, "a")});
  await p.waitForFunction(() => document.querySelector("#note").textContent.includes("big.txt is larger than 256 KiB"));
  await p.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(["a,b\n1,2\n"], "table.csv", {type: "text/csv"}));
    data.items.add(new File(["away"], "away.txt", {type: "text/plain"}));
    for (const kind of ["dragenter", "dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
  });
  await p.waitForFunction(() => document.querySelectorAll("#attached summary").length === 3);
  await p.click("[aria-label='Remove away.txt']");
  await accessible(p);
  const {messages} = await send(p, "What is this?");
  assert.equal(messages[0].content, "File main.go:\n````\npackage main\n\n// ``` is a fence\n````\n\nFile table.csv:\n```\na,b\n1,2\n```\n\nWhat is this?");
  await answered(p, 1);
  assert.equal(await p.$("#attached li"), null);
  await p.reload();
  await p.waitForSelector("article.user .files");
  assert.deepEqual(await p.$$eval("article.user summary", l => l.map(e => e.textContent)), ["main.go", "table.csv"]);
  assert.equal(await p.textContent("article.user .said"), "What is this?");
  await picture(p, "files");
  await accessible(p);
  await p.finish();
});

await check("sampling fields are sent and kept", async () => {
  const p = await open();
  await p.click("#options");
  for (const [id, v] of Object.entries({temperature: "0.5", top_p: "0.9", top_k: "40", seed: "7", limit: "50"})) await p.fill("#" + id, v);
  await p.press("#limit", "Tab");
  await p.reload();
  const {temperature, top_p, top_k, seed, max_tokens} = await send(p, "x");
  assert.deepEqual({temperature, top_p, top_k, seed, max_tokens}, {temperature: 0.5, top_p: 0.9, top_k: 40, seed: 7, max_tokens: 50});
  await answered(p, 1);
  await p.click("#options");
  await picture(p, "settings");
  await accessible(p);
  await p.finish();
});

await check("results of two tools carry their names", async () => {
  const p = await open();
  await p.click("#options");
  await p.fill("#tools", JSON.stringify(["weather", "clock"].map(name => ({type: "function", function: {name, parameters: {type: "object", properties: {city: {type: "string"}}}}}))));
  await p.press("#tools", "Tab");
  await p.click("#options");
  await send(p, "both tools please");
  await answered(p, 1);
  assert.deepEqual(await p.$$eval("details.call summary", l => l.map(e => e.textContent)), ["Tool call: weather", "Tool call: clock"]);
  await p.fill("[aria-label='Result of weather']", "rain");
  await p.click(".result >> nth=0 >> button");
  await p.fill("[aria-label='Result of clock']", "noon");
  await p.click(".result button");
  await answered(p, 2);
  assert.deepEqual(await p.$$eval("article.tool", l => l.map(e => [e.querySelector("p").textContent, e.querySelector(".said").textContent])), [["Result of weather", "rain"], ["Result of clock", "noon"]]);
  await picture(p, "tools");
  await accessible(p);
  await p.finish();
});

// broken returns the words of tables that are on two lines.
const broken = p => p.$$eval(".text th, .text td", cells => cells.flatMap(cell => {
  const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), out = [];
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    for (const m of n.textContent.matchAll(/[^\s-]+/g)) {
      const range = document.createRange();
      range.setStart(n, m.index);
      range.setEnd(n, m.index + m[0].length);
      if (range.getClientRects().length > 1) out.push(m[0]);
    }
  }
  return out;
}));

await check("tables wrap between words and scroll on a phone; formulas are as the model wrote them", async () => {
  const p = await open({viewport: {width: 360, height: 700}});
  await send(p, "a table");
  await answered(p, 1);
  assert.deepEqual(await broken(p), []);
  const [wide, window] = await p.$eval(".text table", t => [t.scrollWidth, t.clientWidth]);
  assert.ok(wide > window, "the table scrolls");
  assert.ok(await p.$eval(".text td:nth-child(4)", e => e.clientHeight < 130), "a sentence has several words in a line");
  await narrow(p);
  await picture(p, "phone-table");
  await send(p, "a formula");
  await answered(p, 2);
  assert.deepEqual(await p.$$eval("code.math", l => l.map(e => e.textContent.trim())), [
    "\\(a_1 x^2 + b_1 x + c_1 = 0\\)", "\\[\nx_{1,2}\n= \\frac{-b_1 \\pm \\sqrt{b_1^2 - 4 a_1 c_1}}{2 a_1}\n\\]", "$$\\sum_{i=1}^n x_i * y_i$$"]);
  await narrow(p);
  await accessible(p);
  await picture(p, "phone-formula");
  await p.finish();
});

for (const colorScheme of ["light", "dark"]) {
  await check(`versions, files and the list at a phone's width, ${colorScheme}`, async () => {
    const p = await open({viewport: {width: 360, height: 700}, colorScheme});
    await p.setInputFiles("#files", {name: "a-rather-long-name-of-a-file-without-a-space.txt", mimeType: "text/plain", buffer: Buffer.from("x".repeat(400))});
    await p.waitForSelector("#attached summary");
    await narrow(p);
    await send(p, "markdown please");
    await answered(p, 1);
    await p.click("[data-action=retry]");
    await p.waitForFunction(() => document.querySelector(".branches:not([hidden]) span")?.textContent === "2/2");
    await answered(p, 1);
    await narrow(p);
    await accessible(p);
    await picture(p, `phone-${colorScheme}`);
    await p.click("#menu");
    await narrow(p);
    await accessible(p);
    await picture(p, `phone-side-${colorScheme}`);
    await p.keyboard.press("Escape");
    await p.click("#options");
    await narrow(p);
    await picture(p, `phone-settings-${colorScheme}`);
    await p.finish();
  });
}

await done();
