// One message of a conversation on the page.
import {make} from "./dom.js";
import {Text} from "./markdown.js";

const names = {user: "You", assistant: "Answer", tool: "Tool result"};

// note returns the figures of an answer.
export function note(m) {
  const f = m.figures ?? {}, parts = [];
  if (m.model) parts.push(m.model);
  if (f.tokens) parts.push(`${f.tokens} tokens`);
  // If an answer came all at once, only its total time is meaningful.
  const rate = f.seconds > 0.1 ? (f.tokens - 1) / f.seconds : f.tokens / (f.first + f.seconds);
  if (f.tokens > 1 && f.first !== undefined) parts.push(`${rate.toFixed(1)} tokens/s`);
  if (f.first !== undefined) parts.push(`first token after ${f.first.toFixed(2)} s`);
  if (m.finish === "length") parts.push("ended at the limit of tokens");
  if (m.stopped) parts.push("stopped");
  return parts.join(" · ");
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function button(action, label, text = label) {
  return make("button", {type: "button", class: "plain", "data-action": action, "aria-label": label}, text);
}

// View is a message's element; update brings it up to date.
export class View {
  constructor(message) {
    this.message = message;
    this.note = make("span", {class: "note"});
    this.footer = make("footer");
    this.element = make("article", {class: message.role, "aria-label": names[message.role]});
    if (message.role === "assistant") {
      this.thought = make("div");
      this.summary = make("summary");
      this.reasoning = make("details", {class: "reasoning", hidden: true}, this.summary, this.thought);
      this.body = make("div", {class: "text said"});
      this.calls = make("div");
      this.element.append(this.reasoning, this.body, this.calls, this.footer);
      this.footer.append(this.note, button("copy", "Copy answer", "Copy"), button("retry", "Retry"));
      this.text = new Text(this.body);
    } else {
      this.body = make("div", {class: "said"}, message.content);
      this.footer.append(button("copy", "Copy message", "Copy"));
      if (message.role === "user") this.footer.append(button("edit", "Edit message", "Edit"));
      this.element.append(this.body, this.footer);
    }
  }

  // update shows what has arrived so far.
  update() {
    const m = this.message;
    if (m.reasoning_content) {
      this.reasoning.hidden = false;
      this.summary.textContent = m.content || !this.element.classList.contains("busy") ? "Reasoning" : "Thinking…";
      this.thought.textContent = m.reasoning_content;
    }
    this.text.set(m.content);
    (m.tool_calls ?? []).forEach((call, i) => {
      const shown = this.calls.children[i] ?? this.calls.appendChild(make("details", {class: "call", open: true}, make("summary"), make("pre", {tabIndex: 0}, make("code"))));
      shown.querySelector("summary").textContent = `Tool call: ${call.function.name}`;
      shown.querySelector("code").textContent = pretty(call.function.arguments);
    });
    this.note.textContent = note(m) || (this.element.classList.contains("busy") ? "waiting for the first token" : "");
  }

  // busy shows whether the answer is running.
  busy(on) {
    this.element.classList.toggle("busy", on);
    this.element.setAttribute("aria-busy", String(on));
    this.footer.querySelectorAll("button").forEach(b => { b.hidden = on; });
  }

  // end shows the finished message; it stays busy until its text is rendered.
  async end() {
    this.update();
    await this.text.end(this.message.content);
    this.busy(false);
    this.update();
  }

  // asksFor adds a field for the result of each call that has none.
  asksFor(calls, give) {
    for (const call of calls) {
      const field = make("textarea", {rows: 2, "aria-label": `Result of ${call.function.name}`, placeholder: "Result for the model"});
      const form = make("form", {class: "result"}, field, make("button", {}, "Send result"));
      form.addEventListener("submit", e => {
        e.preventDefault();
        form.remove();
        give(call, field.value);
      });
      this.calls.append(form);
    }
  }
}
