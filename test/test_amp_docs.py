"""The code of docs/amp.md and docs/amp_differences.md runs as written, and prints what the pages show."""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import amp_report
import torch
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "amp.md"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestAmpPage(TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()  # the page writes files
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def assertPrints(self, got, want, place):
        """Compares the words exactly, and numbers, which depend on the device's autocast dtype, approximately."""
        self.assertEqual(NUMBER.sub("#", got), NUMBER.sub("#", want), msg=f"{place} prints:\n{got}")
        # Numbers have two decimals. The parameters move by lr = 1e-3 per step, so after a few steps devices differ only
        # by the rounding to bfloat16 (2^-9 of a number near 1, about ten times).
        for a, b in zip(map(float, NUMBER.findall(got)), map(float, NUMBER.findall(want)), strict=True):
            self.assertEqual(a, b, atol=0.01, rtol=0.02, msg=f"{place} prints:\n{got}")

    def run_file(self, name, code):
        Path(name).write_text(code)
        root = Path(torch_netcl.__file__).resolve().parents[1]
        path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
        env = {**os.environ, "PYTHONPATH": path}
        run = subprocess.run([sys.executable, name], capture_output=True, text=True, timeout=300, env=env)
        self.assertEqual(run.returncode, 0, msg=run.stderr)
        return run.stdout

    def test_blocks_run_in_order(self):
        self.assertGreater(self.run_page(PAGE), 12)

    def test_page_of_differences(self):
        self.assertGreater(self.run_page(DOCS / "amp_differences.md"), 0)

    def run_page(self, page):
        """Runs the code blocks of a page in one namespace; returns their number."""
        text = page.read_text()
        blocks = list(re.finditer(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", text, re.S))
        namespace = {"__name__": "amp_page"}
        for block in blocks:
            code, line = block[1], text.count("\n", 0, block.start()) + 1
            place = f"{page.name}:{line}"
            self.assertIsNotNone(block[2], msg=f"{place} has no output")
            if name := re.match(r"# file: (\S+)", code):
                out = self.run_file(name[1], code)
            else:
                said = io.StringIO()
                with contextlib.redirect_stdout(said):
                    # Keep the page's line numbers, for tracebacks.
                    exec(compile("\n" * line + code, str(page), "exec"), namespace)
                out = said.getvalue()
            self.assertPrints(out, block[2], place)
        return len(blocks)

    def test_launches(self):
        table = re.search(r"\| optimizer \|.*?\n((?:\|.*\n)+)", PAGE.read_text())[1].splitlines()[1:]
        page = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
        for name, *cells in amp_report.launch_rows():
            (want,) = (row[1:] for row in page if row[0] == name)
            self.assertEqual([f"{launched}, {waits}" for launched, waits in cells], want, msg=name)


if __name__ == "__main__":
    run_tests()
