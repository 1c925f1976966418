"""The tiles of a GPU's matrix multiplication, and the tuner that chooses among them."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

ops = torch.ops.netcl
FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestTiles(TestCase):
    def test_every_tile_multiplies(self):
        # Complex products use the GPU kernel on every device.
        index, dtype = torch.netcl.current_device(), torch.complex64
        before = ops.gemm_tile(index, dtype)
        self.addCleanup(ops.set_gemm_tile, index, dtype, before, False)
        a, b = torch.randn(70, 45, dtype=dtype), torch.randn(45, 150, dtype=dtype)
        tiles = ops.gemm_tiles(index, dtype)
        self.assertIn(before, tiles)
        # Compiling takes long, so the quick tier tests only the last tile of a non-square group, and the smallest.
        for tile in tiles if FULL else [t for t in tiles if t[0] != t[1]][-1:] + tiles[-1:]:
            ops.set_gemm_tile(index, dtype, tile, False)
            self.assertEqual(ops.gemm_tile(index, dtype), tile)
            self.assertEqual((a.to("netcl") @ b.to("netcl")).cpu(), a @ b, msg=str(tile))

    def test_unknown_tile(self):
        with self.assertRaisesRegex(ValueError, "gemm_tiles"):
            ops.set_gemm_tile(torch.netcl.current_device(), torch.float32, [1024, 1024, 8, 8, 16], False)
        with self.assertRaisesRegex(ValueError, "gemm_tiles"):
            ops.set_gemm_tile(torch.netcl.current_device(), torch.float32, [16], False)


SMALL = """
import torch
torch.manual_seed(0)
p = torch.netcl.get_device_properties()
assert (p.max_work_group_size, p.local_mem_size, p.device_class) == (64, 16 << 10, "gpu"), p
for dtype in (torch.float32, torch.complex64) + (torch.complex128,) * p.has_fp64:  # the widest asks for most
    a, b = torch.randn(70, 45, dtype=dtype), torch.randn(45, 90, dtype=dtype)
    torch.testing.assert_close((a.netcl() @ b.netcl()).cpu(), a @ b)
x = torch.randn(300, 700)
# In whatever order, each of up to 700 additions rounds by at most 2^-24 of a partial sum, which no sum of
# absolute values is below; a number left out would show as about 1, twenty times as much.
sums = dict(rtol=0, atol=2 * 700 * 2**-24 * float(x.abs().sum(1).max()))
for f in (lambda t: t.sum(1), lambda t: t.sum(0), lambda t: t.cumsum(1)):
    torch.testing.assert_close(f(x.netcl()).cpu(), f(x), **sums)
# Values of size 1, made of sums of up to 700 of those.
close = dict(rtol=0, atol=2 * 700 * 2**-24)
for f in (lambda t: t.var(1), lambda t: t.amax(0), lambda t: t.softmax(1),
          lambda t: torch.nn.functional.layer_norm(t, (700,))):
    torch.testing.assert_close(f(x.netcl()).cpu(), f(x), **close)
conv = torch.nn.Conv2d(3, 8, 3, padding=1)
image = torch.randn(2, 3, 16, 16)
want = conv(image)
torch.testing.assert_close(conv.netcl()(image.netcl()).cpu(), want, **close)
q = torch.randn(2, 2, 33, 16)
sdpa = torch.nn.functional.scaled_dot_product_attention
torch.testing.assert_close(sdpa(q.netcl(), q.netcl(), q.netcl()).cpu(), sdpa(q, q, q), **close)
print("right")
"""

# The numbers are integers, so every dtype is exact except for the rounding of the result. Sizes fill tiles or do not,
# and layouts allow whole vectors or do not.
EVERY_TILE = """
import itertools, sys, torch
ops = torch.ops.netcl
full = sys.argv[1] == "full"
fp64 = torch.netcl.get_device_properties().has_fp64
generator = torch.Generator().manual_seed(0)

def operand(shape, dtype, layout):
    x = torch.randint(-4, 5, (*shape[:-2], 2 * shape[-2] + 8, 2 * shape[-1] + 8), generator=generator).to(dtype)
    if layout == "transposed":
        return operand((*shape[:-2], shape[-1], shape[-2]), dtype, "rows").mT
    cut = {"rows": (0, 1), "offset": (1, 1), "steps": (0, 2)}[layout]
    return x[..., : shape[-2], cut[0] : cut[0] + shape[-1] * cut[1] : cut[1]]

def on_device(x):  # with the same strides
    base = x._base if x._base is not None else x
    return base.netcl().as_strided(x.size(), x.stride(), x.storage_offset())

def check(dtype, tile):
    sizes = [(128, 128, 64), (257, 131, 67), (5, 200, 16), (300, 3, 129)]
    layouts = ["rows", "transposed", "offset", "steps"]
    for (m, n, k), (i, la), (j, lb) in itertools.product(sizes, enumerate(layouts), enumerate(layouts)):
        if m == 5 and i != j or m == 300 and (i + j) % 4:
            continue
        for batch in ((), (16,)) if i == j else ((),):  # enough tiles for any device to take those that are set
            a, b = operand((*batch, m, k), dtype, la), operand((*batch, k, n), dtype, lb)
            wide = torch.int64 if not dtype.is_floating_point else torch.float64
            want = (a.to(wide) @ b.to(wide)).to(dtype)
            got = (on_device(a) @ on_device(b)).cpu()
            assert torch.equal(got, want), (dtype, tile, m, n, k, la, lb, batch)
    a, b = operand((130, 40), dtype, "rows"), operand((40, 70), dtype, "rows")
    for d in (operand((130, 70), dtype, "transposed"), operand((1, 70), dtype, "rows")[0]):
        out = torch.empty(70, 130, dtype=dtype, device="netcl").t()
        torch.addmm(on_device(d), on_device(a), on_device(b), beta=2, alpha=3, out=out)
        want = (2 * d.to(wide) + 3 * (a.to(wide) @ b.to(wide))).to(dtype)
        assert torch.equal(out.cpu(), want), (dtype, tile, d.shape)

more = (torch.float16, torch.int64) + (torch.float64,) * fp64
for dtype in (torch.float32, torch.bfloat16, torch.int8) + more * full:
    acc = {torch.int8: torch.int32, torch.bfloat16: torch.float32, torch.float16: torch.float32}.get(dtype, dtype)
    tiles = ops.gemm_tiles(0, acc)
    quick = {torch.float32: tiles[:1], torch.bfloat16: tiles[:1]}.get(dtype, [ops.gemm_tile(0, acc)])
    for tile in tiles if full and dtype in (torch.float32, torch.bfloat16) else quick:
        ops.set_gemm_tile(0, acc, tile, False)
        check(dtype, tile)
print("right")
"""


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestOtherDevices(TestCase):
    def run_python(self, *command, **env):
        run = subprocess.run(
            [sys.executable, *command], env={**os.environ, "NETCL_DEVICE_CLASS": "gpu", **env},
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        self.assertEqual(run.returncode, 0, msg=run.stdout + run.stderr)
        return run.stdout

    def test_small_groups_and_little_local_memory(self):
        """Kernels need no more than OpenCL's smallest devices have; otherwise the runtime says so."""
        mask = ",".join(filter(None, [os.environ.get("NETCL_DISABLE", ""), "work_groups", "local_memory"]))
        self.assertIn("right", self.run_python("-c", SMALL, NETCL_DISABLE=mask))

    def test_layouts_and_edges_of_every_tile(self):
        self.assertIn("right", self.run_python("-c", EVERY_TILE, "full" if FULL else "quick"))

    def test_winner_is_kept(self):
        show = "import torch; print(torch.ops.netcl.gemm_tile(0, torch.float32))"
        with tempfile.TemporaryDirectory() as folder:
            env = dict(NETCL_CACHE_DIR=folder, NETCL_DISABLE="work_groups,local_memory")  # which leaves few candidates
            out = self.run_python("-m", "torch_netcl.tune", "--size", "64", "--samples", "1", **env)
            self.assertNotIn("not used", out)
            x, y, width, height, depth = map(int, re.findall(r"\d+", out.splitlines()[-1]))
            self.assertEqual(self.run_python("-c", show, **env).strip(), str([x, y, width // x, height // y, depth]))


if __name__ == "__main__":
    run_tests()
