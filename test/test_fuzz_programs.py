"""Random programs of 5 to 30 lines on netcl, compared with the CPU. NETCL_TEST_FULL=1 tries 10,000."""

import os
import sys
import warnings

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import programs  # noqa: E402

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
FP64 = torch.netcl.get_device_properties(0).has_fp64
FIRST = int(os.environ.get("NETCL_TEST_SEED", "0"))  # another seed tries other programs


class TestPrograms(TestCase):
    def test_programs(self):
        before = torch.netcl.get_cpu_fallback_mode()
        torch.netcl.set_cpu_fallback_mode("silent")
        self.addCleanup(torch.netcl.set_cpu_fallback_mode, before)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about outputs that are resized
            for seed in range(FIRST, FIRST + (10_000 if FULL else 200)):
                lines = programs.Writer(seed, quick=not FULL, fp64=FP64).program()
                each = seed % 2 == 0  # otherwise the program runs without a wait
                if programs.failure(lines, "netcl", each):
                    few = programs.shrunk(lines, "netcl", each)
                    found = programs.failure(few, "netcl", each)
                    self.fail(f"program {seed}: {found}\n\n{programs.snippet(few, 'netcl')}")


if __name__ == "__main__":
    run_tests()
