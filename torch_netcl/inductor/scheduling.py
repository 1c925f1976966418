"""Which nodes share a kernel, and how kernels are named."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch._inductor import config
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from .kernel import OpenCLKernel
from .wrapper import Many

#: PoCL makes files of kernels' names.
_LONGEST_NAME = 95
#: Of a kernel on a GPU. Each is 16 bytes of arguments, of which AMD's driver promises 1,024; Intel's takes 2,048.
_MOST_BUFFERS = 56


class OpenCLScheduling(SIMDScheduling):
    """Fusion is SIMDScheduling's, up to a number of buffers; kernels have one dimension of elements, and one that is
    reduced."""

    kernel_type = OpenCLKernel  # type: ignore[assignment]

    @classmethod
    def get_backend_features(cls, device: torch.device) -> OrderedSet[BackendFeature]:
        return OrderedSet([BackendFeature.INPLACE_BUFFERS, BackendFeature.MASKED_SCATTER_WITH_INDEX])

    @classmethod
    def get_tiling_and_scores(
        cls, node_schedule: Any, numel: Any, reduction_numel: Any = sympy.S.One, coalesce_analysis: Any = None
    ) -> Any:
        return cls.create_tiling([numel], [reduction_numel]), None

    def can_fuse(self, node1: Any, node2: Any) -> bool:
        names = {access.name for node in (node1, node2) for access in node.read_writes.reads_and_writes()}
        if len(names) > _MOST_BUFFERS:
            if torch.netcl.get_device_properties(node1.get_device()).device_class == "gpu":
                return False
        return super().can_fuse(node1, node2)

    can_fuse_vertical = can_fuse_horizontal = can_fuse

    def define_kernel(self, src_code: str, node_schedule: Any, kernel: Any) -> str:
        wrapper = V.graph.wrapper_code
        key = f"{src_code}{kernel.messages}"
        if key in wrapper.src_to_kernel:
            known = wrapper.src_to_kernel[key]
            if kernel.takes_many() and known not in wrapper.many:
                symbol = f"{known[: known.rindex('_')]}_many"
                with V.set_kernel_handler(kernel):
                    source = kernel.codegen_kernel(many=True).replace("KERNEL_NAME", symbol)
                call = f"netcl_compile({self._device()}, {symbol!r}, {kernel.shape}, False, [], '''\n{source}''')"
                wrapper.many[known] = Many(call, kernel.writes())
            return known
        described = config.triton.descriptive_names
        fused = get_fused_kernel_name(node_schedule, described) if described else "fused"
        symbol = f"compiled_{fused}"[:_LONGEST_NAME]
        name = f"{symbol}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[key] = name
        source = src_code.replace("KERNEL_NAME", symbol)
        facts = f"{self._device()}, {symbol!r}, {kernel.shape}, {kernel.asserts}, {kernel.messages}"
        call = f"netcl_compile({facts}, '''\n{source}''')"
        origins, details = get_kernel_metadata(node_schedule, wrapper)
        wrapper.define_kernel(name, call, f"{origins}\n{details}", gpu=False)
        return name

    @staticmethod
    def _device() -> int:
        return V.graph.get_current_device_or_throw().index or 0

    def codegen_combo_kernel(self, combo_kernel_node: Any) -> None:
        """One kernel each: config.combo_kernels is about the cost of a launch on CUDA."""
        # What the whole node uses last is freed behind its last kernel.
        last_uses, self.scheduler.buffer_names_to_free = self.scheduler.buffer_names_to_free, OrderedSet()
        for node in combo_kernel_node.get_subkernel_nodes():
            self.codegen_node(node)
        self.scheduler.buffer_names_to_free.update(last_uses)

    def codegen_sync(self) -> None:
        pass
