"""Operators of PyTorch's OpInfo database under torch.compile(fullgraph=True), compared with eager mode on netcl.

The quick tier tests every 20th operator in float32, forward and backward, with one sample each. NETCL_TEST_FULL=1
tests all of them, and float16, bfloat16, int64 and bool forward. compile_expected.txt lists the known failures: an
entry that passes is an error.
"""

import os
import unittest
from pathlib import Path

import torch
from common import DEVICE, to_device
from opinfo import OPS, UNINITIALISED, restricted
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils._pytree import tree_flatten, tree_map

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool) if FULL else (torch.float32,)
EVERY = 1 if FULL else 20
#: Their random numbers differ from eager mode's.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "uniform", "randn",
          "randn_like", "rand_like", "randint", "randint_like", "nn.functional.dropout", "nn.functional.dropout2d",
          "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
          "nn.functional.rrelu", "nn.functional.multi_head_attention_forward", "nn.functional.fractional_max_pool2d",
          "nn.functional.fractional_max_pool3d", "svd_lowrank", "pca_lowrank",
          "nn.functional.scaled_dot_product_attention"}  # fmt: skip


def expected() -> dict[tuple[str, str], str]:
    """(operator, dtype) → the reason of the failure."""
    lines = (Path(__file__).parent / "compile_expected.txt").read_text().splitlines()
    entries = [line.split(maxsplit=2) for line in lines if line and not line.startswith("#")]
    return {(name, dtype): reason for name, dtype, reason in entries}


EXPECTED = expected()
CHOSEN = {op.full_name for i, op in enumerate(OPS) if i % EVERY == 0} - UNINITIALISED - RANDOM


def kinds_of(op, dtype):
    return [op.full_name] if dtype in DTYPES and op.name not in RANDOM and op.full_name in CHOSEN else []


def leaves(tree):
    return [t for t in tree_flatten(tree)[0] if isinstance(t, torch.Tensor)]


def copied(tree):
    return tree_map(lambda t: t.detach().clone().requires_grad_(t.requires_grad) if torch.is_tensor(t) else t, tree)


def run(function, sample, backward):
    """The results of a call, and the gradients of its inputs."""
    results = function(sample.input, *sample.args, **sample.kwargs)
    if backward:
        floats = [t for t in leaves(results) if t.requires_grad]
        total = sum((t.abs() if t.is_complex() else t).float().sum() for t in floats)
        if floats:
            total.backward()
    return results, [t.grad for t in leaves((sample.input, sample.args, sample.kwargs)) if t.requires_grad]


class TestCompileOpInfo(TestCase):
    def compare(self, op, dtype):
        backward = dtype is torch.float32 and op.supports_autograd
        sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=backward)), None)
        if sample is None:
            self.skipTest("no sample")
        try:
            sample = sample.transform(lambda x: to_device(x, DEVICE))
            both = [sample.transform(copied) for _ in range(2)]
            eager = run(op.op, both[0], backward)
        except Exception as e:  # such as the jiterator, which is CUDA's
            self.skipTest(f"eager mode refuses it: {e}")
        torch._dynamo.reset()
        try:
            compiled = run(torch.compile(op.op, fullgraph=True), both[1], backward)
        except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError):
            # Dynamo makes no graph of it on any device, such as of a list of counts, or of a branch that data decides.
            torch._dynamo.reset()
            compiled = run(torch.compile(op.op), sample.transform(copied), backward)
        # Eager mode rounds half and bfloat16 after each operator, a fused kernel once.
        limit = 2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-4
        self.assertEqual(compiled, eager, equal_nan=True, rtol=limit, atol=limit)

    @ops(restricted(OPS, kinds_of))
    def test(self, device, dtype, op):
        known = EXPECTED.get((op.full_name, str(dtype)[6:]))
        try:
            self.compare(op, dtype)
        except unittest.SkipTest:
            raise
        except Exception:
            if known is None:
                raise
            return
        self.assertIsNone(known, f"{op.full_name} passes: take its line from compile_expected.txt")


instantiate_device_type_tests(TestCompileOpInfo, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
