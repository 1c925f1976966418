"""``python -m torch_netcl``: shows what was found on this machine, tests it, and clears the kernel cache."""

from __future__ import annotations

import argparse
import os
import re
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

import torch_netcl
from torch_netcl import _opencl

_ENTRY = re.compile(r".+\.bin(\.\d+)?")


def _size(n: float) -> str:
    """A size as text: 1536 -> 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError


def _table(rows: Iterable[tuple[str, str]], indent: str = "") -> None:
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{indent}{name:<{width}}  {value}")


# --- the report ------------------------------------------------------------------------------------------


def _cache_entries(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.is_file() and _ENTRY.fullmatch(p.name)]


def _cache_line() -> str:
    folder = _opencl.cache_dir()
    entries = _cache_entries(folder)
    line = f"{folder} ({len(entries)} kernels, {_size(sum(p.stat().st_size for p in entries))})"
    info = folder.stat()
    if info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        line += ", not used: others may write to it, see chmod go-w"
    return line


def _loader_path(library: str) -> str:
    """The file that the dynamic linker found for a bare name."""
    if "/" not in library and _opencl._loadable(library):
        for line in Path("/proc/self/maps").read_text().splitlines():
            path = line.split(maxsplit=5)[-1]
            if os.path.basename(path).startswith(library):
                return path
    return library


def _general() -> list[tuple[str, str]]:
    info = _opencl.configure()
    rows = [
        ("torch_netcl", f"{torch_netcl.__version__} in {os.path.dirname(torch_netcl.__file__)}"),
        ("torch", str(torch.__version__)),
        ("OpenCL loader", _loader_path(info.library) if info.library else "none found"),
    ]
    if info.user_choice:
        rows.append(("OpenCL runtimes", f"chosen by the environment: {info.vendors}"))
    else:
        for i, r in enumerate(info.runtimes):
            rows.append(("OpenCL runtimes" if i == 0 else "", f"{r.name}: {r.library} ({r.origin})"))
        if not info.runtimes:
            rows.append(("OpenCL runtimes", "none found"))
    variables = sorted(v for v in os.environ if v.startswith("NETCL_"))
    rows += [("environment" if i == 0 else "", f"{v}={os.environ[v]}") for i, v in enumerate(variables)]
    rows.append(("kernel cache", _cache_line()))
    return rows


def _device_rows(index: int) -> list[tuple[str, str]]:
    p = torch.netcl.get_device_properties(index)
    amp = torch.netcl.amp.autocast_dtypes(index)

    def yes(flag: bool) -> str:
        return "yes" if flag else "no"

    return [
        ("platform", f"{p.platform_name}, {p.platform_version}"),
        ("driver", p.driver_version),
        ("type", f"{p.device_type}, kernels shaped for a {p.device_class}"),
        ("fp16 arithmetic", "yes" if p.has_fp16 else "no (fp16 tensors are computed in fp32)"),
        ("bf16", "yes (computed in fp32)"),
        ("fp64", yes(p.has_fp64)),
        ("int64 atomics", yes(p.has_int64_atomics)),
        ("autocast to", ", ".join(str(d).removeprefix("torch.") for d in amp)),
        ("global memory", f"{_size(p.global_mem_size)}, one allocation up to {_size(p.max_mem_alloc_size)}"),
        ("local memory", _size(p.local_mem_size)),
        ("matrix engine", torch.ops.netcl.matrix_engine(index)),
        ("compute units", f"{p.max_compute_units}, work-groups of up to {p.max_work_group_size}"),
    ]


def report() -> None:
    """Print versions, loader, runtimes, cache and every device; or why there is none."""
    _table(_general())
    if torch_netcl.failure:
        print(f"\n{torch.netcl.reason}")
        return
    count = torch.netcl.device_count()
    for index in range(count):
        print(f"\nnetcl:{index}  {torch.netcl.get_device_name(index)}")
        _table(_device_rows(index), indent="  ")
    if count == 0:
        try:
            torch.netcl.init()
            reason = "No OpenCL device."
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
        print(f"\n{reason}")


# --- the self-test ---------------------------------------------------------------------------------------


def _close(actual: torch.Tensor, expected: torch.Tensor, **tolerance: float) -> None:
    torch.testing.assert_close(actual.cpu(), expected, **tolerance)


def _check_pointwise(device: torch.device) -> None:
    a, b = torch.randn(37, 1001), torch.randn(1001)
    _close(a.to(device) + b.to(device), a + b)
    _close(torch.sigmoid(a.to(device))[:, ::3], torch.sigmoid(a)[:, ::3])
    _close(a.to(device) > 0, a > 0)


def _check_matmul(device: torch.device) -> None:
    a, b = torch.randn(65, 130), torch.randn(130, 97)
    # The order of summation differs: 130 roundings of sums near sqrt(130) make a random walk of 8e-6; allow ten times
    # that.
    _close(a.to(device) @ b.to(device), a @ b, rtol=0, atol=1e-4)


def _check_reduction(device: torch.device) -> None:
    a = torch.randn(53, 4099)
    # As above: sqrt(4099) roundings of partial sums near sqrt(4099) make 2.5e-4; allow four times that.
    _close(a.to(device).sum(1), a.sum(1), rtol=0, atol=1e-3)
    _close(a.to(device).amax(), a.amax())


def _check_casts(device: torch.device) -> None:
    a = torch.cat([torch.randn(1000) * 10.0**e for e in range(-6, 5)] + [torch.tensor([float("inf"), -0.0])])
    for dtype in (torch.float16, torch.bfloat16):
        on_device = a.to(device).to(dtype)
        _close(on_device, a.to(dtype), rtol=0, atol=0)
        _close(on_device.float(), a.to(dtype).float(), rtol=0, atol=0)


def _train(device: torch.device, dtype: torch.dtype | None) -> tuple[list[float], torch.Tensor, float, bool]:
    """Three scaled steps and one with an Inf. Returns losses, weights, scale, and whether the last step was skipped."""
    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(32, 8)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(8, 32, generator=generator) / 8)
        layer.bias.zero_()
    x, y = torch.randn(64, 32, generator=generator), torch.randn(64, 8, generator=generator)
    layer, x, y = layer.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype is not None, init_scale=1024.0)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = torch.nn.functional.mse_loss(layer(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    weight = layer.weight.detach().clone()
    optimizer.zero_grad()
    scaler.scale(layer(x).sum()).backward()
    layer.weight.grad.view(-1)[3] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    return losses, weight.cpu(), scaler.get_scale(), torch.equal(weight.cpu(), layer.weight.detach().cpu())


def _check_amp(device: torch.device) -> None:
    expected, weight, _, _ = _train(torch.device("cpu"), None)
    for dtype in torch.netcl.amp.autocast_dtypes(device):
        losses, actual, scale, skipped = _train(device, dtype)
        # Inputs, weights and output are rounded to `dtype` once per step, each by at most eps / 2 of numbers of
        # magnitude 1; sums over 32 terms and means over 512 average these errors, so 4 eps suffices for three steps.
        tolerance = 4 * torch.finfo(dtype).eps
        _close(torch.tensor(losses), torch.tensor(expected), rtol=tolerance, atol=tolerance)
        _close(actual, weight, rtol=tolerance, atol=tolerance)
        assert skipped, f"the step with an infinite gradient was taken ({dtype})"
        assert scale == 512.0, f"the scale is {scale} and not half of 1024 ({dtype})"


CHECKS: dict[str, Callable[[torch.device], None]] = {
    "element-wise": _check_pointwise,
    "matmul": _check_matmul,
    "reduction": _check_reduction,
    "fp16 and bf16 casts": _check_casts,
    "autocast and GradScaler": _check_amp,
}


def _brief(error: Exception) -> str:
    """Where the error occurred, and its text. The dispatcher's messages list every key, so the text is cut."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).strip()
    if len(text) > 600:
        text = text[:600].rsplit("\n", 1)[0] + " ..."
    return f"{type(error).__name__} at {os.path.basename(frame.filename)}:{frame.lineno}: {text}"


def check() -> bool:
    """Run the self-test on every device; returns whether all of it passed."""
    passed = True
    for index in range(torch.netcl.device_count()):
        device = torch.device("netcl", index)
        print(f"\nself-test of {device}", flush=True)
        with torch.netcl.device(index):
            for name, function in CHECKS.items():
                start = time.perf_counter()
                torch.manual_seed(0)
                try:
                    function(device)
                    verdict = "ok"
                except Exception as error:
                    passed = False
                    verdict = f"FAILED: {_brief(error)}"
                print(f"  {name:<24} {time.perf_counter() - start:6.2f} s  {verdict}", flush=True)
    fallback = torch.netcl.cpu_fallback_ops()
    stats = torch.netcl.kernel_cache_stats()
    print(f"\nkernels compiled: {stats['compiled']}, loaded from disk: {stats['disk_hits']}")
    if fallback:
        passed = False
        print("FAILED: operators that ran on the host: " + ", ".join(sorted(fallback)))
    return passed


# --- the command line ------------------------------------------------------------------------------------


def clear_cache() -> None:
    """Delete the compiled kernels; the next use of each compiles it again."""
    folder = _opencl.cache_dir()
    entries = _cache_entries(folder)
    freed = 0
    for path in entries:
        freed += path.stat().st_size
        path.unlink(missing_ok=True)
    print(f"{len(entries)} kernels ({_size(freed)}) deleted from {folder}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m torch_netcl", description=__doc__)
    parser.add_argument("--check", action="store_true", help="test every device; status 1 on failure")
    parser.add_argument("--clear-cache", action="store_true", help="delete the compiled kernels")
    args = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message=".*fallback.*")  # `check` names these operators itself
    if args.clear_cache:
        clear_cache()
        return 0
    report()
    if torch_netcl.failure:
        return 1
    if not args.check:
        return 0
    if not torch.netcl.is_available():
        print("\nself-test: there is nothing to test", file=sys.stderr)
        return 1
    return 0 if check() else 1


if __name__ == "__main__":
    sys.exit(main())
