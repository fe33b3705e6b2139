// The chat page: the conversation that is shown, and what the user does with it.
import {$, copy, make, toggles} from "./dom.js";
import {setKey} from "./key.js";
import {View} from "./message.js";
import {Side} from "./side.js";
import {acceptDrops, attached, contentOf, taken} from "./attach.js";
import {loadSettings, request, tools} from "./settings.js";
import {box, showModel} from "./failure.js";
import * as answers from "./answers.js";
import * as tree from "./conversation.js";
import * as store from "./store.js";

const log = $("log"), field = $("text");
const drafted = "ringmaster.draft"; // of this tab
let chat = tree.created(); // the conversation that is shown
let context = 0;           // tokens of the server's context, 0: not known yet

// The view of each message as it is in memory; a message that another tab made longer is
// another object, so it gets another view.
const views = new WeakMap();

function say(text) { $("status").textContent = text; }

function note(text) { $("note").textContent = text; }

// atEnd makes a change, and scrolls to the end if the end was visible.
function atEnd(change) {
  const stick = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (stick) log.scrollTop = log.scrollHeight;
}

// keep stores a conversation and says if that fails.
function keep(conversation = chat) {
  warn(store.put(conversation));
  side.list();
}

let warned = false;

function warn(why) {
  if (why || warned) note(why ? `This conversation is not kept: ${why}. Copy what you need.` : "");
  warned = Boolean(why);
}

// viewOf returns the view of a message.
function viewOf(m) {
  let v = views.get(m);
  if (!v) {
    v = new View(m);
    if (v.text) v.text.changed = () => atEnd(() => {});
    views.set(m, v);
  }
  return v;
}

// render brings the page up to date with the conversation: the branch that is shown and
// the answer that it waits for. What that answer will replace stays until it has a token.
function render() {
  const run = answers.runOf(chat), messages = tree.path(chat), waits = run && !run.begun;
  if (waits) messages.splice(messages.findIndex(m => m.id === run.message.parent) + 1, run.from ? Infinity : 0, run.message); // a continued answer has the text of the cut one
  const from = waits ? messages.indexOf(run.message) : messages.length;
  const shown = messages.map(viewOf);
  for (const e of log.querySelectorAll("article")) if (!shown.includes(e.view)) e.remove();
  let place = log.firstElementChild; // moving an element would lose its focus
  shown.forEach((v, i) => {
    const m = v.message;
    if (place === v.element) place = place.nextElementSibling;
    else log.insertBefore(v.element, place);
    v.element.classList.toggle("old", i > from);
    const others = tree.children(chat, m.parent);
    v.branch(others.indexOf(m), others.includes(m) ? others.length : 1);
    if (m === run?.message) {
      v.busy(true);
      v.update(run.waits);
    } else v.end();
  });
  $("hello").hidden = messages.length > 0;
  $("send").textContent = run ? "Stop" : "Send";
  document.title = messages.length ? `${tree.title(chat)} – Ringmaster` : "Ringmaster";
  ask();
}

// open shows a conversation; an answer of the one before continues.
function open(conversation, {address = true} = {}) {
  chat = answers.runOf(conversation)?.conversation ?? conversation;
  log.querySelectorAll("article, .failure").forEach(e => e.remove());
  if (address) history.pushState(null, "", chat.messages.size ? addressOf(chat) : "/");
  remember();
  note("");
  render();
  side.list();
  log.scrollTop = log.scrollHeight;
}

function addressOf(conversation) { return `/?chat=${encodeURIComponent(conversation.id)}`; }

// remember keeps the conversation for the cluster page, which links back to it.
function remember() {
  if (chat.messages.size) sessionStorage.setItem("ringmaster.shown", chat.id);
  else sessionStorage.removeItem("ringmaster.shown");
}

// openAddress shows the conversation that the address names.
function openAddress() {
  const id = new URLSearchParams(location.search).get("chat");
  const found = id && (answers.all().find(r => r.conversation.id === id)?.conversation ?? store.get(id));
  open(found || tree.created(), {address: false});
  if (id && !found) note("This browser does not have the conversation of this address.");
}

// append adds a message of the user or of a tool to the branch that is shown.
function append(message) {
  const first = chat.messages.size === 0;
  tree.add(chat, message);
  if (first) history.pushState(null, "", addressOf(chat));
  remember();
  keep();
}

// waiting returns the calls at the end of the conversation that have no result.
function waiting() {
  const messages = tree.path(chat), i = messages.findLastIndex(m => m.role === "assistant"), given = messages.slice(i + 1);
  if (i < 0 || given.some(m => m.role !== "tool")) return [];
  return (messages[i].tool_calls ?? []).filter(c => !given.some(m => m.tool_call_id === c.id));
}

// ask shows a field for the result of each waiting call, or that a question has no answer.
function ask() {
  const run = answers.runOf(chat), last = tree.path(chat).at(-1);
  if (run || !last || log.querySelector(".failure")) return;
  const calls = waiting();
  if (calls.length === 0) {
    if (last.role !== "assistant") log.append(box({message: "This question has no answer yet."}, "Answer"));
    return;
  }
  const v = viewOf(tree.path(chat).findLast(m => m.role === "assistant"));
  if (v.element.querySelector(".result")) return;
  v.asksFor(calls, (call, result) => {
    append({role: "tool", content: result, tool_call_id: call.id, name: call.function.name});
    if (waiting().length === 0) reply();
    else render();
  });
}

// reply asks for an answer after a message, or for more of an answer that was cut, and
// shows it.
function reply(parent = chat.at, cut = null) {
  const body = request(tree.path(chat, cut?.id ?? parent), contentOf);
  if (!body) return showSettings(true);
  if (cut) body.messages.at(-1).prefix = true;
  log.querySelectorAll(".failure").forEach(e => e.remove());
  let drawn = false; // at most once a frame
  const run = answers.start(chat, parent, cut, body, {
    begun: run => { if (run.conversation === chat) atEnd(render); },
    changed: run => {
      if (run.conversation !== chat || drawn) return;
      drawn = true;
      requestAnimationFrame(() => {
        drawn = false;
        if (answers.runOf(chat) === run) atEnd(() => viewOf(run.message).update(run.waits));
      });
    },
    saved: (run, why) => warn(why),
    ended: async (run, failure) => {
      if (context) run.message.figures.context = context;
      keep(run.conversation);
      if (run.conversation !== chat) return;
      say(failure ? "Failed: " + failure.message : run.message.stopped ? "Stopped" : "The answer is complete");
      if (failure) log.append(box(failure));
      if (failure?.asks) askKey();
      atEnd(render);
    },
  });
  render();
  viewOf(run.message).element.scrollIntoView({block: "nearest"});
  say("Answering");
}

function askKey() {
  showSettings(true);
  $("key").focus();
}

// send sends what the user has written.
function send(content, files, parent = chat.at) {
  append({role: "user", content, parent, ...(files?.length && {files})});
  render();
  log.scrollTop = log.scrollHeight;
  reply();
}

// edit turns a message of the user into a field; sent, it is another branch.
function edit(v) {
  const m = v.message;
  const area = make("textarea", {value: m.content, rows: Math.min(12, m.content.split("\n").length + 1), "aria-label": "Edit message"});
  const form = make("form", {}, area, make("button", {class: "primary"}, "Send"), make("button", {type: "button", class: "plain", "data-action": "cancel"}, "Cancel"));
  const back = () => { form.replaceWith(v.body); v.footer.hidden = false; };
  form.addEventListener("submit", e => {
    e.preventDefault();
    if (!area.value.trim() && !m.files) return;
    back();
    answers.runOf(chat)?.stop();
    log.querySelectorAll(".failure").forEach(e => e.remove());
    send(area.value, m.files, m.parent);
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

// turn shows another version of a message.
function turn(m, by) {
  const others = tree.children(chat, m.parent), other = others[others.indexOf(m) + by];
  if (!other) return;
  chat.at = tree.leaf(chat, other.id);
  log.querySelectorAll(".failure").forEach(e => e.remove());
  keep();
  render();
  viewOf(other).footer.querySelector(`[data-action=${by < 0 ? "previous" : "next"}]`).focus();
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
  if (button.classList.contains("question")) return send(button.textContent);
  switch (button.dataset.action) {
    case "copy": return void copied(button, v.message.content);
    case "edit": return edit(v);
    case "retry": return reply(v.message.parent);
    case "continue": return reply(v.message.parent, v.message);
    case "previous": return turn(v.message, -1);
    case "next": return turn(v.message, 1);
    case "again": { // beside what a failed answer left
      const last = tree.path(chat).at(-1);
      return reply(last.role === "assistant" ? last.parent : last.id);
    }
  }
});

function submit() {
  const run = answers.runOf(chat);
  if (run) return run.stop();
  if (!field.value.trim() && !attached()) return;
  if (tools() === null) return showSettings(true);
  // Calls without a result would make the conversation invalid.
  for (const call of waiting()) append({role: "tool", content: "(no result)", tool_call_id: call.id, name: call.function.name});
  log.querySelectorAll(".result, .failure").forEach(f => f.remove());
  const content = field.value;
  field.value = "";
  typed();
  send(content, taken());
}

// typed fits the field to its text, and keeps the text for a reload of the page.
function typed() {
  field.style.height = "auto";
  field.style.height = Math.min(field.scrollHeight + 2, 192) + "px";
  try { sessionStorage.setItem(drafted, field.value); } catch { /* too long to be kept */ }
}

$("form").addEventListener("submit", e => { e.preventDefault(); submit(); });
field.addEventListener("input", typed);
field.addEventListener("keydown", e => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  if (!answers.runOf(chat)) submit();
});
document.addEventListener("keydown", e => {
  if (e.key !== "Escape") return;
  const run = answers.runOf(chat);
  if (run) run.stop();
  else if (!$("side").hidden) { showSide(false); $("menu").focus(); }
  else if (!$("settings").hidden) { showSettings(false); $("options").focus(); }
});
$("new").addEventListener("click", () => { open(tree.created()); field.focus(); });
addEventListener("popstate", openAddress);

const side = new Side({
  current: () => chat,
  open: conversation => {
    open(conversation);
    if (matchMedia("(max-width: 46rem)").matches) showSide(false);
    field.focus();
  },
  changed: conversation => {
    keep(conversation);
    if (conversation.id === chat.id) synchronize();
  },
  gone: ids => {
    for (const run of answers.all()) if (ids.includes(run.conversation.id)) run.stop();
    if (ids.includes(chat.id)) open(tree.created());
  },
});

// synchronize takes what another tab has added to the conversation. A complete answer that
// continues the branch that is shown is shown too; a question alone is not, because the
// next one here would follow it without an answer.
function synchronize() {
  const stored = store.get(chat.id);
  if (!stored) return;
  const {at} = chat;
  if (tree.merge(chat, stored)) keep(); // what the other tab lacks
  const last = chat.messages.get(tree.leaf(chat, at));
  if (!answers.runOf(chat) && last?.role === "assistant" && !last.partial) chat.at = last.id;
  if (tree.path(chat).at(-1)?.role === "assistant") log.querySelectorAll(".failure").forEach(e => e.remove());
  atEnd(render);
}

// Another tab has changed a conversation.
addEventListener("storage", e => {
  const id = store.idOf(e.key);
  for (const run of answers.all()) if (store.deleted(run.conversation.id)) run.stop();
  if (id === chat.id) {
    if (!store.deleted(id)) synchronize();
    else {
      open(tree.created());
      note("The conversation was deleted in another tab.");
    }
  }
  side.list();
});

const showSide = toggles($("menu"), $("side"), () => side.list());
const showSettings = toggles($("options"), $("settings"));
const look = () => showModel({empty: () => chat.messages.size === 0, askKey: () => showSettings(true), found: tokens => { context = tokens; }});
loadSettings();
$("key").addEventListener("change", () => { setKey($("key").value.trim()); look(); });
acceptDrops(wrong => note(wrong.join(" ")));
store.takeFormer();
field.value = sessionStorage.getItem(drafted) ?? "";
typed();
openAddress();
look();
