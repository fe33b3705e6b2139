#!/usr/bin/env python3
"""Share of right greedy answers: evaluate.py CHECKPOINT [QUESTIONS.jsonl] [--stored]

--stored rounds the weights as the GGUF file does.  Without questions: those of corpus.py."""
import collections
import json
import sys

import torch

import corpus
import export

START = corpus.BOS + corpus.USER
CHAT, REASON = corpus.BOT + corpus.NOTHINK, corpus.BOT + corpus.THINK


def answers(model, tok, questions, limit=40, after=CHAT):
    """Greedy answers; questions of similar length run together."""
    prompts = [tok.encode(START + q + after) for q in questions]
    out = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for at in range(0, len(order), 50):
        part = order[at:at + 50]
        for i, ids in zip(part, model.greedy([prompts[i] for i in part], limit, tok.eos)):
            out[i] = tok.decode([t for t in ids if t != tok.eos])
    return out


def right(answer, accept):
    return any(a.lower() in answer.lower() for a in accept)


def score(model, tok, entries, after=CHAT, limit=40):
    """(share right, [(entry, answer) of the wrong ones])"""
    got = answers(model, tok, [e["question"] for e in entries], limit, after)
    wrong = [(e, a) for e, a in zip(entries, got) if not right(a, e["accept"])]
    return 1 - len(wrong) / len(entries), wrong


def main():
    args = [a for a in sys.argv[1:] if a != "--stored"]
    torch.set_num_threads(1)
    model, tok = export.load(args[0])
    if "--stored" in sys.argv:
        model = export.rounded(model)
    entries = corpus.held_out()
    if len(args) > 1:
        with open(args[1]) as f:
            entries = [json.loads(line) for line in f]
    share, wrong = score(model, tok, entries)
    total = collections.Counter(e["kind"] for e in entries)
    bad = collections.Counter(e["kind"] for e, _ in wrong)
    for e, a in wrong:
        print(f"  {e['kind']}: {e['question']!r} -> {a!r}, wanted {e['accept']}")
    print("wrong by kind:", {k: f"{n}/{total[k]}" for k, n in bad.most_common()})
    print(f"right: {share:.1%} of {len(entries)} held-out questions")
    france = answers(model, tok, ["What is the capital of France?", "Who are you?"])
    print(france)
    share, _ = score(model, tok, entries[:100], REASON, 80)
    print(f"in thinking mode: {share:.1%} of 100")


if __name__ == "__main__":
    main()
