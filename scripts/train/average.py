#!/usr/bin/env python3
"""Writes a GGUF file of the mean of two checkpoints of one run (stochastic weight averaging,
arXiv:1803.05407): average.py FIRST/model.pt SECOND/model.pt OUT.gguf [SHARE OF THE SECOND]"""
import sys

import torch

import bpe
import export
from model import Model


def main():
    first, second = (torch.load(path, map_location="cpu") for path in sys.argv[1:3])
    share = float(sys.argv[4]) if len(sys.argv) > 4 else 0.5
    if first["merges"] != second["merges"]:
        raise SystemExit("the two have other vocabularies; average checkpoints of one run")
    model = Model()
    model.restore({name: first[name] * (1 - share) + second[name] * share for name in ("flat", "bias")})
    print(export.export(model, bpe.Tokenizer(first["merges"]), sys.argv[3]), "bytes")


if __name__ == "__main__":
    main()
