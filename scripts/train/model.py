"""The DeepSeek V4 architecture in torch, for training: whole sequences, no cache.

Parameters live in one flat vector and carry their GGUF names; only the experts' gate and
up matrices are kept together (`ffn_w13_exps`: gate rows, then up rows)."""
import math

import torch
import torch.nn.functional as F

import ops

BASE = dict(n_embd=128, n_layer=6, ratios=[0, 0, 4, 128, 4, 128], n_hash=2, n_vocab=2432, n_head=4,
            head_dim=64, n_rot=32, q_lora=64, o_lora=64, o_groups=2, n_expert=256, n_used=6, n_ff=32,
            window=128, idx_head=4, idx_dim=128, idx_topk=64, ctx=32768, scale=1.5, clamp=10.0,
            base=10000.0, cbase=160000.0, yarn_factor=16.0, yarn_orig=65536, beta_fast=32.0, beta_slow=1.0)
EPS = 1e-6
rms, rope = ops.rms, ops.rope


def shapes(c):
    """name -> (shape slowest first, initial deviation or a function making the values)."""
    D, ones, zeros = c["n_embd"], torch.ones, torch.zeros
    out = {"token_embd.weight": ((c["n_vocab"], D), 0.5), "output.weight": ((c["n_vocab"], D), D ** -.5),
           "output_norm.weight": ((D,), ones), "output_hc_fn.weight": ((4, 4 * D), 0.01),
           "output_hc_base.weight": ((4,), zeros), "output_hc_scale.weight": ((1,), ones)}
    for i, ratio in enumerate(c["ratios"]):
        out.update(layer_shapes(c, i, ratio))
    return out


def layer_shapes(c, i, ratio):
    """The part of shapes that belongs to layer i."""
    D, H, hd, E, Fw = c["n_embd"], c["n_head"], c["head_dim"], c["n_expert"], c["n_ff"]
    ones, zeros, b = torch.ones, torch.zeros, f"blk.{i}."
    deep, out = 1 / math.sqrt(2 * c["n_layer"]), {}
    for j, what in enumerate(("attn", "ffn")):
        out[b + f"hc_{what}_fn.weight"] = ((24, 4 * D), 0.01)
        out[b + f"hc_{what}_base.weight"] = ((24,), lambda n, k=2 * i + j: hc_base(k))
        out[b + f"hc_{what}_scale.weight"] = ((3,), ones)
    G = H * hd // c["o_groups"]
    out.update({
        b + "attn_norm.weight": ((D,), ones), b + "attn_sinks.weight": ((H,), zeros),
        b + "attn_q_a.weight": ((c["q_lora"], D), D ** -.5), b + "attn_q_a_norm.weight": ((c["q_lora"],), ones),
        b + "attn_q_b.weight": ((H * hd, c["q_lora"]), c["q_lora"] ** -.5),
        b + "attn_kv.weight": ((hd, D), D ** -.5), b + "attn_kv_a_norm.weight": ((hd,), ones),
        b + "attn_output_a.weight": ((c["o_lora"] * c["o_groups"], G), G ** -.5),
        b + "attn_output_b.weight": ((D, c["o_lora"] * c["o_groups"]), deep * (c["o_lora"] * c["o_groups"]) ** -.5)})
    for kind, dim in (("attn", hd), ("indexer", c["idx_dim"])):
        if ratio == 4 or (ratio and kind == "attn"):
            wide = dim * (2 if ratio == 4 else 1)
            out.update({b + f"{kind}_compressor_kv.weight": ((wide, D), D ** -.5),
                        b + f"{kind}_compressor_gate.weight": ((wide, D), 0.02),
                        b + f"{kind}_compressor_ape.weight": ((ratio, wide), 0.02),
                        b + f"{kind}_compressor_norm.weight": ((dim,), ones)})
    if ratio == 4:
        out[b + "indexer.proj.weight"] = ((c["idx_head"], D), D ** -.5)
        out[b + "indexer.attn_q_b.weight"] = ((c["idx_head"] * c["idx_dim"], c["q_lora"]), c["q_lora"] ** -.5)
    out.update({
        b + "ffn_norm.weight": ((D,), ones), b + "ffn_gate_inp.weight": ((E, D), D ** -.5),
        b + "ffn_w13_exps.weight": ((E, 2 * Fw, D), D ** -.5),
        b + "ffn_down_exps.weight": ((E, D, Fw), deep * Fw ** -.5),
        b + "ffn_gate_shexp.weight": ((Fw, D), D ** -.5), b + "ffn_up_shexp.weight": ((Fw, D), D ** -.5),
        b + "ffn_down_shexp.weight": ((D, Fw), deep * Fw ** -.5)})
    return out


def hc_base(k):
    """Sub-layer k reads and writes mostly one stream; the streams mix slowly."""
    v = torch.full((24,), -1.0)
    v[k % 4], v[4:8], v[4 + k % 4] = 1.0, -0.5, 0.5
    v[8:] = (3 * torch.eye(4)).reshape(-1)
    return v


def rope_table(c, ratio, positions):
    """cos and sin [T, n_rot/2] at the positions, with the ratio's rope set."""
    n = c["n_rot"]
    i = torch.arange(n // 2, dtype=torch.float64)
    if ratio == 0:
        f = c["base"] ** (-2 * i / n)
    else:
        def dim(beta):
            return n * math.log(c["yarn_orig"] / (2 * math.pi * beta)) / (2 * math.log(c["cbase"]))
        lo, hi = max(0, math.floor(dim(c["beta_fast"]))), min(n - 1, math.ceil(dim(c["beta_slow"])))
        ramp = ((i - lo) / (max(hi - lo, 0.001))).clamp(0, 1)
        f = c["cbase"] ** (-2 * i / n) * (ramp / c["yarn_factor"] + 1 - ramp)
    a = positions[:, None].double() * f
    return a.cos().float(), a.sin().float()


class Model:
    shapes = staticmethod(shapes)

    def __init__(self, config=None, device="cpu", seed=1):
        self.c = c = dict(BASE, **(config or {}))
        self.device, self.p, self.where, at = device, {}, {}, 0
        gen = torch.Generator().manual_seed(seed)
        parts = []
        for name, (shape, init) in self.shapes(c).items():
            n = math.prod(shape)
            v = init(n).reshape(-1) if callable(init) else torch.randn(n, generator=gen) * init
            parts.append(v)
            self.where[name] = (at, n, shape)
            at += n
        self.adopt(torch.cat(parts).to(device))
        self.bias = torch.zeros(c["n_layer"], c["n_expert"], device=device)
        self.table = [hash_table(c, layer).to(device) for layer in range(c["n_hash"])]
        self.load = torch.zeros_like(self.bias)
        self.tables = {}

    def adopt(self, flat, grad=None):
        """Makes the parameters views of flat (and their gradients views of grad)."""
        self.flat, self.grad = flat, grad
        for name, (at, n, shape) in self.where.items():
            self.p[name] = flat[at:at + n].view(shape).detach().requires_grad_(grad is not None)
            if grad is not None:
                self.p[name].grad = grad[at:at + n].view(shape)

    def state(self):
        return {"config": self.c, "flat": self.flat.clone(), "bias": self.bias.clone()}

    def restore(self, s):
        self.flat.copy_(s["flat"])
        self.bias.copy_(s["bias"])

    # -- one forward pass --------------------------------------------------------------
    def constants(self, T):
        """Rope tables, and which blocks are seen, for sequences of T tokens."""
        if T not in self.tables:
            c, pos = self.c, torch.arange(T)
            k = {}
            for r in set(c["ratios"]):
                nb = T // r if r else 0
                seen = (pos[:, None] + 1) // max(r, 1) > torch.arange(nb)[None]
                k[r] = dict(nb=nb, pos=[t.to(self.device) for t in rope_table(c, r, pos)],
                            blk=[t.to(self.device) for t in rope_table(c, r, torch.arange(nb) * r)],
                            seen=seen.to(self.device), rows=(seen.sum(1) > 1).float().to(self.device),
                            count=max(1, int((seen.sum(1) > 1).sum())))
            self.tables[T] = k
        return self.tables[T]

    def hidden(self, ids, aux=False):
        """ids [B,T] -> normed final state [B*T, D]; with aux also the indexer's loss."""
        return self.collapse(self.streams(ids, aux))

    def streams(self, ids, aux=False):
        """ids [B,T] -> the streams behind the last layer [B*T, 4, D]."""
        c, (B, T) = self.c, ids.shape
        self.aux, self.want_aux = [], aux
        flat = ids.reshape(-1)
        e = F.embedding(flat, self.p["token_embd.weight"])
        h = e[:, None].expand(-1, 4, -1).contiguous()
        for i in range(c["n_layer"]):
            x, h, post, comb = self.hc(h, f"blk.{i}.hc_attn")
            y = self.attention(i, rms(x, self.p[f"blk.{i}.attn_norm.weight"]).view(B, T, -1))
            h = ops.expand(h, y.reshape(B * T, -1), post, comb)
            x, h, post, comb = self.hc(h, f"blk.{i}.hc_ffn")
            y = self.moe(i, rms(x, self.p[f"blk.{i}.ffn_norm.weight"]), flat)
            h = ops.expand(h, y, post, comb)
        return h

    def collapse(self, h):
        """The streams become one normed state [B*T, D]."""
        m, h = ops.mix(h, self.p["output_hc_fn.weight"])
        w = torch.sigmoid(m * self.p["output_hc_scale.weight"] + self.p["output_hc_base.weight"]) + EPS
        return rms(ops.collapse(h, w)[0], self.p["output_norm.weight"])

    def logits(self, hidden):
        return hidden @ self.p["output.weight"].t()

    def hc(self, h, name):
        s, b = self.p[name + "_scale.weight"], self.p[name + "_base.weight"]
        m, h = ops.mix(h, self.p[name + "_fn.weight"])
        pre = torch.sigmoid(m[:, :4] * s[0] + b[:4]) + EPS
        post = 2 * torch.sigmoid(m[:, 4:8] * s[1] + b[4:8])
        comb = ops.sinkhorn(m[:, 8:] * s[2] + b[8:])
        return (*ops.collapse(h, pre), post, comb)

    def compress(self, x, name, ratio, dim, k):
        """x [B,T,D] -> entries [B,nb,dim]: gated pooling over the block (and the one before)."""
        B, nb = x.shape[0], k["nb"]
        x = x[:, :nb * ratio]
        kv = (x @ self.p[name + "_kv.weight"].t()).view(B, nb, ratio, -1)
        sc = (x @ self.p[name + "_gate.weight"].t()).view(B, nb, ratio, -1) + self.p[name + "_ape.weight"]
        if ratio == 4:
            kv = torch.cat((F.pad(kv[:, :-1, :, :dim], (0, 0, 0, 0, 1, 0)), kv[..., dim:]), 2)
            sc = torch.cat((F.pad(sc[:, :-1, :, :dim], (0, 0, 0, 0, 1, 0), value=-1e30), sc[..., dim:]), 2)
        e = rms((sc.softmax(2) * kv).sum(2), self.p[name + "_norm.weight"])
        return rope(e, k["blk"])

    def attention(self, i, x):
        c, p, b = self.c, self.p, f"blk.{i}."
        (B, T, _), H, hd, ratio = x.shape, c["n_head"], c["head_dim"], c["ratios"][i]
        k = self.constants(T)[ratio]
        qr = rms(x @ p[b + "attn_q_a.weight"].t(), p[b + "attn_q_a_norm.weight"])
        q = rope(rms((qr @ p[b + "attn_q_b.weight"].t()).view(B, T, H, hd)), k["pos"])
        keys = [rope(rms(x @ p[b + "attn_kv.weight"].t(), p[b + "attn_kv_a_norm.weight"]), k["pos"])]
        if k["nb"]:
            keys.append(self.compress(x, b + "attn_compressor", ratio, hd, k))
        keys = torch.cat(keys, 1) if k["nb"] else keys[0]
        chosen = score = None
        if ratio == 4 and k["nb"] and (self.want_aux or k["nb"] > c["idx_topk"]):
            score = self.index_scores(i, x.detach(), qr.detach(), k)
            if k["nb"] > c["idx_topk"]:
                chosen = ops.choose_blocks(score, ratio, c["idx_topk"])
        want_mass = self.want_aux and score is not None
        o, mass = ops.attention(q, keys, p[b + "attn_sinks.weight"], chosen, c["window"], ratio, want_mass)
        if want_mass:
            want = mass / (mass.sum(-1, keepdim=True) + 1e-9)
            have = score.masked_fill(~k["seen"], -1e9).log_softmax(-1)
            self.aux.append(-((want * have).sum(-1) * k["rows"]).sum() / (B * k["count"]))    # rows that have a choice
        o = rope(o, k["pos"], True).reshape(B * T, c["o_groups"], -1)
        A = p[b + "attn_output_a.weight"].view(c["o_groups"], c["o_lora"], -1)
        u = torch.cat([o[:, g] @ A[g].t() for g in range(c["o_groups"])], 1)
        return u @ p[b + "attn_output_b.weight"].t()

    def index_scores(self, i, x, qr, k):
        """The lightning indexer; its Hadamard rotation is orthogonal and cancels here."""
        c, b, (B, T, _) = self.c, f"blk.{i}.", x.shape
        H, dim = c["idx_head"], c["idx_dim"]
        keys = self.compress(x, b + "indexer_compressor", 4, dim, k)
        q = (qr @ self.p[b + "indexer.attn_q_b.weight"].t()).view(B, T, H, dim)
        q = rope(q, k["pos"])
        w = (x @ self.p[b + "indexer.proj.weight"].t()) * (dim * H) ** -.5
        dots = torch.bmm(q.reshape(B, T * H, dim), keys.transpose(1, 2)).view(B, T, H, -1)
        return (w[..., None] * dots.relu()).sum(2)

    def moe(self, i, x, ids):
        c, p, b = self.c, self.p, f"blk.{i}."
        logits = x @ p[b + "ffn_gate_inp.weight"].t()
        if i < c["n_hash"]:
            idx = self.table[i][ids]
        else:
            idx = ops.choose(logits, self.bias[i], c["n_used"])
            self.load[i] += ops.count(idx, c["n_expert"])
        s = F.softplus(logits.gather(1, idx)).sqrt()
        w = s / s.sum(1, keepdim=True) * c["scale"]
        y = ops.experts(x, idx, w, p[b + "ffn_w13_exps.weight"], p[b + "ffn_down_exps.weight"], c["clamp"])
        g = (x @ p[b + "ffn_gate_shexp.weight"].t()).clamp(max=c["clamp"])
        u = (x @ p[b + "ffn_up_shexp.weight"].t()).clamp(-c["clamp"], c["clamp"])
        return y + (F.silu(g) * u) @ p[b + "ffn_down_shexp.weight"].t()

    def balance(self, load, speed):
        """The auxiliary-loss-free rule: push every expert's selection bias towards equal load."""
        for i in range(self.c["n_hash"], self.c["n_layer"]):
            self.bias[i] += speed * torch.sign(load[i].mean() - load[i])

    def greedy(self, prompts, limit, stop):
        """Greedy answers to lists of ids (all of a length are run together)."""
        out = [list(p) for p in prompts]
        live = list(range(len(out)))
        with torch.no_grad():
            for _ in range(limit):
                if not live:
                    break
                T = -(-max(len(out[j]) for j in live) // 8) * 8
                ids = torch.tensor([out[j] + [stop] * (T - len(out[j])) for j in live], device=self.device)
                last = torch.tensor([k * T + len(out[j]) - 1 for k, j in enumerate(live)], device=self.device)
                best = self.logits(self.hidden(ids)[last]).argmax(1).tolist()
                for j, t in zip(live, best):
                    out[j].append(t)
                live = [j for j, t in zip(live, best) if t != stop]
        return [o[len(p):] for o, p in zip(out, prompts)]


def hash_table(c, layer):
    """tid2eid [V,6]: distinct experts per token id, every expert used almost equally often."""
    gen = torch.Generator().manual_seed(1000 + layer)
    V, K, E = c["n_vocab"], c["n_used"], c["n_expert"]
    pile, rows = [], []
    for _ in range(V):
        row = []
        while len(row) < K:
            if not pile:
                pile = torch.randperm(E, generator=gen).tolist()
            e = pile.pop()
            if e in row:
                pile.insert(0, e)
            else:
                row.append(e)
        rows.append(row)
    return torch.tensor(rows)
