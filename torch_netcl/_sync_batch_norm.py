"""The operators that nn.SyncBatchNorm calls, between which the processes exchange the statistics of their batches.

They are made of other operators. Statistics are float32 for half and bfloat16, as on CUDA.
"""

from __future__ import annotations

import torch
from torch import Tensor

_library: torch.library.Library | None = None


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.half, torch.bfloat16) else x


def _dims(x: Tensor) -> list[int]:
    return [d for d in range(x.dim()) if d != 1]


def _channels(t: Tensor, x: Tensor) -> Tensor:
    """A value per channel, to be broadcast over x."""
    return t.view([-1 if d == 1 else 1 for d in range(x.dim())])


def batch_norm_stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The mean and 1 / deviation of each channel."""
    var, mean = torch.var_mean(_wide(x), _dims(x), correction=0)
    return mean, (var + eps).rsqrt()


def batch_norm_gather_stats_with_counts(
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """The mean and 1 / deviation of the whole batch from those of the processes, of which `counts` has the sizes."""
    n = counts.to(mean.dtype).view(-1, 1)
    total = n.sum()
    whole = (mean * n).sum(0) / total
    squares = ((invstd.pow(-2) - eps + (mean - whole).square()) * n).sum(0)
    if running_mean is not None:
        running_mean.lerp_(whole.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (total - 1)).to(running_var.dtype), momentum)
    return whole, (squares / total + eps).rsqrt()


def batch_norm_gather_stats(
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    count: int,
) -> tuple[Tensor, Tensor]:
    """The same, of parts of one size."""
    counts = torch.full((mean.size(0),), count, dtype=mean.dtype, device=mean.device)
    return batch_norm_gather_stats_with_counts(x, mean, invstd, running_mean, running_var, momentum, eps, counts)


def batch_norm_elemt(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """The normalised input."""
    scale = invstd if weight is None else invstd * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return torch.addcmul(_channels(shift, x), _wide(x), _channels(scale, x)).to(x.dtype)


def batch_norm_backward_reduce(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor | None, ...]:
    """The sums of dy and of dy (x - mean) over each channel, and the gradients of weight and bias."""
    grad, dims = _wide(grad), _dims(x)
    sum_dy, sum_dy_xmu = grad.sum(dims), (grad * (_wide(x) - _channels(mean, x))).sum(dims)
    dtype = mean.dtype if weight is None else weight.dtype
    return (
        sum_dy if input_g else None,
        sum_dy_xmu if input_g else None,
        (sum_dy_xmu * invstd).to(dtype) if weight_g else None,
        sum_dy.to(dtype) if bias_g else None,
    )


def batch_norm_backward_elemt(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """The gradient of the input, from sums over the whole batch."""
    total = count.sum()
    scale = invstd if weight is None else invstd * weight
    slope = sum_dy_xmu / total * invstd.square()
    centred = torch.addcmul(_wide(grad) - _channels(sum_dy / total, x), _wide(x) - _channels(mean, x),
                            _channels(slope, x), value=-1)  # fmt: skip
    return (centred * _channels(scale, x)).to(x.dtype)


def register() -> None:
    """Register them for netcl."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    for f in (
        batch_norm_stats,
        batch_norm_gather_stats,
        batch_norm_gather_stats_with_counts,
        batch_norm_elemt,
        batch_norm_backward_reduce,
        batch_norm_backward_elemt,
    ):
        _library.impl(f.__name__, f, "PrivateUse1")
