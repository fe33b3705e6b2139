#!/usr/bin/env python3
"""Invariants of the generated text: python3 test_corpus.py [number of conversations]"""
import json
import os
import random
import re
import sys
import unittest

import bpe
import corpus
import frames
import toolkinds
import tools
import wordings

COUNT = 20000


def questions(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        text = "".join(piece for piece, _ in corpus.conversation(rng, rng.randint(1, 3)))
        yield from re.findall(f"{corpus.USER}(.*?){corpus.BOT}", text, re.S)


class Corpus(unittest.TestCase):
    def test_no_held_out_wording_in_training(self):
        """Neither a held-out question nor any of its wordings with other words in the slots."""
        held = {corpus.normal(e["question"]) for e in corpus.held_out()}
        shape = []
        for kind, templates in wordings.HELD.items():
            for t in templates:
                shape.append(re.compile(".+".join(re.escape(corpus.normal(p)) for p in re.split(r"\{\w+\}", t)).join(("", "$"))))
        seen = 0
        for q in questions(COUNT, 3):
            n = corpus.normal(q)
            seen += 1
            self.assertNotIn(n, held)
            for p in shape:
                self.assertIsNone(p.search(n), q)
        self.assertGreater(seen, COUNT)

    def test_templates_differ(self):
        rng = random.Random(1)
        for kind, held in wordings.HELD.items():
            train = {corpus.normal(corpus.expand(rng, t)) for t in wordings.TRAIN[kind] for _ in range(50)}
            self.assertFalse(train & {corpus.normal(t) for t in held}, kind)

    def test_answers_are_accepted(self):
        for kind, entries in corpus.FACTS.items():
            self.assertIn(kind, wordings.HELD)
            for slots, _, answer, accept in entries:
                self.assertTrue(any(a.lower() in answer.lower() for a in accept), (kind, answer, accept))
                self.assertTrue(all(t.format(**slots) for t in wordings.HELD[kind]))

    def test_one_answer_per_question(self):
        for kind, entries in corpus.FACTS.items():
            slots = [tuple(e[0].values()) for e in entries]
            self.assertEqual(len(slots), len(set(slots)), kind)

    def test_tokenizer_round_trip(self):
        try:
            import train
        except ImportError as e:  # torch is needed to train, not to read the text
            self.skipTest(f"NOT CHECKED: {e}")
        tok = bpe.Tokenizer(train.tokenizer())
        for q in questions(500, 9):
            self.assertEqual(tok.decode(tok.encode(q)), q)
        text = tools.text(tools.dialogue(random.Random(4)))
        self.assertEqual(tok.decode(tok.encode(text)), text)
        self.assertEqual(bpe.words("I have 12345 apples,  ok?\n"), ["I", " have", " ", "123", "45", " apples", ",", " ", " ok", "?\n"])


def dialogues(n, seed):
    rng = random.Random(seed)
    return [tools.dialogue(rng) for _ in range(n)]


class Tools(unittest.TestCase):
    def test_no_held_out_question_in_training(self):
        """Neither wordings nor values of the held-out questions are in the dialogues."""
        held = {corpus.normal(e["question"]) for e in tools.held_out()}
        shapes = [re.compile(".+".join(re.escape(corpus.normal(p)) for p in re.split(r"\{\w+\}", t))) for e in toolkinds.KINDS.values() for t in e["held"]]
        towns = re.compile(r"\b(" + "|".join(toolkinds.HELD_TOWNS) + r")\b")
        asked = 0
        for d in dialogues(COUNT // 10, 5):
            for m, answer in zip(d["messages"], d["messages"][1:]):
                if m["role"] != "user":
                    continue
                n = corpus.normal(m["content"])
                self.assertNotIn(n, held)
                for p in shapes:
                    self.assertIsNone(p.search(n), m["content"])
                for c in answer.get("tool_calls", []):
                    asked += 1
                    v = json.loads(c["function"]["arguments"])
                    for name, value in v.items():
                        if "capital of" not in str(value):       # topics are facts, which are all taught
                            self.assertFalse(value in toolkinds.HELD_TOWNS or value in toolkinds.HELD_WORDS, (name, value))
                    numbers = [x for x in v.values() if isinstance(x, int)]
                    if len(numbers) == 2:
                        self.assertFalse(tools.held_pair(*numbers), v)
        self.assertGreater(asked, COUNT // 20)
        self.assertTrue(towns.search(" ".join(e["question"] for e in tools.held_out())))

    def test_calls_fit_the_tools(self):
        """Every call names a tool on offer and gives its required parameters, and only its own, in their types."""
        kinds = {"string": str, "integer": int, "number": int}
        for d in dialogues(1000, 6) + [dict(messages=[{"role": "assistant", "tool_calls": [
                {"function": dict(c, arguments=json.dumps(c["arguments"]))} for c in e["calls"]]}], tools=[t["function"] for t in e["tools"]])
                for e in tools.held_out()]:
            offered = {t["name"]: t["parameters"] for t in d["tools"]}
            self.assertEqual(len(offered), len(d["tools"]))
            for m in d["messages"]:
                for c in m.get("tool_calls", []):
                    schema = offered[c["function"]["name"]]
                    v = json.loads(c["function"]["arguments"])
                    self.assertEqual(set(v), set(schema["properties"]))
                    for name, value in v.items():
                        self.assertIsInstance(value, kinds[schema["properties"][name]["type"]])
                        self.assertIn(value, schema["properties"][name].get("enum", [value]))

    def test_held_out_file(self):
        """The file of the held-out questions is what the generator writes."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../model/builtin/tools.jsonl")) as f:
            self.assertEqual([json.loads(line) for line in f], tools.held_out())

    def test_frames_keep_the_slots(self):
        """A wording that is put together has each slot once, and nothing of the notation."""
        slots = {"weather": ["city"], "time": ["city"], "date": [], "calculate": ["sum"], "arithmetic": ["sum"], "timer": ["minutes"],
                 "translate": ["language", "text"], "random": ["high", "low"]}
        self.assertEqual(set(slots), set(frames.THINGS))
        rng = random.Random(2)
        for kind, want in slots.items():
            wordings_ = [frames.wording(rng, kind) for _ in range(3000)]
            for q in wordings_:
                self.assertEqual(sorted(re.findall(r"\{(\w+)\}", q)), want, q)
                self.assertFalse(set("*|()") & set(q), q)
            self.assertGreater(len(set(wordings_)), 1200, kind)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        COUNT = int(sys.argv.pop(1))
    unittest.main()
