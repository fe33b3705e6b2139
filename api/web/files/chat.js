// The chat page.
import {$, copy, make, toggles} from "./dom.js";
import {headers, key, setKey} from "./key.js";
import {Failure, broken, refused} from "./errors.js";
import {answer} from "./stream.js";
import {View} from "./message.js";
import * as store from "./store.js";

let chat = store.created(); // the conversation that is shown
let running = null;         // the AbortController of the running answer
const log = $("log"), field = $("text");

// settings are stored like the conversations, except the key.
const kept = ["think", "system", "temperature", "limit", "tools"];
const settingsName = "ringmaster.settings";

function value(id) { return $(id).type === "checkbox" ? $(id).checked : $(id).value.trim(); }

function loadSettings() {
  let saved = {};
  try { saved = JSON.parse(localStorage.getItem(settingsName)) ?? {}; } catch { /* none */ }
  for (const id of kept) {
    if ($(id).type === "checkbox") $(id).checked = saved[id] === true;
    else $(id).value = saved[id] ?? "";
  }
  $("key").value = key();
}

function saveSettings() {
  try { localStorage.setItem(settingsName, JSON.stringify(Object.fromEntries(kept.map(id => [id, value(id)])))); } catch { /* not kept */ }
}

// tools returns the tools of the field, or null after it has shown what is wrong with them.
function tools() {
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
  showSettings(true);
  return null;
}

// request returns the body that asks for an answer to the messages so far.
function request(messages) {
  const r = {messages: messages.map(({role, content, reasoning_content, tool_calls, tool_call_id}) =>
    ({role, content, ...(reasoning_content && {reasoning_content}), ...(tool_calls && {tool_calls}), ...(tool_call_id && {tool_call_id})}))};
  if (value("system")) r.messages.unshift({role: "system", content: value("system")});
  r.thinking = {type: value("think") ? "enabled" : "disabled"};
  if (value("temperature") !== "") r.temperature = Number(value("temperature"));
  if (value("limit") !== "") r.max_tokens = Number(value("limit"));
  const list = tools();
  if (list === null) return null;
  if (list.length > 0) r.tools = list;
  return r;
}

function say(text) { $("status").textContent = text; }

// atEnd makes a change, and scrolls to the end if the end was visible.
function atEnd(change) {
  const stick = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (stick) log.scrollTop = log.scrollHeight;
}

function keep() {
  chat.title = (chat.messages.find(m => m.role === "user")?.content ?? "").slice(0, 60);
  if (chat.messages.length > 0 && !store.put(chat)) say("This browser does not keep the conversation.");
  list();
}

// list shows the conversations.
function list() {
  const all = store.load();
  $("none").hidden = all.length > 0;
  $("forget").hidden = all.length === 0;
  $("conversations").replaceChildren(...all.map(c => make("li", {},
    make("button", {type: "button", class: "plain", "data-open": c.id, "aria-current": c.id === chat.id ? "true" : undefined}, c.title || "Untitled"),
    make("button", {type: "button", class: "plain danger", "data-delete": c.id, "aria-label": `Delete: ${c.title}`}, "✕"))));
}

// open shows a conversation.
function open(conversation) {
  running?.abort();
  chat = conversation;
  log.querySelectorAll("article, .failure").forEach(e => e.remove());
  $("hello").hidden = chat.messages.length > 0;
  for (const m of chat.messages) {
    const v = add(m);
    if (m.role === "assistant") v.end();
  }
  ask();
  list();
  log.scrollTop = log.scrollHeight;
}

function add(message) {
  $("hello").hidden = true;
  const v = new View(message);
  v.element.view = v;
  if (v.text) v.text.changed = () => atEnd(() => {});
  log.append(v.element);
  return v;
}

// views returns the views of the conversation's messages.
function views() { return [...log.querySelectorAll("article")].map(e => e.view); }

// cut removes the messages from index from on.
function cut(from) {
  running?.abort();
  log.querySelectorAll(".failure").forEach(e => e.remove());
  for (const v of views().slice(from)) v.element.remove();
  chat.messages.splice(from);
}

// waiting returns the calls at the end of the conversation that have no result.
function waiting() {
  const i = chat.messages.findLastIndex(m => m.role === "assistant");
  const given = chat.messages.slice(i + 1);
  if (i < 0 || given.some(m => m.role !== "tool")) return [];
  return (chat.messages[i].tool_calls ?? []).filter(c => !given.some(m => m.tool_call_id === c.id));
}

// ask shows a field for the result of each waiting call.
function ask() {
  const last = views().findLast(v => v.message.role === "assistant");
  if (running || !last || last.element.querySelector(".result")) return;
  last.asksFor(waiting(), (call, result) => {
    const m = {role: "tool", content: result, tool_call_id: call.id};
    chat.messages.push(m);
    add(m);
    keep();
    if (waiting().length === 0) reply();
  });
}

// reply asks for the next answer and shows it.
async function reply() {
  const body = request(chat.messages);
  if (!body) return;
  running?.abort();
  log.querySelectorAll(".failure").forEach(e => e.remove());
  const mine = running = new AbortController(), conversation = chat;
  const message = {role: "assistant", content: ""};
  const v = add(message);
  v.busy(true);
  v.update();
  $("send").textContent = "Stop";
  log.scrollTop = log.scrollHeight;
  say("Answering");
  let failure = null;
  let drawn = false; // at most once a frame
  const draw = () => {
    if (drawn) return;
    drawn = true;
    requestAnimationFrame(() => {
      drawn = false;
      if (message.content || message.reasoning_content || message.tool_calls) atEnd(() => v.update());
    });
  };
  try {
    await answer(body, message, mine.signal, draw);
    say("The answer is complete");
  } catch (e) {
    if (e.name === "AbortError") {
      message.stopped = true;
      delete message.tool_calls; // they may be cut in the middle
      say("Stopped");
    } else {
      failure = e instanceof Failure ? e : new Failure(String(e.message ?? e));
      delete message.tool_calls;
      say("Failed: " + failure.message);
    }
  }
  if (running === mine) {
    running = null;
    $("send").textContent = "Send";
  }
  const has = message.content || message.reasoning_content || message.tool_calls;
  if (!has) v.element.remove();
  if (chat !== conversation || has && !v.element.isConnected) return; // the page shows another, or cut removed this one
  if (has) chat.messages.push(message); // before its end is rendered, because the next question may come first
  keep();
  if (has) await v.end();
  if (chat !== conversation) return;
  if (failure) show(failure);
  ask();
}

// show shows a failure with its cure at the end of the conversation.
function show(failure) {
  const retry = make("button", {type: "button", "data-action": "again"}, "Retry");
  const box = make("div", {class: "failure", role: "alert"}, make("p", {class: "error"}, failure.message), make("p", {}, failure.cure), retry);
  if (failure.asks) {
    showSettings(true);
    $("key").focus();
  }
  if (failure.wait > 0) {
    let left = Math.ceil(failure.wait);
    const count = () => {
      retry.disabled = left > 0;
      retry.textContent = left > 0 ? `Retry in ${left} s` : "Retry";
      if (left-- > 0 && box.isConnected) setTimeout(count, 1000);
    };
    atEnd(() => log.append(box));
    count();
    return;
  }
  atEnd(() => log.append(box));
}

// send sends the user's text, or the text of an edited message.
function send(content) {
  if (!content.trim()) return;
  const m = {role: "user", content};
  chat.messages.push(m);
  add(m);
  keep();
  reply();
}

// edit turns a message of the user into a field.
function edit(v) {
  const i = views().indexOf(v);
  const area = make("textarea", {value: v.message.content, rows: Math.min(12, v.message.content.split("\n").length + 1), "aria-label": "Edit message"});
  const form = make("form", {}, area, make("button", {class: "primary"}, "Send"), make("button", {type: "button", class: "plain", "data-action": "cancel"}, "Cancel"));
  const back = () => { form.replaceWith(v.body); v.footer.hidden = false; };
  form.addEventListener("submit", e => {
    e.preventDefault();
    if (!area.value.trim()) return;
    cut(i);
    send(area.value);
    field.focus();
  });
  form.addEventListener("keydown", e => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing && e.target === area) { e.preventDefault(); form.requestSubmit(); }
    if (e.key === "Escape") { e.stopPropagation(); back(); v.footer.querySelector("[data-action=edit]").focus(); }
  });
  form.querySelector("[data-action=cancel]").addEventListener("click", back);
  v.body.replaceWith(form);
  v.footer.hidden = true;
  area.focus();
}

async function copied(button, text) {
  const before = button.textContent;
  try {
    await copy(text);
    button.textContent = "Copied";
    say("Copied");
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

log.addEventListener("click", e => {
  const button = e.target.closest("button");
  if (!button) return;
  const v = button.closest("article")?.view;
  if (button.classList.contains("copy")) return void copied(button, button.parentElement.querySelector("pre").textContent);
  switch (button.dataset.action) {
    case "copy": return void copied(button, v.message.content);
    case "edit": return edit(v);
    case "retry": cut(views().indexOf(v)); return void reply();
    case "again": { // removes what a failed answer left
      if (chat.messages.at(-1)?.role === "assistant") cut(chat.messages.length - 1);
      return void reply();
    }
  }
});

function submit() {
  if (running) return running.abort();
  const content = field.value;
  if (!content.trim() || tools() === null) return;
  // Calls without a result would make the conversation invalid.
  for (const call of waiting()) {
    const m = {role: "tool", content: "(no result)", tool_call_id: call.id};
    chat.messages.push(m);
    add(m);
  }
  log.querySelectorAll(".result, .failure").forEach(f => f.remove());
  field.value = "";
  grow();
  send(content);
}

// grow fits the field to its text.
function grow() {
  field.style.height = "auto";
  field.style.height = Math.min(field.scrollHeight + 2, 192) + "px";
}

$("form").addEventListener("submit", e => { e.preventDefault(); submit(); });
field.addEventListener("input", grow);
field.addEventListener("keydown", e => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  if (!running) submit();
});
document.addEventListener("keydown", e => {
  if (e.key !== "Escape") return;
  if (running) running.abort();
  else if (!$("side").hidden) { showSide(false); $("menu").focus(); }
  else if (!$("settings").hidden) { showSettings(false); $("options").focus(); }
});
$("new").addEventListener("click", () => { open(store.created()); field.focus(); });
$("side").addEventListener("click", e => {
  const b = e.target.closest("button");
  const found = b && store.load().find(c => c.id === b.dataset.open);
  if (found) {
    open(found);
    if (matchMedia("(max-width: 46rem)").matches) showSide(false);
    field.focus();
  } else if (b?.dataset.delete) {
    store.remove(b.dataset.delete);
    if (chat.id === b.dataset.delete) open(store.created());
    list();
    ($("conversations").querySelector("button") ?? $("new")).focus();
  }
});
$("forget").addEventListener("click", () => {
  if (!confirm("Delete all conversations from this browser?")) return;
  store.remove();
  open(store.created());
  $("new").focus();
});
addEventListener("storage", list); // another tab changed the conversations

const showSide = toggles($("menu"), $("side"), list);
const showSettings = toggles($("options"), $("settings"));
loadSettings();
for (const id of kept) $(id).addEventListener("change", () => { saveSettings(); tools(); });
$("key").addEventListener("change", () => { setKey($("key").value.trim()); showModel(); });

// showModel shows the model's name, and asks for a key if one is required.
async function showModel() {
  let failure;
  try {
    const response = await fetch("/v1/models", {headers: headers()});
    if (response.ok) {
      const id = (await response.json()).data[0].id;
      $("model").textContent = id;
      document.title = id + " – Ringmaster";
      if (!chat.messages.length) log.querySelectorAll(".failure").forEach(e => e.remove());
      return;
    }
    failure = await refused(response);
  } catch {
    failure = broken(false);
  }
  if (failure.asks) showSettings(true);
  if (chat.messages.length === 0) {
    log.querySelectorAll(".failure").forEach(e => e.remove());
    log.append(make("div", {class: "failure", role: "alert"}, make("p", {class: "error"}, failure.message), make("p", {}, failure.cure)));
  }
  if (!failure.asks) setTimeout(showModel, 1000 * Math.max(2, failure.wait)); // the model may be loading
}

list();
showModel();
