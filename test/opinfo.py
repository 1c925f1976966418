"""The checks of an operator of PyTorch's OpInfo database on netcl, with one function per kind of check.

A check compares with the CPU and raises if the results differ. ``test_opinfo.py`` runs the checks, and
``opinfo_table.py`` writes ``docs/operators.md`` from their results.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import DEVICE, to_device
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def _claiming_what_cuda_does(op: Any) -> Any:
    """A copy with CUDA's claims; other files of the same test run must see op_db as PyTorch wrote it."""
    mine = copy.copy(op)
    mine.dtypesIf = {**op.dtypesIf, DEVICE: op.dtypesIfCUDA}
    return mine


#: torch 2.11 itself refuses them on devices that it does not list.
_REFUSED_BY_TORCH = {"cdist", "nn.functional.pdist"} if torch.__version__.startswith("2.11.") else set()
OPS = [_claiming_what_cuda_does(op) for op in op_db if op.name not in _REFUSED_BY_TORCH]


def restricted(ops: list, kinds_of: Callable[[Any, torch.dtype], list[str]]) -> list:
    """The operators, each with only those of its dtypes for which something is checked."""
    mine = []
    for op in map(copy.copy, ops):
        dtypes = {d for d in op.dtypesIf[DEVICE] if d in DTYPES and kinds_of(op, d)}
        op.dtypesIf = {**op.dtypesIf, DEVICE: dtypes}
        if dtypes:
            mine.append(op)
    return mine


WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
# netcl's mean and 1 / deviation are float32, as CUDA's (but group_norm's); the CPU's have the input's dtype.
FLOAT_STATISTICS = {
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "native_batch_norm",
    "native_group_norm",
    "native_layer_norm",
}
# The CPU's are less exact than netcl's: beyond 8 the Bessel functions in double are off by up to 4e-7, and trigamma in
# bfloat16 misses the pole at -4, where it is 8e13. OpInfo's own reference, SciPy, stands for the CPU.
BY_SCIPY = {(f"special.bessel_{name}", torch.float64) for name in ("j0", "j1", "y0", "y1")}
BY_SCIPY |= {("polygamma", torch.bfloat16), ("special.polygamma", torch.bfloat16)}
# The CPU's results in half and bfloat16 are NaN where those of the same numbers in float32 are finite.
FLOAT_ON_CPU = {"matrix_exp"}
# Their values are the previous content of the memory.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

_case = TestCase()


def is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def to_dtype(tree: Any, types: dict[torch.dtype, torch.dtype]) -> Any:
    """The tree with tensors and dtype arguments converted as the table says."""

    def convert(x: Any) -> Any:
        if is_tensor(x):
            return x.detach().to(types.get(x.dtype, x.dtype)).requires_grad_(x.requires_grad)
        return types.get(x, x) if isinstance(x, torch.dtype) else x

    return tree_map(convert, tree)


def tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in tree_flatten(tree)[0] if is_tensor(x)]


def has_sparse(tree: Any) -> bool:
    return any(t.layout != torch.strided for t in tensors(tree))


def arguments(sample: Any) -> tuple:
    return sample.input, sample.args, sample.kwargs


def host(tree: Any) -> Any:
    return tree_map(lambda x: x.detach().cpu() if is_tensor(x) else x, tree)


def seeded(f: Callable, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return f()


class _RandomOperators(TorchDispatchMode):
    """Records whether an operator that draws random numbers was called."""

    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def metadata(tree: Any) -> list:
    return [(x.shape, x.dtype) if is_tensor(x) else type(x) for x in tree_flatten(tree)[0]]


def picked(tree: tuple, results: Any) -> list[torch.Tensor]:
    """(values, indices) of topk or kthvalue, with the indices replaced by the values there: any of several equal
    elements is right."""
    x, args, kwargs = tree
    values, indices = results
    dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    at = indices if indices.dim() == x.dim() else indices.unsqueeze(dim)
    return [values, x.gather(dim, at).reshape(values.shape)]


PHASES = {"linalg.eigh", "svd", "linalg.svd"}


def without_phases(op: Any, results: Any) -> list[torch.Tensor]:
    """Eigenvectors and singular vectors are unique but for a phase of each pair: their magnitudes, and the product."""
    parts = tensors(results)
    if op.name == "linalg.eigh":
        values, left = parts
        right = left.mH
    elif op.name in PHASES:
        left, values, right = parts
        right = right.mH if op.name == "svd" else right
        left, right = left[..., : values.shape[-1]], right[..., : values.shape[-1], :]
    else:
        return parts
    return [values, left.abs(), right.abs(), (left * values.unsqueeze(-2)) @ right]


def compare(op: Any, got: Any, expected: Any, reference: Callable[[Any], Any]) -> None:
    """Raises AssertionError if they differ; ``reference(f)`` computes on the CPU, with its arguments mapped by ``f``.

    Beyond TestCase's tolerance, netcl may differ from the CPU's result in double by no more than four times the
    error of the CPU in the operator's own dtype (including the largest value's last digit), since the two add in
    different orders.
    """
    got = host(got)
    if op.name in FLOAT_STATISTICS and len(got) > 1 and is_tensor(got[1]) and got[1].dtype == torch.float32:
        got = [g.to(e.dtype) if is_tensor(g) else g for g, e in zip(got, expected, strict=True)]
        expected = list(expected)
    if op.name in UNINITIALISED:
        assert metadata(got) == metadata(expected)
        return
    if op.name in ("topk", "kthvalue") and len(got) == 2:
        seen: list = []
        reference(lambda tree: seen.append(tree) or tree)
        got, expected = picked(seen[0], got), picked(seen[0], expected)
    try:
        _case.assertEqual(got, expected, exact_dtype=True, exact_device=False)
        return
    except AssertionError as error:
        first = error
    assert metadata(got) == metadata(expected), str(first)
    exact = None
    with _RandomOperators() as random, contextlib.suppress(Exception):
        exact = tensors(reference(lambda tree: to_dtype(tree, WIDER)))
    if random.found:
        return  # random numbers: only shape and dtype can be compared
    if exact is None or not any(t.dtype in WIDER for t in tensors(expected)):
        if op.name not in PHASES:
            raise first
        _case.assertEqual(*(without_phases(op, t) for t in (got, expected)))
        return
    for g, c, e in zip(*(without_phases(op, t) for t in (got, expected, exact)), strict=True):
        if c.dtype not in WIDER or not c.numel() or e.shape != c.shape:
            _case.assertEqual(g, c)
            continue
        finite = e.isfinite() & c.isfinite()
        _case.assertEqual(g[~finite], c[~finite])
        g, c, e = (t.to(e.dtype)[finite] for t in (g, c, e))
        if g.numel():
            own = (c - e).abs().max().item()
            eps = torch.finfo(expected_dtype(expected)).eps
            allowed = 4 * own + 4 * eps * e.abs().max().item()
            off = (g - e).abs().max().item()
            assert off <= allowed, f"{off:.3g} off the exact value, where the CPU is {own:.3g} off\n{first}"


def expected_dtype(tree: Any) -> torch.dtype:
    return next(t.dtype for t in tensors(tree) if t.dtype in WIDER)


def spread(items: Iterator, limit: int) -> list:
    """At most ``limit`` items, evenly from the first 200: the first one and, if there is one, a non-empty one."""
    found = list(itertools.islice(items, 8 if limit == 1 else 200))
    if limit == 1:
        return [s for s in found if is_tensor(s.input) and s.input.numel() > 1][:1] or found[:1]
    if len(found) <= limit:
        return found
    return [found[i * (len(found) - 1) // (limit - 1)] for i in range(limit)]


def samples(op: Any, dtype: torch.dtype, limit: int, requires_grad: bool = False) -> list:
    found = spread(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), limit)
    if op.name in ("sort", "argsort"):  # otherwise equal elements come in any order
        for s in found:
            s.args, named = (), dict(zip(("dim", "descending"), s.args, strict=False))
            s.kwargs = {"stable": True, **named, **s.kwargs}
    return found


def on_cpu(op: Any, dtype: torch.dtype, sample: Any, f: Callable | None = None, call: Callable | None = None) -> Any:
    """The CPU's result; in float32 if only CUDA supports the dtype, and with CUDA's dtype of a transform of half."""
    if f is None and (op.name, dtype) in BY_SCIPY:
        x = sample.input.detach()
        exact = op.ref(x.double().numpy(), *sample.args, **sample.kwargs)
        return torch.as_tensor(exact).to(x.dtype)
    call = call or op.op
    narrow = dtype in (torch.float16, torch.bfloat16) and op.name in FLOAT_ON_CPU
    missing = dtype not in op.supported_dtypes("cpu") and dtype != torch.float64  # a claim only: the CPU has float64
    up = {dtype: torch.float32} if narrow or missing else {}
    args = to_dtype(arguments(sample), up) if up else arguments(sample)
    inputs, args, kwargs = f(args) if f else args
    result = seeded(lambda: call(inputs, *args, **kwargs))
    if op.name.startswith("fft.") and dtype == torch.float16 and not f:
        return to_dtype(result, {torch.complex64: torch.complex32, torch.float32: torch.float16})
    return to_dtype(result, {torch.float32: dtype}) if up and not f and dtype.is_floating_point else result


def moved(op: Any, tree: tuple, device: str) -> tuple:
    """The arguments on a device, except those that belong on the CPU for every device."""
    inputs, args, kwargs = tree
    if op.name == "tensor_split":
        return to_device(inputs, device), args, kwargs
    return to_device(tree, device)


def run(op: Any, sample: Any, call: Callable | None = None) -> Any:
    inputs, args, kwargs = moved(op, arguments(sample), DEVICE)
    return (call or op.op)(inputs, *args, **kwargs)


def check_one(op: Any, dtype: torch.dtype, sample: Any) -> None:
    expected = on_cpu(op, dtype, sample)

    def reference(f: Callable | None) -> Any:
        inputs, args, kwargs = (f or (lambda x: x))(arguments(sample))
        return op.op(inputs, *args, **kwargs)

    got = run(op, sample)
    if dtype not in op.supported_dtypes("cpu") and not dtype.is_floating_point:
        # A CPU result in float32 does not tell the result's dtype.
        got, expected = (to_dtype(host(x), dict.fromkeys(DTYPES, torch.float32)) for x in (got, expected))
    compare(op, got, expected, reference)


def check_samples(op: Any, dtype: torch.dtype, limit: int) -> None:
    for sample in samples(op, dtype, limit):
        check_one(op, dtype, sample)


def check_views(op: Any, dtype: torch.dtype, limit: int) -> None:
    for sample in samples(op, dtype, limit):
        if has_sparse(arguments(sample)):  # they have no strides
            continue
        sample = sample.noncontiguous()
        try:
            on_cpu(op, dtype, sample)
        except RuntimeError:  # the operator needs contiguous inputs
            continue
        check_one(op, dtype, sample)


def check_errors(op: Any, dtype: torch.dtype, limit: int) -> None:
    for error in op.error_inputs(DEVICE):
        s = error.sample_input
        with contextlib.suppress(Exception):
            inputs, args, kwargs = to_device(arguments(s), "cpu")
            op.op(inputs, *args, **kwargs)
            continue  # the CPU accepts it, too
        try:
            op.op(s.input, *s.args, **s.kwargs)
            torch.netcl.synchronize()
        except Exception as raised:
            _case.assertIsInstance(raised, error.error_type, str(raised))
            assert re.search(error.error_regex, str(raised)), f"{error.error_regex!r} not in {str(raised)!r}"
        else:
            raise AssertionError(f"no {error.error_type.__name__} for {s}")


def check_inplace(op: Any, dtype: torch.dtype, limit: int) -> None:
    for sample in samples(op, dtype, limit):
        if sample.broadcasts_input or not is_tensor(sample.input):
            continue

        def inplace(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            x = x.clone()
            y = op.inplace_variant(x, *args, **kwargs)
            assert y is x, "the in-place variant returns another tensor"
            return y

        try:
            expected = on_cpu(op, dtype, sample, call=inplace)
        except RuntimeError:  # the result does not fit the input, so netcl must refuse it too
            try:
                run(op, sample, inplace)
            except RuntimeError:
                continue
            raise AssertionError("only the CPU refuses this in-place call") from None
        got = run(op, sample, inplace)

        def reference(f: Callable | None) -> Any:
            inputs, args, kwargs = (f or (lambda x: x))(arguments(sample))
            return inplace(inputs, *args, **kwargs)

        compare(op, got, expected, reference)


def check_out(op: Any, dtype: torch.dtype, limit: int) -> None:
    """Checks out= with the right shape, another stride, another size, and a dtype that cannot hold the result."""
    for sample in samples(op, dtype, limit):
        expected = tensors(on_cpu(op, dtype, sample))
        single = is_tensor(on_cpu(op, dtype, sample))
        if not expected:
            return

        def call(out: list[torch.Tensor], device: str = DEVICE) -> list[torch.Tensor]:
            inputs, args, kwargs = moved(op, arguments(sample), device)
            op.op(inputs, *args, out=out[0] if single else tuple(out), **kwargs)
            return out

        def reference(f: Callable | None) -> Any:
            inputs, args, kwargs = (f or (lambda x: x))(arguments(sample))
            return tensors(op.op(inputs, *args, **kwargs))

        narrow = (torch.float16, torch.bfloat16)
        own = [t.float() if op.name in FLOAT_STATISTICS and i and t.dtype in narrow else t
               for i, t in enumerate(expected)]
        if has_sparse(expected):  # these take the indices from out=, and no other size
            compare(op, call([torch.zeros_like(t).to(DEVICE) for t in expected]), expected, reference)
            continue
        try:
            call([torch.empty_like(t) for t in expected], "cpu")
        except RuntimeError:  # out= cannot take these results
            return
        compare(op, call([torch.empty_like(t, device=DEVICE) for t in own]), expected, reference)
        strided, on_host = (
            call([torch.empty(*t.shape, 2, dtype=t.dtype, device=d)[..., 0] for t in results], d)
            for d, results in ((DEVICE, own), ("cpu", expected))
        )
        compare(op, strided, expected, reference)
        assert [t.stride() for t in strided] == [t.stride() for t in on_host], "out= has other strides than on the CPU"
        compare(op, call([t.new_empty(0, device=DEVICE) for t in own]), expected, reference)
        try:
            call([torch.empty_like(t, dtype=torch.int64) for t in expected], "cpu")
        except (RuntimeError, TypeError) as error:
            # If the CPU has no implementation, netcl may refuse it for another reason.
            expected_type = RuntimeError if isinstance(error, RuntimeError) else type(error)
            with _case.assertRaises(expected_type, msg="out= of an integral dtype") as raised:
                call([torch.empty_like(t, dtype=torch.int64, device=DEVICE) for t in expected])
            assert "clBuildProgram" not in str(raised.exception), "a compiler's log instead of an error of ours"


def gradients(op: Any, sample: Any, device: str, f: Callable | None, order: int) -> Any:
    """The gradients of all inputs that require one, weighted with fixed numbers, and with `order` 2 also their
    gradients."""
    tree = (f or (lambda x: x))(arguments(sample))
    inputs, args, kwargs = moved(op, tree, device)
    leaves = [t for t in tensors((inputs, args, kwargs)) if t.requires_grad]
    outputs = op.gradcheck_wrapper(op.op, inputs, *args, **kwargs) if order else op.op(inputs, *args, **kwargs)
    if sample.output_process_fn_grad:
        outputs = sample.output_process_fn_grad(outputs)

    def weighted(results: list[torch.Tensor], seed: int) -> Any:
        g = torch.Generator().manual_seed(seed)
        roots, weights = [], []
        for t in results:
            if t.requires_grad and t.numel():
                w = torch.rand(t.shape, generator=g, dtype=torch.float64) + 0.5
                roots.append(t)
                weights.append(w.to(t.dtype).to(t.device))
        if not roots:
            return [None] * len(leaves)
        return torch.autograd.grad(roots, leaves, weights, allow_unused=True, create_graph=order > 1)

    first = list(weighted(tensors(outputs), 1))
    if order == 1:
        return first
    order = 1
    return list(weighted([t for t in first if t is not None], 2))


def check_gradients(op: Any, dtype: torch.dtype, limit: int, order: int = 1) -> None:
    for sample in samples(op, dtype, limit, requires_grad=True):
        try:
            expected = seeded(lambda: gradients(op, sample, "cpu", None, order))
        except RuntimeError:
            if order == 1:
                raise
            continue  # the CPU has no double gradient, whatever OpInfo says
        got = seeded(lambda: gradients(op, sample, DEVICE, None, order))
        compare(
            op,
            got,
            [t if t is None else t.detach() for t in expected],
            lambda f: [t if t is None else t.detach() for t in gradients(op, sample, "cpu", f, order)],
        )


def check_double_gradients(op: Any, dtype: torch.dtype, limit: int) -> None:
    check_gradients(op, dtype, limit, order=2)


def check_repeat(op: Any, dtype: torch.dtype, limit: int) -> None:
    if op.name in UNINITIALISED:
        return
    for sample in samples(op, dtype, limit):
        first = tensors(host(seeded(lambda: run(op, sample))))
        again = tensors(host(seeded(lambda: run(op, sample))))
        for a, b in zip(first, again, strict=True):
            _case.assertEqual(a, b, rtol=0, atol=0, exact_dtype=True)


class Kind(NamedTuple):
    """A kind of check: its function, the samples it takes in the full tier, and which operators it applies to."""

    check: Callable
    limit: int
    applies: Callable[[Any, torch.dtype], bool]


def _differentiable(op: Any, dtype: torch.dtype) -> bool:
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cuda") & op.supported_backward_dtypes("cpu")


def _on_both(op: Any, dtype: torch.dtype) -> bool:
    return dtype in op.supported_dtypes("cpu")


KINDS = {
    "samples": Kind(check_samples, 6, lambda op, dtype: True),
    # as_strided sees the storage, which a non-contiguous copy does not preserve.
    "views": Kind(check_views, 2, lambda op, dtype: _on_both(op, dtype) and not op.name.startswith("as_strided")),
    "errors": Kind(check_errors, 1, lambda op, dtype: dtype == torch.float32 and op.error_inputs_func is not None),
    "out": Kind(check_out, 2, lambda op, dtype: op.supports_out and _on_both(op, dtype)),
    "inplace": Kind(check_inplace, 2, lambda op, dtype: op.inplace_variant is not None and _on_both(op, dtype)),
    "grad": Kind(check_gradients, 2, _differentiable),
    "gradgrad": Kind(
        check_double_gradients,
        2,
        lambda op, dtype: dtype == torch.float32 and op.supports_gradgrad and _differentiable(op, dtype),
    ),
    "repeat": Kind(check_repeat, 2, _on_both),
}


def check(op: Any, dtype: torch.dtype, kind: str, limit: int | None = None) -> list[str]:
    """Runs one kind of check; returns the operators that ran on the CPU. Raises AssertionError or the operator's own
    error."""
    torch.netcl.reset_cpu_fallback_ops()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[kind].check(op, dtype, limit or KINDS[kind].limit)
    torch.netcl.synchronize()
    return sorted(torch.netcl.cpu_fallback_ops())


class Expected(NamedTuple):
    """One line of opinfo_expected.txt."""

    op: str
    dtypes: str
    kinds: str
    runtime: str
    elsewhere: str
    reason: str

    @property
    def crashes(self) -> bool:
        """Whether the check ends the process or never ends, so that it must not run."""
        return self.reason.startswith("crash")

    @property
    def sometimes(self) -> bool:
        """Whether only some samples fail, which a run of fewer samples may not include."""
        return self.reason.startswith("some samples")


def read_expected() -> list[Expected]:
    text = Path(__file__).with_name("opinfo_expected.txt").read_text()
    return [Expected(*line.split(None, 5)) for line in text.splitlines() if line.strip() and line[0] != "#"]


def read_regressions() -> dict[tuple[str, torch.dtype], list[str]]:
    """(operator, dtype) -> the kinds of checks that failed once."""
    text = Path(__file__).with_name("opinfo_regressions.txt").read_text()
    lines = [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]
    found: dict[tuple[str, torch.dtype], list[str]] = {}
    for op, dtypes, kinds in lines:
        for dtype in dtypes.split(","):
            found.setdefault((op, getattr(torch, dtype)), []).extend(kinds.split(","))
    return found


def expected_failure(lines: list[Expected], op: Any, dtype: torch.dtype, kind: str, runtime: str) -> Expected | None:
    """The line that expects this failure, if there is one."""

    def matches(field: str, name: str) -> bool:
        return field == "*" or name in field.split(",")

    for line in lines:
        if line.op == op.full_name and matches(line.dtypes, str(dtype)[6:]) and matches(line.kinds, kind):
            if line.runtime == "*" or line.runtime in runtime:
                return line
    return None
