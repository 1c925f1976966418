"""A pass over graphs, whose key in Inductor's cache covers this generator, the devices and their drivers."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._prims_common import suggest_memory_format

from .. import device as _device
from . import flex_attention


@cache
def _sources() -> str:
    """A hash of what generated code depends on; the text of kernels/ is part of the key of each program."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in [*sorted(folder.glob("*.py")), folder.parent / "_higher_order.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _format(input: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """As csrc/aten/conv/Convolution.cpp has it."""
    format = suggest_memory_format(input)
    return suggest_memory_format(weight) if format is torch.contiguous_format else format


@torch.library.register_fake("netcl::convolution")
def _(input: torch.Tensor, weight: torch.Tensor, *args: Any) -> torch.Tensor:
    out = torch.ops.aten.convolution.default(input, weight, *args)
    return torch.empty(out.shape, dtype=out.dtype, device=out.device).to(memory_format=_format(input, weight))


@torch.library.register_fake("netcl::convolution_backward")
def _(grad: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, *args: Any) -> Any:
    format = _format(input, weight)
    grads = torch.ops.aten.convolution_backward.default(grad, input, weight, *args)
    return tuple(g if g is None or g.dim() < 4 else g.to(memory_format=format) for g in grads)


def _with_strides(name: str) -> Any:
    """Registers an operator of ATen under our name; its last argument says which strides the result has."""
    function = getattr(torch.ops.aten, f"_{name}").default

    @torch.library.register_fake(f"netcl::{name}")
    def _(*args: Any) -> torch.Tensor:
        out = function(*args[:-1])
        return torch.empty_strided(out.shape, args[-1], dtype=out.dtype, device=out.device)

    return function, getattr(torch.ops.netcl, name).default


_WITH_STRIDES = dict(map(_with_strides, ("fft_c2c", "fft_r2c", "fft_c2r")))
_OURS = {
    torch.ops.aten.convolution.default: torch.ops.netcl.convolution.default,
    torch.ops.aten.convolution_backward.default: torch.ops.netcl.convolution_backward.default,
}


class OpenCLPass(CustomGraphModulePass):
    """Runs after Inductor's own passes on the operators of a graph."""

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        changed = flex_attention.expand(gm)
        for node in list(gm.graph.nodes):
            if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
                continue
            tensors = [a for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor)]
            target = next((a.meta["val"].device for a in tensors if a.meta["val"].device.type == "netcl"), None)
            if target is None:
                continue
            if node.target in _OURS:
                node.target = _OURS[node.target]
                changed = True
            elif node.target in _WITH_STRIDES and all(isinstance(n, int) for n in node.meta["val"].stride()):
                node.target, node.args = _WITH_STRIDES[node.target], (*node.args, list(node.meta["val"].stride()))
                changed = True
            elif torch.Tag.pointwise in node.target.tags or node.target._schema.name.startswith("aten::_foreach_"):
                changed |= self._move_scalars(gm, node, tensors, target)
        if changed:
            gm.recompile()

    def _move_scalars(self, gm: torch.fx.GraphModule, node: Any, tensors: list[Any], target: torch.device) -> bool:
        """Moves CPU scalars to the device of the tensors beside them: Inductor would choose the CPU for the result."""
        moved_one = False
        for a in tensors:
            value = a.meta["val"]
            if value.device.type != "cpu" or value.dim() != 0:
                continue
            with gm.graph.inserting_before(node):
                moved = gm.graph.call_function(torch.ops.prims.device_put.default, (a, target))
            moved.meta["val"] = value.to(target)
            node.replace_input_with(a, moved)
            moved_one = True
        return moved_one

    def uuid(self) -> Any:
        devices = [(p.name, p.driver_version, p.device_class) for p in map(_device.get_device_properties, _indices())]
        return _sources(), tuple(devices)


def _indices() -> range:
    return range(_device.device_count())
