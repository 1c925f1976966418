"""Calls of operators with one argument that does not fit the others, for tools/oclgrind.py: a kernel must not run past
the end of a tensor, whatever the sizes. The calls are OpInfo's, as test/garbage.py records them.

``python tools/oclgrind_misfits.py record FILE`` records them, on the device that NETCL_VISIBLE_DEVICES names.
``python tools/oclgrind_misfits.py run FILE [PATTERN]`` makes them under Oclgrind, perhaps only those of the operators
that match. It prints a line of JSON for each operator: ["misfits", its name, the arguments of the calls that Oclgrind
reports].
"""

from __future__ import annotations

import fnmatch
import json
import os
import pickle
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "test"))
import garbage  # noqa: E402

SAMPLES_PER_OPINFO = 12
CALLS = 2  # recorded ones per operator; each has some ten variants per argument
SMALL = 600  # elements; Oclgrind runs some thousand work-items per second
SECONDS = 15  # for the calls of an operator

# Reported, but right: name -> why.
ALLOWED = {
    "aten::_embedding_bag": "offsets that decrease raise an error; until then two bags write the same elements",
}


def misfits(value: Any) -> list[Callable[[Any], Any]]:
    """Functions that change an argument; they return None if they do not apply."""
    if isinstance(value, torch.Tensor):
        return [
            lambda t: t[..., :-1].contiguous() if t.numel() and t.dim() else None,
            lambda t: t[:-1].contiguous() if t.numel() and t.dim() else None,
            lambda t: t[0].contiguous() if t.numel() and t.dim() else None,
            lambda t: t[..., :0].contiguous() if t.dim() else None,
            lambda t: t.flatten()[:1].contiguous(),
            lambda t: t.new_zeros(()),
            lambda t: t.unsqueeze(0),
            lambda t: t.repeat(*[2] * t.dim()) if t.dim() and t.numel() << t.dim() <= SMALL else t.new_zeros(5),
            lambda t: t + 100 if t.dtype in (torch.int32, torch.int64) else None,
            lambda t: t - 100 if t.dtype in (torch.int32, torch.int64) else None,
        ]
    if isinstance(value, bool):
        return [lambda b: not b]
    if isinstance(value, int):
        return [lambda i: i + 1, lambda i: i - 1, lambda i: 3 * i + 7, lambda i: -5, lambda i: 0]
    if isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
        last = [lambda v, f=f: [*v[:-1], f(v[-1])] for f in misfits(value[-1])]
        return [lambda v: v[:-1], lambda v: [*v, v[0]], *last]
    if isinstance(value, list) and value and isinstance(value[0], int):
        all_of = [lambda v, by=by: [i + by for i in v] for by in (1, -1, -8)]
        return [lambda v: v[:-1], lambda v: [*v, 1], lambda v: [*v[:-1], v[-1] + 2], lambda v: [0] * len(v), *all_of]
    return []


def calls(name: str, recorded: list) -> Iterator[tuple[list, dict]]:
    """The arguments of each call: as recorded, then with one that does not fit, in a random order."""

    def fresh(call: Any) -> tuple[list, dict]:
        args, kwargs = tree_map(garbage.renewed, call, is_leaf=lambda x: isinstance(x, garbage.Recorded))
        return list(args), dict(kwargs)

    changes = []
    for call in recorded[:CALLS]:
        original = fresh(call)
        yield original
        places = [(0, i) for i in range(len(original[0]))] + [(1, key) for key in original[1]]
        changes += [(call, w, key, change) for w, key in places for change in misfits(original[w][key])]
    random.Random(name).shuffle(changes)
    for call, where, key, change in changes:
        changed = fresh(call)
        changed[where][key] = change(changed[where][key])
        if changed[where][key] is not None:
            yield changed


def run(name: str, recorded: list, log: Path) -> list[str]:
    """The arguments of those calls of the operator that Oclgrind reports."""
    reported = []
    end = time.monotonic() + SECONDS
    for args, kwargs in calls(name, recorded):
        before = log.stat().st_size
        described = garbage.describe((args, kwargs))
        try:
            garbage.operator(name)(*args, **kwargs)
            torch.netcl.synchronize()
        except Exception:
            pass  # as it should
        if log.stat().st_size > before:
            reported.append(described)
        if time.monotonic() > end:
            print(f"{name}: not all calls were made in {SECONDS} s", file=sys.stderr)
            break
    return reported


def main() -> None:
    """Run the command line."""
    action, file, wanted = sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "*"
    warnings.simplefilter("ignore")
    if action == "record":
        file.write_bytes(pickle.dumps(garbage.record(op_db, SAMPLES_PER_OPINFO, "netcl")))
        return
    torch.netcl.set_cpu_fallback_mode("silent")
    for name, recorded in sorted(pickle.loads(file.read_bytes()).items()):
        if name in ALLOWED or any(fnmatch.fnmatch(name, pattern) for pattern in garbage.DIES_ON_CPU):
            continue
        if not fnmatch.fnmatch(name, wanted):
            continue
        reported = run(name, recorded, Path(os.environ["OCLGRIND_LOG"]))
        print(json.dumps(["misfits", name, "; ".join(reported[:3])]), flush=True)


if __name__ == "__main__":
    main()
