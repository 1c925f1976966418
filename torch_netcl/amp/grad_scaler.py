"""``torch.amp.GradScaler`` with the device filled in, blame, and a second way to use it: one call per step."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import OptState

from torch_netcl.amp.blame import Blame, Record


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("netcl", ...)``, which can also say which gradients caused a skipped step.

    Call it as ``GradScaler(init_scale, growth_factor, backoff_factor, growth_interval, enabled)``, or with a device
    first, like PyTorch's. Besides PyTorch's way (``scale``, ``step``, ``update``), one call can check, step and
    update the scale::

        scaler.scale_loss(loss).backward()
        scaler.step(optimizer, model.parameters())

    In this way the scale grows and backs off inside ``step``, which reads the device once to decide whether to
    skip. Use a scaler in only one of the two ways.

    Args:
        init_scale: the initial scale, above 0.
        growth_factor: the scale's factor after ``growth_interval`` steps without Inf or NaN; above 1.
        backoff_factor: the scale's factor after a skipped step; below 1.
        growth_interval: the number of clean steps in a row after which the scale grows.
        enabled: if False, every method only calls the optimizer.
        device: "netcl".

    Raises:
        ValueError: another device, a scale that is not above 0 and finite, an interval below 1.
    """

    def __init__(self, *args: Any, device: str | torch.device | None = None, **kwargs: Any) -> None:
        if args and isinstance(args[0], (str, torch.device)):
            if device is not None:
                raise TypeError("GradScaler() got two devices")
            device, *args = args
        if device is not None and torch.device(device).type != "netcl":
            raise ValueError(f"torch.netcl.amp.GradScaler is for netcl, not {device}: use torch.amp.GradScaler")
        super().__init__("netcl", *args, **kwargs)
        if self._enabled:
            if not (isinstance(self._init_scale, (int, float)) and 0 < self._init_scale < math.inf):
                raise ValueError(f"init_scale must be a finite number above 0, not {self._init_scale!r}")
            if not (isinstance(self._growth_interval, int) and self._growth_interval >= 1):
                raise ValueError(f"growth_interval must be a whole number of at least 1, not {self._growth_interval!r}")
        self._one_call: bool | None = None  # which of the two ways is used
        self._found_inf: torch.Tensor | None = None  # of unscale_grads(), until step() uses it
        self._records: dict[int, Record] = {}  # the last check of each optimizer, by its id

    # The attributes of older frameworks' scalers. `scale` is PyTorch's method; get_scale() returns the number.
    @property
    def enabled(self) -> bool:
        """As ``is_enabled()``."""
        return self._enabled

    @property
    def growth_factor(self) -> float:
        """As ``get_growth_factor()``."""
        return self._growth_factor

    @property
    def backoff_factor(self) -> float:
        """As ``get_backoff_factor()``."""
        return self._backoff_factor

    @property
    def growth_interval(self) -> int:
        """As ``get_growth_interval()``."""
        return self._growth_interval

    def _use(self, one_call: bool, name: str) -> None:
        if self._one_call is None:
            self._one_call = one_call
        elif self._one_call != one_call:
            raise RuntimeError(
                f"{name} belongs to "
                + ("scale_loss/unscale_grads/step(optimizer, params)" if one_call else "scale/unscale_/step/update")
                + ", but this GradScaler has been used the other way. Use one GradScaler for each way."
            )

    def scale(self, outputs: Any) -> Any:
        """As ``torch.amp.GradScaler.scale``."""
        if self._enabled:
            self._use(False, "scale()")
        return super().scale(outputs)

    def _check(self, params: Iterable[torch.Tensor], inv_scale: torch.Tensor, allow_fp16: bool, of: Any) -> Record:
        """Unscales, and keeps the record for :meth:`blame`; ``of`` is the optimizer, or None for one call per step."""
        record = Record(of)
        self._records[id(of)] = record
        record.check(params, inv_scale, allow_fp16)
        return record

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """As ``torch.amp.GradScaler.unscale_``."""
        if not self._enabled:
            return
        self._use(False, "unscale_()")
        scale, _ = self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is not OptState.READY:
            return super().unscale_(optimizer)  # raises
        inv_scale = scale.double().reciprocal().float()
        state["found_inf_per_device"] = self._check(_params(optimizer), inv_scale, False, optimizer).found
        state["stage"] = OptState.UNSCALED

    def _check_inf_per_device(self, optimizer: torch.optim.Optimizer) -> dict[torch.device, torch.Tensor]:
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        one = torch.ones((), device=scale.device)
        found = self._check(_params(optimizer), one, True, optimizer).found
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def blame(
        self,
        names: nn.Module | Iterable[tuple[str, torch.Tensor]] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> list[Blame]:
        """Which gradients of the last step held an Inf or a NaN, in how many elements, and where; [] if it was clean.

        Clean steps cost nothing more, and only this call waits for the device. It may be called until the next step
        unscales gradients, even after the gradients were freed.

        Args:
            names: the model, or pairs of name and parameter, for the names; an optimizer that was created from named
                parameters knows them itself.
            optimizer: one of several optimizers; all of them by default.
        """
        records = self._records.values() if optimizer is None else [self._records.get(id(optimizer), Record())]
        return [found for record in records for found in record.blame(names)]

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """As ``torch.amp.GradScaler.update``; after ``step(optimizer, params)`` it does nothing.

        On a scaler that was not used yet it does nothing either; PyTorch's raises AssertionError.
        """
        if self._enabled and new_scale is None and (self._one_call or self._scale is None):
            return
        super().update(new_scale)

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """``loss`` times the scale."""
        if not self._enabled:
            return loss
        self._use(True, "scale_loss()")
        return super().scale(loss)

    def unscale_grads(self, params: Iterable[torch.Tensor]) -> bool:
        """Divides the gradients of ``params`` by the scale. True if one of them was Inf or NaN (one device read).

        Before the first ``scale_loss``, the scale is ``init_scale``.
        """
        if not self._enabled:
            return False
        self._use(True, "unscale_grads()")
        if self._found_inf is not None:
            raise RuntimeError("unscale_grads() has already been called since the last step()")
        params = list(params)
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(params[0].device if params else torch.device("netcl"))
        scale, _ = self._check_scale_growth_tracker("unscale_grads")
        inv_scale = scale.double().reciprocal().float()
        found = None
        for one in self._check(params, inv_scale, True, None).found.values():
            one = one.to(scale.device)
            found = one if found is None else found + one
        self._found_inf = torch.zeros((), device=scale.device) if found is None else found
        return bool(self._found_inf.item())

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """``step(optimizer)`` as ``torch.amp.GradScaler.step``; ``step(optimizer, params)`` does a complete step.

        With ``params``, it unscales their gradients (unless ``unscale_grads`` has), steps if all are finite, and
        updates the scale.
        """
        params = args[0] if args else kwargs.get("params")
        if params is None:
            if self._enabled:
                self._use(False, "step(optimizer)")
            return super().step(optimizer, *args, **kwargs)
        if len(args) > 1 or set(kwargs) - {"params"}:
            raise TypeError("step(optimizer, params) takes no further arguments")
        if not self._enabled:
            return optimizer.step()
        self._use(True, "step(optimizer, params)")
        skip = self.unscale_grads(params) if self._found_inf is None else bool(self._found_inf.item())
        found, self._found_inf = self._found_inf, None  # even if the optimizer raises
        result = None if skip else optimizer.step()
        scale, tracker = self._check_scale_growth_tracker("step")
        torch._amp_update_scale_(
            scale, tracker, found, self._growth_factor, self._backoff_factor, self._growth_interval
        )
        return result

    def __getstate__(self) -> dict[str, Any]:
        if self._enabled and self._found_inf is not None:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                "scaler.step(optimizer, params): unscale_grads() has been called, and its step() is still to come."
            )
        return {**super().__getstate__(), "_records": {}}


def _params(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    return (p for group in optimizer.param_groups for p in group["params"])
