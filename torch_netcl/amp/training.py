"""A training step with its safety belts on, and what keeps an eye on a run.

:class:`AmpTrainState` is one mixed-precision step in a fixed order that never applies an update it should not;
:class:`CsvLog` and :class:`SkipMonitor` tell what it did. ``python -m torch_netcl.train`` puts them to work.
Everything here is built on ``torch.amp`` and ``torch.nn.utils`` and runs on any device type.
"""

from __future__ import annotations

import csv
import math
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "CSV_COLUMNS",
    "AmpTrainState",
    "CsvLog",
    "SkipLog",
    "SkipMonitor",
    "StepLog",
    "clip_global_l2_norm",
    "has_non_finite_grad",
]

CSV_COLUMNS = (
    "step",
    "lr",
    "grad_l2_pre_clip",
    "grad_l2_post_clip",
    "loss",
    "skipped",
    "skip_reason",
    "scaler_scale",
)


def _grads(params: Iterable[Tensor]) -> list[Tensor]:
    return [p.grad for p in params if p.grad is not None]


def _clip(params: list[Tensor], pre: Tensor, max_norm: float) -> Tensor:
    """Clips to ``max_norm``, given the norm; the norm that is left."""
    nn.utils.clip_grads_with_norm_(params, max_norm, pre)
    return pre * torch.clamp(max_norm / (pre + 1e-6), max=1.0)  # the factor of clip_grads_with_norm_


def clip_global_l2_norm(params: Iterable[Tensor], max_norm: float) -> tuple[Tensor, Tensor]:
    """Scales the gradients of ``params`` down, all by one factor, so that their common L2 norm is at most ``max_norm``.

    Args:
        params: parameters; those without a gradient do not count.
        max_norm: the largest norm allowed; ``inf`` only measures.

    Returns:
        The norm before and after, 0-dim tensors on the device; nothing waits for it. ``torch.nn.utils`` does the
        work, so the second is ``max_norm`` less some 1e-6 of it where gradients were clipped.
    """
    params = list(params)
    pre = nn.utils.get_total_norm(_grads(params))
    return pre, _clip(params, pre, max_norm)


def has_non_finite_grad(params: Iterable[Tensor]) -> bool:
    """Whether a gradient of ``params`` holds an Inf or NaN: one reduction and one host read a device.

    Unlike a look at the norm it takes finite gradients for finite where the sum of their squares is not.
    """
    by_device: dict[torch.device, list[Tensor]] = {}
    for grad in _grads(params):
        by_device.setdefault(grad.device, []).append(grad._values() if grad.is_sparse else grad)
    flags = []
    for device, grads in by_device.items():
        flag = torch.zeros((), device=device)
        # GradScaler's own check, with a factor that changes nothing.
        torch._amp_foreach_non_finite_check_and_unscale_(grads, flag, torch.ones((), device=device))
        flags.append(flag)
    return any(bool(flag.item()) for flag in flags)


@dataclass(frozen=True)
class _Log:
    step: int  # from 0
    lr: float  # of the first parameter group
    grad_l2_pre_clip: float
    grad_l2_post_clip: float
    loss: float
    scaler_scale: float  # that this step's loss was multiplied by


@dataclass(frozen=True)
class StepLog(_Log):
    """A step that was taken. Norms are those of the unscaled gradients."""

    def row(self) -> tuple[Any, ...]:
        """Its values in the order of ``CSV_COLUMNS``."""
        return (self.step, self.lr, self.grad_l2_pre_clip, self.grad_l2_post_clip, self.loss, 0, "", self.scaler_scale)


@dataclass(frozen=True)
class SkipLog(_Log):
    """A step that was not taken: parameters and optimizer stay as they were. What was not measured is NaN."""

    skip_reason: str  # "non-finite loss" or "non-finite gradient"

    def row(self) -> tuple[Any, ...]:
        """Its values in the order of ``CSV_COLUMNS``."""
        norms = (self.grad_l2_pre_clip, self.grad_l2_post_clip)
        return (self.step, self.lr, *norms, self.loss, 1, self.skip_reason, self.scaler_scale)


@dataclass
class AmpTrainState:
    """A model in training: one call of :meth:`step` a batch, ``state_dict()`` for all that a checkpoint needs.

    Args:
        model: called with the inputs of a batch.
        optimizer: its parameters are those whose norm is taken and clipped.
        scaler: a ``torch.amp.GradScaler``; None or a disabled one for bfloat16 and float32.
        device: where the model, the batches and autocast are.
        max_norm: the L2 norm to which gradients are clipped; ``inf`` for none.
        scheduler: advanced after each step that was taken.
        amp_dtype: the dtype of autocast; None for none.
        loss_fn: ``loss_fn(model(inputs), targets)``, a 0-dim tensor.

    Raises:
        ValueError: the optimizer's parameters, the scaler and autocast are not on the same type of device.

    Warns:
        Where autocast is to float16 and nothing scales the loss, so that small gradients become zero.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None = None
    device: torch.device | str = "netcl"
    max_norm: float = math.inf
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    amp_dtype: torch.dtype | None = None
    loss_fn: Callable[[Tensor, Tensor], Tensor] = nn.functional.mse_loss
    steps: int = field(default=0, init=False)  # done or skipped

    def __post_init__(self) -> None:
        self.device = torch.device(self.device)
        kind = self.device.type
        for where in {p.device for p in self._params()}:
            if where.type != kind:
                raise ValueError(
                    f"autocast is on {kind}, but the optimizer has parameters on {where}: move the model with "
                    f'.to("{kind}") before making the optimizer, or pass device="{where.type}"'
                )
        if self.scaler is None:
            self.scaler = torch.amp.GradScaler(kind, enabled=False)
        elif self.scaler.is_enabled() and torch.device(self.scaler._device).type != kind:
            raise ValueError(
                f"autocast is on {kind}, but the scaler is for {self.scaler._device}: "
                f'use torch.amp.GradScaler("{kind}")'
            )
        if self.amp_dtype == torch.float16 and not self.scaler.is_enabled():
            warnings.warn(
                "float16 autocast without a GradScaler: gradients below 6e-8 become zero. Pass scaler="
                f'torch.amp.GradScaler("{kind}"), or use bfloat16',
                stacklevel=3,
            )

    def _params(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def step(self, inputs: Tensor, targets: Tensor) -> StepLog | SkipLog:
        """Trains on one batch, or skips it where its loss or a gradient is Inf or NaN.

        In this order: forward under autocast; loss check; scale, backward, ``unscale_``; norm; check of the gradients;
        clip; ``step`` or skip; ``update``, also after a skip; ``zero_grad``.

        Raises:
            ValueError: the batch is on another type of device.
        """
        for name, tensor in (("inputs", inputs), ("targets", targets)):
            if isinstance(tensor, Tensor) and tensor.device.type != self.device.type:
                raise ValueError(f"{name} are on {tensor.device}, the model is on {self.device}")
        scaler, optimizer, params = self.scaler, self.optimizer, self._params()
        lr = float(optimizer.param_groups[0]["lr"])
        with torch.autocast(self.device.type, dtype=self.amp_dtype, enabled=self.amp_dtype is not None):
            loss = self.loss_fn(self.model(inputs), targets)
        # float32, so that a half-precision loss does not overflow by being scaled.
        loss = loss.float() if loss.dtype in (torch.float16, torch.bfloat16) else loss
        number = loss.item()
        scale = scaler.scale(torch.ones((), device=loss.device))  # get_scale() would wait for the device
        pre = post = torch.full((), math.nan, device=loss.device)
        reason = ""
        if not math.isfinite(number):
            reason = "non-finite loss"
            self._back_off()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            pre = nn.utils.get_total_norm(_grads(params))
            if has_non_finite_grad(params):
                reason = "non-finite gradient"
            else:
                post = _clip(params, pre, self.max_norm)
                scaler.step(optimizer)
                if self.scheduler is not None:
                    self.scheduler.step()
            scaler.update()
        optimizer.zero_grad(set_to_none=True)
        pre, post, scale = torch.stack([t.to(scale) for t in (pre, post, scale)]).tolist()
        done, self.steps = self.steps, self.steps + 1
        if reason:
            return SkipLog(done, lr, pre, post, number, scale, reason)
        return StepLog(done, lr, pre, post, number, scale)

    def _back_off(self) -> None:
        """What ``scaler.update()`` does after non-finite gradients, where none were computed."""
        scaler = self.scaler
        if not scaler.is_enabled():
            return
        scale, tracker = scaler._check_scale_growth_tracker("update")
        torch._amp_update_scale_(
            scale,
            tracker,
            torch.ones_like(scale),
            scaler.get_growth_factor(),
            scaler.get_backoff_factor(),
            scaler.get_growth_interval(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, scaler, scheduler, random numbers and step: training goes on from it bit for bit.

        ``torch.save`` writes it, and ``torch.load(..., map_location="cpu")`` reads it with ``weights_only``.
        """
        rng = {"cpu": torch.get_rng_state()}
        if self.device.type != "cpu":
            rng[self.device.type] = torch.get_device_module(self.device).get_rng_state(self.device)
        return {
            "steps": self.steps,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
            "rng": rng,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what :meth:`state_dict` gave. Raises as the ``load_state_dict`` of its parts do."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler.is_enabled() and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.steps = state["steps"]
        torch.set_rng_state(state["rng"]["cpu"])
        if self.device.type in state["rng"] and self.device.type != "cpu":
            torch.get_device_module(self.device).set_rng_state(state["rng"][self.device.type], self.device)


class CsvLog:
    """A CSV file of steps, each row handed to the operating system at once: it survives Ctrl-C and SIGKILL.

    Args:
        path: the file; its folder is made.
        first_step: where the run begins. Rows of earlier steps are kept, so that a run that was resumed goes on in
            its file; 0 begins a new one.
    """

    def __init__(self, path: str | os.PathLike[str], first_step: int = 0) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [row for row in read_csv(path) if int(row["step"]) < first_step] if first_step and path.exists() else []
        fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        self._file = open(fresh, "w", newline="")  # noqa: SIM115 - closed by close()
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerows([CSV_COLUMNS, *(row.values() for row in kept)])
        self._file.flush()
        fresh.replace(path)  # an interrupted start leaves the old file as it was

    def add(self, log: StepLog | SkipLog) -> None:
        """Writes one row."""
        self._writer.writerow([f"{v:.9g}" if isinstance(v, float) else v for v in log.row()])
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> CsvLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_csv(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """The rows of a :class:`CsvLog` by column; a last line that was cut off is left out."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(line for line in file if line.endswith("\n")))
    return [row for row in rows if tuple(row) == CSV_COLUMNS]


class SkipMonitor:
    """The share of steps that were skipped, over the last ``window`` of them.

    Before there are as many, the missing ones count as taken: the few skips by which GradScaler finds its first scale
    are no alarm.

    Args:
        window: over how many steps.
        threshold: the share above which :attr:`alert` is True.
        patience: how many steps in a row it may be above before :attr:`exceeded` is True.
    """

    def __init__(self, window: int = 1000, threshold: float = 0.05, patience: int = 100) -> None:
        if window < 1 or patience < 1:
            raise ValueError(f"window and patience must be at least 1, not {window} and {patience}")
        self.window, self.threshold, self.patience = window, threshold, patience
        self._skips: deque[bool] = deque(maxlen=window)
        self._above = 0

    def add(self, skipped: bool) -> None:
        """Notes a step."""
        self._skips.append(bool(skipped))
        self._above = self._above + 1 if self.rate > self.threshold else 0

    @property
    def rate(self) -> float:
        """Skipped steps among the last ``window``, 0 to 1."""
        return sum(self._skips) / self.window

    @property
    def alert(self) -> bool:
        """Whether the rate is above the threshold."""
        return self._above > 0

    @property
    def exceeded(self) -> bool:
        """Whether it has been for ``patience`` steps in a row."""
        return self._above >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The steps noted, for a checkpoint."""
        return {"skips": list(self._skips), "above": self._above}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what :meth:`state_dict` gave."""
        self._skips = deque(state["skips"], maxlen=self.window)
        self._above = state["above"]
