"""``torch.amp.GradScaler`` with the device filled in, and a second way to use it: one call a step."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("netcl", ...)``.

    Beside PyTorch's way (``scale``, ``step``, ``update``) it has one that scales, checks and adapts in a single call::

        scaler.scale_loss(loss).backward()
        scaler.step(optimizer, model.parameters())

    There the scale grows and backs off inside ``step``, which reads the device once to tell whether to skip.
    One scaler keeps to one of the two ways.

    Args:
        init_scale: the first scale.
        growth_factor: what the scale is multiplied by after ``growth_interval`` steps without Inf or NaN.
        backoff_factor: what it is multiplied by after a step that was skipped.
        growth_interval: how many clean steps in a row make it grow.
        enabled: False makes every method do nothing but call the optimizer.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "netcl",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
        self._one_call: bool | None = None  # which of the two ways is in use
        self._found_inf: torch.Tensor | None = None  # of unscale_grads(), until step() consumes it

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

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """As ``torch.amp.GradScaler.unscale_``."""
        if self._enabled:
            self._use(False, "unscale_()")
        super().unscale_(optimizer)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """As ``torch.amp.GradScaler.update``; nothing is left to do after ``step(optimizer, params)``."""
        if self._enabled and self._one_call and new_scale is None:
            return
        super().update(new_scale)

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """``loss`` times the scale."""
        if not self._enabled:
            return loss
        self._use(True, "scale_loss()")
        return super().scale(loss)

    def unscale_grads(self, params: Iterable[torch.Tensor]) -> bool:
        """Divides the gradients of ``params`` by the scale. True if one of them was Inf or NaN (one device read)."""
        if not self._enabled:
            return False
        self._use(True, "unscale_grads()")
        if self._found_inf is not None:
            raise RuntimeError("unscale_grads() has already been called since the last step()")
        scale, _ = self._check_scale_growth_tracker("unscale_grads")
        inv_scale = scale.double().reciprocal().float()
        found = torch.zeros((), device=scale.device)
        holder = SimpleNamespace(param_groups=[{"params": list(params)}])
        per_device = self._unscale_grads_(holder, inv_scale, found, allow_fp16=True)
        for other in per_device.values():
            found = found + other.to(scale.device)
        self._found_inf = found
        return bool(found.item())

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """``step(optimizer)`` as ``torch.amp.GradScaler.step``; ``step(optimizer, params)`` does the whole of it.

        With ``params``: unscales their gradients (unless ``unscale_grads`` has), steps if all are finite, and adapts
        the scale.
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
        scale, tracker = self._check_scale_growth_tracker("step")
        skip = self.unscale_grads(params) if self._found_inf is None else bool(self._found_inf.item())
        result = None if skip else optimizer.step()
        torch._amp_update_scale_(
            scale, tracker, self._found_inf, self._growth_factor, self._backoff_factor, self._growth_interval
        )
        self._found_inf = None
        return result
