"""Version counters: every operator that writes a tensor increments its version as often as on the CPU; otherwise
autograd misses it."""

import contextlib
import functools
import os
import warnings

import torch
from common import DEVICE, to_device
from opinfo import arguments, moved, samples, tensors
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
    op_db,
)
from torch.testing._internal.common_utils import TestCase, run_tests

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
FOREACH = [
    *foreach_unary_op_db,
    *foreach_binary_op_db,
    *foreach_pointwise_op_db,
    *foreach_reduce_op_db,
    *foreach_other_op_db,
]


def written(call, tree):
    """How often each tensor of the arguments was written, by its version; None if the operator refuses them."""
    inputs, args, kwargs = tree
    found = tensors(tree)
    before = [t._version for t in found]
    try:
        with torch.no_grad():
            call(inputs, *args, **kwargs)
    except (RuntimeError, TypeError, AssertionError):  # jiterator asserts that there is CUDA
        return None
    return [t._version - b for t, b in zip(found, before, strict=True)]


def fresh(tree):
    """A copy of the arguments, which the operator may write."""
    return to_device(tree, "cpu")


class TestVersions(TestCase):
    def compare(self, op, sample, name, call, out=False):
        tree = fresh(arguments(sample))
        outs = []
        if out:
            # The operator's outputs, to write the next outputs into.
            try:
                with torch.no_grad():
                    made = op.op(tree[0], *tree[1], **tree[2])
            except (RuntimeError, TypeError, AssertionError):
                return 0
            outs = [made, to_device(made, DEVICE)]
        results = []
        for k, device in enumerate(("cpu", DEVICE)):
            inputs, args, kwargs = moved(op, fresh(arguments(sample)), device)
            if out:
                kwargs = {**kwargs, "out": outs[k]}
            torch.manual_seed(0)
            results.append(written(call, (inputs, args, kwargs)))
        want, got = results
        if want is None or got is None:  # other tests check what only one of them refuses
            return 0
        if got != want:
            self.problems.append(f"{op.full_name} {name}: {got}, on the CPU {want}")
        return 1

    def run_operator(self, op):
        checked = 0
        kinds = op.supported_dtypes("cpu")
        dtype = next((d for d in (torch.float32, torch.int64, torch.complex64, torch.bool) if d in kinds), None)
        if dtype is None:
            return 0
        # Functional forms write running statistics, if anything.
        functional = FULL or op.name.startswith(("nn.functional.", "_", "native_"))
        with contextlib.suppress(RuntimeError, NotImplementedError):
            for sample in samples(op, dtype, 1):
                if functional:
                    checked += self.compare(op, sample, "", op.op)
                if op.inplace_variant is not None:
                    checked += self.compare(op, sample, "in place", op.inplace_variant)
                if op.supports_out:
                    checked += self.compare(op, sample, "out", op.op, out=True)
        return checked

    def test_operators(self):
        self.problems, checked = [], 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for op in op_db:
                checked += self.run_operator(op)
        if self.problems:
            self.fail("\n".join(self.problems))
        self.assertGreater(checked, 300)

    def test_foreach(self):
        # All samples of a dtype with a kernel and of one without: one launch, and a loop over the tensors.
        self.problems, checked = [], 0
        for op in FOREACH:
            for dtype in {torch.float32, torch.int32} & set(op.supported_dtypes("cpu")):
                found = list(op.sample_inputs("cpu", dtype, noncontiguous=False, num_input_tensors=[3]))
                for sample in found[:: max(1, len(found) // 8)]:
                    for name, call in (("", op.method_variant), ("in place", op.inplace_variant)):
                        if call is not None:
                            checked += self.compare(op, sample, name, call)
        if self.problems:
            self.fail("\n".join(self.problems))
        self.assertGreater(checked, 300)

    def test_foreach_out(self):
        # torch._foreach_* do not take out=, but the dispatcher has these overloads.
        self.problems, checked = [], set()
        for op in FOREACH:
            packet = getattr(torch.ops.aten, op.name, None)
            names = packet.overloads() if packet else ()
            found = list(op.sample_inputs("cpu", torch.float32, noncontiguous=False, num_input_tensors=[3]))
            for name in names:
                overload = getattr(packet, name)
                if not any(a.is_out for a in overload._schema.arguments):
                    continue
                for sample in found[:: max(1, len(found) // 8)]:
                    if self.compare_out(op, sample, overload):
                        checked.add(str(overload))
        if self.problems:
            self.fail("\n".join(self.problems))
        self.assertGreater(len(checked), 60)

    def compare_out(self, op, sample, overload):
        """Whether the CPU takes a sample for an overload with out=; values and versions are compared then."""
        made, counts = [[torch.empty(0, dtype=t.dtype) for t in sample.input]], []
        for device in ("cpu", "cpu", DEVICE):  # the first run finds the shapes of the outputs
            made.append([torch.zeros_like(t, device=device) for t in made[-1]])
            inputs, args, kwargs = moved(op, fresh(arguments(sample)), device)
            call = functools.partial(overload, out=made[-1])
            result = written(call, (inputs, args, kwargs))
            if result is None and not counts:
                return False
            counts.append(result and [t._version for t in made[-1]])
        if counts[2] != counts[1]:
            self.problems.append(f"{overload}: {counts[2]}, on the CPU {counts[1]}")
        self.assertEqual([t.cpu() for t in made[3]], made[2], str(overload))
        return True

    def test_fused_optimizers(self):
        # The CPU and CUDA do not increment versions here.
        options = {"grad_scale": None, "found_inf": None, "maximize": False, "weight_decay": 0.0, "lr": 0.1}
        adam = {**options, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": True}
        cases = [
            (torch._fused_sgd_, 3, {**options, "momentum": 0.9, "dampening": 0.0, "nesterov": False,
                                    "is_first_step": False}),
            (torch._fused_adagrad_, 4, {**options, "lr_decay": 0.0, "eps": 1e-8}),
            (torch._fused_adam_, 6, adam),
            (torch._fused_adamw_, 6, adam),
        ]
        for function, n, kwargs in cases:
            counts = []
            for device in ("cpu", DEVICE):
                lists = [[torch.ones(3, device=device), torch.ones(5, device=device)] for _ in range(n)]
                if n > 3:
                    lists[-1] = [torch.ones((), device=device) for _ in range(2)]
                function(*lists, **kwargs)
                counts.append([t._version for t in tensors(lists)])
            self.assertEqual(counts[1], counts[0], function.__name__)

    def test_grad_scaler(self):
        counts = []
        for device in ("cpu", DEVICE):
            dense, strided = torch.ones(3, device=device), torch.ones(6, device=device)[::2]
            found, scale = torch.zeros((), device=device), torch.ones((), device=device)
            tracker = torch.zeros((), dtype=torch.int32, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_([dense, strided], found, scale)
            torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 10)
            counts.append([t._version for t in (dense, strided, found, scale, tracker)])
        self.assertEqual(counts[1], counts[0])

    def test_a_step_between_forward_and_backward_is_an_error(self):
        for kind in (torch.optim.SGD, torch.optim.AdamW):
            w = torch.nn.Parameter(torch.ones(3, device=DEVICE))
            opt = kind([w], lr=1.0)
            loss = (w * w * w).sum()
            (w * 1).sum().backward()
            opt.step()
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()
        w = torch.nn.Parameter(torch.ones(3, device=DEVICE))
        w.grad = torch.full((3,), 5.0, device=DEVICE, requires_grad=True)
        loss = (w.grad * w.grad).sum()
        with torch.no_grad():
            torch.nn.utils.clip_grad_norm_([w], 1.0)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()


if __name__ == "__main__":
    run_tests()
