"""The tables of ways to compute an operator (csrc/aten/support/Plan.h): each way is taken by some call."""

import re
from pathlib import Path

import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

CSRC = Path(__file__).parent.parent / "csrc"
IS_POCL = torch.netcl.is_available() and "Portable" in torch.netcl.get_device_properties().platform_name
HEAD = """
import torch, torch.nn.functional as F
def new(*sizes, last=False, **options):
    x = torch.ones(sizes, device="netcl", **options)
    return x.to(memory_format=torch.channels_last) if last else x
"""
# Calls that take every way of a table. A call is logged before its kernel is built.
CALLS = {
    "kGemmWays": """
        new(32, 5000) @ new(5000, 32)
        for m, n, k in ((1, 70, 33), (5, 70, 33), (64, 64, 64), (100, 100, 1100)):
            new(m, k) @ new(k, n)
        new(3, 100) @ new(50, 100).t()
        for n in (128, 512):
            new(n, n, dtype=torch.bfloat16) @ new(n, n, dtype=torch.bfloat16)
    """,
    "kConvWays": """
        F.conv_transpose2d(new(1, 16, 8, 8), new(16, 8, 2, 2), stride=2)
        for sizes, weight, groups in (
            ((1, 16, 12, 12), (8, 16, 1, 1), 1), ((1, 3, 12, 12), (16, 3, 1, 1), 1), ((1, 4, 8, 8), (4, 1, 3, 3), 4),
            ((1, 8, 8, 8), (3, 8, 3, 3), 1), ((1, 8, 8, 8), (16, 8, 3, 3), 1),
        ):
            F.conv2d(new(*sizes), new(*weight), groups=groups)
        for channels, weight, groups in ((32, (32, 1, 3, 3), 32), (32, (3, 32, 3, 3), 1), (4, (4, 2, 3, 3), 2)):
            F.conv2d(new(1, channels, 8, 8, last=True), new(*weight, last=True), groups=groups)
    """,
    "kTrain": """
        for last in (False, True):
            F.batch_norm(new(8, 64, 16, 16, last=last), None, None, training=True)
    """,
    "kEval": """
        for last in (False, True):
            F.batch_norm(new(8, 64, 16, 16, last=last), new(64), new(64))
    """,
    "kBackward": """
        for last in (False, True):
            F.batch_norm(new(8, 64, 16, 16, last=last, requires_grad=True), None, None, training=True).sum().backward()
    """,
    "kLayerNormBackward": "F.layer_norm(new(4, 32, requires_grad=True), (32,)).sum().backward()",
    "kCtcGradient": """
        x = new(9, 1, 4, requires_grad=True)
        F.ctc_loss(x.log_softmax(2), torch.ones(1, 3, dtype=torch.int64), (9,), (3,)).backward()
    """,
    "kMaxBackward": "F.max_pool2d(new(1, 2, 8, 8, requires_grad=True), 2).sum().backward()",
    "kAvgBackward": """
        for last in (False, True):
            F.avg_pool2d(new(1, 2, 8, 8, requires_grad=True, last=last), 2).sum().backward()
    """,
    "kWays": """
        for x in (new(1, 3, 4, 4), new(1, 3, 4, 4, last=True), new(1, 3, 4, 4, dtype=torch.uint8)):
            F.interpolate(x, scale_factor=2, mode="bilinear")
    """,
}


def tables():
    """The names of each table's ways, with the class of devices that each serves ("Cpu", "Gpu" or "")."""
    found = {}
    for file in CSRC.rglob("*.cpp"):
        for table, rows in re.findall(r"^constexpr Way<\w+> (\w+)\[\] = \{\n(.*?)^\};", file.read_text(), re.M | re.S):
            found[table] = dict(re.findall(r'^ +\{"([\w ]+)", take<.*?>(?:, Serves::k(\w+))?\}', rows, re.M))
    return found


def taken(calls, **environment):
    """The names of the ways that the calls take."""
    code = HEAD + re.sub(r"^ {8}", "", calls.strip("\n "), flags=re.M) + "\ntorch.netcl.synchronize()"
    done = python(code, NETCL_LOG="plan", **environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return set(re.findall(r"^netcl: plan (?!matrix_engine)[\w:.]+: ([\w ]+)$", done.stderr, re.M))


class TestWays(TestCase):
    def test_every_table_is_here(self):
        self.assertEqual(sorted(tables()), sorted(CALLS))

    @parametrize("table", list(CALLS))
    def test_every_way_is_taken(self, table):
        serves = tables()[table]
        names = set(serves)
        self.assertGreater(len(names), 1)
        found = taken(CALLS[table], NETCL_DEVICE_CLASS="cpu")
        self.assertEqual({name for name in found if serves.get(name) == "Gpu"}, set())
        # A CPU has a GPU's matrix units only emulated, which PoCL compiles for minutes.
        units = {"NETCL_MATRIX_ENGINE": "emulated_mma_sm80"} if "units" in names and not IS_POCL else {}
        on_gpu = taken(CALLS[table], NETCL_DEVICE_CLASS="gpu", **units)
        self.assertEqual({name for name in on_gpu if serves.get(name) == "Cpu"}, set())
        found |= on_gpu
        missing = names - found
        if IS_POCL:
            missing -= {"units"}
        if torch.ops.netcl.matrix_engine(0) not in ("amx", "avx512_bf16"):
            missing -= {"engine fused", "engine packed"}
        self.assertEqual(missing, set())


instantiate_parametrized_tests(TestWays)

if __name__ == "__main__":
    run_tests()
