"""Compares every operator of PyTorch's OpInfo database with the CPU; opinfo_expected.txt lists the known failures.

The quick tier tests one float32 sample per operator and its error inputs, and the checks in opinfo_regressions.txt.
The full tier (NETCL_TEST_FULL=1) runs all kinds of checks for all dtypes, which takes hours. These variables select
parts:

    NETCL_OPINFO_DTYPES=float16,int64             these dtypes
    NETCL_OPINFO_KINDS=samples,out,inplace,grad   these kinds of checks, of opinfo.KINDS
    NETCL_OPINFO_SAMPLES=1                        at most so many samples per operator (all error inputs are used)

A dtype with the kinds above and one sample takes about ten minutes on a core. Variables that are not set have the
values of the quick tier, or with NETCL_TEST_FULL=1 those of the full tier.

With NETCL_OPINFO_RESULTS=FOLDER, results are appended to a file there, and opinfo_table.py combines the files of
many runs. NETCL_OPINFO_RESUME=1 skips checks whose results are there already.
"""

import json
import os
from pathlib import Path

import torch
from opinfo import DTYPES, KINDS, OPS, check, expected_failure, read_expected, read_regressions, restricted
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
RESULTS = os.environ.get("NETCL_OPINFO_RESULTS")
RESUME = os.environ.get("NETCL_OPINFO_RESUME", "0") != "0"
EXPECTED = read_expected()


def chosen(variable, choices, default):
    """The values of a dict that an environment variable selects by names, separated by commas."""
    names = os.environ.get(variable)
    return [choices[name] for name in names.split(",")] if names else default


SELECTED = any(f"NETCL_OPINFO_{name}" in os.environ for name in ("DTYPES", "KINDS", "SAMPLES"))
RUN_DTYPES = chosen("NETCL_OPINFO_DTYPES", {str(d)[6:]: d for d in DTYPES}, DTYPES if FULL else (torch.float32,))
RUN_KINDS = chosen("NETCL_OPINFO_KINDS", {k: k for k in KINDS}, tuple(KINDS) if FULL else ("samples", "errors"))
LIMIT = int(os.environ.get("NETCL_OPINFO_SAMPLES", 0 if FULL else 1)) or None  # None: the kind's own number
REGRESSIONS = {} if FULL or SELECTED else read_regressions()


def kinds_of(op, dtype):
    """The kinds of checks of an operator in this run."""
    listed = REGRESSIONS.get((op.full_name, dtype), ())
    wanted = [k for k in KINDS if k in listed or (k in RUN_KINDS and dtype in RUN_DTYPES)]
    return [k for k in wanted if KINDS[k].applies(op, dtype)]


def runtime() -> str:
    """The platform's name in lower case, one word."""
    return torch.netcl.get_device_properties().platform_name.lower().replace(" ", "-")


def note(**result) -> None:
    if RESULTS:
        Path(RESULTS).mkdir(parents=True, exist_ok=True)
        with open(Path(RESULTS) / f"{runtime()}-{os.getpid()}.jsonl", "a") as f:
            f.write(json.dumps(result) + "\n")


def noted():
    """The results of earlier runs of this runtime: (operator, dtype, kind)."""
    files = Path(RESULTS).glob(f"{runtime()}-*.jsonl") if RESULTS and RESUME else ()
    notes = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return {(n["op"], n["dtype"], n["kind"]) for n in notes}


def problem(op, dtype, kind):
    """Runs a check; returns what is wrong with its result, if anything."""
    result = {"op": op.full_name, "dtype": str(dtype)[6:], "kind": kind, "samples": LIMIT}
    known = expected_failure(EXPECTED, op, dtype, kind, runtime())
    if known and known.crashes:
        note(**result, status="failing", reason=known.reason)
        return None
    try:
        through = check(op, dtype, kind, LIMIT)
    except Exception as error:
        note(**result, status="failing", reason=known.reason if known else f"{type(error).__name__}: {error}"[:300])
        return None if known else f"{kind}: {type(error).__name__}: {error}"
    note(**result, status="fallback" if through else "native", through=through)
    if through and kind in REGRESSIONS.get((op.full_name, dtype), ()):
        return f"{kind} ran on the CPU: {', '.join(through)}"
    if known and not (known.sometimes and LIMIT):
        return f"{kind} passes: take this line from opinfo_expected.txt: {' '.join(known)}"
    return None


class TestOpInfo(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.noted = noted()

    @ops(restricted(OPS, kinds_of))
    def test(self, device, dtype, op):
        kinds = [k for k in kinds_of(op, dtype) if (op.full_name, str(dtype)[6:], k) not in self.noted]
        problems = [p for p in (problem(op, dtype, kind) for kind in kinds) if p]
        if problems:
            self.fail("\n".join(problems))


class TestDatabase(TestCase):
    def test_others_see_it_unchanged(self):
        self.assertEqual([op.full_name for op in op_db if "netcl" in op.dtypesIf], [])


instantiate_device_type_tests(TestOpInfo, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
