// The conversations, kept in this browser, each under a key of its own. Other tabs may
// change them at any time, so put first merges what is stored.
import {merge, parse, plain} from "./conversation.js";

const prefix = "ringmaster.conversation.", deletedName = "ringmaster.deleted", formerName = "ringmaster.conversations";
export const most = 200;
const mostLength = 4 << 20, mostDeleted = 200;

function read(name) {
  try { return JSON.parse(localStorage.getItem(name)); } catch { return null; }
}

function names() {
  try { return Object.keys(localStorage).filter(n => n.startsWith(prefix)); } catch { return []; }
}

// idOf returns the id of the conversation under a key, "" if it is another key.
export function idOf(name) { return name?.startsWith(prefix) ? name.slice(prefix.length) : ""; }

export function get(id) { return parse(read(prefix + id)); }

// load returns the conversations, the newest first.
export function load() {
  return names().map(n => parse(read(n))).filter(Boolean).sort((a, b) => b.changed - a.changed);
}

// deleted reports whether a conversation was deleted, here or in another tab.
export function deleted(id) { return (read(deletedName) ?? []).includes(id); }

function setDeleted(ids) { localStorage.setItem(deletedName, JSON.stringify(ids.slice(-mostDeleted))); }

// put stores a conversation merged with what is stored of it. It drops the oldest if
// there are too many or the storage is full. It returns why this one was not stored, ""
// if it was. One that was deleted stays deleted.
export function put(conversation) {
  if (deleted(conversation.id)) return "";
  const stored = get(conversation.id);
  if (stored) merge(conversation, stored);
  const value = JSON.stringify(plain(conversation)), name = prefix + conversation.id;
  if (value.length > mostLength) return "it is longer than a browser keeps";
  for (;;) {
    const others = names().filter(n => n !== name);
    const length = others.reduce((sum, n) => sum + (localStorage.getItem(n)?.length ?? 0), value.length);
    if (others.length < most && length <= mostLength) {
      try {
        localStorage.setItem(name, value);
        return "";
      } catch { /* no room, or not allowed */ }
    }
    const oldest = load().findLast(c => c.id !== conversation.id);
    if (!oldest) return "the browser does not allow it, or has no room";
    localStorage.removeItem(prefix + oldest.id);
  }
}

// remove deletes conversations.
export function remove(ids) {
  try {
    setDeleted([...(read(deletedName) ?? []).filter(id => !ids.includes(id)), ...ids]);
    for (const id of ids) localStorage.removeItem(prefix + id);
  } catch { /* nothing is kept */ }
}

// restore lets a deleted conversation be stored again.
export function restore(id) {
  if (deleted(id)) setDeleted(read(deletedName).filter(d => d !== id));
}

// takeFormer moves conversations from the one list in which earlier versions kept them.
export function takeFormer() {
  const list = read(formerName);
  if (!Array.isArray(list)) return;
  const text = localStorage.getItem(formerName);
  localStorage.removeItem(formerName); // first: without its room put would drop what has just been moved
  const moved = [], left = [], now = Date.now(); // once: a clock that advances would reverse the order
  for (const c of list.map((c, i) => parse({...c, changed: now - i})).filter(Boolean).reverse()) {
    if (put(c) === "") moved.push(c.id);
    else left.unshift(plain(c));
  }
  if (!left.length) return;
  try {
    localStorage.setItem(formerName, JSON.stringify(left));
  } catch { // ids make conversations longer; the list as it was has room
    for (const id of moved) localStorage.removeItem(prefix + id);
    localStorage.setItem(formerName, text);
  }
}
