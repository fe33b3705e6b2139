// The list of conversations: search, rename, export, import, delete.
import {$, make} from "./dom.js";
import {merge, named, newId, parse, plain, title} from "./conversation.js";
import * as store from "./store.js";

const mostImport = 16 << 20; // bytes

// has reports whether a conversation has all words, in any case.
function has(c, words) {
  const all = [c.name, ...[...c.messages.values()].flatMap(m => [m.content, ...(m.files ?? []).map(f => f.name)])].join("\n").toLowerCase();
  return words.every(w => all.includes(w));
}

// Side is the list. page has current(), open(conversation), changed(conversation) and
// gone(ids).
export class Side {
  constructor(page) {
    this.page = page;
    $("search").addEventListener("input", () => this.list());
    $("conversations").addEventListener("click", e => this.click(e.target.closest("button")));
    $("forget").addEventListener("click", () => {
      if (!confirm("Delete all conversations from this browser?")) return;
      this.remove(store.load().map(c => c.id));
      $("new").focus();
    });
    $("export").addEventListener("click", () => save(store.load(), "ringmaster-conversations.json"));
    $("import").addEventListener("click", () => $("imported").click());
    $("imported").addEventListener("change", async () => {
      await this.take([...$("imported").files]);
      $("imported").value = "";
    });
  }

  // list shows the conversations that have the words of the search.
  list() {
    if ($("side").hidden || $("conversations").querySelector("form")) return; // a name is being typed
    const all = store.load(), words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter(c => has(c, words));
    $("none").hidden = found.length > 0;
    $("none").textContent = all.length ? "No conversation has these words." : "No conversations yet.";
    for (const id of ["forget", "export"]) $(id).hidden = all.length === 0;
    const current = this.page.current().id;
    const button = (action, c, label, text, more = "") =>
      make("button", {type: "button", class: "plain" + more, [`data-${action}`]: c.id, "aria-label": `${label}: ${title(c)}`, title: label}, text);
    $("conversations").replaceChildren(...found.map(c => make("li", {},
      make("button", {type: "button", class: "plain", "data-open": c.id, "aria-current": c.id === current ? "true" : undefined}, title(c)),
      button("rename", c, "Rename", "✎"), button("export", c, "Export", "↓"), button("delete", c, "Delete", "✕", " danger"))));
  }

  click(b) {
    if (!b) return;
    const {open, rename, delete: gone} = b.dataset, one = b.dataset.export;
    const c = store.get(open ?? rename ?? one ?? gone ?? "");
    if (!c) return;
    if (open) return this.page.open(c);
    if (rename) return this.rename(c, b.closest("li"));
    if (one) return save([c], `${title(c).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40) || "conversation"}.json`);
    this.remove([c.id]);
    ($("conversations").querySelector("button") ?? $("new")).focus();
  }

  remove(ids) {
    store.remove(ids);
    this.page.gone(ids);
    this.list();
  }

  // rename turns an entry into a field.
  rename(c, entry) {
    const field = make("input", {value: title(c), maxLength: 200, "aria-label": "Name of the conversation"});
    const form = make("form", {}, field);
    let ended = false;
    const end = name => {
      if (ended) return;
      ended = true;
      form.remove();
      if (name && name !== title(c)) this.page.changed(named(c, name));
      this.list();
      $("conversations").querySelector(`[data-rename="${CSS.escape(c.id)}"]`)?.focus();
    };
    form.addEventListener("submit", e => { e.preventDefault(); end(field.value.trim()); });
    field.addEventListener("blur", () => end(field.value.trim()));
    field.addEventListener("keydown", e => { if (e.key === "Escape") { e.stopPropagation(); end(""); } });
    entry.replaceChildren(form);
    field.select();
  }

  // take imports files that Export made.
  async take(files) {
    let taken = 0, wrong = "";
    for (const f of files) {
      try {
        if (f.size > mostImport) throw new Error("it is larger than 16 MiB");
        const list = JSON.parse(await f.text())?.conversations;
        if (!Array.isArray(list)) throw new Error("it is not an export of conversations");
        const all = list.map(parse).filter(c => c?.messages.size);
        for (const c of all) if (c.id.length > 64) c.id = newId();
        if (new Set([...store.load(), ...all].map(c => c.id)).size > store.most) throw new Error(`a browser keeps at most ${store.most} conversations: delete some first`);
        for (const c of all) {
          store.restore(c.id);
          const why = store.put(c);
          if (why) throw new Error(why);
          const shown = this.page.current();
          if (shown.id === c.id) { merge(shown, c); this.page.changed(shown); }
          taken++;
        }
      } catch (e) {
        wrong = `${f.name} cannot be imported: ${e.message}. `;
      }
    }
    $("note").textContent = wrong + (taken ? `${taken} conversation${taken === 1 ? "" : "s"} imported.` : "");
    this.list();
  }
}

// save gives conversations to the user as a file.
function save(conversations, name) {
  const url = URL.createObjectURL(new Blob([JSON.stringify({conversations: conversations.map(plain)}, null, 1)], {type: "application/json"}));
  const link = make("a", {href: url, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000); // the browser reads it after the click
}
