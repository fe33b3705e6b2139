#!/usr/bin/env python3
"""Trains the built-in model on generated text and writes checkpoints and a GGUF.

    train.py --minutes 90 --out /some/folder            (two worker processes on a CPU)
    train.py --minutes 10 --workers 1 --out FOLDER      (uses a GPU when torch sees one)
    train.py --resume ...                               resumes from FOLDER/last.pt
    train.py --start MODEL.gguf ...                     begins with the weights of a file

The length is given in time, and the learning rate follows the clock.  The workers take
small batches from one queue, so a slower one does not hold up the other."""
import argparse
import collections
import functools
import os
import random
import re
import sys
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import bpe
import corpus
import evaluate
import export
import ops
import readback
import tools
from model import BASE, Model, shapes

STEP_BATCHES, TOKENS = 2, 2048
# Kinds of sequences, their lengths and shares: text without tools, words repeated, calls alone, dialogues with
# tools of which only the end of the text about tools is there, and whole ones.
MIX = [("facts", 64, 0.19), ("facts", 128, 0.05), ("facts", 256, 0.02), ("facts", 512, 0.01), ("repeats", 64, 0.05),
       ("calls", 128, 0.17), ("short", 256, 0.30), ("whole", 512, 0.19), ("whole", 1024, 0.02)]
PEAK, FINAL, DECAY, WARM, B1, B2 = 2.5e-3, 4e-5, 0.03, 60, 0.9, 0.98

CLASSES = {"words": tools.WORDS, "names": tools.NAME, "values": tools.VALUE}        # losses are shown by weight


def count(texts):
    """How often each word is in the texts, between markers."""
    counts, marks = collections.Counter(), re.compile("|".join(map(re.escape, bpe.CONTROL + bpe.MARKERS)))
    for text in texts:
        for part in marks.split(text):
            counts.update(bpe.words(part))
    return counts


def tokenizer(first=None):
    """Trains the BPE on samples of the text (always the same ones), the first merges without
    dialogues with tools. first are merges that are there already: the first ones, or all."""
    rng = random.Random(5)
    if not first:
        first = bpe.train(count(piece for _ in range(12000) for piece, _ in corpus.conversation(rng, 3)), bpe.FIRST)
    if len(first) > bpe.FIRST:
        return first
    with_tools = count(tools.text(tools.dialogue(rng)) for _ in range(6000))
    return first + bpe.train(with_tools, BASE["n_vocab"] - bpe.FIRST_VOCAB, first)


def facts_row(rng, tok, T):
    """At least T + 1 token ids and the loss weight of each as a target."""
    ids, weight = [], []
    while len(ids) <= T:
        for piece, w in corpus.conversation(rng, rng.choice((1, 2, 3)) if T <= 64 else rng.randint(1, 14)):
            new = tok.encode(piece)
            ids += new
            weight += [w] * len(new)
    return ids, weight


def tools_row(rng, tok, T, whole):
    before = tools.BEFORE if whole else tools.BEFORE[-rng.randint(28, 300):]
    d = tools.dialogue(rng, most=None if whole else 2, turns=rng.randint(1, 8) if whole else rng.randint(1, 3))
    ids, weight = tok.weighted(tools.render(d, before))
    if len(ids) <= T:
        more, w = facts_row(rng, tok, T - len(ids))
        ids, weight = ids + more, weight + w
    return ids, weight


def calls_row(rng, tok, T):
    ids, weight = [], []
    while len(ids) <= T:
        more, w = tok.weighted(tools.drill(rng))
        ids, weight = ids + more, weight + w
    return ids, weight


def repeats_row(rng, tok, T):
    ids, weight = [], []
    while len(ids) <= T:
        # A word is other tokens after a space than elsewhere, which only seeing both teaches.
        words = [rng.choice(corpus.words_of_facts()) if rng.random() < 0.75 else tools.spelled(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        more, w = tok.weighted(corpus.repeat(rng, " ".join(words)))
        ids, weight = ids + more, weight + w
    return ids, weight


ROWS = {"facts": facts_row, "repeats": repeats_row, "calls": calls_row, "short": functools.partial(tools_row, whole=False), "whole": functools.partial(tools_row, whole=True)}


def batch(rng, tok):
    kind, T, _ = rng.choices(MIX, [s for _, _, s in MIX])[0]
    rows = [ROWS[kind](rng, tok, T) for _ in range(TOKENS // T)]
    ids, w = torch.tensor([r[0][:T + 1] for r in rows]), torch.tensor([r[1][:T + 1] for r in rows])
    x, y, w = ids[:, :-1], ids[:, 1:].reshape(-1), w[:, 1:].reshape(-1)
    drop = (w == 0.1) & (torch.rand(w.shape) < 0.75)          # a quarter of the question tokens is enough
    return kind, x.contiguous(), y, torch.where(drop, torch.zeros(()), w)


def rate(step, part):
    """Learning rate as a part of its peak: warm-up by steps, flat, then down over the last 45 % of the time."""
    r = 1.0 if part < 0.55 else max(0.0, (1 - part) / 0.45)
    return min(1, (step + 1) / WARM) * (FINAL / PEAK + (1 - FINAL / PEAK) * r)


def groups(model):
    """(start, end, weight decay) of neighbouring parameters treated alike."""
    out = []
    for name, (at, n, shape) in model.where.items():
        decay = DECAY if len(shape) > 1 and "hc_" not in name and "ape" not in name else 0.0
        if out and out[-1][2] == decay:
            out[-1] = (out[-1][0], at + n, decay)
        else:
            out.append((at, at + n, decay))
    return out


def worker(rank, a, merges, shared, barrier, queue):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    tok = bpe.Tokenizer(merges)
    model = Model(device=a.device)
    model.adopt(shared["p"], shared["g"][rank])
    model.bias = shared["bias"]
    model.load = shared["load"][rank]
    seed = int(time.time()) * 10 + rank
    rng = random.Random(seed)
    torch.manual_seed(seed)
    entries = corpus.held_out()
    n, workers = len(model.flat), a.workers
    lo, hi = n * rank // workers, n * (rank + 1) // workers
    begin, step, shown, seen = time.time(), int(shared["step"][0]), time.time(), 0
    losses = collections.defaultdict(lambda: collections.deque(maxlen=30))
    spent0 = float(shared["spent"][0])
    last_save = time.time()
    while True:
        part = (spent0 + time.time() - begin) / (a.minutes * 60)
        if rank == 0:
            shared["part"][0] = part
            queue.value = 0
        shared["g"][rank].zero_()
        shared["load"][rank].zero_()
        barrier.wait()
        part = float(shared["part"][0])
        if part >= 1:
            break
        while True:
            with queue.get_lock():
                if queue.value >= STEP_BATCHES:
                    break
                queue.value += 1
            kind, *parts = batch(rng, tok)
            x, y, w = (t.to(a.device) for t in parts)
            aux = x.shape[1] >= 256
            h = model.hidden(x, aux)
            keep = w.nonzero()[:, 0]
            loss = F.cross_entropy(model.logits(h[keep]), y[keep], reduction="none")
            total = (loss * w[keep]).sum() / w[keep].sum()
            if aux:
                total = total + 0.1 * sum(model.aux)
            total.backward()
            for what, weight in CLASSES.items():
                sure = w[keep] == weight
                if sure.any():
                    losses[kind + " " + what].append(float(loss.detach()[sure].mean()))
            seen += x.numel()
        barrier.wait()
        lr = a.peak * rate(step, part)
        step += 1
        g = shared["g"]
        for s, e, decay in groups(model):
            s, e = max(s, lo), min(e, hi)
            if s < e:
                ops.adamw(model.flat[s:e], g[0][s:e], g[-1][s:e], shared["m"][s:e], shared["v"][s:e],
                          (1.0 if workers > 1 else 0.5) / STEP_BATCHES, lr, B1, B2, 1e-9, decay, step)
        if rank == 0:
            model.balance(shared["load"].sum(0), 0.004 * (1 - part) + 0.0002)
            if step % 20 == 0:
                means = " ".join(f"{kind} {sum(v) / max(1, len(v)):.4f}" for kind, v in sorted(losses.items()))
                spread = [f"{float(l.max() / l.mean()):.1f}" for l in shared["load"].sum(0)[model.c["n_hash"]:]]
                print(f"{part:6.1%} step {step} lr {lr:.1e} loss {means} "
                      f"{seen / (time.time() - shown):.0f} tok/s here, load max/mean {spread}", flush=True)
                shown, seen = time.time(), 0
            if time.time() - last_save > a.save * 60:
                last_save = time.time()
                save(a, model, tok, shared, step, spent0 + time.time() - begin, entries[:60])
        barrier.wait()
    if rank == 0:
        save(a, model, tok, shared, step, a.minutes * 60, entries)


def save(a, model, tok, shared, step, spent, entries):
    state = dict(model.state(), merges=tok.merges)
    torch.save(state, a.out + "/model.pt.new")
    os.replace(a.out + "/model.pt.new", a.out + "/model.pt")
    torch.save(dict(state, m=shared["m"], v=shared["v"], step=step, spent=spent), a.out + "/last.pt.new")
    os.replace(a.out + "/last.pt.new", a.out + "/last.pt")
    size = export.export(model, tok, a.out + "/model.gguf")
    share, wrong = evaluate.score(model, tok, entries)
    print(f"--- step {step}, {spent / 60:.1f} min: {share:.1%} of {len(entries)} held-out right, file {size}", flush=True)
    for e, answer in wrong[:8]:
        print(f"    {e['question']!r} -> {answer!r}, wanted {e['accept']}", flush=True)


def wide_vectors():
    """Whether the CPU has AVX-512, as far as Linux says."""
    try:
        with open("/proc/cpuinfo") as f:
            return {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(f.read().split())
    except OSError:
        return False


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True, help="folder for model.pt, last.pt and model.gguf")
    ap.add_argument("--minutes", type=float, default=90)
    ap.add_argument("--save", type=float, default=5, help="minutes between checkpoints")
    ap.add_argument("--workers", type=int, default=2, choices=(1, 2))
    ap.add_argument("--peak", type=float, default=PEAK, help="the highest learning rate")
    ap.add_argument("--resume", action="store_true")
    ap.add_argument("--start", help="a GGUF file of these scripts whose weights to begin with")
    a = ap.parse_args()
    a.device = "cuda" if torch.cuda.is_available() else "cpu"
    if a.device == "cuda":
        a.workers = 1
    os.makedirs(a.out, exist_ok=True)
    if "MALLOC_MMAP_MAX_" not in os.environ:      # keep freed memory, one thread per worker
        if wide_vectors():      # OpenBLAS does not know every CPU that has them
            os.environ.setdefault("OPENBLAS_CORETYPE", "SKYLAKEX")
        os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MALLOC_MMAP_MAX_="0",
                          MALLOC_TRIM_THRESHOLD_=str(1 << 34), MALLOC_TOP_PAD_=str(1 << 26))
        os.execv(sys.executable, [sys.executable, *sys.argv])
    old = torch.load(a.out + "/last.pt", map_location=a.device) if a.resume else None
    start = readback.Reader(a.start) if a.start and not old else None
    merges = old["merges"] if old else tokenizer(start and start.merges())
    model = Model(device=a.device)
    if start:
        start.restore(model, bpe.Tokenizer(merges))
    zeros = torch.zeros_like
    shared = {"p": model.flat, "m": zeros(model.flat), "v": zeros(model.flat), "bias": model.bias,
              "g": torch.zeros(a.workers, len(model.flat), device=a.device),
              "load": torch.zeros(a.workers, *model.bias.shape, device=a.device),
              "step": torch.zeros(1), "part": torch.zeros(1), "spent": torch.zeros(1)}
    if old:
        model.restore(old)
        shared["m"].copy_(old["m"])
        shared["v"].copy_(old["v"])
        shared["step"][0], shared["spent"][0] = old["step"], old["spent"]
    print(f"{len(model.flat)} parameters, {len(shapes(model.c))} tensors, {len(merges)} merges", flush=True)
    for t in shared.values():
        t.share_memory_()
    ctx = mp.get_context("spawn")
    queue, barrier = ctx.Value("i", 0), ctx.Barrier(a.workers)
    args = (a, merges, shared, barrier, queue)
    others = [ctx.Process(target=worker, args=(r, *args)) for r in range(1, a.workers)]
    for p in others:
        p.start()
    worker(0, *args)
    for p in others:
        p.join()


if __name__ == "__main__":
    main()
