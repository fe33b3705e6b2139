// A conversation is a tree of messages: an answer that is asked for again, or a question
// that is edited, is another branch beside the first, so that no text is ever replaced.
//
// id, name (given by the user), named (when, in ms), changed (when, in ms), at (the last
// message of the branch that is shown), messages: a Map by id. A message has id, parent
// (an id, or "" for a first message), role, content and what belongs to its role. partial
// says that its answer was still arriving when it was stored.

const roles = ["user", "assistant", "tool"];

// newId returns an id; later ones sort after earlier ones.
export function newId() { return Date.now().toString(36) + Math.random().toString(36).slice(2, 8).padEnd(6, "0"); }

export function created() { return {id: newId(), name: "", named: 0, changed: Date.now(), at: "", messages: new Map()}; }

// title returns the name, or the beginning of the first question.
export function title(c) {
  const first = path(c)[0];
  return c.name || (first?.content || first?.files?.[0]?.name || "").slice(0, 60) || "Untitled";
}

// named gives a conversation a name.
export function named(c, name) { return Object.assign(c, {name, named: Date.now()}); }

// path returns the messages from the first one to a message, by default the last one shown.
export function path(c, to = c.at) {
  const out = [];
  for (let m = c.messages.get(to); m; m = c.messages.get(m.parent)) out.unshift(m);
  return out;
}

// children returns the messages that follow a message, the oldest first.
export function children(c, id) {
  return [...c.messages.values()].filter(m => m.parent === id).sort((a, b) => a.id < b.id ? -1 : 1);
}

// leaf returns the id of the newest message that follows a message.
export function leaf(c, id) {
  for (;;) {
    const next = children(c, id).at(-1);
    if (!next) return id;
    id = next.id;
  }
}

// add adds a message after its parent and shows it.
export function add(c, message) {
  message.id ??= newId();
  message.parent ??= c.at;
  c.messages.set(message.id, message);
  c.at = message.id;
  c.changed = Date.now();
  return message;
}

// size returns the length of a message's texts.
export const size = m => m.content.length + (m.reasoning_content?.length ?? 0);

// newer reports whether a message has more than the same message in another tab.
function newer(a, b) { return Boolean(a.partial) !== Boolean(b.partial) ? !a.partial : a.partial && size(a) > size(b); }

// merge adds to a conversation what the same one of another tab has more. It reports
// whether the other lacks something of this one.
export function merge(c, other) {
  let lacks = c.named > other.named;
  for (const m of other.messages.values()) {
    const mine = c.messages.get(m.id);
    if (!mine || newer(m, mine)) c.messages.set(m.id, m);
  }
  for (const m of c.messages.values()) {
    const theirs = other.messages.get(m.id);
    if (!theirs || newer(m, theirs)) lacks = true;
  }
  if (other.named > c.named) [c.name, c.named] = [other.name, other.named];
  c.changed = Math.max(c.changed, other.changed);
  return lacks;
}

// plain returns a conversation as it is stored and exported.
export function plain(c) { return {...c, messages: [...c.messages.values()]}; }

const text = v => typeof v === "string" ? v : "";
const time = v => Number.isFinite(v) ? v : 0;

// parse reads a stored or imported conversation; null: it is none. Messages without ids,
// as earlier versions stored them, follow each other.
export function parse(value) {
  if (!value || !text(value.id) || !Array.isArray(value.messages)) return null;
  const c = {id: value.id, name: text(value.name), named: time(value.named), changed: time(value.changed), at: "", messages: new Map()};
  let before = "";
  value.messages.forEach((stored, i) => {
    if (!stored || !roles.includes(stored.role)) return;
    const m = {...stored, content: text(stored.content)};
    if (!text(m.id)) [m.id, m.parent] = [`${c.id}.${String(i).padStart(4, "0")}`, before];
    if (m.parent && !c.messages.has(m.parent) || m.id === m.parent || c.messages.has(m.id)) return; // a parent comes first
    m.parent = text(m.parent);
    if (!Array.isArray(m.tool_calls) || m.partial || !m.tool_calls.every(t => typeof t?.function?.name === "string" && typeof t.function.arguments === "string")) delete m.tool_calls; // partial ones may be cut in the middle
    if (!Array.isArray(m.files) || !m.files.every(f => typeof f?.name === "string" && typeof f.text === "string")) delete m.files;
    if (typeof m.reasoning_content !== "string") delete m.reasoning_content;
    if (m.partial && m.role === "assistant" && !m.content && !m.reasoning_content) return; // only a cut call had arrived
    m.figures = Object.fromEntries(Object.entries(m.figures ?? {}).filter(([, v]) => Number.isFinite(v)));
    c.messages.set(m.id, m);
    before = m.id;
  });
  c.at = c.messages.has(value.at) ? value.at : leaf(c, "");
  return c;
}
