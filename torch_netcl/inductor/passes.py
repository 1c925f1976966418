"""A pass over graphs, whose key in Inductor's cache covers this generator, the devices and their drivers."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._prims_common import suggest_memory_format

from .. import device as _device
from . import dtypes, flex_attention


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


_aten = torch.ops.aten
_REDUCTION = getattr(torch.Tag, "reduction", "reduction")

_library = torch.library.Library("netcl", "FRAGMENT")
_library.define("nonzero_static(Tensor self, SymInt size, int fill_value, SymInt[] strides) -> Tensor")


def _nonzero_static(self: torch.Tensor, size: int, fill_value: int, strides: Any) -> torch.Tensor:
    found = torch.nonzero_static(self, size=size, fill_value=fill_value)
    return torch.empty_strided(found.shape, strides, dtype=found.dtype, device=found.device).copy_(found)


_library.impl("nonzero_static", _nonzero_static, "PrivateUse1")


@torch.library.register_fake("netcl::nonzero_static")
def _(self: torch.Tensor, size: int, fill_value: int, strides: Any) -> torch.Tensor:
    return torch.empty_strided((size, self.dim()), strides, dtype=torch.int64, device=self.device)


def _keeps_eager_kernel(node: torch.fx.Node) -> bool:
    """Whether Inductor's own code for an operator differs from the operator, or may need what the device lacks."""
    target, args = node.target, node.args
    if target in (_aten.avg_pool2d_backward.default, _aten.avg_pool3d_backward.default):
        return bool(args[5])  # ceil_mode: it divides the gradient by other numbers than the forward pass
    if target in (_aten.fractional_max_pool2d.default, _aten.fractional_max_pool3d.default):
        return True  # it computes positions in doubles, so they differ
    if target is torch.ops.prims._low_memory_max_pool_with_offsets.default:
        return math.prod(args[1]) >= _FEWEST_IN_LOOPS  # the place in a window depends on the loops' order
    value = node.meta.get("val")
    tensors = [value, *(n.meta.get("val") for n in node.all_input_nodes)]
    if any(isinstance(t, torch.Tensor) and not (t.is_complex() or t.dtype in dtypes.TAGS) for t in tensors):
        return True
    adds = torch.Tag.pointwise not in target.tags and target._schema.name.startswith(_ADD_ATOMICALLY)
    if adds and isinstance(value, torch.Tensor) and value.dtype.itemsize == 8:
        return not _device.get_device_properties(value.device.index or 0).has_int64_atomics
    return False


#: The elements of a window that Inductor reduces in loops rather than one by one.
_FEWEST_IN_LOOPS = 25
_ADD_ATOMICALLY = ("aten::index_put", "aten::index_add", "aten::scatter", "aten::embedding_dense_backward",
                   "aten::_unsafe_index_put", "aten::_unsafe_masked_index_put_accumulate")  # fmt: skip


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
            if _keeps_eager_kernel(node):
                node.meta["should_fallback"] = True
            elif node.target in (_aten.argmax.default, _aten.argmin.default):
                changed |= self._flatten(gm, node)
            elif node.target is _aten.nonzero_static.default:
                given, strides = node.kwargs, list(node.meta["val"].stride())
                node.args = (node.args[0], given["size"], given.get("fill_value", -1), strides)
                node.target, node.kwargs, changed = torch.ops.netcl.nonzero_static.default, {}, True
            elif node.target in _OURS:
                node.target = _OURS[node.target]
                changed = True
            elif node.target in _WITH_STRIDES and all(isinstance(n, int) for n in node.meta["val"].stride()):
                node.target, node.args = _WITH_STRIDES[node.target], (*node.args, list(node.meta["val"].stride()))
                changed = True
            elif torch.Tag.pointwise in node.target.tags or node.target._schema.name.startswith("aten::_foreach_"):
                changed |= self._move_scalars(gm, node, tensors, target)
        if changed:
            gm.recompile()

    def _flatten(self, gm: torch.fx.GraphModule, node: Any) -> bool:
        """Makes argmax() of a whole tensor that of its elements in a row: Inductor's loops over several dimensions may
        have another order than the tensor's."""
        given = dict(zip(("self", "dim", "keepdim"), node.args, strict=False)) | node.kwargs
        x, value = given["self"], given["self"].meta["val"]
        if given.get("dim") is not None or value.dim() < 2:
            return False
        with gm.graph.inserting_before(node):
            flat = gm.graph.call_function(_aten.reshape.default, (x, [-1]))
        flat.meta["val"] = value.reshape(-1)
        node.args, node.kwargs = (flat,), {}
        if given.get("keepdim"):
            place = node.meta["val"]
            with gm.graph.inserting_after(node):
                kept = gm.graph.call_function(_aten.reshape.default, (node, [1] * value.dim()))
            kept.meta["val"], node.meta["val"] = place, place.reshape(())
            node.replace_all_uses_with(kept, delete_user_cb=lambda user: user is not kept)
        return True

    def _move_scalars(self, gm: torch.fx.GraphModule, node: Any, tensors: list[Any], target: torch.device) -> bool:
        """Moves CPU scalars to the device of the tensors beside them: Inductor would choose the CPU for the result."""
        moved_one = False
        for a in tensors:
            value = a.meta["val"]
            if value.device.type != "cpu" or value.dim() != 0:
                continue
            if a.op == "call_function" and _REDUCTION in getattr(a.target, "tags", ()):
                a.meta["should_fallback"] = True  # Inductor moves constants, but not their reductions
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
