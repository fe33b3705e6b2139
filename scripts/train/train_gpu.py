#!/usr/bin/env python3
"""Trains the built-in model further on one GPU: first all its weights, then a block for multi-token prediction.

    train_gpu.py --start model/builtin/builtin.gguf --out FOLDER --trunk 380 --block 110

--trunk and --block are seconds since the start and from then on; the learning rate follows the clock. Other
processes generate the text. FOLDER/model.gguf is written each minute and at the end, with the block in it as
soon as there is one. It also runs without a GPU, slowly (--tokens 512), to try it out."""
import argparse
import collections
import json
import multiprocessing
import os
import random
import time

BEGAN = time.time()

import numpy as np
import torch
import torch.nn.functional as F

import bpe
import corpus
import declines
import evaluate
import export
import gpu
import mtp
import ops
import readback
import train
from model import Model

# Kinds of sequences, their lengths and shares, for the block.
BLOCK_MIX = [("facts", 64, 0.55), ("facts", 128, 0.10), ("short", 256, 0.20), ("whole", 512, 0.15)]
STEP_BATCHES, WARM = 2, 60


def generate(seed, merges, tokens, phase, queue):
    """Puts batches of the phase into the queue: (phase, kind, ids [B,T+1], weights [B,T+1])."""
    torch.set_num_threads(1)
    rng, tok = random.Random(seed), bpe.Tokenizer(merges)
    while True:
        now = phase.value
        mix = BLOCK_MIX if now else train.MIX
        kind, T, _ = rng.choices(mix, [s for *_, s in mix])[0]
        T = min(T, tokens)
        rows = [train.ROWS[kind](rng, tok, T) for _ in range(tokens // T)]
        queue.put((now, kind, np.array([r[0][:T + 1] for r in rows], np.int16), np.array([r[1][:T + 1] for r in rows], np.float16)))


class Text:
    """Batches from processes that generate them."""

    def __init__(self, merges, tokens, workers):
        context = multiprocessing.get_context("fork")       # before the GPU is touched
        self.phase, self.queue = context.Value("i", 0), context.Queue(4 * workers)
        for i in range(workers):
            context.Process(target=generate, args=(int(BEGAN) * 100 + i, merges, tokens, self.phase, self.queue), daemon=True).start()

    def next(self, device):
        while True:
            phase, kind, ids, weight = self.queue.get(timeout=120)
            if phase == self.phase.value:
                ids, weight = torch.from_numpy(ids), torch.from_numpy(weight)
                if device == "cuda":
                    ids, weight = ids.pin_memory(), weight.pin_memory()
                return kind, ids.to(device, non_blocking=True).long(), weight.to(device, non_blocking=True).float()


class Adam:
    """AdamW on a model's flat parameters, with the decay of each group of them."""

    def __init__(self, model):
        self.model, self.step = model, 0
        model.adopt(model.flat, torch.zeros_like(model.flat))
        self.m, self.v = torch.zeros_like(model.flat), torch.zeros_like(model.flat)
        self.groups = train.groups(model)

    def apply(self, rate, batches):
        self.step += 1
        for s, e, decay in self.groups:
            g = self.model.grad[s:e]
            ops.adamw(self.model.flat[s:e], g, g, self.m[s:e], self.v[s:e], 0.5 / batches, rate, train.B1, train.B2, 1e-9, decay, self.step)
        self.model.grad.zero_()

    def keep(self):
        self.kept = [t.clone() for t in (self.model.flat, self.m, self.v, self.model.bias)]

    def back(self):
        for t, k in zip((self.model.flat, self.m, self.v, self.model.bias), self.kept):
            t.copy_(k)
        self.model.grad.zero_()


def rate(step, part, peak):
    """Warm-up by steps, flat, then down over the last 60 % of the time."""
    r = 1.0 if part < 0.4 else max(0.0, (1 - part) / 0.6)
    return min(1, (step + 1) / WARM) * (0.02 + 0.98 * r) * peak


def trunk_loss(model, text, device):
    kind, ids, weight = text.next(device)
    x, y, w = ids[:, :-1], ids[:, 1:].reshape(-1), weight[:, 1:].reshape(-1)
    asked = (w - 0.1).abs() < 1e-3
    w = torch.where(asked & (torch.rand(w.shape, device=device) < 0.75), torch.zeros_like(w), w)      # a quarter of the question tokens is enough
    aux = x.shape[1] >= 256
    h = model.hidden(x.contiguous(), aux)
    each = F.cross_entropy(model.logits(h), y, reduction="none")
    loss = (each.detach() * (w > 0.2)).sum() / (w > 0.2).sum().clamp(min=1)
    total = (each * w).sum() / w.sum().clamp(min=1e-3)
    return total + 0.1 * sum(model.aux) if aux else total, kind, loss


def run(name, model, batch_loss, end, peak, save, speed=0.004):
    """Trains until the time end; calls save each minute."""
    adam, begin = Adam(model), time.time()
    losses, shown, last_save, since = collections.defaultdict(list), time.time(), time.time(), 0
    adam.keep()
    while (now := time.time()) < end:
        part = (now - begin) / (end - begin)
        model.load.zero_()
        for _ in range(STEP_BATCHES):
            total, kind, loss = batch_loss()
            total.backward()
            losses[kind].append(loss)
        adam.apply(rate(adam.step, part, peak), STEP_BATCHES)
        model.balance(model.load, speed * (1 - part) + 0.0002)
        since += 1
        if adam.step in (1, 5, 20) or adam.step % 100 == 0:
            means = {k: float(torch.stack(v).mean()) for k, v in sorted(losses.items())}
            spread = [f"{float(x.max() / x.mean().clamp(min=1)):.1f}" for x in model.load]
            print(f"{time.time() - BEGAN:5.0f} s {name} {part:5.1%} step {adam.step} {1000 * (time.time() - shown) / since:.0f} ms/step "
                  + " ".join(f"{k} {v:.4f}" for k, v in means.items()) + f" load {spread}", flush=True)
            if not all(np.isfinite(v) for v in means.values()) or not torch.isfinite(model.flat).all():
                print(f"{name}: not finite; back by some steps, with plain operations", flush=True)
                adam.back()
                gpu.use(gpu.PLAIN)
            else:
                adam.keep()
            losses.clear()
            shown, since = time.time(), 0
        if time.time() - last_save > 60:
            if torch.isfinite(model.flat).all():
                save()
            last_save = time.time()
            shown, since = last_save, 0
    if not torch.isfinite(model.flat).all():
        adam.back()
    save()
    print(f"{time.time() - BEGAN:5.0f} s {name}: {adam.step} steps", flush=True)


def plain(model):
    """The model with the weights as the file stores them, on its device, without gradients."""
    stored = export.rounded(model)
    out = Model(model.c, device=model.device)
    out.restore(stored.state())
    return out


def questions(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--start", required=True, help="a GGUF file of these scripts whose weights to begin with")
    ap.add_argument("--out", required=True)
    ap.add_argument("--trunk", type=float, default=380, help="when the model is ready, in seconds since the start; 0: it stays as it is")
    ap.add_argument("--block", type=float, default=110, help="seconds for the block")
    ap.add_argument("--block-start", help="a GGUF file whose block to begin with")
    ap.add_argument("--tokens", type=int, default=16384, help="of a batch")
    ap.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 3))
    ap.add_argument("--peak", type=float, default=1.5e-3)
    ap.add_argument("--block-peak", type=float, default=3e-3)
    ap.add_argument("--questions", type=int, default=400, help="most held-out questions of each kind to ask")
    ap.add_argument("--plain", action="store_true", help="plain torch operations only")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    start = readback.Reader(a.start)
    merges = start.merges()
    tok = bpe.Tokenizer(merges)
    text = Text(merges, a.tokens, a.workers)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        gpu.use(gpu.PLAIN)
    else:
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
    model = Model(device=device)
    start.restore(model, tok)
    if device == "cuda" and not a.plain:
        gpu.prepare(a.tokens)
        gpu.use(gpu.FAST)
    print(f"{time.time() - BEGAN:5.0f} s ready on {device}, {a.workers} workers", flush=True)

    def write(block=None):
        size = export.export(model, tok, a.out + "/model.gguf.new", block)
        os.replace(a.out + "/model.gguf.new", a.out + "/model.gguf")
        return size

    if a.trunk > 0:
        run("model", model, lambda: trunk_loss(model, text, device), BEGAN + a.trunk, a.peak, write)
    text.phase.value = 1
    trunk = plain(model)
    block = mtp.Block(trunk)
    if a.block_start:
        readback.Reader(a.block_start).restore(block, tok, mtp.names(trunk))
    else:
        block.begin_as(trunk)

    def block_loss():
        kind, ids, weight = text.next(device)
        total, agree = mtp.loss(block, trunk, ids[:, :-1].contiguous(), weight[:, :-1])
        return total, kind, agree

    run("block (agreement)", block, block_loss, time.time() + a.block, a.block_peak, lambda: write(block))
    print(f"{time.time() - BEGAN:5.0f} s file {write(block)} bytes", flush=True)

    if device == "cuda":
        gpu.use(gpu.PLAIN)
        torch.backends.cuda.matmul.allow_tf32 = False
    old, new = corpus.held_out()[:a.questions], declines.held_out()[:a.questions]
    for name, entries in (("declines", new), ("questions", old)):
        prompts = [tok.encode(evaluate.START + e["question"] + evaluate.CHAT) for e in entries]
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        got = [None] * len(prompts)
        for at in range(0, len(order), 150):
            part = order[at:at + 150]
            for i, ids in zip(part, trunk.greedy([prompts[i] for i in part], 40, tok.eos)):
                got[i] = ids
        said = [tok.decode([t for t in ids if t != tok.eos]) for ids in got]
        wrong = [(e, s) for e, s in zip(entries, said) if not evaluate.right(s, e["accept"])]
        print(f"{time.time() - BEGAN:5.0f} s {name}: {len(entries) - len(wrong)} of {len(entries)} right", flush=True)
        for e, s in wrong:
            print(f"    {e['kind']}: {e['question']!r} -> {s!r}", flush=True)
        first, steps = mtp.acceptance(block, trunk, prompts, got)
        print(f"    first guesses right {first:.1%}, steps {steps:.2f} of plain", flush=True)
    asked = ["100 * 100", "What is 100 * 100?", "What is 12 + 12?", "What is 21 + 3?", "Who was Albert Einstein?", "Write a poem about rain.",
             "What is the capital of France?", "What is the capital of Narnia?", "Who are you?", "Hello", "What is 7 times 8?", "Is 8 even?"]
    for q, s in zip(asked, evaluate.answers(trunk, tok, asked)):
        print(f"    {q!r} -> {s!r}", flush=True)
    print(f"{time.time() - BEGAN:5.0f} s done", flush=True)


if __name__ == "__main__":
    main()
