"""Dtypes that an operator does not support: the error names them; there is no compiler's log and no result."""

import itertools

import torch
import torch.nn.functional as F
from common import to_device
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils._pytree import tree_map

DEVICE = "netcl"
POINTWISE = {
    "round": (torch.round, torch.complex64),
    "silu": (F.silu, torch.int64),
    "frac": (torch.frac, torch.bool),
    "lt": (lambda x: x < x, torch.complex64),
}
# The CPU does not support these for complex numbers either.
ORDERED = {
    "amax": torch.amax,
    "min": torch.min,
    "max": lambda x: x.max(0),
    "argmin": torch.argmin,
    "aminmax": torch.aminmax,
    "cummax": lambda x: x.cummax(0),
    "sort": torch.sort,
    "median": torch.median,
    "histc": torch.histc,
    "scatter_reduce": lambda x: x.scatter_reduce(0, torch.zeros(4, dtype=torch.int64, device=x.device), x, "amax"),
    "index_reduce": lambda x: x.index_reduce(0, torch.zeros(4, dtype=torch.int64, device=x.device), x, "amin"),
}
OTHERS = {
    "max_pool": lambda x: F.max_pool1d(x[None], 2),
    "avg_pool": lambda x: F.avg_pool1d(x[None], 2),
    "bernoulli_": lambda x: x.bernoulli_(),
    "geometric_": lambda x: x.geometric_(0.5),
    "logcumsumexp": lambda x: x.to(torch.int64).logcumsumexp(0),
    "igamma": lambda x: torch.igamma(x.to(torch.int64), x.to(torch.int64)),
    "normal_": lambda x: x.to(torch.int64).normal_(),
}
# The CPU and CUDA do not support these for bool, for which a kernel for integers would return something.
BOOL = {
    **{name: getattr(torch, name) for name in ("floor", "ceil", "trunc", "round")},
    **{name: lambda x, name=name: getattr(torch, name)(x, x) for name in ("fmod", "remainder", "gcd", "lcm", "pow")},
    "floor_divide": lambda x: torch.floor_divide(x, x),
    "div_trunc": lambda x: torch.div(x, x, rounding_mode="trunc"),
    "bitwise_left_shift": lambda x: x << x,
    "bitwise_right_shift": lambda x: x >> x,
    "clamp": lambda x: x.clamp(False, True),
    "clamp_tensor": lambda x: x.clamp(x, x),
    "threshold": lambda x: F.threshold(x, 0, 1),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "cross": lambda x: torch.cross(x[:3], x[:3], dim=0),
}
INTEGER = {
    "exponential_": lambda x: x.exponential_(),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "uniform_": lambda x: x.uniform_(),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(x.view(2, 2)),
    "histogram": lambda x: torch.histogram(x, 2),
}
# The CPU and CUDA do not support these for half and bfloat16.
MATRICES = {
    "qr": torch.linalg.qr,
    "qr_r": lambda x: torch.linalg.qr(x, "r"),
    "geqrf": torch.geqrf,
    "ormqr": lambda x: torch.ormqr(x, x[0], x),
    "householder_product": lambda x: torch.linalg.householder_product(x, x[0]),
    "eigh": torch.linalg.eigh,
    "eigvalsh": torch.linalg.eigvalsh,
    "svd": torch.linalg.svd,
    "svdvals": torch.linalg.svdvals,
    "cond": torch.linalg.cond,
    "ldl_factor": torch.linalg.ldl_factor,
    "ldl_solve": lambda x: torch.linalg.ldl_solve(x, torch.ones(4, dtype=torch.int32, device=x.device), x),
    "orthogonal_": lambda x: torch.nn.init.orthogonal_(x.clone()),
    "cholesky": torch.linalg.cholesky,
    "lu_factor": torch.linalg.lu_factor,
    "solve": lambda x: torch.linalg.solve(x, x),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(x, x, upper=True),
}
# What CUDA claims of these dtypes, test_opinfo.py runs.
NARROW = [(op, dtype) for op in op_db for dtype in (torch.half, torch.bfloat16) if dtype not in op.dtypesIfCUDA]


class TestRefusedDtypes(TestCase):
    def check(self, name, f, x):
        with self.subTest(name), self.assertRaises(RuntimeError) as raised:
            f(x)
            torch.netcl.synchronize()
        message = str(raised.exception)
        self.assertNotIn("clBuildProgram", message)
        self.assertRegex(message, "not implemented|does not support|dtype must be")

    def test_pointwise(self):
        for name, (f, dtype) in POINTWISE.items():
            self.check(name, f, torch.ones(4, dtype=dtype, device=DEVICE))

    def test_seven_dimensions(self):
        x = torch.ones(2, 2, 2, 2, 2, 2, 2, dtype=torch.complex64, device=DEVICE)
        self.check("round", torch.round, x.permute(6, 0, 5, 1, 4, 2, 3)[..., :1])

    def test_complex_numbers_have_no_order(self):
        for name, f in ORDERED.items():
            self.check(name, f, torch.ones(4, dtype=torch.complex64, device=DEVICE))

    def test_no_arithmetic_of_bool(self):
        for name, f in BOOL.items():
            self.check(name, f, torch.ones(4, dtype=torch.bool, device=DEVICE))

    def test_no_integers(self):
        for name, f in INTEGER.items():
            self.check(name, f, torch.ones(4, dtype=torch.int64, device=DEVICE))

    def test_matrices(self):
        for dtype in (torch.half, torch.bfloat16):
            for name, f in MATRICES.items():
                with self.subTest(name, dtype=dtype), self.assertRaises(NotImplementedError) as raised:
                    f(torch.eye(4, dtype=dtype, device=DEVICE))  # the call itself: nothing waits
                self.assertRegex(str(raised.exception), "not implemented for")
        for lowrank in (torch.svd_lowrank, torch.pca_lowrank):
            for dtype in torch.netcl.get_amp_supported_dtype():
                name = {torch.half: "Half", torch.bfloat16: "BFloat16"}[dtype]
                with torch.autocast(DEVICE, dtype=dtype), self.assertRaises(NotImplementedError) as raised:
                    lowrank(torch.randn(6, 4, device=DEVICE), 2)
                self.assertRegex(str(raised.exception), f"qr.* not implemented for {name}.*disable autocast")

    def test_narrow_dtypes_in_each_operator(self):
        """A clear error of the call, or a result: no kernel fails to compile."""
        refused = 0
        for op, dtype in NARROW:

            def narrow(x, dtype=dtype):
                return x.detach().to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

            base = next((d for d in (torch.float32, torch.float64) if d in op.dtypes), None)
            for sample in [*itertools.islice(op.sample_inputs("cpu", base), 2)] if base else []:
                tree = to_device(tree_map(narrow, (sample.input, sample.args, sample.kwargs)), DEVICE)
                with self.subTest(op.name, variant=op.variant_test_name, dtype=dtype):
                    try:
                        op.op(tree[0], *tree[1], **tree[2])
                    except (RuntimeError, TypeError, ValueError) as error:
                        refused += 1
                        self.assertNotRegex(str(error), "clBuildProgram|clCreateKernel|INTERNAL ASSERT")
                    torch.netcl.synchronize()  # raises if a kernel did not compile
        self.assertGreater(refused, 50)

    def test_quantised_tensors(self):
        """They are neither made on a device nor copied to it; the operator does not run on the host before it fails."""
        x, scale, zero = torch.ones(3, 2, device=DEVICE), torch.ones(3), torch.zeros(3, dtype=torch.int64)
        torch.netcl.reset_cpu_fallback_ops()
        for call in (
            lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
            lambda: torch.quantize_per_tensor(x, scale[0], zero[0], torch.quint8),
            lambda: torch.quantize_per_tensor_dynamic(x, torch.qint8, False),
            lambda: torch.quantize_per_channel(x, scale, zero, 0, torch.qint8),
            lambda: torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.qint8).to(DEVICE),
        ):
            with self.assertRaisesRegex(NotImplementedError, "netcl has no quantised tensors"):
                call()
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    def test_others(self):
        for name, f in OTHERS.items():
            self.check(name, f, torch.ones(4, dtype=torch.complex64, device=DEVICE))


if __name__ == "__main__":
    run_tests()
