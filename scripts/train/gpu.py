"""The operations of ops.py for a GPU: fused by torch.compile, and the experts as grouped products in bfloat16.

Each is checked against plain torch on the GPU first; what fails there is left as it is."""
import time

import torch
import torch.nn.functional as F

import model
import ops

PLAIN = dict(sinkhorn=ops.sinkhorn_ref, mix=ops.mix_ref, rms=ops.rms_ref, rope=ops.rope_ref, collapse=ops.collapse_ref, expand=ops.expand_ref,
             choose=ops.choose_ref, experts=ops.experts_ref, attention=ops.attention_ref, choose_blocks=ops.choose_blocks_ref)
FAST = dict(PLAIN)


def use(which):
    """Makes the model use a set of operations."""
    for name, f in which.items():
        setattr(ops, name, f)
    model.rms, model.rope = which["rms"], which["rope"]


def rms_fused(x, w=None):
    return F.rms_norm(x, (x.shape[-1],), w, ops.EPS)


def expand_flat(h, y, post, comb):
    """expand_ref without a product of matrices, which a compiler joins into one kernel."""
    return post[:, :, None] * y[:, None] + (comb.view(-1, 4, 4)[..., None] * h[:, :, None]).sum(1)


def grouped_mm():
    return getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


def gate(gu, width, clamp):
    g, u = gu.float().split(width, 1)
    return (F.silu(g.clamp(max=clamp)) * u.clamp(-clamp, clamp)).bfloat16()


def experts_grouped(x, idx, w, w13, w2, clamp, mm=None, act=gate):
    """experts_ref without padding to the busiest expert, and without a wait for the GPU. Every expert's rows begin
    at a multiple of 8, as the grouped product wants it; the rest of the rows are zero and belong to the last one."""
    mm = mm or grouped_mm()
    n, k = idx.shape
    e, width = w2.shape[0], w2.shape[2]
    flat = idx.reshape(-1)
    order = flat.argsort()
    rows = torch.zeros(e, dtype=torch.int64, device=x.device).index_add_(0, flat, torch.ones_like(flat))
    ends = ((rows + 7) // 8 * 8).cumsum(0)
    start = ends - (rows + 7) // 8 * 8
    first = rows.cumsum(0) - rows
    chosen = flat[order]
    at = start[chosen] + torch.arange(n * k, device=x.device) - first[chosen]
    total = n * k + 8 * e
    offs = torch.cat((ends[:-1], torch.full_like(ends[:1], total))).int()
    xs = torch.zeros(total, x.shape[1], dtype=torch.bfloat16, device=x.device).index_copy(0, at, x.bfloat16().index_select(0, order // k))
    gu = mm(xs, w13.bfloat16().transpose(1, 2), offs=offs)
    y = mm(act(gu, width, float(clamp)), w2.bfloat16().transpose(1, 2), offs=offs)
    where = torch.empty_like(at).index_copy_(0, order, at)
    return (y.index_select(0, where).view(n, k, -1).float() * w[..., None]).sum(1)


def worst(fast, plain, inputs):
    """The worst relative difference of the results and gradients."""
    res = []
    for f in (fast, plain):
        args = [a.clone().requires_grad_() if a.is_floating_point() else a for a in inputs]
        y = f(*args)
        y = y if torch.is_tensor(y) else torch.cat([a.reshape(-1) for a in y])
        g = torch.Generator(device=y.device).manual_seed(7)
        (y * torch.randn(y.shape, generator=g, device=y.device)).sum().backward()
        res.append([y.detach()] + [a.grad for a in args if a.is_floating_point()])
    return max(float((a - b).norm() / (b.norm() + 1e-9)) for a, b in zip(*res))


def prepare(tokens, width=128, experts=256, ff=32, device="cuda"):
    """Chooses the operations that are right on this GPU for steps of so many tokens; use(FAST) takes them."""
    import torch._dynamo
    r = lambda *s: torch.randn(*s, device=device)
    compiled = lambda f: torch.compile(f, dynamic=False)
    n = tokens
    for name, value in (("recompile_limit", 64), ("cache_size_limit", 64), ("suppress_errors", True)):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, value)
    tries = [("rms", rms_fused, [r(n, 4, width), r(width)], 1e-3),
             ("sinkhorn", compiled(ops.sinkhorn_ref), [r(n, 16)], 1e-3),
             ("mix", compiled(ops.mix_ref), [r(n, 4, width), r(24, 4 * width)], 1e-2),
             ("collapse", compiled(ops.collapse_ref), [r(n, 4, width), r(n, 4)], 1e-3),
             ("expand", compiled(expand_flat), [r(n, 4, width), r(n, width), r(n, 4), r(n, 16)], 1e-2)]
    idx = r(n, experts).topk(6, dim=1).indices
    idx[:, 0] = idx[:, 0] % 40             # uneven, as it is in training; a row may choose an expert twice
    act = compiled(gate)
    args = [r(n, width), idx, torch.rand(n, 6, device=device), r(experts, 2 * ff, width) * .1, r(experts, width, ff) * .1]
    tries.append(("experts", lambda *a: experts_grouped(*a, act=act), args, 3e-2))
    for name, f, inputs, bound in tries:
        began = time.time()
        try:
            plain = PLAIN[name]
            if name == "experts":
                off = worst(lambda *a: f(*a, 10.0), lambda *a: plain(*a, 10.0), inputs)
            else:
                off = worst(f, plain, inputs)
            if not off < bound:
                raise ValueError(f"differs by {off:.1e}")
            FAST[name] = f
            print(f"gpu: {name}: off by {off:.1e}, {time.time() - began:.1f} s", flush=True)
        except Exception as e:
            print(f"gpu: {name}: plain torch is used: {type(e).__name__}: {str(e)[:300]}", flush=True)
