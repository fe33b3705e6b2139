// What the chat page keeps, on a server that is killed and held: see kept_test.go.
import assert from "node:assert/strict";
import {accessible, ask, check, done, page, picture} from "./browser.mjs";

const expected = [/Failed to load|ERR_/]; // while the server is away
const free = () => ask("hold -1");

async function open(path = "/", options = {}) {
  const p = await page(path, {expected, ...options});
  await p.waitForFunction(() => document.querySelector("#model").textContent === "scripted");
  return p;
}

async function send(p, text) {
  await p.fill("#text", text);
  await p.press("#text", "Enter");
}

const answered = (p, n) => p.waitForFunction(n => document.querySelectorAll("article.assistant:not(.busy)").length === n && !document.querySelector("article.busy"), n);
const answers = p => p.$$eval("article.assistant .text", l => l.map(e => e.textContent.trim()));
const has = (p, text) => p.waitForFunction(text => document.querySelector("#log").textContent.includes(text), text);
const count = (text, word) => text.split(word).length - 1;
const poem = async p => count(await p.textContent("article.assistant >> nth=-1 >> .text"), "A line of a poem.");

// half asks for a poem and holds the model in the middle of it.
async function half(p) {
  await ask("hold 500"); // a step makes a byte
  await send(p, "a poem");
  await p.waitForFunction(() => document.querySelector("article.assistant .text")?.textContent.length > 300);
  const lines = await poem(p);
  assert.ok(lines > 5 && lines < 100, lines);
  return lines;
}

await check("Retry without a server keeps the old answer; with one the new answer is another version", async () => {
  const p = await open();
  await send(p, "markdown please");
  await answered(p, 1);
  await ask("kill");
  await p.click("[data-action=retry]");
  await p.waitForSelector(".failure");
  assert.match((await answers(p))[0], /Title/);
  await ask("start");
  await p.reload();
  await has(p, "Title");
  await p.click("[data-action=retry]");
  await p.waitForFunction(() => document.querySelector(".branches:not([hidden]) span")?.textContent === "2/2");
  await answered(p, 1);
  await p.click(".branches:not([hidden]) [data-action=previous]");
  await p.waitForFunction(() => document.querySelector("article.assistant .branches span").textContent === "1/2");
  await picture(p, "versions");
  await accessible(p);
  await p.reload();
  await p.waitForFunction(() => document.querySelector("article.assistant .branches span")?.textContent === "1/2");
  await p.finish();
});

await check("the old answer stays until the new one has a token, with what followed it", async () => {
  const p = await open();
  await send(p, "first");
  await answered(p, 1);
  await send(p, "markdown second");
  await answered(p, 2);
  await ask("hold 0");
  await p.click("article.assistant >> nth=0 >> [data-action=retry]");
  await p.waitForSelector("article.busy");
  assert.equal(await p.$$eval("article.old", l => l.length), 3);
  await p.keyboard.press("Escape"); // before the first token
  await answered(p, 2);
  assert.equal(await p.$$eval("article.old", l => l.length), 0);
  await p.click("article.assistant >> nth=0 >> [data-action=retry]");
  await p.waitForSelector("article.busy");
  await free();
  await answered(p, 1);
  await p.click(".branches:not([hidden]) [data-action=previous]");
  await answered(p, 2);
  assert.match((await answers(p))[1], /Title/);
  await p.finish();
});

await check("an edited question is another version; the first one keeps its answer", async () => {
  const p = await open();
  await send(p, "first");
  await answered(p, 1);
  await p.click("[data-action=edit]");
  await p.keyboard.type(" markdown");
  await p.keyboard.press("Enter");
  await has(p, "Title");
  await answered(p, 1);
  await p.click("article.user [data-action=previous]");
  await has(p, "Fine.");
  assert.equal(await p.textContent("article.user .said"), "first");
  await p.finish();
});

await check("New chat during an answer: it continues, and is complete when it is opened", async () => {
  const p = await open();
  await half(p);
  await p.click("#new");
  assert.equal(await p.$("article"), null);
  assert.equal(await p.textContent("#send"), "Send");
  await free();
  await send(p, "something else");
  await answered(p, 1);
  await p.click("#menu");
  await p.click("#conversations [data-open] >> text=a poem");
  await answered(p, 1);
  assert.equal(await poem(p), 100);
  await p.goBack();
  await has(p, "something else");
  await p.finish();
});

await check("a reload during an answer keeps what came; before its first token it keeps the question", async () => {
  const p = await open();
  const lines = await half(p);
  await p.fill("#text", "a draft");
  await p.reload();
  await has(p, "incomplete");
  assert.ok(await poem(p) >= lines);
  assert.equal(await p.inputValue("#text"), "a draft");
  await free();
  await p.click("[data-action=retry]");
  await answered(p, 1);
  assert.equal(await poem(p), 100);
  await ask("hold 0");
  await send(p, "markdown");
  await p.waitForSelector("article.busy");
  await p.reload();
  await has(p, "no answer yet");
  await free();
  await p.click(".failure button");
  await has(p, "Title");
  await p.finish();
});

await check("the cluster page during an answer, and back by its link", async () => {
  const p = await open();
  const lines = await half(p);
  await p.click("nav a");
  await p.waitForSelector("#rates dd");
  await p.click("nav a");
  await has(p, "incomplete");
  assert.ok(await poem(p) >= lines);
  await free();
  await p.finish();
});

await check("a server killed in the middle: the text stays, also over a reload", async () => {
  const p = await open();
  const lines = await half(p);
  await ask("kill");
  await p.waitForSelector(".failure");
  assert.ok(await poem(p) >= lines);
  await free();
  await ask("start");
  await p.reload();
  await has(p, "incomplete");
  assert.ok(await poem(p) >= lines);
  await p.finish();
});

await check("Continue: an answer that was cut by a reload, Stop, a killed server or the limit of tokens gets its rest", async () => {
  const p = await open();
  const more = "[data-action=continue]:visible", whole = async versions => {
    await p.waitForFunction(versions => document.querySelector("article.assistant .branches span")?.textContent === versions, versions);
    await answered(p, 1);
    assert.equal(await poem(p), 100);
    assert.equal(await p.$(more), null);
  };
  const lines = await half(p);
  assert.equal(await p.$(more), null);
  await p.reload();
  await has(p, "incomplete");
  await picture(p, "continue");
  await accessible(p);
  await ask("quiet");
  await ask("hold 0");
  const [asked] = await Promise.all([p.waitForRequest("**/v1/chat/completions"), p.click(more)]);
  const last = asked.postDataJSON().messages.at(-1);
  assert.deepEqual([last.role, last.prefix, count(last.content, "A line of a poem.") >= lines], ["assistant", true, true]);
  assert.equal(await p.$$eval("article.assistant", l => l.length), 1); // in the place of the first
  assert.ok(await poem(p) >= lines);
  await ask("hold 300");
  await p.waitForFunction(n => document.querySelector("article.assistant .text").textContent.split("A line of a poem.").length - 1 > n, lines + 4);
  await p.keyboard.press("Escape");
  await has(p, "stopped");
  await ask("quiet"); // the abandoned request would take the steps of the next one
  await ask("hold 500");
  await p.click(more);
  await p.waitForFunction(() => document.querySelector("article.assistant .branches span").textContent === "3/3");
  await ask("kill");
  await p.waitForSelector(".failure");
  await p.click(more); // and nothing is lost without a server
  await p.waitForFunction(() => document.querySelector(".failure")?.textContent.includes("cannot be reached"));
  assert.ok(await poem(p) > lines + 4);
  await free();
  await ask("start");
  await p.click(more);
  await whole("4/4");
  for (const n of [3, 2, 1]) { // the cut ones are still there
    await p.click("article.assistant [data-action=previous]");
    await p.waitForFunction(n => document.querySelector("article.assistant .branches span").textContent === `${n}/4`, n);
    assert.ok(await poem(p) < 100);
  }
  await p.click("#new");
  await p.click("#options");
  await p.fill("#limit", "900");
  await send(p, "a poem");
  await answered(p, 1);
  assert.match(await p.textContent("article.assistant .note"), /900 tokens .* ended at the limit of tokens/);
  await p.click(more);
  await p.waitForFunction(() => document.querySelector("article.assistant .note").textContent.includes("1,800 tokens"));
  await p.click(more);
  await whole("3/3");
  await p.finish();
});

await check("two tabs: neither overwrites the other, in one conversation or in two", async () => {
  const a = await open();
  await send(a, "first");
  await answered(a, 1);
  const address = new URL(a.url());
  const b = await open(address.pathname + address.search, {beside: a});
  await has(b, "Fine.");
  await ask("hold 0");
  await send(a, "markdown of A");
  await send(b, "a poem of B");
  await free();
  await answered(a, 2);
  await answered(b, 2);
  for (const p of [a, b]) { // each has the other's question as another version of its own
    await p.waitForFunction(() => document.querySelectorAll("article.user .branches")[1]?.textContent.includes("/2"));
    const seen = [];
    for (const action of ["previous", "next"]) {
      const button = p.locator(`article.user >> nth=1 >> [data-action=${action}]`);
      if (await button.isEnabled()) await button.click();
      seen.push(await p.textContent("#log"));
    }
    const all = seen.join();
    for (const words of ["markdown of A", "Title", "a poem of B", "A line of a poem."]) assert.ok(all.includes(words), words);
  }
  // What one adds to the branch that the other shows appears there.
  await a.reload();
  await b.reload();
  await answered(b, 2);
  await send(a, "third");
  await has(b, "third");
  await answered(b, 3);
  await a.click("#new");
  await b.click("#new");
  await Promise.all([send(a, "only of A"), send(b, "only of B")]);
  await answered(a, 1);
  await answered(b, 1);
  await a.click("#menu");
  assert.deepEqual((await a.$$eval("[data-open]", l => l.map(e => e.textContent))).sort(), ["first", "only of A", "only of B"]);
  await b.click("#menu");
  await b.click("[data-delete] >> nth=0");
  await a.waitForFunction(() => document.querySelectorAll("[data-open]").length === 2);
  // An answer of a conversation that the other tab deletes ends, and stays deleted.
  await b.click("#new");
  await ask("hold 500");
  await send(b, "a poem that is deleted");
  await b.waitForFunction(() => document.querySelector("article.assistant .text")?.textContent.length > 300);
  await a.waitForFunction(() => [...document.querySelectorAll("[data-open]")].some(e => e.textContent === "a poem that is deleted"));
  await a.click("[aria-label='Delete: a poem that is deleted']");
  await b.waitForFunction(() => document.querySelector("#note").textContent.includes("deleted in another tab"));
  await free();
  await b.waitForFunction(() => document.querySelector("#send").textContent === "Send");
  assert.ok(!(await a.$$eval("[data-open]", l => l.map(e => e.textContent))).includes("a poem that is deleted"));
  await b.finish();
});

await check("conversations of an earlier version are taken over", async () => {
  const p = await open();
  await p.evaluate(() => localStorage.setItem("ringmaster.conversations", JSON.stringify([
    {id: "x2", title: "later", messages: [{role: "user", content: "later"}, {role: "assistant", content: "An *old* answer."}]},
    {id: "x1", title: "earlier", messages: [{role: "user", content: "earlier"}]}])));
  await p.reload();
  await p.click("#menu");
  assert.deepEqual(await p.$$eval("[data-open]", l => l.map(e => e.textContent)), ["later", "earlier"]);
  await p.click("[data-open] >> nth=0");
  await p.waitForSelector(".text em");
  assert.equal(await p.evaluate(() => localStorage.getItem("ringmaster.conversations")), null);
  await p.finish();
});

await check("a list of an earlier version that fills the storage is taken over whole; what is too long stays in it", async () => {
  const p = await open();
  const fill = lengths => p.evaluate(lengths => {
    localStorage.clear();
    localStorage.setItem("ringmaster.conversations", JSON.stringify(lengths.map((n, i) => ({id: `x${i}`, messages: [{role: "user", content: `${i} `.padEnd(n, "x")}]}))));
  }, lengths);
  const kept = () => p.evaluate(() => [Object.keys(localStorage).filter(n => n.startsWith("ringmaster.conversation.")).length, JSON.parse(localStorage.getItem("ringmaster.conversations"))?.map(c => c.id) ?? []]);
  await fill(Array(40).fill(100_000)); // twice as much has no room
  await p.reload();
  assert.deepEqual(await kept(), [40, []]);
  await fill([1000, 4_500_000, 1000]);
  await p.reload();
  assert.deepEqual(await kept(), [2, ["x1"]]);
  await p.finish();
});

await check("an answer that ended before its first word is no version", async () => {
  const p = await open();
  await p.evaluate(() => localStorage.setItem("ringmaster.conversation.d1", JSON.stringify({id: "d1", changed: 1, at: "c", messages: [{id: "a", parent: "", role: "user", content: "first"},
    {id: "b", parent: "a", role: "assistant", content: "A *whole* answer."}, {id: "c", parent: "a", role: "assistant", content: "", partial: true}]})));
  await p.goto(p.url().split("?")[0] + "?chat=d1");
  await p.waitForSelector(".text em");
  assert.equal(await p.$(".branches:not([hidden])"), null);
  await p.finish();
});

await check("an address of another browser's conversation says so", async () => {
  const p = await open("/?chat=unknown");
  assert.match(await p.textContent("#note"), /does not have the conversation/);
  await p.finish();
});

await done();
