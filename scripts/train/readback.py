"""Reads the weights of a GGUF file of export.py back into the model, to train them further.

The file's vocabulary may be a first part of the tokenizer's: a new token begins with the mean
of the tokens that it is merged from."""
import struct

import numpy as np
import torch

from export import ARRAY, F16, F32, I32, PACK, Q8_0, STRING

ITEM = {F32: 4, F16: 2, I32: 4}


class Reader:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.at, self.keys, self.tensors = 0, {}, {}
        assert self.data[:4] == b"GGUF", path
        self.at = 4
        _, tensors, keys = self.unpack("<IQQ")
        for _ in range(keys):
            name = self.text()
            kind, = self.unpack("<I")
            self.keys[name] = self.value(kind)
        heads = []
        for _ in range(tensors):
            name, (n,) = self.text(), self.unpack("<I")
            shape = self.unpack(f"<{n}Q")[::-1]
            heads.append((name, shape, *self.unpack("<IQ")))
        start = -(-self.at // 32) * 32
        for name, shape, kind, offset in heads:
            self.tensors[name] = self.decode(start + offset, shape, kind)

    def unpack(self, form):
        out = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return out

    def text(self):
        n, = self.unpack("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            of, n = self.unpack("<IQ")
            return [self.value(of) for _ in range(n)]
        return self.unpack(PACK[kind])[0]

    def decode(self, at, shape, kind):
        n = int(np.prod(shape))
        if kind == Q8_0:
            raw = np.frombuffer(self.data, np.uint8, n // 32 * 34, at).reshape(-1, 34)
            out = raw[:, :2].copy().view(np.float16).astype(np.float32) * raw[:, 2:].view(np.int8)
        else:
            out = np.frombuffer(self.data, {F32: "<f4", F16: "<f2", I32: "<i4"}[kind], n, at)
        return torch.from_numpy(out.reshape(shape).astype(np.int64 if kind == I32 else np.float32))

    def merges(self):
        return [tuple(m.split(" ")) for m in self.keys["tokenizer.ggml.merges"]]

    def restore(self, model, tok, named=lambda name: name):
        """Puts the weights, by the names that named gives, into the model, whose vocabulary is tok's."""
        names = self.keys["tokenizer.ggml.tokens"]
        assert names == tok.tokens[:len(names)], "another vocabulary"
        for name, (at, n, shape) in model.where.items():
            if "w13" in name:
                w = torch.cat([self.tensors[named(name.replace("w13", part))] for part in ("gate", "up")], 1)
            else:
                w = self.tensors[named(name)]
            if name in ("token_embd.weight", "output.weight") and len(w) < shape[0]:
                rows = list(w)
                for pair in tok.merges[len(w) - shape[0]:]:
                    rows.append(torch.stack([rows[tok.id[part]] for part in pair]).mean(0))
                w = torch.stack(rows)
            assert tuple(w.shape) == tuple(shape), name
            model.flat[at:at + n] = w.reshape(-1)
        for i in range(model.c["n_layer"]):
            if i < model.c["n_hash"]:
                table = self.tensors[f"blk.{i}.ffn_gate_tid2eid.weight"]
                assert torch.equal(table, model.table[i][:len(table)].cpu()), "another hash table"
            else:
                model.bias[i] = self.tensors[named(f"blk.{i}.exp_probs_b.bias")]
