"""out= with a wider dtype: the result is computed and rounded in its own dtype, then converted, as on the CPU."""

import os
import unittest
import warnings

import torch
from common import DEVICE
from opinfo import arguments, is_tensor, moved, samples, seeded
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
WIDER = {
    torch.bool: (torch.uint8, torch.float32),
    torch.uint8: (torch.int32, torch.float32),
    torch.float16: (torch.float32,),
    torch.bfloat16: (torch.float32,),
    torch.float32: (torch.float64,),
}
QUICK = (torch.bool, torch.float16, torch.bfloat16)
# Random, uninitialised, or equally inaccurate on the CPU (near poles and under cancellation).
OTHERS = ("empty", "normal", "bernoulli", "multinomial", "rand", "uniform", "linalg", "mode", "logit", "polygamma",
          "special.polygamma")
# addr of values up to 9: the CPU rounds the product (up to 81) to half before it adds.
ROUNDED_TWICE = {(torch.float16, "addr"): 2**-5, (torch.bfloat16, "addr"): 2**-2}
# Two units in the last place of the narrow dtype, since both sides round once; float32's functions are some units off.
RTOL = {torch.float16: 2**-9, torch.bfloat16: 2**-6}
# CUDA and netcl compare alpha with the output's dtype, the CPU with that of the operands.
ALPHA_CHECK = "Boolean alpha only supported for Boolean results."


def on(device, op, sample, out):
    inputs, args, kwargs = moved(op, arguments(sample), device)
    if not is_tensor(inputs):  # a list of tensors
        return None
    return seeded(lambda: op.op(inputs, *args, out=out, **kwargs))


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestOutDtypes(TestCase):
    def problem(self, op, dtype, wide, sample):
        """The error of out= with dtype `wide`; None if there is none, False if the CPU refuses it."""
        try:
            made = op.op(sample.input, *sample.args, **sample.kwargs)
            if not is_tensor(made) or made.dtype != dtype:
                return False
            expected = on("cpu", op, sample, made.to(wide))
        except (RuntimeError, TypeError):
            return False
        if expected is None:
            return False
        got = on(DEVICE, op, sample, made.to(wide).to(DEVICE)).cpu()
        if got.dtype != expected.dtype or got.shape != expected.shape:
            return f"{got.dtype} {tuple(got.shape)}"
        narrow = got.to(dtype).to(wide)
        if not torch.equal(narrow.nan_to_num(), got.nan_to_num()) and torch.equal(
            expected.to(dtype).to(wide).nan_to_num(), expected.nan_to_num()
        ):
            return "not rounded"
        tolerance = {"rtol": 1e-5, "atol": 1e-5}
        if dtype in RTOL:
            tolerance = {"rtol": RTOL[dtype], "atol": ROUNDED_TWICE.get((dtype, op.name), 1e-4)}
        try:
            self.assertEqual(got, expected, **tolerance)
        except AssertionError as error:
            return " ".join(str(error).split())[:150]
        return None

    def test_operators(self):
        problems, checked = [], 0
        has_fp64 = torch.netcl.get_device_properties().has_fp64
        for op in op_db:
            if not op.supports_out or op.name.startswith(OTHERS) or "jiterator" in op.name:
                continue
            for dtype in WIDER if FULL else QUICK:
                if dtype not in op.supported_dtypes("cpu") or dtype not in op.dtypesIfCUDA:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for sample in samples(op, dtype, 4 if FULL else 1):
                        for wide in WIDER[dtype][: None if FULL else 1]:
                            if wide == torch.float64 and not has_fp64:
                                continue
                            try:
                                found = self.problem(op, dtype, wide, sample)
                            except (RuntimeError, TypeError) as error:
                                found = str(error)[:150] if str(error) != ALPHA_CHECK else False
                            checked += found is not False
                            if found:
                                problems.append(f"{op.full_name} {dtype} into {wide}: {found}")
        if problems:
            self.fail("\n".join(problems))
        self.assertGreater(checked, 100)

    def test_overflow(self):
        for name, dtype, x, y, wide in (
            ("add", torch.bool, True, True, torch.float32),
            ("add", torch.bool, True, True, torch.uint8),
            ("add", torch.uint8, 200, 100, torch.float32),
            ("add", torch.float16, 6e4, 6e4, torch.float32),
            ("mul", torch.float16, 0.1, 0.1, torch.float32),
            ("mul", torch.bfloat16, 0.1, 0.1, torch.float32),
        ):
            results = []
            for device in ("cpu", DEVICE):
                a, b = (torch.full((37,), v, dtype=dtype, device=device) for v in (x, y))
                results.append(getattr(torch, name)(a, b, out=torch.empty(37, dtype=wide, device=device)).cpu())
            self.assertEqual(results[1], results[0], rtol=0, atol=0)


if __name__ == "__main__":
    run_tests()
