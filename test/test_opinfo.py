"""Every operator of PyTorch's OpInfo database against the CPU; what is known to fail is in opinfo_expected.txt.

The quick tier takes one float32 sample an operator and its error inputs, the full one (NETCL_TEST_FULL=1) all kinds of
checks and all dtypes.
With NETCL_OPINFO_RESULTS=FOLDER, what was found is appended to a file there, for opinfo_table.py.
"""

import json
import os
from pathlib import Path

import torch
from opinfo import DTYPES, KINDS, OPS, check, expected_failure, read_expected
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
RESULTS = os.environ.get("NETCL_OPINFO_RESULTS")
EXPECTED = read_expected()
QUICK = ("samples", "errors")


def runtime() -> str:
    """The platform's name in lower case, one word."""
    return torch.netcl.get_device_properties().platform_name.lower().replace(" ", "-")


def note(**result) -> None:
    if RESULTS:
        Path(RESULTS).mkdir(parents=True, exist_ok=True)
        with open(Path(RESULTS) / f"{runtime()}-{os.getpid()}.jsonl", "a") as f:
            f.write(json.dumps(result) + "\n")


def problem(op, dtype, kind):
    """Runs a check; what is wrong with its result, if anything."""
    result = {"op": op.full_name, "dtype": str(dtype)[6:], "kind": kind, "full": FULL}
    known = expected_failure(EXPECTED, op, dtype, kind, runtime())
    if known and known.crashes:
        note(**result, status="failing", reason=known.reason)
        return None
    try:
        through = check(op, dtype, kind, None if FULL else 1)
    except Exception as error:
        note(**result, status="failing", reason=known.reason if known else f"{type(error).__name__}: {error}"[:300])
        return None if known else f"{kind}: {type(error).__name__}: {error}"
    note(**result, status="fallback" if through else "native", through=through)
    return f"{kind} passes: take this line from opinfo_expected.txt: {' '.join(known)}" if known else None


class TestOpInfo(TestCase):
    @ops(OPS, allowed_dtypes=DTYPES if FULL else (torch.float32,))
    def test(self, device, dtype, op):
        kinds = [k for k in (KINDS if FULL else QUICK) if KINDS[k].applies(op, dtype)]
        problems = [p for p in (problem(op, dtype, kind) for kind in kinds) if p]
        if problems:
            self.fail("\n".join(problems))


class TestDatabase(TestCase):
    def test_others_see_it_unchanged(self):
        self.assertEqual([op.full_name for op in op_db if "netcl" in op.dtypesIf], [])


instantiate_device_type_tests(TestOpInfo, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
