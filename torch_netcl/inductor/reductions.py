"""Reductions: what is added up in a loop, and how its lanes become one number."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch._inductor.codegen.common import CSEVariable
from torch._inductor.virtualized import OpsWrapper, ops

from . import dtypes
from .body import LANES, ROWS, Body, Statement

#: Macro of kernels/common/compiled.h that combines two values.
_COMBINE = {"sum": "PLUS", "prod": "MUL", "xor_sum": "XOR", "max": "GREATER", "min": "LESS", "any": "OR"}


class Kernel(Protocol):
    """What reductions use of an ``OpenCLKernel``, whose file imports this one."""

    code: Body
    functions: dict[str, None]
    scratch: list[str]
    shape: int
    inside_reduction: bool
    overrides: Any

    def new_name(self) -> str: ...
    def variable(self, name: str, dtype: torch.dtype) -> CSEVariable: ...
    def welford_reduce_fallback(self, dtype: torch.dtype, value: Any) -> Any: ...
    def prepare_softmax_twopass_fallback(self, dtype: torch.dtype, value: Any) -> Any: ...


def reduce(kernel: Kernel, dtype: torch.dtype, src_dtype: torch.dtype, kind: str, value: Any) -> Any:
    """The result of ``ops.reduction``, the same in all lanes of a row."""
    if kind == "welford_reduce":
        return _whole(kernel, kernel.welford_reduce_fallback, dtype, value)
    if kind == "welford_combine":
        return _whole(kernel, _combine_welford, kernel, dtype, value)
    if kind == "online_softmax_reduce":
        return _whole(kernel, kernel.prepare_softmax_twopass_fallback, dtype, value)
    if kind in ("argmax", "argmin"):
        return _position(kernel, kind, value)
    if kind not in _COMBINE:
        raise NotImplementedError(f"netcl: no code is generated for the reduction {kind}")
    dtype = dtypes.computed(dtype if kind in ("sum", "prod", "xor_sum") else src_dtype)
    if kind == "any":
        dtype = torch.bool
    return _combined(kernel, kind, dtype, value)


def _whole(kernel: Kernel, function: Any, *args: Any) -> Any:
    """The result of a function that makes several reductions in turn."""
    inside = kernel.inside_reduction
    result = function(*args)
    kernel.inside_reduction = inside
    return OpsWrapper._unwrap(result)


def _combine_welford(kernel: Kernel, dtype: torch.dtype, value: tuple[CSEVariable, ...]) -> Any:
    """Mean, sum of squared distances and weight of the union of parts that each have those."""
    mean, m2, weight = value
    total = ops.reduction(dtype, dtype, "sum", weight)
    weighted = ops.truediv(ops.reduction(dtype, dtype, "sum", ops.mul(mean, weight)), total)
    distance = ops.sub(mean, weighted)
    spread = ops.add(m2, ops.mul(weight, ops.mul(distance, distance)))
    return weighted, ops.reduction(dtype, dtype, "sum", spread), total


def _identity(kind: str, dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return dtypes.literal(kind in ("min", "prod"), dtype)
    if kind in ("max", "min"):
        end = dtypes.lowest(dtype) if kind == "max" else dtypes.highest(dtype)
        return f"({dtypes.vector(dtype)})({end})"
    return dtypes.literal(1 if kind == "prod" else 0, dtype)


def _update(kind: str, dtype: torch.dtype, acc: str, value: str) -> str:
    if dtype is torch.bool:
        return f"{acc} {'&' if kind in ('min', 'prod') else '|'} {value}"
    if kind in ("max", "min"):
        return f"{value} {'>' if kind == 'max' else '<'} {acc} ? {value} : {acc}"  # NaN: see _combined
    return f"{acc} {dict(sum='+', prod='*', xor_sum='^')[kind]} {value}"


def _counting(dtype: torch.dtype, value: str, identity: str) -> str:
    """The value in lanes that count, else the identity."""
    return f"PICK_{dtypes.size(dtype)}(LANES_BELOW({LANES}), {value}, {identity})"


def _combined(kernel: Kernel, kind: str, dtype: torch.dtype, value: CSEVariable) -> CSEVariable:
    value = kernel.overrides.to_dtype(value, dtype)
    type, tag = dtypes.vector(dtype), dtypes.tag(dtype)
    name = kernel.new_name()
    acc, identity = f"acc_{name}", _identity(kind, dtype)
    text = str(value)
    lines = []
    if kernel.shape == ROWS:
        lines.append(f"const {type} in_{name} = {_counting(dtype, text, identity)};")
        text = f"in_{name}"
    lines.append(f"{acc} = {_update(kind, dtype, acc, text)};")
    before, total = [f"{type} {acc} = {identity};"], acc
    if kind in ("max", "min") and dtype.is_floating_point:  # apart, so that the next step need not wait for it
        size = dtypes.size(dtype)
        before.append(f"MASK nan_{name} = (MASK)(0);")
        lines.append(f"nan_{name} |= TRUTH_{size}({text} != {text});")
        total = f"PICK_{size}(nan_{name}, {dtypes.literal(float('nan'), dtype)}, {acc})"
    if kernel.shape == ROWS:
        function = _COMBINE[kind]
        if dtype is torch.bool:
            function = "AND" if kind in ("min", "prod") else "OR"
        kernel.functions[f"NETCL_REDUCE({function.lower()}, {function}, {tag})"] = None
        kernel.scratch.append(f"SCRATCH({tag}, scratch_{name})")
        total = f"REDUCE({function.lower()}, {tag}, {total}, scratch_{name})"
    after = [f"const {type} {name} = {total};"]
    result = _statement(kernel, name, type, dtype, lines, [str(value)], before, after)
    kernel.code.named[name].of = (kind, str(value))
    return result


def _position(kernel: Kernel, kind: str, value: CSEVariable) -> CSEVariable:
    if value.dtype is torch.bool:
        value = kernel.overrides.to_dtype(value, torch.int32)
    dtype = value.dtype
    type, tag, sign = dtypes.vector(dtype), dtypes.tag(dtype), ">" if kind == "argmax" else "<"
    name = kernel.new_name()
    best, at = f"acc_{name}", f"at_{name}"
    end = dtypes.lowest(dtype) if kind == "argmax" else dtypes.highest(dtype)
    size = dtypes.size(dtype)
    here = "(longs)(r0_index)" + (" + LANE_LONGS" if kernel.shape == ROWS else "")
    nan = f" || ({value} != {value} && {best} == {best})" if dtype.is_floating_point else ""
    none = f"TRUTH_8({at} == (longs)(LONG_MAX))"
    counts = f" & LANES_BELOW({LANES})" if kernel.shape == ROWS else ""
    lines = [
        f"const MASK is_{name} = (TRUTH_{size}({value} {sign} {best}{nan}) | {none}){counts};",
        f"{best} = PICK_{size}(is_{name}, {value}, {best});",
        f"{at} = PICK_8(is_{name}, {here}, {at});",
    ]
    before = [f"{type} {best} = ({type})({end});", f"longs {at} = (longs)(LONG_MAX);"]
    if kernel.shape == ROWS:
        kernel.scratch += [f"SCRATCH({tag}, values_{name})", f"SCRATCH(i64, places_{name})"]
        compare = "BEFORE_GREATER" if kind == "argmax" else "BEFORE_LESS"
        kernel.functions[f"NETCL_REDUCE_AT({kind}, {compare}, {tag})"] = None
        after = [f"const longs {name} = REDUCE_AT({kind}, {tag}, {best}, {at}, values_{name}, places_{name});"]
    else:
        after = [f"const longs {name} = {at};"]
    return _statement(kernel, name, "longs", torch.int64, lines, [str(value), "r0_index"], before, after)


def _statement(
    kernel: Kernel,
    name: str,
    type: str,
    dtype: torch.dtype,
    lines: list[str],
    reads: list[str],
    before: list[str],
    after: list[str],
) -> CSEVariable:
    needs = [n for r in reads for n in kernel.code.needs(r)]
    text = " ".join(lines)
    kernel.code.add(Statement(text, needs, name, type, loop=True, before=before, after=after, reduces=True))
    return kernel.variable(name, dtype)
