"""The names of torch.cuda that torch.netcl lacks, and why; the error of ``torch.netcl.NAME`` says so.

tools/api_table.py makes docs/api.md from them, and test/test_api.py checks that no name is forgotten.
"""

from __future__ import annotations

_LEGACY = 'legacy types: use torch.empty(..., device="netcl"), torch.UntypedStorage'
_GRAPHS = "torch.accelerator.Graph captures and replays work, and its debug_dump() lists the commands"
_SENSORS = "OpenCL has no such query; the vendor's tool tells"
_POOLS = "the allocator cannot be replaced or divided"
_HOST = "the cache of pinned memory keeps no statistics; torch.accelerator.memory.empty_host_cache() empties it"
_HANDLES = "torch_netcl.interop exchanges contexts, queues and memory with pyopencl"

#: Names that mean something on every device, by the reason for which netcl lacks them.
REFUSED = {
    _LEGACY: "BFloat16Storage BFloat16Tensor BoolStorage BoolTensor ByteStorage ByteTensor CharStorage CharTensor "
    "ComplexDoubleStorage ComplexFloatStorage DoubleStorage DoubleTensor FloatStorage FloatTensor HalfStorage "
    "HalfTensor IntStorage IntTensor LongStorage LongTensor ShortStorage ShortTensor",
    _GRAPHS: "CUDAGraph export_dot export_graph_data graph_annotations",
    _SENSORS: "clock_rate device_memory_used list_gpu_processes memory_usage power_draw temperature utilization",
    _POOLS: "CUDAPluggableAllocator MemPool change_current_allocator use_mem_pool caching_allocator_alloc "
    "caching_allocator_delete caching_allocator_disabled caching_allocator_enable",
    _HOST: "host_memory_stats host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats "
    "reset_peak_host_memory_stats",
    _HANDLES: "ExternalStream get_stream_from_external current_blas_handle current_solver_handle",
    "torch.netcl.compile_kernel compiles OpenCL C": "jiterator _compile_kernel",
    "torch.netcl.memory_snapshot() gives the present state; no history is kept": "_record_memory_history _snapshot "
    "_dump_snapshot",
    "torch.profiler records kernels (docs/profiling.md)": "nvtx profiler",
    "python -m torch_netcl.tune chooses the sizes of kernels": "tunable",
}

#: Names of CUDA's own libraries, errors and hardware.
NOT_APPLICABLE = (
    "CudaError DeferredCudaCallError GreenContext check_error cudaStatus cudart is_tf32_supported nccl sparse".split()
)

_WHY = {name: why for why, names in REFUSED.items() for name in names.split()}
_WHY |= dict.fromkeys(NOT_APPLICABLE, "it is about CUDA itself")


def why_absent(name: str) -> str:
    """The end of the message of an AttributeError; "" for names that torch.cuda lacks as well."""
    return f": {_WHY[name]}" if name in _WHY else ""
