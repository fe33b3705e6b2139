// One message of a conversation on the page.
import {make} from "./dom.js";
import {Text} from "./markdown.js";
import {chips} from "./attach.js";

const names = {user: "You", assistant: "Answer", tool: "Tool result"};

const count = n => n.toLocaleString("en");

// note returns the figures of an answer, those of the server where it sends them.
export function note(m) {
  const f = m.figures ?? {}, parts = [];
  if (m.model) parts.push(m.model);
  const made = (f.earlier ?? 0) + f.tokens;
  if (made) parts.push(made === 1 ? "1 token" : `${count(made)} tokens`);
  // If an answer came all at once, only its total time is meaningful.
  const rate = f.rate ?? (f.seconds > 0.1 ? (f.tokens - 1) / f.seconds : f.tokens / (f.first + f.seconds));
  if (f.tokens > 1 && rate > 0) parts.push(`${rate.toFixed(1)} tokens/s`);
  if (f.first !== undefined) parts.push(`first token after ${f.first.toFixed(2)} s`);
  if (f.used && f.context) parts.push(`context ${count(f.used)} of ${count(f.context)}`);
  if (m.finish === "length") parts.push("ended at the limit of tokens");
  if (m.stopped) parts.push("stopped");
  if (m.broken || m.partial) parts.push("incomplete");
  return parts.join(" · ");
}

// cut reports whether an answer ended before its end and can be continued.
function cut(m) {
  return Boolean(m.content) && !m.tool_calls && (m.finish === "length" || m.stopped || m.broken || m.partial);
}

// waiting says what happens before the first token; waits is from stream.js.
function waiting({done, total, why}) {
  if (why) return why;
  return total ? `reading the prompt: ${count(done)} of ${count(total)} tokens` : "waiting for the first token";
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
    this.branches = make("span", {class: "branches", hidden: true}, button("previous", "Previous version", "‹"), make("span"), button("next", "Next version", "›"));
    this.footer = make("footer");
    this.element = make("article", {class: message.role, "aria-label": names[message.role]});
    this.element.view = this;
    this.ended = false;
    if (message.role === "assistant") {
      this.thought = make("div");
      this.summary = make("summary");
      this.reasoning = make("details", {class: "reasoning", hidden: true}, this.summary, this.thought);
      this.body = make("div", {class: "text said"});
      this.calls = make("div");
      this.meter = make("progress", {hidden: true, "aria-label": "Prompt"});
      this.element.append(this.reasoning, this.body, this.calls, this.meter, this.footer);
      this.more = button("continue", "Continue answer", "Continue");
      this.footer.append(this.branches, this.note, this.more, button("copy", "Copy answer", "Copy"), button("retry", "Retry"));
      this.text = new Text(this.body);
      return;
    }
    this.body = make("div", {class: "said"}, message.content);
    this.footer.append(this.branches, button("copy", "Copy message", "Copy"));
    if (message.role === "user") this.footer.append(button("edit", "Edit message", "Edit"));
    if (message.name) this.element.append(make("p", {class: "faint"}, `Result of ${message.name}`));
    if (message.files) this.element.append(chips(message.files));
    this.element.append(this.body, this.footer);
    this.body.hidden = !message.content;
  }

  // branch shows which of how many versions the message is.
  branch(index, of) {
    this.branches.hidden = of < 2;
    const [previous, text, next] = this.branches.children;
    text.textContent = `${index + 1}/${of}`;
    previous.disabled = index === 0;
    next.disabled = index === of - 1;
  }

  // update shows what has arrived so far; waits is what the server says while no tokens
  // come, null while they do.
  update(waits = null) {
    const m = this.message, busy = this.element.classList.contains("busy");
    if (m.role !== "assistant") return;
    if (m.reasoning_content) {
      this.reasoning.hidden = false;
      this.summary.textContent = m.content || !busy ? "Reasoning" : "Thinking…";
      this.thought.textContent = m.reasoning_content;
    }
    this.text.set(m.content);
    (m.tool_calls ?? []).forEach((call, i) => {
      const shown = this.calls.children[i] ?? this.calls.appendChild(make("details", {class: "call", open: true}, make("summary"), make("pre", {tabIndex: 0}, make("code"))));
      shown.querySelector("summary").textContent = `Tool call: ${call.function.name}`;
      shown.querySelector("code").textContent = pretty(call.function.arguments);
    });
    const began = m.content || m.reasoning_content || m.tool_calls;
    this.note.textContent = busy && (!began || waits) ? waiting(waits ?? {}) : note(m);
    this.meter.hidden = !busy || !waits?.total;
    if (!this.meter.hidden) [this.meter.value, this.meter.max] = [waits.done, waits.total];
  }

  // busy shows whether the answer is running.
  busy(on) {
    this.element.classList.toggle("busy", on);
    this.element.setAttribute("aria-busy", String(on));
    this.footer.querySelectorAll("button").forEach(b => { b.parentElement === this.footer && (b.hidden = on); });
    if (this.more) this.more.hidden = on || !cut(this.message);
  }

  // end shows the finished message; it stays busy until its text is rendered.
  async end() {
    if (this.ended) return;
    this.ended = true;
    this.update();
    await this.text?.end(this.message.content);
    this.busy(false);
    this.update();
  }

  // asksFor adds a field for the result of each call that has none.
  asksFor(calls, give) {
    for (const call of calls) {
      const field = make("textarea", {rows: 2, "aria-label": `Result of ${call.function.name}`, placeholder: `Result of ${call.function.name} for the model`});
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
