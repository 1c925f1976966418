"""Strides of outputs and of gradients, compared with the CPU, for contiguous, channels-last and permuted inputs.

Tests every operator of OpInfo and every module of module_db with the sample of most dimensions, and the layers of
image models with their values. The tables below list differences from the CPU, with the reasons. NETCL_TEST_FULL=1
uses a sample of each number of dimensions, in every layout.
"""

import copy
import itertools
import os
import warnings
from functools import partial

import torch
import torch.nn.functional as F
from common import DEVICE, quiet, to_device
from opinfo import KINDS, OPS, arguments, moved, restricted, seeded, tensors
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    subtest,
)
from torch.utils._pytree import tree_map

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"

CUDA_ATTENTION = "CUDA's fused kernels keep the heads of a position side by side"
CUDA_CONVOLUTION = "channels_last_3d, as cuDNN's; the CPU has no such kernel"
CUDA_LOG_SIGMOID = "log_sigmoid keeps the order of its input's dimensions, as on CUDA; the CPU's is contiguous"
CUDA_NONZERO = "each dimension's positions lie side by side, as on CUDA"
CUDA_RNN = "the gradient of the input is contiguous, as cuDNN's"
DERIVATIVE = "ATen's formula makes the input and its gradient contiguous, except on the CPU"
FFT = "contiguous; the CPU moves the transformed dimensions to the end"

# Name of the operator or module -> why its strides differ from the CPU's.
OPERATORS = {
    "argwhere": CUDA_NONZERO,
    "nn.functional.binary_cross_entropy_with_logits": CUDA_LOG_SIGMOID,
    "nn.functional.conv_transpose3d": CUDA_CONVOLUTION,
    "nn.functional.logsigmoid": CUDA_LOG_SIGMOID,
    "nn.functional.scaled_dot_product_attention": CUDA_ATTENTION,
    "nonzero": CUDA_NONZERO,
    "stft": FFT,
    **{f"fft.{kind}fft{n}": FFT for kind in ("", "h", "i", "ih", "ir", "r") for n in ("", "2", "n")},
}
MODULES = {
    "nn.GRU": CUDA_RNN,
    "nn.GroupNorm": DERIVATIVE,
    "nn.LSTM": CUDA_RNN,
    "nn.LogSigmoid": CUDA_LOG_SIGMOID,
    "nn.RNN": CUDA_RNN,
}
# Their strides tell nothing about the operator: they are those of the storage, or the operator is not netcl's.
LEFT_OUT = ("as_strided", "chalf", "jiterator", "sparse", "torch.ops.aten._")

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def channels_last(x):
    return x.contiguous(memory_format=CHANNELS_LAST[x.dim()]) if x.dim() in CHANNELS_LAST else x


def in_memory_order(order):
    """A function that lays out a tensor's dimensions in this order in memory."""

    def arrange(x):
        dims = order(x.dim())
        back = sorted(range(x.dim()), key=dims.__getitem__)
        return x.permute(dims).contiguous().permute(back)

    return arrange


LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": channels_last,
    "reversed": in_memory_order(lambda n: list(range(n))[::-1]),
    "transposed": in_memory_order(lambda n: [*range(n - 2), n - 1, n - 2] if n > 1 else list(range(n))),
}


def rank(tree):
    return max((t.dim() for t in tensors(tree)), default=0)


def layouts(tree):
    """The layouts that differ for tensors with this number of dimensions."""
    if FULL:
        return list(LAYOUTS)
    return ["contiguous", "channels_last", "transposed"] if rank(tree) in CHANNELS_LAST else ["contiguous", "reversed"]


def by_rank(samples, tree_of):
    """A sample with most dimensions; in the full tier, one of each number."""
    found = {}
    for s in samples:
        if any(t.numel() > 1 for t in tensors(tree_of(s))):
            found.setdefault(rank(tree_of(s)), s)
    return [found[r] for r in sorted(found, reverse=True)][: None if FULL else 1]


def arranged(tree, layout):
    def arrange(x):
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
            return x
        return LAYOUTS[layout](x.detach()).requires_grad_(x.requires_grad)

    return tree_map(arrange, tree)


def results(call, leaves):
    """The outputs, and the gradients of the leaves for weights in the outputs' layout."""
    outputs = tensors(call())
    roots = [t for t in outputs if t.requires_grad and t.numel() and t.layout == torch.strided]
    leaves = [t for t in leaves if t.requires_grad]
    if not roots or not leaves:
        return outputs
    weights = [torch.empty_like(t).copy_(torch.linspace(-0.5, 1.5, t.numel()).view(t.shape)) for t in roots]
    return [*outputs, *torch.autograd.grad(roots, leaves, weights, allow_unused=True)]


def strides(t):
    """Shape and strides, with None for a stride that no element depends on."""
    if t is None or t.layout != torch.strided or not t.numel():
        return None
    return tuple(t.shape), tuple(s if n != 1 else None for n, s in zip(t.shape, t.stride(), strict=True))


def differences(call, on_cpu, leaves, on_device, device_leaves):
    """The differences, one per line; None if the CPU refuses the layout."""
    try:
        expected = seeded(lambda: results(lambda: call(*on_cpu), leaves))
    except RuntimeError:
        return None
    got = seeded(lambda: results(lambda: call(*on_device), device_leaves))
    pairs = enumerate(zip(got, expected, strict=True))
    return [f"result {i}: {strides(g)}, on the CPU {strides(e)}" for i, (g, e) in pairs if strides(g) != strides(e)]


def dtypes_checked(op, dtype):
    return ["samples"] if dtype == torch.float32 and not op.full_name.startswith(LEFT_OUT) else []


class TestOperators(TestCase):
    @ops([op for op in restricted(OPS, dtypes_checked) if torch.float32 in op.supported_dtypes("cpu")])
    def test(self, device, dtype, op):
        if op.full_name in OPERATORS:
            self.skipTest(OPERATORS[op.full_name])
        differentiable = KINDS["grad"].applies(op, dtype)
        torch.manual_seed(0)
        samples = itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=differentiable), 100)
        wrong = []
        for sample in by_rank(samples, arguments):

            def call(inputs, args, kwargs, sample=sample):
                out = op.op(inputs, *args, **kwargs)
                return sample.output_process_fn_grad(out) if sample.output_process_fn_grad else out

            for layout in layouts(arguments(sample)):
                here = arranged(arguments(sample), layout)
                there = moved(op, here, DEVICE)
                with quiet():
                    found = differences(call, here, tensors(here), there, tensors(there))
                wrong += [f"{layout} {[strides(t) for t in tensors(here)]}, {line}" for line in found or ()]
        if wrong:
            self.fail("\n".join(wrong))


def module_cases():
    for info in module_db:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            yield subtest((info, training), name=f"{info.formatted_name}{'' if training else '_eval'}")


def module_tree(sample):
    return sample.forward_input.args, sample.forward_input.kwargs


class TestModules(TestCase):
    @parametrize("info,training", list(module_cases()))
    def test(self, info, training):
        if info.name in MODULES:
            self.skipTest(MODULES[info.name])
        torch.manual_seed(0)
        every = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
        wrong = []
        for sample in by_rank(every, module_tree):
            constructor = sample.constructor_input
            for layout in layouts(module_tree(sample)):
                here = arranged(module_tree(sample), layout)
                module = seeded(lambda c=constructor: info.module_cls(*c.args, **c.kwargs)).train(training)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    if info.is_lazy:
                        module(*here[0], **here[1])
                    if layout == "channels_last":
                        for p in module.parameters():
                            p.data = channels_last(p.data)
                    other = copy.deepcopy(module).to(DEVICE)
                    there = to_device(here, DEVICE)
                    found = differences(
                        lambda m, args, kwargs: m(*args, **kwargs),
                        (module, *here),
                        [*tensors(here), *module.parameters()],
                        (other, *there),
                        [*tensors(there), *other.parameters()],
                    )
                wrong += [f"{layout} {[strides(t) for t in tensors(here)]}, {line}" for line in found or ()]
        if wrong:
            self.fail("\n".join(wrong))


def image_layers(d):
    """(name, function, shapes of its arguments, whether it draws random numbers), over d dimensions"""
    space, ker, one = [6, 5, 4][:d], [3] * d, [1] * d
    x, pads = [2, 8, *space], [1, 2, 1, 0, 0, 1][: 2 * d]

    def of(name):
        return getattr(F, f"{name}{d}d")

    yield "conv", lambda x, w, b: of("conv")(x, w, b, padding=1), [x, [4, 8, *ker], [4]], False
    yield "conv_stride", lambda x, w, b: of("conv")(x, w, b, 2, 1), [x, [4, 8, *ker], [4]], False
    yield "conv_one", lambda x, w, b: of("conv")(x, w, b), [x, [4, 8, *one], [4]], False
    yield "conv_one_channel", lambda x, w: of("conv")(x, w), [[2, 1, *space], [4, 1, *ker]], False
    yield "conv_groups", lambda x, w: of("conv")(x, w, None, 1, 2, 2, 2), [x, [4, 4, *ker]], False
    yield "conv_depthwise", lambda x, w: of("conv")(x, w, padding=1, groups=8), [x, [8, 1, *ker]], False
    yield "conv_transpose", lambda x, w, b: of("conv_transpose")(x, w, b, 2, 1), [x, [8, 4, *ker], [4]], False
    yield "conv_transpose_groups", lambda x, w: of("conv_transpose")(x, w, groups=2), [x, [8, 4, *ker]], False
    for mode in ("reflect", "replicate", "circular", "constant"):
        yield f"pad_{mode}", partial(F.pad, pad=pads, mode=mode), [x], False
    for mode in ("reflect", "replicate"):
        yield f"pad_{mode}_unbatched", partial(F.pad, pad=pads, mode=mode), [x[1:]], False
    yield "max_pool", lambda x: of("max_pool")(x, 2, 1, 1, return_indices=True), [x], False

    def unpool(x):
        return of("max_unpool")(*of("max_pool")(x, 2, return_indices=True), 2, output_size=space)

    yield "max_unpool", unpool, [x], False
    yield "avg_pool", lambda x: of("avg_pool")(x, 3, 2, 1), [x], False
    yield "adaptive_avg_pool", lambda x: of("adaptive_avg_pool")(x, 3), [x], False
    yield "adaptive_max_pool", lambda x: of("adaptive_max_pool")(x, 3), [x], False
    yield "group_norm", lambda x, w, b: F.group_norm(x.detach(), 4, w.detach(), b.detach()), [x, [8], [8]], False
    yield "instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), [x, [8], [8]], False
    yield "batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [x, [8], [8]], False
    yield "dropout", lambda x: F.dropout(x, 0.5), [x], True
    yield "native_dropout", lambda x: torch.native_dropout(x, 0.5, True), [x], True
    yield "rrelu", lambda x: F.rrelu(x, training=True), [x], True
    yield "channel_shuffle", lambda x: F.channel_shuffle(x, 4), [x], False
    yield "bce", lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x), reduction="none"), [x], False
    for mode in ("nearest", "area", ["linear", "bilinear", "trilinear"][d - 1]):
        yield f"interpolate_{mode}", partial(F.interpolate, scale_factor=2, mode=mode), [x], False
    if d == 2:
        yield "pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), [[2, 8, 3, 5]], False
        yield "pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), [[2, 3, 4, 6]], False
        yield "unique_dim", lambda x: torch.unique(x.detach(), dim=1), [[3, 4, 5]], False


class TestImageLayers(TestCase):
    @parametrize(
        "f,shapes,random",
        [subtest(case[1:], name=f"{case[0]}_{d}d") for d in (1, 2, 3) for case in image_layers(d)],
    )
    def test(self, f, shapes, random):
        for layout in LAYOUTS:
            torch.manual_seed(0)
            here = arranged([torch.randn(shape).requires_grad_() for shape in shapes], layout)
            there = to_device(here, DEVICE)
            expected = seeded(lambda args=here: results(lambda: f(*args), args))
            got = seeded(lambda args=there: results(lambda: f(*args), args))
            self.assertEqual([strides(t) for t in got], [strides(t) for t in expected], layout)
            if not random:
                self.assertEqual(got, expected, exact_device=False)


class TestOthers(TestCase):
    def test_nonzero(self):
        """The positions in each dimension are contiguous, and so are indices made of them."""
        x = torch.eye(5, device=DEVICE)
        self.assertEqual(x.nonzero().stride(), (1, 5))
        self.assertEqual(x.nonzero().cpu(), torch.eye(5).nonzero())

    def test_dropout_of_a_slice(self):
        """A tensor with holes keeps the order of its dimensions."""
        x = torch.randn(4, 6, 5, device=DEVICE).transpose(0, 2)[:, ::2]
        self.assertEqual(F.dropout(x, 0.5).stride(), torch.empty_like(x).stride())


instantiate_device_type_tests(TestOperators, globals(), only_for="netcl")
instantiate_parametrized_tests(TestModules)
instantiate_parametrized_tests(TestImageLayers)

if __name__ == "__main__":
    run_tests()
