"""Products on a GPU's matrix units (kernels/gemm/gemm_units.h, csrc/aten/gemm/MatrixUnits.cpp).

The units are emulated: everything but the instruction runs as on a GPU, with the distribution of the elements over
work-items that the instruction's vendor documents. In the shape for CPUs, TestInGpuShape runs the tests in a process
with NETCL_DEVICE_CLASS=gpu.
"""

import os
import subprocess
import sys
import unittest

import torch
import torch.nn.functional as F
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

ops = torch.ops.netcl
D = torch.device("netcl", 0)
IN_GPU_SHAPE = torch.netcl.is_available() and torch.netcl.get_device_properties(0).device_class == "gpu"
IS_POCL = torch.netcl.is_available() and "Portable" in torch.netcl.get_device_properties(0).platform_name
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


def programs():
    """The programs for matrix units so far."""
    return [line for line in ops.programs_in_use() if "gemm_units" in line]


@unittest.skipUnless(IN_GPU_SHAPE, "in the shape for CPUs: TestInGpuShape runs these tests")
class TestProducts(TestCase):
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


@unittest.skipIf(IS_POCL and not FULL, "PoCL compiles an emulated unit for minutes")
class TestChoice(TestCase):
    def run_with(self, engine):
        code = (
            "import torch, torch_netcl; x = torch.ones(128, 128, dtype=torch.half, device='netcl'); "
            "print((x @ x).sum(dtype=torch.float).item(), torch.ops.netcl.matrix_engine(0))"
        )
        env = dict(os.environ, NETCL_MATRIX_ENGINE=engine, NETCL_DEVICE_CLASS="gpu")
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_none_and_emulated(self):
        for engine, used in (("none", "none"), ("emulated_wmma", "emulated_wmma"), ("", "none")):
            if engine or not torch.netcl.is_available() or torch.netcl.get_device_properties(0).device_type == "cpu":
                self.assertEqual(self.run_with(engine).stdout.split(), [str(128.0**3), used])

    def test_a_driver_without_the_instruction(self):
        if not torch.netcl.is_available() or torch.netcl.get_device_properties(0).device_type != "cpu":
            self.skipTest("the device may have the instruction")
        done = self.run_with("wmma")
        self.assertEqual(done.stdout.split(), [str(128.0**3), "none"])
        self.assertIn("the matrix engine wmma is not used", done.stderr)


@unittest.skipIf(IN_GPU_SHAPE, "TestProducts runs")
@unittest.skipUnless(torch.netcl.is_available(), "no device")
@unittest.skipIf(IS_POCL and not FULL, "PoCL compiles an emulated unit for minutes")
class TestInGpuShape(TestCase):
    @parametrize("engine", ENGINES)
    def test_units(self, engine):
        tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", f"{__file__}::TestProducts"]
        chosen = engine if engine != "mma_sm80" else "mma_sm80 or tf32 or precision or portable"
        done = subprocess.run(
            [sys.executable, *tests, "-k", chosen],
            env=dict(os.environ, NETCL_DEVICE_CLASS="gpu"), capture_output=True, text=True, timeout=1800,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-2000:])
        self.assertNotIn("skipped", done.stdout.splitlines()[-1])


instantiate_parametrized_tests(TestProducts)
instantiate_parametrized_tests(TestInGpuShape)

if __name__ == "__main__":
    run_tests()
