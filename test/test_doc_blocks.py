"""The Python blocks of the documents run as typed, each page in a new process.

Other tests run those of README.md (test_examples.py), of docs/amp*.md (test_amp_docs.py), docs/interop.md
(test_interop.py) and docs/libraries.md (test_libraries.py).
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("compile", "distributed", "faq", "profiling")
ELSEWHERE = {"README", "amp", "amp_differences", "interop", "libraries"}


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)


def run(folder, *command):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    env |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=900
    )


class TestBlocks(TestCase):
    def test_each_page_is_tested(self):
        pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
        self.assertEqual({page.stem for page in pages if blocks(page)}, {*PAGES, *ELSEWHERE})

    @unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
    @parametrize("name", PAGES)
    def test_page(self, name):
        page = ROOT / "docs" / f"{name}.md"
        found = blocks(page)
        self.assertGreater(len(found), 0)
        with tempfile.TemporaryDirectory() as folder:
            files = {match[1]: code for code in found if (match := re.match(r"# file: (\S+)", code))}
            for file, code in files.items():
                Path(folder, file).write_text(code)
            rest = [code for code in found if code not in files.values()]
            if rest:
                Path(folder, "page.py").write_text("\n".join(rest))
                done = run(folder, "page.py")
                self.assertEqual(done.returncode, 0, done.stderr)
            # torchrun is this module.
            for arguments in re.findall(r"^torchrun (.*)$", page.read_text(), re.M):
                done = run(folder, "-m", "torch.distributed.run", *arguments.split())
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(sorted(re.findall(r"rank (\d) of 2: loss \d", done.stdout)), ["0", "1"])


    @unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
    def test_faq_quotes_what_is_printed(self):
        code = """
import warnings, torch
warnings.simplefilter("always")
x = torch.ones(3, device="netcl")
for call in (
    lambda: torch.nn.Linear(3, 3).to("opencl"),
    lambda: torch.ones(3, device="opencl"),
    lambda: torch.ones(3, device="cuda"),
    lambda: torch.amp.GradScaler(),
    lambda: torch.autocast("netcl", dtype=torch.float16),
    lambda: torch.linalg.eigvals(torch.eye(3, device="netcl")),
    lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    lambda: torch.nn.Linear(3, 3).to("netcl")(torch.ones(3)),
    lambda: torch.nn.Conv2d(3, 3, 1).to("netcl")(torch.ones(1, 3, 3, 3)),
    lambda: x.numpy(),
    lambda: torch.empty(1 << 42, device="netcl"),
    lambda: x[torch.tensor([7], device="netcl")].cpu(),
):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:
            print(error)
        print(*(w.message for w in said))
"""
        done = python(code, NETCL_DISABLE="fp16", NETCL_FP16=None, NETCL_CPU_FALLBACK=None)
        self.assertEqual(done.returncode, 0, done.stderr)
        printed = re.sub(r"\s+", " ", done.stdout)
        page = (ROOT / "docs" / "faq.md").read_text()
        quoted = re.findall(r'^## .*?"(.+)"', page, re.M)
        self.assertEqual(len(quoted), 10)
        for text in quoted:
            if torch.backends.cuda.is_built() and "CUDA" in text:
                continue  # its error names the driver
            self.assertIn(text.removeprefix("… "), printed)
        self.assertEqual(printed.count("Expected all tensors to be on the same device"), 2)

    @unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
    @unittest.skipIf(importlib.util.find_spec("matplotlib") is None, "pip install matplotlib")
    def test_notebook(self):
        """All cells run in order; the spoiled batch is skipped, and no operator runs on the host."""
        cells = json.loads((ROOT / "examples" / "tour.ipynb").read_text())["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        self.assertEqual([cell["outputs"] for cell in cells if cell["cell_type"] == "code"], [[]] * len(code))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "tour.py").write_text("\n".join(code))
            done = run(folder, "tour.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"skipped: \[\(60, 'non-finite gradient', \['")
        self.assertIn("operators on the host: {}", done.stdout)


instantiate_parametrized_tests(TestBlocks)

if __name__ == "__main__":
    run_tests()
