"""Keeps Dynamo from compiling functions that it would otherwise meet as frames of their own."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType

import torch


def hide_from_dynamo(functions: Iterable[object]) -> None:
    """Makes Dynamo run these functions, and what they call, as they are; other objects are passed over.

    torch.compiler.disable would import Dynamo, which takes seconds.
    """
    frames = torch._C._dynamo.eval_frame
    if not hasattr(frames, "set_code_exec_strategy"):
        return
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for function in functions:
        if isinstance(function, FunctionType):
            frames.set_code_exec_strategy(function.__code__, skip)
