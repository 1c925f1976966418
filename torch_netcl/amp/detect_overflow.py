"""Where a model overflows first: the operator and the module whose output was the first to hold an Inf or a NaN."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Overflow", "detect_overflow"]

_INF, _NAN = 1, 2  # bits, as in kernels/amp.cl
_PLACES = 4096  # flags per tensor, enough for a few forward and backward passes
# Operators whose memory is not yet written.
_EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")


@dataclass(frozen=True)
class Overflow:
    """An operator that made an Inf or a NaN from finite tensors, or a tensor that held one from the start."""

    operator: str  # "aten.mm.default"; "input" or "parameter weight" for a tensor from outside
    module: str  # its name in the model; "" for the model itself and for operators outside of it
    phase: str  # "forward" or "backward"
    kind: str  # "Inf", "NaN" or "Inf and NaN"
    shapes: tuple[tuple[int, ...], ...]  # of the tensors that were checked
    dtypes: tuple[torch.dtype, ...]
    number: int  # of the operator since the block was entered, from 0

    def __str__(self) -> str:
        where = f"module {self.module!r}" if self.module else "the model's own code or its caller"
        what = ", ".join(f"{str(d)[6:]} {list(s)}" for d, s in zip(self.dtypes, self.shapes, strict=True))
        if self.operator == "input" or self.operator.startswith("parameter "):
            return f"{self.kind} came with {self.operator} ({what})"
        return f"{self.kind} first in the {self.phase} pass, in {where}, of {self.operator} ({what})"


class detect_overflow(TorchDispatchMode):
    """Checks every operator's output, and names the first that was not finite::

        with torch.netcl.amp.detect_overflow(model) as found:
            with torch.autocast("netcl", dtype=torch.float16):
                loss = loss_fn(model(x), y)
            scaler.scale(loss).backward()
        print(found.first)

    A flag per operator is set on the device, so the block costs a launch per operator but no wait; its end reads
    all flags at once. An operator counts as first if its inputs were finite. An operator that was told to write an
    Inf, such as ``masked_fill(mask, -inf)``, does not count, nor do later Infs that result from it, but a NaN does.
    Use this for a step that goes wrong, not for every step. It works on any device; on devices other than netcl's,
    each check waits.

    Args:
        model: names the modules. Operators outside of it, such as those of a loss, are checked too.

    Attributes:
        first: an :class:`Overflow` after the end of the block, or None if everything was finite.
        overflows: all operators with finite inputs and other outputs, in their order.

    Raises:
        RuntimeError: the block is entered again while it is open.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = model
        self._hooks: list[Any] = []
        self._reset()

    def _reset(self) -> None:
        self.first: Overflow | None = None
        self.overflows: list[Overflow] = []
        self._flags: dict[torch.device, list[Tensor]] = {}
        self._used: dict[torch.device, int] = {}
        self._looks: list[_Look] = []
        self._stack: list[str] = []
        self._module_of: dict[int, str] = {}  # sequence number of an autograd node -> module
        self._last_look: dict[int, int] = {}  # storage -> number of the last check of its content
        self._kept: list[Any] = []  # storages, kept alive so that no other gets the same id

    # --- modules ----------------------------------------------------------------------------------------------

    def __enter__(self) -> detect_overflow:
        if self._hooks:
            raise RuntimeError("detect_overflow is open already")
        self._reset()
        names: dict[nn.Module, str] = {}
        for name, module in self._model.named_modules():
            names.setdefault(module, name.replace("_orig_mod.", ""))
        for module, name in names.items():
            self._hooks.append(module.register_forward_pre_hook(lambda m, args, name=name: self._enter(name, args)))
            self._hooks.append(module.register_forward_hook(lambda *_: self._leave(), always_call=True))
        for name, param in self._model.named_parameters():
            self._look(f"parameter {name}", "", [param.detach()], [], False)
        return super().__enter__()

    def _enter(self, name: str, args: Any) -> None:
        if not self._stack:
            for tensor in tree_leaves(args):
                if isinstance(tensor, Tensor) and _storage(tensor) not in self._last_look:
                    self._look("input", name, [tensor.detach()], [], False)
        self._stack.append(name)

    def _leave(self) -> None:
        if self._stack:
            self._stack.pop()

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        super().__exit__(*error)
        self._read()
        self._flags, self._looks, self._last_look, self._kept = {}, [], {}, []

    # --- operators --------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        node = torch._C._current_autograd_node()
        if node is None:
            module, phase = self._stack[-1] if self._stack else "", "forward"
            # The autograd node of this operator was created last.
            self._module_of[torch.autograd._get_sequence_nr() - 1] = module
        else:
            module, phase = self._module_of.get(node._sequence_nr(), ""), "backward"
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        before = [self._last_look.get(_storage(t)) for t in inputs]
        out = func(*args, **kwargs)
        if func._overloadpacket.__name__ in _EMPTY or func.is_view:
            return out
        written = [out] + [
            args[k] if k < len(args) else kwargs.get(argument.name)
            for k, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        looked = {id(t): t for t in tree_leaves(written) if isinstance(t, Tensor)}
        told = any(isinstance(v, float) and not math.isfinite(v) for v in tree_leaves((args, kwargs)))
        self._look(str(func), module, list(looked.values()), [n for n in before if n is not None], told, phase)
        return out

    def _look(
        self, operator: str, module: str, tensors: list[Tensor], sources: list[int], told: bool, phase: str = "forward"
    ) -> None:
        """Records on the device what ``tensors`` hold."""
        by_device: dict[torch.device, list[Tensor]] = {}
        for tensor in tensors:
            tensor = tensor._values() if tensor.is_sparse else tensor
            inexact = tensor.is_floating_point() or tensor.is_complex()
            if inexact and tensor.layout == torch.strided and tensor.numel():
                by_device.setdefault(tensor.device, []).append(tensor)
        number = len(self._looks)
        look = _Look(operator, module, phase, sources, told)
        for device, some in by_device.items():
            if device.type == "meta":
                continue
            at = self._used.get(device, 0)
            self._used[device] = at + 1
            pages = self._flags.setdefault(device, [])
            with torch._C._DisableTorchDispatch():
                if at == len(pages) * _PLACES:
                    pages.append(torch.zeros(_PLACES, dtype=torch.int32, device=device))
                _flag(some, pages[-1], at % _PLACES)
            look.places.append((device, at))
            look.shapes += [tuple(t.shape) for t in some]
            look.dtypes += [t.dtype for t in some]
        for tensor in tensors:
            if tensor.layout == torch.strided and tensor.device.type != "meta":
                if _storage(tensor) not in self._last_look:
                    self._kept.append(tensor.untyped_storage())
                self._last_look[_storage(tensor)] = number
        self._looks.append(look)

    def _read(self) -> None:
        """Reads the flags, and follows the flow from operator to operator."""
        host = {device: torch.cat([p.cpu() for p in pages]).tolist() for device, pages in self._flags.items()}
        own: list[int] = []  # what a check saw
        meant: list[int] = []  # the part that results from an Inf that was asked for
        for number, look in enumerate(self._looks):
            bits = 0
            for device, at in look.places:
                bits |= host[device][at]
            given = asked = 0
            for source in look.sources:
                given |= own[source]
                asked |= meant[source]
            own.append(bits)
            meant.append((bits & _INF) if look.told else (asked & bits))
            # A NaN made from Infs that were asked for still counts.
            fresh = bits & ~_INF if look.told or asked else bits
            if (bits and not given and not look.told) or (fresh & _NAN and not given & _NAN):
                kind = {1: "Inf", 2: "NaN", 3: "Inf and NaN"}[bits]
                where = (look.operator, look.module, look.phase, kind)
                self.overflows.append(Overflow(*where, tuple(look.shapes), tuple(look.dtypes), number))
        # A NaN made from an Inf of another operator comes later in the list.
        self.first = self.overflows[0] if self.overflows else None


class _Look:
    """The check of one operator's outputs; ``sources`` are the checks of its inputs."""

    def __init__(self, operator: str, module: str, phase: str, sources: list[int], told: bool) -> None:
        self.operator, self.module, self.phase, self.sources, self.told = operator, module, phase, sources, told
        self.places: list[tuple[torch.device, int]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.dtypes: list[torch.dtype] = []


def _storage(tensor: Tensor) -> int:
    tensor = tensor._values() if tensor.is_sparse else tensor
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else id(tensor)


@torch.no_grad()
def _flag(tensors: list[Tensor], flags: Tensor, at: int) -> None:
    """Sets bits of ``flags[at]``: what the tensors hold."""
    tensors = [t.resolve_conj().detach() for t in tensors]
    if flags.device.type == "netcl":
        torch.ops.netcl._amp_flag_non_finite_(tensors, flags, at)
        return
    for tensor in tensors:
        flags[at] |= _NAN * tensor.isnan().any() | _INF * tensor.isinf().any()
