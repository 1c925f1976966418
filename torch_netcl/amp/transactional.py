"""A skipped step that changes nothing: restores the buffers that the forward pass wrote.

GradScaler protects parameters and optimizer in a skipped step, on every device. But the forward pass has already
updated BatchNorm's running statistics: after one input with an Inf, every evaluation gives NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["transactional"]


@dataclass
class _Entry:
    tensor: Tensor  # the tensor that the model uses
    saved: Tensor  # its value at begin()
    owner: nn.Module | None = None  # the module whose buffer it is,
    name: str = ""  # and the buffer's name

    def current(self) -> Any:
        """The tensor now in its place: modules may put another one there."""
        return self.tensor if self.owner is None else self.owner._buffers.get(self.name)

    def put_back(self) -> None:
        if self.owner is not None:
            self.owner._buffers[self.name] = self.tensor


def _same_kind(a: Any, b: Tensor) -> bool:
    if not isinstance(a, Tensor):
        return False
    kind = (a.dtype, a.device, a.shape, a.stride(), a.layout)
    return kind == (b.dtype, b.device, b.shape, b.stride(), b.layout)


def _is_expanded(tensor: Tensor) -> bool:
    """Whether several elements share an address, so that nothing can write to it."""
    return any(st == 0 and s > 1 for st, s in zip(tensor.stride(), tensor.shape, strict=True))


def _is_dense(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and torch.ops.aten.is_non_overlapping_and_dense(tensor)


class transactional:
    """Restores the buffers of ``model``, and what is registered besides them, if a step is skipped::

        transaction = torch.netcl.amp.transactional(model, scaler=scaler)
        for x, y in batches:
            with transaction:
                with torch.autocast("netcl", dtype=torch.float16):
                    loss = loss_fn(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
            scaler.update()

    On entry, the block copies the buffers, with one launch per dtype. At its end it restores them on the device,
    without a wait of the host, if an optimizer that ``scaler`` stepped in the block was skipped; it also does so if
    an exception ends the block. Without a scaler, call :meth:`settle` with the condition. The copies need as much
    memory as the buffers, and are kept.

    Args:
        model: its buffers, persistent or not, are restored; the optimizer protects its parameters.
        scaler: the GradScaler that decides, ``torch.amp.GradScaler`` or a subclass.

    Raises:
        RuntimeError: the block ended without a step of the scaler, or after its ``update()``, which forgets the result.
    """

    def __init__(self, model: nn.Module, *, scaler: torch.amp.GradScaler | None = None) -> None:
        self._modules: list[tuple[nn.Module, bool]] = [(model, False)]
        self._tensors: list[Tensor] = []
        self._scaler = scaler
        self._entries: list[_Entry] = []
        self._open = False

    def register(self, *what: nn.Module | Tensor) -> transactional:
        """Adds other things that the step writes, such as an averaged model: tensors, or modules with parameters and
        buffers."""
        for each in what:
            if isinstance(each, nn.Module):
                self._modules.append((each, True))
            elif isinstance(each, Tensor):
                self._tensors.append(each)
            else:
                raise TypeError(f"only modules and tensors can be registered, not {type(each).__name__}")
        return self

    def _found(self) -> list[tuple[Tensor, nn.Module | None, str]]:
        """The tensors to save, each storage position once."""
        result, seen = [], set()
        for module, whole in self._modules:
            for part in module.modules():
                places = [(t, part, name) for name, t in part._buffers.items()]
                places += [(p, None, "") for p in part._parameters.values()] if whole else []
                for tensor, owner, name in places:
                    if isinstance(tensor, Tensor) and id(tensor) not in seen:
                        seen.add(id(tensor))
                        result.append((tensor, owner, name))
        result += [(t, None, "") for t in self._tensors if id(t) not in seen]
        return [r for r in result if not _is_expanded(r[0])]

    @torch.no_grad()
    def begin(self) -> None:
        """Copies the present values. The ``with`` block calls it."""
        before = {id(entry.tensor): entry.saved for entry in self._entries}
        self._entries = []
        for tensor, owner, name in self._found():
            saved = before.get(id(tensor))
            if not _same_kind(saved, tensor):
                saved = torch.empty_like(tensor, memory_format=torch.preserve_format, requires_grad=False)
            self._entries.append(_Entry(tensor, saved, owner, name))
        self._copy([(e.saved, e.tensor) for e in self._entries])
        self._open = True

    @staticmethod
    def _copy(pairs: list[tuple[Tensor, Tensor]]) -> None:
        groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        for to, source in pairs:
            targets, sources = groups.setdefault((to.device, to.dtype), ([], []))
            targets.append(to.detach())
            sources.append(source.detach())
        for targets, sources in groups.values():
            torch._foreach_copy_(targets, sources)

    def rollback(self) -> None:
        """Restores everything."""
        self.settle(True)

    @torch.no_grad()
    def settle(self, skipped: bool | Tensor | torch.amp.GradScaler) -> None:
        """Restores everything if the step was skipped; does nothing if no copy is open.

        Args:
            skipped: a bool; a 0-dim float32, not 0 if the step was skipped, for which the host does not wait; or the
                scaler that was asked to step, before its ``update()``.
        """
        if not self._open:
            return
        if isinstance(skipped, torch.amp.GradScaler):
            skipped = self._flag_of(skipped)
        self._open = False
        if isinstance(skipped, Tensor):
            self._settle_on_device(skipped)
        elif skipped:
            for entry in self._entries:
                entry.put_back()
            self._copy([(e.tensor, e.saved) for e in self._entries])

    @staticmethod
    def _flag_of(scaler: torch.amp.GradScaler) -> bool | Tensor:
        if not scaler.is_enabled():
            return False
        flags = [f for s in scaler._per_optimizer_states.values() for f in s["found_inf_per_device"].values()]
        if not flags:
            raise RuntimeError(
                "transactional: the scaler has stepped no optimizer since its last update(). Call "
                "scaler.step(optimizer) inside the block and scaler.update() after it"
            )
        flag = flags[0]
        for other in flags[1:]:
            flag = flag + other.to(flag.device)
        return flag

    def _settle_on_device(self, flag: Tensor) -> None:
        groups: dict[torch.device, tuple[list[Tensor], list[Tensor]]] = {}
        rest: list[_Entry] = []
        for entry in self._entries:
            current = entry.current()
            if not _same_kind(current, entry.saved):
                if bool(flag != 0):  # another shape, or nothing saved: the host must know
                    return self._restore_all()
                continue
            if current.device.type == "netcl" and _is_dense(current):
                live, saved = groups.setdefault(current.device, ([], []))
                live.append(current.detach())
                saved.append(entry.saved)
            else:
                rest.append(entry)
        for device, (live, saved) in groups.items():
            torch.ops.netcl._amp_take_back_(live, saved, flag.to(device, non_blocking=True))
        for entry in rest:
            current = entry.current()
            current.copy_(torch.where(flag.to(current.device) != 0, entry.saved, current))
        return None

    def _restore_all(self) -> None:
        self._open = True
        self.settle(True)

    def __enter__(self) -> transactional:
        self.begin()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            self.rollback()
        elif self._scaler is not None:
            self.settle(self._scaler)
