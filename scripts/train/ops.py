"""The model's unusual operations: plain torch, and C kernels (fast.c) for training on a CPU.

Run as a program it checks the two against each other."""
import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile

import torch
import torch.nn.functional as F

ITERS, EPS = 20, 1e-6


# ---- plain torch -------------------------------------------------------------------
def sinkhorn_ref(c):
    """c [N,16] -> doubly stochastic [N,16]; rows are sources, columns destinations."""
    c = c.view(-1, 4, 4).softmax(2) + EPS
    c = c / (c.sum(1, keepdim=True) + EPS)
    for _ in range(ITERS - 1):
        c = c / (c.sum(2, keepdim=True) + EPS)
        c = c / (c.sum(1, keepdim=True) + EPS)
    return c.reshape(-1, 16)


def mix_ref(h, w):
    """h [N,4,D] -> its products with the rows of w [K,4D], as if h had a root mean square of one."""
    f = h.reshape(len(h), -1)
    return (f @ w.t()) * (f.square().mean(1, keepdim=True) + EPS).rsqrt(), h


def rms_ref(x, w=None):
    y = x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt()
    return y if w is None else y * w


def rope_ref(x, table, inverse=False):
    """Rotates the last dims of x [B,T,H,D] or [B,T,D]; table is cos and sin, each [T, half of these dims]."""
    cos, sin = (t[:, None] if x.dim() == 4 else t for t in table)
    n = cos.shape[-1] * 2
    head, tail = x[..., :-n], x[..., -n:]
    a, b = tail[..., 0::2], tail[..., 1::2]
    if inverse:
        sin = -sin
    tail = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    return torch.cat((head, tail), -1)


def collapse_ref(h, pre):
    return (h * pre[:, :, None]).sum(1), h


def expand_ref(h, y, post, comb):
    return post[:, :, None] * y[:, None] + torch.einsum("nij,nid->njd", comb.view(-1, 4, 4), h)


def choose_ref(logits, bias, k):
    with torch.no_grad():
        return (F.softplus(logits).sqrt() + bias).topk(k, dim=1).indices


def count(idx, e):
    """How often each of e experts was chosen; unlike bincount it does not wait for a GPU."""
    flat = idx.reshape(-1)
    return torch.zeros(e, device=idx.device).index_add_(0, flat, torch.ones(len(flat), device=idx.device))


def experts_ref(x, idx, w, w13, w2, clamp):
    """Routed experts: x [N,D], idx and w [N,K], w13 [E,2F,D], w2 [E,D,F]."""
    n, k = idx.shape
    e, width = w2.shape[0], w2.shape[2]
    flat = idx.reshape(-1)
    order = flat.argsort()
    rows = torch.bincount(flat, minlength=e)
    start = rows.cumsum(0) - rows
    slot = torch.arange(n * k, device=x.device) - start[flat[order]]
    cap = int(rows.max())
    at = flat[order] * cap + slot
    xs = x.new_zeros(e * cap, x.shape[1]).index_copy(0, at, x[order // k]).view(e, cap, -1)
    g, u = torch.bmm(xs, w13.transpose(1, 2)).split(width, 2)
    m = F.silu(g.clamp(max=clamp)) * u.clamp(-clamp, clamp)
    y = torch.bmm(m, w2.transpose(1, 2)).view(e * cap, -1)[at] * w.reshape(-1)[order, None]
    return torch.zeros_like(x).index_add(0, order // k, y)


@functools.lru_cache(64)
def visible(T, nb, window, ratio, device):
    """[T, T+nb]: whether a token sees a raw row, or a block of ratio rows."""
    pos, blocks = torch.arange(T, device=device)[:, None], torch.arange(nb, device=device)
    raw = (pos.t() <= pos) & (pos.t() > pos - window)
    return torch.cat((raw, (pos + 1) // max(ratio, 1) > blocks), 1)


def attention_ref(q, keys, sinks, chosen, window, ratio, want_mass):
    """Every head of q [B,T,H,d] over keys [B,T+blocks,d] that are the values too, and a sink of value 0 for each
    head. A token sees its window of raw rows and the blocks before it, of these only chosen [B,T,blocks] ones
    (or all: None). Gives the output [B,T,H,d] and, if wanted, the blocks' weights summed over heads, detached."""
    (B, T, H, d), n = q.shape, keys.shape[1]
    seen = visible(T, n - T, window, ratio, q.device).expand(B, T, n)
    if chosen is not None:
        seen = torch.cat((seen[..., :T], seen[..., T:] & (chosen > 0)), 2)
    s = torch.bmm(q.reshape(B, T * H, d) * d ** -.5, keys.transpose(1, 2)).view(B, T, H, n)
    s = s.masked_fill(~seen[:, :, None], float("-inf"))
    a = torch.cat((s, sinks[None, None, :, None].expand(B, T, H, 1)), 3).softmax(-1)[..., :-1]
    o = torch.bmm(a.reshape(B, T * H, n), keys).view(B, T, H, d)
    return o, a.detach()[..., T:].sum(2) if want_mass else None


def choose_blocks_ref(score, ratio, k):
    """The k best blocks that each token sees: score [B,T,blocks] -> 0 or 1."""
    (_, T, nb), device = score.shape, score.device
    best = score.detach().masked_fill(~visible(T, nb, T, ratio, device)[:, T:], float("-inf")).topk(k, 2).indices
    return torch.zeros(score.shape, dtype=torch.uint8, device=device).scatter_(2, best, 1)


# ---- C kernels ----------------------------------------------------------------------
def build():
    """Compiles fast.c and attention.c into the temporary directory; None where that is not possible."""
    here, tag = os.path.dirname(os.path.abspath(__file__)), hashlib.sha256()
    sources = [os.path.join(here, name) for name in ("fast.c", "attention.c")]
    for name in sources:
        with open(name, "rb") as f:
            tag.update(f.read())
    tag = tag.hexdigest()[:16]
    out = os.path.join(tempfile.gettempdir(), f"ringmaster-train-{tag}.so")
    try:
        if not os.path.exists(out):
            part = f"{out}.{os.getpid()}"
            subprocess.run(["gcc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-o", part,
                            *sources, "-lmvec", "-lm"], check=True, capture_output=True)
            os.replace(part, out)
        ctypes.CDLL("libblas.so.3", mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(out)
    except (OSError, subprocess.CalledProcessError):
        return None


LIB = None if torch.cuda.is_available() else build()


def call(name, *args):
    out = []
    for a in args:
        if isinstance(a, torch.Tensor):
            assert a.is_contiguous()
            out.append(ctypes.c_void_p(a.data_ptr()))
        elif a is None:
            out.append(ctypes.c_void_p())
        else:
            out.append(ctypes.c_float(a) if isinstance(a, float) else ctypes.c_int64(a))
    getattr(LIB, name)(*out)


class Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, c):
        c = c.contiguous()
        ctx.save_for_backward(c)
        out = torch.empty_like(c)
        call("sinkhorn_fwd", c, out, len(c), EPS)
        return out

    @staticmethod
    def backward(ctx, go):
        c, = ctx.saved_tensors
        gc = torch.empty_like(c)
        call("sinkhorn_bwd", c, go.contiguous(), gc, len(c), EPS)
        return gc


class Mix(torch.autograd.Function):
    """The second output is h as it was: what reads h next takes that one, and alone, so that gradients
    add up in one place. The same holds for Collapse."""

    @staticmethod
    def forward(ctx, h, w):
        h = h.contiguous()
        n, (k, d) = len(h), w.shape
        m, r = h.new_empty(n, k), h.new_empty(n)
        call("mix_fwd", h, w.detach(), m, r, n, k, d, EPS)
        ctx.save_for_backward(h, w.detach(), m, r)
        return m, h.view_as(h)

    @staticmethod
    def backward(ctx, gm, gh):
        h, w, m, r = ctx.saved_tensors
        gh, gw = gh.contiguous(), torch.zeros_like(w)
        call("mix_bwd", h, w, m, r, gm.clone(memory_format=torch.contiguous_format), gh, gw, len(h), *w.shape)
        return gh, gw


class Rms(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w=None):
        x, d = x.contiguous(), x.shape[-1]
        y, r = torch.empty_like(x), x.new_empty(x.numel() // d)
        call("rms_fwd", x, None if w is None else w.detach(), y, r, len(r), d, EPS)
        ctx.save_for_backward(x, w, r)
        return y

    @staticmethod
    def backward(ctx, gy):
        x, w, r = ctx.saved_tensors
        gx, gw = torch.empty_like(x), None if w is None else torch.zeros_like(w)
        call("rms_bwd", x, None if w is None else w.detach(), r, gy.contiguous(), gx, gw, len(r), x.shape[-1])
        return gx, gw


class Rope(torch.autograd.Function):
    @staticmethod
    def turn(x, table, sign):
        x = x.contiguous()
        y, (B, T, *H, d) = torch.empty_like(x), x.shape
        call("rope", x, *table, y, B, T, *(H or [1]), d, table[0].shape[1] * 2, sign)
        return y

    @staticmethod
    def forward(ctx, x, table, inverse=False):
        ctx.table, ctx.sign = table, -1.0 if inverse else 1.0
        return Rope.turn(x, table, ctx.sign)

    @staticmethod
    def backward(ctx, gy):
        return Rope.turn(gy, ctx.table, -ctx.sign), None, None


class Collapse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, pre):
        h, pre = h.contiguous(), pre.contiguous()
        ctx.save_for_backward(h, pre)
        x = h.new_empty(h.shape[0], h.shape[2])
        call("collapse_fwd", h, pre, x, *x.shape)
        return x, h.view_as(h)

    @staticmethod
    def backward(ctx, gx, gh):
        h, pre = ctx.saved_tensors
        gh, gp = gh.contiguous(), torch.empty_like(pre)
        call("collapse_bwd", h, pre, gx.contiguous(), gh, gp, *gx.shape)
        return gh, gp


class Expand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, y, post, comb):
        h, y, post, comb = (a.contiguous() for a in (h, y, post, comb))
        ctx.save_for_backward(h, y, post, comb)
        out = torch.empty_like(h)
        call("expand_fwd", h, y, post, comb, out, *y.shape)
        return out

    @staticmethod
    def backward(ctx, go):
        saved = ctx.saved_tensors
        grads = [torch.empty_like(a) for a in saved]
        call("expand_bwd", *saved, go.contiguous(), *grads, *saved[1].shape)
        return tuple(grads)


class Experts(torch.autograd.Function):
    """Adds the weights' gradients straight to .grad (they must exist): 40 MB fewer copies."""

    @staticmethod
    def forward(ctx, x, idx, w, w13, w2, clamp):
        (n, k), (e, d, width) = idx.shape, w2.shape
        x, w = x.contiguous(), w.contiguous()
        order = torch.empty(n * k, dtype=torch.int32)
        start = torch.empty(e + 1, dtype=torch.int32)
        call("sort_by_expert", idx.contiguous(), n * k, e, order, start)
        gu, y = x.new_empty(n * k, 2 * width), torch.empty_like(x)
        ctx.sizes = (n, k, e, d, width, float(clamp))
        call("experts_fwd", x, w, w13.detach(), w2.detach(), order, start, gu, y, *ctx.sizes)
        ctx.save_for_backward(x, w, order, start, gu)
        ctx.weights = w13, w2
        return y

    @staticmethod
    def backward(ctx, gy):
        x, w, order, start, gu = ctx.saved_tensors
        w13, w2 = ctx.weights
        gx, gw = torch.empty_like(x), torch.empty_like(w)
        call("experts_bwd", x, w, w13.detach(), w2.detach(), order, start, gu, gy.contiguous(), gx, gw,
             w13.grad, w2.grad, *ctx.sizes)
        return gx, None, gw, None, None, None


def choose_fast(logits, bias, k):
    idx = torch.empty(len(logits), k, dtype=torch.int64)
    call("choose", logits.detach().contiguous(), bias, idx, *logits.shape, k)
    return idx


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, keys, sinks, chosen, window, ratio, want_mass):
        (B, T, H, d), nb = q.shape, keys.shape[1] - q.shape[1]
        q, keys, sinks = q.contiguous(), keys.contiguous(), sinks.detach()
        out, lse = torch.empty_like(q), q.new_empty(B, T, H)
        mass = q.new_empty(B, T, nb) if want_mass else None
        ctx.sizes = (B, T, H, nb, window, ratio, d ** -.5)
        call("attention_fwd", q, keys, sinks, chosen, out, lse, mass, *ctx.sizes)
        ctx.save_for_backward(q, keys, sinks, chosen, lse)
        if want_mass:
            ctx.mark_non_differentiable(mass)
        return out, mass

    @staticmethod
    def backward(ctx, go, _):
        q, keys, sinks, chosen, lse = ctx.saved_tensors
        grads = [torch.empty_like(a) for a in (q, keys, sinks)]
        call("attention_bwd", q, keys, sinks, chosen, lse, go.contiguous(), *grads, *ctx.sizes)
        return (*grads, None, None, None, None)


def attention_fast(q, *rest):
    """The kernel, where the shape is one that it knows."""
    return (Attention.apply if q.shape[3] == 64 and 16 % q.shape[2] == 0 else attention_ref)(q, *rest)


def choose_blocks_fast(score, ratio, k):
    chosen = torch.empty(score.shape, dtype=torch.uint8)
    call("choose_blocks", score.detach().contiguous(), chosen, *score.shape, ratio, k)
    return chosen


if LIB:
    mix, rms, rope = Mix.apply, Rms.apply, Rope.apply
    attention, choose_blocks = attention_fast, choose_blocks_fast
    sinkhorn, collapse, expand = Sinkhorn.apply, Collapse.apply, Expand.apply
    choose, experts = choose_fast, Experts.apply
else:
    mix, rms, rope = mix_ref, rms_ref, rope_ref
    attention, choose_blocks = attention_ref, choose_blocks_ref
    sinkhorn, collapse, expand, choose, experts = sinkhorn_ref, collapse_ref, expand_ref, choose_ref, experts_ref


def adamw(p, g0, g1, m, v, gs, lr, b1, b2, eps, decay, step):
    """AdamW on a flat range; the gradient is gs * (g0 + g1)."""
    c1, c2 = 1 / (1 - b1 ** step), 1 / (1 - b2 ** step)
    if LIB:
        return call("adamw", p, g0, g1, m, v, len(p), gs, lr, b1, b2, eps, decay, c1, c2)
    g = gs * (g0 + g1)
    m.mul_(b1).add_(g, alpha=1 - b1)
    v.mul_(b2).addcmul_(g, g, value=1 - b2)
    p.sub_(lr * (m * c1 / ((v * c2).sqrt() + eps) + decay * p))


def compare(name, fast, ref, inputs):
    res = []
    for f in (fast, ref):
        args = [a.clone().requires_grad_() if a.is_floating_point() else a for a in inputs]
        for a in args:
            if a.is_floating_point():
                a.grad = torch.zeros_like(a)
        y = f(*args)
        y = y if torch.is_tensor(y) else torch.cat([a.reshape(-1) for a in y])
        torch.manual_seed(7)
        (y * torch.randn_like(y)).sum().backward()
        res.append([y.detach()] + [a.grad for a in args if a.is_floating_point()])
    worst = max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(*res))
    print(f"{name:24} worst relative difference {worst:.2e}")
    assert worst < 1e-4


def main():
    if not LIB:
        raise SystemExit("no C kernels here")
    torch.manual_seed(1)
    n, d, e, k, width = 77, 64, 16, 6, 32
    r = torch.randn
    compare("sinkhorn", Sinkhorn.apply, sinkhorn_ref, [r(n, 16) * 2])
    compare("mix", Mix.apply, mix_ref, [r(n, 4, d), r(24, 4 * d)])
    compare("rms", Rms.apply, rms_ref, [r(3, n, d) * 3, r(d)])
    compare("rms without weight", Rms.apply, rms_ref, [r(3, n, d) * 3])
    for heads in ((), (4,)):
        for inverse in (False, True):
            table = r(n, 16), r(n, 16)
            compare("rope", lambda x: Rope.apply(x, table, inverse), lambda x: rope_ref(x, table, inverse), [r(3, n, *heads, d)])
    compare("collapse", Collapse.apply, collapse_ref, [r(n, 4, d), r(n, 4)])
    compare("expand", Expand.apply, expand_ref, [r(n, 4, d), r(n, d), r(n, 4), r(n, 16)])
    logits, bias = r(n, e), r(e) * .1
    idx = choose_fast(logits, bias, k)
    assert torch.equal(idx, choose_ref(logits, bias, k))
    args = [r(n, d), idx, torch.rand(n, k), r(e, 2 * width, d) * .5, r(e, d, width) * .3]
    compare("experts", lambda *a: Experts.apply(*a, 1.0), lambda *a: experts_ref(*a, 1.0), args)
    for B, T, H, window, ratio, k in ((1, 5, 4, 128, 0, 0), (2, 77, 4, 16, 0, 0), (2, 203, 4, 128, 4, 0), (1, 301, 4, 128, 128, 0),
                                      (2, 130, 4, 32, 4, 9), (1, 37, 4, 128, 4, 5), (2, 31, 2, 10, 4, 3), (3, 18, 8, 7, 4, 0)):
        nb = T // ratio if ratio else 0
        chosen = None
        if k:
            score = r(B, T, nb)
            chosen, seen = choose_blocks_fast(score, ratio, k), visible(T, nb, window, ratio, score.device)[:, T:]
            assert torch.equal(chosen * seen, choose_blocks_ref(score, ratio, k) * seen)
        args = [r(B, T, H, 64) * 2, r(B, T + nb, 64), r(H)]
        compare(f"attention {B} {T} {H} {window} {ratio} {k}", lambda *a: Attention.apply(*a, chosen, window, ratio, False)[0],
                lambda *a: attention_ref(*a, chosen, window, ratio, False)[0], args)
        mass, want = (f(*args, chosen, window, ratio, True)[1] for f in (Attention.apply, attention_ref))
        assert nb == 0 or (mass - want).abs().max() < 1e-5


if __name__ == "__main__":
    main()
