// The charts of the last hour on the cluster page.
import {$, make} from "./dom.js";
import {headers} from "./key.js";

const period = 10_000;               // between two samples of the server, in ms
const hour = 3600_000, least = 120_000; // ms that the charts show, at most and at least
const [width, height] = [360, 80];   // of a chart: see cluster.html

const whole = n => n.toLocaleString("en", {maximumFractionDigits: n < 10 ? 1 : 0});

// charts say what is drawn: a line, or two, of values of a sample.
const charts = [
  {name: "Decode", unit: "tokens/s", of: s => s.decode},
  {name: "Prefill", unit: "tokens/s", of: s => s.prefill},
  {name: "Requests", unit: "running", of: s => s.active, second: s => s.queued, secondUnit: "waiting"},
  {name: "Ranks", unit: "computing", of: s => s.members, most: s => s.ranks},
];

// Hour shows the samples, and asks for them when there may be new ones.
export class Hour {
  constructor() { this.asked = -Infinity; }

  async update() {
    if (performance.now() - this.asked < period) return;
    this.asked = performance.now();
    const response = await fetch("/cluster/history", {headers: headers(), signal: AbortSignal.timeout(5000)}).catch(() => null);
    if (response?.ok) show((await response.json()).samples);
  }
}

const at = s => new Date(s.time).getTime();

function show(all) {
  const samples = all.filter(s => at(all.at(-1)) - at(s) < hour); // the clock may have jumped
  $("hourpart").hidden = samples.length < 2; // a line has two ends
  if (samples.length < 2) return;
  const span = Math.min(hour, Math.max(least, at(samples.at(-1)) - at(samples[0])));
  $("hour").replaceChildren(...charts.map(c => chart(c, samples, span)));
}

function chart({name, unit, of, second, secondUnit, most}, samples, span) {
  const top = Math.max(1, ...samples.map(s => Math.max(of(s), second?.(s) ?? 0, most?.(s) ?? 0)));
  const last = samples.at(-1), x = s => width * (1 - (at(last) - at(s)) / span);
  const line = value => samples.map((s, i) => `${i ? "L" : "M"}${x(s).toFixed(1)} ${(height - 2 - (height - 4) * value(s) / top).toFixed(1)}`).join("");
  const svg = $("chart").content.firstElementChild.cloneNode(true);
  const now = `${whole(of(last))} ${unit}` + (second ? `, ${whole(second(last))} ${secondUnit}` : most ? ` of ${most(last)}` : "");
  const greatest = `at most ${whole(Math.max(...samples.map(of)))} ${unit}` + (second ? `, ${whole(Math.max(...samples.map(second)))} ${secondUnit}` : "");
  const extreme = most ? `at least ${whole(Math.min(...samples.map(of)))} ${unit}` : greatest;
  svg.setAttribute("aria-label", `${name} in the last hour: now ${now}; ${extreme}`);
  svg.querySelector(".line").setAttribute("d", line(of));
  svg.querySelector(".area").setAttribute("d", `${line(of)}L${width} ${height}L${x(samples[0]).toFixed(1)} ${height}Z`);
  if (second) svg.querySelector(".second").setAttribute("d", line(second));
  const scale = make("p", {class: "faint"}, make("span", {}, `${Math.round(span / 60_000)} min ago`), make("span", {}, "now"));
  return make("li", {"data-chart": name}, make("p", {}, make("strong", {}, name), make("span", {}, `now ${now}`)), make("p", {class: "faint"}, extreme), svg, scale);
}
