"""``python -m torch_netcl.train``: a regression on scikit-learn's digits with :class:`torch_netcl.amp.AmpTrainState`.

A small network learns to give 1 for an image's digit and 0 for the nine others, so that targets can be corrupted at
will::

    python -m torch_netcl.train --steps 300 --csv run.csv --png run.png
    python -m torch_netcl.train --spike 40 --bf16        # one batch's targets times 1e8
    python -m torch_netcl.train --inject-inf 40          # a gradient that is Inf
    python -m torch_netcl.train --checkpoint run.pt --checkpoint-every 50
    python -m torch_netcl.train --resume run.pt          # goes on, bit for bit

Options come from the flags, then from ``--config`` (YAML or JSON, with the flags as keys), then from the checkpoint
that is resumed. Exit status 3: ``--stop-on-skips`` ended the run. After Ctrl-C and SIGTERM the step ends, the
checkpoint is saved, and the status is 130 or 143; a second Ctrl-C ends at once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from torch_netcl._files import replacing
from torch_netcl.amp.training import AmpTrainState, CsvLog, SkipLog, SkipMonitor, StepLog, read_csv

SPIKE = 1e8
TOO_MANY_SKIPS = 3  # an exit status; Python and argparse use 1 and 2


def _option(default: Any, text: str, **more: Any) -> Any:
    metadata = {"help": text, **more}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class TrainConfig:
    """The options; each field is a flag and a key of the configuration file."""

    device: str = _option("netcl", "torch device, e.g. netcl, netcl:1, cpu")
    amp: str = _option("auto", "auto: fp16 where the device has it, else bf16", choices=["auto", "fp16", "bf16", "off"])
    bf16: bool = _option(False, "short for --amp bf16")
    steps: int = _option(200, "training steps")
    batch_size: int = _option(64, "images a step")
    lr: float = _option(4e-3, "first learning rate; it falls along a cosine")
    max_norm: float = _option(1.0, "gradients are clipped to this L2 norm")
    seed: int = _option(0, "of weights, batches and dropout")
    init_scale: float = _option(2.0**16, "GradScaler's first scale (fp16)")
    growth_interval: int = _option(2000, "clean steps after which the scale doubles")
    log_every: int = _option(10, "print each so many STEP rows; SKIP rows always")
    csv: str = _option("", "write a row a step")
    png: str = _option("", "plot the CSV file")
    checkpoint: str = _option("", "save model, optimizer, scaler and random numbers")
    checkpoint_every: int = _option(0, "save each so many steps; 0: at the end only")
    inject_inf: list[int] = _option([], "make a gradient Inf at these steps", type=int)
    spike: list[int] = _option([], "multiply the targets by 1e8 at these steps", type=int)
    skip_window: int = _option(1000, "steps over which the rate of skipped ones is taken")
    skip_threshold: float = _option(0.05, "warn when it is above")
    skip_patience: int = _option(100, "steps above in a row after which --stop-on-skips ends the run")
    stop_on_skips: bool = _option(False, f"end with status {TOO_MANY_SKIPS} when too many steps are skipped")

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "configuration") -> TrainConfig:
        """A configuration from `values`. Raises ValueError for an unknown key or a value of another type."""
        kinds = {f.name: f for f in dataclasses.fields(cls)}
        result = cls()
        for key, value in values.items():
            name = key.replace("-", "_")
            if name not in kinds:
                raise ValueError(f"{source}: no option is called {key!r}; there are {', '.join(kinds)}")
            default = getattr(result, name)
            if isinstance(default, float) and isinstance(value, (int, str)) and not isinstance(value, bool):
                value = float(value)  # YAML reads 1e-3 as a string
            choices = kinds[name].metadata.get("choices")
            if type(value) is not type(default) or (choices and value not in choices):
                wanted = f"one of {', '.join(choices)}" if choices else type(default).__name__
                raise ValueError(f"{source}: {key} must be {wanted}, not {value!r}")
            setattr(result, name, value)
        result._check(source)
        return result

    def _check(self, source: str) -> None:
        """Raises ValueError for a number that is out of range."""
        counts = ("steps", "batch_size", "growth_interval", "log_every", "skip_window", "skip_patience")
        for name in (*counts, "checkpoint_every", "seed"):
            least = 1 if name in counts else 0
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{source}: {name} must be at least {least}, not {value}")
        for name in ("init_scale", "lr"):
            if not 0 < (value := getattr(self, name)) < math.inf:
                raise ValueError(f"{source}: {name} must be a finite number above 0, not {value}")
        if not self.max_norm > 0:
            raise ValueError(f"{source}: max_norm must be above 0, inf for no clipping, not {self.max_norm}")
        if not 0 <= self.skip_threshold <= 1:
            raise ValueError(f"{source}: skip_threshold must be from 0 to 1, not {self.skip_threshold}")
        for name in ("inject_inf", "spike"):
            if any(type(step) is not int or step < 0 for step in getattr(self, name)):
                raise ValueError(f"{source}: {name} must be steps, 0 or more, not {getattr(self, name)}")


def _need(name: str) -> ModuleType:
    """Imports a package of the extra `demo`; this happens late, since `--help` needs none."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise SystemExit(f"{name.partition('.')[0]} is missing: pip install 'torch_netcl[demo]'") from None


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in a ``.json``, ``.yaml`` or ``.yml`` file. Raises ValueError for anything else."""
    path = Path(path)
    text = path.read_text()
    if path.suffix == ".json":
        values = json.loads(text)
    elif path.suffix in (".yaml", ".yml"):
        values = _need("yaml").safe_load(text)
    else:
        raise ValueError(f"{path}: a configuration ends in .json, .yaml or .yml")
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a mapping of options, not {type(values).__name__}")
    return values


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch_netcl.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", help="YAML or JSON file of options")
    parser.add_argument("--resume", metavar="FILE", help="go on from a checkpoint")
    for option in dataclasses.fields(TrainConfig):
        default = option.default_factory() if option.default is dataclasses.MISSING else option.default
        flag = "--" + option.name.replace("_", "-")
        about = f"{option.metadata['help']} (default: {default})" if default not in ("", [], False) else None
        kwargs: dict[str, Any] = {"help": about or option.metadata["help"], "default": argparse.SUPPRESS}
        if isinstance(default, bool):
            kwargs["action"] = argparse.BooleanOptionalAction
        elif isinstance(default, list):
            kwargs.update(type=option.metadata["type"], nargs="+", metavar="STEP")
        else:
            kwargs.update(type=type(default), choices=option.metadata.get("choices"))
        parser.add_argument(flag, **kwargs)
    return parser


def _load_checkpoint(path: str) -> dict[str, Any]:
    """Reads a checkpoint of :func:`_save`. Raises ValueError for another file."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:  # noqa: BLE001 - whatever the unpickler says of foreign bytes
        saved = None
    if not isinstance(saved, dict) or not {"config", "state", "monitor"} <= saved.keys():
        raise ValueError(f"{path} is no checkpoint of this program")
    return saved


def parse(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, dict[str, Any] | None]:
    """The configuration, and the checkpoint to resume, if any."""
    parser = _parser()
    flags = vars(parser.parse_args(arguments))
    file, resume = flags.pop("config"), flags.pop("resume")
    try:
        saved = _load_checkpoint(resume) if resume else None
        values = dict(saved["config"]) if saved else {}
        values.update({k.replace("-", "_"): v for k, v in read_config(file).items()} if file else {})
        return TrainConfig.from_dict({**values, **flags}, source=file or "options"), saved
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _pick_device(name: str) -> torch.device:
    """The device; ends the program if there is none of this name."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SystemExit(f"unknown device {name!r}") from None
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


def pick_amp_dtype(config: TrainConfig, device: torch.device) -> torch.dtype | None:
    """The dtype for autocast, or None for no autocast. Ends the program if the device does not support the request."""
    amp = "bf16" if config.bf16 else config.amp
    if amp == "off":
        return None
    can_fp16 = device.type == "netcl" and torch.float16 in torch.netcl.amp.autocast_dtypes(device)
    if amp == "fp16" and device.type == "netcl" and not can_fp16:
        raise SystemExit(f"{device} has no fp16 arithmetic (cl_khr_fp16): use --bf16, or NETCL_FP16=storage")
    return torch.float16 if amp == "fp16" or (amp == "auto" and can_fp16) else torch.bfloat16


class Digits:
    """scikit-learn's 1797 handwritten digits: images (64 numbers from 0 to 1) and one-hot targets."""

    def __init__(self, seed: int, batch_size: int, device: torch.device) -> None:
        images, labels = _need("sklearn.datasets").load_digits(return_X_y=True)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        self.images = torch.tensor(images, dtype=torch.float32)[order] / 16
        self.labels = torch.tensor(labels)[order]
        self.held_out = len(order) // 5
        self.seed, self.batch_size, self.device = seed, batch_size, device

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """A batch that depends only on seed and step, so a checkpoint need not contain any of it."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        index = torch.randint(self.held_out, len(self.labels), (self.batch_size,), generator=generator)
        targets = nn.functional.one_hot(self.labels[index], 10).float()
        return self.images[index].to(self.device), targets.to(self.device)

    @torch.no_grad()
    def accuracy(self, model: nn.Module) -> float:
        """The fraction of the held-out images whose digit has the largest output."""
        scores = model.eval()(self.images[: self.held_out].to(self.device))
        return (scores.argmax(1).cpu() == self.labels[: self.held_out]).float().mean().item()


def make_state(config: TrainConfig, device: torch.device) -> AmpTrainState:
    """The model, with everything that trains it."""
    torch.manual_seed(config.seed)
    amp_dtype = pick_amp_dtype(config, device)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 10)).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=device.type == "netcl")
    scaler = torch.amp.GradScaler(
        device.type,
        init_scale=config.init_scale,
        growth_interval=config.growth_interval,
        enabled=amp_dtype == torch.float16,  # bfloat16 has the range of float32
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / config.steps))
    )
    return AmpTrainState(model, optimizer, scaler, device, config.max_norm, scheduler, amp_dtype)


def _save(path: str, config: TrainConfig, state: AmpTrainState, monitor: SkipMonitor) -> None:
    """Writes a temporary file and renames it, so that the file is always complete."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    parts = {"config": dataclasses.asdict(config), "state": state.state_dict(), "monitor": monitor.state_dict()}
    with replacing(target) as fresh:
        torch.save(parts, fresh)


def _line(log: StepLog | SkipLog) -> str:
    text = f"{log.step:6d}  loss {log.loss:<11.5g} scale {log.scaler_scale:<9g}"
    if isinstance(log, SkipLog):
        return f"SKIP {text} {log.skip_reason}" + (" in " + ", ".join(map(str, log.blame)) if log.blame else "")
    return f"STEP {text} norm {log.grad_l2_pre_clip:.4g} -> {log.grad_l2_post_clip:.4g}  lr {log.lr:.3g}"


def _one_step(config: TrainConfig, state: AmpTrainState, data: Digits) -> StepLog | SkipLog:
    """The next step, with corrupted data if the options ask for it."""
    inputs, targets = data.batch(state.steps)
    if state.steps in config.spike:
        targets = targets * SPIKE
    if state.steps not in config.inject_inf:
        return state.step(inputs, targets)
    hook = next(state.model.parameters()).register_hook(lambda grad: torch.full_like(grad, math.inf))
    try:
        return state.step(inputs, targets)
    finally:
        hook.remove()


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """The list of signals that asked to stop so far. The first one is only recorded; a second one has its usual
    effect."""
    seen: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        before.clear()

    if threading.current_thread() is threading.main_thread():  # no other thread may set handlers
        before.update({number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)})
    try:
        yield seen
    finally:
        restore()


def plot(csv_file: str, png_file: str) -> None:
    """Plots loss, norms and scale of a CSV file over its steps; a red line is a skipped step."""
    _need("matplotlib").use("Agg")
    plt = _need("matplotlib.pyplot")
    rows = read_csv(csv_file)
    steps = [int(row["step"]) for row in rows]
    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(8, 8), layout="constrained")
    panels = {"loss": ["loss"], "norm": ["grad_l2_pre_clip", "grad_l2_post_clip"], "scale": ["scaler_scale"]}
    skipped = [int(row["step"]) for row in rows if row["skipped"] == "1"]
    for axis, (label, columns) in zip(axes, panels.items(), strict=True):
        for column in columns:
            axis.plot(steps, [float(row[column]) for row in rows], linewidth=1, label=column)
        for k, step in enumerate(skipped):
            once = {} if k else {"label": "skipped"}  # one entry in the legend
            axis.axvline(step, color="tab:red", linewidth=0.8, alpha=0.6, **once)
        axis.set_yscale("log")
        axis.set_ylabel(label)
        axis.legend()
    axes[-1].set_xlabel("step")
    Path(png_file).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png_file, dpi=110)
    plt.close(figure)


def train(config: TrainConfig, saved: dict[str, Any] | None = None) -> int:
    """Trains as ``config`` says, from the checkpoint ``saved`` if given; returns the exit status."""
    tqdm = _need("tqdm").tqdm
    if config.png and not config.csv:
        raise SystemExit("--png plots the CSV file: name one with --csv")
    device = _pick_device(config.device)
    state = make_state(config, device)
    monitor = SkipMonitor(config.skip_window, config.skip_threshold, config.skip_patience)
    if saved is not None:
        state.load_state_dict(saved["state"])
        monitor.load_state_dict(saved["monitor"])
    data = Digits(config.seed, config.batch_size, device)
    first, skipped, status = state.steps, 0, 0
    try:
        log = CsvLog(config.csv, first) if config.csv else None
    except ValueError as error:
        raise SystemExit(str(error)) from None
    try:
        with _stop_signals() as stop, tqdm(total=config.steps, initial=first, unit="step", mininterval=0.5) as bar:
            while state.steps < config.steps:
                done = _one_step(config, state, data)
                if log:
                    log.add(done)
                was_alert = monitor.alert
                monitor.add(isinstance(done, SkipLog))
                skipped += isinstance(done, SkipLog)
                if isinstance(done, SkipLog) or done.step % config.log_every == 0:
                    bar.write(_line(done))
                if monitor.alert and not was_alert:
                    bar.write(f"ALERT {done.step:5d}  {monitor.rate:.1%} of {monitor.window} steps skipped")
                bar.set_postfix(loss=f"{done.loss:.3g}", scale=f"{done.scaler_scale:g}", refresh=False)
                bar.update()
                if config.checkpoint and config.checkpoint_every and state.steps % config.checkpoint_every == 0:
                    _save(config.checkpoint, config, state, monitor)
                if config.stop_on_skips and monitor.exceeded:
                    bar.write(f"STOP {done.step:6d}  above {monitor.threshold:.1%} for {monitor.patience} steps")
                    status = TOO_MANY_SKIPS
                    break
                if stop:
                    bar.write(f"STOP {done.step:6d}  {signal.Signals(stop[0]).name}")
                    status = 128 + stop[0]
                    break
            if config.checkpoint:
                _save(config.checkpoint, config, state, monitor)
    finally:
        if log:
            log.close()
    if config.png:
        plot(config.csv, config.png)
    name = str(state.amp_dtype or torch.float32).removeprefix("torch.")
    steps, accuracy = state.steps - first, data.accuracy(state.model)
    print(f"{device}, {name}: {steps} steps, {skipped} skipped, accuracy {accuracy:.3f}")
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return train(*parse(arguments))


if __name__ == "__main__":
    sys.exit(main())
