"""Writes docs/sparse.md: which operators on COO and CSR tensors netcl has of those that PyTorch has for CUDA.

    python test/sparse_table.py
"""

from pathlib import Path

import torch
import torchgen
import yaml

import torch_netcl  # noqa: F401

PAGE = Path(__file__).parent.parent / "docs" / "sparse.md"
FUNCTIONS = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
LAYOUTS = {"COO": ("SparseCUDA", "SparsePrivateUse1"), "CSR and CSC": ("SparseCsrCUDA", "SparseCsrPrivateUse1")}
HEAD = f"""# Sparse tensors

`test/sparse_table.py` wrote this page from the tables of torch {torch.__version__.partition("+")[0]}; do not edit.
Operators that consist of others (`stack`, `matmul`, `torch.sparse.mm`, `torch.sparse.sum` ...) are not listed. A call
that has no kernel raises NotImplementedError with the operator's name. `test/test_sparse_operators.py` compares netcl's
operators, their gradients and OpInfo's samples of sparse tensors with the CPU.

`torch.sparse.mm(csr, dense, reduce)` (`_sparse_mm_reduce_impl`), which CUDA lacks, is there with its gradient. Batches
of sparse matrices in CSR and block layouts are refused, except for conversions on the host. `coalesce`, products of two
sparse matrices, masks and selections wait for the number of elements of their result.
"""


def cuda_operators(key: str) -> list[str]:
    """The operators with a kernel for CUDA's key, as in torch's table of native functions."""
    names = []
    for function in yaml.safe_load(FUNCTIONS.read_text()):
        keys = {k.strip() for entry in function.get("dispatch") or {} for k in entry.split(",")}
        if key in keys:
            names.append(function["func"].partition("(")[0])
    return sorted(names)


def page() -> str:
    """The text of docs/sparse.md."""
    text = HEAD
    for layout, (cuda, netcl) in LAYOUTS.items():
        names = cuda_operators(cuda)
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        here = [name for name in names if has(f"aten::{name}", netcl)]
        lacking = [name for name in names if name not in here]
        text += f"\n## {layout}\n\nOf CUDA's {len(names)} kernels netcl has {len(here)}. Refused ({len(lacking)}):\n\n"
        text += "".join(f"- `{name}`\n" for name in lacking)
        text += "\nThere:\n\n" + "".join(f"- `{name}`\n" for name in here)
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
