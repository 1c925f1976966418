"""Shared by the tests: runs an OpInfo sample on netcl and on the CPU, and compares."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

DEVICE = "netcl"


class Scipy:
    """A module of SciPy. Where that is missing, a test that calls one of its functions is skipped."""

    def __init__(self, name: str) -> None:
        self.name = f"scipy.{name}"

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(importlib.import_module(self.name), name)
        except ImportError:
            return self.skip

    def skip(self, *_: Any, **__: Any) -> None:
        raise unittest.SkipTest("SciPy is missing")


def to_device(tree: Any, device: str | torch.device) -> Any:
    """A copy of the tree on another device (tensors and device arguments); strides and requires_grad are kept."""

    def move(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if x.layout != torch.strided:
                return x.detach().to(device).requires_grad_(x.requires_grad)
            moved = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=device)
            # An expanded tensor cannot be written, but its storage can.
            if x.numel() and 0 in x.stride():
                moved = x.detach().to(device).expand(x.size()) if x.dim() else x.detach().to(device)
            else:
                moved.copy_(x.detach())
            return moved.requires_grad_(x.requires_grad)
        if isinstance(x, torch.device) or x == "cpu":
            return torch.device(device)
        return x

    return tree_map(move, tree)


@contextlib.contextmanager
def no_fallback() -> Iterator[None]:
    """Operators without a netcl kernel raise."""
    before = torch.netcl.get_cpu_fallback_mode()
    torch.netcl.set_cpu_fallback_mode("error")
    try:
        yield
    finally:
        torch.netcl.set_cpu_fallback_mode(before)


def allow_fp16(case: unittest.TestCase) -> None:
    """Autocast takes float16 until the test ends, also on a device without cl_khr_fp16."""
    case.addCleanup(torch.netcl.amp.set_fp16_storage, torch.netcl.amp.get_fp16_storage())
    torch.netcl.amp.set_fp16_storage()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses the warning of each fallback."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check_gpu_shape(case: unittest.TestCase, file: str, names: str, **variables: str) -> None:
    """Run the tests of a file that pytest's -k selects by `names` again, in a process with GPU-shaped kernels and more
    environment variables."""
    if os.environ.get("NETCL_DEVICE_CLASS") == "gpu":
        case.skipTest("this process already has GPU-shaped kernels")
    # -m "": not only the tests that `make test` runs on this runtime.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", "-k", names, file]
    env = {**os.environ, "NETCL_DEVICE_CLASS": "gpu", **variables}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    case.assertEqual(done.returncode, 0, done.stdout[-4000:])
