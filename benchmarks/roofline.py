"""The device's peak rates, measured on the device itself: bytes copied and fused multiply-adds per second."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

import torch_netcl

# Each work-item runs ten chains of multiply-adds: more than an FMA unit's latency times its width.
FMA = """
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
#define START(k) T a##k = (T)(x + k);
#define STEP(k) a##k = fma(a##k, m, c);
#define SUM(k) + a##k
__kernel void peak(__global T *out, float x, int steps) {
  const T m = (T)(x), c = (T)(1 - x);
  EACH(START)
  for (int i = 0; i < steps; i++) { EACH(STEP) }
  out[get_global_id(0)] = 0 EACH(SUM);
}
"""
CHAINS = 10


def fastest(run: Callable[[], object], samples: int = 7) -> float:
    """Seconds of the fastest of several calls."""
    times = []
    for _ in range(samples + 1):  # the first one compiles
        start = time.perf_counter()
        run()
        torch.netcl.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def copy_bandwidth(megabytes: int = 64) -> float:
    """Bytes read and written per second by a copy within the device's memory."""
    source = torch.ones(megabytes << 18, device="netcl")
    target = torch.empty_like(source)
    return 2 * source.nbytes / fastest(lambda: target.copy_(source))


def peak_flops(steps: int = 200_000) -> float:
    """Operations per second of float32 multiply-adds in registers; a multiply-add counts as two."""
    device = torch.netcl.get_device_properties("netcl")
    cpu = device.device_class == "cpu"
    local, best = (1 if cpu else 64), 0.0
    for width in (8, 16) if cpu else (1, 4):
        items = device.max_compute_units * (4 if cpu else 2048)
        out = torch.empty(items * width, device="netcl")
        kernel = torch_netcl.compile_kernel(FMA, "peak", f"-DT=float{width if width > 1 else ''}")
        # With the factors 0.5 and 1 - 0.5, the sums stay near 1 and meet no denormal numbers.
        seconds = fastest(lambda k=kernel, o=out, n=items: k(o, 0.5, steps, global_size=n, local_size=local))
        best = max(best, 2 * CHAINS * steps * out.numel() / seconds)
    return best
