"""The Python code that runs a graph: allocations, and launches of generated and of eager kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.wrapper import (
    AllocateLine,
    AssertSizeStrideLine,
    FreeIfNotReusedLine,
    FreeLine,
    KernelCallLine,
    KernelDefinitionLine,
    NullLine,
    PythonWrapperCodegen,
    SubgraphPythonWrapperCodegen,
    WrapperLine,
)
from torch._inductor.utils import IndentedBuffer, LineContext
from torch._inductor.virtualized import V

from ..device import device_count

#: So many launches in turn of a kernel become one.
_FEWEST = 4
_NAMES = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Many:
    """The form of a kernel that takes several sets of buffers: how it is compiled, and which of a set it writes."""

    definition: str
    written: list[int]
    defined: bool = False


@dataclass
class _ManyCalls(WrapperLine):
    """A launch that stands for several of the same kernel."""

    kernel: str
    calls: list[KernelCallLine]

    def codegen(self, code: IndentedBuffer) -> None:
        buffers = ", ".join(b for call in self.calls for b in call.raw_args)
        numbers = self.calls[0].call_args[1]
        code.writeline(f"netcl_launch_many({self.kernel}, [{buffers}], {numbers}, {len(self.calls)})")


class _Run:
    """Launches of one kernel in turn, with what stands between them: assertions, and begins and ends of buffers."""

    BEFORE = (AssertSizeStrideLine, AllocateLine, LineContext, NullLine)
    AFTER = (FreeLine, FreeIfNotReusedLine)

    def __init__(self, first: KernelCallLine, many: dict[str, Many]) -> None:
        self.first, self.all, self.calls = first, [first], [first]
        self.written, self.used = self._names(first, many)

    @staticmethod
    def _names(call: KernelCallLine, many: dict[str, Many]) -> tuple[set[str], set[str]]:
        """The names of what a launch writes, and of all that it uses."""
        used = [set(_NAMES.findall(buffer)) - {"reinterpret_tensor"} for buffer in call.raw_args]
        return set().union(*(used[i] for i in many[call.kernel_name].written)), set().union(*used)

    def takes(self, line: Any, many: dict[str, Many]) -> bool:
        """Whether the line belongs to the run, which then has it."""
        if isinstance(line, KernelCallLine):
            if line.kernel_name != self.first.kernel_name or line.call_args[1] != self.first.call_args[1]:
                return False
            written, used = self._names(line, many)
            if written & self.used or used & self.written:
                return False
            self.calls.append(line)
            self.written |= written
            self.used |= used
        elif not isinstance(line, self.BEFORE + self.AFTER):
            return False
        self.all.append(line)
        return True

    def lines(self, wrapper: OpenCLWrapper) -> list[Any]:
        """One launch if there are several; buffers end behind it."""
        if len(self.calls) < _FEWEST:
            return self.all
        name = self.first.kernel_name
        before = [line for line in self.all if isinstance(line, self.BEFORE)]
        after = [line for line in self.all if isinstance(line, self.AFTER)]
        return [*wrapper.definition_of_many(name), *before, _ManyCalls(f"{name}_many", self.calls), *after]


@dataclass
class _Streams(WrapperLine):
    """Names the streams of a graph: the current one, and those that the compiled function enters."""

    objects: dict[int, int]  # the number of a stream among the objects of the function, by its number in the graph

    def codegen(self, code: IndentedBuffer) -> None:
        code.writeline(f"default_stream = {V.graph.device_ops.current_stream()}")
        for stream, number in self.objects.items():
            code.writeline(f"stream{stream} = get_external_object_by_index({number})")


class OpenCLWrapper(PythonWrapperCodegen):
    """PythonWrapperCodegen, with allocations and launches on netcl devices."""

    def __init__(self, *of_subgraph: Any) -> None:
        self.many: dict[str, Many] = {}  # by the name of the kernel
        self._streams_named = False
        super().__init__(*of_subgraph)

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: str | None, parent_wrapper: Any, partition_signatures: Any = None
    ) -> Any:
        if is_subgraph:
            return _OpenCLSubgraph(subgraph_name, parent_wrapper, partition_signatures)
        return OpenCLWrapper()

    def write_header(self) -> None:
        super().write_header()
        self.imports.writeline("from torch_netcl.inductor import host as netcl_host")
        self.imports.writeline("from torch_netcl.inductor.runtime import compile as netcl_compile")
        # The operator itself: OpOverload costs one more call in Python.
        self.header.writeline("netcl_launch = torch.ops.netcl.launch_generated.default._op")
        self.header.writeline("netcl_launch_many = torch.ops.netcl.launch_generated_many.default._op")
        for i in range(device_count()):
            self.header.writeline(f"netcl_{i} = torch.device('netcl', {i})")

    def codegen_cuda_stream_enter(self, stream_idx: int) -> Any:
        """Enters a stream. Inductor names streams where it enters a device, which it does for its own devices only."""
        if not self._streams_named:
            self._streams_named = True
            self.imports.writeline("from torch._dynamo.graph_bytecode_inputs import get_external_object_by_index")
            self.writeline(_Streams(V.graph.scheduler.stream_idx_to_user_obj_idx))
        return super().codegen_cuda_stream_enter(stream_idx)

    def generate_after_suffix(self, result: IndentedBuffer) -> None:
        super().generate_after_suffix(result)
        if config.triton.cudagraphs:
            result.writeline("from torch_netcl.inductor.recording import Recorded as netcl_recorded")
            result.writeline("call = netcl_recorded(call)")

    def run_wrapper_ir_passes(self, is_inference: bool) -> None:
        super().run_wrapper_ir_passes(is_inference)
        self.lines = self._with_many(self.lines)

    def definition_of_many(self, name: str) -> list[Any]:
        """The definition of a kernel's form for many sets of buffers, the first time."""
        if self.many[name].defined:
            return []
        self.many[name].defined = True
        return [KernelDefinitionLine(self, f"{name}_many", self.many[name].definition, gpu=False)]

    def _with_many(self, lines: list[Any]) -> list[Any]:
        """Launches of a kernel in turn become one, if none of them needs what another writes."""
        result: list[Any] = []
        run: _Run | None = None
        for line in [*lines, None]:
            if run is not None and not run.takes(line, self.many):
                result += run.lines(self)
                run = None
            if run is None and isinstance(line, KernelCallLine) and line.kernel_name in self.many:
                run = _Run(line, self.many)
            elif run is None and line is not None:
                result.append(line)
        return result

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
        line = f"{name} = empty_strided({given}, {strides}, device=netcl_{device.index or 0}, dtype={dtype})"
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

    def generate_after_suffix(self, result: IndentedBuffer) -> None:
        SubgraphPythonWrapperCodegen.generate_after_suffix(self, result)
