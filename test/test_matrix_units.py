"""Products and convolutions on a GPU's matrix units (kernels/gemm/gemm_units.h, csrc/aten/gemm/MatrixUnits.cpp).

The units are emulated: everything but the instruction runs as on a GPU, with the distribution of the elements over
work-items that the instruction's vendor documents. In the shape for CPUs, TestInGpuShape runs the tests in a process
with NETCL_DEVICE_CLASS=gpu.
"""

import os
import subprocess
import sys
import unittest
import warnings

import torch
import torch.nn.functional as F
from processes import python
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

ops = torch.ops.netcl
D = torch.device("netcl", 0)
PROPERTIES = torch.netcl.get_device_properties(0) if torch.netcl.is_available() else None
IN_GPU_SHAPE = PROPERTIES is not None and PROPERTIES.device_class == "gpu"
# The tiles need work-groups of 128 work-items and more than 16 KiB, so a device with less runs other kernels.
HAS_ROOM = IN_GPU_SHAPE and PROPERTIES.max_work_group_size >= 128 and PROPERTIES.local_mem_size >= 32 << 10
NO_ROOM = "in the shape for CPUs, where TestInGpuShape runs these tests, or the device has no room for the tiles"
IS_POCL = PROPERTIES is not None and "Portable" in PROPERTIES.platform_name
FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
ENGINES = ("mma_sm80", "wmma", "mfma_cdna2", "dpas")


def whole(shape, seed, dtype=torch.float16, top=4):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-top, top + 1, shape, generator=g).to(dtype)


def orders(t):
    """The matrix with contiguous columns, with contiguous rows, with a row's end and start that no vector divides."""
    yield t
    yield t.mT.contiguous().mT
    yield torch.cat([t, t[..., :1]], -1)[..., :-1]


def programs(name="gemm_units"):
    """The programs of a kernel so far."""
    return [line for line in ops.programs_in_use() if name in line]


class UnitCase(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(ops.set_matrix_engine, 0, "none")

    def use(self, engine, precision="highest"):
        before = torch.get_float32_matmul_precision()
        self.addCleanup(torch.set_float32_matmul_precision, before)
        torch.set_float32_matmul_precision(precision)
        name = f"emulated_{engine}"
        if ops.matrix_engine(0) != name:  # setting one compares products with the CPU's
            self.assertEqual(ops.set_matrix_engine(0, name), name)

    def check(self, function, *tensors):
        """The sums are integers below 2^24, so the only rounding is that of the result."""
        actual = function(*(t.to(D) for t in tensors)).cpu()
        expected = function(*(t.float() for t in tensors)).to(actual.dtype)
        self.assertEqual(actual, expected, atol=0, rtol=0)


@unittest.skipUnless(HAS_ROOM, NO_ROOM)
class TestProducts(UnitCase):
    @parametrize("engine", ENGINES)
    def test_edges_and_memory_orders(self, engine):
        self.use(engine)
        for shape in [(130, 72, 64), (9, 200, 33), (257, 65, 7), (64, 64, 0), (8, 8, 1), (70, 8, 96)]:
            m, n, k = shape
            for x in orders(whole((m, k), 1)):
                for y in orders(whole((k, n), 2)):
                    self.check(torch.mm, x, y)
        self.assertTrue(programs())

    @parametrize("engine", ENGINES)
    def test_batches_addends_and_slices(self, engine):
        self.use(engine)
        x, y = whole((3, 65, 97), 3), whole((3, 97, 90), 4)
        self.check(torch.bmm, x, y)
        self.check(torch.matmul, x, whole((97, 90), 5))
        self.check(lambda b, x, y: torch.baddbmm(b, x, y, beta=2, alpha=3), whole((3, 1, 90), 6), x, y)
        self.check(lambda b, x, y: torch.baddbmm(b, x, y, beta=2, alpha=3), whole((3, 65, 90), 6), x, y)
        self.check(F.linear, whole((2, 70, 97), 7), whole((80, 97), 8), whole((80,), 9))
        self.check(lambda x, y: torch.mm(x, y.mT).mT, whole((40, 33), 7), whole((90, 33), 8))  # C by columns
        self.check(torch.mm, whole((20, 5000), 3, top=1), whole((5000, 24), 4, top=1))  # split along k

    def test_bfloat16_and_tf32(self):
        for dtype, precision in ((torch.bfloat16, "highest"), (torch.float32, "high"), (torch.float32, "medium")):
            self.use("mma_sm80", precision)
            for x in orders(whole((130, 50), 1, dtype)):
                for y in orders(whole((50, 72), 2, dtype)):
                    self.check(torch.mm, x, y)

    def test_precision_of_float(self):
        self.use("mma_sm80", "high")
        g = torch.Generator().manual_seed(1)
        x, y = torch.randn(70, 96, generator=g), torch.randn(96, 80, generator=g)
        terms, exact = x.abs().double() @ y.abs().double(), x.double() @ y.double()

        def worst(precision):
            torch.set_float32_matmul_precision(precision)
            return (((x.to(D) @ y.to(D)).cpu() - exact).abs() / terms).max().item()

        sums = 96 * 2.0**-24
        self.assertLess(worst("highest"), sums)
        # tf32 has 11 significant bits, so each operand's rounding is at most 2^-11 of it.
        self.assertLess(worst("high"), sums + 2 * 2.0**-11 + 2.0**-22)
        self.assertGreater(worst("high"), sums)

    @parametrize("engine", ENGINES)
    def test_inf_and_nan(self, engine):
        for dtype in (torch.float16,) + (torch.float32,) * (engine == "mma_sm80"):
            self.use(engine, "high")
            x, y = whole((80, 90), 1, dtype), whole((90, 96), 2, dtype)
            x[3, 5] = float("inf")
            x[17, 40] = -float("inf")
            x[40, 2] = float("nan")
            y[5, 7] = 0  # Inf * 0
            expected, actual = x.float() @ y.float(), (x.to(D) @ y.to(D)).float().cpu()
            self.assertEqual(actual, expected, atol=0, rtol=0)
            self.assertTrue(expected.isnan().any() and expected.isinf().any() and expected.isfinite().any())

    def test_other_types_are_portable(self):
        self.use("mma_sm75")
        before = programs()
        for dtype in (torch.bfloat16, torch.float32, torch.float64, torch.int32):
            if dtype == torch.float64 and not torch.netcl.get_device_properties(0).has_fp64:
                continue
            self.check(torch.mm, whole((70, 40), 1, dtype), whole((40, 90), 2, dtype))
        self.check(torch.mm, whole((3, 40), 1), whole((40, 90), 2))  # few rows
        self.check(lambda x, y: torch.mm(x[:, ::2], y), whole((70, 80), 1), whole((40, 90), 2))  # nothing is adjacent
        self.assertEqual(programs(), before)


# Function, sizes of input and weight, options. On either side of a tile, of a block of k, and of the vectors of
# channels that a work-item reads: 8, 4, 2 or 1.
CONVOLUTIONS = (
    (F.conv2d, (2, 16, 13, 11), (24, 16, 3, 3), {"padding": 1}),
    (F.conv2d, (2, 20, 17, 15), (70, 10, 3, 3), {"groups": 2, "stride": 2, "dilation": 2, "padding": (2, 3)}),
    (F.conv2d, (3, 12, 9, 9), (65, 12, 3, 2), {}),
    (F.conv2d, (2, 9, 16, 16), (8, 9, 2, 2), {"stride": 3}),  # in the gradient of the input, pixels without taps
    (F.conv2d, (1, 40, 5, 5), (96, 40, 3, 3), {}),  # 9 pixels: the weight is gathered
    (F.conv2d, (2, 16, 5, 5), (96, 16, 3, 3), {}),  # 2 x 9 pixels: neighbouring columns are of two images
    (F.conv2d, (1, 96, 5, 5), (16, 96, 3, 3), {"stride": (2, 1), "padding": 1}),  # or of two rows, in the gradient
    (F.conv2d, (1, 16, 5, 5), (16, 16, 1, 1), {"stride": 2}),
    (F.conv2d, (3, 8, 40, 41), (8, 8, 3, 3), {}),  # the gradient of the weight is split along k
    (F.conv1d, (2, 16, 50), (32, 16, 5), {"padding": 2}),
    (F.conv3d, (1, 8, 5, 6, 7), (16, 8, 2, 3, 3), {"padding": 1}),
    (F.conv_transpose2d, (2, 16, 7, 9), (16, 24, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    (F.conv_transpose2d, (2, 32, 7, 9), (32, 9, 4, 4), {"groups": 2, "dilation": 2}),
)


@unittest.skipUnless(HAS_ROOM, NO_ROOM)
class TestConvolutions(UnitCase):
    def setUp(self):
        super().setUp()
        # If the check at the first use finds something wrong, it warns, and the portable kernel computes the rest.
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("error")

    def check_all(self, case, dtype, memory_format=torch.contiguous_format):
        """The result and all gradients, of integers: what is not exact is only the rounding of the result."""
        function, size, weight, options = case
        outputs = weight[1] * options.get("groups", 1) if function == F.conv_transpose2d else weight[0]
        tensors = [whole(s, i, dtype, top=2) for i, s in enumerate((size, weight, (outputs,)))]
        last = memory_format != torch.contiguous_format
        results = []
        for device, kind in (("cpu", torch.float32), (D, dtype)):
            leaves = [t.to(device, kind, copy=True).requires_grad_() for t in tensors]
            x, w = (t.to(memory_format=memory_format) if last else t for t in leaves[:2])
            y = function(x, w, leaves[2], **options)
            y.backward(whole(y.shape, 4, dtype, top=1).to(device, kind))
            results.append([t.detach().cpu().to(dtype) for t in (y, *(t.grad for t in leaves))])
        for name, expected, actual in zip(("result", "input", "weight", "bias"), *results, strict=True):
            self.assertEqual(actual, expected, atol=0, rtol=0, msg=lambda m, name=name: f"{case} {dtype} {name}: {m}")

    @parametrize("engine", ENGINES)
    def test_forward_and_gradients(self, engine):
        self.use(engine)
        portable = programs("conv_tiled")
        for case in CONVOLUTIONS:
            self.check_all(case, torch.float16)
        self.assertTrue(programs("conv_units"))
        self.assertEqual(programs("conv_tiled"), portable)

    @parametrize("engine", ENGINES)
    def test_channels_last(self, engine):
        self.use(engine)
        portable = programs("conv_tiled")
        for case in CONVOLUTIONS:
            memory_format = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(case[1]))
            if memory_format:
                self.check_all(case, torch.float16, memory_format)
        self.assertEqual(programs("conv_tiled"), portable)

    @parametrize("engine", ENGINES)
    def test_bfloat16(self, engine):
        self.use(engine)
        portable = programs("conv_tiled")
        for memory_format in (torch.contiguous_format, torch.channels_last):
            self.check_all(CONVOLUTIONS[0], torch.bfloat16, memory_format)
        self.assertTrue([line for line in programs("conv_units") if "INA=bf16" in line])
        self.assertEqual(programs("conv_tiled"), portable)

    @parametrize("engine", ENGINES)
    def test_inf_and_nan_reach_only_their_sums(self, engine):
        """The last taps fill no block, and what lies after them is not 0."""
        self.use(engine)
        for memory_format in (torch.contiguous_format, torch.channels_last):
            x, w = whole((1, 12, 9, 9), 1), whole((16, 12, 3, 3), 2)
            x[0, 3, 2, 2], x[0, 11, 8, 8], w[5, 11, 2, 2] = float("inf"), float("nan"), float("inf")
            expected = F.conv2d(x.float(), w.float())
            actual = F.conv2d(*(t.to(D).to(memory_format=memory_format) for t in (x, w)))
            self.assertEqual(actual.float().cpu(), expected, atol=0, rtol=0)
            self.assertTrue(expected.isnan().any() and expected.isinf().any() and expected.isfinite().any())

    def test_float_is_not_rounded(self):
        """set_float32_matmul_precision is about products of matrices, and cudnn.allow_tf32 is on by default."""
        g = torch.Generator().manual_seed(1)
        for precision in ("highest", "high", "medium"):
            self.use("mma_sm80", precision)
            for kernel in (1, 3):
                x, w = torch.randn(2, 16, 12, 12, generator=g), torch.randn(24, 16, kernel, kernel, generator=g)
                exact, terms = F.conv2d(x.double(), w.double()), F.conv2d(x.abs().double(), w.abs().double())
                error = (F.conv2d(x.to(D), w.to(D)).cpu() - exact).abs() / terms
                self.assertLess(error.max().item(), 16 * kernel**2 * 2.0**-24)  # tf32's would be up to 2^-10

    def test_what_is_portable(self):
        self.use("mma_sm75")
        before = programs("conv_units")
        for dtype in (torch.bfloat16, torch.float32):
            self.check_all(CONVOLUTIONS[0], dtype)
        ops.set_matrix_engine(0, "none")
        self.check_all(CONVOLUTIONS[0], torch.float16)
        self.assertEqual(programs("conv_units"), before)


@unittest.skipIf(IS_POCL and not FULL, "PoCL compiles an emulated unit for minutes")
class TestChoice(TestCase):
    def run_with(self, engine):
        code = (
            "import torch, torch_netcl; x = torch.ones(128, 128, dtype=torch.half, device='netcl'); "
            "print((x @ x).sum(dtype=torch.float).item(), torch.ops.netcl.matrix_engine(0)); "
            "y = torch.conv2d(x.view(4, 64, 8, 8), x[:9].view(-1)[:1152].view(18, 64, 1, 1), stride=2); "
            "print(y.unique().item(), any('conv_units' in p for p in torch.ops.netcl.programs_in_use()))"
        )
        # With room.
        done = python(code, timeout=600, NETCL_MATRIX_ENGINE=engine, NETCL_DEVICE_CLASS="gpu", NETCL_DISABLE="")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_none_and_emulated(self):
        for engine, used in (("none", "none"), ("emulated_wmma", "emulated_wmma"), ("", "none")):
            if engine or not torch.netcl.is_available() or torch.netcl.get_device_properties(0).device_type == "cpu":
                expected = [str(128.0**3), used, "64.0", str(used != "none")]
                self.assertEqual(self.run_with(engine).stdout.split(), expected)

    def test_a_driver_without_the_instruction(self):
        if not torch.netcl.is_available() or torch.netcl.get_device_properties(0).device_type != "cpu":
            self.skipTest("the device may have the instruction")
        done = self.run_with("wmma")
        self.assertEqual(done.stdout.split(), [str(128.0**3), "none", "64.0", "False"])
        self.assertIn("the matrix engine wmma is not used", done.stderr)


@unittest.skipIf(IN_GPU_SHAPE, "TestProducts runs")
@unittest.skipUnless(torch.netcl.is_available(), "no device")
@unittest.skipIf(IS_POCL and not FULL, "PoCL compiles an emulated unit for minutes")
class TestInGpuShape(TestCase):
    @parametrize("engine", ENGINES)
    def test_units(self, engine):
        tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", ""]
        tests += [f"{__file__}::{name}" for name in ("TestProducts", "TestConvolutions")]
        chosen = engine if engine != "mma_sm80" else "mma_sm80 or tf32 or precision or portable or rounded"
        done = subprocess.run(
            [sys.executable, *tests, "-k", chosen],
            env=dict(os.environ, NETCL_DEVICE_CLASS="gpu"), capture_output=True, text=True, timeout=1800,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-2000:])
        self.assertNotIn("skipped", done.stdout.splitlines()[-1])


instantiate_parametrized_tests(TestProducts)
instantiate_parametrized_tests(TestConvolutions)
instantiate_parametrized_tests(TestInGpuShape)

if __name__ == "__main__":
    run_tests()
