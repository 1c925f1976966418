"""Every module of PyTorch's module_db on netcl, forward and backward, in training and evaluation, compared with the
CPU.

float32 is always tested; with NETCL_TEST_FULL=1 also float16 and bfloat16, and more of each module's samples.
"""

import copy
import os
import unittest
import warnings

import torch
from common import DEVICE, to_device
from opinfo import compare, tensors, to_dtype
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    subtest,
)

import torch_netcl  # noqa: F401

FULL = os.environ.get("NETCL_TEST_FULL") == "1"
DTYPES = [torch.float32, torch.float16, torch.bfloat16] if FULL else [torch.float32]
SAMPLES = 8 if FULL else 2

# Operators that run on the CPU in a module: name of the module -> names of the operators.
FALLBACKS: dict[str, set[str]] = {}
# Modules that neither the CPU nor CUDA computes in float16 and bfloat16.
FLOAT_ONLY = {"nn.CTCLoss"}


def cases():
    """Every module of module_db in training, and in evaluation if that is a different computation."""
    for info in module_db:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            name = f"{info.formatted_name}{'' if training else '_eval'}"
            yield subtest((info, training), name=name)


def samples(info, dtype, training):
    """At most SAMPLES of PyTorch's inputs for the module, evenly spread."""
    torch.manual_seed(0)
    every = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    count = min(SAMPLES, len(every))
    return [every[i * (len(every) - 1) // max(count - 1, 1)] for i in range(count)]


def construct(info, sample, dtype, training):
    torch.manual_seed(0)
    module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).to(dtype)
    module.train(training)
    if info.is_lazy:  # takes its shapes from its first input
        with torch.no_grad():
            module(*to_dtype(sample.forward_input.args, {}), **sample.forward_input.kwargs)
    return module


def run(module, args, kwargs):
    """The outputs, the gradients with respect to inputs and parameters, and the buffers that the call may change."""
    module = copy.deepcopy(module)
    torch.manual_seed(0)
    outputs = module(*args, **kwargs)
    roots = [t for t in tensors(outputs) if t.requires_grad]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.rand(t.shape, generator=generator).to(t.dtype).to(t.device) for t in roots]
    leaves = [t for t in [*tensors((args, kwargs)), *module.parameters()] if t.requires_grad]
    gradients = torch.autograd.grad(roots, leaves, weights, allow_unused=True) if roots and leaves else ()
    return [*tensors(outputs), *(g for g in gradients if g is not None), *module.buffers()]


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestModules(TestCase):
    @parametrize("dtype", DTYPES)
    @parametrize("info,training", list(cases()))
    def test_against_cpu(self, info, training, dtype):
        if info.name in FLOAT_ONLY and dtype != torch.float32:
            self.skipTest("float32 and float64 only, as on the CPU and on CUDA")
        for sample in samples(info, dtype, training):
            module = construct(info, sample, dtype, training)
            inputs = sample.forward_input.args, sample.forward_input.kwargs

            def on_cpu(f=None, module=module, inputs=inputs):
                """The same on the CPU; in float64 if f widens the tensors."""
                if f:
                    return [t.detach() for t in run(copy.deepcopy(module).double(), *f(inputs))]
                return [t.detach() for t in run(module, *inputs)]

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    expected = on_cpu()
                except RuntimeError:
                    if dtype == torch.float32:
                        raise
                    # The CPU has no kernel for this dtype, so round the result in float64.
                    expected = on_cpu(lambda tree: to_dtype(tree, {dtype: torch.float64}))
                    expected = to_dtype(expected, {torch.float64: dtype})
                torch.netcl.reset_cpu_fallback_ops()
                got = run(copy.deepcopy(module).to(DEVICE), *to_device(inputs, DEVICE))
            self.assertEqual(set(torch.netcl.cpu_fallback_ops()), FALLBACKS.get(info.name, set()))
            compare(info, got, expected, on_cpu)


instantiate_parametrized_tests(TestModules)

if __name__ == "__main__":
    run_tests()
