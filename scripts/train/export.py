#!/usr/bin/env python3
"""Writes a checkpoint of train.py as a GGUF file: export.py CHECKPOINT OUT.gguf"""
import struct
import sys

import numpy as np
import torch

import bpe
import mtp
from model import Model

F32, F16, Q8_0, I32 = 0, 1, 8, 26
U32, INT32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
PACK = {U32: "<I", INT32: "<i", FLOAT: "<f", BOOL: "<?"}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}"
    "{% elif m['role'] == 'assistant' %}{{ '<｜Assistant｜></think>' + m['content'] + '<｜end▁of▁sentence｜>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}"
    "{% if enable_thinking is defined and enable_thinking %}{{ '<think>' }}{% else %}{{ '</think>' }}{% endif %}{% endif %}")


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def one(kind, v):
    return text(v) if kind == STRING else struct.pack(PACK[kind], v)


class Writer:
    def __init__(self):
        self.keys, self.tensors = [], []

    def key(self, name, kind, v):
        if isinstance(v, list):
            body = struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(one(kind, x) for x in v)
        else:
            body = struct.pack("<I", kind) + one(kind, v)
        self.keys.append(text(name) + body)

    def tensor(self, name, a, kind):
        data = a.astype("<i4").tobytes() if kind == I32 else ENCODE[kind](np.ascontiguousarray(a, np.float32))
        self.tensors.append((name, a.shape[::-1], kind, data))

    def save(self, path):
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys)) + b"".join(self.keys)
        body, at = [], 0
        for name, shape, kind, data in self.tensors:
            head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at)
            data += bytes(-len(data) % 32)
            body.append(data)
            at += len(data)
        with open(path, "wb") as f:
            f.write(head + bytes(-len(head) % 32))
            f.writelines(body)
            return f.tell()


def q8_0(a):
    """Blocks of 32: a half-float scale, then 32 rounded bytes."""
    x = a.reshape(-1, 32)
    d = (np.abs(x).max(1) / 127).astype(np.float16)
    inv = np.divide(1, d.astype(np.float32), out=np.zeros(len(x), np.float32), where=d > 0)
    q = np.clip(np.rint(x * inv[:, None]), -127, 127).astype(np.int8)
    return np.concatenate((d.view(np.uint8).reshape(-1, 2), q.view(np.uint8)), 1).tobytes()


ENCODE = {F32: lambda a: a.astype("<f4").tobytes(), F16: lambda a: a.astype("<f2").tobytes(), Q8_0: q8_0}
HALF = ("token_embd", "ffn_gate_inp", "compressor_kv", "compressor_gate", "compressor_ape", "indexer", "hc_attn_fn",
        "hc_ffn_fn")


def kind_of(name, shape):
    if len(shape) == 1 or "output_hc" in name or "hc_head" in name:
        return F32
    return F16 if any(h in name for h in HALF) else Q8_0


def rounded(model):
    """The model with every weight as the file stores it."""
    m = Model(model.c)
    m.restore(model.state())                # on the CPU
    for name, (at, n, shape) in m.where.items():
        a, kind = m.flat[at:at + n].numpy().reshape(shape), kind_of(name, shape)
        if kind == F16:
            b = a.astype(np.float16)
        elif kind == Q8_0:
            raw = np.frombuffer(q8_0(a), np.uint8).reshape(-1, 34)
            b = raw[:, :2].copy().view(np.float16).astype(np.float32) * raw[:, 2:].view(np.int8)
        else:
            continue
        m.flat[at:at + n] = torch.from_numpy(b.astype(np.float32).reshape(-1))
    return m


def metadata(w, c, tok, blocks):
    """The keys of a file with so many blocks for multi-token prediction behind its layers, which block_count counts too."""
    L, p = c["n_layer"] + blocks, "deepseek4."
    for k, v in (("architecture", "deepseek4"), ("name", "ringmaster-builtin"), ("license", "mit"), ("size_label", "256x0.1M"),
                 ("description", "The small built-in model of Ringmaster, trained on generated text")):
        w.key("general." + k, STRING, v)
    w.key("general.alignment", U32, 32)
    w.key("general.file_type", U32, 7)
    a = "attention."
    for k, v in (("vocab_size", c["n_vocab"]), ("context_length", c["ctx"]), ("embedding_length", c["n_embd"]),
                 ("block_count", L), (a + "head_count", c["n_head"]), (a + "head_count_kv", 1),
                 (a + "key_length", c["head_dim"]), (a + "value_length", c["head_dim"]),
                 ("rope.dimension_count", c["n_rot"]), (a + "q_lora_rank", c["q_lora"]),
                 (a + "output_lora_rank", c["o_lora"]), (a + "output_group_count", c["o_groups"]),
                 ("expert_count", c["n_expert"]), ("expert_used_count", c["n_used"]), ("expert_shared_count", 1),
                 ("expert_feed_forward_length", c["n_ff"]), ("hash_layer_count", c["n_hash"]),
                 ("expert_gating_func", 4), ("expert_group_count", 0), ("expert_group_used_count", 0),
                 (a + "sliding_window", c["window"]), (a + "indexer.head_count", c["idx_head"]),
                 (a + "indexer.key_length", c["idx_dim"]), (a + "indexer.top_k", c["idx_topk"]),
                 ("hyper_connection.count", 4), ("hyper_connection.sinkhorn_iterations", 20),
                 ("nextn_predict_layers", blocks), ("rope.scaling.original_context_length", c["yarn_orig"])):
        w.key(p + k, U32, v)
    for k, v in (("expert_weights_scale", c["scale"]), ("rope.freq_base", c["base"]),
                 (a + "compress_rope_freq_base", c["cbase"]), ("rope.scaling.factor", c["yarn_factor"]),
                 ("rope.scaling.yarn_beta_fast", c["beta_fast"]), ("rope.scaling.yarn_beta_slow", c["beta_slow"]),
                 (a + "layer_norm_rms_epsilon", 1e-6), ("hyper_connection.epsilon", 1e-6),
                 ("swiglu_clamp_exp", [c["clamp"]] * L), ("swiglu_clamp_shexp", [c["clamp"]] * L)):
        w.key(p + k, FLOAT, v)
    w.key(p + "expert_weights_norm", BOOL, True)
    w.key(p + "rope.scaling.type", STRING, "yarn")
    w.key(p + a + "compress_ratios", U32, c["ratios"] + [0] * blocks)
    t = "tokenizer.ggml."
    w.key(t + "model", STRING, "gpt2")
    w.key(t + "pre", STRING, "joyai-llm")
    w.key(t + "tokens", STRING, tok.tokens)
    w.key(t + "token_type", INT32, tok.types)
    w.key(t + "merges", STRING, [f"{x} {y}" for x, y in tok.merges])
    for k, v in (("bos", bpe.BOS), ("eos", bpe.EOS), ("padding", bpe.PAD)):
        w.key(f"{t}{k}_token_id", U32, tok.id[v])
    w.key(t + "add_bos_token", BOOL, False)
    w.key(t + "add_eos_token", BOOL, False)
    w.key("tokenizer.chat_template", STRING, TEMPLATE)


def tensors(w, model, named=lambda name: name):
    """Adds the tensors of a model, or of a block, with the names that named gives."""
    c = model.c
    for name, (at, n, shape) in model.where.items():
        a, kind = model.flat[at:at + n].cpu().numpy().reshape(shape), kind_of(name, shape)
        if "ffn_w13_exps" in name:
            gate, up = a[:, :c["n_ff"]], a[:, c["n_ff"]:]
            w.tensor(named(name.replace("w13", "gate")), gate, kind)
            w.tensor(named(name.replace("w13", "up")), up, kind)
        else:
            w.tensor(named(name), a, kind)
    for i in range(c["n_layer"]):
        if i < c["n_hash"]:
            w.tensor(f"blk.{i}.ffn_gate_tid2eid.weight", model.table[i].cpu().numpy(), I32)
        else:
            w.tensor(named(f"blk.{i}.exp_probs_b.bias"), model.bias[i].cpu().numpy(), F32)


def export(model, tok, path, block=None):
    """Writes the file, with a block of mtp.py if there is one, and returns its size."""
    w, c = Writer(), model.c
    metadata(w, c, tok, int(block is not None))
    tensors(w, model)
    if block is not None:
        tensors(w, block, mtp.names(model))
    return w.save(path)


def load(path):
    s = torch.load(path, map_location="cpu")
    m = Model(s["config"])
    m.restore(s)
    return m, bpe.Tokenizer(s["merges"])


if __name__ == "__main__":
    print(export(*load(sys.argv[1]), sys.argv[2]), "bytes")
