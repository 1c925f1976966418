"""The Python code that runs a graph: allocations, and launches of generated and of eager kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.virtualized import V


class OpenCLWrapper(PythonWrapperCodegen):
    """PythonWrapperCodegen, with allocations and launches on netcl devices."""

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: str | None, parent_wrapper: Any, partition_signatures: Any = None
    ) -> Any:
        if is_subgraph:
            return _OpenCLSubgraph(subgraph_name, parent_wrapper, partition_signatures)
        return OpenCLWrapper()

    def write_header(self) -> None:
        super().write_header()
        self.imports.writeline("from torch_netcl.inductor.runtime import compile as netcl_compile")
        self.header.writeline("netcl_launch = torch.ops.netcl.launch_generated.default")

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Any, *, device: Any = None, triton: bool = True, **more: Any
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if device.type != "netcl":
            super()._generate_kernel_call_helper(kernel_name, call_args, device=device, triton=triton, **more)
            return
        self.writeline(f"netcl_launch({kernel_name}, {', '.join(call_args)})")

    def make_allocation(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        shape: Any,
        stride: Any,
        allocation_shape: Any = None,
        is_pinned: bool = False,
    ) -> str:
        if device.type != "netcl":
            return super().make_allocation(name, device, dtype, shape, stride, allocation_shape, is_pinned)
        sizes, strides = self.codegen_python_shape_tuple(shape), self.codegen_python_shape_tuple(stride)
        given = self.codegen_python_shape_tuple(shape if allocation_shape is None else allocation_shape)
        line = f"{name} = empty_strided({given}, {strides}, device='netcl:{device.index or 0}', dtype={dtype})"
        return line if sizes == given else f"{line}.as_strided({sizes}, {strides})"


class NoCppWrapper(PythonWrapperCodegen):
    """What Inductor gets where it asks for a wrapper in C++."""

    @staticmethod
    def create(*args: Any) -> Any:
        """Raises."""
        raise NotImplementedError(
            "netcl: Inductor's C++ wrappers know no OpenCL, so there is no cpp_wrapper and no AOTInductor; "
            "torch._inductor.config.cpp_wrapper = False compiles to Python"
        )


class _OpenCLSubgraph(OpenCLWrapper, SubgraphPythonWrapperCodegen):
    def write_header(self) -> None:
        SubgraphPythonWrapperCodegen.write_header(self)
