"""Norms of gradients that do not overflow, clipping to a norm, and the check for Inf and NaN."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

__all__ = ["check_max_norm", "clip_global_l2_norm", "clip_to", "global_l2_norm", "grads_of", "has_non_finite_grad"]


def grads_of(params: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of the parameters that have one."""
    return [p.grad for p in params if p.grad is not None]


def check_max_norm(max_norm: float) -> float:
    """``max_norm`` as a float. Raises TypeError or ValueError for an invalid norm."""
    if isinstance(max_norm, bool) or not isinstance(max_norm, (int, float)):
        raise TypeError(f"max_norm must be a number, not {max_norm!r}")
    if not max_norm >= 0:
        raise ValueError(f"max_norm must be 0 or more, or inf for no clipping, not {max_norm!r}")
    return float(max_norm)


def _has_double(device: torch.device) -> bool:
    return device.type != "netcl" or torch.netcl.get_device_properties(device).has_fp64


@torch.no_grad()
def global_l2_norm(grads: list[Tensor]) -> Tensor:
    """The L2 norm of all elements of ``grads`` together: a 0-dim float32 on the device of the first.

    Squares are added in float64; if the device has none, elements are first divided by the largest one. So the norm
    is Inf only if float32 cannot hold it, or an element is Inf. It does not wait for the device. Without gradients,
    it is 0.
    """
    if not grads:
        return torch.tensor(0.0)
    device = grads[0].device
    by_kind: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for grad in grads:
        grad = grad._values() if grad.is_sparse else grad
        if grad.numel():
            by_kind.setdefault((grad.device, grad.dtype), []).append(grad)
    if not by_kind:
        return torch.zeros((), device=device)
    if all(_has_double(where) for where, _ in by_kind):
        norms = [n for same in by_kind.values() for n in torch._foreach_norm(same, 2, dtype=torch.float64)]
        return torch.linalg.vector_norm(torch.stack([n.to(device) for n in norms])).float()
    tops = [n.to(device).float() for same in by_kind.values() for n in torch._foreach_norm(same, math.inf)]
    top = torch.stack(tops).max()
    unit = torch.where((top > 0) & top.isfinite(), top, 1.0)
    shares = [torch.linalg.vector_norm(g.float() / unit.to(g.device)) for same in by_kind.values() for g in same]
    return torch.linalg.vector_norm(torch.stack([s.to(device) for s in shares])) * unit


def clip_to(params: list[Tensor], norm: Tensor, max_norm: float) -> Tensor:
    """Clips to ``max_norm``, given the norm; returns the norm after clipping."""
    if max_norm == math.inf:
        return norm
    nn.utils.clip_grads_with_norm_(params, max_norm, norm)
    return norm * torch.clamp(max_norm / (norm + 1e-6), max=1.0)  # the factor of clip_grads_with_norm_


def clip_global_l2_norm(params: Iterable[Tensor], max_norm: float) -> tuple[Tensor, Tensor]:
    """Multiplies the gradients of ``params`` by one factor, so that their common L2 norm is at most ``max_norm``.

    Args:
        params: parameters; those without a gradient do not count.
        max_norm: the largest norm allowed, 0 or more; with ``inf``, the norm is only measured.

    Returns:
        The norm before and after clipping, as 0-dim tensors on the device; there is no wait. ``torch.nn.utils`` does
        the clipping, so if gradients were clipped, the second norm is about 1e-6 of ``max_norm`` below ``max_norm``.
    """
    params = list(params)
    pre = global_l2_norm(grads_of(params))
    return pre, clip_to(params, pre, check_max_norm(max_norm))


def has_non_finite_grad(params: Iterable[Tensor]) -> bool:
    """Whether a gradient of ``params`` holds an Inf or NaN: one reduction and one host read per device.

    Unlike a check of the norm, this accepts finite gradients whose sum of squares is not finite.
    """
    by_device: dict[torch.device, list[Tensor]] = {}
    for grad in grads_of(params):
        by_device.setdefault(grad.device, []).append(grad._values() if grad.is_sparse else grad)
    flags = []
    for device, grads in by_device.items():
        flag = torch.zeros((), device=device)
        # This is GradScaler's own check, with a factor that changes nothing.
        torch._amp_foreach_non_finite_check_and_unscale_(grads, flag, torch.ones((), device=device))
        flags.append(flag)
    return any(bool(flag.item()) for flag in flags)
