"""The code of docs/amp.md runs as it stands."""

import os
import re
import tempfile
import unittest
from pathlib import Path

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

PAGE = Path(__file__).resolve().parents[1] / "docs/amp.md"


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestAmpPage(TestCase):
    def test_blocks_run_in_order(self):
        text = PAGE.read_text()
        blocks = [(m.start(), m[1]) for m in re.finditer(r"```python\n(.*?)```", text, re.S)]
        self.assertGreater(len(blocks), 8)
        namespace = {"__name__": "amp_page"}
        torch.manual_seed(0)
        folder = tempfile.TemporaryDirectory()  # the page writes a file
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        for start, code in blocks:
            line = text.count("\n", 0, start) + 1
            # Line numbers of the page, for tracebacks.
            exec(compile("\n" * line + code, str(PAGE), "exec"), namespace)
        self.assertTrue(namespace["loss"].isfinite().item())


if __name__ == "__main__":
    run_tests()
