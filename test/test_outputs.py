"""Outputs of another dtype, outputs in memory that an input uses, inputs on the host: right, or an error."""

import contextlib
import os
import unittest
import warnings

import torch
from common import DEVICE, quiet, to_device
from opinfo import is_tensor
from outputs import Call, recorded
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils._pytree import tree_flatten, tree_unflatten

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64) if FULL else (torch.float32,)
OTHER = (torch.float64, torch.float16, torch.int32, torch.float32)
MARGIN = 64  # elements before and behind an output, which no kernel may write
MARK = 7
# oneDNN's function on the CPU refuses other outputs; CUDA converts.
CONVERTS = {"aten.gelu_backward.grad_input"}
# They compute their result apart, or do not read the argument; the CPU raises.
APART = {
    "aten.addr.out", "aten.linalg_cross.out", "aten.linalg_solve_triangular.out",
    "aten.log_sigmoid_backward.grad_input",
}  # fmt: skip
# Parts of log_alpha, or of what depends on it, are not written.
UNWRITTEN = ("aten._ctc_loss",)


def plain(t):
    return is_tensor(t) and t.layout == torch.strided and not t.is_nested


def guarded(like, dtype, device):
    """An output of this shape and dtype, and the memory that it is a part of."""
    memory = torch.full((like.numel() + 2 * MARGIN,), MARK, device=device).to(dtype)
    return memory[MARGIN : MARGIN + like.numel()].view(like.shape), memory


def attempt(call, args, kwargs, outs):
    """The error of the out= form, or None."""
    try:
        torch.manual_seed(0)
        with torch.no_grad():
            call.out(*args, **kwargs, **dict(zip(call.names, outs, strict=True)))
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
        return error
    return None


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestOutputs(TestCase):
    calls: list[Call] = []

    @classmethod
    def setUpClass(cls):
        cls.calls = list(recorded(DTYPES, 4 if FULL else 1))

    def setUp(self):
        self.problems, self.checked = [], 0
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")

    def finish(self, least):
        if self.problems:
            self.fail(f"{len(self.problems)} problems\n" + "\n".join(self.problems))
        self.assertGreater(self.checked, least)

    def on_device(self, call):
        """Arguments and results on the device; None if the operator refuses them there."""
        args, kwargs = to_device((call.args, call.kwargs), DEVICE)
        try:
            torch.manual_seed(0)
            with torch.no_grad():
                made = call.operator(*args, **kwargs)
        except (RuntimeError, TypeError, NotImplementedError):
            return None
        return args, kwargs, [made] if is_tensor(made) else list(made)

    def same(self, a, b):
        try:
            self.assertEqual(a, b, exact_dtype=False, equal_nan=True)
        except AssertionError:
            return False
        return True

    def other_dtype(self, call, k, dtype):
        found = self.on_device(call)
        if found is None or str(call.out) in CONVERTS:
            return
        results = []
        for device in ("cpu", DEVICE):
            args, kwargs = to_device((call.args, call.kwargs), device)
            outs = [torch.empty_like(r, device=device) for r in call.results]
            outs[k], memory = guarded(call.results[k], dtype, device)
            error = attempt(call, args, kwargs, outs)
            margins = torch.cat([memory[:MARGIN], memory[-MARGIN:]]).cpu()
            if not bool((margins == margins.new_tensor(MARK)).all()):
                self.problems.append(f"{call.out} {call.names[k]} in {dtype}: writes beyond the output on {device}")
            results.append((error, None if error else outs[k].cpu()))
        (cpu_error, cpu), (error, mine) = results
        self.checked += 1
        label = f"{call.out} {call.names[k]} in {dtype}"
        if (cpu_error is None) != (error is None):
            self.problems.append(f"{label}: {str(error)[:90]!r}, on the CPU {str(cpu_error)[:90]!r}")
        # The result is converted, or computed in the output's dtype as on the CPU.
        elif error is None and not self.same(mine, found[2][k].to(dtype).cpu()) and not self.same(mine, cpu):
            self.problems.append(f"{label}: wrong")

    def test_other_dtypes(self):
        for call in self.calls:
            for k, result in enumerate(call.results):
                for dtype in OTHER if FULL else OTHER[:2]:
                    if dtype != result.dtype and not result.is_complex() and result.numel():
                        self.other_dtype(call, k, dtype)
        self.finish(300)

    def overlapping(self, call, k, at, offset):
        """Output k begins `offset` elements behind the beginning of tensor `at` of the arguments."""
        found = self.on_device(call)
        if found is None:
            return
        _, _, wanted = found
        errors = []
        for device in ("cpu", DEVICE):
            leaves, spec = tree_flatten(to_device((call.args, call.kwargs), device))
            t, result = leaves[at], wanted[k]
            memory = torch.zeros(max(t.numel(), offset + result.numel()), dtype=t.dtype, device=device)
            out = memory[offset : offset + result.numel()].view(result.shape)
            leaves[at] = memory[: t.numel()].view(t.shape).copy_(t)
            args, kwargs = tree_unflatten(leaves, spec)
            outs = [torch.empty_like(r, device=device) for r in wanted]
            outs[k] = out
            errors.append(attempt(call, args, kwargs, outs))
        self.checked += 1
        label = f"{call.out} {call.names[k]} overlaps argument {at} by {t.numel() - offset} elements"
        if errors[1] is None and not self.same(out, result):
            self.problems.append(label)
        elif errors[1] is None and "unsupported operation" in str(errors[0]) and str(call.out) not in APART:
            self.problems.append(f"{label}: the CPU raises")

    def test_overlap(self):
        for call in self.calls:
            leaves = tree_flatten((call.args, call.kwargs))[0]
            for at, t in enumerate(leaves):
                if not plain(t) or t.numel() < 2 or str(call.operator).startswith(UNWRITTEN):
                    continue
                for k, result in enumerate(call.results):
                    if result.dtype == t.dtype and result.numel():
                        for offset in sorted({0, 1, t.numel() - 1}):
                            with contextlib.suppress(NotImplementedError):
                                self.overlapping(call, k, at, offset)
        self.finish(500)

    def on_the_host(self, call, at):
        """Tensor `at` of the arguments stays on the CPU."""
        leaves, spec = tree_flatten((call.args, call.kwargs))
        if sum(is_tensor(t) for t in leaves) < 2:
            return
        moved = [t if k == at else to_device(t, DEVICE) for k, t in enumerate(leaves)]
        args, kwargs = tree_unflatten(moved, spec)
        self.checked += 1
        try:
            torch.manual_seed(0)
            with torch.no_grad():
                made = call.operator(*args, **kwargs)
            torch.netcl.synchronize()
        except (RuntimeError, TypeError, IndexError):
            return
        for mine, wanted in zip([made] if is_tensor(made) else made, call.results, strict=True):
            if not str(call.operator).startswith(UNWRITTEN) and not self.same(mine.cpu(), wanted):
                self.problems.append(f"{call.operator}: argument {at} on the CPU: wrong")

    def test_one_tensor_on_the_host(self):
        for call in self.calls:
            for at, t in enumerate(tree_flatten((call.args, call.kwargs))[0]):
                if plain(t) and t.dim() > 0:
                    with quiet():
                        self.on_the_host(call, at)
        self.finish(300)


if __name__ == "__main__":
    run_tests()
