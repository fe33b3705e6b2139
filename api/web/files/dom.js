// Small helpers to build elements.

export const $ = id => document.getElementById(id);

// make makes an element with properties and children; "class", "role" and "aria-…"
// are attributes.
export function make(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (name === "class" || name === "role" || name.startsWith("aria-") || name.startsWith("data-")) e.setAttribute(name, value);
    else e[name] = value;
  }
  e.append(...children);
  return e;
}

// toggles lets a button show and hide a part of the page.
export function toggles(button, part, shown = () => {}) {
  const set = on => {
    part.hidden = !on;
    button.setAttribute("aria-expanded", String(on));
    if (on) shown();
  };
  button.addEventListener("click", () => set(part.hidden));
  return set;
}

// copy puts a text on the clipboard. navigator.clipboard is missing on pages that were
// not loaded from this machine or over TLS, because browsers offer it only there.
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea", {value: text, class: "hidden"}), before = document.activeElement;
  document.body.append(field);
  field.select();
  const ok = document.execCommand("copy");
  field.remove();
  before?.focus();
  if (!ok) throw new Error("not allowed");
}
