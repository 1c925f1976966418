"""``flex_attention`` in compiled graphs. On CPUs its functions become part of the fused attention kernel
(kernels/attention_blocks.h), which skips the blocks that a mask leaves out. Elsewhere, and for what the kernel does not
take, it is PyTorch's own formula with all scores, whose operators are then fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import getitem
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import sdpa_dense, sdpa_dense_backward
from torch._inductor.exc import SubgraphLoweringException
from torch._inductor.pattern_matcher import CallFunctionVarArgs, Match, PatternMatcherPass, register_graph_pattern
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..device import get_device_properties
from .score_functions import PLACES, ScoreFunctions, Source

_PASS = PatternMatcherPass()
_HOP = torch.ops.higher_order
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
#: A vector of keys lies in one block.
_LANES = 16
#: The positions of the score function, its gradient, the block mask, and the captured tensors of the score function and
#: of the mask, among the arguments.
_FORWARD, _BACKWARD = (3, None, 4, 7, 8), (7, 8, 9, 12, 13)

_library = torch.library.Library("netcl", "FRAGMENT")
_library.define("flex_blocks(Tensor number, Tensor index, Tensor? full_number, Tensor? full_index) -> Tensor")


def _blocks(
    number: torch.Tensor, index: torch.Tensor, full_number: torch.Tensor | None, full_index: torch.Tensor | None
) -> torch.Tensor:
    """The lists of a BlockMask as a table in bytes: a block is seen by mask_mod (1), as a whole (2), or not (0)."""
    count = index.size(-1)
    table = torch.zeros(*index.shape[:-1], count + 1, dtype=torch.uint8, device=index.device)
    for n, i, kind in ((number, index, 1), (full_number, full_index, 2)):
        if n is not None and i is not None:
            listed = torch.arange(count, device=index.device) < n.unsqueeze(-1)
            table.scatter_(-1, torch.where(listed, i, count).long(), kind)
    return table[..., :count].contiguous()


_library.impl("flex_blocks", _blocks, "PrivateUse1")


@torch.library.register_fake("netcl::flex_blocks")
def _(number: torch.Tensor, index: torch.Tensor, *full: Any) -> torch.Tensor:
    return torch.empty(index.shape, dtype=torch.uint8, device=index.device)


@torch.library.register_fake("netcl::flex_attention")
def _(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any) -> Any:
    order = sorted(range(4), key=query.stride, reverse=True)
    out = query.new_empty((*query.shape[:3], value.size(3))).permute(order).contiguous()
    inverse = [order.index(i) for i in range(4)]
    return out.permute(inverse), query.new_empty(query.shape[:3], dtype=torch.float32)


@torch.library.register_fake("netcl::flex_attention_backward")
def _(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any) -> Any:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


class _Filled(TorchFunctionMode):
    """``torch.tensor(number)`` becomes an operator, since a replacement may have no constant tensors."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.tensor and isinstance(args[0], (int, float)):
            return torch.full((), args[0], **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def expand(gm: torch.fx.GraphModule) -> bool:
    """Replaces each ``flex_attention`` of netcl tensors, and each gradient; says whether there was one."""
    if _PASS.apply(gm) == 0:
        return False
    tables: dict[Any, torch.fx.Node] = {}
    for node in list(gm.graph.nodes):
        if node.target is torch.ops.netcl.flex_blocks.default:
            first = tables.setdefault(node.args, node)
            if first is not node:
                node.replace_all_uses_with(first)
                gm.graph.erase_node(node)
    return True


def _is_ours(match: Match) -> bool:
    return match.args[0].meta["val"].device.type == "netcl"


def _value(x: Any) -> Any:
    return x.meta["val"] if isinstance(x, torch.fx.Node) else x


def _takes(node: torch.fx.Node, block_mask: Any, captured: Any, backward: bool) -> bool:
    """Whether the kernel takes the operands of a call."""
    q, k, v = map(_value, node.args[:3])
    return (
        get_device_properties(q.device.index or 0).device_class == "cpu"
        and q.dtype in _DTYPES
        and q.dtype == k.dtype == v.dtype
        and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        and 0 not in (*q.shape, *k.shape, *v.shape)
        and q.size(0) == k.size(0)
        and _value(block_mask[-2]) % _LANES == 0
        and all(getattr(_value(x), "device", q.device) == q.device for x in captured)
        # The greatest scores are a result of the formula only.
        and (backward or all(u.target is getitem and u.args[1] < 2 for u in node.users))
    )


def _source(node: torch.fx.Node, places: Any) -> Source | None:
    """The functions of a call as text, if the kernel takes the call."""
    module = node.graph.owning_module
    score, grad, block_mask, of_score, of_mask = (None if p is None else node.args[p] for p in places)
    captured, count = (*of_score, *of_mask), len(of_score)
    if not _takes(node, block_mask, captured, grad is not None):
        return None
    q, k, *values = map(_value, (*node.args[:2], *captured))
    functions = ScoreFunctions(module, q, k, values)
    try:
        functions.add("score_mod", getattr(module, score.target), ["score", *PLACES], range(count))
        functions.add("mask_mod", getattr(module, block_mask[-1].target), PLACES, range(count, len(values)))
        if grad is not None:
            joint = getattr(module, grad.target)
            if any(x is not None for x in _results(joint)[1:]):
                return None  # captured tensors have gradients
            functions.add("score_grad", joint, ["score", *PLACES, "grad"], range(count))
        return functions.source()
    except (NotImplementedError, SubgraphLoweringException, OverflowError, ValueError):
        return None  # the last two are torch 2.13's for infinite constants


def _results(module: torch.fx.GraphModule) -> Any:
    """The results of a function of flex_attention, as nodes."""
    return next(n for n in module.graph.nodes if n.op == "output").args[0]


def _of_functions(source: Source, block_mask: Any, captured: Any) -> tuple[Any, ...]:
    """The arguments of an operator that its functions need."""
    seen = torch.ops.netcl.flex_blocks(*block_mask[2:6])
    sizes = [captured[i].size(d) for i, d in source.sizes]
    return seen, *block_mask[-3:-1], [captured[i] for i in source.captured], sizes, source.text


def _forward(source: Source, q: Any, k: Any, v: Any, _: Any, block_mask: Any, scale: float, *more: Any) -> Any:
    of_functions = _of_functions(source, block_mask, (*more[1], *more[2]))
    out, lse = torch.ops.netcl.flex_attention(q, k, v, scale, *of_functions)
    lse = lse / math.log(2)  # as PyTorch's kernels return it
    return out, lse, lse


def _backward(source: Source, q: Any, k: Any, v: Any, out: Any, lse: Any, *more: Any) -> Any:
    grad_out, grad_lse, _, _, block_mask, scale, _, *others = more
    of_functions = _of_functions(source, block_mask, (*others[0], *others[1]))
    grad_lse = torch.zeros_like(lse) if grad_lse is None else grad_lse / math.log(2)
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    lse = lse * math.log(2)
    grads = torch.ops.netcl.flex_attention_backward(q, k, v, out, lse, grad_out, grad_lse, scale, *of_functions)
    return (*grads, *[None] * len(others[0]))


def _all_gradients(*args: Any) -> Any:
    """The formula's gradients. Those of captured tensors it computes for what requires a gradient, which a graph's
    values no longer say."""
    wanted = [x is not None for x in _results(args[8])[5:]]
    captured = [x.detach().requires_grad_() if w else x for x, w in zip(args[12], wanted, strict=True)]
    with torch.no_grad():
        *grads, of_captured = sdpa_dense_backward(*args[:12], tuple(captured), *args[13:])
    return (*grads, *of_captured)


def _flatten_results(node: torch.fx.Node) -> None:
    """The gradients of captured tensors become results of their own: a replacement loses those in an inner tuple."""
    for inner in [u for u in node.users if u.args[1] == 3]:
        for user in list(inner.users):
            user.args = (node, 3 + user.args[1])
        node.graph.erase_node(inner)


def _register(operator: Any, kernel: Callable[..., Any], places: Any, formula: Callable[..., Any]) -> None:
    @register_graph_pattern(CallFunctionVarArgs(operator), extra_check=_is_ours, pass_dict=_PASS)
    def _(match: Match, *args: Any) -> None:
        leaves, spec = tree_flatten(args)
        module = match.nodes[0].graph.owning_module
        source = _source(match.nodes[0], places)
        if operator is _HOP.flex_attention_backward:
            _flatten_results(match.nodes[0])

        def graph_of(x: Any) -> Any:
            return getattr(module, x.target) if isinstance(x, torch.fx.Node) and x.op == "get_attr" else None

        inputs = [x for x in leaves if isinstance(x, torch.fx.Node) and graph_of(x) is None]

        def run(*values: Any) -> Any:
            given = dict(zip(inputs, values, strict=True))
            filled = tree_unflatten([given[x] if x in given else graph_of(x) or x for x in leaves], spec)
            with _Filled():
                return formula(*filled) if source is None else kernel(source, *filled)

        match.replace_by_example(run, inputs, run_functional_passes=False)


_register(_HOP.flex_attention, _forward, _FORWARD, sdpa_dense)
_register(_HOP.flex_attention_backward, _backward, _BACKWARD, _all_gradients)
