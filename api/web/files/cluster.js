// The cluster page.
import {$, make} from "./dom.js";
import {headers, key, setKey} from "./key.js";
import {broken, refused} from "./errors.js";
import {showHeat} from "./heat.js";
import {Hour} from "./hour.js";
import {details, nameOf, sentence} from "./sentence.js";

const period = 1000;      // between two requests, in ms
const most = 10;          // answers that are kept to compute rates
const history = [];       // the last answers, oldest first
const hour = new Hour();
let timer = 0;

const states = {absent: "not joined yet", lost: "lost", joining: "joining", forming: "forming", member: "member", leaving: "leaving", out: "kept out"};

export function size(bytes) {
  if (!bytes) return "0 B";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const i = Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return (bytes / 1024 ** i).toFixed(i === 0 ? 0 : 1) + " " + units[i];
}

// rate returns the growth of a count per second over the kept answers. It is null if the
// count restarted or is not known yet.
function rate(of) {
  if (history.length < 2) return null;
  const first = history[0], last = history[history.length - 1];
  const from = of(first), to = of(last), seconds = (new Date(last.now) - new Date(first.now)) / 1000;
  return from === undefined || to === undefined || to < from || seconds <= 0 ? null : (to - from) / seconds;
}

function number(x, digits = 1) { return x === null ? "–" : x.toFixed(x >= 100 ? 0 : digits); }

function figure(name, value, more = "") {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value, " ", make("small", {}, more)));
}

function showRates(s) {
  const e = s.engine;
  if (!e) return $("rates").replaceChildren(figure("State", s.phase));
  const asked = e.prefill_tokens + e.cached_tokens;
  const generated = rate(s => s.engine?.generated_tokens), rows = rate(s => s.engine?.decode_rows);
  $("rates").replaceChildren(
    figure("Prefill", number(rate(s => s.engine?.prefill_tokens)), "tokens/s"),
    figure("Decode", number(generated), rows > 0 && generated > 1.02 * rows ? `tokens/s, ${number(generated / rows)} a step and answer` : "tokens/s"),
    figure("Steps", number(rate(s => s.engine?.steps)), "/s"),
    figure("Running", `${e.active}`, `of ${e.max_active}`),
    figure("Queue", `${e.queued}`, `of ${Math.max(0, e.max_queued)}`),
    figure("Prefix-cache hits", asked ? `${(100 * e.cached_tokens / asked).toFixed(0)} %` : "–", "of prompt tokens"),
    figure("Conversations kept", `${e.cache_entries}`, `of ${Math.max(0, e.max_cache_entries)}`),
    figure("KV caches", size(e.memory), e.memory_budget ? `of ${size(e.memory_budget)}` : ""),
    ...s.imbalance ? [figure("Busiest rank's experts", s.imbalance.bytes.toFixed(2), `of the mean in bytes, ${s.imbalance.rows.toFixed(2)} in rows`)] : []);
}

function part(name, range, whole) {
  if (!whole || whole[1] === 0) return "";
  const n = range[1] - range[0];
  return n === whole[1] ? `all ${n} ${name}` : n === 0 ? `no ${name}` : `${name} ${range[0]}–${range[1] - 1} of ${whole[1]}`;
}

function bar(kind, from, to, label) {
  const i = make("i", {class: kind}), b = make("div", {class: "bar", role: "img", "aria-label": label}, i);
  i.style.left = 100 * from + "%";
  i.style.width = Math.max(0, 100 * (to - from)) + "%";
  return b;
}

function showRank(r, s) {
  const list = make("dl");
  const row = (name, ...value) => { if (value[0]) list.append(make("dt", {}, name), make("dd", {}, ...value)); };
  row("Why", r.why);
  if (r.for > 0) row("Excluded", `for ${Math.ceil(r.for)} s more`);
  row("Address", r.address || s.ranks.length === 1 && location.host);
  row("Backend", r.backend && r.backend + (r.threads ? `, ${r.threads} thread${r.threads === 1 ? "" : "s"}` : ""));
  if (r.share) {
    const experts = part("experts", r.share.experts, s.whole.experts);
    const layers = r.share.layers ? part("layers", r.share.layers, s.whole.layers) : "";
    const [from, to] = r.share.layers || r.share.experts, end = (r.share.layers ? s.whole.layers : s.whole.experts)[1] || 1;
    row("Share", [layers, experts, r.share.copies ? `copies of ${r.share.copies}` : "", part("groups of heads", r.share.heads, s.whole.heads), part("rows of the vocabulary", r.share.vocabulary, s.whole.vocabulary)].filter(Boolean).join("; "),
      bar("share", from / end, to / end, layers || experts));
  }
  if (r.memory || r.offered) {
    const text = r.memory ? `${size(r.memory)} held` + (r.offered ? ` of ${size(r.offered)}` : "") : `${size(r.offered)} offered`;
    row("Memory", text, ...(r.memory && r.offered ? [bar("memory", 0, Math.min(1, r.memory / r.offered), text)] : []));
  }
  const of = count => rate(s => count(s.ranks[r.rank] ?? {}));
  if (r.state === "member") {
    const busy = of(x => x.busy), steps = of(x => x.steps);
    if (r.busy > 0) row("Steps", `${number(steps)}/s, busy ${busy === null ? "–" : (100 * busy).toFixed(0) + " %"} of the time`);
    const sent = of(x => x.sent), received = of(x => x.received);
    if (s.transport && s.transport !== "local") {
      row("Links", `${s.transport}: sends ${size(sent)}/s, receives ${size(received)}/s`);
    }
  }
  return make("li", {class: r.state, "data-rank": r.rank},
    make("h3", {}, nameOf(r), make("span", {class: "state"}, states[r.state] ?? r.state)), list);
}

const shown = {events: ""};

function showEvents(events) {
  const now = JSON.stringify(events);
  if (now === shown.events) return; // so that the reader keeps the place in the list
  shown.events = now;
  const kinds = {formed: "formed", ended: "ended", joined: "joined", lost: "lost", out: "kept out", leaves: "leaves", repeated: "repeated", note: "note"};
  $("events").replaceChildren(...events.toReversed().map(e => make("li", {class: e.kind},
    make("time", {dateTime: e.time, title: new Date(e.time).toLocaleString()}, new Date(e.time).toLocaleTimeString([], {hour12: false})),
    make("span", {class: "state"}, kinds[e.kind] ?? e.kind), make("span", {}, e.text))));
  if (events.length === 0) $("events").append(make("li", {}, "None yet."));
}

// banner shows a sentence and details; kind is bad, warn or "".
function banner(text, kind, detail = "") {
  if ($("phase").textContent !== text) $("phase").textContent = text; // otherwise it would be read out each time
  $("detail").textContent = detail;
  $("banner").className = `banner ${kind}`;
}

function show(s) {
  // Counts restart with another server or epoch.
  if (history.length && (history[history.length - 1].epoch !== s.epoch || !history[history.length - 1].engine !== !s.engine)) history.length = 0;
  history.push(s);
  if (history.length > most + 1) history.shift();
  $("model").textContent = s.model || "Ringmaster";
  document.title = "Cluster – " + (s.model || "Ringmaster");
  banner(...sentence(s), details(s));
  showRates(s);
  $("ranks").replaceChildren(...s.ranks.map(r => showRank(r, s)));
  showHeat(s, history);
  showEvents(s.events ?? []);
}

async function ask() {
  clearTimeout(timer);
  let wait = period;
  try {
    let response;
    try {
      response = await fetch("/cluster/status", {headers: headers(), signal: AbortSignal.timeout(5000)});
    } catch {
      throw broken(false);
    }
    if (!response.ok) throw await refused(response);
    const status = await response.json();
    show(status);
    if (status.engine) await hour.update(); // a server that loads its model has no history
    $("keyform").hidden = true;
  } catch (e) {
    banner(`${e.message} ${e.cure ?? ""}`, "bad");
    $("keyform").hidden = !e.asks;
    wait = e.asks ? 0 : Math.max(period, 1000 * (e.wait ?? 0)); // a key is needed first
    history.length = 0;
  }
  if (wait && !document.hidden) timer = setTimeout(ask, wait);
}

$("keyform").addEventListener("submit", e => { e.preventDefault(); setKey($("key").value.trim()); ask(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
for (const r of document.querySelectorAll("[name=period]")) r.addEventListener("change", () => { if (history.length) showHeat(history[history.length - 1], history); });
$("key").value = key();
const chat = sessionStorage.getItem("ringmaster.shown"); // in this tab
if (chat) $("chat").href = `/?chat=${encodeURIComponent(chat)}`;
ask();
