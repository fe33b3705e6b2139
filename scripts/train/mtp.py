"""The block for multi-token prediction of the architecture (nextn, with eh_proj), in torch: for training.

A row joins the trunk's streams at a position with the token of the next one, and guesses the token after
that. A guess further ahead continues the block's own streams, as the drafts of an answer do."""
import torch
import torch.nn.functional as F

import model as trunk_model
import ops
from model import EPS, Model, layer_shapes, rope_table

OWN = "nextn."


def block_shapes(c):
    """The tensors of the block: its layer as blk.0, the rest under nextn."""
    D = c["n_embd"]
    out = layer_shapes(c, 0, 0)
    out.update({OWN + "eh_proj.weight": ((D, 2 * D), D ** -.5), OWN + "enorm.weight": ((D,), torch.ones), OWN + "hnorm.weight": ((D,), torch.ones),
                OWN + "shared_head_norm.weight": ((D,), torch.ones), OWN + "hc_head_fn.weight": ((4, 4 * D), 0.01),
                OWN + "hc_head_base.weight": ((4,), torch.zeros), OWN + "hc_head_scale.weight": ((1,), torch.ones)})
    return out


def names(trunk):
    """How a file names the block's tensors behind the layers of the trunk."""
    return lambda name: f"blk.{trunk.c['n_layer']}." + name.removeprefix("blk.0.")


def rms(*args):
    return trunk_model.rms(*args)


class Block(Model):
    shapes = staticmethod(block_shapes)

    def __init__(self, trunk, device=None):
        super().__init__(dict(trunk.c, n_layer=1, ratios=[0], n_hash=0), device or trunk.device, seed=2)

    def begin_as(self, trunk):
        """Begins with the trunk's last layer and head; the hidden state passes through."""
        last, D = f"blk.{trunk.c['n_layer'] - 1}.", self.c["n_embd"]
        heads = {OWN + "shared_head_norm": "output_norm", OWN + "hc_head_fn": "output_hc_fn", OWN + "hc_head_base": "output_hc_base", OWN + "hc_head_scale": "output_hc_scale"}
        with torch.no_grad():
            for name, (at, n, shape) in self.where.items():
                source = name.replace("blk.0.", last) if name.startswith("blk.0.") else heads.get(name.removesuffix(".weight"), "") + ".weight"
                if source in trunk.p:
                    self.flat[at:at + n] = trunk.p[source].detach().reshape(-1)
                elif "eh_proj" in name:
                    eye = torch.eye(D, device=self.flat.device)
                    self.flat[at:at + n] = torch.cat((0.5 * eye, eye), 1).reshape(-1)
        self.bias[0] = trunk.bias[-1]

    def positions(self, T, depth):
        key = T, depth
        if key not in self.tables:
            self.tables[key] = [t.to(self.device) for t in rope_table(self.c, 0, torch.arange(T) + depth - 1)]
        return self.tables[key]

    def attend(self, x, depth, keys):
        """Attention of the rows of a depth, of which row t has the position t + depth - 1, over the first depth's
        rows up to t and row t of the others. Adds its own keys to keys."""
        c, p, b = self.c, self.p, "blk.0."
        (B, T, _), H, hd = x.shape, c["n_head"], c["head_dim"]
        pos = self.positions(T, depth)
        qr = rms(x @ p[b + "attn_q_a.weight"].t(), p[b + "attn_q_a_norm.weight"])
        q = trunk_model.rope(rms((qr @ p[b + "attn_q_b.weight"].t()).view(B, T, H, hd)), pos)
        keys.append(trunk_model.rope(rms(x @ p[b + "attn_kv.weight"].t(), p[b + "attn_kv_a_norm.weight"]), pos))
        sinks = p[b + "attn_sinks.weight"]
        if depth == 1:
            o, _ = ops.attention(q, keys[0], sinks, None, c["window"], 0, False)
        else:
            q = q * hd ** -.5
            t = torch.arange(T, device=x.device)
            seen = (t[None] <= t[:, None]) & (t[None] > t[:, None] + depth - 1 - c["window"])
            s = torch.bmm(q.reshape(B, T * H, hd), keys[0].transpose(1, 2)).view(B, T, H, T).masked_fill(~seen[None, :, None], float("-inf"))
            near = torch.stack(keys[1:], 2)                                  # [B,T,depth-1,hd]
            a = torch.cat((s, torch.matmul(q, near.transpose(2, 3)), sinks[None, None, :, None].expand(B, T, H, 1)), 3).softmax(-1)
            o = torch.bmm(a[..., :T].reshape(B, T * H, T), keys[0]).view(B, T, H, hd) + torch.matmul(a[..., T:-1], near)
        o = trunk_model.rope(o, pos, True).reshape(B * T, c["o_groups"], -1)
        A = p[b + "attn_output_a.weight"].view(c["o_groups"], c["o_lora"], -1)
        return torch.cat([o[:, g] @ A[g].t() for g in range(c["o_groups"])], 1) @ p[b + "attn_output_b.weight"].t()

    def step(self, h, tokens, embd, depth, keys):
        """The streams [B*T,4,D] of a depth: h are those that its rows continue, tokens [B,T] theirs."""
        p, (B, T) = self.p, tokens.shape
        token, hidden = p[OWN + "eh_proj.weight"].chunk(2, 1)
        flat = tokens.reshape(-1)
        e = rms(F.embedding(flat, embd), p[OWN + "enorm.weight"]) @ token.t()
        h = e[:, None] + rms(h, p[OWN + "hnorm.weight"]) @ hidden.t()
        x, h, post, comb = self.hc(h, "blk.0.hc_attn")
        y = self.attend(rms(x, p["blk.0.attn_norm.weight"]).view(B, T, -1), depth, keys)
        h = ops.expand(h, y, post, comb)
        x, h, post, comb = self.hc(h, "blk.0.hc_ffn")
        y = self.moe(0, rms(x, p["blk.0.ffn_norm.weight"]), flat)
        return ops.expand(h, y, post, comb)

    def head(self, h):
        """The normed states from which the model's output matrix makes the logits."""
        m, h = ops.mix(h, self.p[OWN + "hc_head_fn.weight"])
        w = torch.sigmoid(m * self.p[OWN + "hc_head_scale.weight"] + self.p[OWN + "hc_head_base.weight"]) + EPS
        return rms(ops.collapse(h, w)[0], self.p[OWN + "shared_head_norm.weight"])

    def depths(self, h, ids, embd, most):
        """Normed states [B,T,D] of each depth: row t of depth d guesses token t + d + 1 of ids [B,T]. Rows whose
        tokens would lie behind the end are computed with the last token and mean nothing."""
        out, keys, (B, T) = [], [], ids.shape
        for d in range(1, most + 1):
            tokens = torch.cat((ids[:, d:], ids[:, -1:].expand(B, d)), 1)
            h = self.step(h, tokens, embd, d, keys)
            out.append(self.head(h).view(B, T, -1))
        return out


def loss(block, trunk, ids, weight, most=3, shares=(1.0, 0.6, 0.4)):
    """How far the guesses are from the trunk's own distributions, where an answer is written.
    ids [B,T], weight [B,T] that of each id as a target. Also the share of first guesses that agree."""
    (B, T), out, embd = ids.shape, trunk.p["output.weight"].detach(), trunk.p["token_embd.weight"].detach()
    with torch.no_grad():
        h = trunk.streams(ids)
        normed = trunk.collapse(h).view(B, T, -1)
    total, agree = 0.0, 0.0
    for d, state in enumerate(block.depths(h.detach(), ids, embd, most), 1):
        n = T - d - 1
        w = weight[:, d + 1:d + 1 + n].reshape(-1)
        keep = (w > 0.2).nonzero()[:, 0]
        w = w[keep]
        want = (normed[:, d:d + n].reshape(B * n, -1)[keep] @ out.t()).softmax(-1)
        have = state[:, :n].reshape(B * n, -1)[keep] @ out.t()
        each = -(want * have.log_softmax(-1)).sum(-1)
        total = total + shares[d - 1] * (each * w).sum() / w.sum().clamp(min=1e-3)
        if d == 1:
            agree = (want.argmax(-1) == have.detach().argmax(-1)).float().sum() / max(1, len(keep))
    return total, agree


def acceptance(block, trunk, prompts, answers, most=3):
    """(share of first guesses that are right, steps with drafts over plain steps) for greedy answers, ids each."""
    first = firsts = steps = plain = 0
    out, embd = trunk.p["output.weight"], trunk.p["token_embd.weight"]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]) + len(answers[i]))
    with torch.no_grad():
        for at in range(0, len(order), 50):
            part = order[at:at + 50]
            rows = [prompts[i] + answers[i] for i in part]
            T = -(-max(map(len, rows)) // 8) * 8
            ids = torch.tensor([r + [0] * (T - len(r)) for r in rows], device=trunk.device)
            guesses = [(s @ out.t()).argmax(-1).tolist() for s in block.depths(trunk.streams(ids), ids, embd, most)]
            for k, i in enumerate(part):
                row, n = rows[k], len(rows[k])
                t = len(prompts[i]) - 1                         # the token after t has been drawn
                plain += len(answers[i]) - 1
                for u in range(t, n - 2):
                    firsts += 1
                    first += guesses[0][k][u] == row[u + 2]
                while t < n - 2:
                    right = 0
                    while right < most and t + right + 2 < n and guesses[right][k][t] == row[t + right + 2]:
                        right += 1
                    t += right + 1
                    steps += 1
    return first / max(1, firsts), steps / max(1, plain)
