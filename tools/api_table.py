"""Prints docs/api.md, which compares torch.netcl with torch.cuda: ``python tools/api_table.py``.

The names are those of ``torch.cuda.__all__``. A name is present with the same meaning, present with a difference that
this file states, or absent for a reason that this file states. test_api.py fails if a name is none of these.
"""

from __future__ import annotations

import sys

import torch

#: Names that are present, with a difference.
DIFFERENT = {
    "can_device_access_peer": "always False",
    "Event": "a function; `interprocess=True` raises",
    "get_device_capability": "the OpenCL version, (3, 0)",
    "get_device_properties": "OpenCL's properties; `total_memory` and `multi_processor_count` too",
    "is_bf16_supported": "True: bfloat16 is stored, and computed in float32",
    "mem_get_info": "OpenCL tells only the total: free is the total less what this process reserved",
    "memory_snapshot": "of one device; no history of events",
    "Stream": "priorities have no effect",
}

_LEGACY = "legacy: `torch.empty(..., device=\"netcl\")`, `torch.UntypedStorage`"
_GRAPHS = "OpenCL 1.2 cannot record commands"
_NVML = "OpenCL has no such query; the vendor's tool tells"
_CUDA = "about CUDA's own libraries or compiler"
_POOLS = "the allocator cannot be replaced or divided"
_DEPRECATED = "deprecated in torch.cuda"
_HOST = "pinned memory is not cached, so there is nothing to count"

#: Names that are deliberately absent, by the reason.
ABSENT = {
    _LEGACY: "BFloat16Storage BFloat16Tensor BoolStorage BoolTensor ByteStorage ByteTensor CharStorage CharTensor "
    "ComplexDoubleStorage ComplexFloatStorage DoubleStorage DoubleTensor FloatStorage FloatTensor HalfStorage "
    "HalfTensor IntStorage IntTensor LongStorage LongTensor ShortStorage ShortTensor has_half",
    _GRAPHS: "CUDAGraph graph graph_pool_handle graphs is_current_stream_capturing make_graphed_callables",
    _NVML: "clock_rate device_memory_used list_gpu_processes memory_usage power_draw temperature utilization",
    _CUDA: "CudaError DeferredCudaCallError GreenContext check_error cudaStatus cudart current_blas_handle "
    "current_solver_handle get_arch_list get_gencode_flags has_magma is_tf32_supported nccl nvtx profiler "
    "sparse tunable",
    _POOLS: "CUDAPluggableAllocator MemPool change_current_allocator get_allocator_backend use_mem_pool "
    "caching_allocator_alloc caching_allocator_delete caching_allocator_disabled caching_allocator_enable",
    _DEPRECATED: "max_memory_cached memory_cached reset_max_memory_allocated reset_max_memory_cached",
    _HOST: "host_memory_stats host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats "
    "reset_peak_host_memory_stats",
    "`torch_netcl.interop` exchanges queues with pyopencl": "ExternalStream get_stream_from_external",
    "`torch_netcl.compile_kernel` compiles kernels of one's own": "jiterator",
    "OpenCL shares no memory between processes": "ipc_collect",
    "`host_sync_count()` counts the waits": "get_sync_debug_mode set_sync_debug_mode",
}


def rows() -> list[tuple[str, str, str]]:
    """(name, "same", "differs" or "absent", remark) for each name of torch.cuda. Raises KeyError for a name that this
    file does not list, and for a name that it lists as absent although torch.netcl has it."""
    absent = {name: why for why, names in ABSENT.items() for name in names.split()}
    table = []
    for name in sorted(torch.cuda.__all__, key=str.lower):
        if hasattr(torch.netcl, name):
            if name in absent:
                raise KeyError(f"torch.netcl.{name} is there, but api_table.py says that it is not")
            table.append((name, "differs" if name in DIFFERENT else "same", DIFFERENT.get(name, "")))
        elif name in absent:
            table.append((name, "absent", absent[name]))
        else:
            raise KeyError(f"torch.cuda.{name} is neither in torch.netcl nor in api_table.py")
    return table


def extra() -> list[tuple[str, str]]:
    """(name, first line of its docstring) for what torch.netcl has beyond torch.cuda."""
    known = {*torch.cuda.__all__, "amp", "memory", "random", "streams", "annotations"}
    names = sorted(n for n in dir(torch.netcl) if not n.startswith("_") and n not in known)
    return [(n, (getattr(torch.netcl, n).__doc__ or "").strip().splitlines()[0].rstrip(".")) for n in names]


def document() -> str:
    """The text of docs/api.md."""
    table = rows()
    counts = {kind: sum(row[1] == kind for row in table) for kind in ("same", "differs", "absent")}
    lines = [
        "# torch.netcl beside torch.cuda",
        "",
        f"`python tools/api_table.py` wrote this page for torch {torch.__version__.split('+')[0]}; "
        "`test/test_api.py` checks it.",
        f"Of the {len(table)} names in `torch.cuda.__all__`, {counts['same']} are present with the same meaning and "
        f"{counts['differs']} with a",
        f"difference; {counts['absent']} are deliberately absent.",
        "",
        "## Present",
        "",
        "| torch.cuda | Difference |",
        "|---|---|",
        *(f"| `{name}` | {remark} |" for name, kind, remark in table if kind != "absent"),
        "",
        "These work as well: `torch.accelerator`, `torch.Stream`, `torch.Event`, `tensor.netcl()`,",
        "`tensor.is_netcl`, `module.netcl()`, `storage.netcl()`, `tensor.record_stream()`, `tensor.pin_memory()`,",
        "`torch.random.fork_rng(device_type=\"netcl\")`, `torch.use_deterministic_algorithms()`.",
        "",
        "## Only in torch.netcl",
        "",
        "| torch.netcl | |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in extra()),
        "",
        "## Absent",
        "",
        "| Why | torch.cuda |",
        "|---|---|",
        *(f"| {why} | {', '.join(f'`{n}`' for n in names.split())} |" for why, names in ABSENT.items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(document())
