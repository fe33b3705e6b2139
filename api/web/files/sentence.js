// What the state of the ranks is, in a sentence.

// nameOf returns how a rank is called: its number with its host's name.
export function nameOf(r) {
  const where = r.host || (r.address ?? "").replace(/:\d+$/, "");
  return where ? `Rank ${r.rank} (${where})` : `Rank ${r.rank}`;
}

// since returns the time of the last event of a kind about a rank, " since 12:03", or ""
// if it is no longer among the events.
function since(s, kind, rank) {
  const e = (s.events ?? []).findLast(e => e.kind === kind && e.rank === rank);
  if (!e) return "";
  const at = new Date(e.time), today = at.toDateString() === new Date(s.now).toDateString();
  const day = today ? "" : at.toLocaleDateString([], {month: "short", day: "numeric"}) + ", ";
  return ` since ${day}${at.toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", hour12: false})}`;
}

const missing = {
  absent: () => "has not joined yet",
  lost: (s, r) => "is lost" + since(s, "lost", r.rank),
  out: (s, r) => "is kept out" + (r.for > 0 ? ` for ${Math.ceil(r.for)} s more` : since(s, "out", r.rank)),
  leaving: () => "is leaving",
  joining: () => "joins with the next epoch",
  forming: () => "is joining",
};

// join joins parts as a list in a sentence.
function join(list) { return list.length < 2 ? list.join("") : `${list.slice(0, -1).join(", ")} and ${list.at(-1)}`; }

// sentence returns what is, and how bad that is: "bad" if no tokens can be produced, "warn"
// if fewer ranks than there are produce them, otherwise "".
export function sentence(s) {
  const away = s.ranks.filter(r => r.state !== "member" && missing[r.state]);
  const first = text => text.charAt(0).toUpperCase() + text.slice(1);
  const said = first(join(away.map((r, i) => (i ? nameOf(r).replace("Rank", "rank") : nameOf(r)) + " " + missing[r.state](s, r))));
  if (s.reason) return [`${first(s.phase)}: ${s.reason}`, "bad"];
  const n = s.ranks.length, members = s.ranks.filter(r => r.state === "member").length;
  if (away.length) return [`${said}; answers continue on ${members} of ${n}.`, "warn"];
  if (n < 2) return ["Ready: this rank answers without a group.", ""];
  return [`Ready: all ${n} ranks answer.`, ""];
}

// details returns the epoch, the transport and what it says of itself.
export function details(s) {
  const members = s.ranks.filter(r => r.state === "member").length, out = [];
  if (s.epoch) out.push(`Epoch ${s.epoch}: ${members} of ${s.ranks.length} ranks` + (s.transport ? ` over ${s.transport}` : ""), s.topology, ...(s.notes ?? []));
  if (s.recoveries) out.push(s.recoveries === 1 ? "1 step ran again after a loss" : `${s.recoveries} steps ran again after a loss`);
  return out.filter(Boolean).join("; ");
}
