"""The calls of ATen operators with an out= form, recorded while OpInfo's samples run on the CPU, with their gradients.

``test_outputs.py`` repeats them with outputs of other dtypes and with outputs that share memory with inputs.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from opinfo import arguments, is_tensor, samples, tensors
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

# Their results are random, uninitialised, or the input's storage.
OTHERS = ("empty", "normal", "bernoulli", "multinomial", "rand", "uniform", "resize", "set_", "new_empty", "rrelu")


class Call(NamedTuple):
    """A functional operator with its arguments on the CPU, its results, and its overload with out=."""

    operator: Any
    args: tuple
    kwargs: dict
    results: list[torch.Tensor]
    out: Any
    names: list[str]  # of the outputs


def out_overload(func: Any) -> Any:
    """The overload with the arguments of `func` and outputs besides; None if there is none."""
    packet = func._overloadpacket
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments]
    for name in packet.overloads():
        overload = getattr(packet, name)
        given = [(a.name, str(a.type)) for a in overload._schema.arguments if not a.is_out]
        if given == wanted and len(given) < len(overload._schema.arguments):
            return overload
    return None


class _Recorder(TorchDispatchMode):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.calls: dict[str, list[Call]] = {}
        self.overloads: dict[Any, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self.overloads:
            self.overloads[func] = out_overload(func)
        out = self.overloads[func]
        known = self.calls.setdefault(str(func), [])
        if out is None or len(known) >= self.most or func._schema.name[6:].lstrip("_").startswith(OTHERS):
            return func(*args, **kwargs)
        kept_args, kept_kwargs = _copies((args, kwargs))
        results = func(*args, **kwargs)
        listed = [results] if is_tensor(results) else list(results) if isinstance(results, (tuple, list)) else []
        if listed and all(is_tensor(r) and r.layout == torch.strided and not r.is_nested for r in listed):
            names = [a.name for a in out._schema.arguments if a.is_out]
            if len(names) == len(listed) and any(r.numel() for r in listed):
                detached = [r.detach().clone() for r in listed]
                known.append(Call(func, kept_args, kept_kwargs, detached, out, names))
        return results


def _copies(tree: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda x: x.detach().clone() if is_tensor(x) else x, tree)


def recorded(dtypes: tuple[torch.dtype, ...], most: int) -> Iterator[Call]:
    """Calls of OpInfo's operators in these dtypes, at most `most` per overload."""
    recorder = _Recorder(most)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in op_db:
            if "jiterator" in op.name or op.name.startswith(OTHERS):
                continue
            for dtype in dtypes:
                if dtype not in op.supported_dtypes("cpu"):
                    continue
                with contextlib.suppress(RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError):
                    for sample in samples(op, dtype, 2, dtype.is_floating_point and op.supports_autograd):
                        with recorder:
                            result = op.op(arguments(sample)[0], *sample.args, **sample.kwargs)
                            found = [t for t in tensors(result) if t.requires_grad]
                            inputs = [t for t in tensors(arguments(sample)) if t.requires_grad]
                            if found and inputs:
                                torch.autograd.grad(sum(t.abs().sum() for t in found), inputs, allow_unused=True)
    for calls in recorder.calls.values():
        yield from calls
