"""Numbers of generated code that depend on sizes and constants only: Python computes them when a kernel is launched.

So a kernel gets 0.999 ** step as a number, and needs no doubles for it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import torch


def _ieee(function: Callable[..., float], of_tensors: Callable[..., torch.Tensor]) -> Callable[..., float]:
    """A function that gives infinities and NaN where Python's raises."""

    def call(*numbers: float) -> float:
        try:
            return function(*numbers)
        except (ArithmeticError, ValueError):
            return of_tensors(*(torch.tensor(n, dtype=torch.float64) for n in numbers)).item()

    return call


#: By the names of Inductor's operators.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "abs": abs,
    "truediv": _ieee(lambda a, b: a / b, torch.true_divide),
    "pow": _ieee(math.pow, torch.pow),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "where": lambda condition, a, b: a if condition else b,
    **{
        name: _ieee(getattr(math, name), getattr(torch, name))
        for name in "sqrt exp expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh".split()
    },
}


def float32(x: float) -> float:
    """The number rounded to float32."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def bits32(x: float) -> int:
    """The bits of the number in float32: launches take integers."""
    return struct.unpack("<i", struct.pack("<f", float32(x)))[0]


def bits64(x: float) -> int:
    """The bits of the number."""
    return struct.unpack("<q", struct.pack("<d", x))[0]


def __getattr__(name: str) -> Callable[..., Any]:
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AttributeError(name) from None
