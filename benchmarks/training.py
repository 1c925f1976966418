"""Complete training steps, and the work after the backward pass: GradScaler and the optimisers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .harness import Case, Run

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))
from models import GPT, GPTConfig, LSTMClassifier, ResNet18  # noqa: E402

Batch = tuple[Tensor, Tensor]


def mlp() -> tuple[nn.Module, Batch]:
    """784-1024-1024-10 on 256 rows."""
    layers = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    return nn.Sequential(*layers), (torch.randn(256, 784), torch.randint(10, (256,)))


def resnet(side: int) -> tuple[nn.Module, Batch]:
    """ResNet-18 on 8 images."""
    return ResNet18(), (torch.randn(8, 3, side, side), torch.randint(10, (8,)))


def gpt() -> tuple[nn.Module, Batch]:
    """6 layers, width 384, context 256, 4 sequences."""
    config = GPTConfig(context=256, layers=6, heads=6, width=384)
    tokens = torch.randint(256, (4, 257))
    return GPT(config), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def lstm() -> tuple[nn.Module, Batch]:
    """Two LSTM layers of 256 units on 32 sequences of 64 tokens."""
    model = LSTMClassifier(vocabulary=1000, embedding=128, hidden=256, classes=10)
    return model, (torch.randint(1000, (32, 64)), torch.randint(10, (32,)))


MODELS: dict[str, Callable[[], tuple[nn.Module, Batch]]] = {
    "mlp": mlp,
    "resnet18_64": lambda: resnet(64),
    "resnet18_224": lambda: resnet(224),
    "gpt": gpt,
    "lstm": lstm,
}


def training_step(
    build: Callable[[], tuple[nn.Module, Batch]],
    dtype: torch.dtype | None,
    wrap: Callable[[nn.Module], Callable] | None = None,
) -> Callable[[str], Run]:
    """A `make` for forward, backward and AdamW step, under autocast (float16 with GradScaler) if `dtype` is given.
    `wrap` makes what is called of the model."""

    def make(device: str) -> Run:
        torch.manual_seed(0)
        model, batch = build()
        model = model.to(device)
        x, y = (t.to(device) for t in batch)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
        forward = wrap(model) if wrap else model

        def run() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
                scores = forward(x)
                loss = F.cross_entropy(scores.flatten(0, -2), y.flatten())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        return run

    return make


def optimizer_step(kind: type[torch.optim.Optimizer], count: int = 100, size: int = 100_000, **how: bool):
    """A `make` for an optimiser's step over `count` parameters of `size` elements."""

    def make(device: str) -> Run:
        parameters = [torch.randn(size, device=device).requires_grad_() for _ in range(count)]
        for p in parameters:
            p.grad = torch.randn(size, device=device)
        return kind(parameters, lr=1e-3, **how).step

    return make


def unscale(count: int = 100, size: int = 100_000, blame: bool = False) -> Callable[[str], Run]:
    """A `make` for GradScaler's check and unscaling of `count` gradients; with `blame`, as netcl's GradScaler does it.
    """

    def make(device: str) -> Run:
        grads = [torch.randn(size, device=device) for _ in range(count)]
        found, inverse = torch.zeros(1, device=device), torch.ones(1, device=device)
        if not blame:
            return lambda: torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)

        def check() -> None:
            words = torch.zeros(1 + 2 * count, device=device)
            torch.ops.netcl._amp_check_and_unscale_(grads, words[0], inverse, words[1:].view(torch.int32))

        return check

    return make


def cases() -> Iterator[Case]:
    """All cases of this file."""
    n = 100 * 100_000
    yield Case("optimizer/unscale", unscale(), 8 * n)
    yield Case("optimizer/blame", unscale(blame=True), 8 * n, cpu=False)
    for name, how in {
        "loop": {"foreach": False, "fused": False},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
    }.items():
        yield Case(f"optimizer/adamw_{name}", optimizer_step(torch.optim.AdamW, **how), 28 * n)
    yield Case("optimizer/sgd_fused", optimizer_step(torch.optim.SGD, fused=True), 12 * n)
    for name, build in MODELS.items():
        own = training_step(build, None)
        yield Case(f"training/{name}/float32", own, cpu_peak=True)
        # Without 16-bit instructions, torch CPU takes minutes or raises an error (lstm).
        small = name == "mlp"
        yield Case(f"training/{name}/bfloat16", training_step(build, torch.bfloat16), cpu=small, float32=own)
        if torch.float16 in torch.netcl.get_amp_supported_dtype():
            yield Case(f"training/{name}/float16", training_step(build, torch.float16), cpu=small, float32=own)
