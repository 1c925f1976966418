"""Where the time of a kernel's first use goes: ``NETCL_VISIBLE_DEVICES=pocl python tools/cold_kernels.py``.

A workload runs once to find its programs. Each is then built anew with pyopencl: the front end alone
(clCompileProgram), the whole (clBuildProgram; what it takes beyond the front end is the driver's own library, and on
Intel's runtime all else), and the binary (clGetProgramInfo), for which PoCL generates code and links. The figures are
CPU time.

    python tools/cold_kernels.py                 # one of each kind of kernel
    python tools/cold_kernels.py --step          # what a training step of examples/digits.py uses
    python tools/cold_kernels.py --json FILE     # all figures, e.g. to compare two trees
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = """
import torch
import torch.nn.functional as F
D = "netcl"
x = torch.randn(64, 96, device=D, requires_grad=True)
y = torch.randn(96, 64, device=D)
(x + x.detach().t().contiguous().t()).sigmoid().bfloat16()
x.sum(1), x.sum(0), x.amax(1), x @ y
F.layer_norm(x, [96]).softmax(1).sum().backward()
i = torch.randn(2, 8, 12, 12, device=D, requires_grad=True)
w = torch.randn(8, 8, 3, 3, device=D, requires_grad=True)
F.batch_norm(F.conv2d(i, w, padding=1), None, None, training=True).relu().sum().backward()
F.max_pool2d(i, 2).sum().backward()
x.detach().sort(1), x.detach().cumsum(1), x.detach()[:, [1, 2]]
F.cross_entropy(x, torch.zeros(64, dtype=torch.long, device=D)).backward()
"""
LIST = """
print()
for line in torch.ops.netcl.programs_in_use():
    index, label, options = line.split(chr(9))
    file, name = label.split()
    print(repr((file, name, torch.ops.netcl.kernel_options(0) + options, torch.ops.netcl.kernel_source(file, name))))
"""


def programs(workload: str) -> list[tuple[str, str, str, str]]:
    """File, kernel, options and source of each program that `workload` uses."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "examples"), str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", workload + LIST, "netcl"], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return [eval(line) for line in done.stdout.splitlines() if line.startswith("(")]


def timed(call):
    """The result of `call` and the milliseconds of CPU time that it took, with the linker's: other load counts less."""

    def now():
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    start = now()
    result = call()
    return result, (now() - start) * 1e3


def device():
    """The OpenCL device that is netcl:0, in pyopencl."""
    import torch  # noqa: F401

    from torch_netcl import interop

    return interop.context("netcl:0").devices[0]


def measure(cl, context, program: tuple[str, str, str, str], number: int) -> dict:
    """The steps of one build."""
    file, name, options, source = program
    if "PoCL" in context.devices[0].platform.version and "NETCL_BUILTINS_H" in source:
        options += " -D_OPENCL_H_ -DNETCL_BUILTINS"  # as csrc/runtime/ProgramCache.cpp

    def fresh(step):  # what no cache knows; PoCL's looks at the preprocessed text
        return cl._cl._Program(context, f"{source}\n__constant int unique_{os.getpid()}_{number}_{step} = 0;\n")

    _, front = timed(lambda: fresh("front").compile(options.encode(), context.devices))
    made = fresh("build")
    _, build = timed(lambda: made._build(options.encode(), context.devices))
    _, code = timed(lambda: made.get_info(cl.program_info.BINARIES))
    _, create = timed(lambda: cl._cl.Kernel(made, name))
    code_lines = [line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("//")]
    return {
        "kernel": f"{file} {name}", "lines": len(code_lines), "front": front, "rest": max(0.0, build - front),
        "code": code, "create": create, "all": build + code + create,
        "variant": " ".join(re.findall(r"-D(?:OP|IO|ACC|IN0|OUT0)=\S+", options)),
    }  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", action="store_true", help="the kernels of a training step of examples/digits.py")
    parser.add_argument("--json", help="write all figures to this file")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    workload = KINDS
    if args.step:
        from benchmarks.start import STEP

        workload = STEP.replace("os._exit(0)", "")
    os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp()
    found = programs(workload)
    os.environ["PYOPENCL_NO_CACHE"] = "1"
    dev = device()
    import pyopencl as cl

    context = cl.Context([dev])
    rows = []
    measure(cl, context, found[0], len(found))  # the driver's own start
    print(
        f"{dev.platform.version}: milliseconds\n\n| kernel | lines | front end | rest of build | code | create | all |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for number, program in enumerate(found):
        r = measure(cl, context, program, number)
        rows.append(r)
        times = " | ".join(f"{r[step]:.0f}" for step in ("front", "rest", "code", "create", "all"))
        print(f"| {r['kernel']} {r['variant']} | {r['lines']} | {times} |", flush=True)
    medians = " | ".join(
        f"{statistics.median(r[step] for r in rows):.0f}"
        for step in ("lines", "front", "rest", "code", "create", "all")
    )
    print(f"| median of {len(rows)} | {medians} |")
    sums = " | ".join(f"{sum(r[step] for r in rows):.0f}" for step in ("front", "rest", "code", "create", "all"))
    print(f"| sum | | {sums} |")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
