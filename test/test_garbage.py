"""No Python code may end the process: calls every operator with garbage arguments, in child processes.

An exception is fine; a signal, an abort and a hang are not. NETCL_TEST_FULL=1 tries every operator many times.
"""

import fnmatch
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import garbage  # noqa: E402

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
CALLS = 20  # per operator in the full tier

class Death(NamedTuple):
    name: str
    call: int
    how: str
    log: str

    def __str__(self):
        return f"{self.name}, call {self.call}: {self.how}\n{self.log}"


def run(calls: list, device: str, samples: Path, verbose: bool = False) -> list[Death]:
    """Makes the calls, (operator, number) each, in child processes; returns those that ended their process."""
    deaths: list[Death] = []
    with tempfile.TemporaryDirectory() as folder:  # from_file and others write to the current folder
        jobs = Path(folder, "jobs.json")
        jobs.write_text(json.dumps({"device": device, "samples": str(samples), "calls": calls, "verbose": verbose}))
        first = 0
        while first < len(calls):
            child = subprocess.run(
                [sys.executable, garbage.__file__, str(jobs), str(first)],
                cwd=folder,
                capture_output=True,
                # A second device of the same kind.
                env={**os.environ, "NETCL_SUBDEVICES": "2", "NETCL_CPU_FALLBACK": "silent"},
            )
            last = child.stdout.split()[-1:] or [b"-1"]
            if last == [b"done"]:
                break
            if int(last[0]) < first:
                raise RuntimeError(f"the child does not start:\n{child.stderr.decode(errors='replace')[-3000:]}")
            name, number = calls[int(last[0])]
            code = -child.returncode
            how = (
                "hangs" if code == signal.SIGALRM else signal.Signals(code).name if code > 0 else f"exits with {-code}"
            )
            deaths.append(Death(name, number, how, child.stderr.decode(errors="replace")[-3000:]))
            first = int(last[0]) + 1
    return deaths


class TestGarbage(TestCase):
    def check(self, names: list, calls: int, infos: list, per_info: int):
        with tempfile.TemporaryDirectory() as folder:
            samples = Path(folder, "samples.pkl")
            samples.write_bytes(pickle.dumps(garbage.record(infos, per_info)))
            deaths = run([(n, i) for n in names for i in range(calls)], "netcl", samples)
            ours = []
            for d in deaths:
                if any(fnmatch.fnmatch(d.name, n) for n in garbage.DIES_ON_CPU):
                    continue
                # netcl's own names make the same call on either device.
                aten = d.name.startswith("aten::")
                alone = run([(d.name, d.call)], "cpu", samples, verbose=True) if aten else []
                if not alone or FULL:
                    ours.append(f"{d}\n(the CPU {alone[0].how if alone else 'lives'})")
        self.assertFalse(ours, f"{len(ours)} of {len(names) * calls} calls end the process:\n\n" + "\n\n".join(ours))

    def test_operators(self):
        names = sorted(n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
        self.assertGreater(len(names), 3000)
        if FULL:
            self.check(names, CALLS, op_db, 20)
        else:
            rng = random.Random(0)
            self.check(rng.sample(names, 150), 2, rng.sample(op_db, 40), 4)

    def test_python(self):
        own = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("netcl::")]
        names = sorted(garbage.python_names()) + sorted(set(own) - garbage.NOT_CALLED)
        self.assertGreater(len(names), 100)
        self.check(names, 20 * CALLS if FULL else 3, [], 0)


if __name__ == "__main__":
    run_tests()
