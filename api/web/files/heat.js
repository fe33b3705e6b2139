// The time of each layer on each rank by kind, as heat maps.
import {$, make} from "./dom.js";

const kinds = [["compute", "Computing"], ["waiting", "Waiting for the slowest rank"], ["wire", "On the wire"]];
let recent = null; // the last differences with work: {epoch, ranks: Map of rank to layers}

// layersOf returns the layers of a rank in an answer.
function layersOf(s, rank) { return s.ranks[rank]?.layers ?? []; }

// difference returns what the layers gained since an earlier answer.
function difference(last, first) {
  const ranks = new Map();
  let any = 0;
  for (const r of last.ranks) {
    const before = layersOf(first, r.rank);
    const now = layersOf(last, r.rank);
    if (now.length === 0 || before.length !== now.length) continue;
    const d = now.map((l, i) => Object.fromEntries(kinds.map(([k]) => [k, Math.max(0, l[k] - before[i][k])])));
    any += d.reduce((sum, l) => sum + l.compute + l.waiting + l.wire, 0);
    ranks.set(r.rank, d);
  }
  return {ranks, any, seconds: (new Date(last.now) - new Date(first.now)) / 1000};
}

function time(seconds) {
  if (seconds >= 1) return seconds.toFixed(1) + " s";
  return seconds >= 1e-3 ? (1e3 * seconds).toFixed(1) + " ms" : (1e6 * seconds).toFixed(0) + " µs";
}

// showHeat draws the maps of the chosen period.
export function showHeat(s, history) {
  const latest = difference(s, history[0]);
  if (latest.any > 0) recent = latest;
  const all = document.querySelector("[name=period]:checked").value === "all";
  const ranks = all || !recent ? new Map(s.ranks.filter(r => r.layers?.length).map(r => [r.rank, r.layers])) : recent.ranks;
  $("heatpart").hidden = ranks.size === 0;
  const tables = [];
  for (const [kind, title] of kinds) {
    const sums = [...ranks.values()].map(layers => layers.reduce((sum, l) => sum + l[kind], 0));
    const top = Math.max(0, ...[...ranks.values()].flat().map(l => l[kind]));
    if (top === 0 && kind !== "compute") continue; // one rank neither waits nor sends
    const table = make("table", {class: "heat", "data-kind": kind}, make("caption", {},
      `${title}: ${time(sums.reduce((a, b) => a + b, 0))} in total, at most ${time(top)} in a layer`));
    let i = 0;
    for (const [rank, layers] of ranks) {
      const row = make("tr", {}, make("th", {scope: "row", title: time(sums[i]) + " in all layers"}, `Rank ${rank}`));
      i++;
      layers.forEach((l, layer) => {
        const cell = make("td", {title: `rank ${rank}, layer ${layer}: ${time(l[kind])}`}, make("span", {class: "hidden"}, time(l[kind])));
        cell.style.setProperty("--much", top > 0 ? (0.95 * l[kind] / top).toFixed(3) : "0");
        row.append(cell);
      });
      table.append(row);
    }
    tables.push(table);
  }
  $("heat").replaceChildren(...tables);
}
