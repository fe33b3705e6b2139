// The settings of the chat page, kept like the conversations, except the key.
import {$} from "./dom.js";
import {key} from "./key.js";

const kept = ["think", "system", "temperature", "top_p", "top_k", "seed", "limit", "tools"];
const name = "ringmaster.settings";

// numbers are the fields of a request that have a field on the page.
const numbers = {temperature: "temperature", top_p: "top_p", top_k: "top_k", seed: "seed", max_tokens: "limit"};

function value(id) { return $(id).type === "checkbox" ? $(id).checked : $(id).value.trim(); }

function save() {
  try { localStorage.setItem(name, JSON.stringify(Object.fromEntries(kept.map(id => [id, value(id)])))); } catch { /* not kept */ }
}

// loadSettings fills the fields and stores later changes.
export function loadSettings() {
  let saved = {};
  try { saved = JSON.parse(localStorage.getItem(name)) ?? {}; } catch { /* none */ }
  for (const id of kept) {
    if ($(id).type === "checkbox") $(id).checked = saved[id] === true;
    else $(id).value = saved[id] ?? "";
    $(id).addEventListener("change", () => { save(); tools(); });
  }
  $("key").value = key();
}

// tools returns the tools of the field, or null after it has shown what is wrong with them.
export function tools() {
  const error = $("toolserror");
  error.hidden = true;
  if (!value("tools")) return [];
  try {
    const list = JSON.parse(value("tools"));
    if (Array.isArray(list)) return list;
    error.textContent = "The tools are not a JSON array.";
  } catch (e) {
    error.textContent = `The tools are not JSON: ${e.message}.`;
  }
  error.hidden = false;
  return null;
}

// request returns the body that asks for an answer to messages, null if the tools are
// wrong. content returns the text of a message for the model.
export function request(messages, content) {
  const list = tools();
  if (list === null) return null;
  const r = {messages: messages.map(m => ({
    role: m.role, content: content(m), ...(m.reasoning_content && {reasoning_content: m.reasoning_content}),
    ...(m.tool_calls && {tool_calls: m.tool_calls}), ...(m.tool_call_id && {tool_call_id: m.tool_call_id}),
  }))};
  if (value("system")) r.messages.unshift({role: "system", content: value("system")});
  r.thinking = {type: value("think") ? "enabled" : "disabled"};
  for (const [field, id] of Object.entries(numbers)) if (value(id) !== "") r[field] = Number(value(id));
  if (list.length > 0) r.tools = list;
  return r;
}
