"""Train a small convolutional net on scikit-learn's handwritten digits under autocast and GradScaler.

python examples/digits.py                      # on the first OpenCL device
python examples/digits.py --device cpu --csv digits.csv --png digits.png
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import common
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

GOAL = 0.97


class DigitNet(nn.Module):
    """Two convolutions with batch norm, a pooling after each, and two linear layers; 8x8 grey images."""

    def __init__(self, classes: int = 10, width: int = 32, dropout: float = 0.25) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * width * 2 * 2, 64),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(64, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """(N, 1, 8, 8) -> (N, classes)."""
        return self.head(self.features(images))


def load_digits(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, then the held-out fifth."""
    # sklearn.datasets.load_digits() reads this file too, but importing it takes longer than the first training steps.
    package = Path(importlib.util.find_spec("sklearn").origin).parent
    table = torch.from_numpy(np.loadtxt(package / "datasets/data/digits.csv.gz", dtype=np.float32, delimiter=","))
    x = table[:, :-1].reshape(-1, 1, 8, 8) / 16
    y = table[:, -1].long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    held_out = len(x) // 5
    test, train = order[:held_out], order[held_out:]
    return x[train], y[train], x[test], y[test]


def shuffled_batches(x: Tensor, y: Tensor, batch_size: int, seed: int) -> Iterator[common.Batch]:
    """Full batches of one epoch after another, in a new order each time."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for index in torch.randperm(len(x), generator=generator).split(batch_size):
            if len(index) == min(batch_size, len(x)):
                yield x[index], y[index]


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross entropy, in fp32: cross_entropy itself would compute in the dtype of the scores."""
    return F.cross_entropy(model(x).float(), y)


@torch.no_grad()
def accuracy(
    model: nn.Module, x: Tensor, y: Tensor, device: torch.device, amp_dtype: torch.dtype | None
) -> float:
    """Fraction of the images that the model gets right."""
    model.eval()
    with torch.autocast(device.type, dtype=amp_dtype, enabled=amp_dtype is not None):
        scores = model(x.to(device))
    return (scores.argmax(1) == y.to(device)).float().mean().item()


def run(args: argparse.Namespace, on_first_step: Callable[[], None] | None = None) -> common.Result:
    """Train, test and time; shared by ``main`` and the demo."""
    device = common.pick_device(args.device)
    amp_dtype = common.pick_amp_dtype(device, args.amp)
    torch.manual_seed(args.seed)
    x, y, x_test, y_test = load_digits(args.seed)
    model = DigitNet().to(device)
    if args.compile:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    scheduler = common.cosine_with_warmup(optimizer, args.steps, warmup=min(30, args.steps))
    batches = common.to_device(shuffled_batches(x, y, args.batch_size, args.seed), device)

    common.reset_fallback_ops(device)
    start = time.perf_counter()
    log = common.train(
        model,
        batches,
        loss_fn,
        optimizer,
        steps=args.steps,
        device=device,
        amp_dtype=amp_dtype,
        name="digits",
        scheduler=scheduler,
        on_first_step=on_first_step,
    )
    seconds = time.perf_counter() - start
    correct = accuracy(model, x_test, y_test, device, amp_dtype)
    fallback = common.fallback_ops(device)
    speed = common.compare_speed(model, next(batches), loss_fn, device, amp_dtype)
    return common.Result(
        "digits", "held-out accuracy", correct, correct >= GOAL, amp_dtype, log, seconds, speed, fallback
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common.add_arguments(result, steps=400, batch_size=64, lr=4e-3)
    return result


def main() -> None:
    """Run from the command line."""
    args = parser().parse_args()
    common.finish(run(args), common.pick_device(args.device), args)


if __name__ == "__main__":
    main()
