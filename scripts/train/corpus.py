#!/usr/bin/env python3
"""Generates the training text and the held-out questions (corpus.py OUT.jsonl writes those)."""
import functools
import json
import random
import re
import sys

import facts as f
import wordings as w
from bpe import BOS, EOS
from facts import words

USER, BOT, THINK, NOTHINK = "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"


def the(country):
    return "the " + country if country in f.ARTICLE else country


def up(s):
    return s[:1].upper() + s[1:]


def an(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def build():
    """kind -> list of (slots, topic, answer, accepted key words)"""
    out = {k: [] for k in w.TRAIN}

    def add(kind, slots, topic, answer, *accept):
        out[kind].append((slots, topic, answer, list(accept)))

    for continent, table in f.CAPITALS.items():
        for x, y in table.items():
            add("capital", dict(x=the(x)), f"the capital of {the(x)}", f"The capital of {the(x)} is {y}.", f"is {y}.")
            add("country", dict(x=y), f"the country with the capital {y}", f"{y} is the capital of {the(x)}.", x)
            if x not in f.TWO_CONTINENTS:
                verb = "are" if x in ("Netherlands", "Philippines", "Maldives", "Seychelles", "Comoros", "Bahamas", "Solomon Islands") else "is"
                add("continent", dict(x=the(x)), f"the continent of {the(x)}", f"{up(the(x))} {verb} in {continent}.", f"in {continent}.")
    for x, y in f.LANGUAGE.items():
        add("language", dict(x=the(x)), f"the language of {the(x)}", f"People in {the(x)} speak {y}.", y)
    for x, y in f.COLOUR.items():
        add("colour", dict(x=x), f"the colour of {x}", f"{up(x)} is {y}.", f"is {y}.")
    for (x, y), z in f.MIX.items():
        for a, b in ((x, y), (y, x)):
            add("mix", dict(x=a, y=b), f"mixing {a} and {b}", f"{up(a)} and {b} make {z}.", f"make {z}")
    plural = dict(f.PLURAL, wolf="wolves", fly="flies", butterfly="butterflies", mosquito="mosquitoes", ostrich="ostriches",
                  salmon="salmon", trout="trout", tuna="tuna", cod="cod", deer="deer", human="humans")

    def many(x):
        return plural.get(x, x + "s")
    for x, y in f.SOUND.items():
        add("sound", dict(x=x, xs=many(x)), f"the sound of {an(x)}", f"{up(an(x))} {y}.", y)
    for x, y in f.BABY.items():
        add("baby", dict(x=x), f"the young of {an(x)}", f"A baby {x} is called {an(y)}.", f"called {an(y)}.")
    for x, y in f.LEGS.items():
        add("legs", dict(x=x, xs=many(x)), f"the legs of {an(x)}", f"{up(an(x))} has {y} legs.", f"has {y} legs")
    for x, y in f.GROUP.items():
        add("group", dict(x=x, xs=many(x)), f"the kind of animal {an(x)} is", f"{up(an(x))} is {an(y)}.", f"is {an(y)}")
    pairs = list(f.OPPOSITE.items())
    for x, y in pairs + [(y, x) for x, y in pairs if y not in f.OPPOSITE]:
        add("opposite", dict(x=x), f"the opposite of {x}", f"The opposite of {x} is {y}.", f"is {y}.")
    for kind, table, what in (("plural", f.PLURAL, "plural"), ("past", f.PAST, "past tense")):
        for x, y in table.items():
            add(kind, dict(x=x), f"the {what} of {x}", f"The {what} of {x} is {y}.", f"is {y}.")
    for x, y, z in f.ELEMENTS:
        add("symbol", dict(x=x), f"the chemical symbol of {x}", f"The chemical symbol of {x} is {y}.", f"is {y}.")
        add("element", dict(x=y), f"the chemical symbol {y}", f"{y} is the chemical symbol of {x}.", f"of {x}.")
        add("atomic", dict(x=x), f"the atomic number of {x}", f"The atomic number of {x} is {z}.", f"is {z}.")
    for i, x in enumerate(f.PLANETS):
        add("planet", dict(x=f.ORDINALS[i], n=i + 1), f"the {f.ORDINALS[i]} planet", f"{x} is the {f.ORDINALS[i]} planet from the sun.", x)
    for kind, names in (("day", f.DAYS), ("month", f.MONTHS)):
        for i, x in enumerate(names):
            y = names[(i + 1) % len(names)]
            add(f"{kind}_after", dict(x=x), f"the {kind} after {x}", f"{y} comes after {x}.", f"{y} comes after")
            add(f"{kind}_before", dict(x=y), f"the {kind} before {y}", f"{x} comes before {y}.", f"{x} comes before")
    for i, x in enumerate(f.MONTHS):
        add("month_nth", dict(x=f.ORDINALS[i], n=i + 1), f"the {f.ORDINALS[i]} month", f"{x} is the {f.ORDINALS[i]} month of the year.", x)
        days = f.MONTH_DAYS[i]
        add("month_days", dict(x=x), f"the days in {x}", f"{x} has {days} days." if days else f"{x} has 28 days, and 29 in a leap year.", str(days or 28))
    for x, y, n in f.UNITS:
        add("unit", dict(x=x, y=y), f"the {x} in {y}", f"There are {n} {x} in {y}.", f"are {n} ")
    for x, y in f.SHAPES.items():
        add("sides", dict(x=x, xs=many(x)), f"the sides of {an(x)}", f"{up(an(x))} has {y} sides.", f"has {y} sides")
    for x, sentence, key in f.SINGLE:
        add("single", dict(x=x), x, sentence, key)
    for a, b in zip("ABCDEFGHIJKLMNOPQRSTUVWXY", "BCDEFGHIJKLMNOPQRSTUVWXYZ"):
        add("letter_after", dict(x=a), f"the letter after {a}", f"The letter after {a} is {b}.", f"is {b}.")
    for n in range(101):
        add("number_word", dict(x=n), f"{n} in words", f"{n} in words is {words(n)}.", f"is {words(n)}.")
        add("parity", dict(x=n), f"the number {n}", f"{n} is {'odd' if n % 2 else 'even'}.", "is " + ("odd." if n % 2 else "even."))
        if n < 100:
            add("next", dict(x=n), f"the number after {n}", f"The number after {n} is {n + 1}.", f"is {n + 1}.")
        if n <= 50:
            add("double", dict(x=n), f"two times {n}", f"Double {n} is {2 * n}.", f"is {2 * n}.")
            add("half", dict(x=2 * n), f"half of {2 * n}", f"Half of {2 * n} is {n}.", f"is {n}.")
    for a in range(21):
        for b in range(21):
            add("add", dict(x=a, y=b), f"{a} + {b}", f"{a} + {b} = {a + b}.", f"= {a + b}.")
            if b <= a:
                add("sub", dict(x=a, y=b), f"{a} - {b}", f"{a} - {b} = {a - b}.", f"= {a - b}.")
            if a <= 12 and b <= 12:
                add("mul", dict(x=a, y=b), f"{a} * {b}", f"{a} * {b} = {a * b}.", f"= {a * b}.")
            if a != b:
                add("bigger", dict(x=a, y=b), f"{a} and {b}", f"{max(a, b)} is bigger than {min(a, b)}.", f"{max(a, b)} is bigger")
    for a in range(1, 13):
        for b in range(1, 13):
            add("div", dict(x=a * b, y=b), f"{a * b} / {b}", f"{a * b} / {b} = {a}.", f"= {a}.")
    return out


FACTS = build()
# How often a kind is drawn: by its number of facts, damped.
WEIGHT = {k: len(v) ** 0.6 for k, v in FACTS.items()}
WEIGHT.update(capital=34, country=24, continent=22, add=56, sub=42, mul=38, opposite=24, div=24, bigger=16, next=10, number_word=10,
              parity=9, double=8, half=8)
HELD_WEIGHT = dict(WEIGHT)           # the held-out questions stay what they are when these change:
WEIGHT.update(add=75, sub=65, mul=45, mix=8, element=18, colour=14, language=14, past=14)
TALK_SHARE, DECLINE_SHARE, FOLLOW_SHARE, THINK_SHARE, SYSTEM_SHARE = 0.09, 0.27, 0.06, 0.2, 0.15
NUMERIC = {"add", "sub", "mul", "div", "bigger", "double", "half", "next", "parity"}
FOLLOWS = ("capital", "continent", "language", "opposite", "plural", "past", "symbol", "colour", "country")


def expand(rng, grammar):
    """One of the wordings a template stands for."""
    while "(" in grammar:
        grammar = re.sub(r"\(([^()]*)\)", lambda m: rng.choice(m.group(1).split("|")), grammar)
    return re.sub(" +", " ", grammar).strip()


def normal(s):
    """A question without case, punctuation and spacing."""
    return re.sub(r"[^a-z0-9+*/-]+", " ", s.lower()).strip()


@functools.lru_cache(1)
def forbidden():
    """A pattern that matches every held-out wording, whatever fills its slots."""
    all_ = [t for ts in w.HELD.values() for t in ts] + [t for e in w.TALK for t in e[2]]
    pats = [r"\b" + r".+?".join(re.escape(normal(p)) for p in re.split(r"\{\w+\}", t)) + r"$" if not t.endswith("}")
            else r"\b" + r".+?".join(re.escape(normal(p)) for p in re.split(r"\{\w+\}", t)[:-1]) + r".+" for t in all_]
    return re.compile("|".join(pats))


def fill(rng, template, slots, kind):
    slots = dict(slots)
    if kind in NUMERIC and rng.random() < 0.3 and all(isinstance(v, int) and v <= 100 for v in slots.values()):
        slots = {k: words(v) for k, v in slots.items()}
    return template.format(**slots)


def dress(rng, q, prefix=True):
    """Prefix, suffix, case and punctuation as people write them."""
    if prefix:
        q = rng.choice(w.PREFIX) + q
        suffix = rng.choice(w.SUFFIX)
        if not q.endswith(("=", " is", "?")):
            q += suffix
    if rng.random() < 0.3:
        q = re.sub(r"(\d) ([-+*/]) (\d)", r"\1\2\3", q).replace(" = ?", "=?") # 7+5 for 7 + 5
    r = rng.random()
    q = up(q) if r < 0.6 else q.lower() if r < 0.85 else q
    if q.endswith("?"):
        return q
    if q.endswith("="):
        return q + rng.choice(["", "", " ?"])
    return q + rng.choice(["?", "?", "?", "?", "", "", ".", " ?", "!"])


def loosen(rng, template):
    """Now and then words too few or too many: the words that matter must carry the question."""
    if rng.random() < 0.65:
        return template
    q = template.split(" ")
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.45:
            loose = [i for i, v in enumerate(q) if v in w.LOOSE]
            if loose and len(q) > 2:
                del q[rng.choice(loose)]
        else:
            q.insert(rng.randrange(len(q) + 1), rng.choice(w.FILLER))
    return " ".join(q)


def pick(rng):
    kind = rng.choices(list(WEIGHT), cum_weights=CUMULATIVE)[0]
    return kind, rng.choice(FACTS[kind])


CUMULATIVE = [sum(list(WEIGHT.values())[:i + 1]) for i in range(len(WEIGHT))]


def turn(rng, last):
    """One question with its answer: (question, answer, thought, kind)."""
    import declines     # which asks for facts, too
    while True:
        if rng.random() < DECLINE_SHARE:
            q, answer, thought = declines.question(rng)
            kind = "declined"
        elif rng.random() < TALK_SHARE:
            kind, train, _, answer, _ = rng.choices(w.TALK, weights=[len(t[1]) + 3 for t in w.TALK])[0]
            q = dress(rng, expand(rng, rng.choice(train)), rng.random() < 0.15)
            thought = "The user just talks. I answer politely."
        else:
            kind, (slots, topic, answer, _) = pick(rng)
            if last in FOLLOWS and rng.random() < FOLLOW_SHARE * 3:
                kind = last
                slots, topic, answer, _ = rng.choice(FACTS[kind])
                q = dress(rng, expand(rng, rng.choice(w.FOLLOW)).format(**slots), False)
            else:
                q = dress(rng, fill(rng, loosen(rng, expand(rng, rng.choice(w.TRAIN[kind]))), slots, kind), True)
            thought = f"The question is about {topic}. {answer}"
        if not forbidden().search(normal(q)):
            return q, answer, thought, kind


def conversation(rng, turns):
    """Text pieces as (text, weight of its loss): the answers count, the rest a little."""
    out = [(BOS, 0.0)]
    if rng.random() < SYSTEM_SHARE:
        out.append((" ".join(rng.sample(w.SYSTEM, rng.choice((1, 1, 2, 3)))) + rng.choice(("", "", "\n", "\n\n")), 0.0))
    last, thinking = None, rng.random() < THINK_SHARE
    for i in range(turns):
        q, a, thought, last = turn(rng, last)
        out.append((USER + q + BOT, 0.1))
        if thinking and i == turns - 1:
            out.append((THINK, 0.0))
            out.append((thought + NOTHINK + a + EOS, 1.0))
        else:
            out.append((NOTHINK, 0.0))
            out.append((a + EOS, 1.0))
    return out


@functools.lru_cache(1)
def words_of_facts():
    """The words of the facts, as they are spelled there."""
    text = " ".join(" ".join(map(str, (*slots.values(), answer))) for facts in FACTS.values() for slots, _, answer, _ in facts)
    return sorted(set(re.findall(r"[A-Za-z]{3,}", text)))


REPEAT = ["(say|repeat|echo|copy) {x}( again|)", "(say|repeat|write|copy) (the word |the words |this: |after me: |){x}", "what was that, {x}",
          "{x}, (say|repeat) (it|that)", "please (say|repeat|copy) {x}", "how is {x} written", "just say {x}", "answer with {x}", "the answer is {x}"]


def repeat(rng, text):
    """A turn whose answer is the text itself, as (text, weight of its loss)."""
    form = expand(rng, rng.choice(REPEAT))
    q = (up(form) if rng.random() < 0.5 else form).format(x=text) + rng.choice(("", "", ".", "!"))
    answer = rng.choice(("{}", "{}", '"{}"', "{}.", "({})")).format(text)
    return [(BOS, 0.0), (USER + q + BOT, 0.1), (NOTHINK, 0.0), (answer + EOS, 1.0)]


def held_out(seed=11, n=300):
    """The held-out questions: every kind in turn, wordings that training never uses."""
    rng, out, seen = random.Random(seed), [], set()
    kinds = [k for k in w.HELD for _ in range(max(1, round(HELD_WEIGHT[k] / 6)))]
    talk = [e for e in w.TALK if e[2]]
    while len(out) < n:
        if len(out) % 12 == 11:
            kind, _, held, _, accept = rng.choice(talk)
            q = rng.choice(held)
        else:
            kind = rng.choice(kinds)
            slots, _, _, accept = rng.choice(FACTS[kind])
            q = fill(rng, rng.choice(w.HELD[kind]), slots, kind)
        if normal(q) in seen:
            continue
        seen.add(normal(q))
        q = up(q) + "?" if rng.random() < 0.7 else q + rng.choice(("?", ""))
        out.append({"question": q, "accept": accept, "kind": kind})
    return out


def main():
    with open(sys.argv[1], "w") as out:
        for e in held_out():
            out.write(json.dumps(e, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
