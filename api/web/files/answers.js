// The answers that are running, at most one for each conversation, shown or not. Each is
// stored while it arrives.
import {Failure} from "./errors.js";
import {answer} from "./stream.js";
import {add, newId, size} from "./conversation.js";
import * as store from "./store.js";

const saveAfter = 1000; // ms between two saves of an answer that is arriving

const runs = new Map(); // by id of the conversation

// runOf returns the running answer of a conversation, if there is one.
export function runOf(conversation) { return runs.get(conversation.id); }

// all returns all running answers.
export function all() { return [...runs.values()]; }

// Run is a running answer. Until its first token it is not a part of its conversation, so
// what it replaces stays in place if it fails.
class Run {
  constructor(conversation, parent, cut, watch) {
    this.conversation = conversation;
    this.was = conversation.at; // shown when the answer was asked for
    this.message = {...cut && begunBy(cut), id: newId(), parent, role: "assistant", content: cut?.content ?? "", partial: true};
    this.from = size(this.message); // what a cut answer had
    this.watch = watch;         // {changed, begun, saved, ended}
    this.begun = false;
    this.waits = {};            // what the server says while no tokens come, null while they do
    this.control = new AbortController();
    this.timer = 0;
  }

  stop() { this.control.abort(); }

  // piece is called after each piece of the answer.
  piece(waits) {
    const m = this.message;
    if (!this.begun && (size(m) > this.from || m.tool_calls)) {
      this.begun = true;
      const {at} = this.conversation;
      add(this.conversation, m);
      if (at !== this.was) this.conversation.at = at; // the user has moved to another branch
      this.watch.begun(this);
    }
    this.waits = this.begun ? (waits?.why ? waits : null) : waits ?? this.waits;
    if (this.begun) this.timer ||= setTimeout(() => this.save(), saveAfter);
    this.watch.changed(this);
  }

  save() {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.begun) this.watch.saved(this, store.put(this.conversation));
  }

  async run(body) {
    const m = this.message;
    let failure = null;
    try {
      await answer(body, m, this.control.signal, waits => this.piece(waits));
    } catch (e) {
      delete m.tool_calls; // they may be cut in the middle
      if (e.name === "AbortError") m.stopped = true;
      else {
        failure = e instanceof Failure ? e : new Failure(String(e.message ?? e));
        m.broken = true;
      }
    }
    delete m.partial;
    if (this.begun && size(m) === this.from && !m.tool_calls) this.drop();
    this.conversation.changed = Date.now();
    if (runs.get(this.conversation.id) === this) runs.delete(this.conversation.id);
    this.save();
    await this.watch.ended(this, failure);
  }

  // drop removes an answer to which only a cut call was added.
  drop() {
    this.begun = false;
    this.conversation.messages.delete(this.message.id);
    if (this.conversation.at === this.message.id) this.conversation.at = this.was;
  }
}

// begunBy returns what a continued answer has of the cut one.
function begunBy({reasoning_content, figures}) { return {...(reasoning_content && {reasoning_content}), figures}; }

// start asks for an answer after the message parent. If cut is given, an answer that ended
// before its end, the new one begins with its text.
export function start(conversation, parent, cut, body, watch) {
  runOf(conversation)?.stop();
  const run = new Run(conversation, parent, cut, watch);
  runs.set(conversation.id, run);
  run.run(body);
  return run;
}

// Answers end with the page, so what has arrived is stored before. A phone may end a
// hidden page without another event.
function saveAll() { for (const run of runs.values()) run.save(); }
addEventListener("pagehide", saveAll);
document.addEventListener("visibilitychange", () => { if (document.hidden) saveAll(); });
