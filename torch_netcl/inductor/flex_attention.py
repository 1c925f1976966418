"""``flex_attention`` in compiled graphs: PyTorch's own formula with all scores, whose operators are then fused.

Inductor writes kernels with blocks of scores for Triton and for C++ only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import sdpa_dense, sdpa_dense_backward
from torch._inductor.pattern_matcher import CallFunctionVarArgs, Match, PatternMatcherPass, register_graph_pattern
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

_PASS = PatternMatcherPass()


class _Filled(TorchFunctionMode):
    """``torch.tensor(number)`` becomes an operator, since a replacement may have no constant tensors."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.tensor and isinstance(args[0], (int, float)):
            return torch.full((), args[0], **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def expand(gm: torch.fx.GraphModule) -> bool:
    """Replaces each ``flex_attention`` of netcl tensors, and each gradient; says whether there was one."""
    return _PASS.apply(gm) > 0


def _is_ours(match: Match) -> bool:
    return match.args[0].meta["val"].device.type == "netcl"


def _register(operator: Any, formula: Callable[..., Any]) -> None:
    @register_graph_pattern(CallFunctionVarArgs(operator), extra_check=_is_ours, pass_dict=_PASS)
    def _(match: Match, *args: Any) -> None:
        leaves, spec = tree_flatten(args)
        module = match.nodes[0].graph.owning_module

        def graph_of(x: Any) -> Any:
            return getattr(module, x.target) if isinstance(x, torch.fx.Node) and x.op == "get_attr" else None

        inputs = [x for x in leaves if isinstance(x, torch.fx.Node) and graph_of(x) is None]

        def run(*values: Any) -> Any:
            given = dict(zip(inputs, values, strict=True))
            filled = [given[x] if x in given else graph_of(x) or x for x in leaves]
            with _Filled():
                return formula(*tree_unflatten(filled, spec))

        match.replace_by_example(run, inputs, run_functional_passes=False)


_register(torch.ops.higher_order.flex_attention, sdpa_dense)
_register(torch.ops.higher_order.flex_attention_backward, sdpa_dense_backward)
