"""The time from the start of a process to the end of the first training step of the demo's CNN; most of it is torch's
import."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from .harness import Case, Run

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
STEP = """
import os
import sys
import torch
device = sys.argv[1]
from digits import DigitNet, loss_fn
model = DigitNet().to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler(device)
x, y = torch.rand(64, 1, 8, 8, device=device), torch.arange(64, device=device) % 10
dtypes = torch.netcl.get_amp_supported_dtype() if device == "netcl" else [torch.bfloat16]
with torch.autocast(device, dtypes[0]):
    loss = loss_fn(model, x, y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
loss.item()
os._exit(0)  # the interpreter's end, of a second with torch._dynamo, is none of the start
"""


def process(device: str, cache: str) -> None:
    """Run the process with this folder for compiled kernels, including the driver's own."""
    folders = {"NETCL_CACHE_DIR": os.path.join(cache, "netcl"), "POCL_CACHE_DIR": os.path.join(cache, "pocl")}
    os.makedirs(folders["POCL_CACHE_DIR"], exist_ok=True)
    environment = {**os.environ, **folders, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path])}
    subprocess.run([sys.executable, "-c", STEP, device], env=environment, check=True)


def start(filled: bool) -> Callable[[str], Run]:
    """A `make` for one such process, whose kernel cache is empty or was filled by another process."""

    def make(device: str) -> Run:
        folder = tempfile.TemporaryDirectory()
        if filled:
            process(device, folder.name)
        return lambda: process(device, folder.name)

    return make


def cases() -> Iterator[Case]:
    """One case with a filled and one with an empty kernel cache."""
    yield Case("start/cold", start(filled=False), cpu=False, once=True)
    yield Case("start/warm", start(filled=True))
