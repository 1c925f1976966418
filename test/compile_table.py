"""Runs test_compile_opinfo.py's check of every float32 operator, and writes the table of docs/compile.md.

``compile_table.py run FOLDER`` checks on the device of NETCL_VISIBLE_DEVICES. A process checks some operators and
appends their results to a file of FOLDER, so a crash costs one operator, and a run that was stopped goes on.
``compile_table.py write FOLDER docs/compile.md`` puts the results of all runtimes into the document.
"""

import itertools
import json
import os
import subprocess
import sys
import time
import unittest
import warnings
from collections import Counter
from pathlib import Path

#: Operators per process, and the seconds after which one of them counts as a crash.
SLICE, PATIENCE = 60, 300
BEGIN, END = "<!-- compile_table.py writes this -->\n", "<!-- end -->\n"
RUNTIMES = {"intel": "Intel", "pocl": "PoCL"}


def names() -> list[str]:
    """The operators, every eighth first, so that the kinds of failures show early."""
    import test_compile_opinfo as checks
    import torch
    from opinfo import OPS, UNINITIALISED

    left_out = UNINITIALISED | checks.RANDOM
    found = [
        op.full_name
        for op in OPS
        if torch.float32 in op.dtypesIf["netcl"] and not {op.name, op.full_name} & left_out
    ]
    return [n for k in range(8) for n in found[k::8]]


def check(wanted: list[str], results: Path) -> None:
    """Checks operators in this process."""
    import test_compile_opinfo as checks
    import torch
    from opinfo import OPS

    warnings.simplefilter("ignore")
    torch._inductor.config.force_disable_caches = True  # nothing is compiled twice
    case = next(v for k, v in vars(checks).items() if k.startswith("TestCompileOpInfo"))("compare")
    ops = {op.full_name: op for op in OPS}
    for name in wanted:
        append(results, name=name, status="started")
        begin, status, why = time.monotonic(), "pass", ""
        try:
            case.compare(ops[name], torch.float32)
            torch.netcl.synchronize()
        except unittest.SkipTest as e:
            status, why = "skip", str(e)
        except Exception as e:
            status = "wrong" if isinstance(e, AssertionError) else "error"
            why = f"{type(e).__name__}: {e}"
        append(results, name=name, status=status, why=why[:1500], s=round(time.monotonic() - begin, 1))


def append(results: Path, **entry: object) -> None:
    with results.open("a") as f:
        f.write(json.dumps(entry) + "\n")


def read(results: Path) -> dict[str, dict]:
    """The last entry of each operator."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {e["name"]: e for e in map(json.loads, lines)}


def run(folder: Path) -> None:
    """Checks what has no result yet, in one process after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    device = os.environ["NETCL_VISIBLE_DEVICES"]
    results, log = folder / f"{device}.jsonl", folder / f"{device}.log"
    every = names()
    while todo := [n for n in every if n not in read(results)][:SLICE]:
        with log.open("w") as out:
            command = [sys.executable, __file__, "check", str(results), *todo]
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=out)
            size, since = -1, time.monotonic()
            while child.poll() is None:
                time.sleep(1)
                now = results.stat().st_size if results.exists() else 0
                size, since = (now, time.monotonic()) if now != size else (size, since)
                if time.monotonic() - since > PATIENCE:
                    child.kill()
        for entry in read(results).values():
            if entry["status"] == "started":
                append(results, name=entry["name"], status="crash", why=log.read_text()[-600:])
        print(device, dict(Counter(e["status"] for e in read(results).values())), "of", len(every), flush=True)


def row(name: str, entries: list[dict]) -> str:
    count = Counter(e["status"] for e in entries)
    tested = len(entries) - count["skip"]
    share = f"{100 * count['pass'] / tested:.1f}%" if tested else ""
    cells = (name, len(entries), count["pass"], count["wrong"], count["error"], count["crash"], count["skip"], share)
    return "| " + " | ".join(map(str, cells)) + " |"


def write(folder: Path, document: Path) -> None:
    """Replaces the table of the document."""
    lines = [
        "| float32 operators of OpInfo, forward and backward | run | right | wrong result | error | crash | "
        "eager mode refuses the sample | right of those that eager mode takes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    failed: dict[str, list[str]] = {}
    for device, name in RUNTIMES.items():
        entries = list(read(folder / f"{device}.jsonl").values())
        lines.append(row(name, entries))
        for e in entries:
            if e["status"] not in ("pass", "skip"):
                failed.setdefault(e["name"], []).append(f"{name}: {e['status']}")
    listed = "; ".join(f"`{name}` ({', '.join(how)})" for name, how in sorted(failed.items()))
    lines += ["", f"Not right: {listed or 'none'}."]
    before, rest = document.read_text().split(BEGIN)
    document.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "run":
        run(Path(arguments[0]))
    elif command == "check":
        check(arguments[1:], Path(arguments[0]))
    else:
        write(*map(Path, itertools.islice(arguments, 2)))
