"""Autocast on netcl: every entry of the policy lists of the installed torch, and FFTs and torchvision."""

import re
import threading
import unittest
from pathlib import Path

import torch
import torchvision_ops
from torch.testing._internal.autocast_test_lists import AutocastTestLists
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)
from torch.utils._python_dispatch import TorchDispatchMode

import torch_netcl  # noqa: F401

DEV = "netcl"
HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
LOWER = [torch.float16, torch.bfloat16]


def parse_lists():
    """policy -> ["op" or "op.overload", …] from the AT_FORALL_* macros."""
    text = HEADER.read_text().replace("\\\n", " ")
    lists = {}
    for policy in ("LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE", "PROMOTE"):
        body = re.search(rf"#define AT_FORALL_{policy}\(_\)(.*)", text)[1]
        entries = re.findall(r"_\(\s*(\w+)\s*(?:,\s*(\w+)\s*)?\)", body)
        lists[policy.lower()] = [".".join(filter(None, e)) for e in entries]
    body = re.search(r"#define AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE\(_\)(.*)", text)[1]
    lists["fp32_append_dtype"] = re.findall(r'"([\w.]+)"', body)
    return lists


LISTS = parse_lists()
REFUSED_BY_TORCH = {"cdist", "pdist"} if torch.__version__.startswith("2.11.") else set()


def randn(*size, dtype=torch.float32):
    gen = torch.Generator().manual_seed(sum(size) + 1)
    return torch.randn(*size, generator=gen).to(dtype).to(DEV)


def unit(*size, dtype=torch.float32):
    gen = torch.Generator().manual_seed(sum(size) + 2)
    return (torch.rand(*size, generator=gen) * 0.8 + 0.1).to(dtype).to(DEV)


def index(*size, high=2):
    gen = torch.Generator().manual_seed(sum(size) + 3)
    return torch.randint(0, high, size, generator=gen).to(DEV)


def lower_precision_examples():
    conv = {d: (randn(2, 4, *[6] * d), randn(4, 4, *[3] * d), randn(4)) for d in (1, 2, 3)}
    cell = {g: (randn(4, 8), randn(4, 8), randn(g * 8, 8), randn(g * 8, 8), randn(g * 8), randn(g * 8)) for g in (1, 3)}
    x, h, *weights = randn(4, 8), randn(4, 8), randn(32, 8), randn(32, 8), randn(32), randn(32)
    two = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    q = randn(2, 2, 8, 4)
    return {
        "_convolution.deprecated": (*conv[2], *two, False, True, True),
        "_convolution": (*conv[2], *two, False, True, True, True),
        "convolution": (*conv[2], *two),
        **{f"conv{d}d": conv[d] for d in (1, 2, 3)},
        "conv_tbc": (randn(6, 2, 4), randn(3, 4, 5), randn(5), 0),
        "conv_transpose1d": conv[1],
        "conv_transpose2d.input": conv[2],
        "conv_transpose3d.input": conv[3],
        "prelu": (randn(4, 8), randn(1)),
        "addmm": (randn(4, 5), randn(4, 8), randn(8, 5)),
        "addmv": (randn(4), randn(4, 8), randn(8)),
        "addr": (randn(4, 8), randn(4), randn(8)),
        "matmul": (randn(2, 4, 8), randn(8, 5)),
        "einsum": ("bij,bjk->bik", [randn(2, 4, 8), randn(2, 8, 5)]),
        "mm": (randn(4, 8), randn(8, 5)),
        "mv": (randn(4, 8), randn(8)),
        "linalg_vecdot": (randn(4, 8), randn(4, 8)),
        "linear": (randn(4, 8), randn(5, 8), randn(5)),
        "addbmm": (randn(4, 5), randn(2, 4, 8), randn(2, 8, 5)),
        "baddbmm": (randn(2, 4, 5), randn(2, 4, 8), randn(2, 8, 5)),
        "bmm": (randn(2, 4, 8), randn(2, 8, 5)),
        "chain_matmul": ([randn(4, 8), randn(8, 5), randn(5, 3)],),
        "linalg_multi_dot": ([randn(4, 8), randn(8, 5), randn(5, 3)],),
        "lstm_cell": (x, [h, randn(4, 8)], *weights),
        "gru_cell": cell[3],
        "rnn_tanh_cell": cell[1],
        "rnn_relu_cell": cell[1],
        "scaled_dot_product_attention": (q, q, q),
    }


def fp32_examples(dtype):
    def r(*size):
        return randn(*size, dtype=dtype)

    def u(*size):
        return unit(*size, dtype=dtype)

    v, m, m2 = r(8), r(4, 8), r(8, 4).t().contiguous()
    image = {d: r(1, 2, *[4] * d) for d in (1, 2, 3)}
    return {
        **{op: (u(8),) for op in ("acos", "asin", "erfinv", "log", "log10", "log2", "log1p", "rsqrt")},
        **{op: (v,) for op in ("cosh", "exp", "expm1", "reciprocal", "sinh", "tan", "softplus", "nuclear_norm_vector")},
        "pow.Tensor_Scalar": (u(8), 1.7),
        "pow.Tensor_Tensor": (u(8), v),
        "pow.Scalar": (1.7, v),
        "layer_norm": (m, [8], u(8), v),
        "native_layer_norm": (m, [8], u(8), v, 1e-5),
        "rms_norm": (m, [8], u(8)),
        "group_norm": (r(2, 4, 3), 2, u(4), r(4)),
        "frobenius_norm.dim": (m, [0, 1]),
        "nuclear_norm": (m,),
        "nuclear_norm.dim": (m, [0, 1]),
        "cosine_similarity": (m, m2),
        "poisson_nll_loss": (m, u(4, 8), True, False, 1e-8, 1),
        "cosine_embedding_loss": (m, m2, torch.ones(4, dtype=torch.int, device=DEV)),
        "nll_loss": (m, index(4)),
        "nll_loss2d": (r(2, 3, 4, 4), index(2, 4, 4)),
        "hinge_embedding_loss": (m, torch.ones(4, 8, dtype=torch.int, device=DEV)),
        "kl_div": (m, u(4, 8)),
        **{op: (m, m2) for op in ("l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss")},
        "margin_ranking_loss": (m, m2, torch.ones(4, 8, dtype=dtype, device=DEV)),
        "multilabel_margin_loss": (m, index(4, 8, high=8)),
        "soft_margin_loss": (m, torch.ones(4, 8, dtype=torch.int, device=DEV)),
        "triplet_margin_loss": (m, m2, u(4, 8)),
        "multi_margin_loss": (m, index(4)),
        "binary_cross_entropy_with_logits": (m, u(4, 8)),
        "dist": (v, u(8)),
        "pdist": (m,),
        "cdist": (m, m2),
        "renorm": (m, 2, 0, 1.0),
        "logsumexp": (m, [1]),
        **{
            f"{p}upsample_nearest{e}{d}d": (image[d], [8] * d)
            for d in (1, 2, 3)
            for p, e in (("", ""), ("_", "_exact"))
        },
        "upsample_linear1d": (image[1], [8], False),
        "upsample_bilinear2d": (image[2], [8, 8], False),
        "_upsample_bilinear2d_aa": (image[2], [8, 8], False),
        "upsample_trilinear3d": (image[3], [8, 8, 8], False),
        "upsample_bicubic2d": (image[2], [8, 8], False),
        "_upsample_bicubic2d_aa": (image[2], [8, 8], False),
    }


def set_opt_dtype_examples(dtype):
    v, m = randn(8, dtype=dtype), randn(4, 8, dtype=dtype)
    return {
        "prod": (v,),
        "prod.dim_int": (m, 1),
        "softmax.int": (m, 1),
        "log_softmax.int": (m, 1),
        "cumprod": (m, 1),
        "cumsum": (m, 1),
        "linalg_vector_norm": (v,),
        "linalg_matrix_norm": (m, 1),
        "linalg_matrix_norm.str_ord": (m,),
        "sum": (v,),
        "sum.dim_IntList": (m, [1]),
    }


def append_dtype_examples(dtype):
    m = randn(4, 8, dtype=dtype)
    return {"norm.Scalar": (m, 2), "norm.ScalarOpt_dim": (m, 2, [1], False)}


def promote_examples(low):
    def lo(*size):
        return randn(*size, dtype=low)

    hi = randn
    grid = unit(1, 4, 4, 2)
    return {
        "addcdiv": (hi(8), lo(8), unit(8, dtype=low)),
        "addcmul": (hi(8), lo(8), hi(8)),
        "atan2": (hi(8), lo(8)),
        "bilinear": (lo(1, 2), hi(1, 2), lo(1, 2, 2), hi(1)),
        "cross": (hi(4, 3), lo(4, 3)),
        "dot": (lo(8), hi(8)),
        "vdot": (lo(8), hi(8)),
        "grid_sampler": (lo(1, 2, 5, 5), grid, 0, 0, False),
        "index_put": (hi(8), [index(2, high=8)], lo(2)),
        "tensordot": (hi(4, 8), lo(8, 5), [1], [0]),
        "scatter_add": (hi(4, 8), 0, index(4, 8), lo(4, 8)),
    }


# Entries without a function that could be called here: fused CUDA cells, and attention that only CUDA and the CPU
# provide.
UNCALLABLE = {"_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_scaled_dot_product_flash_attention"}
EXAMPLES = {
    "lower_precision_fp": lambda low: lower_precision_examples(),
    "fp32": fp32_examples,
    "fp32_set_opt_dtype": set_opt_dtype_examples,
    "fp32_append_dtype": append_dtype_examples,
    "promote": promote_examples,
}


def overload_of(entry):
    op, _, overload = entry.partition(".")
    return getattr(getattr(torch.ops.aten, op), overload or "default")


def cast(value, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype != torch.float64 else value
    if isinstance(value, (list, tuple)):
        return type(value)(cast(v, dtype) for v in value)
    return value


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return []


class autocast_policies:
    """torch.autocast without its check of the device: every device stores float16, so the policies can be tested on
    every device."""

    def __init__(self, dtype, enabled=True):
        self.dtype, self.enabled = dtype, enabled

    def __enter__(self):
        self.was = torch.is_autocast_enabled(DEV), torch.get_autocast_dtype(DEV)
        torch.set_autocast_enabled(DEV, self.enabled)
        torch.set_autocast_dtype(DEV, self.dtype)
        torch.autocast_increment_nesting()

    def __exit__(self, *_):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(DEV, self.was[0])
        torch.set_autocast_dtype(DEV, self.was[1])


class SeenDtypes(TorchDispatchMode):
    """Records the floating dtypes of the first operator below autocast."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.name != "aten::_to_copy":
            self.calls.append((func, {t.dtype for t in tensors(list(args)) if t.is_floating_point()}))
        return func(*args, **kwargs)


class Reached(Exception):
    """Raised with the arguments of the first operator below autocast."""


class StopAtFirst(TorchDispatchMode):
    """Stops at the first operator, so that no kernel is needed to see what autocast does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.name in ("aten::_to_copy", "aten::to"):  # inference mode does not decompose `to`
            return func(*args, **kwargs)
        values = [*args, *kwargs.values()]
        floats = frozenset(t.dtype for t in tensors(values) if t.is_floating_point())
        raise Reached(func._schema.name, floats, next((v for v in values if isinstance(v, torch.dtype)), None))


def given(op, args):
    """The first operator inside ``op``, the floating dtypes of its tensors, and the requested dtype; or an error."""
    try:
        with StopAtFirst():
            op(*args)
    except Reached as reached:
        return reached.args
    except Exception as error:  # noqa: BLE001 - some operators refuse some dtypes by themselves
        return type(error)
    return None


def in_thread(function):
    """The result of ``function`` in a new thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def recast(args, dtype, first_only=False):
    """The arguments, with the floating tensors (or only the first one) in another dtype."""
    left = [1 if first_only else 1000]

    def walk(value):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and left[0]:
            left[0] -= 1
            return value.to(dtype)
        if isinstance(value, (list, tuple)):
            return type(value)(walk(v) for v in value)
        return value

    return walk(args)


def to_cpu(value):
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return type(value)(to_cpu(v) for v in value) if isinstance(value, (list, tuple)) else value


ENTRIES = [(policy, entry) for policy, entries in LISTS.items() for entry in entries]


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestPolicies(TestCase):
    def test_lists_were_parsed(self):
        counts = {policy: len(entries) for policy, entries in LISTS.items()}
        self.assertGreaterEqual(counts["lower_precision_fp"], 30, msg=str(counts))
        self.assertGreaterEqual(counts["fp32"], 50, msg=str(counts))
        self.assertGreaterEqual(counts["fp32_set_opt_dtype"], 10, msg=str(counts))
        self.assertGreaterEqual(counts["fp32_append_dtype"], 2)
        self.assertGreaterEqual(counts["promote"], 10, msg=str(counts))

    def test_every_entry_is_registered(self):
        for _, entry in ENTRIES:
            self.assertTrue(
                torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{entry}", "AutocastPrivateUse1"), msg=entry
            )

    def test_every_entry_has_an_example(self):
        for policy, make in EXAMPLES.items():
            missing = set(LISTS[policy]) - set(make(torch.float16)) - UNCALLABLE
            # Named tensors, which torch 2.11 and 2.12 still have.
            missing = {entry for entry in missing if not re.search("dimname|names", entry.lower())}
            self.assertEqual(missing, set(), msg=policy)

    @parametrize("low", LOWER)
    @parametrize("policy", list(EXAMPLES))
    def test_entries(self, policy, low):
        """The output's dtype, the dtype that the operator got, and equality with explicit casts without autocast."""
        for entry, args in EXAMPLES[policy](low).items():
            if entry not in LISTS[policy]:
                continue
            with self.subTest(entry=entry):
                if entry in REFUSED_BY_TORCH:
                    self.skipTest("this torch refuses it on devices outside its tree")
                self.check_entry(policy, entry, args, low)

    def check_entry(self, policy, entry, args, low):
        op = overload_of(entry)
        run_as = low if policy == "lower_precision_fp" else torch.float32
        with autocast_policies(low), SeenDtypes() as seen:
            out = op(*args)
        if policy in ("lower_precision_fp", "fp32", "promote"):
            # Attention's own composite casts back to float32 inside.
            if entry != "scaled_dot_product_attention":
                self.assertEqual(seen.calls[0][1], {run_as}, msg=f"{entry}: inner operator {seen.calls[0][0]}")
            want = op(*cast(args, run_as))
        else:
            want = getattr(torch.ops.aten, entry.partition(".")[0])(*args, dtype=torch.float32)
        # LAPACK computes the singular values; their last bit depends on the memory's alignment.
        tolerance = {} if entry.startswith("nuclear_norm") else {"atol": 0, "rtol": 0}
        for got, expected in zip(tensors(out), tensors(want), strict=True):
            self.assertEqual(got.dtype, expected.dtype, msg=entry)
            self.assertEqual(got.dtype, run_as, msg=entry)
            self.assertEqual(got.cpu(), expected.cpu(), **tolerance, equal_nan=True, msg=entry)
        with autocast_policies(low, enabled=False):
            outside = tensors(op(*cast(args, run_as)))
        self.assertEqual(outside[0].dtype, run_as, msg=entry)

    @parametrize("low", LOWER)
    @parametrize("policy", list(EXAMPLES))
    def test_entries_in_every_kind_of_region(self, policy, low):
        for entry, args in EXAMPLES[policy](low).items():
            if entry in LISTS[policy]:
                with self.subTest(entry=entry):
                    self.check_regions(policy, entry, args, low)

    def check_regions(self, policy, entry, args, low):
        """Tensors are cast wherever autocast is on, and nowhere else."""
        op = overload_of(entry)

        def call():
            return given(op, args)

        def in_region():
            with autocast_policies(low):
                return call()

        outside, inside = call(), in_region()
        self.assertNotEqual(inside, outside, msg=entry)
        with torch.no_grad():
            self.assertEqual(in_region(), inside, msg=entry)
        with torch.inference_mode():
            plain, got = call(), in_region()
            self.assertNotEqual(got, plain, msg=entry)
            if got[0] == inside[0]:  # inference mode does not decompose some composite operators
                self.assertEqual(got, inside, msg=entry)
        self.assertEqual(in_thread(in_region), inside, msg=entry)
        with autocast_policies(low):
            self.assertEqual(in_thread(call), outside, msg=entry)
            with autocast_policies(low, enabled=False):
                self.assertEqual(call(), outside, msg=entry)
                self.assertEqual(in_region(), inside, msg=entry)
            with torch.autocast("cpu", enabled=False):
                self.assertEqual(call(), inside, msg=entry)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(call(), outside, msg=entry)

    @parametrize("low", LOWER)
    @parametrize("policy", list(EXAMPLES))
    def test_entries_with_other_arguments(self, policy, low):
        for entry, args in EXAMPLES[policy](low).items():
            if entry in LISTS[policy]:
                with self.subTest(entry=entry):
                    self.check_other_arguments(policy, entry, args, low)

    def check_other_arguments(self, policy, entry, args, low):
        """Tensors of other devices, integers and float64 are not cast; each of several float dtypes is."""
        op, host = overload_of(entry), to_cpu(args)
        on_cpu = given(op, host)
        with autocast_policies(low):
            self.assertEqual(given(op, host), on_cpu, msg=entry)
        for kind in [torch.int64, *([torch.float64] if torch.netcl.get_device_properties().has_fp64 else [])]:
            other = recast(args, kind)
            plain = given(op, other)
            if policy == "fp32_append_dtype":
                plain = (*plain[:2], kind)  # it always passes a dtype: here that of its argument, as on CUDA
            with autocast_policies(low):
                self.assertEqual(given(op, other), plain, msg=f"{entry} of {kind}")
        mixed = recast(recast(args, torch.float32), low, first_only=True)
        dtypes = {t.dtype for t in tensors(list(mixed)) if t.is_floating_point()}
        if len(dtypes) > 1:
            with autocast_policies(low):
                run_as = low if policy == "lower_precision_fp" else torch.float32
                self.assertEqual(given(op, mixed)[1], {run_as}, msg=entry)

    @parametrize("low", LOWER)
    def test_cpu_scalars(self, low):
        """A 0-dim CPU tensor is not cast, and does not widen other tensors."""
        x, two = randn(8, dtype=low), torch.tensor(2.0)
        with autocast_policies(low):
            self.assertEqual(torch.pow(unit(8, dtype=low), two).dtype, torch.float32)
            self.assertEqual(torch.addcmul(x, x, two).dtype, low)
            self.assertEqual(torch.atan2(x, two).dtype, low)
            self.assertEqual(torch.atan2(randn(8), two).dtype, torch.float32)
            self.assertEqual((x * two).dtype, low)

    @parametrize("low", LOWER)
    def test_in_place_and_out_of_each_kind(self, low):
        """In-place and out forms are on no list, and they are not cast."""
        for _, entry in ENTRIES:
            self.assertFalse(entry.partition(".")[0].endswith("_") or entry.endswith("out"), msg=entry)
        a, b, m = randn(4, 4), randn(4, 4, dtype=low), randn(4, 4)
        cases = [
            (torch.ops.aten.mm.out, (a, m), {"out": torch.empty_like(a)}),
            (torch.ops.aten.addmm_, (a, m, m), {}),
            (torch.ops.aten.exp_, (b,), {}),
            (torch.ops.aten.pow_.Scalar, (b, 1.5), {}),
            (torch.ops.aten.softmax.int_out, (b, 1), {"out": torch.empty_like(b)}),
            (torch.ops.aten.sum.IntList_out, (b, [1]), {"out": torch.empty(4, dtype=low, device=DEV)}),
            (torch.ops.aten.addcmul_, (a, m, b), {}),
            (torch.ops.aten.atan2_, (b, b), {}),
        ]
        for op, args, kwargs in cases:

            def call(*args, op=op, kwargs=kwargs):
                return op(*args, **kwargs)

            outside = given(call, args)
            with autocast_policies(low):
                self.assertEqual(given(call, args), outside, msg=str(op))

    def test_own_dtype_argument_wins(self):
        x = randn(4, 8)
        with autocast_policies(torch.bfloat16):
            self.assertEqual(x.sum(dtype=torch.bfloat16).dtype, torch.bfloat16)
            self.assertEqual(x.bfloat16().softmax(1, dtype=torch.bfloat16).dtype, torch.bfloat16)
            self.assertEqual(x.bfloat16().sum().dtype, torch.float32)

    def test_integers_and_float64_are_left_alone(self):
        counts = torch.arange(6, device=DEV)
        with autocast_policies(torch.bfloat16):
            self.assertEqual(counts.sum().dtype, torch.int64)
            self.assertEqual(counts.cumsum(0).dtype, torch.int64)
            if torch.netcl.get_device_properties().has_fp64:
                double = torch.ones(3, 3, dtype=torch.float64, device=DEV)
                self.assertEqual((double @ double).dtype, torch.float64)
                self.assertEqual(double.exp().dtype, torch.float64)

    def test_in_place_and_out_are_not_cast(self):
        # As on CUDA: autocast does not replace a tensor that the caller allocated.
        a, b = randn(4, 4), randn(4, 4)
        with autocast_policies(torch.bfloat16):
            out = torch.empty(4, 4, device=DEV)
            self.assertEqual(torch.mm(a, b, out=out).dtype, torch.float32)
            self.assertEqual(a.clone().addmm_(a, b).dtype, torch.float32)
            half = a.bfloat16()
            self.assertEqual(half.exp_().dtype, torch.bfloat16)

    def test_cpu_tensors_are_not_cast(self):
        with autocast_policies(torch.bfloat16):
            self.assertEqual((torch.ones(2, 2) @ torch.ones(2, 2)).dtype, torch.float32)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                self.assertEqual((torch.ones(2, 2) @ torch.ones(2, 2)).dtype, torch.bfloat16)
                self.assertEqual((randn(2, 2) @ randn(2, 2)).dtype, torch.bfloat16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual((randn(2, 2) @ randn(2, 2)).dtype, torch.float32)

    def test_lists_of_pytorch(self):
        lists = AutocastTestLists(DEV)
        groups = [
            (lists.torch_fp16, torch, torch.float16),
            (lists.torch_fp32, torch, torch.float32),
            (lists.torch_need_autocast_promote, torch, torch.float32),
            (lists.nn_fp16, torch._C._nn, torch.float16),
            (lists.nn_fp32, torch._C._nn, torch.float32),
            (lists.linalg_fp16, torch._C._linalg, torch.float16),
            (lists.methods_fp16, None, torch.float16),
            (lists.methods_fp32, None, torch.float32),
        ]
        checked = 0
        for group, module, dtype in groups:
            for name, *rest in group:
                if name.startswith("cudnn"):
                    continue
                args = next(a for a in rest if isinstance(a, tuple))
                kwargs = rest[-1] if isinstance(rest[-1], dict) else {}
                if name == "einsum":
                    args = ("bkhd,bqhd->bqkh", randn(2, 3, 4, 5), randn(2, 6, 4, 5))
                    rest = []
                with self.subTest(op=name):
                    if name in REFUSED_BY_TORCH:
                        self.skipTest("this torch refuses it on devices outside its tree")
                    function = getattr(module, name) if module else getattr(torch.Tensor, name)
                    with autocast_policies(torch.float16):
                        out = tensors(function(*args, **kwargs))
                    want = tensors(function(*cast(args, dtype), **kwargs))
                    self.assertEqual([t.dtype for t in out], [dtype] * len(out))
                    self.assertEqual([t.cpu() for t in out], [t.cpu() for t in want], atol=0, rtol=0)
                    checked += 1
        for name, args, dtype in lists.torch_expect_builtin_promote:
            with self.subTest(op=name), autocast_policies(torch.float16):
                out = getattr(torch, name)(*args)
                if isinstance(out, torch.Tensor):
                    self.assertEqual(out.dtype, dtype)
                checked += 1
        self.assertGreater(checked, 80)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestBoxedPolicies(TestCase):
    @parametrize("low", LOWER)
    def test_transforms(self, low):
        """Fourier transforms run in float32, as under CPU autocast; without autocast there are none for bfloat16, and
        those of half are narrow, as on CUDA."""
        x, window = torch.randn(3, 8, 12, device=DEV), torch.hann_window(6, device=DEV)
        half = x.to(low)
        calls = {n: getattr(torch.fft, n) for n in dir(torch.fft) if re.fullmatch("i?[rh]?fft[2n]?", n)}
        self.assertEqual(len(calls), 18)
        calls["stft"] = lambda t: torch.stft(t[0], 6, 3, window=window.to(low).to(t.dtype), return_complex=True)
        for name, call in calls.items():
            with self.subTest(op=name):
                want = call(half.float())
                with autocast_policies(low):
                    got = call(half)
                self.assertEqual((got.dtype, got.cpu()), (want.dtype, want.cpu()), atol=0, rtol=0)
                if name != "stft" and low is torch.bfloat16:
                    with self.assertRaisesRegex(RuntimeError, "Unsupported dtype BFloat16"):
                        call(half)
                elif name != "stft":
                    narrow = torch.complex32 if want.is_complex() else torch.half
                    self.assertEqual(call(half).dtype, narrow)
        with autocast_policies(low):
            back = torch.istft(calls["stft"](half), 6, 3, window=window.to(low))
            leaf = half.clone().requires_grad_()
            torch.fft.rfft(leaf).abs().sum().backward()
        self.assertEqual((back.dtype, leaf.grad.dtype), (torch.float32, low))

    @parametrize("low", LOWER)
    def test_torchvision(self, low):
        """They run in float32, whatever the dtypes of their arguments, and return the dtype of their input."""
        ops = torchvision_ops.load()
        x, weight = torch.randn(1, 4, 6, 6, device=DEV).to(low), torch.randn(3, 4, 1, 1, device=DEV)
        boxes = torch.rand(5, 4, device=DEV) + torch.tensor([0, 0, 3, 3], device=DEV)
        rois = torch.cat([torch.zeros(5, 1, device=DEV), boxes], 1)
        offset, mask, bias = (torch.rand(*shape, device=DEV) for shape in ((1, 2, 6, 6), (1, 1), (3,)))
        calls = [
            lambda t: ops.roi_align(t(x), t(rois), 1.0, 2, 2, 1, True),
            lambda t: ops.roi_pool(t(x), t(rois), 1.0, 2, 2),
            lambda t: ops.ps_roi_align(t(x), t(rois), 1.0, 2, 2, 1),
            lambda t: ops.ps_roi_pool(t(x), t(rois), 1.0, 2, 2),
            lambda t: ops.deform_conv2d(t(x), t(weight), t(offset.to(low)), t(mask), t(bias), 1, 1, 0, 0, 1, 1, 1, 1,
                                        False),
        ]  # fmt: skip
        for call in calls:
            with autocast_policies(low):
                got = tensors(call(lambda t: t))
            want = tensors(call(lambda t: t.float()))
            self.assertEqual([t.dtype for t in got], [low, *(t.dtype for t in want[1:])])
            self.assertEqual([t.cpu() for t in got], [want[0].to(low).cpu(), *(t.cpu() for t in want[1:])])
            with self.assertRaisesRegex(RuntimeError, "to have the same type"):
                call(lambda t: t)
        with autocast_policies(low):
            kept = ops.nms(boxes.to(low), boxes[:, 0], 0.5)
        self.assertEqual(kept.cpu(), ops.nms(boxes.to(low).float(), boxes[:, 0], 0.5).cpu())
        if torch.netcl.get_device_properties().has_fp64:
            with autocast_policies(low):
                self.assertEqual(calls[0](lambda t: t.double()).dtype, torch.float64)


instantiate_parametrized_tests(TestPolicies)
instantiate_parametrized_tests(TestBoxedPolicies)

if __name__ == "__main__":
    run_tests()
