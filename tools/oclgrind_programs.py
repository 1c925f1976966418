"""Small programs of every operator family, for tools/oclgrind.py: expressions over the tensors of `operands()`.

``python tools/oclgrind_programs.py`` runs them forward and backward on netcl, compares with torch's CPU device, and
prints a line of JSON for each: [family, expression, problem], empty if the result was right.
"""

from __future__ import annotations

import json
import sys
import warnings

import torch
import torch.nn.functional as F

# An expression's result is summed for the backward pass if it needs a gradient.
PROGRAMS = {
    "pointwise": """
        a + b; a * 2.5 - b; torch.where(a > 0, a, b); a.exp() / (1 + b.exp()); torch.atan2(a, b);
        a.half() + b.bfloat16(); a[:, ::2].contiguous() * 2; a.t() + b.t(); torch.addcmul(a, b, b, value=0.5);
        torch.lerp(a, b, 0.3); a.double().sin(); F.gelu(a); F.silu(b); F.softplus(a); F.prelu(a, b[0, :1].abs());
        torch.complex(a, b).abs(); i % 3 + (i << 1); torch.copysign(a, b); a.clamp(-0.5, 0.5); (a > b) ^ (a < 0);
        a.expand(3, 6, 10) + b; torch.polygamma(2, a.abs() + 1); last * last[:1, :, :1, :1]; last * last[:, :, :1, :1];
        F.relu(last.chunk(2, 1)[1]); last[:, :5] + 1; last[:, 1:4].half() * 2; F.prelu(last, last[0, :, 0, 0].abs());
        last.contiguous(); torch.where(last > 0, last, last[:1, :, :1, :1])
    """,
    "reductions": """
        a.sum(); a.sum(0); a.sum(1); a.mean((0, 1)); a.amax(1); a.argmax(0); a.var(1); a.std(0); a.prod(1); a.norm();
        long.sum(); a.any(1); (a > 9).all(); a.median(1).values; a.logsumexp(1); torch.aminmax(long); a.half().sum(0);
        i.sum(); long.mean(); a.nansum(1); torch.var_mean(c, (0, 2, 3)); torch.count_nonzero(i); a.cumsum(0);
        a.cumsum(1); long.cumsum(0); a.cumprod(1); torch.logcumsumexp(a, 1); a.cummax(1).values; torch.diff(a);
        torch.trapezoid(a); big.sum(1); big.flatten().cumsum(0); big.cummax(1).values; big.t().amax(1);
        big.t().contiguous().cumsum(0); big.t().contiguous().cummax(0).values; big[:, :64].contiguous().mean(1);
        big[:, :80].contiguous().half().argmax(1); last.argmax(1); last.max(1).values; last.permute(0, 2, 3, 1).sum(3);
        big[:, :58].contiguous().sum(1); big[:, :58].max(1).values; big[:, :3].contiguous().amin(1)
    """,
    "norms": """
        a.softmax(1); a.log_softmax(0); F.layer_norm(a, (10,), b[0], b[1]); F.group_norm(c, 2); F.rms_norm(a, (10,));
        F.batch_norm(c, None, None, training=True); F.instance_norm(c);
        F.batch_norm(c, c[0, :, 0, 0].detach(), c[0, :, 0, 1].detach().abs() + 1); F.local_response_norm(c, 3);
        F.normalize(a); torch.renorm(a, 2, 0, 1.0); c.softmax(1); F.layer_norm(c, (12, 12)); F.group_norm(last, 4);
        F.group_norm(last[:1], 24); F.batch_norm(last.repeat(4, 1, 2, 2), None, None, training=True);
        F.batch_norm(last.repeat(4, 1, 2, 2), last[0, :, 0, 0].detach(), last[0, :, 0, 1].detach().abs() + 1);
        last.permute(0, 2, 3, 1).softmax(3); big[:, :58].contiguous().softmax(1); big.softmax(1);
        big.t()[:, :10].contiguous().log_softmax(1)
    """,
    "matrices": """
        a @ b.t(); a.t() @ b; a @ v; torch.bmm(c[:, 0], c[:, 1]); F.linear(a, b, b[:, 0]);
        torch.addmm(b[:, :6], a, b.t()); torch.einsum("bchw,bdhw->bcd", c, c); torch.cdist(a, b); F.pdist(a);
        torch.outer(v, v); big @ big.t(); big.t() @ big; big.t() @ big[:, :40]; big[:, :50].t() @ big[:, :44];
        a.half() @ b.half().t(); a.bfloat16() @ b.bfloat16().t();
        torch.baddbmm(c[:, 0], c[:, 1], c[:, 2]); torch.dot(v, v); torch.linalg.cholesky(spd);
        torch.linalg.solve(spd, b); torch.linalg.lu_factor(spd)[0]; torch.linalg.inv(spd); torch.linalg.det(spd);
        torch.linalg.solve_triangular(spd.tril(), b, upper=False); F.bilinear(a, b, w3);
        torch.linalg.lu_factor(big)[0]; torch.linalg.cholesky(big @ big.t() + 99 * torch.eye(37, device=a.device));
        torch.linalg.solve(spd.expand(20, 6, 6), b); torch.linalg.cholesky(spd.expand(20, 6, 6))
    """,
    "convolutions": """
        F.conv2d(c, w, padding=1); F.conv2d(c, w, w[:, 0, 0, 0], 2); F.conv2d(c, w[:, :1], groups=4);
        F.conv2d(c, w[:4, :2], groups=2, padding=1); F.conv2d(c, w[:, :, :1, :1]); F.conv2d(c, w, dilation=2);
        F.conv1d(c[:, :, 0], w[:, :, 0]); F.conv3d(c[:, None], w[:1, None, :2]);
        F.conv_transpose2d(c, w.transpose(0, 1), stride=2, output_padding=1);
        F.conv2d(c.contiguous(memory_format=torch.channels_last), w, padding=1);
        F.conv_transpose2d(torch.cat([c, c], 1), torch.cat([w, w]), w[:, 0, 0, 0], 3);
        F.conv_transpose2d(c.repeat(1, 2, 1, 1).contiguous(memory_format=torch.channels_last),
                           w.repeat(2, 1, 1, 1), stride=3);
        F.conv2d(c.repeat(1, 2, 1, 1).contiguous(memory_format=torch.channels_last), w.repeat(1, 2, 1, 1)[:3]);
        F.conv2d(c.half(), w.half(), padding=1); F.unfold(c, 3);
        F.fold(F.unfold(c, 2, stride=2), (12, 12), 2, stride=2)
    """,
    "pooling": """
        F.max_pool2d(c, 2); F.max_pool2d(c, 3, 2, 1); F.avg_pool2d(c, 3, 2, 1); F.adaptive_avg_pool2d(c, 5);
        F.max_pool1d(a, 3); F.adaptive_max_pool2d(c, 5); F.lp_pool2d(c, 2, 2); F.avg_pool3d(c, 2); F.max_pool3d(c, 2);
        F.adaptive_avg_pool2d(c, 1); F.max_pool2d(c.contiguous(memory_format=torch.channels_last), 3, 1, 1);
        F.max_pool2d(last, 2); F.avg_pool2d(last, 3, 2, 1); F.adaptive_avg_pool2d(last, 4); F.avg_pool2d(last, 2, 1);
        F.adaptive_max_pool2d(last, 4); F.adaptive_avg_pool2d(last, 1); F.avg_pool2d(c, 3, 1, 1);
        F.adaptive_avg_pool2d(c, 6); F.avg_pool2d(c, 5, 3, 2, ceil_mode=True, count_include_pad=False);
        F.max_unpool2d(*F.max_pool2d(c, 2, return_indices=True), 2);
        F.fractional_max_pool2d(c, 2, output_size=5, _random_samples=c[:, :, 0, :2].detach().abs().fmod(1))
    """,
    "padding": """
        F.pad(c, (1, 2, 0, 1)); F.pad(c, (1, 2, 2, 1), mode="reflect"); F.pad(c, (1, 2, 2, 1), mode="replicate");
        F.pad(a[None], (1, 2), mode="circular"); F.pad(a, (-1, 2)); F.pixel_shuffle(c, 2); F.channel_shuffle(c, 2);
        F.pixel_shuffle(last, 2); F.pad(last, (1, 2, 0, 1)); torch.cat([last, last[:, :5]], 1)
    """,
    "sampling": """
        F.interpolate(c, scale_factor=2); F.interpolate(c, size=(7, 5), mode="bilinear");
        F.interpolate(c, size=(15, 9), mode="bicubic"); F.interpolate(c, size=(5, 5), mode="bilinear", antialias=True);
        F.interpolate(c, scale_factor=2, mode="bilinear"); F.interpolate(c, scale_factor=2, mode="bicubic");
        F.interpolate(last, scale_factor=2); F.interpolate(last, size=(7, 5), mode="bilinear");
        F.interpolate(last, scale_factor=2, mode="bicubic"); F.interpolate(c[:, :, 0], scale_factor=3, mode="linear");
        F.interpolate(c[None], scale_factor=(1, 2, 2), mode="trilinear"); F.interpolate(c, size=7, mode="area");
        F.grid_sample(c, grid, align_corners=False);
        F.grid_sample(c, grid, mode="nearest", align_corners=False);
        F.grid_sample(c, grid, padding_mode="reflection", align_corners=True);
        F.affine_grid(c[:, 0, :2, :3], (2, 3, 4, 5))
    """,
    "indexing": """
        a[i]; a[:, i]; a[i, i]; a[a > 0]; a.gather(0, i[None].expand(2, 8));
        torch.scatter_add(a, 0, i[None], b[:1, :8]); a.index_add(0, i, b.repeat(2, 1)[:8]);
        a.index_copy(0, i[:2].unique(), b[:i[:2].unique().numel()]); F.embedding(i, a);
        torch.scatter(a, 1, i[None], 3.0); a.scatter_reduce(0, i[None], b[:1, :8], "amax"); a.masked_fill(a > 0, 1.0);
        torch.take(a, i); a.index_put((i, i), b[0, :8], accumulate=True);
        F.embedding_bag(i, a, i[:2] * 0 + i.new_tensor([0, 3])); torch.nonzero(a > 0); a.roll(2, 1); a.flip(1);
        torch.cat([a, b], 1); torch.stack([a, b]); a.tril(); F.one_hot(i); torch.bincount(i);
        torch.repeat_interleave(a, 2, 0); torch.combinations(v); a.unfold(1, 3, 2); torch.tril_indices(4, 4);
        F.embedding(i.repeat(20), a); F.embedding_bag(i.repeat(20), a, i[:2] * 0 + i.new_tensor([0, 33]));
        a.index_add(0, i.repeat(300), b.repeat(400, 1)[:2400]); torch.bincount(i.repeat(300));
        a.masked_scatter(a > 0, b); a.masked_select(a > 0); torch.nonzero(big > 0);
        a.to(torch.complex128).index_add(0, i.repeat(20), b.repeat(27, 1)[:160].to(torch.complex128)).real
    """,
    "sorting": """
        a.sort(1).values; long.sort().values; a.topk(3).values; a.kthvalue(2).values; a.argsort(0); torch.unique(i);
        torch.searchsorted(v.sort().values, a); torch.bucketize(a, v.sort().values); a.mode(1).values;
        torch.histc(a, 5); torch.quantile(a, 0.3, 1); torch.unique_consecutive(i); torch.msort(a); long.topk(5).values;
        big.flatten().sort().values; big.flatten().topk(20).values; big.flatten().double().sort(descending=True).values;
        big.flatten().median(); big.flatten().long().mode().values; big.sort(0).values;
        big.half().flatten().sort(stable=True).indices; big.flatten().topk(1100).values
    """,
    "losses": """
        F.cross_entropy(a, i[:6]); F.nll_loss(a, i[:6]); F.mse_loss(a, b); F.huber_loss(a, b); F.l1_loss(a, b);
        F.binary_cross_entropy(a.sigmoid(), b.sigmoid()); F.binary_cross_entropy_with_logits(a, b.sigmoid());
        F.kl_div(a, b); F.multi_margin_loss(a, i[:6]); F.multilabel_margin_loss(a[0, :8], i);
        F.cosine_similarity(a, b); F.ctc_loss(steps.log_softmax(2), i[:4].view(2, 2) + 1, (7, 6), (2, 1));
        F.cross_entropy(a, b.softmax(1)); F.cross_entropy(a, i[:6], label_smoothing=0.1);
        F.triplet_margin_loss(a, b, a * 2); F.poisson_nll_loss(a, b)
    """,
    "attention": """
        F.scaled_dot_product_attention(q, q, q); F.scaled_dot_product_attention(q, q, q, is_causal=True);
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask);
        F.scaled_dot_product_attention(q.half(), q.half(), q.half())
    """,
    "other": """
        torch.fft.fft(long); torch.fft.rfft2(c); torch.fft.irfft(torch.fft.rfft(a));
        torch.stft(long, 16, return_complex=True); torch.segment_reduce(v, "sum", lengths=lengths); a.to(torch.uint8);
        a.to(torch.int64); torch.arange(9.0, device=a.device); torch.linspace(0, 1, 7, device=a.device);
        a.clone().zero_(); torch.eye(5, device=a.device) + 0; a.sign().long().float();
        torch._foreach_add([a, b], 1.0)[1]; torch.nn.utils.get_total_norm([a, b]); torch.full((5,), 3, device=a.device)
    """,
}
RNN = ("LSTM", "GRU", "RNN")


def operands(device: str) -> dict[str, torch.Tensor]:
    """The tensors that the programs use, the same numbers on every device."""
    made = torch.Generator().manual_seed(0)
    floats = {
        "a": (6, 10), "b": (6, 10), "c": (2, 4, 12, 12), "v": (10,), "w": (4, 4, 3, 3), "w3": (3, 10, 10),
        "long": (700,), "big": (37, 83), "last": (2, 24, 9, 11), "q": (2, 2, 9, 16), "grid": (2, 5, 5, 2),
        "steps": (7, 2, 10),
    }  # fmt: skip
    t = {name: torch.randn(shape, generator=made) for name, shape in floats.items()}
    t["spd"] = t["a"] @ t["a"].t() + 6 * torch.eye(6)
    t["last"] = t["last"].contiguous(memory_format=torch.channels_last)
    t["i"] = torch.randint(0, 6, (8,), generator=made)
    t["mask"] = torch.randn(9, 9, generator=made) > -1
    t["lengths"] = torch.tensor([3, 0, 7])
    return {k: x.to(device).requires_grad_(x.is_floating_point()) for k, x in t.items()}


def rnn(kind: str, device: str) -> list[torch.Tensor]:
    """The results and gradients of two layers over five steps."""
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(4, 6, 2).to(device)
    y = layer(torch.randn(5, 3, 4).to(device))[0]
    return [y, *torch.autograd.grad(y.sum(), list(layer.parameters()))]


def optimizer(kind: str, device: str, fused: bool) -> list[torch.Tensor]:
    """Parameters after two steps under GradScaler."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(n).to(device)) for n in (5, 70)]
    step = getattr(torch.optim, kind)(parameters, lr=0.1, **({"fused": True} if fused else {"foreach": True}))
    scaler = torch.amp.GradScaler(device, init_scale=4.0)
    for _ in range(2):
        scaler.scale(sum((p * p).sum() for p in parameters)).backward()
        scaler.step(step)
        scaler.update()
    return parameters


def results(expression: str, device: str) -> list[torch.Tensor]:
    """The results of an expression, and the gradients of those operands that it depends on."""
    t = operands(device)
    made = eval(expression, {"torch": torch, "F": F, **t})
    made = [y for y in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(y, torch.Tensor)]
    smooth = [y for y in made if y.requires_grad]
    if not smooth:
        return made
    total = sum((y.abs() if y.is_complex() else y).float().sum() for y in smooth)
    needed = [x for x in t.values() if x.requires_grad]
    return made + [g for g in torch.autograd.grad(total, needed, allow_unused=True) if g is not None]


def problem(mine: list[torch.Tensor], right: list[torch.Tensor]) -> str:
    """How the results differ, or nothing. The bounds are those of halves, since some programs compute in them."""
    try:
        for x, y in zip(mine, right, strict=True):
            torch.testing.assert_close(x.cpu(), y, rtol=2e-2, atol=2e-2, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def main() -> None:
    """Run the programs of the families that the command line names, or all."""
    warnings.simplefilter("ignore")
    torch.autograd.set_multithreading_enabled(False)  # the simulator does not bear two threads
    runs = [
        (family, expression, lambda d, e=expression: results(e, d))
        for family, text in PROGRAMS.items()
        for expression in " ".join(text.split()).split("; ")
    ]
    runs += [("rnn", kind, lambda d, k=kind: rnn(k, d)) for kind in RNN]
    runs += [
        ("optimizers", f"{kind}, {fused=}", lambda d, k=kind, f=fused: optimizer(k, d, f))
        for kind in ("AdamW", "SGD")
        for fused in (False, True)
    ]
    for family, name, run in runs:
        if sys.argv[1:] and family not in sys.argv[1:]:
            continue
        torch.manual_seed(0)
        try:
            bad = problem(run("netcl"), run("cpu"))
        except Exception as error:
            bad = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        print(json.dumps([family, name, bad]), flush=True)


if __name__ == "__main__":
    main()
