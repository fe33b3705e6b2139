#!/usr/bin/env python3
"""Writes a GGUF file of the mean of two checkpoints or files of models that began with the same weights
(stochastic weight averaging, arXiv:1803.05407): average.py FIRST SECOND OUT.gguf [SHARE OF THE SECOND]"""
import sys

import torch

import bpe
import export
import readback
from model import Model


def load(path):
    """The weights and the merges of a checkpoint or of a GGUF file of these scripts."""
    if not path.endswith(".gguf"):
        state = torch.load(path, map_location="cpu")
        return state, state["merges"]
    file, model = readback.Reader(path), Model()
    file.restore(model, bpe.Tokenizer(file.merges()))
    return model.state(), file.merges()


def main():
    (first, merges), (second, others) = map(load, sys.argv[1:3])
    share = float(sys.argv[4]) if len(sys.argv) > 4 else 0.5
    if merges != others:
        raise SystemExit("the two have other vocabularies; average those that began with the same weights")
    model = Model()
    model.restore({name: first[name] * (1 - share) + second[name] * share for name in ("flat", "bias")})
    print(export.export(model, bpe.Tokenizer(merges), sys.argv[3]), "bytes")


if __name__ == "__main__":
    main()
