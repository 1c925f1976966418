"""``mode="reduce-overhead"``: one call of a graph is recorded, and later calls replay its commands (Recording.cpp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._logging import getArtifactLogger

_log = getArtifactLogger(__name__, "perf_hints")
#: So many sets of numbers, such as sizes, are recorded per graph. Calls with others run as without the mode.
_MOST = 16

_begin = torch.ops.netcl.begin_recording.default._op
_end = torch.ops.netcl.end_recording.default._op
_replay = torch.ops.netcl.replay_recording.default._op
_release = torch.ops.netcl.release_recording.default._op


class _Recording:
    """A recorded call: its number, and what it returned where that is no tensor."""

    def __init__(self, call: Callable[[list[Any]], Any], args: list[Any], tensors: list[torch.Tensor]) -> None:
        """Raises if the call cannot be recorded. Nothing has run on the device then."""
        self.number = _begin(tensors)
        try:
            outputs = call(list(args))
            _end(self.number, tensors, [o for o in outputs if isinstance(o, torch.Tensor)])
        except BaseException:
            _release(self.number)
            self.number = 0
            raise
        self.only_tensors = all(isinstance(o, torch.Tensor) for o in outputs)
        self.outputs = [None if isinstance(o, torch.Tensor) else (o,) for o in outputs]

    def __del__(self) -> None:
        if self.number:
            _release(self.number)

    def replay(self, tensors: list[torch.Tensor]) -> tuple[Any, ...] | None:
        """What the call returns for other tensors, or None if these do not fit."""
        fits, results = _replay(self.number, tensors)
        if not fits or self.only_tensors:
            return tuple(results) if fits else None
        each = iter(results)
        return tuple(next(each) if o is None else o[0] for o in self.outputs)


class Recorded:
    """The function ``call`` of a graph, which takes a list of arguments and empties it.

    The first call with each set of numbers runs as always, since it compiles kernels; the second is recorded.
    """

    def __init__(self, call: Callable[[list[Any]], Any]) -> None:
        self.call = call
        self.known: dict[tuple[Any, ...], _Recording | bool] = {}  # True: called once; False: cannot be recorded

    def __call__(self, args: list[Any]) -> Any:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        numbers = tuple(a for a in args if not isinstance(a, torch.Tensor)) if len(tensors) < len(args) else ()
        known = self.known.get(numbers)
        if known is True:
            known = self.known[numbers] = self._recorded(args, tensors)
        elif known is None and len(self.known) < _MOST:
            self.known[numbers] = True
        if isinstance(known, _Recording):
            outputs = known.replay(tensors)
            if outputs is not None:
                args.clear()
                return outputs
        return self.call(args)

    def _recorded(self, args: list[Any], tensors: list[torch.Tensor]) -> _Recording | bool:
        if len(tensors) == 0 or any(t.device.type != "netcl" for t in tensors):
            _log.debug("netcl: a graph is not recorded, since it has inputs on the CPU, or none")
            return False
        try:
            return _Recording(self.call, args, tensors)
        except RuntimeError as error:
            if torch.ops.netcl.is_capturing():  # by a graph of the user's; the next call may be recorded
                return True
            _log.debug("netcl: a graph is not recorded: %s", error)
            return False
