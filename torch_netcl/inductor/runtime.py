"""What generated code calls: kernels compile in threads while the module of a graph is imported."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import torch
from torch._inductor.async_compile import get_compile_threads
from torch._inductor.codecache import CodeCacheFuture


class _Compiling(CodeCacheFuture):
    """A kernel's number, once it is compiled. ``AsyncCompile.wait`` puts the number in its place."""

    def __init__(self, future: Future[int]) -> None:
        self.future = future

    def result(self, timeout: float | None = None) -> int:  # type: ignore[override]
        return self.future.result(timeout)


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="netcl_compile")


def compile(device: int, name: str, shape: int, asserts: bool, messages: list[str], source: str) -> int | _Compiling:
    """Compiles a program for a device, or begins to: Inductor waits for threads only if it has several."""
    count = get_compile_threads()
    arguments = (device, source, name, shape, asserts, messages)
    if count <= 1:
        return torch.ops.netcl.compile_generated(*arguments)
    return _Compiling(_threads(min(count, 8)).submit(torch.ops.netcl.compile_generated, *arguments))
