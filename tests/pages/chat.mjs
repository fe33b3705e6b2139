// The chat page against a scripted model: see pages_test.go.
import assert from "node:assert/strict";
import {accessible, apiKey, check, done, narrow, page} from "./browser.mjs";

const answered = (p, n) => p.waitForFunction(n => document.querySelectorAll("article.assistant:not(.busy)").length === n && !document.querySelector("article.busy"), n);

// open opens the page with the key set.
async function open(options) {
  const p = await page("/", {expected: [/401/], ...options});
  await p.fill("#key", apiKey);
  await p.press("#key", "Tab");
  await p.waitForFunction(() => document.querySelector("#model").textContent === "scripted");
  if (await p.isVisible("#settings")) await p.click("#options");
  return p;
}

async function send(p, text) {
  await p.fill("#text", text);
  await p.press("#text", "Enter");
}

await check("without a key the page says so, with one it works, and another tab has none", async () => {
  const p = await page("/", {expected: [/401/]});
  await p.waitForSelector(".failure");
  assert.match(await p.textContent(".failure"), /API key is required.*Enter a valid API key/s);
  assert.ok(await p.isVisible("#key"));
  await send(p, "Hello");
  await p.waitForSelector(".failure button");
  assert.equal(await p.evaluate(() => document.activeElement.id), "key");
  await p.fill("#key", apiKey);
  await p.press("#key", "Tab");
  await p.click(".failure button");
  await answered(p, 1);
  assert.equal((await p.textContent("article.assistant .text")).trim(), "Fine.");
  assert.equal(await p.evaluate(() => JSON.stringify(localStorage).includes("sk-test")), false);
  assert.equal(await p.evaluate(() => sessionStorage.getItem("ringmaster.key")), apiKey);
  await p.finish();
});

await check("Markdown, code, figures, copying", async () => {
  const p = await open();
  await send(p, "markdown please");
  await answered(p, 1);
  await p.waitForSelector(".text table");
  assert.deepEqual(await p.$$eval(".text h1, .text em, .text td, .text li", l => l.map(e => e.textContent)), ["Title", "emphasis", "1", "2", "one", "two"]);
  assert.equal(await p.textContent(".text pre code.language-go"), "func main() {}\n");
  assert.match(await p.textContent("article.assistant .note"), /scripted · \d+ tokens · [\d.]+ tokens\/s · first token after [\d.]+ s/);
  await p.click(".block .copy");
  assert.equal(await p.evaluate(() => navigator.clipboard.readText()), "func main() {}\n");
  await p.click("article.assistant footer [data-action=copy]");
  assert.match(await p.evaluate(() => navigator.clipboard.readText()), /^# Title/);
  await accessible(p);
  await p.finish();
});

await check("code has colours that differ from the text's, as it comes and at the end, which the server's style sheet gives", async () => {
  const p = await open();
  await send(p, "code please");
  await answered(p, 1);
  await p.waitForFunction(() => !document.querySelector(".text .pending"));
  const seen = await p.$$eval(".text pre span", l => Object.fromEntries(l.map(e => [e.className, getComputedStyle(e).color])));
  assert.deepEqual(Object.keys(seen).sort(), ["c", "gd", "gh", "gi", "k", "m", "na", "nc", "nf", "nt", "s"]);
  const plain = await p.$eval(".text pre code", e => getComputedStyle(e).color);
  for (const color of Object.values(seen)) assert.notEqual(color, plain);
  assert.equal(await p.$(".text [style]"), null);
  await p.finish();
});

await check("a hostile answer runs nothing, loads nothing and stays what it is", async () => {
  const p = await open();
  await send(p, "hostile please");
  await answered(p, 1);
  await p.waitForFunction(() => document.querySelector(".text").textContent.includes("the end") && !document.querySelector(".text .pending"));
  assert.equal(await p.evaluate(() => window.hacked), undefined);
  assert.deepEqual(await p.$$eval(".text *", l => [...new Set(l.map(e => e.tagName))].filter(t => !["DIV", "P", "PRE", "CODE", "A", "BUTTON"].includes(t))), []);
  for (const href of await p.$$eval(".text a", l => l.map(a => a.getAttribute("href")))) assert.match(href, /^https?:/);
  assert.deepEqual(await p.$$eval(".text *", l => l.flatMap(e => e.getAttributeNames()).filter(n => /^on|style|src/.test(n))), []);
  const shown = await p.textContent(".text");
  for (const part of ["<script>window.hacked = 1</script>", "data: [DONE]", "<iframe"]) assert.ok(shown.includes(part), part);
  await p.reload(); // from what is kept
  await p.click("#menu");
  await p.click("#conversations [data-open]");
  await p.waitForFunction(() => document.querySelector(".text")?.textContent.includes("the end"));
  assert.equal(await p.evaluate(() => window.hacked), undefined);
  await send(p, "<img src=x onerror=alert(1)>"); // nor what the user says
  await answered(p, 2);
  assert.equal(await p.$("article.user img"), null);
  await p.finish();
});

await check("the policy stops scripts and HTML that did not come through the page", async () => {
  const p = await page("/", {expected: [/./]});
  assert.equal(await p.evaluate(() => new Promise(resolve => {
    document.addEventListener("securitypolicyviolation", () => resolve(window.hacked ?? "refused"));
    const s = document.createElement("script");
    try { s.textContent = "window.hacked = 1"; document.body.append(s); } catch { resolve("refused"); }
  })), "refused");
  assert.equal(await p.evaluate(() => { try { document.body.innerHTML = "<b>x</b>"; return "taken"; } catch { return "refused"; } }), "refused");
});

await check("stop, by Escape and by the button, keeps what has come; retry asks again", async () => {
  const p = await open();
  await send(p, "a long answer");
  await p.waitForFunction(() => document.querySelector("article.assistant .text")?.textContent.length > 200);
  assert.equal(await p.textContent("#send"), "Stop");
  await p.keyboard.press("Escape");
  await answered(p, 1);
  assert.match(await p.textContent("article.assistant .note"), /stopped/);
  const length = (await p.textContent("article.assistant .text")).length;
  assert.ok(length > 200 && length < 150000, length);
  await p.click("[data-action=retry]");
  await p.waitForFunction(() => document.querySelectorAll("article.assistant.busy .text").length === 1 && document.querySelector("article.assistant .text").textContent.length > 50);
  await p.click("#send");
  await answered(p, 1);
  assert.equal(await p.textContent("#send"), "Send");
  await p.finish();
});

await check("edit and send again cuts what followed; Escape leaves it", async () => {
  const p = await open();
  await send(p, "first");
  await answered(p, 1);
  await send(p, "second");
  await answered(p, 2);
  await p.click("article.user >> nth=0 >> [data-action=edit]");
  await p.keyboard.press("Escape");
  assert.equal(await p.textContent("article.user >> nth=0 >> .said"), "first");
  await p.click("article.user >> nth=0 >> [data-action=edit]");
  await p.keyboard.type(" markdown");
  const [asked] = await Promise.all([p.waitForRequest("**/v1/chat/completions"), p.keyboard.press("Enter")]);
  assert.deepEqual(asked.postDataJSON().messages, [{role: "user", content: "first markdown"}]);
  await answered(p, 1);
  await p.waitForSelector(".text h1");
  await p.finish();
});

await check("reasoning is folded; tools are called, shown and answered", async () => {
  const p = await open();
  await p.click("#options");
  await p.check("#think");
  await p.fill("#tools", JSON.stringify([{type: "function", function: {name: "weather", parameters: {type: "object", properties: {city: {type: "string"}}}}}]));
  await p.click("#options");
  await send(p, "the weather?");
  await answered(p, 1);
  assert.equal(await p.getAttribute("details.reasoning", "open"), null);
  assert.equal(await p.textContent("details.reasoning > div"), "I think about it.");
  assert.equal(await p.textContent("details.call summary"), "Tool call: weather");
  assert.deepEqual(JSON.parse(await p.textContent("details.call code")), {city: "Paris"});
  await accessible(p);
  await p.fill(".result textarea", "sunny");
  await p.click(".result button");
  await answered(p, 2);
  assert.match(await p.textContent("article.assistant >> nth=1 >> .text"), /It is sunny/);
  await p.click("#options");
  await p.fill("#tools", "{");
  await p.press("#tools", "Tab");
  assert.match(await p.textContent("#toolserror"), /not JSON/);
  await p.finish();
});

await check("keys: Shift+Enter, the order of focus", async () => {
  const p = await open();
  await p.focus("#text");
  await p.keyboard.type("one");
  await p.keyboard.press("Shift+Enter");
  await p.keyboard.type("two");
  assert.equal(await p.inputValue("#text"), "one\ntwo");
  const order = [];
  for (let i = 0; i < 30 && order.length < 12; i++) { // from the link that skips the head on
    await p.keyboard.press("Tab");
    const at = await p.evaluate(() => document.activeElement.id || document.activeElement.className || document.activeElement.getAttribute("href"));
    if (order.length > 0 || at === "skip") order.push(at);
  }
  assert.deepEqual(order, ["skip", "menu", "/cluster", "options", "new", "log", "question", "question", "question", "attach", "text", "send"]);
  await p.finish();
});

await check("conversations are kept, opened and deleted", async () => {
  const p = await open();
  await send(p, "about one");
  await answered(p, 1);
  await p.click("#new");
  await send(p, "about two");
  await answered(p, 1);
  await p.reload();
  assert.equal(await p.textContent("article.user .said"), "about two");
  await p.click("#menu");
  assert.deepEqual(await p.$$eval("[data-open]", l => l.map(e => e.textContent)), ["about two", "about one"]);
  await p.click("[data-open] >> nth=1");
  assert.equal(await p.textContent("article.user .said"), "about one");
  await accessible(p);
  await p.click("[data-delete] >> nth=1");
  assert.deepEqual(await p.$$eval("[data-open]", l => l.map(e => e.textContent)), ["about two"]);
  assert.equal(await p.$("article"), null);
  p.once("dialog", d => d.accept());
  await p.click("#forget");
  assert.deepEqual(await p.evaluate(() => Object.keys(localStorage).filter(k => k.startsWith("ringmaster.conversation"))), []);
  await p.finish();
});

const sse = text => ({status: 200, contentType: "text/event-stream", body: text});
const piece = (content, more = {}) => `data: ${JSON.stringify({model: "m", choices: [{index: 0, delta: {content}, ...more}]})}\n\n`;

await check("errors are shown with the cure", async () => {
  const p = await open({expected: [/401|429|503|Failed to load|ERR_/]});
  const failing = async answer => {
    await p.route("**/v1/chat/completions", answer, {times: 1});
    await send(p, "again");
    await p.waitForSelector(".failure");
    return p.textContent(".failure");
  };
  assert.match(await failing(r => r.fulfill({status: 429, headers: {"Retry-After": "2"}, json: {error: {message: "Too many."}}})), /Too many\..*Retry later\..*Retry in 2 s/s);
  assert.ok(await p.isDisabled(".failure button"));
  await p.waitForSelector(".failure button:enabled");
  await p.click(".failure button");
  await answered(p, 1);
  assert.match(await failing(r => r.fulfill({status: 503, json: {error: {message: "Rank 1 is lost."}}})), /Rank 1 is lost\..*cluster page shows why/s);
  assert.match(await failing(r => r.abort()), /cannot be reached.*Check that it runs/s);
  assert.match(await failing(r => r.fulfill(sse(piece("Half an ")))), /lost in the middle.*The text so far is kept/s);
  assert.match(await p.textContent("article.assistant >> nth=-1"), /Half an/);
  assert.match(await failing(r => r.fulfill(sse(piece("Part") + 'data: {"error":{"message":"the rank is gone"}}\n\n'))), /the rank is gone/);
  await accessible(p);
  await p.click(".failure button"); // what the failed answer left goes
  await p.waitForFunction(() => !document.querySelector(".failure") && !document.querySelector(".busy"));
  assert.doesNotMatch(await p.textContent("#log"), /Part/);
  await p.finish();
});

await check("comments keep a stream alive and are no text", async () => {
  const p = await open();
  await p.route("**/v1/chat/completions", r => r.fulfill(sse(": keep-alive\n\n" + piece("Hel") + ":\n\n: x\r\n\r\n" + piece("lo", {finish_reason: "stop"}) + "data: [DONE]\n\n")), {times: 1});
  await send(p, "hi");
  await answered(p, 1);
  assert.equal((await p.textContent("article.assistant .text")).trim(), "Hello");
  await p.finish();
});

await check("where the server does not render, the text is shown as it is", async () => {
  const p = await open({expected: [/401|429|Failed to load/]});
  await p.route("**/web/markdown", r => r.fulfill({status: 429, json: {error: {message: "busy"}}}));
  await send(p, "markdown please");
  await answered(p, 1);
  assert.match(await p.textContent("article.assistant .text"), /# Title/);
  await p.finish();
});

for (const colorScheme of ["light", "dark"]) {
  await check(`a phone's width, ${colorScheme}`, async () => {
    const p = await open({viewport: {width: 360, height: 700}, colorScheme});
    await send(p, "markdown please, with aVeryLongWord".padEnd(300, "x"));
    await answered(p, 1);
    await p.waitForSelector(".text table");
    await send(p, "code please");
    await answered(p, 2);
    await narrow(p);
    await accessible(p);
    await p.click("#menu");
    await narrow(p);
    await p.keyboard.press("Escape");
    assert.equal(await p.isVisible("#side"), false);
    const back = await p.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(back, colorScheme === "dark" ? "rgb(22, 24, 28)" : "rgb(255, 255, 255)");
    await p.finish();
  });
}

await done();
