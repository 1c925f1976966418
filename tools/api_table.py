"""Prints docs/api.md, which compares torch.netcl with torch.cuda: ``python tools/api_table.py``.

The names are those of ``torch.cuda.__all__``, and others that people use. A name is present with the same meaning,
present with a difference that this file states, or absent for a reason that torch_netcl/_cuda_names.py states, and
that the error of torch.netcl.NAME gives. test_api.py fails if a name is none of these.
"""

from __future__ import annotations

import sys
from collections import Counter

import torch

from torch_netcl._cuda_names import NOT_APPLICABLE, REFUSED

#: Names of torch.cuda that are on no list, but in tutorials and libraries.
UNLISTED = ("_compile_kernel", "_record_memory_history", "_snapshot", "_dump_snapshot")
#: Names that are present, with a difference.
DIFFERENT = {
    "can_device_access_peer": "always False",
    "graph": "of a torch.accelerator.Graph",
    "get_allocator_backend": "always `native`",
    "get_arch_list": "always empty: kernels are compiled at their first use",
    "get_gencode_flags": "always empty",
    "has_magma": "False",
    "ipc_collect": "does nothing: OpenCL shares no memory between processes",
    "is_current_stream_capturing": "whether a torch.accelerator.Graph is being captured on the current device",
    "Event": "a function; `interprocess=True` raises",
    "get_device_capability": "the OpenCL version, (3, 0)",
    "get_device_properties": "OpenCL's properties; `total_memory` and `multi_processor_count` too",
    "is_bf16_supported": "True: bfloat16 is stored, and computed in float32",
    "mem_get_info": "OpenCL tells only the total: free is the total less what this process reserved",
    "set_sync_debug_mode": "`Stream.synchronize()` is not reported, nor small copies to a device, which do not wait",
    "memory_snapshot": "of one device; no history of events",
    "Stream": "priorities have no effect",
}

def rows() -> list[tuple[str, str, str]]:
    """(name, "same", "differs", "refused" or "not applicable", remark) for each name of torch.cuda.

    Raises KeyError for a name that no table lists, and for one that is listed as absent although torch.netcl has it.
    """
    absent = {name: ("refused", why) for why, names in REFUSED.items() for name in names.split()}
    absent |= dict.fromkeys(NOT_APPLICABLE, ("not applicable", ""))
    table = []
    for name in sorted((*torch.cuda.__all__, *UNLISTED), key=str.lower):
        if hasattr(torch.netcl, name):
            if name in absent:
                raise KeyError(f"torch.netcl.{name} is there, but _cuda_names.py says that it is not")
            table.append((name, "differs" if name in DIFFERENT else "same", DIFFERENT.get(name, "")))
        elif name in absent:
            table.append((name, *absent[name]))
        else:
            raise KeyError(f"torch.cuda.{name} is neither in torch.netcl nor in _cuda_names.py")
    return table


def extra() -> list[tuple[str, str]]:
    """(name, first line of its docstring) for what torch.netcl has beyond torch.cuda."""
    known = {*torch.cuda.__all__, "amp", "graphs", "memory", "random", "streams", "annotations"}
    names = sorted(n for n in dir(torch.netcl) if not n.startswith("_") and n not in known)
    return [(n, (getattr(torch.netcl, n).__doc__ or "").strip().splitlines()[0].rstrip(".")) for n in names]


def document() -> str:
    """The text of docs/api.md."""
    table = rows()
    counts = Counter(row[1] for row in table)
    lines = [
        "# torch.netcl beside torch.cuda",
        "",
        f"`python tools/api_table.py` wrote this page for torch {torch.__version__.split('+')[0]}; "
        "`test/test_api.py` checks it.",
        f"Of {len(table)} names of `torch.cuda`, {counts['same']} are present with the same meaning and "
        f"{counts['differs']} with a",
        f"difference. {counts['refused']} are refused: the error gives the reason. "
        f"{counts['not applicable']} are about CUDA itself.",
        "",
        "## Present",
        "",
        "| torch.cuda | Difference |",
        "|---|---|",
        *(f"| `{name}` | {remark} |" for name, kind, remark in table if kind in ("same", "differs")),
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
        "## Refused",
        "",
        "`torch.netcl.NAME` raises AttributeError with the reason, so `hasattr` is False.",
        "",
        "| Why | torch.cuda |",
        "|---|---|",
        *(f"| {why} | {', '.join(f'`{n}`' for n in names.split())} |" for why, names in REFUSED.items()),
        "",
        "## Not applicable",
        "",
        ", ".join(f"`{name}`" for name in NOT_APPLICABLE),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(document())
