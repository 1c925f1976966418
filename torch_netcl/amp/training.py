"""A complete, safe training step, and logs of a run.

:class:`AmpTrainState` does mixed-precision steps in a fixed order and never applies an update with an Inf or NaN.
:class:`CsvLog` and :class:`SkipMonitor` record what it did. ``python -m torch_netcl.train`` uses them all.
Everything here is built on ``torch.amp`` and ``torch.nn.utils`` and runs on any device type.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from torch_netcl.amp.blame import Blame, Record, blame
from torch_netcl.amp.gradients import (
    check_max_norm,
    clip_global_l2_norm,
    clip_to,
    global_l2_norm,
    grads_of,
    has_non_finite_grad,
)
from torch_netcl.amp.run_log import CSV_COLUMNS, CsvLog, SkipLog, SkipMonitor, StepLog, log_to, read_csv
from torch_netcl.amp.transactional import transactional

__all__ = [
    "CSV_COLUMNS",
    "AmpTrainState",
    "Blame",
    "CsvLog",
    "SkipLog",
    "SkipMonitor",
    "StepLog",
    "clip_global_l2_norm",
    "has_non_finite_grad",
    "log_to",
    "read_csv",
]

# Below this, float32 holds the squares and sums of gradients, so Adam's moments and momentum stay finite.
LARGE = 1e18


@dataclass
class AmpTrainState:
    """A model in training: call :meth:`step` once per batch; ``state_dict()`` has everything that a checkpoint needs.

    A skipped step changes only the scale: parameters, optimizer and the model's buffers (BatchNorm's statistics)
    keep every bit. ``state.transaction.register(ema_model)`` adds other modules that a step writes.

    A model with several optimizers needs a state for each, with its own loss, scaler and scale. A step uses only
    the gradients of its optimizer's parameters.

    Args:
        model: called with the inputs of a batch; may be compiled.
        optimizer: the norm is taken over its parameters' gradients, which are then clipped.
        scaler: a ``torch.amp.GradScaler``; None or a disabled one for bfloat16 and float32.
        device: the device of the model, the batches and autocast.
        max_norm: the L2 norm to which gradients are clipped, 0 or more; ``inf`` for no clipping.
        scheduler: advanced after each step that was taken.
        amp_dtype: the dtype of autocast, float16 or bfloat16; None for no autocast.
        loss_fn: ``loss_fn(model(inputs), targets)`` returns a 0-dim floating point tensor, a mean over the batch.
        accumulate: the number of parts into which each batch is split along dimension 0; their gradients are added up.
        wait: if False, a step never waits for the device: :meth:`step` returns the log of the previous step (None at
            first) and :meth:`flush` the last one. Needs a fused optimizer; the scheduler is advanced one step later.

    Raises:
        ValueError: the optimizer's parameters, the scaler and autocast are not on the same type of device; a scaler
            without autocast; another ``amp_dtype``, ``max_norm`` or ``accumulate``; ``wait=False`` with an optimizer
            that cannot skip on the device.
        TypeError: ``scaler`` is no GradScaler.

    Warns:
        If autocast is to float16 and nothing scales the loss, so that small gradients become zero.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None = None
    device: torch.device | str = "netcl"
    max_norm: float = math.inf
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    amp_dtype: torch.dtype | None = None
    loss_fn: Callable[[Tensor, Tensor], Tensor] = nn.functional.mse_loss
    accumulate: int = 1
    wait: bool = True
    steps: int = field(default=0, init=False)  # taken or skipped
    transaction: transactional = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.device = torch.device(self.device)
        kind = self.device.type
        self.max_norm = check_max_norm(self.max_norm)
        if self.amp_dtype not in (None, torch.float16, torch.bfloat16):
            raise ValueError(f"amp_dtype must be torch.float16, torch.bfloat16 or None, not {self.amp_dtype!r}")
        if not isinstance(self.accumulate, int) or self.accumulate < 1:
            raise ValueError(f"accumulate must be a whole number of at least 1, not {self.accumulate!r}")
        for where in {p.device for p in self._params()}:
            if where.type != kind:
                raise ValueError(
                    f"autocast is on {kind}, but the optimizer has parameters on {where}: move the model with "
                    f'.to("{kind}") before making the optimizer, or pass device="{where.type}"'
                )
        self._check_scaler(kind)
        if not self.wait and not getattr(self.optimizer, "_step_supports_amp_scaling", False):
            kind = type(self.optimizer).__name__
            raise ValueError(f"wait=False needs an optimizer that skips on the device: {kind} with fused=True")
        self.transaction = transactional(self.model)
        self._late: _Late | None = None  # for wait=False: the step whose numbers are not read yet
        self._ready: StepLog | SkipLog | None = None  # a log that state_dict() had to read

    def _check_scaler(self, kind: str) -> None:
        if self.scaler is None:
            self.scaler = torch.amp.GradScaler(kind, enabled=False)
        if not isinstance(self.scaler, torch.amp.GradScaler):
            raise TypeError(f"scaler must be a torch.amp.GradScaler or None, not {type(self.scaler).__name__}")
        if self.scaler.is_enabled():
            if torch.device(self.scaler._device).type != kind:
                raise ValueError(
                    f"autocast is on {kind}, but the scaler is for {self.scaler._device}: "
                    f'use torch.amp.GradScaler("{kind}")'
                )
            if self.amp_dtype is None:
                raise ValueError(
                    "a GradScaler without autocast scales gradients that float32 holds anyway: pass amp_dtype, or "
                    "scaler=None"
                )
        elif self.amp_dtype == torch.float16:
            warnings.warn(
                "float16 autocast without a GradScaler: gradients below 6e-8 become zero. Pass scaler="
                f'torch.amp.GradScaler("{kind}"), or use bfloat16',
                stacklevel=4,
            )

    def _params(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def step(self, inputs: Tensor, targets: Tensor) -> StepLog | SkipLog | None:
        """Trains on one batch, or skips it if its loss or a gradient is Inf or NaN.

        The order is: forward under autocast; loss check; scale, backward, ``unscale_``; norm; check of the
        gradients; clip; ``step`` or skip; ``update``, also after a skip; ``zero_grad``. With ``accumulate`` above
        1, the loss is checked after the backward passes of all parts. After an exception, such as Ctrl-C, buffers,
        gradients and scaler are as before the step; if it comes while the optimizer writes, some parameters may be
        updated.

        Returns:
            The log of this step; with ``wait=False``, that of the previous step.

        Raises:
            ValueError: the batch is on another type of device, or smaller than ``accumulate``.
            TypeError: ``loss_fn`` did not return a 0-dim floating point tensor.
        """
        for name, tensor in (("inputs", inputs), ("targets", targets)):
            if isinstance(tensor, Tensor) and tensor.device.type != self.device.type:
                raise ValueError(f"{name} are on {tensor.device}, the model is on {self.device}")
        parts = self._parts(inputs, targets)
        self.transaction.begin()
        try:
            if self.wait:
                return self._step(parts)
            return self._enqueue(parts)
        except BaseException:
            self._abandon()
            raise

    def flush(self) -> StepLog | SkipLog | None:
        """With ``wait=False``: waits for the last step and returns its log; None if it was already returned."""
        log = self._fetch()
        self._ready = None
        return log

    # --- the parts of a step ----------------------------------------------------------------------------------

    def _parts(self, inputs: Any, targets: Any) -> list[tuple[Any, Any, float]]:
        """Inputs, targets and share of the batch for each part."""
        if self.accumulate == 1:
            return [(inputs, targets, 1.0)]
        leaves, spec = tree_flatten((inputs, targets))
        sizes = {len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()}
        if len(sizes) != 1 or (size := sizes.pop()) < self.accumulate:
            raise ValueError(f"a batch must have one length, of at least accumulate={self.accumulate}, in dimension 0")
        cut = [
            leaf.tensor_split(self.accumulate) if isinstance(leaf, Tensor) and leaf.dim() else [leaf] * self.accumulate
            for leaf in leaves
        ]
        shares = [len(part) / size for part in torch.empty(size, 0).tensor_split(self.accumulate)]
        parts = [tree_unflatten(list(leaves), spec) for leaves in zip(*cut, strict=True)]
        return [(x, y, share) for (x, y), share in zip(parts, shares, strict=True)]

    def _loss(self, inputs: Any, targets: Any) -> Tensor:
        with torch.autocast(self.device.type, dtype=self.amp_dtype, enabled=self.amp_dtype is not None):
            loss = self.loss_fn(self.model(inputs), targets)
        if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
            what = f"a {loss.dim()}-dim tensor of {loss.dtype}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TypeError(f"loss_fn must give a 0-dim floating point tensor, not {what}")
        # float32, so that scaling does not overflow a half-precision loss.
        return loss.float() if loss.dtype in (torch.float16, torch.bfloat16) else loss

    def _backward(self, parts: list[tuple[Any, Any, float]], first: Tensor) -> Tensor:
        """Adds up the gradients of all parts, given the loss of the first; returns the loss of the batch."""
        # Gradients of other parameters belong to another optimizer.
        own = [p for p in self._params() if p.requires_grad]
        if len(parts) == 1:
            self.scaler.scale(first).backward(inputs=own)
            return first
        total: Tensor | None = None
        for x, y, share in parts:
            loss = (first if total is None else self._loss(x, y)) * share
            self.scaler.scale(loss).backward(inputs=own)
            total = loss.detach() if total is None else total + loss.detach()
        return total

    def _step(self, parts: list[tuple[Any, Any, float]]) -> StepLog | SkipLog:
        scaler, optimizer, params = self.scaler, self.optimizer, self._params()
        lr = float(optimizer.param_groups[0]["lr"])
        loss = self._loss(*parts[0][:2])
        scale = scaler.scale(torch.ones((), device=loss.device))  # get_scale() would wait for the device
        pre, post, reason, who = math.nan, math.nan, "", ()
        if len(parts) > 1:
            loss = self._backward(parts, loss)
        number = loss.item()
        if not math.isfinite(number):
            reason, scale = "non-finite loss", scale.item()
            self._back_off()
        else:
            if len(parts) == 1:
                self._backward(parts, loss)
            scaler.unscale_(optimizer)
            norm = nn.utils.get_total_norm(grads_of(params))
            bad = has_non_finite_grad(params)
            pre, scale = torch.stack([norm.to(scale), scale]).tolist()
            if bad:
                reason, who = "non-finite gradient", tuple(blame(optimizer, self.model))
            else:
                if not math.isfinite(pre):  # the sum of squares overflowed
                    norm = global_l2_norm(grads_of(params))
                    pre = norm.item()
                reason, post = self._apply(params, norm, pre)
            if reason:
                self._mark_skipped()
            scaler.update()
        if reason:
            self.transaction.rollback()
        elif self.scheduler is not None:
            self.scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        done, self.steps = self.steps, self.steps + 1
        if reason:
            return SkipLog(done, lr, pre, post, number, scale, reason, who)
        return StepLog(done, lr, pre, post, number, scale)

    def _apply(self, params: list[Tensor], norm: Tensor, pre: float) -> tuple[str, float]:
        """Clips finite gradients and steps the optimizer. Returns why it did not step, and the norm after clipping."""
        if not math.isfinite(pre):
            return "non-finite gradient norm", math.nan
        post = pre
        if self.max_norm < math.inf:
            clip_to(params, norm, self.max_norm)
            post = pre * min(1.0, self.max_norm / (pre + 1e-6))
        if post <= LARGE:
            self.scaler.step(self.optimizer)
            return "", post
        before = _snapshot(self.optimizer)
        self.scaler.step(self.optimizer)
        if _all_finite(self.optimizer):
            return "", post
        _restore(self.optimizer, before)
        return "non-finite update", post

    def _mark_skipped(self) -> None:
        """Makes ``scaler.update()`` back off, whatever caused the skip."""
        if self.scaler.is_enabled():
            for state in self.scaler._per_optimizer_states.values():
                for found in state["found_inf_per_device"].values():
                    found.fill_(1.0)

    def _back_off(self, found: Tensor | None = None) -> None:
        """Does what ``scaler.update()`` does after non-finite gradients, if none were computed; or what ``found``
        says."""
        scaler = self.scaler
        if not scaler.is_enabled():
            return
        scale, tracker = scaler._check_scale_growth_tracker("update")
        torch._amp_update_scale_(
            scale,
            tracker,
            torch.ones_like(scale) if found is None else found.to(scale.device),
            scaler.get_growth_factor(),
            scaler.get_backoff_factor(),
            scaler.get_growth_interval(),
        )
        scaler._per_optimizer_states.clear()

    def _abandon(self) -> None:
        """After an exception: removes what is left of the step and would disturb the next one."""
        self.transaction.rollback()
        self.scaler.__dict__.get("_per_optimizer_states", {}).clear()
        for name in ("grad_scale", "found_inf"):  # set by the scaler for a fused optimizer
            self.optimizer.__dict__.pop(name, None)
        self.optimizer.zero_grad(set_to_none=True)

    # --- without waiting --------------------------------------------------------------------------------------

    def _enqueue(self, parts: list[tuple[Any, Any, float]]) -> StepLog | SkipLog | None:
        """A step that does not wait: loss, gradients and norm decide on the device."""
        scaler, optimizer, params = self.scaler, self.optimizer, self._params()
        lr = float(optimizer.param_groups[0]["lr"])
        loss = self._loss(*parts[0][:2])
        scale = scaler.scale(torch.ones((), device=loss.device))
        loss = self._backward(parts, loss).detach()
        record = Record(optimizer)
        record.check(params, scale.double().reciprocal().float(), allow_fp16=not scaler.is_enabled())
        pre = global_l2_norm(grads_of(params)).to(scale)
        post = clip_to(params, pre, self.max_norm)
        found = ~(loss.isfinite() & (post <= LARGE))
        for flag in record.found.values():
            found = found | (flag.to(scale.device) != 0)
        found = found.float()
        optimizer.grad_scale, optimizer.found_inf = None, found
        try:
            optimizer.step()
        finally:
            del optimizer.grad_scale, optimizer.found_inf
        self._back_off(found)
        self.transaction.settle(found)
        optimizer.zero_grad(set_to_none=True)
        numbers = torch.stack([t.to(scale) for t in (loss, pre, post, scale, found)]).to("cpu", non_blocking=True)
        before = self._fetch()  # of the previous step, which the device has finished by now
        self._ready = None
        done, self.steps = self.steps, self.steps + 1
        self._late = _Late(done, lr, numbers, self._event(), record)
        return before

    def _event(self) -> Any:
        if self.device.type == "cpu":
            return None
        event = torch.get_device_module(self.device).Event()
        event.record()
        return event

    def _fetch(self) -> StepLog | SkipLog | None:
        if self._late is None:
            return self._ready
        late, self._late = self._late, None
        if late.event is not None and not late.event.query():
            late.event.synchronize()
        self._ready = late.log(self.model)
        if self.scheduler is not None and isinstance(self._ready, StepLog):
            self.scheduler.step()
        return self._ready

    # --- checkpoints ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, scaler, scheduler, random numbers and step; training that continues from it gives the same
        bits.

        ``torch.save`` writes it, and ``torch.load(..., map_location="cpu")`` reads it with ``weights_only``.
        """
        self._fetch()
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
        """Restores a state of :meth:`state_dict`. Raises what the ``load_state_dict`` of its parts raise."""
        self._late = self._ready = None
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


@dataclass
class _Late:
    """A step whose numbers the host has not read yet: loss, norm before and after, scale, 1 if it was skipped."""

    step: int
    lr: float
    numbers: Tensor
    event: Any
    record: Record

    def log(self, model: nn.Module) -> StepLog | SkipLog:
        loss, pre, post, scale, skipped = self.numbers.tolist()
        if not skipped:
            return StepLog(self.step, self.lr, pre, post, loss, scale)
        who = tuple(self.record.blame(model))
        reason = "non-finite gradient"
        if not math.isfinite(loss):
            reason, pre, post, who = "non-finite loss", math.nan, math.nan, ()
        elif not who:
            reason = "non-finite update" if math.isfinite(post) else "non-finite gradient norm"
        post = post if reason == "non-finite update" else math.nan
        return SkipLog(self.step, self.lr, pre, post, loss, scale, reason, who)


# --- steps of huge gradients --------------------------------------------------------------------------------------


def _tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return params + [t for s in optimizer.state.values() for t in s.values() if isinstance(t, Tensor)]


@torch.no_grad()
def _snapshot(optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], dict[Tensor, dict[str, Any]]]:
    """Copies of the parameters and of the optimizer's state."""
    params = [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]
    return params, {
        p: {k: v.clone() if isinstance(v, Tensor) else copy.deepcopy(v) for k, v in s.items()}
        for p, s in optimizer.state.items()
    }


@torch.no_grad()
def _restore(optimizer: torch.optim.Optimizer, before: tuple[list[Tensor], dict[Tensor, dict[str, Any]]]) -> None:
    params, state = before
    for p, saved in zip((p for g in optimizer.param_groups for p in g["params"]), params, strict=True):
        p.copy_(saved)
    optimizer.state.clear()
    optimizer.state.update(state)


def _all_finite(optimizer: torch.optim.Optimizer) -> bool:
    floats = [t for t in _tensors(optimizer) if t.is_floating_point()]
    return all(bool(t.isfinite().all()) for t in floats)
