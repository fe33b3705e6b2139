// An answer of Chat Completions while it arrives.
import {headers, json} from "./key.js";
import {Failure, broken, refused} from "./errors.js";

// waitsOf reads a comment, which keeps a silent stream open: how much of the prompt has
// run, or why no tokens come.
function waitsOf(comment) {
  const [, done, total] = comment.match(/(\d+) of (\d+) tokens of the prompt/) ?? [];
  if (total) return {done: Number(done), total: Number(total)};
  return {why: comment.match(/^keep-alive: (.+)/)?.[1]};
}

// events reads the events of a response, and comments as {waits}. It throws a Failure if
// the stream is cut off.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", begun = false;
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (e) {
      if (e.name === "AbortError") throw e;
      throw broken(begun);
    }
    if (part.done) throw broken(begun);
    const lines = (rest + part.value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith(":")) yield {waits: waitsOf(line.slice(1).trim())};
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      begun = true;
      const event = JSON.parse(data);
      if (event.error) throw new Failure(event.error.message, {cure: "The text so far is kept; Continue resumes it, Retry asks again."});
      yield event;
    }
  }
}

// answer sends a request and adds what arrives to message; it calls changed after each
// piece, with what waitsOf returns if that was a comment. It returns at the end of the
// answer, or throws a Failure, or an AbortError after signal.
export async function answer(request, message, signal, changed) {
  const start = performance.now(), {tokens = 0, earlier = 0} = message.figures ?? {};
  const figures = message.figures = {tokens: 0, ...(tokens && {earlier: earlier + tokens})}; // earlier: of the answer that this one continues
  let response;
  try {
    response = await fetch("/v1/chat/completions", {method: "POST", headers: headers(json), signal,
      body: JSON.stringify({...request, stream: true, stream_options: {include_usage: true}})});
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw broken(false);
  }
  if (!response.ok) throw await refused(response);
  let first = 0;
  for await (const event of events(response)) {
    if (event.waits) {
      changed(event.waits);
      continue;
    }
    const now = performance.now();
    if (event.model) message.model = event.model;
    if (event.usage) [figures.tokens, figures.used] = [event.usage.completion_tokens, event.usage.total_tokens];
    const {predicted_n: made, predicted_ms: took} = event.timings ?? {};
    if (made) figures.tokens = made;
    if (made > 1 && took > 0) figures.rate = 1000 * (made - 1) / took; // the prompt's last step makes the first token
    const choice = event.choices?.[0];
    if (choice?.finish_reason) message.finish = choice.finish_reason;
    const delta = choice?.delta ?? {};
    if (delta.reasoning_content) message.reasoning_content = (message.reasoning_content ?? "") + delta.reasoning_content;
    if (delta.content) message.content += delta.content;
    for (const call of delta.tool_calls ?? []) add(message, call);
    if (delta.reasoning_content || delta.content || delta.tool_calls) {
      first ||= now;
      if (!event.usage && !made) figures.tokens++; // until the server sends the count
      figures.first = (first - start) / 1000;
      figures.seconds = (now - first) / 1000;
    }
    changed();
  }
}

// add adds a piece of a call to a message.
function add(message, piece) {
  const calls = message.tool_calls ??= [];
  const call = calls[piece.index ?? calls.length] ??= {id: "", type: "function", function: {name: "", arguments: ""}};
  if (piece.id) call.id = piece.id;
  call.function.name += piece.function?.name ?? "";
  call.function.arguments += piece.function?.arguments ?? "";
}
