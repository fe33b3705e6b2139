// The pages of a group of three ranks with the built-in model: see cluster_test.go.
import assert from "node:assert/strict";
import {hostname} from "node:os";
import {accessible, ask, check, done, narrow, page, picture, pictures} from "./browser.mjs";

const until = (p, ...want) => p.waitForFunction(want => JSON.stringify([...document.querySelectorAll("#ranks > li .state")].map(e => e.textContent)) === JSON.stringify(want), want);
const event = (p, kind, text) => p.waitForFunction(([kind, text]) => [...document.querySelectorAll(`#events .${kind}`)].some(e => e.textContent.includes(text)), [kind, text]);

const expected = [/503|Failed to load|ERR_/]; // while the group forms
let cluster, chat;

await check("the group forms on the page", async () => {
  for (let tries = 0; ; tries++) { // until rank 0 listens
    try { cluster = await page("/cluster", {expected}); break; } catch (e) { if (tries > 600) throw e; await new Promise(r => setTimeout(r, 100)); }
  }
  await cluster.waitForFunction(() => document.querySelector("#phase").textContent.includes("waiting for rank 2"));
  await until(cluster, "joining", "joining", "not joined yet");
  await ask("start 2");
  await until(cluster, "member", "member", "member");
  await event(cluster, "formed", "3 of 3 ranks over tcp");
  await event(cluster, "joined", `rank 2 (${hostname()}) joined`);
  assert.equal(await cluster.textContent("#phase"), "Ready: all 3 ranks answer.");
  assert.match(await cluster.textContent("#detail"), /Epoch 1: 3 of 3 ranks over tcp/);
  for (const card of await cluster.$$eval("#ranks > li", l => l.map(e => e.textContent))) {
    assert.ok(card.includes(`(${hostname()})`), card);
    assert.match(card, /Address127\.0\.0\.1:\d+/);
  }
});

// ask1 asks on the chat page and gives the answer.
async function ask1(text) {
  const n = await chat.locator("article.assistant").count();
  await chat.fill("#text", text);
  await chat.press("#text", "Enter");
  await chat.waitForFunction(n => document.querySelectorAll("article.assistant:not(.busy)").length > n, n);
  return chat.textContent("article.assistant >> nth=-1 >> .text");
}

await check("a whole conversation", async () => {
  chat = await page("/");
  await chat.waitForFunction(() => document.querySelector("#model").textContent !== "Ringmaster");
  assert.match(await ask1("What is the capital of France?"), /Paris/);
  assert.match(await ask1("What is the capital of Japan?"), /Tokyo/);
  await picture(chat, "chat");
  await accessible(chat);
});

await check("shares, memory, links, rates and heat maps", async () => {
  const text = await cluster.textContent("#ranks");
  assert.match(text, /experts 0–85 of 256/);
  assert.match(text, /experts 171–255 of 256/);
  assert.match(text, /Backendcpu /);
  assert.match(text, /127\.0\.0\.1:\d+/);
  if (process.platform === "linux") assert.match(text, /MiB held of/);
  await cluster.waitForFunction(() => document.querySelectorAll("#heat table").length === 3);
  assert.deepEqual(await cluster.$$eval("#heat table", l => l.map(t => t.dataset.kind)), ["compute", "waiting", "wire"]);
  assert.equal(await cluster.$$eval("#heat [data-kind=compute] tr", l => l.length), 3);
  assert.ok(await cluster.$$eval("#heat [data-kind=compute] td", l => l.length) >= 3 * 2);
  await cluster.check("[name=period][value=all]");
  assert.match(await cluster.textContent("#heat caption"), /Computing: [\d.]+ (m?s|µs) in total/);
  await chat.fill("#text", "What is the capital of Italy?");
  await chat.press("#text", "Enter");
  await cluster.waitForFunction(() => parseFloat(document.querySelector("#rates div:nth-child(2) dd").textContent) > 0);
  await cluster.waitForFunction(() => /tcp: sends [\d.]+ [KM]?i?B\/s/.test(document.querySelector("#ranks").textContent));
  await accessible(cluster);
});

await check("charts of what the server did since it started", async () => {
  await cluster.waitForFunction(() => document.querySelectorAll("#hour path.line[d]").length === 4);
  await cluster.waitForFunction(() => /now 3 computing of 3/.test(document.querySelector("#hour [data-chart=Ranks]").textContent));
  await cluster.waitForFunction(() => /at most (0\.\d*[1-9]|[1-9])[\d,.]* tokens/.test(document.querySelector("#hour [data-chart=Decode] svg").getAttribute("aria-label")));
});

await check("a rank is killed", async () => {
  await ask("kill 1");
  await until(cluster, "member", "lost", "member");
  await event(cluster, "lost", `rank 1 (${hostname()}) at 127.0.0.1`);
  await cluster.waitForFunction(() => document.querySelector("#phase").textContent.includes("2 of 3."));
  const phase = await cluster.textContent("#phase");
  assert.match(phase, /^Rank 1 \(.+\) is lost since \d\d:\d\d; answers continue on 2 of 3\.$/);
  assert.ok(phase.includes(`(${hostname()})`), phase);
  assert.ok(await cluster.$("#banner.warn"));
  assert.match(await cluster.textContent("#ranks [data-rank='1']"), /Address127\.0\.0\.1:\d+/);
  assert.match(await cluster.textContent("#ranks"), /experts 0–127 of 256/);
  assert.match(await ask1("What is the capital of Spain?"), /Madrid/);
  for (const country of pictures ? ["Norway", "Kenya", "Peru", "Egypt", "Cuba"] : []) { // so that the charts have lines
    await ask1(`What is the capital of ${country}?`);
    await cluster.waitForTimeout(10_000);
  }
  await picture(cluster, "cluster", {fullPage: true});
  await accessible(cluster);
  await cluster.emulateMedia({colorScheme: "dark"});
  await accessible(cluster);
  await picture(cluster, "cluster-dark");
  await cluster.emulateMedia({colorScheme: "light"});
});

await check("and comes back", async () => {
  await ask("start 1");
  await until(cluster, "member", "member", "member");
  const order = await cluster.$$eval("#events li", l => l.map(e => e.className).reverse());
  assert.ok(order.indexOf("lost") < order.lastIndexOf("joined"), order.join());
  assert.match(await ask1("What is the capital of Germany?"), /Berlin/);
});

for (const colorScheme of ["light", "dark"]) {
  await check(`the cluster page at a phone's width, ${colorScheme}`, async () => {
    const p = await page("/cluster", {viewport: {width: 360, height: 700}, colorScheme});
    await until(p, "member", "member", "member");
    await p.waitForSelector("#heat td");
    await narrow(p);
    await accessible(p);
    await p.finish();
  });
}

await check("the leader is gone: the page says so", async () => {
  await chat.finish();
  await ask("kill 0");
  await cluster.waitForFunction(() => document.querySelector("#phase").textContent.includes("cannot be reached"));
  await cluster.finish();
});

await done();
