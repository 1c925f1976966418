"""What autocast does to a model, module by module: dtypes, casts, underflow and saturation, error, time."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Explanation", "ModuleReport", "explain"]

LOW = (torch.float16, torch.bfloat16)
# Beyond these limits, a module should run without autocast. Rounding to bfloat16 alone is an error of 2^-9 of a value;
# a sum of some hundred products of rounded values is off by a few percent at worst.
MAX_ERROR = 0.05
MAX_UNDERFLOW = 0.01


@dataclass
class ModuleReport:
    """A module without children, in one forward pass (and one backward pass, if a loss was given)."""

    name: str  # in the model
    kind: str  # its class
    dtype: torch.dtype | None = None  # of its output under autocast; None if it returned no floating point tensor
    casts: int = 0  # copies to another dtype by its operators
    cast_bytes: int = 0  # bytes that these copies wrote
    # Share, 0 to 1, of the non-zero values that become 0 in a dtype (underflow), and of the finite values that become
    # Inf (saturate): in weights, inputs and outputs in float32, and in gradients of outputs if a loss was given.
    underflow: dict[torch.dtype, float] = field(default_factory=dict)
    saturate: dict[torch.dtype, float] = field(default_factory=dict)
    gradient_underflow: dict[torch.dtype, float] = field(default_factory=dict)
    error: float = 0.0  # L2 norm of output - float32's output, divided by that of the latter; NaN if not finite
    input_error: float = 0.0  # the same for its inputs: the error of the modules before it
    seconds: float = 0.0  # of its forward pass under autocast, and
    seconds_fp32: float = 0.0  # in float32; the fastest of three, including the device's time
    advice: str = ""  # why it should stay in float32; "" if it need not


@dataclass
class Explanation:
    """The result of :func:`explain`; ``print`` shows it as a table, :meth:`plot` as a picture."""

    dtype: torch.dtype
    device: torch.device
    modules: list[ModuleReport]
    error: float  # of the model's output, defined as for a module

    @property
    def keep_in_fp32(self) -> list[str]:
        """The names of modules that should run with ``autocast(enabled=False)``."""
        return [m.name for m in self.modules if m.advice]

    def __str__(self) -> str:
        head = ("module", "class", "dtype", "casts", "KiB cast", "underflow", "saturate", "error", "us", "us fp32")
        head = (*head, "advice")
        rows = [head]
        for m in self.modules:
            shares = (_share(m.underflow.get(self.dtype, 0.0)), _share(m.saturate.get(self.dtype, 0.0)))
            times = (f"{m.seconds * 1e6:.0f}", f"{m.seconds_fp32 * 1e6:.0f}")
            dtype = "-" if m.dtype is None else str(m.dtype)[6:]
            cast = (str(m.casts), f"{m.cast_bytes / 1024:.1f}")
            rows.append((m.name, m.kind, dtype, *cast, *shares, f"{m.error:.1e}", *times, m.advice))
        widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        keep = ", ".join(self.keep_in_fp32) or "none"
        last = f"{str(self.dtype)[6:]} on {self.device}: error of the output {self.error:.1e}; keep in float32: {keep}"
        return "\n".join([*lines, last])

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Writes a picture of the error, shares and time of each module. Needs matplotlib; the suffix selects the
        format."""
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        names = [m.name or m.kind for m in self.modules]
        place = range(len(names))
        figure, axes = plt.subplots(1, 3, figsize=(11, 1.5 + 0.34 * len(names)), sharey=True, layout="constrained")
        colours = ["tab:red" if m.advice else "tab:blue" for m in self.modules]
        axes[0].barh(place, [m.error if math.isfinite(m.error) else 1.0 for m in self.modules], color=colours)
        axes[0].axvline(MAX_ERROR, color="tab:gray", linewidth=0.8, linestyle="--")
        axes[0].set_xlabel(f"error of {str(self.dtype)[6:]} against float32")
        axes[0].set_xscale("symlog", linthresh=1e-5)
        kinds = {"tab:red": "keep in float32", "tab:blue": "other modules"}
        bars = [plt.Rectangle((0, 0), 1, 1, color=c, label=text) for c, text in kinds.items() if c in colours]
        limit = plt.Line2D([], [], color="tab:gray", linewidth=0.8, linestyle="--", label=f"limit {MAX_ERROR:g}")
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "frameon": False, "fontsize": "small"}
        axes[0].legend(handles=[*bars, limit], ncols=3, columnspacing=1.0, **above)
        for k, dtype in enumerate(LOW):
            lost = [100 * (m.underflow.get(dtype, 0.0) + m.saturate.get(dtype, 0.0)) for m in self.modules]
            axes[1].barh([p + 0.4 * k - 0.2 for p in place], lost, height=0.4, label=str(dtype)[6:])
        axes[1].set_xlabel("values lost: underflow and saturation, %")
        axes[1].legend(ncols=2, **above)
        for k, (label, values) in enumerate(
            (("float32", [m.seconds_fp32 for m in self.modules]), ("autocast", [m.seconds for m in self.modules]))
        ):
            axes[2].barh([p + 0.4 * k - 0.2 for p in place], [1e6 * v for v in values], height=0.4, label=label)
        axes[2].set_xlabel("forward pass, µs")
        axes[2].legend(ncols=2, **above)
        axes[0].set_yticks(list(place), names)
        axes[0].invert_yaxis()
        figure.savefig(path, dpi=110)
        plt.close(figure)


def _share(value: float) -> str:
    return "0" if value == 0 else f"{100 * value:.2g}%"


def _floats(tree: Any) -> list[Tensor]:
    return [t for t in tree_leaves(tree) if isinstance(t, Tensor) and t.is_floating_point() and t.numel()]


class _Casts(TorchDispatchMode):
    """Counts copies into another floating point dtype, for the innermost module that runs."""

    def __init__(self, reports: dict[nn.Module, ModuleReport], stack: list[nn.Module]) -> None:
        super().__init__()
        self._reports, self._stack = reports, stack

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and self._stack and out.is_floating_point():
            report = self._reports.get(self._stack[-1])
            if report is not None and args[0].dtype != out.dtype:
                report.casts += 1
                report.cast_bytes += out.numel() * out.element_size()
        return out


class _Hooks:
    """Calls ``before(module, inputs)`` and ``after(module, inputs, output)`` around the modules of ``reports``."""

    def __init__(self, modules: Any, before: Callable[..., None], after: Callable[..., None]) -> None:
        self._handles = []
        for module in modules:
            self._handles.append(module.register_forward_pre_hook(lambda m, x: before(m, x)))
            self._handles.append(module.register_forward_hook(lambda m, x, y: after(m, x, y)))

    def __enter__(self) -> _Hooks:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()


def _lost(tensors: list[Tensor], dtype: torch.dtype) -> tuple[float, float]:
    """The shares of values that underflow and that saturate in ``dtype``."""
    zeros = infs = values = finite = 0
    for tensor in tensors:
        wide = tensor.detach().float()
        narrow = wide.to(dtype)
        nonzero, bounded = wide != 0, wide.isfinite()
        zeros += int((nonzero & (narrow == 0)).sum())
        infs += int((bounded & narrow.isinf()).sum())
        values += int(nonzero.sum())
        finite += int(bounded.sum())
    return zeros / max(values, 1), infs / max(finite, 1)


def _difference(got: list[Tensor], want: list[Tensor]) -> float:
    """The relative difference of two outputs in the L2 norm; NaN if ``got`` is not finite where ``want`` is."""
    pairs = [(g.detach().double().cpu(), w.detach().double().cpu()) for g, w in zip(got, want, strict=False)]
    pairs = [(g[w.isfinite()], w[w.isfinite()]) for g, w in pairs if g.shape == w.shape]
    above = math.sqrt(sum(float((g - w).square().sum()) for g, w in pairs))
    below = math.sqrt(sum(float(w.square().sum()) for _, w in pairs))
    return above / below if below else above


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def _advice(report: ModuleReport, dtype: torch.dtype) -> str:
    saturated, underflown = report.saturate.get(dtype, 0.0), report.underflow.get(dtype, 0.0)
    if report.dtype not in LOW:
        return ""  # it is in float32 already
    if saturated > 0:
        return f"{_share(saturated)} of its values are beyond {str(dtype)[6:]}"
    if not report.error <= MAX_ERROR and report.input_error <= MAX_ERROR:
        return f"its error is {report.error:.2g}"
    if underflown > MAX_UNDERFLOW:
        return f"{_share(underflown)} of its values vanish"
    return ""


def explain(
    model: nn.Module,
    batch: Any,
    *,
    dtype: torch.dtype | None = None,
    loss_fn: Callable[[Any], Tensor] | None = None,
) -> Explanation:
    """Runs ``model`` on ``batch`` in float32 and under autocast, and tells for each module what the difference is.

    The model is called five or more times in the mode (train or eval) that it is in; its buffers and the random numbers
    are put back afterwards, and gradients are left alone. Works on any device that autocast knows, the CPU included.

    Args:
        model: float32, on one device.
        batch: what it is called with: a tensor, or a tuple or list of arguments, or a dict of keyword arguments.
        dtype: of autocast, float16 or bfloat16; by default what ``torch.autocast`` takes on the device.
        loss_fn: a 0-dim loss of the model's output. With it, underflow of the gradients of outputs is told as well, as
            without a GradScaler.

    Returns:
        An :class:`Explanation`, of the modules without children that ran.

    Raises:
        ValueError: the model has no parameters or is on several devices, or another ``dtype``.
    """
    devices = {p.device for p in model.parameters()}
    if len(devices) != 1:
        raise ValueError(f"the model must be on one device, not on {sorted(map(str, devices))}")
    (device,) = devices
    dtype = torch.get_autocast_dtype(device.type) if dtype is None else dtype
    if dtype not in LOW:
        raise ValueError(f"dtype must be torch.float16 or torch.bfloat16, not {dtype}")
    from torch_netcl.amp.transactional import transactional

    kinds = [device] if device.type != "cpu" else []
    transaction = transactional(model)

    def call(*, low: bool, then: Callable[[Any], Any] = lambda output: output) -> Any:
        """``then`` of one pass, of which nothing is left behind."""
        with torch.random.fork_rng(kinds, device_type=device.type if kinds else "cpu"), transaction:
            try:
                with torch.autocast(device.type, dtype=dtype, enabled=low, cache_enabled=False):
                    if isinstance(batch, dict):
                        out = model(**batch)
                    else:
                        out = model(*batch) if isinstance(batch, (tuple, list)) else model(batch)
                return then(out)
            finally:
                transaction.rollback()

    names = {m: n for n, m in reversed(list(model.named_modules())) if not any(True for _ in m.children())}
    reports: dict[nn.Module, ModuleReport] = {}
    outputs: dict[nn.Module, tuple[list[Tensor], list[Tensor]]] = {}  # in float32, after the inputs
    for module, name in reversed(names.items()):
        reports[module] = ModuleReport(name.replace("_orig_mod.", ""), type(module).__name__)
    order: list[nn.Module] = []
    with torch.no_grad():
        wanted = _measure_fp32(call, reports, outputs, order)
        error = _measure_low(call, reports, outputs, dtype, wanted)
        for low in (False, True):
            _measure_time(call, reports, device, low)
    if loss_fn is not None:
        _measure_gradients(call, reports, loss_fn)
    for report in reports.values():
        report.advice = _advice(report, dtype)
    return Explanation(dtype, device, [reports[m] for m in order], error)


def _measure_fp32(
    call: Callable[..., Any],
    reports: dict[nn.Module, ModuleReport],
    outputs: dict[nn.Module, tuple[list[Tensor], list[Tensor]]],
    order: list[nn.Module],
) -> list[Tensor]:
    """Outputs in float32, and what of them would be lost; the model's output."""

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        if module not in outputs:
            order.append(module)
        # The last call counts for a module that runs several times.
        given, got = [[t.detach().clone() for t in _floats(tree)] for tree in (inputs, output)]
        outputs[module] = given, got
        for low in LOW:
            lost = _lost([*given, *got, *module.parameters(recurse=False)], low)
            reports[module].underflow[low], reports[module].saturate[low] = lost

    with _Hooks(reports, lambda *_: None, after):
        return [t.detach().clone() for t in _floats(call(low=False))]


def _measure_low(
    call: Callable[..., Any],
    reports: dict[nn.Module, ModuleReport],
    outputs: dict[nn.Module, tuple[list[Tensor], list[Tensor]]],
    dtype: torch.dtype,
    wanted: list[Tensor],
) -> float:
    """Dtypes, casts and errors under autocast; the error of the model's output."""
    stack: list[nn.Module] = []

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        stack.pop()
        got = _floats(output)
        if got:
            reports[module].dtype = got[0].dtype
            given, wanted_here = outputs[module]
            reports[module].input_error = _difference(_floats(inputs), given)
            reports[module].error = _difference(got, wanted_here)

    casts = _Casts(reports, stack)
    with _Hooks(reports, lambda module, _: stack.append(module), after), casts:
        return _difference(_floats(call(low=True)), wanted)


def _measure_time(
    call: Callable[..., Any], reports: dict[nn.Module, ModuleReport], device: torch.device, low: bool
) -> None:
    started: dict[nn.Module, float] = {}

    def before(module: nn.Module, inputs: Any) -> None:
        _wait(device)
        started[module] = time.perf_counter()

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        _wait(device)
        spent[module] = spent.get(module, 0.0) + time.perf_counter() - started[module]

    best: dict[nn.Module, float] = {}
    for _ in range(3):
        spent: dict[nn.Module, float] = {}
        with _Hooks(reports, before, after):
            call(low=low)
        for module, seconds in spent.items():
            best[module] = min(best.get(module, math.inf), seconds)
    for module, seconds in best.items():
        setattr(reports[module], "seconds" if low else "seconds_fp32", seconds)


def _measure_gradients(
    call: Callable[..., Any], reports: dict[nn.Module, ModuleReport], loss_fn: Callable[[Any], Tensor]
) -> None:
    """What of the gradients of outputs underflows, in a float32 pass."""
    kept: dict[nn.Module, Tensor] = {}

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        grown = [t for t in _floats(output) if t.requires_grad]
        if grown:
            kept[module] = grown[0]

    with torch.enable_grad(), _Hooks(reports, lambda *_: None, after):
        grads = call(
            low=False, then=lambda out: torch.autograd.grad(loss_fn(out), list(kept.values()), allow_unused=True)
        )
    for module, grad in zip(kept, grads, strict=True):
        for low in LOW if grad is not None else ():
            reports[module].gradient_underflow[low] = _lost([grad], low)[0]
