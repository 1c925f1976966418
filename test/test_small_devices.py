"""Devices with tighter limits than a CPU's, which NETCL_DISABLE imitates: the results stay right, or an error says what
is missing. A process each, since a device's limits are read once."""

import math
import re
from pathlib import Path

from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests

KERNELS = Path(__file__).parent.parent / "kernels"

# Families whose launches have rows in y or matrices in z; equal(f, x, ...) compares with the CPU.
PROGRAM = """
import re, torch, torch.nn.functional as F
D = torch.device("netcl", 0)
torch.manual_seed(0)

def equal(f, *inputs):
    a = f(*(x.clone().requires_grad_(x.is_floating_point()) for x in inputs))
    b = f(*(x.to(D).requires_grad_(x.is_floating_point()) for x in inputs))
    torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-4)

def with_gradient(f):
    def g(x, *rest):
        y = f(x, *rest)
        return torch.autograd.grad(y.square().sum(), x)[0]
    return g
"""
GRIDS = """
x, i = torch.randn(90, 50, 7), torch.randint(0, 90, (70,))
image = torch.randn(3, 40, 9, 9)
equal(lambda x: x.transpose(1, 2) * 2 + 1, x)
equal(lambda x: torch.where(x[:, ::2] > 0, x[:, ::2], 0).tril(), x)
equal(lambda x: torch.bmm(x, x.mT), x)
equal(lambda x: torch.linalg.solve_triangular(torch.bmm(x.mT, x).tril() + 9 * torch.eye(7, device=x.device), x.mT,
                                              upper=False), x)
for dim in (0, 1, 2):
    for f in (torch.sum, torch.softmax, torch.cumsum, torch.amax, torch.var):
        equal(lambda x: f(x, dim), x)
        equal(with_gradient(lambda x: f(x, dim)), x)
equal(lambda x: x.sum(), torch.randn(300_000))
equal(lambda x: torch.fft.fft(x).abs(), x)
equal(lambda x, i: x[i].index_add(0, i[:70] % 70, x[i]), x, i)
equal(lambda x, i: x.gather(0, i[:, None, None].expand(70, 50, 7)), x, i)
equal(with_gradient(lambda w, i: F.embedding_bag(i.view(-1, 2), w)), x[:, :, 0].contiguous(), i)
equal(with_gradient(lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear")), image)
equal(with_gradient(lambda x: F.max_pool2d(F.pad(x, (1, 1, 1, 1), "reflect"), 3, 2)), image)
equal(with_gradient(lambda x: F.conv2d(x, torch.ones(8, 40, 3, 3, device=x.device) / 99)), image)
equal(with_gradient(lambda x: F.batch_norm(x, None, None, training=True).sigmoid()), image)
equal(with_gradient(lambda x: F.batch_norm(x, None, None, training=True).sigmoid()), torch.randn(4000, 40))
equal(with_gradient(lambda x: F.layer_norm(x, (7,)).sigmoid()), x)
equal(with_gradient(lambda x: F.scaled_dot_product_attention(x, x, x)), torch.randn(2, 40, 33, 8))
"""


def run(program, disable, **environment):
    """What a process with NETCL_DISABLE=disable writes: (stdout, stderr)."""
    env = {"NETCL_DISABLE": disable, "NETCL_COMPILE_NOTICE": "-1"} | environment
    done = python(PROGRAM + program, timeout=900, **env)
    log = "^netcl: launch .*\n"
    assert done.returncode == 0, re.sub(log, "", done.stderr, flags=re.M)[-4000:]
    return done.stdout, done.stderr


def launches(log):
    """(kernel, global size, local size) of each line of NETCL_LOG=launch."""
    found = re.findall(r"^netcl: launch (\w+) for .* global \[([\d, ]+)\], local \[([\d, ]+)\]$", log, re.M)
    return [(name, *(tuple(map(int, sizes.split(","))) for sizes in pair)) for name, *pair in found]


class TestSmallDevices(TestCase):
    def test_properties(self):
        program = "p = torch.netcl.get_device_properties(D)\nprint(p.local_mem_size, p.max_mem_alloc_size)"
        (whole_local, whole_buffer), (local, buffer) = (
            map(int, run(program, disable)[0].split()) for disable in ("", "local_memory_32k,large_buffers")
        )
        self.assertEqual(local, min(32 << 10, whole_local))
        self.assertEqual(buffer, min(1 << 30, whole_buffer))

    def test_other_numbers_of_units(self):
        """Work is split for one core and for many."""
        for units in ("1", "16", "128"):
            out, _ = run(GRIDS + "print(torch.netcl.get_device_properties(D).max_compute_units)", "",
                         NETCL_COMPUTE_UNITS=units)  # fmt: skip
            self.assertEqual(out, units + "\n")
        done = python("torch.ones(2, device='netcl')", NETCL_COMPUTE_UNITS="none")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("NETCL_COMPUTE_UNITS must be a number from 1 to 1048576, got none", done.stderr)

    def test_shares_of_many_units(self):
        """64 units get as many work-items of each launch, or a few more than a multiple; two keep the measured ones."""
        program = """
for *batch, m, k, n in ((300, 784, 1024), (24, 256, 64, 256)):
    equal(lambda a, b: a @ b, torch.randn(*batch, m, k), torch.randn(*batch, k, n))
    equal(lambda a, b: a.mT @ b.mT, torch.randn(*batch, k, m), torch.randn(*batch, n, k))
for shape in ((256, 1024), (70, 999)):
    x = torch.randn(shape)
    equal(lambda x: x.sum(0), x), equal(lambda x: x.argmax(0), x)
conv = torch.nn.functional.conv2d
equal(lambda x, w: conv(x, w, padding=1), torch.randn(4, 3, 64, 64), torch.randn(8, 3, 3, 3))
"""
        few, many = (launches(run(program, "", NETCL_COMPUTE_UNITS=units, NETCL_LOG="launch",
                                  NETCL_DEVICE_CLASS="cpu", NETCL_MATRIX_ENGINE="none")[1])
                     for units in ("2", "64"))  # fmt: skip
        items = {name: [math.prod(grid) for kernel, grid, _ in many if kernel == name] for name, *_ in many}
        for n in items["gemm_pack"]:
            self.assertLess(-(-n // 64) * 64 / n, 1.15, n)
        self.assertIn(24 * 13, items["gemm_fused"])  # 4.9 of 5 rounds; 24 * 11 would be 4.1
        self.assertGreaterEqual(items["reduce_outer"][0], 16)  # a sum over 256 rows of 1024
        self.assertGreaterEqual(max(items["conv_pad"]), 48)  # 7 of 8192 elements each on two units
        self.assertEqual([grid for kernel, grid, _ in few if kernel == "gemm_pack" and len(grid) == 3], [])
        self.assertEqual([math.prod(grid) for kernel, grid, _ in few if kernel == "reduce_outer"][0], 1)

    def test_large_buffers(self):
        program = """
try: torch.empty(1 + (1 << 30), dtype=torch.uint8, device=D)
except torch.OutOfMemoryError as e: print(e)
torch.netcl.empty_cache()
print(torch.ones(5, device=D).sum().item())
"""
        out, _ = run(program, "large_buffers")
        self.assertRegex(
            out, r"at once, but CL_DEVICE_MAX_MEM_ALLOC_SIZE of .* is 1.00 GiB. Split the tensor.(.|\n)*5.0"
        )

    def test_big_grids(self):
        """Launches with more groups in y or z than a device takes become several."""
        _, log = run(GRIDS, "big_grids", NETCL_DEVICE_CLASS="gpu", NETCL_LOG="launch")
        grids = launches(log)
        groups = [tuple(g // n for g, n in zip(grid, local, strict=True)) for _, grid, local in grids]
        self.assertGreater(len(groups), 300)
        self.assertEqual([grid for grid, n in zip(grids, groups, strict=True) if max(n[1:], default=0) > 16], [])
        self.assertGreater(sum(max(n[1:], default=0) == 16 for n in groups), 20)  # those that were split

    def test_work_groups(self):
        """Groups of 64 work-items with 16 KiB, the least that OpenCL's profiles of GPUs have."""
        program = """
for shape in ((2, 5, 5), (3, 40, 20), (70, 90), (100, 100)):
    a = torch.randn(shape)
    equal(lambda a: torch.linalg.svdvals(a), a)
    equal(lambda a: torch.linalg.qr(a).R.abs(), a)
    equal(lambda a: torch.linalg.lstsq(a, a[..., :1]).solution if a.size(-2) >= a.size(-1) else a, a)
    h = a @ a.mT / 9 + 5 * torch.eye(shape[-2])
    for f in (
        torch.linalg.eigvalsh, torch.linalg.cholesky, torch.linalg.matrix_exp, lambda h: torch.linalg.lu_factor(h)[0],
        lambda h: torch.linalg.ldl_factor(h)[0], torch.linalg.inv,
    ):
        equal(f, h / 9)
for x in (torch.ones(44, 40), torch.ones(8, 8), torch.zeros(5, 4)):
    equal(lambda x: torch.linalg.svd(x).S, x)  # columns without a length are completed; PoCL once crashed there
x = torch.randn(8, 5, 5) / 3
for _ in range(40):  # two threads of PoCL once wrote beyond their matrices, in one call of three
    equal(torch.linalg.matrix_exp, x)
for dim in (0, 1):
    for n in (3, 70, 5000):
        x = torch.randn(70, n)
        equal(lambda x: x.sort(dim)[0], x), equal(lambda x: x.topk(3, dim)[0], x), equal(lambda x: x.median(dim)[0], x)
"""
        run(GRIDS + program, "work_groups,local_memory", NETCL_DEVICE_CLASS="gpu")

    def test_local_memory_of_cpus(self):
        """Few rows keep their sums in the 32 KiB that OpenCL promises."""
        program = """
for rows in (3, 12, 31):
    for dtype in (torch.float, torch.half, torch.bfloat16, torch.double):
        a, b = torch.randn(rows, 600, dtype=dtype) / 16, torch.randn(600, 500, dtype=dtype)
        actual = (a.to(D) @ b.to(D)).cpu().double()
        torch.testing.assert_close(actual, a.double() @ b.double(), rtol=2e-2, atol=2e-2)
"""
        run(GRIDS + program, "local_memory_32k", NETCL_DEVICE_CLASS="cpu")

    def test_kernels_ask_for_no_group_in_y_and_z(self):
        """In a launch that was split, only get_global_id tells the place. The files here are for CPUs, where launches
        are not split."""
        asks = re.compile(r"\bget_(group_id|num_groups|global_size)\((?!0\))")
        files = {str(f.relative_to(KERNELS)) for f in KERNELS.rglob("*.*") if f.suffix in (".cl", ".h")}
        found = {f for f in files if asks.search((KERNELS / f).read_text()) and f != "common/builtins.h"}
        self.assertEqual(found, {"gemm/gemm_direct.cl", "conv/conv_gemm.cl"})

    def check_groups(self, disable, limit, most):
        """Kernels that do not ask for their group run in smaller ones; the others say what they want."""
        program = """
x = torch.randn(60, 90)
equal(lambda x: x.t() * 2 + x[:, :60].exp()[:1], x)
equal(lambda x: x.flip(0).triu(), x)
try: x.to(D).softmax(1).sum().item()
except RuntimeError as e: print(e)
"""
        out, log = run(program, disable, NETCL_DEVICE_CLASS="gpu", NETCL_LOG="launch")
        self.assertRegex(out, r"netcl: aten::_softmax: kernel softmax wants work-groups of \d+ x 1 x 1 work")
        self.assertRegex(out, limit)
        for name, grid, local in launches(log):
            self.assertLessEqual(max(local), most, name)
            self.assertEqual([g % n for g, n in zip(grid, local, strict=True)], [0] * len(grid), name)
        self.assertIn(most, [max(local) for _, _, local in launches(log)])

    def test_kernel_work_groups(self):
        self.check_groups("kernel_work_groups", r"allows 32 \(CL_KERNEL_WORK_GROUP_SIZE\)", 32)

    def test_work_item_sizes(self):
        self.check_groups("work_item_sizes", r"at most 16 x 16 x 16 \(CL_DEVICE_MAX_WORK_ITEM_SIZES\)", 16)

    def check_late_allocation(self, device_class, error):
        """512 MiB of memory, which buffers take at their first use."""
        program = """
def fill(mebibytes):
    return torch.full((mebibytes << 20,), 1, dtype=torch.uint8, device=D)

def in_turn():  # the second fits when the first's memory is returned to the driver
    a = fill(300)
    del a
    return fill(400)[-1].item()

print(in_turn())
a = fill(300)
try: b = fill(300); b.sum().item()
except torch.OutOfMemoryError as e: print(e)
a = b = None
print(in_turn())
"""
        out, _ = run(program, "early_allocation", NETCL_DEVICE_CLASS=device_class)
        self.assertRegex(out, rf"^1\n{error}(.|\n)*\n1\n$")

    def test_late_allocation_gpu(self):
        self.check_late_allocation(
            "gpu", r"netcl out of memory. Tried to allocate 300.00 MiB .*300.00 MiB are allocated"
        )

    def test_late_allocation_cpu(self):
        error = r"netcl: clEnqueueNDRangeKernel failed with CL_MEM_OBJECT_ALLOCATION_FAILURE \(-4\) while running fill"
        self.check_late_allocation("cpu", error)

    def test_new_memory_is_touched(self):
        """GPUs' drivers may allocate at the first use, so the allocator uses each new slab at once."""
        program = """
NETCL = torch.ops.netcl
torch.ones(5, device=D).sum().item()
for times in (0, 1, 9):
    torch.netcl.empty_cache()
    NETCL._inject_error("clEnqueueFillBuffer", -5, 0, times)
    try: x = torch.empty(30 << 20, dtype=torch.uint8, device=D); x = None
    except torch.OutOfMemoryError as e: print(str(e).split(" (")[-1].split(")")[0], end=" ")
    print(NETCL._end_injection()["clEnqueueFillBuffer"])
"""
        out, _ = run(program, "", NETCL_DEVICE_CLASS="gpu")
        self.assertEqual(out, "1\n2\nCL_OUT_OF_RESOURCES 3\n")

    def test_pinned_memory(self):
        """GPUs map pinned memory, and keep it for the next tensor of about its size."""
        program = """
NETCL = torch.ops.netcl
before = torch.ones(5).pin_memory()  # the drivers have not started
torch.ones(5, device=D).sum().item()
keys = "clCreateBuffer", "clEnqueueMapBuffer", "clEnqueueUnmapMemObject"
def step(f, error="", code=0):
    NETCL._inject_error(error, code, 0)
    f()
    counts = NETCL._end_injection()
    print(*(counts[k] for k in keys))
def copies(n):
    host = torch.full((n,), 3.0).pin_memory()
    x = host.to(D, non_blocking=True)
    back = torch.zeros(n).pin_memory()
    back.copy_(x + 1, non_blocking=True)
    torch.netcl.synchronize()
    assert back.eq(4).all() and host.is_pinned()
copies(500), torch.accelerator.memory.empty_host_cache()
step(lambda: copies(500))
step(lambda: copies(700))  # the same two blocks
step(torch.accelerator.memory.empty_host_cache)
step(lambda: copies(500), "clEnqueueMapBuffer", -12)  # one is ordinary memory
assert before.is_pinned() and not torch.ones(3).is_pinned()
"""
        out, _ = run(program, "", NETCL_DEVICE_CLASS="gpu")
        self.assertEqual(out.split("\n"), ["2 2 0", "0 0 0", "0 0 2", "2 2 0", ""])


if __name__ == "__main__":
    run_tests()
