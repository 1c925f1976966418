"""Show where the time of a kernel's first use goes: ``NETCL_VISIBLE_DEVICES=pocl python tools/cold_kernels.py``.

A workload runs once to find its programs. Each is then built anew with pyopencl, step by step: the front end
(clCompileProgram), the driver's own library and optimisation (clLinkProgram), and code generation, which some drivers
leave for clGetProgramInfo(CL_PROGRAM_BINARIES) or the first launch. The driver's own cache is left empty.

    python tools/cold_kernels.py                 # one of each kind of kernel
    python tools/cold_kernels.py --step          # what a training step of examples/digits.py uses
    python tools/cold_kernels.py --json FILE     # all figures, e.g. to compare two trees
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
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
    """Return file, kernel, options and source of each program that `workload` uses."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "examples"), str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", workload + LIST, "netcl"], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return [eval(line) for line in done.stdout.splitlines() if line.startswith("(")]


def timed(call):
    """Return the result of `call` and its time in milliseconds."""
    start = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - start) * 1e3


def device():
    """Return the OpenCL device of netcl:0 as a pyopencl object."""
    import torch  # noqa: F401

    from torch_netcl import interop

    return interop.context("netcl:0").devices[0]


def measure(cl, context, program: tuple[str, str, str, str], number: int) -> dict:
    """Build one program and return the time of each step in milliseconds."""
    file, name, options, source = program
    source += f"\n// {os.getpid()} {number}\n"  # so that no cache holds it
    made = cl.Program(context, source)
    flags = options.split()
    compiled, front = timed(lambda: made.compile(flags))
    linked, link = timed(lambda: cl.link_program(context, [compiled]))
    _, code = timed(lambda: linked.get_info(cl.program_info.BINARIES))
    _, create = timed(lambda: cl.Kernel(linked, name))
    _, whole = timed(
        lambda: cl.Program(context, source + "\n").build(flags, cache_dir=False).get_info(cl.program_info.BINARIES)
    )
    code_lines = [line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("//")]
    return {
        "kernel": f"{file} {name}", "lines": len(code_lines), "front": front, "link": link, "code": code,
        "create": create, "build": whole,
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
    measure(cl, context, found[0], -1)  # the first build includes the driver's start
    print(f"{dev.platform.version}: milliseconds\n\n| kernel | lines | front end | link | code | create | build |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for number, program in enumerate(found):
        r = measure(cl, context, program, number)
        rows.append(r)
        times = " | ".join(f"{r[step]:.0f}" for step in ("front", "link", "code", "create", "build"))
        print(f"| {r['kernel']} {r['variant']} | {r['lines']} | {times} |", flush=True)
    medians = " | ".join(
        f"{statistics.median(r[step] for r in rows):.0f}"
        for step in ("lines", "front", "link", "code", "create", "build")
    )
    print(f"| median of {len(rows)} | {medians} |")
    sums = " | ".join(f"{sum(r[step] for r in rows):.0f}" for step in ("front", "link", "code", "create", "build"))
    print(f"| sum | | {sums} |")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
