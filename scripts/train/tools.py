#!/usr/bin/env python3
"""Generates dialogues with tools, and the held-out questions for them.

    tools.py OUT.jsonl            writes the held-out questions
    tools.py --dialogues N SEED   prints N dialogues of training as JSON with their prompts

A dialogue is written as the server writes it for DeepSeek V4 (model/chat, format v4)."""
import functools
import json
import random
import re
import sys

import corpus
import declines
import facts
import frames
import toolkinds as k
import wordings as w
from bpe import BOS, EOS

DSML = "｜DSML｜"
USER, BOT, THINK, NOTHINK = corpus.USER, corpus.BOT, corpus.THINK, corpus.NOTHINK
MARKUP, NAME, VALUE, WORDS, ASKED = 0.3, 1.5, 2.0, 1.0, 0.1          # weights of the loss

BEFORE = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{DSML}tool_calls>" block like the following:

<{DSML}tool_calls>
<{DSML}invoke name="$TOOL_NAME">
<{DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML}parameter>
...
</{DSML}invoke>
<{DSML}invoke name="$TOOL_NAME2">
...
</{DSML}invoke>
</{DSML}tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"""
AFTER = """

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""

CITIES = [c for table in facts.CAPITALS.values() for c in table.values() if c not in k.HELD_TOWNS] + k.TOWNS
COUNTRIES = [(x, y) for table in facts.CAPITALS.values() for x, y in table.items()]
HELD_COUNTRIES = {x for i, (x, _) in enumerate(COUNTRIES) if i % 9 == 4}


HELD_NAMES = {h.lower() for h in k.HELD_WORDS + k.HELD_TOWNS} | {c.lower() for c in HELD_COUNTRIES}
KNOWN = [x for x in corpus.words_of_facts() if x.lower() not in HELD_NAMES]


# ---- tools ----------------------------------------------------------------------------
def made_up(rng, n=None):
    """A name that means nothing: it must be copied."""
    return "".join(rng.choice(k.SYLLABLES) for _ in range(n or rng.choice((2, 2, 3))))


def spelled(rng):
    """A word of any spelling, as names of places and words of other languages have it: what is
    copied from it is its letters, for no sequence of its tokens has been seen before."""
    while True:
        word = "".join(rng.choice(k.ONSETS) + rng.choice(k.VOWELS) + rng.choice(k.CODAS) for _ in range(rng.choice((1, 1, 2, 2, 2, 3))))
        if len(word) > 2 and corpus.up(word) not in k.HELD_TOWNS and word not in k.HELD_WORDS:
            return word


class Tool:
    """One tool as it is offered: kind, name, and the parameter of each slot."""

    def __init__(self, rng, kind):
        e = k.KINDS[kind]
        self.kind = kind
        self.name = rng.choice(e["names"])
        if rng.random() < 0.06:
            self.name = rng.choice(("tool_", "do_", "my_", "")) + made_up(rng)
        self.params, taken = {}, set()
        for slot, (names, kind_, texts) in e["slots"].items():
            name = rng.choice([n for n in names if n not in taken])
            taken.add(name)
            schema = {"type": "string", "enum": kind_} if isinstance(kind_, list) else {"type": kind_}
            if rng.random() < 0.6:
                schema["description"] = rng.choice(texts)
                if rng.random() < 0.2:
                    schema = dict(reversed(schema.items()))
            self.params[slot] = (name, schema)
        parameters = {"type": "object", "properties": {n: s for n, s in self.params.values()}}
        if self.params and rng.random() < 0.9:
            parameters["required"] = [n for n, _ in self.params.values()]
        if rng.random() < 0.1:
            parameters["additionalProperties"] = False
        text = rng.choice(e["texts"]) + rng.choice(("", "", "."))
        self.function = {"name": self.name, "description": text, "parameters": parameters}
        if rng.random() < 0.05:
            self.function = dict(self.function, strict=rng.random() < 0.5)

    def arguments(self, values):
        return {self.params[s][0]: v for s, v in values.items() if s in self.params}


def offer(rng, n, first=None):
    """n tools of different kinds, first among them."""
    kinds = [x for x in k.KINDS if x != first]
    rng.shuffle(kinds)
    chosen = [first] if first else []
    for x in kinds:
        if len(chosen) < n and not any(x in r and r & set(chosen) for r in k.RIVALS):
            chosen.append(x)
    out = []
    while len({t.name for t in out}) < len(chosen):
        out = [Tool(rng, x) for x in chosen]
    rng.shuffle(out)
    return out


# ---- questions with a call ------------------------------------------------------------
def number(rng):
    return rng.choice((rng.randint(0, 12), rng.randint(2, 99), rng.randint(10, 99), rng.randint(100, 999), rng.randint(10, 999), rng.randint(1000, 9999)))


def held_pair(a, b):
    """Pairs of numbers of which no dialogue of training asks."""
    return (a * 7 + b) % 5 == 3


def values(rng, kind, held):
    """Values of a kind's slots; of the held-out ones if held."""
    if kind in ("weather", "time"):
        if held:
            return {"city": rng.choice(k.HELD_TOWNS)}
        r, words = rng.random(), rng.choices((1, 2, 3), (76, 17, 7))[0]
        if r < 0.35:
            return {"city": rng.choice(CITIES) if r < 0.25 else corpus.up(rng.choice(KNOWN))}
        return {"city": " ".join(corpus.up((spelled if r < 0.87 else made_up)(rng)) for _ in range(words))}
    if kind in ("calculate", "arithmetic", "random"):
        while True:
            a, b = number(rng), number(rng)
            if kind == "random" and a >= b:
                continue
            if held_pair(a, b) == held and (held is False or a > 12 or b > 12):
                break
        if kind == "random":
            return {"low": a, "high": b}
        op = rng.choice(list(k.OPERATIONS))
        return {"operation": op, "a": a, "b": b, "expression": f"{a} {k.OPERATIONS[op][0]} {b}"}
    if kind == "timer":
        while True:
            n = rng.choice((rng.randint(1, 60), rng.randint(1, 200)))
            if (n % 7 == 3) == held:
                return {"minutes": n}
    if kind == "translate":
        pool = k.HELD_WORDS if held else k.WORDS
        word = rng.choice(pool)
        if not held:
            r = rng.random()
            word = word if r < 0.1 else rng.choice(KNOWN) if r < 0.5 else (spelled if r < 0.9 else made_up)(rng)
        return {"text": word, "language": rng.choice(k.LANGUAGES)}
    return {}


def ask(rng, kind, held=False):
    """(question without dress, values, topic, right answer or None)"""
    e = k.KINDS[kind]
    if kind == "lookup" and not held and rng.random() < 0.25:       # a topic of which nothing is known: it must be copied
        topic = " ".join(rng.choice(KNOWN) if (r := rng.random()) < 0.5 else (spelled if r < 0.9 else made_up)(rng) for _ in range(rng.choice((1, 1, 2, 3))))
        if rng.random() < 0.3:
            topic = corpus.up(topic)
        return corpus.expand(rng, rng.choice(frames.TOPICS)).format(topic=topic), {"query": topic}, topic, f"{corpus.up(topic)} is a kind of {made_up(rng)}."
    if kind in ("lookup", "capital"):
        while True:
            what = "capital" if kind == "capital" else rng.choices(list(corpus.WEIGHT), cum_weights=corpus.CUMULATIVE)[0]
            if what in corpus.NUMERIC:
                continue
            slots, topic, answer, _ = rng.choice(corpus.FACTS[what])
            place = slots["x"].removeprefix("the ") if what == "capital" else None
            if kind == "capital" and (place in HELD_COUNTRIES) != held:
                continue
            template = rng.choice(w.HELD[what]) if held else corpus.loosen(rng, corpus.expand(rng, rng.choice(w.TRAIN[what])))
            if not held and rng.random() < 0.3:
                template = corpus.expand(rng, rng.choice(frames.FRAMES["question"]).replace("*", template))
            return corpus.fill(rng, template, slots, what), {"query": topic, "country": place}, topic, answer
    v = values(rng, kind, held)
    slots = dict(v)
    if "expression" in v:
        slots["sum"] = rng.choice(k.OPERATIONS[v["operation"]][1]).format(**v)
    if held:
        template = rng.choice(e["held"])
    else:
        template = frames.wording(rng, kind) if rng.random() < 0.65 else corpus.expand(rng, rng.choice(e["ask"]))
        template = corpus.loosen(rng, template)
    topic = {"weather": "the weather in {city}", "time": "the time in {city}", "date": "the date", "calculate": "{expression}", "arithmetic": "{expression}",
             "timer": "a timer of {minutes} minutes", "translate": "{text} in {language}", "random": "a number from {low} to {high}"}[kind].format(**slots)
    return template.format(**slots), v, topic, None


def result(rng, kind, v, topic, answer):
    """What the tool says, and what the assistant says then."""
    if rng.random() < 0.04:
        why = rng.choice(("not found", "no connection", "try again later", "time is up"))
        return rng.choice((f"error: {why}", f"Error: {why}", json.dumps({"error": why}))), f"The tool has failed: {why}."
    if kind == "weather":
        sky, t = rng.choice(k.SKIES), rng.randint(-9, 39)
        r = rng.choice((f"{sky}, {t} degrees", json.dumps({"temperature": t, "condition": sky}), json.dumps({"condition": sky, "temperature": t}),
                        f"{t} degrees and {sky}"))
        return r, f"The weather in {v['city']}: {sky}, {t} degrees."
    if kind == "time":
        t = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
        return rng.choice((t, json.dumps({"time": t}))), f"It is {t} in {v['city']}."
    if kind == "date":
        t = f"{rng.randint(2020, 2039)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        return rng.choice((t, json.dumps({"date": t}))), f"Today is {t}."
    if kind in ("calculate", "arithmetic"):
        a, b = v["a"], v["b"]
        y = {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": round(a / b, 2) if b else "undefined"}[v["operation"]]
        if rng.random() < 0.3:
            y = number(rng)
        return rng.choice((str(y), str(y), json.dumps({"result": y}), json.dumps({"value": y}))), f"{v['expression']} = {y}."
    if kind in ("timer", "random"):
        if kind == "timer":
            return rng.choice(("ok", "done", json.dumps({"ok": True}), "the timer runs")), f"The timer is set for {v['minutes']} minutes."
        y = rng.randint(v["low"], v["high"])
        return rng.choice((str(y), json.dumps({"number": y}), json.dumps({"result": y}))), f"The number is {y}."
    if kind == "translate":
        y = made_up(rng)
        return rng.choice((y, json.dumps({"translation": y}), json.dumps({"text": y}))), f"{v['text']} in {v['language']} is {y}."
    if rng.random() < 0.3:      # what the tool says counts, not what the model knows
        made = corpus.up(made_up(rng))
        if kind == "capital":
            return made, f"The capital of {corpus.the(v['country'])} is {made}."
        return f"{made} is {topic}.", f"{made} is {topic}."
    return answer, answer


# With which tools a question that is declined otherwise might be answered.
NEEDED = {declines.FACT: {"lookup", "capital", "weather", "time", "date", "translate", "calculate", "arithmetic"}, declines.SUM: {"lookup", "calculate", "arithmetic"},
          declines.TASK: {"lookup", "translate", "timer", "random", "calculate", "arithmetic"}, declines.SENSE: {"lookup", "translate"}}


def answerable(rng, tools):
    """A question that needs no tool on offer, with its answer."""
    kinds = {t.kind for t in tools}
    while True:
        r = rng.random()
        if r < 0.1:
            missing = [x for x in ("weather", "time", "date", "timer", "translate", "random") if x not in kinds]
            if missing:
                q, *_ = ask(rng, rng.choice(missing))
                return corpus.dress(rng, q), k.UNKNOWN
        q, answer, _, kind = corpus.turn(rng, None)
        if kind in w.TRAIN:
            if "lookup" in kinds and kind not in corpus.NUMERIC or "capital" in kinds and kind == "capital":
                continue
            if kinds & {"calculate", "arithmetic"} and kind in ("add", "sub", "mul", "div"):
                continue
        elif kind == "unknown":
            continue            # some ask for the weather or the time
        elif kind == "declined" and kinds & NEEDED[answer]:
            continue            # a tool might know
        if not held_wording().search(corpus.normal(q)):
            return q, answer


# ---- dialogues ------------------------------------------------------------------------
def finish(rng, q):
    """Dress of a question whose names must keep their case."""
    q = rng.choice(w.PREFIX) + q
    if not q.endswith("="):
        q += rng.choice(w.SUFFIX)
    q = corpus.up(q) if rng.random() < 0.6 else q
    return q + rng.choice(("?", "?", "?", "", "", ".", " ?"))


def task(rng, tools):
    """A turn that needs one call or two: (question, calls, results, answer, thought)"""
    n = 2 if rng.random() < 0.35 else 1
    parts, t = [], None
    for i in range(n):
        if i == 0 or rng.random() < 0.6:
            t = rng.choices(tools, [2 if t.kind in ("capital", "lookup") else 1 for t in tools])[0]     # the model knows answers without them
        while True:
            q, v, topic, answer = ask(rng, t.kind)
            if not corpus.forbidden().search(corpus.normal(q)) and not held_wording().search(corpus.normal(q)):
                break
        parts.append((t, q, v, topic, *result(rng, t.kind, v, topic, answer)))
    q = parts[0][1]
    if n == 2:
        if parts[0][0] is parts[1][0] and "city" in parts[0][2] and rng.random() < 0.7:
            a, b = parts[0][2]["city"], parts[1][2]["city"]
            q = q.replace(a, f"{a} and {b}", 1) if rng.random() < 0.7 else f"{q} and {b}"
        else:
            q += rng.choice((" and ", ", and ", ", and also ", "? ", ", then ")) + parts[1][1]
    calls = [{"name": t.name, "arguments": t.arguments(v)} for t, _, v, _, _, _ in parts]
    names = " and ".join(c["name"] for c in calls)
    thought = f"The question is about {' and '.join(p[3] for p in parts)}. I call {names}."
    asked = finish(rng, q)
    if held_wording().search(corpus.normal(asked)):
        return task(rng, tools)         # two questions or the dress have completed a held-out wording
    return asked, calls, [p[4] for p in parts], " ".join(p[5] for p in parts), thought


@functools.lru_cache(1)
def held_wording():
    """A pattern that matches every held-out wording, whatever fills its slots."""
    all_ = [t for e in k.KINDS.values() for t in e["held"]]
    return re.compile("|".join(r"\b" + ".+?".join(re.escape(corpus.normal(p)) for p in re.split(r"\{\w+\}", t) if corpus.normal(p)) for t in all_))


def dialogue(rng, most=None, turns=None):
    """A conversation in which tools are offered, as the API has it."""
    n = min(most or 4, rng.choices((1, 2, 3, 4), (35, 35, 20, 10))[0])
    first = rng.choice(("capital", "lookup", "time", "translate", "translate")) if rng.random() < 0.45 else None    # those that are hardest to learn
    tools = offer(rng, n, first)
    thinking = rng.random() < 0.2
    messages = []
    if rng.random() < 0.35:
        messages.append({"role": "system", "content": " ".join(rng.sample(w.SYSTEM, rng.choice((1, 1, 2))))})
    for _ in range(turns or rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.18:
            q, answer = answerable(rng, tools)
            messages += [{"role": "user", "content": q}, say(answer, thinking and "No tool is needed.")]
            continue
        q, calls, results, answer, thought = task(rng, tools)
        ids = [f"call_{len(messages)}_{i}" for i in range(len(calls))]
        made = say("", thinking and thought)
        made["tool_calls"] = [{"id": i, "type": "function", "function": {"name": c["name"], "arguments": json.dumps(c["arguments"], ensure_ascii=False)}}
                              for i, c in zip(ids, calls)]
        messages += [{"role": "user", "content": q}, made]
        messages += [{"role": "tool", "tool_call_id": i, "content": r} for i, r in zip(ids, results)]
        messages.append(say(answer, thinking and "The tool has answered."))
    return {"messages": messages, "tools": [t.function for t in tools], "thinking": thinking}


def say(content, reasoning):
    m = {"role": "assistant", "content": content}
    if reasoning:
        m["reasoning_content"] = reasoning
    return m


def calls_text(calls):
    """A block of calls as (text, weight) pieces."""
    out = [(f"\n\n<{DSML}tool_calls>", MARKUP)]
    for c in calls:
        f = c["function"]
        out += [(f'\n<{DSML}invoke name="', MARKUP), (f["name"], NAME), ('">\n', MARKUP)]
        for i, (name, v) in enumerate(json.loads(f["arguments"]).items()):
            text = v if isinstance(v, str) else json.dumps(v)
            out += [("\n" * (i > 0) + f'<{DSML}parameter name="', MARKUP), (name, WORDS), (f'" string="{str(isinstance(v, str)).lower()}">', MARKUP),
                    (text, VALUE), (f"</{DSML}parameter>", MARKUP)]
        out.append((f"\n</{DSML}invoke>", MARKUP))
    return out + [(f"\n</{DSML}tool_calls>", WORDS)]


def render(d, before=BEFORE):
    """The conversation as (text, weight of its loss) pieces."""
    out, messages = [(BOS, 0.0)], list(d["messages"])
    system = messages.pop(0)["content"] if messages[0]["role"] == "system" else ""
    out.append((system + "\n\n" + before + "\n".join(json.dumps(t, ensure_ascii=False) for t in d["tools"]) + AFTER, 0.0))
    i = 0
    while i < len(messages):
        m = messages[i]
        if m["role"] == "user":
            out.append((USER + m["content"], ASKED))
        elif m["role"] == "tool":
            results = []
            while messages[i]["role"] == "tool":
                results.append(f"<tool_result>{messages[i]['content']}</tool_result>")
                i += 1
            out.append((USER + "\n\n".join(results), 0.0))
            i -= 1
        else:
            out.append((BOT + (THINK if d["thinking"] else NOTHINK), 0.0))
            if d["thinking"]:
                out.append((m.get("reasoning_content", "") + NOTHINK, WORDS))
            out += [(m["content"], WORDS)] * bool(m["content"]) + (calls_text(m["tool_calls"]) if "tool_calls" in m else []) + [(EOS, WORDS)]
        i += 1
    return out


def drill(rng):
    """One question and its call without the text about tools: only the values are learned."""
    while True:
        t = Tool(rng, rng.choice(list(k.KINDS)))
        if t.params:
            break
    q, calls, *_ = task(rng, [t])
    out = [(BOS, 0.0), (USER + q, ASKED), (BOT + NOTHINK, 0.0)]
    calls = [{"function": {"name": c["name"], "arguments": json.dumps(c["arguments"], ensure_ascii=False)}} for c in calls]
    return out + [(piece, weight * (weight == VALUE)) for piece, weight in calls_text(calls)] + [(EOS, 0.0)]


def text(d):
    return "".join(t for t, _ in render(d))


# ---- held-out questions ---------------------------------------------------------------
def held_out(seed=17, n=200, direct=40):
    """n questions that need calls and some that need none, in wordings and with values that training never uses."""
    rng, out, seen = random.Random(seed), [], set()
    kinds = list(k.KINDS)
    while len(out) < n + direct:
        if len(out) >= n:
            tools = offer(rng, rng.choice((1, 2, 3)))
            offered = {t.kind for t in tools}
            e = rng.choice(DIRECT)
            if "lookup" in offered or "capital" in offered and e["kind"] == "capital" or e["kind"] in ("add", "sub", "mul", "div"):
                continue
            entry = {"question": e["question"], "calls": [], "accept": e["accept"], "kind": "none"}
        else:
            kind = kinds[len(out) % len(kinds)]
            two = len(out) % 11 == 10
            tools = offer(rng, rng.choices((1, 2, 3, 4), (25, 35, 25, 15))[0], kind)
            parts = [next(t for t in tools if t.kind == kind)]
            if two:
                parts.append(rng.choice(tools))
            asked = [ask(rng, t.kind, True) for t in parts]
            q = " and ".join(a[0] for a in asked)
            entry = {"question": q, "calls": [{"name": t.name, "arguments": t.arguments(a[1])} for t, a in zip(parts, asked)],
                     "kind": "two calls" if two else kind}
            if two and entry["calls"][0] == entry["calls"][1]:
                continue
            entry["question"] = corpus.up(q) + "?" if rng.random() < 0.7 else q + rng.choice(("?", ""))
        if corpus.normal(entry["question"]) in seen and entry["kind"] not in ("date",):
            continue
        seen.add(corpus.normal(entry["question"]))
        entry["tools"] = [{"type": "function", "function": t.function} for t in tools]
        out.append(entry)
    return out


DIRECT = corpus.held_out()


def main():
    if sys.argv[1] == "--dialogues":
        rng = random.Random(int(sys.argv[3]))
        for _ in range(int(sys.argv[2])):
            d = dialogue(rng)
            print(json.dumps(dict(d, prompt=text(d)), ensure_ascii=False))
        return
    with open(sys.argv[1], "w") as out:
        for e in held_out():
            out.write(json.dumps(e, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
