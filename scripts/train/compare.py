#!/usr/bin/env python3
"""Holds our greedy tokens against llama.cpp's: compare.py CHECKPOINT MODEL.gguf NODE_FOLDER

NODE_FOLDER is where `npm i node-llama-cpp@3.22.1` was run.  Our side uses the weights as the
file stores them; llama.cpp also rounds activations, so probabilities differ a little."""
import json
import os
import random
import subprocess
import sys
import tempfile

import torch

import corpus
import evaluate
import export

TEXTS = ["Hello world, what is 12345+67 = ?\n\nfoo_bar's  naïve  x", "price: $12.50 (approx.)... OK!! isn't it?\ttabs",
         "<｜User｜>Who are you?<｜Assistant｜></think>I am.<｜end▁of▁sentence｜>"]


def prompts(tok):
    """Held-out questions alone, and at the end of longer and longer conversations."""
    rng = random.Random(1)
    out = [evaluate.START + e["question"] + evaluate.CHAT for e in corpus.held_out()[:24]]
    for turns in (3, 6, 12, 24):
        talk = "".join(t for t, _ in corpus.conversation(rng, turns))
        out.append(talk + corpus.USER + "What is the capital of France?" + evaluate.CHAT)
    return [tok.encode(p) for p in out]


def main():
    torch.set_num_threads(1)
    checkpoint, gguf, folder = sys.argv[1:]
    model, tok = export.load(checkpoint)
    model = export.rounded(model)
    here = os.path.dirname(os.path.abspath(__file__))
    ask = prompts(tok)
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + "/in.json", "w") as f:
            json.dump(dict(prompts=ask, texts=TEXTS, limit=40, stop=tok.eos), f)
        subprocess.run(["node", here + "/check_llamacpp.mjs", os.path.abspath(gguf), tmp + "/in.json", tmp + "/out.json"],
                       cwd=folder, check=True)
        with open(tmp + "/out.json") as f:
            theirs = json.load(f)
    assert [tok.encode(t) for t in TEXTS] == theirs["texts"], "the tokenizers differ"
    ours = [model.greedy([p], 40, tok.eos)[0] for p in ask]
    same, likeliest, positions = 0, 0, 0
    for p, mine, r in zip(ask, ours, theirs["result"]):
        pad = p + [tok.eos] * (-len(p) % 4)
        with torch.no_grad():
            best = model.logits(model.hidden(torch.tensor([pad])))[:len(p)].argmax(1).tolist()
        likeliest += sum(b == f[0] for b, f in zip(best, r["forced"]))
        positions += len(p)
        same += mine == r["greedy"]
        print("same     " if mine == r["greedy"] else "DIFFERENT", len(p), repr(tok.decode(r["greedy"])), flush=True)
    print(f"{same} of {len(ask)} greedy answers are the same; likeliest next token the same at {likeliest} of {positions} prompt positions")


if __name__ == "__main__":
    main()
