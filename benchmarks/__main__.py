"""``python -m benchmarks [WORDS ...]``: times netcl and torch CPU and prints a table.

``python -m benchmarks compile`` compares torch.compile with eager mode (compile.py), ``python -m benchmarks small``
times small steps (small.py), ``python -m benchmarks loops`` training loops with their waits (loops.py),
``python -m benchmarks balance`` tells how launches would share more cores (balance.py) or, with ``--gpu``, which are
too thin for a GPU (thin.py), and ``python -m benchmarks gpu`` is a first look at a GPU (gpu.py).
The device is the first of NETCL_VISIBLE_DEVICES, e.g. ``NETCL_VISIBLE_DEVICES=pocl python -m benchmarks gemm``.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import chain
from pathlib import Path

import torch
from tqdm import tqdm

from . import balance, compile, gpu, loops, operators, report, small, start, training
from .harness import add_options, matching, measure


def main() -> int:
    """Run the command line; returns the exit status."""
    others = {"balance": balance, "compile": compile, "small": small, "loops": loops, "gpu": gpu}
    if sys.argv[1:2] and sys.argv[1] in others:
        return others[sys.argv[1]].main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="cases whose name contains all words of one of these")
    add_options(parser, 7, 50.0)
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="the JSON of an earlier run, to compare with")
    args = parser.parse_args()
    if not torch.netcl.is_available():
        print("no OpenCL device found; see python -m torch_netcl", file=sys.stderr)
        return 1
    cases = list(matching(chain(start.cases(), operators.cases(), training.cases()), args.only))
    if args.list:
        print(*(case.name for case in cases), sep="\n")
        return 0
    if not cases:
        print("no case of that name; see --list", file=sys.stderr)
        return 1
    baseline = None
    if args.baseline:
        baseline = {r["name"]: r["netcl"]["seconds"] for r in json.loads(args.baseline.read_text())["results"]}
    results = []
    for case in (bar := tqdm(cases, disable=None)):
        bar.set_description(case.name)
        results.append(measure(case, args.samples, args.sample_ms / 1e3, compare=not args.no_cpu))
        torch.netcl.empty_cache()
    facts = report.environment()
    page = report.markdown(results, facts, baseline)
    report.write(args, page, facts, results=[r.as_dict() for r in results])
    return 0


if __name__ == "__main__":
    sys.exit(main())
