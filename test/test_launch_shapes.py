"""The launches of GPU-shaped kernels: a GPU runs 32 or 64 work-items of a work-group in step, so a launch of many
work-items in smaller groups leaves most of its lanes idle. On CPUs a work-group is one work-item."""

import collections
import json
import math
import os
import re
import subprocess
import sys
import unittest

from torch.testing._internal.common_utils import TestCase, run_tests

LEAST_GROUP = 32  # work-items per work-group,
MANY = 1024  # for launches of more work-items than this

# Operators of each family, on tensors with so many rows, pixels, matrices or steps that each launch has MANY items even
# if an item takes a whole row.
PROGRAMS = {
    "convolution": """
for shape, out, k, groups, stride in (
    ((2, 8, 40, 40), 16, 3, 1, 1), ((2, 8, 40, 40), 3, 3, 1, 2), ((2, 40, 40, 40), 40, 3, 40, 1),
    ((64, 8, 8, 8), 300, 3, 1, 1), ((1, 64, 3, 3), 512, 3, 1, 1),
):
    for last in (False, True):
        x = torch.randn(shape, device=D)
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        w = torch.randn(out, shape[1] // groups, k, k, device=D, requires_grad=True)
        F.conv2d(x.requires_grad_(), w, torch.randn(out, device=D), stride, 1, 1, groups).sum().backward()
F.conv3d(torch.randn(2, 8, 16, 16, 16, device=D), torch.randn(8, 8, 3, 3, 3, device=D), padding=1)
F.conv_transpose2d(torch.randn(2, 8, 20, 20, device=D), torch.randn(8, 8, 4, 4, device=D), stride=2, padding=1)
""",
    "padding": """
for mode in ("reflect", "replicate", "circular", "constant"):
    x = torch.randn(8, 40, 20, 20, device=D, requires_grad=True)
    F.pad(x, (1, 2, 2, 1), mode=mode).sum().backward()
x = torch.randn(8, 8, 20, 20, device=D, requires_grad=True)
F.fold(F.unfold(x, 3, padding=1), (20, 20), 3, padding=1).sum().backward()
""",
    "pooling": """
x = torch.randn(16, 96, 12, 12, device=D, requires_grad=True)
for f in (
    lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 2), lambda x: F.adaptive_avg_pool2d(x, 5),
    lambda x: F.adaptive_max_pool2d(x, 5), lambda x: F.fractional_max_pool2d(x, 2, output_size=5),
    lambda x: F.lp_pool2d(x, 2, 2), lambda x: F.max_pool3d(x[:, :, None], (1, 2, 2)),
):
    f(x).sum().backward()
y, i = F.max_pool2d(x, 2, return_indices=True)
F.max_unpool2d(y, i, 2)
""",
    "matrices": """
torch.randn(60, 20000, device=D) @ torch.randn(20000, 70, device=D)
torch.randn(9, 300, device=D) @ torch.randn(300, 4000, device=D)
torch.randn(2000, 300, device=D) @ torch.ones(300, device=D)
torch.bmm(torch.randn(3000, 5, 5, device=D), torch.randn(3000, 5, 5, device=D))
a = torch.randn(2000, 4, 4, device=D)
spd = a @ a.mT + 9 * torch.eye(4, device=D)
torch.linalg.cholesky(spd), torch.linalg.lu_factor(spd), torch.linalg.solve(spd, a)
torch.cdist(torch.randn(2000, 8, device=D), torch.randn(3, 8, device=D)), F.pdist(torch.randn(60, 8, device=D))
""",
    "quantised": """
a = torch.randint(-9, 9, (2000, 64), dtype=torch.int8, device=D)
torch._int_mm(a, a[:64].T.contiguous())
for rows in (4, 40):
    torch._weight_int8pack_mm(torch.randn(rows, 64, device=D), a, torch.rand(2000, device=D))
""",
    "norms": """
for layer, shape in (
    (torch.nn.BatchNorm2d(64), (4, 64, 9, 9)), (torch.nn.LayerNorm(30), (2000, 30)),
    (torch.nn.GroupNorm(4, 64), (400, 64, 9)),
    (torch.nn.InstanceNorm2d(64), (40, 64, 5, 5)), (torch.nn.RMSNorm(30), (2000, 30)),
):
    x = torch.randn(shape, device=D, requires_grad=True)
    layer.to(D)(x).sum().backward()
for dim in (0, 1):
    x = torch.randn(2000, 40, device=D, requires_grad=True)
    (x.softmax(dim) + x.log_softmax(dim)).sum().backward()
""",
    "losses": """
logits = torch.randn(50, 40, 20, device=D).log_softmax(2).requires_grad_()
targets = torch.randint(1, 20, (40, 10), device=D)
F.ctc_loss(logits, targets, [50] * 40, [10] * 40).backward()
x, c = torch.randn(3000, 9, device=D, requires_grad=True), torch.randint(0, 9, (3000,), device=D)
(F.cross_entropy(x, c) + F.multi_margin_loss(x, c) + F.binary_cross_entropy(x.sigmoid(), x.detach() * 0)).backward()
F.cross_entropy(x, c, reduction="none").sum().backward()
""",
    "indices": """
x, i = torch.randn(3000, 5, device=D), torch.randint(0, 3000, (4000,), device=D)
x[i], x.index_add(0, i, x[i]), x.scatter_add(0, i[:, None].expand(4000, 5), x[i]), x.gather(0, i[:, None]), x[x > 0]
x.index_fill(0, i, 1), x.masked_fill(x > 0, 1), torch.nonzero(x), x.flip(0), x.roll(3, 0), x.tril(), torch.cat([x, x])
x.scatter_reduce(0, i[:2000, None], x[:2000, :1], "amax"), torch.repeat_interleave(i, 3)
x.take(i), torch.bincount(i), x.unique()
table = torch.nn.Embedding(3000, 5, device=D)
table(i).sum().backward(), F.embedding_bag(i.view(-1, 2), x.requires_grad_()).sum().backward()
x = x.detach()
x.sort(0), x.sort(1), x.topk(3, 1), x.kthvalue(2, 1), x.median(1)
x.cumsum(0), x.cumsum(1), x.cummax(0), x.unfold(0, 4, 2)
torch.searchsorted(x[:, 0].sort().values, x), torch.bucketize(x, x[0].sort().values), torch.segment_reduce(
    x, "mean", lengths=torch.full((1000,), 3, device=D))
jagged = torch.nested.nested_tensor([x[:90]] * 30, layout=torch.jagged, requires_grad=True)
torch.nested.to_padded_tensor(jagged, 0.0).sum().backward()
""",
    "images": """
x = torch.randn(4, 8, 40, 40, device=D, requires_grad=True)
for mode in ("nearest", "bilinear", "bicubic"):
    F.interpolate(x, scale_factor=1.5, mode=mode).sum().backward()
F.interpolate(x[:1, :1], size=(1500, 9), mode="bicubic", antialias=True).sum().backward()
F.interpolate(x[:1, :1].byte(), size=(1500, 9), mode="bilinear")
F.grid_sample(x, torch.rand(4, 40, 40, 2, device=D), align_corners=False).sum().backward(), F.pixel_shuffle(x, 2)
""",
    "sequences": """
for layer in (torch.nn.LSTM(8, 40), torch.nn.GRU(8, 40), torch.nn.RNN(8, 40)):
    layer.to(D)(torch.randn(5, 40, 8, device=D))[0].sum().backward()
q = torch.randn(8, 8, 40, 16, device=D, requires_grad=True)
F.scaled_dot_product_attention(q, q, q, is_causal=True, dropout_p=0.1).sum().backward()
""",
    "elements": """
x = torch.randn(3000, 5, device=D)
for y in (x, x.T, x[:, ::2], x.half(), x.bfloat16(), x.long(), x + 1j):
    (y * 2 + 1).sum(), (y + y).sum(0), (y * y).mean(1) if y.dtype.is_floating_point else None
x.argmax(1), x.std(0), x.amax(), x.prod(1), x.norm(dim=1), x.logsumexp(1), x.any(1)
x.count_nonzero(0), x.double().float()
torch.rand(5000, device=D), torch.randperm(5000, device=D), torch.poisson(x.abs())
F.dropout(x), torch.multinomial(x.abs(), 2)
torch.fft.fft(x), torch.fft.rfft(torch.randn(2000, 30, device=D)), torch.special.i0e(x), torch.igamma(x.abs(), x.abs())
torch._foreach_norm([torch.ones(9, device=D) for _ in range(1500)])
w = [torch.nn.Parameter(torch.randn(70, 30, device=D)) for _ in range(40)]
for fused in (False, True):
    optimizer = torch.optim.AdamW(w, fused=fused, foreach=not fused)
    scaler = torch.amp.GradScaler("netcl")
    scaler.scale(sum(v.square().sum() for v in w)).backward()
    scaler.step(optimizer), scaler.update()
""",
}


# Kernels that share out what one work-item per plane, row or matrix would do alone: the least work-items of a launch.
SHARED = """
x = torch.randn(2, 3, 40, 40, device=D, requires_grad=True)
y, i = F.max_pool2d(x, 2, return_indices=True)
y.sum().backward(), F.max_unpool2d(y, i, 2)
x = torch.randn(200, 300, device=D)
x.nonzero(), x.masked_select(x > 0), x.masked_scatter_(x > 0, x.clone())
a = torch.randn(70, 70, device=D)
torch.linalg.cholesky(a @ a.mT + 9 * torch.eye(70, device=D)), torch.linalg.lu_factor(a)
torch.linalg.solve_triangular(a, a[:, :1], upper=True)
steps = torch.randn(50, 4, 20, device=D).log_softmax(2).requires_grad_()
F.ctc_loss(steps, torch.randint(1, 20, (4, 10), device=D), [50] * 4, [10] * 4).backward()
torch.randn(20000, 4, device=D).cumsum(0)
torch.use_deterministic_algorithms(True)
x.index_put_((torch.randint(0, 200, (700,), device=D),), torch.randn(700, 300, device=D))
"""
LEAST_ITEMS = {
    "pool_max_backward": 2 * 3 * 40 * 40,
    "indexed": 2 * 3 * 20 * 20,
    "count": 200 * 300 // 8,
    "positions": 200 * 300 // 8,
    "move": 200 * 300 // 8,
    "cholesky_block": 64,
    "lu_panel": 64,
    "lu_block": 64,
    "solve_block": 32,
    "ctc_scan": 4 * 64,
    "ctc_gradient_group": 50 * 4 * 64,
    "scan_group": 1024,
    "last_rows": 700 * 300,
}


def launches(programs: dict[str, str]) -> tuple[int, str]:
    """The exit status and the log of programs in a process that has GPU-shaped kernels."""
    code = "import json, sys, torch, torch.nn.functional as F\nD = torch.device('netcl', 0)\n"
    code += "for name, program in json.load(sys.stdin).items():\n"
    code += "    exec(program, globals()), torch.netcl.synchronize()\n"
    env = os.environ | {"NETCL_DEVICE_CLASS": "gpu", "NETCL_LOG": "launch", "NETCL_CPU_FALLBACK": "silent"}
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(programs), env=env, capture_output=True, text=True
    )
    return done.returncode, done.stderr


def narrow(log: str) -> list[str]:
    """The launches in a log of NETCL_LOG=launch with small work-groups for many work-items."""
    found = []
    for m in re.finditer(r"^netcl: launch .* global \[([\d, ]+)\], local \[([\d, ]+)\]$", log, re.M):
        items, group = (math.prod(map(int, sizes.split(","))) for sizes in m.groups())
        if items > MANY and group < LEAST_GROUP:
            found.append(m[0])
    return found


class TestLaunchShapes(TestCase):
    def test_log_is_read(self):
        line = "netcl: launch k for aten::x on netcl:0 stream 0, global [{}], local [{}]\n"
        log = line.format("1025", "1") + line.format("512, 4", "8, 2") + line.format("1024", "1")
        self.assertEqual(len(narrow(log + line.format("4096, 3", "32, 1"))), 2)

    def test_no_narrow_work_groups(self):
        status, log = launches(PROGRAMS)
        rest = re.sub(r"^netcl: launch .*\n", "", log, flags=re.M)
        self.assertEqual(status, 0, rest[-3000:])
        self.assertGreater(len(set(re.findall(r"^netcl: launch (\w+) ", log, re.M))), 80)  # kernels
        counts = collections.Counter(re.sub(r" stream.*global", " global", x) for x in narrow(log))
        self.assertEqual(list(counts), [])

    @unittest.skipIf("work_groups" in os.environ.get("NETCL_DISABLE", ""), "smaller work-groups share otherwise")
    def test_work_is_shared(self):
        status, log = launches({"shared": SHARED})
        self.assertEqual(status, 0, log[-3000:])
        least = {}
        for name, sizes in re.findall(r"^netcl: launch (\w+) for .* global \[([\d, ]+)\]", log, re.M):
            items = math.prod(map(int, sizes.split(",")))
            least[name] = min(items, least.get(name, items))
        self.assertEqual({k: v for k, v in LEAST_ITEMS.items() if least.get(k, 0) < v}, {}, least)


if __name__ == "__main__":
    run_tests()
