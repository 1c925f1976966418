"""Fill the kernel cache before a program runs, e.g. while a container is built.

::

    python -m torch_netcl.warmup record kernels.json train.py --epochs 1     # runs the program and notes its kernels
    python -m torch_netcl.warmup record kernels.json -m package.train        # the same for a module
    python -m torch_netcl.warmup replay kernels.json                         # compiles them, with all cores

A list holds names and options of kernels, and the text of those that ``torch.compile`` or the program itself made. It
holds no binaries, so it serves all devices and drivers of the same class (CPU or GPU). An entry of the cache serves
only one device and driver.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

_FORMAT = "torch_netcl kernels 1"


def kernels_in_use() -> list[list[str]]:
    """Return the kernels used so far as rows of label, -D options and source ("" for netcl's own kernels)."""
    return sorted(torch.ops.netcl.recorded_programs())


@contextlib.contextmanager
def record(path: str | os.PathLike[str]) -> Iterator[None]:
    """At the end of the block, also after an exception, write the kernels used so far to the file `path` as JSON."""
    try:
        yield
    finally:
        Path(path).write_text(json.dumps({"format": _FORMAT, "kernels": kernels_in_use()}, indent=1) + "\n")


def replay(path: str | os.PathLike[str], device: torch.device | str | int = "netcl") -> Counter[str]:
    """Compile the kernels of a list for `device`, unless the cache on disk has them.

    `path` is a file that :func:`record` wrote; a `device` of type int is an index. Returns how many kernels were
    "compiled", "known" (already on disk) and "failed". The error of each failed kernel is printed to stderr. Some
    kernels may fail if the list comes from a GPU and `device` is a CPU, or from a device with more capabilities. Raises
    ValueError if `path` holds no such list.
    """
    try:
        content = json.loads(Path(path).read_text())
        known = content["format"] == _FORMAT
        rows = [[str(part) for part in row] for row in content["kernels"]]
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError):
        known, rows = False, []
    if not known:
        raise ValueError(f"{os.fspath(path)} is no list of kernels by `python -m torch_netcl.warmup record`")
    index = torch.device("netcl", device).index if isinstance(device, int) else torch.device(device).index
    counts: Counter[str] = Counter(compiled=0, known=0, failed=0)
    for row, result in zip(rows, torch.ops.netcl.prepare_programs(index or 0, rows), strict=True):
        counts[{"": "known", "compiled": "compiled"}.get(result, "failed")] += 1
        if result not in ("", "compiled"):
            print(f"{row[0]}{row[1]}: {result}", file=sys.stderr)
    return counts


def _run(program: list[str]) -> None:
    """Run `program` as Python's command line would."""
    module = program[0] == "-m"
    sys.argv = program[1:] if module else program
    sys.path.insert(0, "" if module else os.path.dirname(os.path.abspath(program[0])))
    if module:
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program[0], run_name="__main__")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status: 1 if a kernel failed."""
    parser = argparse.ArgumentParser(prog="python -m torch_netcl.warmup", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run a program and write the list of its kernels")
    recording.add_argument("list", help="the file to write")
    recording.add_argument("program", nargs=argparse.REMAINDER, help="script.py or -m module, and its arguments")
    replaying = commands.add_parser("replay", help="compile the kernels of a list")
    replaying.add_argument("list", help="the file to read")
    replaying.add_argument("--device", default="netcl:0", help="default: netcl:0")
    replaying.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at once; default: one per core")
    args = parser.parse_args(arguments)
    if args.command == "record":
        if not args.program or args.program == ["-m"]:
            parser.error("record: which program?")
        with record(args.list):
            _run(args.program)
        return 0
    os.environ["NETCL_COMPILE_THREADS"] = str(max(1, args.jobs))
    counts = replay(args.list, args.device)
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
