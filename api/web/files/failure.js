// Failures on the chat page, and whether the server has a model.
import {$, make} from "./dom.js";
import {headers} from "./key.js";
import {broken, refused} from "./errors.js";

const log = $("log");

// box returns an element with a failure, its cure and a button that asks again.
export function box(failure, label = "Retry") {
  const retry = make("button", {type: "button", "data-action": "again"}, label);
  const out = make("div", {class: "failure", role: "alert"}, make("p", {class: failure.cure ? "error" : "faint"}, failure.message), ...(failure.cure ? [make("p", {}, failure.cure)] : []), retry);
  if (!(failure.wait > 0)) return out;
  let left = Math.ceil(failure.wait);
  const count = () => {
    retry.disabled = left > 0;
    retry.textContent = left > 0 ? `${label} in ${left} s` : label;
    if (left-- > 0) setTimeout(() => { if (out.isConnected) count(); }, 1000);
  };
  count();
  return out;
}

// showModel shows the model's name, and asks for a key if one is required. page has
// empty(), askKey() and found(tokens of the context).
export async function showModel(page) {
  let failure;
  try {
    const response = await fetch("/v1/models", {headers: headers()});
    if (response.ok) {
      const model = (await response.json()).data[0];
      $("model").textContent = model.id;
      page.found(model.max_model_len ?? 0);
      if (page.empty()) log.querySelectorAll(".failure").forEach(e => e.remove());
      return;
    }
    failure = await refused(response);
  } catch {
    failure = broken(false);
  }
  if (failure.asks) page.askKey();
  if (page.empty()) {
    log.querySelectorAll(".failure").forEach(e => e.remove());
    log.append(make("div", {class: "failure", role: "alert"}, make("p", {class: "error"}, failure.message), make("p", {}, failure.cure)));
  }
  if (!failure.asks) setTimeout(() => showModel(page), 1000 * Math.max(2, failure.wait)); // the model may be loading
}
