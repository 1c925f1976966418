"""``torch.distributed`` for netcl tensors: the backend "netcl_gloo", which passes them through host memory to gloo.

OpenCL cannot send device memory to another process. So every collective copies to the host, lets gloo do the work,
and copies back. It suits CPU devices, several small GPUs, and tests. Importing torch_netcl registers it::

    torch.distributed.init_process_group("netcl_gloo")  # for CPU and netcl tensors
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from ._hidden_frames import hide_from_dynamo

__all__ = ["BACKEND", "StagedProcessGroup", "register"]

BACKEND = "netcl_gloo"


def register() -> None:
    """Register the backend with torch.distributed, as the default one for netcl tensors."""
    if dist.is_available() and dist.is_gloo_available():
        dist.Backend.register_backend(BACKEND, StagedProcessGroup, devices=["cpu", "netcl"])


def _map(tree: Any, f: Callable[[torch.Tensor], Any]) -> Any:
    """Apply `f` to the tensors of `tree`, which consists of lists within lists."""
    return [_map(t, f) for t in tree] if isinstance(tree, (list, tuple)) else f(tree)


def _leaves(tree: Any) -> list[torch.Tensor]:
    return [t for part in tree for t in _leaves(part)] if isinstance(tree, (list, tuple)) else [tree]


class _StagedWork(Work):
    """Gloo's work, followed by the copies back to the devices."""

    def __init__(self, work: Work, results: list[torch.Tensor], finish: Callable[[], None]) -> None:
        super().__init__()
        self._work = work
        devices = {t.device for t in results}
        self._future: torch.futures.Future = torch.futures.Future(devices=list(devices))
        # The copies must run after the present work of the caller's streams, and before its later work.
        streams = {d: torch.accelerator.current_stream(d) for d in devices}

        def done(check: Callable[[], Any]) -> None:
            try:
                check()
                previous = {d: torch.accelerator.current_stream(d) for d in devices}
                try:
                    for stream in streams.values():
                        torch.accelerator.set_stream(stream)
                    finish()
                    self._future.set_result(results)
                finally:
                    for stream in previous.values():
                        torch.accelerator.set_stream(stream)
            except Exception as e:
                self._future.set_exception(e)

        self._done: Callable[[Callable[[], Any]], None] | None = done
        try:
            future = work.get_future()
        except RuntimeError:  # gloo has none for some (send, recv, reduce_scatter): then wait() does it
            return
        self._done = None
        future.add_done_callback(lambda f: done(f.value))

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return when the results are complete; raises the error if the work failed."""

        def wait() -> None:
            self._work.wait(timeout) if timeout else self._work.wait()

        if self._done is None:
            wait()
        else:
            done, self._done = self._done, None
            done(wait)
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future:
        """A future of the list of results. After send, recv and reduce_scatter, only wait() completes it."""
        return self._future

    def is_completed(self) -> bool:
        """Whether the results are complete."""
        return self._future.done()


class StagedProcessGroup(dist.ProcessGroup):
    """A process group that passes CPU tensors to gloo directly, and netcl tensors through the host.

    Collectives of netcl tensors support what gloo supports, and ReduceOp.AVG. A copy to the host waits for the
    device.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        gloo._set_sequence_number_for_group()
        self._gloo = dist.ProcessGroup(store, rank, size)
        self._gloo._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        self._gloo._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)

    def getBackendName(self) -> str:  # noqa: N802
        """The name under which it is registered."""
        return BACKEND

    def _staged(self, method: str, out: Any, given: Any, *args: Any) -> Work:
        """Call gloo's `method` with `out` (written), `given` (read; None if `out` is read too) and `args`."""
        tensors = _leaves(out) + ([] if given is None else _leaves(given))
        collective = getattr(self._gloo, method)
        if all(t.device.type == "cpu" for t in tensors):
            return collective(out, *args) if given is None else collective(out, given, *args)

        def fetch(t: torch.Tensor) -> torch.Tensor:
            return t.detach().to("cpu", memory_format=torch.contiguous_format)

        def room(t: torch.Tensor) -> torch.Tensor:
            return torch.empty(t.shape, dtype=t.dtype)

        average = args[0] if args and getattr(args[0], "reduceOp", None) == dist.ReduceOp.AVG else None
        if average is not None:  # gloo cannot
            average.reduceOp = dist.ReduceOp.SUM
        host = _map(out, fetch if given is None else room)
        sent = [] if given is None else [_map(given, fetch)]
        work = collective(host, *sent, *args)

        def finish() -> None:
            for to, got in zip(_leaves(out), _leaves(host), strict=True):
                if average is not None:
                    got.div_(self.size()) if got.is_floating_point() else got.floor_divide_(self.size())
                to.detach().copy_(got)

        return _StagedWork(work, _leaves(out), finish)

    # --- one tensor each, in place

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """See torch.distributed.broadcast."""
        return self._staged("broadcast", tensors, None, opts)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """See torch.distributed.all_reduce."""
        return self._staged("allreduce", tensors, None, opts)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """See torch.distributed.all_reduce_coalesced."""
        return self._staged("allreduce_coalesced", tensors, None, opts)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """See torch.distributed.reduce."""
        return self._staged("reduce", tensors, None, opts)

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int) -> Work:
        """See torch.distributed.send."""
        return self._staged("send", tensors, None, dst, tag)

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int) -> Work:
        """See torch.distributed.recv."""
        return self._staged("recv", tensors, None, src, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        """See torch.distributed.recv without a source."""
        return self._staged("recv_anysource", tensors, None, tag)

    # --- from inputs to outputs

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work:
        """See torch.distributed.all_gather."""
        return self._staged("allgather", outputs, inputs, opts)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> Work:
        """See torch.distributed.all_gather_into_tensor."""
        # gloo cuts the output along its first dimension, which need not be the number of processes (SyncBatchNorm).
        return self._staged("all_gather_single", output.view(-1), given.reshape(-1), opts)

    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> Work:
        """All_gather_into_tensor for several tensors."""
        return self._staged("all_gather_single_coalesced", outputs, inputs, opts)

    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work:
        """See torch.distributed.all_gather_coalesced."""
        return self._staged("allgather_coalesced", outputs, inputs, opts)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work:
        """See torch.distributed.gather."""
        return self._staged("gather", outputs, inputs, opts)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Work:
        """See torch.distributed.scatter."""
        return self._staged("scatter", outputs, inputs, opts)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Work:
        """See torch.distributed.reduce_scatter."""
        return self._staged("reduce_scatter", outputs, inputs, opts)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> Work:
        """See torch.distributed.reduce_scatter_tensor."""
        return self._staged("reduce_scatter_single", output, given, opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        """Reduce_scatter_tensor for several tensors."""
        return self._staged("reduce_scatter_single_coalesced", outputs, inputs, opts)

    def all_to_all_single(
        self, output: torch.Tensor, given: torch.Tensor, out_sizes: list[int], in_sizes: list[int], opts: Any
    ) -> Work:
        """See torch.distributed.all_to_all_single."""
        return self._staged("all_to_all_single", output, given, out_sizes, in_sizes, opts)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> Work:
        """See torch.distributed.all_to_all."""
        return self._staged("alltoall", outputs, inputs, opts)

    def barrier(self, opts: Any = None) -> Work:
        """See torch.distributed.barrier; also waits for this process's netcl devices."""
        if torch.netcl.is_available():
            torch.netcl.synchronize()
        opts = opts or dist.BarrierOptions()
        opts.device = torch.device("cpu")
        return self._gloo.barrier(opts)

    # Names of older releases of PyTorch, which some libraries still call.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


# C++ calls these methods while a compiled model runs, and Dynamo cannot look into process groups.
hide_from_dynamo((*vars(StagedProcessGroup).values(), *vars(_StagedWork).values()))
