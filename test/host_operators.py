"""Writes docs/host_operators.md, the list of operators that have a kernel for the CPU and none for netcl.

``python test/host_operators.py`` takes them from the dispatcher's tables; ``--print`` writes to the standard output.
test_docs.py compares the file with them in a process of its own, since parts of PyTorch register kernels on import.
"""

import re
import sys
from pathlib import Path

import torch

FILE = Path(__file__).parent.parent / "docs" / "host_operators.md"
# Operators of PyTorch's own tests, which no program calls.
INTERNAL = re.compile(r"_test_|_foobar|_make_dep_token")
# Title, description, and pattern of the names; the last group takes the rest.
GROUPS = [
    ("Linear algebra",
     "Eigenvalues of matrices that are not Hermitian, whose algorithm is sequential. On a CPU device `_linalg_svd`,\n"
     "`_linalg_eigh` and QR of matrices above 64 x 64, and LU, Cholesky and solves of those above 32 x 32, run on the\n"
     "host too, where LAPACK is faster and takes the device's memory as it is; with\n"
     "`NETCL_CPU_FALLBACK=error` the device's kernels take them.",
     r"linalg_|_linalg_|geqrf|ormqr|_compute_linear_combination"),
    ("Quantisation",
     "For weights packed for the CPU, and for quantised tensors, which netcl lacks. `torch.quantize_per_tensor` and\n"
     "the like raise, and so are not listed.",
     r".*quant|.*_fq_|_int_mm|_scaled_mm|.*int4pack|.*int8pack"),
    ("Sparse layouts", "Block layouts, and checks of indices.",
     r".*sparse|.*spdiags|sspaddmm|_convert_indices|.*compressed"),
    ("Made for the CPU", "Other operators call them for CPU tensors; nothing does for netcl's.",
     r".*mkldnn|.*for_cpu|_?slow_conv|from_file|_nested_compute"),
    ("Others", "", r""),
]  # fmt: skip


def host_operators() -> dict[str, list[str]]:
    """Overloads by name (without ``aten::``) of operators that only the fallback serves, without a kernel for netcl or
    for every device."""

    def kernels(key: str) -> set[str]:
        names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
        return {n.removeprefix("aten::") for n in names if n.startswith("aten::")}

    found = kernels("CPU") - kernels("PrivateUse1")
    for key in ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"):
        found -= kernels(key)
    operators: dict[str, list[str]] = {}
    for full in sorted(found):
        name, _, overload = full.partition(".")
        if not INTERNAL.match(name):
            operators.setdefault(name, []).append(overload)
    return operators


TEXT = """# Operators that run on the host

`test/host_operators.py` wrote this page from the dispatcher's tables of torch {version}; do not edit. Each of these
operators waits for the device, copies its tensors to the host, runs PyTorch's kernel for the CPU and copies the results
back, with one warning that names it. `torch.netcl.cpu_fallback_ops()` counts the calls, `NETCL_CPU_FALLBACK=error`
forbids them. If overloads are given in brackets, only those run on the host.
"""


def page() -> str:
    """The text of the file."""
    operators = host_operators()
    lines = [TEXT.format(version=torch.__version__.split("+")[0]).rstrip()]
    native = {n.partition(".")[0] for n in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")}
    for title, text, pattern in GROUPS:
        names = [n for n in operators if re.match(pattern, n)]
        if not names:
            continue
        lines += ["", f"## {title} ({len(names)})", ""] + ([text, ""] if text else [])
        for name in names:
            overloads = operators.pop(name)
            partly = f"aten::{name}" in native
            lines.append(f"- `{name}`" + (f" ({', '.join(o or 'the functional form' for o in overloads)})" * partly))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(page(), end="")
    else:
        FILE.write_text(page())
