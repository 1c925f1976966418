"""Ten programs of the families of operators, forward and backward, and a training step, for tools/test_aarch64.py.

Compares netcl with torch's CPU device, and prints a line for each; the status is 1 if one differs, or if an operator
ran on the host.
"""

from __future__ import annotations

import sys
import time
import warnings

import oclgrind_programs as programs
import torch
import torch.nn.functional as F

EXPRESSIONS = (
    "a.exp() / (1 + b.exp())", "big.sum(1)", "big.softmax(1)", "F.layer_norm(a, (10,), b[0], b[1])", "big @ big.t()",
    "F.conv2d(c, w, padding=1)", "F.max_pool2d(c, 2)", "F.embedding(i, a)", "big.sort(1).values",
    "F.scaled_dot_product_attention(q, q, q)",
)  # fmt: skip


def agree(mine: list[torch.Tensor], right: list[torch.Tensor]) -> None:
    """Raise AssertionError if results in float32 differ.

    The longest sums have 83 products of numbers up to 4, so the order of summation changes them by less than
    83 * 16 * 2^-24 = 8e-5.
    """
    for x, y in zip(mine, right, strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-4, atol=1e-4)


def train(device: str, mixed: bool) -> tuple[list[float], list[torch.Tensor]]:
    """The losses of two steps of a small convolutional net on `device`, and its parameters after them."""
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(8 * 4 * 4, 10))
    x, y = torch.randn(16, 3, 8, 8).to(device), torch.randint(10, (16,)).to(device)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=mixed, init_scale=1024.0)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=mixed):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


def check_training() -> None:
    """Raise AssertionError unless a step under bfloat16 autocast and GradScaler gives about the CPU's in float32."""
    (mine, parameters), (right, expected) = train("netcl", True), train("cpu", False)
    # Each of the four layers rounds inputs and outputs to bfloat16, by at most eps / 2 of numbers near 1.
    tolerance = 4 * torch.finfo(torch.bfloat16).eps
    torch.testing.assert_close(mine, right, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(parameters, expected, rtol=tolerance, atol=tolerance)
    assert mine[1] < mine[0], mine


def main() -> int:
    """Run everything; returns the exit status."""
    warnings.simplefilter("ignore")
    runs = [(e, lambda e=e: agree(programs.results(e, "netcl"), programs.results(e, "cpu"))) for e in EXPRESSIONS]
    runs.append(("LSTM", lambda: agree(programs.rnn("LSTM", "netcl"), programs.rnn("LSTM", "cpu"))))
    runs.append(("training", check_training))
    failed = 0
    for name, run in runs:
        began = time.monotonic()
        torch.manual_seed(0)
        try:
            run()
            verdict = "ok"
        except Exception as error:
            failed, verdict = 1, f"FAILED: {type(error).__name__}: {' '.join(str(error).split())[:600]}"
        print(f"  {name:<42} {time.monotonic() - began:6.1f} s  {verdict}", flush=True)
    if hosted := torch.netcl.cpu_fallback_ops():
        failed = 1
        print(f"  FAILED: on the host ran {', '.join(sorted(hosted))}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
