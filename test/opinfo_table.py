"""Writes docs/operators.md from the results of test_opinfo.py: ``opinfo_table.py FOLDER docs/operators.md``."""

from __future__ import annotations

import collections
import json
import re
import sys
from pathlib import Path

from opinfo import DTYPES, KINDS

ORDER = ("native", "fallback", "failing")
ROOT = Path(__file__).parent.parent
# The files of element-wise operators: those of kernels/, then those of csrc/aten/.
ELEMENT_WISE = {
    "one, two or three tensors": (
        "unary.cl binary.cl ternary.cl", "UnaryOps.cpp BinaryOps.cpp Activation.cpp Complex.cpp"),
    "special functions": (
        "special/erf.cl special/gamma.cl special/bessel.cl special/polynomials.cl special/special.h "
        "special/special_tables.h common/scalar_math.h", "SpecialFunctions.cpp"),
}
SHARED = [
    "kernels/common/pointwise.h", "kernels/common/pointwise_body.h",
    "csrc/aten/support/Pointwise.cpp", "csrc/aten/support/Pointwise.h",
]
Results = dict[tuple[str, str], dict[str, dict]]  # (operator, dtype) -> kind of check -> its result


def read(folder: Path) -> dict[str, Results]:
    """The newest result of each check, by runtime."""
    found: dict[str, Results] = {}
    for path in sorted(folder.glob("*.jsonl"), key=lambda p: p.stat().st_mtime):
        results = found.setdefault(path.stem.rsplit("-", 1)[0], {})
        for line in path.read_text().splitlines():
            note = json.loads(line)
            results.setdefault((note["op"], note["dtype"]), {})[note["kind"]] = note
    return found


def verdict(checks: dict[str, dict]) -> str:
    """The worst status of an operator's checks; the check of error inputs counts only if it fails, since it says
    nothing about where the operator ran."""
    kinds = [c["status"] for k, c in checks.items() if k != "errors" or c["status"] == "failing"]
    return max(kinds, key=ORDER.index, default="native")


def checked(results: Results, dtype: str) -> str:
    """The kinds of checks, with the number of operators and of samples per operator."""
    cells = []
    for kind in KINDS:
        notes = [checks[kind] for (_, d), checks in results.items() if d == dtype and kind in checks]
        limit = min((n.get("samples") or KINDS[kind].limit for n in notes), default=0)
        cells += [f"{kind} {len(notes)}" + (f" x {limit}" if kind != "errors" else "")] if notes else []
    return ", ".join(cells)


def counts(results: Results) -> list[str]:
    rows = ["| dtype | operators | native | via fallback | failing | checked |", "|---|---|---|---|---|---|"]
    total: collections.Counter = collections.Counter()
    for dtype in (str(d)[6:] for d in DTYPES):
        count = collections.Counter(verdict(c) for (_, d), c in results.items() if d == dtype)
        total += count
        if count:
            rows.append(f"| {dtype} | {count.total()} | {' | '.join(str(count[s]) for s in ORDER)} | "
                        f"{checked(results, dtype)} |")
    share = (f"{total[s]} ({total[s] / max(total.total(), 1):.1%})" for s in ORDER)
    return rows + [f"| all | {total.total()} | " + " | ".join(share) + " | |"]


def through_fallback(results: Results) -> list[str]:
    used: dict[str, set[str]] = {}
    for (op, _), checks in results.items():
        for check in checks.values():
            for name in check.get("through", ()):
                used.setdefault(name, set()).add(op)
    return [f"| `{name}` | {', '.join(sorted(ops))} |" for name, ops in sorted(used.items())]


def failing(results: Results) -> list[str]:
    rows: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
    for (op, dtype), checks in results.items():
        for kind, check in checks.items():
            if check["status"] == "failing":
                reason = " ".join(check["reason"].split()).replace("|", "\\|")[:160]
                dtypes, kinds = rows.setdefault((op, reason), (set(), set()))
                dtypes.add(dtype)
                kinds.add(kind)
    return [
        f"| {op} | {', '.join(sorted(dtypes))} | {', '.join(sorted(kinds))} | {reason} |"
        for (op, reason), (dtypes, kinds) in sorted(rows.items())
    ]


def code_lines(paths: list[str]) -> int:
    """Lines that are neither empty nor a comment."""
    lines = [line.strip() for path in paths for line in (ROOT / path).read_text().splitlines()]
    return sum(bool(line) and not line.startswith("//") for line in lines)


def costs() -> list[str]:
    """Lines per element-wise operator; each OP_<name> is one operator."""
    rows = ["| element-wise operators | number | lines of OpenCL C | of C++ | lines per operator |",
            "|---|---|---|---|---|"]
    total = [0, 0, 0]
    for name, (kernels, sources) in ELEMENT_WISE.items():
        device, host = ([f"{folder}/{f}" for f in files.split()]
                        for folder, files in (("kernels", kernels), ("csrc/aten", sources)))
        found = {op for path in device for op in re.findall(r"define OP_(\w+)", (ROOT / path).read_text())}
        row = [len(found), code_lines(device), code_lines(host)]
        total = [a + b for a, b in zip(total, row, strict=True)]
        rows.append(f"| {name} | {row[0]} | {row[1]} | {row[2]} | {(row[1] + row[2]) / row[0]:.1f} |")
    shared = code_lines(SHARED)
    return [*rows, f"| all | {total[0]} | {total[1]} | {total[2]} | {(total[1] + total[2]) / total[0]:.1f} |", "",
            "This covers every form (functional, in-place, `out=`) and dtype of an operator. Lines of comments are "
            f"not counted.\nAll of them share {shared} lines that launch them (`csrc/aten/support/Pointwise.cpp`, "
            f"`kernels/common/pointwise_body.h`\nand their headers): {shared / total[0]:.1f} more per operator."]


def document(found: dict[str, Results]) -> str:
    lines = [
        "# Operators",
        "",
        "`test/opinfo_table.py` wrote this page from the results of `test/test_opinfo.py`; do not edit. The tests",
        "compare the operators of PyTorch's OpInfo database with the CPU, for the dtypes that CUDA takes: samples,",
        "non-contiguous inputs (views), error inputs, `out=`, in-place, gradients, double gradients (float32), a",
        "repeated call. The last column lists the checks that ran: kind, number of operators x samples per operator.",
        "",
        "*Native*: all checks pass, and nothing ran on the CPU. *Via fallback*: all checks pass, and a part of the",
        "operator, perhaps only of its gradient, ran on the CPU. *Failing*: a check does not pass.",
        "",
        "`linalg.eig` and `linalg.eigvals`, of matrices that are not Hermitian, stay on the host: their algorithm is",
        "sequential, and LAPACK's is faster. Where the CPU is known to be less exact than netcl, or CUDA has another",
        "dtype, the reference is SciPy's, that of float32, or CUDA's dtype (`test/opinfo.py` lists these cases).",
    ]
    for runtime, results in sorted(found.items()):
        lines += ["", f"## {runtime}", "", *counts(results)]
        lines += ["", f"### What runs on the CPU ({runtime})", "", "| ATen operator | needed by |", "|---|---|"]
        lines += through_fallback(results)
        lines += ["", f"### What fails ({runtime})", "", "| operator | dtypes | checks | reason |", "|---|---|---|---|"]
        lines += failing(results)
    lines += ["", "## What an operator costs", "", *costs()]
    return "\n".join(lines) + "\n"


def main() -> None:
    found = read(Path(sys.argv[1]))
    for runtime, results in sorted(found.items()):
        print(runtime, *counts(results), sep="\n")
    Path(sys.argv[2]).write_text(document(found))


if __name__ == "__main__":
    main()
