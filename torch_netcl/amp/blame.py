"""Which gradients held an Inf or a NaN: the number of such elements in each, and the index of the first.

The kernel that unscales gradients records this (``kernels/amp.cl``). It writes nothing in a clean step, and the
host reads the record only on request: by :meth:`torch_netcl.amp.GradScaler.blame` after a step. :func:`blame` looks
at gradients that still exist; it also works with ``torch.amp.GradScaler`` and on other devices.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Blame", "Record", "blame", "parameter_names"]

FIRST_AT = 0xFFFFFFFF  # as in kernels/amp.cl
Names = nn.Module | Iterable[tuple[str, Tensor]] | None


@dataclass(frozen=True)
class Blame:
    """A gradient with elements that are Inf or NaN."""

    name: str  # of its parameter; "parameter 3" if it has no name
    number: int  # of its parameter among those of the optimizer, from 0
    count: int  # elements that are Inf or NaN; a complex element counts as two
    numel: int  # all elements; of a sparse gradient, those of its values
    first: tuple[int, ...] | None  # index of the first; None if it is beyond the 2^32 elements that can be recorded

    def __str__(self) -> str:
        where = "" if self.first is None else f", first at {list(self.first)}"
        return f"{self.name} ({self.count} of {self.numel}{where})"


def parameter_names(names: Names) -> dict[int, str]:
    """Maps the id of each parameter to its name, for a module or for pairs of name and parameter."""
    if isinstance(names, nn.Module):
        names = names.named_parameters(remove_duplicate=False)
    found: dict[int, str] = {}
    for name, param in names or ():
        # torch.compile and DistributedDataParallel wrap the model in another module.
        found.setdefault(id(param), name.replace("_orig_mod.", "").removeprefix("module."))
    return found


def _unravel(offset: int, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The index of the element that lies ``offset`` elements from the start of a dense tensor."""
    index = [0] * len(shape)
    for d in sorted((d for d in range(len(shape)) if shape[d] > 1), key=lambda d: -strides[d]):
        index[d], offset = divmod(offset, strides[d])
    return tuple(index)


def _is_dense(tensor: Tensor) -> bool:
    expected = 1
    for stride, size in sorted((st, s) for st, s in zip(tensor.stride(), tensor.shape, strict=True) if s > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _index(offset: int, values: Tensor) -> tuple[int, ...]:
    """The index of the kernel's element ``offset``, which counts in memory order, or in a dense copy of a gradient
    with gaps."""
    if values.is_complex():
        offset //= 2
    if _is_dense(values):
        return _unravel(offset, values.shape, values.stride())
    shape = [1 if st == 0 else s for st, s in zip(values.stride(), values.shape, strict=True)]
    strides = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    return _unravel(offset, shape, strides)


class Record:
    """The result of one check of the gradients of some parameters, created by :func:`check`."""

    def __init__(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        self._optimizer = weakref.ref(optimizer) if optimizer is not None else lambda: None
        # Per device: the flag and the kernel's record, the parameters, their numbers.
        self._parts: list[tuple[Tensor, list[Tensor], list[int]]] = []
        self.found: dict[torch.device, Tensor] = {}  # per device: a 0-dim float32 that is 1 if there was an Inf or NaN

    def check(self, params: Iterable[Tensor], inv_scale: Tensor, allow_fp16: bool) -> None:
        """Multiplies the gradients of ``params`` by ``inv_scale``, a 0-dim float32, and records which are not finite.

        Raises ValueError for a float16 gradient, unless ``allow_fp16``. Does not wait for the device.
        """
        by_device: dict[torch.device, tuple[list[Tensor], list[Tensor], list[int]]] = {}
        for number, param in enumerate(params):
            grad = param.grad
            if grad is None:
                continue
            if not allow_fp16 and grad.dtype == torch.float16:
                raise ValueError("Attempting to unscale FP16 gradients.")
            if grad.is_sparse:
                if grad.dtype == torch.float16:  # the sum of duplicates may be Inf
                    param.grad = grad = grad.coalesce()
                grad = grad._values()
            grads, owners, numbers = by_device.setdefault(grad.device, ([], [], []))
            grads.append(grad)
            owners.append(param)
            numbers.append(number)
        for device, (grads, owners, numbers) in by_device.items():
            inverse = inv_scale if inv_scale.device == device else inv_scale.to(device, non_blocking=True)
            if device.type == "netcl":
                words = torch.zeros(1 + 2 * len(grads), device=device)
                self.found[device] = words[0]
                torch.ops.netcl._amp_check_and_unscale_(grads, words[0], inverse, words[1:].view(torch.int32))
            else:
                words = self._check_elsewhere(grads, inverse)
                self.found[device] = words[0].float()
            self._parts.append((words, owners, numbers))

    @staticmethod
    def _check_elsewhere(grads: list[Tensor], inv_scale: Tensor) -> Tensor:
        """The same record as int64, made by ATen's operators, for devices other than netcl's."""
        found = torch.zeros((), device=inv_scale.device)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.ones_like(inv_scale))
        words = torch.zeros(1 + 2 * len(grads), dtype=torch.int64)
        if found.item():
            words[0] = 1
            for k, grad in enumerate(grads):
                # The kernel counts elements in memory order, so do the same here.
                dense = grad if not _is_dense(grad) else torch.as_strided(grad, (grad.numel(),), (1,))
                flat = torch.view_as_real(dense.resolve_conj()).flatten() if dense.is_complex() else dense.flatten()
                bad = (~flat.isfinite()).nonzero()
                if len(bad):
                    words[1 + 2 * k] = len(bad)
                    words[2 + 2 * k] = FIRST_AT - int(bad[0])
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for grad in grads:
            by_dtype.setdefault(grad.dtype, []).append(grad)
        for same in by_dtype.values():
            torch._amp_foreach_non_finite_check_and_unscale_(same, found, inv_scale)
        return words.to(inv_scale.device)

    def _name(self, number: int, param: Tensor, names: dict[int, str]) -> str:
        if (name := names.get(id(param))) is not None:
            return name
        optimizer = self._optimizer()
        if optimizer is not None and all("param_names" in group for group in optimizer.param_groups):
            named = [name for group in optimizer.param_groups for name in group["param_names"]]
            if number < len(named):
                return named[number]
        return f"parameter {number}"

    def blame(self, names: Names = None) -> list[Blame]:
        """The gradients that were not finite, in the order of the parameters. Waits for each device once."""
        known, result = parameter_names(names), []
        for words, params, numbers in self._parts:
            host = words.cpu()
            if not host[0]:
                continue
            told = host[1:].view(torch.int32).tolist() if host.dtype == torch.float32 else host[1:].tolist()
            for k, (param, number) in enumerate(zip(params, numbers, strict=True)):
                count, first = told[2 * k] & FIRST_AT, told[2 * k + 1] & FIRST_AT
                if not count:
                    continue
                # A gradient that was freed had the strides of its parameter.
                values = param.grad if param.grad is not None else param
                values = values._values() if values.is_sparse else values
                index = _index(FIRST_AT - first, values) if first > 1 else None
                result.append(Blame(self._name(number, param, known), number, count, values.numel(), index))
        return sorted(result, key=lambda b: b.number)


def blame(params: nn.Module | torch.optim.Optimizer | Iterable[Tensor], names: Names = None) -> list[Blame]:
    """The parameters whose gradients now hold an Inf or a NaN, with the number of such elements and the index of the
    first.

    Args:
        params: parameters, or a module or an optimizer with parameters; those without a gradient do not count.
        names: a module, or pairs of name and parameter, for the names; by default ``params`` if it is a module.

    Returns:
        A :class:`Blame` for each, in the order of the parameters; one host read per device. A netcl GradScaler can say
        the same of the last step after its gradients were freed: :meth:`torch_netcl.amp.GradScaler.blame`.
    """
    optimizer = params if isinstance(params, torch.optim.Optimizer) else None
    if isinstance(params, nn.Module):
        names = params if names is None else names
        params = params.parameters()
    elif optimizer is not None:
        params = [p for group in optimizer.param_groups for p in group["params"]]
    params = list(params)
    record = Record(optimizer)
    devices = {p.grad.device for p in params if p.grad is not None}
    if devices:
        record.check(params, torch.ones((), device=min(devices, key=str)), allow_fp16=True)
    return record.blame(names)
