#!/usr/bin/env python3
"""Invariants of the generated text: python3 test_corpus.py [number of conversations]"""
import random
import re
import sys
import unittest

import bpe
import corpus
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
        tok = bpe.Tokenizer(train.tokenizer(), train.VOCAB)
        for q in questions(500, 9):
            self.assertEqual(tok.decode(tok.encode(q)), q)
        self.assertEqual(bpe.words("I have 12345 apples,  ok?\n"), ["I", " have", " ", "123", "45", " apples", ",", " ", " ok", "?\n"])


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        COUNT = int(sys.argv.pop(1))
    unittest.main()
