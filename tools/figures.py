"""Draws docs/explain.png: ``python tools/figures.py``.

It needs matplotlib, and a device with fp16, or ``NETCL_FP16=storage``.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent


class Block(nn.Sequential):
    """A residual block: a norm, and a layer of four times the width."""

    def __init__(self, width: int) -> None:
        parts = {
            "norm": nn.LayerNorm(width),
            "up": nn.Linear(width, 4 * width),
            "act": nn.GELU(),
            "down": nn.Linear(4 * width, width),
        }
        super().__init__(OrderedDict(parts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x plus the block's output, of the same shape: (batch, width)."""
        return x + super().forward(x)


def explained() -> torch.netcl.amp.Explanation:
    """What autocast to float16 does to a model with one layer whose weights are a million times too large."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), Block(256), Block(256), nn.LayerNorm(256), nn.Linear(256, 10)).to("netcl")
    with torch.no_grad():
        model[2].up.weight.mul_(1e6)
    return torch.netcl.amp.explain(model, torch.randn(128, 64, device="netcl"), dtype=torch.float16)


if __name__ == "__main__":
    report = explained()
    print(report)
    report.plot(ROOT / "docs" / "explain.png")
