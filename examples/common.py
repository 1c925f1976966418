"""The pieces of a training script that do not depend on the model.

They are: device choice, autocast dtype, one optimisation step under ``torch.autocast`` and
``torch.amp.GradScaler``, a log that does not stall the device, CSV and PNG output, and timing. Copy what you need:
nothing here is specific to OpenCL, except the question which half precision the device supports.
"""

from __future__ import annotations

import argparse
import copy
import csv
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

Batch = tuple[Tensor, Tensor]
LossFn = Callable[[nn.Module, Tensor, Tensor], Tensor]
AMP_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def add_arguments(parser: argparse.ArgumentParser, *, steps: int, batch_size: int, lr: float) -> None:
    """Add the options that every example takes."""
    parser.add_argument("--device", default="netcl", help="torch device, e.g. netcl, netcl:1, cpu")
    parser.add_argument(
        "--amp",
        choices=["auto", "fp16", "bf16", "off"],
        default="auto",
        help="autocast dtype; auto: fp16 where the device supports it, else bf16",
    )
    parser.add_argument("--compile", action="store_true", help="train with torch.compile")
    parser.add_argument("--steps", type=int, default=steps, help="optimisation steps")
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--lr", type=float, default=lr, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, default=None, metavar="FILE", help="write one row a step")
    parser.add_argument(
        "--png", type=Path, default=None, metavar="FILE", help="plot loss, gradient norm, scale"
    )


def pick_device(name: str) -> torch.device:
    """Return the device called ``name``, or exit with a message that says why there is none."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SystemExit(f"unknown device {name!r}; is torch_netcl installed?") from None
    if device.type == "opencl":
        raise SystemExit("OpenCL devices are called netcl: --device netcl, netcl:1 …")
    if device.type == "cpu":
        return device
    module = getattr(torch, device.type, None)
    count = module.device_count() if module is not None and module.is_available() else 0
    if not count and device.type == "netcl":
        raise SystemExit("no OpenCL device found; see `python -m torch_netcl`, or try --device cpu")
    if (device.index or 0) >= count:
        raise SystemExit(f"there are {count} {device.type} devices, so no {name}; try --device netcl or --device cpu")
    return device


def device_name(device: torch.device) -> str:
    """A readable name of the device."""
    if device.type == "cpu":
        return "torch CPU"
    properties = torch.get_device_module(device).get_device_properties(device)
    platform = getattr(properties, "platform_name", device.type)
    return f"{properties.name}, {platform}"


def pick_amp_dtype(device: torch.device, amp: str) -> torch.dtype | None:
    """Return the autocast dtype, or None for full precision; print a line if it is not the usual fp16."""
    if amp == "off":
        return None
    if amp in AMP_DTYPES:
        return AMP_DTYPES[amp]
    if device.type == "cpu":
        return torch.bfloat16
    if device.type != "netcl" or torch.float16 in torch.netcl.amp.autocast_dtypes(device):
        return torch.float16
    print(f"{device_name(device)} has no fp16 arithmetic (cl_khr_fp16): autocast uses bfloat16")
    return torch.bfloat16


def dtype_name(dtype: torch.dtype | None) -> str:
    """float16, bfloat16 or float32."""
    return str(dtype or torch.float32).removeprefix("torch.")


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished everything that was queued."""
    torch.get_device_module(device).synchronize()


def fallback_ops(device: torch.device) -> dict[str, int]:
    """Operators that ran on the host because the device has no kernel, with the number of calls."""
    return dict(torch.netcl.cpu_fallback_ops()) if device.type == "netcl" else {}


def reset_fallback_ops(device: torch.device) -> None:
    """Reset the counts."""
    if device.type == "netcl":
        torch.netcl.reset_cpu_fallback_ops()


@dataclass
class Log:
    """The log of a run, with one entry per step.

    ``add`` only keeps references to 0-dim tensors on the device; ``flush`` reads all of them in one copy. So the
    log waits for the device once per ``every`` steps, not once per number.
    """

    every: int = 10
    loss: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    scale: list[float] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    _pending: list[Tensor] = field(default_factory=list, repr=False)
    _since: float = field(default_factory=time.perf_counter, repr=False)

    def add(self, loss: Tensor, grad_norm: Tensor, scale: Tensor) -> None:
        """Record one step; the tensors stay on the device."""
        self._pending.append(torch.stack([loss.detach().float(), grad_norm.float(), scale]))
        if len(self._pending) >= self.every or not self.loss:
            self.flush()

    def flush(self) -> None:
        """Read the pending values from the device."""
        if not self._pending:
            return
        rows = torch.stack(self._pending).tolist()
        now = time.perf_counter()
        for loss, grad_norm, scale in rows:
            self.loss.append(loss)
            self.grad_norm.append(grad_norm)
            self.scale.append(scale)
            # GradScaler skips the step if a gradient is Inf or NaN, and then their norm is too.
            self.skipped.append(int(not abs(grad_norm) < float("inf")))
            self.ms.append(1000 * (now - self._since) / len(rows))
        self._pending.clear()
        self._since = now

    def write_csv(self, path: Path) -> None:
        """Write step, loss, grad_norm, scale, skipped, ms; ms is a mean over the steps between two reads."""
        columns = [
            f.name for f in fields(self) if isinstance(getattr(self, f.name), list) and f.name[0] != "_"
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["step", *columns])
            for step, row in enumerate(zip(*(getattr(self, c) for c in columns), strict=True), start=1):
                writer.writerow([step, *(f"{v:.6g}" if isinstance(v, float) else v for v in row)])

    def write_png(self, path: Path, title: str) -> None:
        """Plot loss, gradient norm and loss scale over the steps."""
        import matplotlib  # imported late: the import takes longer than the first training steps

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        steps = range(1, len(self.loss) + 1)
        figure, axes = plt.subplots(3, 1, sharex=True, figsize=(8, 8), layout="constrained")
        panels = [
            ("loss (nats)", self.loss, "linear"),
            ("gradient norm", self.grad_norm, "log"),
            ("loss scale", self.scale, "log"),
        ]
        for axis, (label, values, yscale) in zip(axes, panels, strict=True):
            axis.plot(steps, values, linewidth=1, label=label)
            axis.set_yscale(yscale)
            axis.set_ylabel(label)
            axis.grid(alpha=0.3)
            for k, step in enumerate(step for step, skipped in zip(steps, self.skipped, strict=True) if skipped):
                once = {} if k else {"label": "skipped by GradScaler"}  # one entry in the legend
                axis.axvline(step, color="tab:red", linewidth=0.8, alpha=0.6, **once)
            axis.legend()
        axes[0].set_title(title)
        axes[-1].set_xlabel("step")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        plt.close(figure)


def cosine_with_warmup(
    optimizer: torch.optim.Optimizer, steps: int, warmup: int, last: float = 0.05
) -> torch.optim.lr_scheduler.LRScheduler:
    """Rise linearly over ``warmup`` steps, then fall along a cosine to ``last`` times the peak."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, steps - warmup))
        return last + (1 - last) * 0.5 * (1 + math.cos(math.pi * progress))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def train_step(
    model: nn.Module,
    batch: Batch,
    loss_fn: LossFn,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    amp_dtype: torch.dtype | None,
    clip: float = float("inf"),
) -> tuple[Tensor, Tensor]:
    """One step under autocast and GradScaler; returns loss and gradient norm, both still on the device."""
    x, y = batch
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(x.device.type, dtype=amp_dtype, enabled=amp_dtype is not None):
        loss = loss_fn(model, x, y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # so that clipping and the logged norm use the true gradients
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
    scaler.step(
        optimizer
    )  # skipped when a gradient is Inf or NaN; asks the device, unless the optimizer is fused
    scaler.update()
    return loss, grad_norm


def train(
    model: nn.Module,
    batches: Iterator[Batch],
    loss_fn: LossFn,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int,
    device: torch.device,
    amp_dtype: torch.dtype | None,
    name: str,
    clip: float = float("inf"),
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    log_every: int = 10,
    on_first_step: Callable[[], None] | None = None,
) -> Log:
    """Train for ``steps`` steps with a progress bar; returns the log."""
    model.train()
    # The usual growth_interval, 2000 steps, would be longer than these runs.
    scaler = torch.amp.GradScaler(device.type, growth_interval=100, enabled=amp_dtype is not None)
    one = torch.ones((), device=device)
    log = Log(every=log_every)
    with tqdm(total=steps, desc=name, unit="step", mininterval=0.5) as bar:
        for step in range(steps):
            scale = scaler.scale(one)  # the scale itself, without waiting for the device as get_scale() would
            loss, grad_norm = train_step(model, next(batches), loss_fn, optimizer, scaler, amp_dtype, clip)
            if scheduler is not None:
                scheduler.step()
            done = len(log.loss)
            log.add(loss, grad_norm, scale)
            if len(log.loss) > done:
                bar.set_postfix(loss=f"{log.loss[-1]:.3f}", scale=f"{log.scale[-1]:g}", refresh=False)
            if step == 0 and on_first_step is not None:
                on_first_step()
            bar.update()
        log.flush()
        bar.set_postfix(loss=f"{log.loss[-1]:.3f}", scale=f"{log.scale[-1]:g}")
    return log


def to_device(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Move batches to the device without waiting for it."""
    for x, y in batches:
        yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)


def timed_step(
    model: nn.Module, batch: Batch, loss_fn: LossFn, device: torch.device, amp_dtype: torch.dtype | None
) -> Callable[[], float]:
    """Returns a function that trains a copy of the model for one step (forward, backward, clip, AdamW), in which the
    loss is read, and returns the milliseconds. Only float16 needs a GradScaler."""
    model = copy.deepcopy(model).to(device).train()
    batch = (batch[0].to(device), batch[1].to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler(device.type, enabled=amp_dtype is torch.float16)

    def step() -> float:
        synchronize(device)
        start = time.perf_counter()
        loss, _ = train_step(model, batch, loss_fn, optimizer, scaler, amp_dtype, clip=1.0)
        loss.item()
        synchronize(device)
        return 1000 * (time.perf_counter() - start)

    return step


def take_turns(steps: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of what each function returns. They take turns, 7 to 100 times each, until 2 seconds are over."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _, step in itertools.product(range(2), steps.values()):
        step()
    start = time.perf_counter()
    for turn in range(100):
        if turn >= 7 and time.perf_counter() - start > 2:
            break
        for name in sorted(steps, reverse=turn % 2 == 1):
            times[name].append(steps[name]())
    return {name: statistics.median(values) for name, values in times.items()}


def compare_speed(
    model: nn.Module, batch: Batch, loss_fn: LossFn, device: torch.device, amp_dtype: torch.dtype | None
) -> dict[str, float]:
    """Median ms a step of the same model: fp32, under autocast in each dtype of the device, and fp32 on torch CPU."""
    dtypes = [] if amp_dtype is None else [amp_dtype]
    if dtypes and device.type == "netcl":
        dtypes = torch.netcl.amp.autocast_dtypes(device)
    steps = {"fp32": timed_step(model, batch, loss_fn, device, None)}
    steps |= {dtype_name(dtype): timed_step(model, batch, loss_fn, device, dtype) for dtype in dtypes}
    # Not in turns with the others, since threads of torch CPU spin for a while after their work.
    cpu = {"torch CPU fp32": timed_step(model, batch, loss_fn, torch.device("cpu"), None)}
    return take_turns(steps) | take_turns(cpu)


@dataclass
class Result:
    """What a training run leaves behind."""

    name: str
    metric: str
    value: float
    passed: bool
    amp_dtype: torch.dtype | None
    log: Log
    seconds: float
    speed: dict[str, float]
    fallback: dict[str, int]

    def rows(self) -> list[tuple[str, str]]:
        """Label and value pairs for a table."""
        return [
            ("autocast", dtype_name(self.amp_dtype)),
            ("steps", f"{len(self.log.loss)} in {self.seconds:.1f} s"),
            ("final loss", f"{statistics.fmean(self.log.loss[-10:]):.4f}"),
            (self.metric, f"{self.value:.4f}" + ("" if self.passed else "  (goal missed)")),
            ("loss scale", f"{self.log.scale[-1]:g}"),
            ("skipped steps", str(sum(self.log.skipped))),
            *((f"ms a step, {key}", f"{ms:.1f}") for key, ms in self.speed.items()),
            ("operators on the host", ", ".join(f"{k} x{v}" for k, v in self.fallback.items()) or "none"),
        ]


def finish(result: Result, device: torch.device, args: argparse.Namespace) -> None:
    """Write the files that were asked for and print the result."""
    if args.csv is not None:
        result.log.write_csv(args.csv)
    if args.png is not None:
        result.log.write_png(
            args.png, f"{result.name} on {device_name(device)}, {dtype_name(result.amp_dtype)}"
        )
    print_table([(result.name, ""), ("device", f"{device} ({device_name(device)})"), *result.rows()])


def print_table(rows: Sequence[tuple[str, str]]) -> None:
    """Two aligned columns."""
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        print(f"{label:<{width}}  {value}".rstrip())
