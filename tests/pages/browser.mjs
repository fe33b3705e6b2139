// A Chromium, and what every test asks of a page: it writes only expected errors to the
// console, throws nothing, and sends requests only to its server.
import assert from "node:assert/strict";
import {createInterface} from "node:readline";
import {chromium} from "playwright-core";

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const lines = createInterface({input: process.stdin})[Symbol.asyncIterator]();

export const {URL: url, KEY: apiKey, PICTURES: pictures} = process.env;

// check runs a test and says that it passed.
export async function check(name, run) {
  await run();
  console.log("ok " + name);
}

// ask has the Go test do something, and waits until it is done.
export async function ask(words) {
  console.log("do " + words);
  assert.equal((await lines.next()).value, "done");
}

export async function done() {
  await browser.close();
  console.log("done");
  process.exit(0);
}

// page opens a page of its own, with storage of its own, or a tab beside another page.
// finish closes it with the tabs beside it, and fails if it did what it must not; expected
// are patterns of console errors that the test causes.
export async function page(path, {expected = [], beside, ...options} = {}) {
  const context = beside?.context() ?? await browser.newContext({viewport: {width: 1100, height: 800}, permissions: ["clipboard-read", "clipboard-write"], ...options});
  context.setDefaultTimeout(60000);
  context.tabs = (context.tabs ?? 0) + 1;
  const p = await context.newPage(), wrong = [];
  p.on("console", m => {
    if (["error", "warning"].includes(m.type()) && !expected.some(e => e.test(m.text()))) wrong.push(`${m.type()}: ${m.text()} (${m.location().url})`);
  });
  p.on("pageerror", e => wrong.push(`exception: ${e.stack}`));
  context.on("request", r => {
    if (!r.url().startsWith(url + "/") && !r.url().startsWith(`blob:${url}/`)) wrong.push(`request outside: ${r.url()}`);
  });
  context.on("page", other => {
    if (context.pages().length > context.tabs) wrong.push(`another page: ${other.url()}`);
  });
  await p.goto(url + path);
  p.finish = async () => {
    await context.close();
    assert.deepEqual(wrong, []);
  };
  return p;
}

// picture leaves a picture of the page, if pictures are wanted.
export async function picture(p, name, options = {}) {
  if (pictures) await p.screenshot({path: `${pictures}/${name}.png`, ...options});
}

// accessible fails if a control has no name, an id is used twice, there is not one main
// part and one first heading, or a text has less contrast with what is behind it than
// WCAG asks for (4.5, for large text 3).
export async function accessible(p) {
  const found = await p.evaluate(() => {
    const out = [], seen = new Set();
    const visible = e => e.checkVisibility({visibilityProperty: true, opacityProperty: true}) && e.getClientRects().length > 0;
    for (const e of document.querySelectorAll("[id]")) {
      if (seen.has(e.id)) out.push(`two elements have the id ${e.id}`);
      seen.add(e.id);
    }
    for (const e of document.querySelectorAll("[aria-controls], [aria-labelledby]")) {
      const id = e.getAttribute("aria-controls") ?? e.getAttribute("aria-labelledby");
      if (!document.getElementById(id)) out.push(`nothing has the id ${id}`);
    }
    for (const e of document.querySelectorAll("button, a, input, textarea, select, summary, [role=img]")) {
      const name = e.getAttribute("aria-label") || e.textContent.trim() || [...e.labels ?? []].map(l => l.textContent.trim()).join("");
      if (visible(e) && !name) out.push(`no name: ${e.outerHTML.slice(0, 100)}`);
    }
    for (const what of ["main", "h1"]) if (document.querySelectorAll(`body > ${what}, body > * > ${what}`).length !== 1) out.push(`not one ${what}`);
    if (!document.documentElement.lang || !document.title) out.push("no language or title");

    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const over = (colors) => { // the colour of layers, the lowest first
      canvas.clearRect(0, 0, 1, 1);
      for (const c of colors) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); }
      return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = rgb => {
      const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let n = walk.nextNode(); n; n = walk.nextNode()) {
      const e = n.parentElement;
      if (!n.textContent.trim() || !visible(e) || e.closest(".hidden, .skip, :disabled")) continue;
      const backs = [];
      for (let a = e; a; a = a.parentElement) backs.unshift(getComputedStyle(a).backgroundColor);
      const style = getComputedStyle(e), back = over(["white", ...backs]), front = over([`rgb(${back})`, style.color]);
      const [high, low] = [light(front), light(back)].sort((a, b) => b - a), contrast = (high + 0.05) / (low + 0.05);
      const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
      if (contrast < (large ? 3 : 4.5)) out.push(`contrast ${contrast.toFixed(2)}: ${n.textContent.trim().slice(0, 40)} (${style.color} on ${back})`);
    }
    return out;
  });
  assert.deepEqual(found, []);
}

// narrow fails if the page is wider than its window.
export async function narrow(p) {
  const [wide, window] = await p.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `the page is ${wide} wide in a window of ${window}`);
}
