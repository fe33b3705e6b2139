// Markdown, rendered by the server while it arrives.
import {headers, json} from "./key.js";

// The only way for HTML into a page; the content policy allows no other.
const policy = globalThis.trustedTypes?.createPolicy("ringmaster", {createHTML: text => text}) ?? {createHTML: text => text};

const longest = 60 << 10; // bytes; a little less than the server renders at once
const limit = 10000;      // milliseconds for one rendering

function bytes(text) { return new TextEncoder().encode(text).length; }

async function render(text, partial) {
  const response = await fetch("/web/markdown", {method: "POST", headers: headers(json), body: JSON.stringify({text, partial}), signal: AbortSignal.timeout(limit)});
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

// fill shows HTML in an element; note says why a part is shown as text.
function fill(element, html, note) {
  element.title = note ? `Shown as text: ${note}` : "";
  element.innerHTML = policy.createHTML(html);
  // A cell with a sentence keeps room for some words in a line where the table is narrow.
  for (const cell of element.querySelectorAll("td")) cell.classList.toggle("long", cell.textContent.length > 30);
  for (const pre of element.querySelectorAll("pre")) { // each gets a button to copy it
    const block = document.createElement("div"), copy = document.createElement("button");
    block.className = "block";
    copy.type = "button";
    copy.className = "copy";
    copy.textContent = "Copy";
    copy.setAttribute("aria-label", "Copy code");
    pre.tabIndex = 0; // it may scroll
    pre.replaceWith(block);
    block.append(pre, copy);
  }
}

// Text shows Markdown in an element. The settled part is rendered once. The rest is
// rendered again when it has grown by a fraction of itself, so that the work grows with
// the length of the text and not with its square. In between, and if the server does not
// render, new text is shown as it is.
export class Text {
  constructor(element) {
    this.element = element;
    this.whole = "";    // all text
    this.settled = 0;   // length of the part that is rendered for good
    this.shown = 0;     // length of the rendered part
    this.asking = false;
    this.tail = null;   // the place in the rendered text for what follows, if there is one
    this.changed = () => {};
    this.open = document.createElement("div");
    this.pending = document.createElement("span");
    this.pending.className = "pending";
    element.replaceChildren(this.open, this.pending);
  }

  // set shows a longer text.
  set(text) {
    if (this.ended) return;
    this.whole = text;
    (this.tail ?? this.pending).textContent = text.slice(this.shown);
    const fresh = text.length - this.shown;
    if (!this.asking && !this.failed && fresh >= Math.max(1, (this.shown - this.settled) / 4)) this.ask();
  }

  async ask() {
    this.asking = true;
    const text = this.whole.slice(this.settled), started = performance.now();
    try {
      const r = await render(text, true);
      if (!this.ended) this.show(text, r);
    } catch {
      this.failed = true; // end() tries again
    }
    // Rendering takes at most a fifth of the time, and runs a few times a second.
    await new Promise(next => setTimeout(next, Math.max(120, 4 * (performance.now() - started))));
    this.asking = false;
    if (!this.ended && this.whole.length > this.shown) this.set(this.whole);
  }

  show(text, r) {
    if (r.settled > 0) {
      const part = document.createElement("div");
      fill(part, r.html, r.note);
      this.open.before(part);
    }
    this.settled += r.settled;
    this.shown = this.settled + text.length - r.settled;
    fill(this.open, r.open, r.note);
    // What follows belongs to the block of code, or continues the last paragraph.
    const last = r.in_code ? [...this.open.querySelectorAll("pre code")].at(-1) : this.open.lastElementChild;
    this.tail = null;
    if (last?.matches("code, p")) {
      this.tail = document.createElement("span");
      this.tail.className = "pending";
      last.append(this.tail);
    }
    this.pending.textContent = "";
    (this.tail ?? this.pending).textContent = this.whole.slice(this.shown);
    this.changed();
  }

  // end renders the whole text once more, since links may be defined at its end. It
  // resolves when that is done, even if the server does not render it.
  async end(text) {
    this.whole = text;
    this.ended = true;
    try {
      if (bytes(text) <= longest) {
        const part = document.createElement("div"), r = await render(text, false);
        fill(part, r.html, r.note);
        this.element.replaceChildren(part);
        return;
      }
      const rest = text.slice(this.settled);
      this.show(rest, await render(rest, false));
    } catch {
      (this.tail ?? this.pending).textContent = text.slice(this.shown);
    } finally {
      this.changed();
    }
  }
}
