"""Kernels that one process noted are compiled by another one, and a third finds them on disk."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import processes
import torch
from torch.testing._internal.common_utils import TestCase, run_tests

from torch_netcl import warmup

D = torch.device("netcl", 0)
PROGRAM = """
import sys
import torch
import torch_netcl
x = torch.ones(5, device="netcl")
twice = torch_netcl.compile_kernel(
    "__kernel void twice(__global float* x) { x[get_global_id(0)] *= FACTOR; }", "twice", ["-DFACTOR=2"])
twice(x, global_size=5)
print(sys.argv[1], (x + 1).sum().item(), int(torch.netcl.kernel_cache_stats()["compiled"]))
if sys.argv[1] == "fails":
    raise SystemExit(3)
"""


def python(*arguments, **env):
    return subprocess.run([sys.executable, *arguments], env={**os.environ, **env}, capture_output=True, text=True)


class TestWarmup(TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = self.folder / "program.py"
        self.program.write_text(PROGRAM)
        self.list = self.folder / "kernels.json"

    def test_a_list_fills_an_empty_cache(self):
        for arguments, status in (((str(self.program), "works"), 0), (("-m", "program", "fails"), 3)):
            self.list.unlink(missing_ok=True)
            done = python(
                "-m",
                "torch_netcl.warmup",
                "record",
                str(self.list),
                *arguments,
                PYTHONPATH=os.pathsep.join([*sys.path, str(self.folder)]),
            )
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertTrue(done.stdout.startswith(f"{arguments[-1]} 15.0"), done.stdout)
        kernels = json.loads(self.list.read_text())["kernels"]
        self.assertTrue(any("FACTOR" in source for _, _, source in kernels), kernels)
        other = str(self.folder / "cache")
        for counts in (f"{len(kernels)} compiled, 0 known", f"0 compiled, {len(kernels)} known"):
            done = python("-m", "torch_netcl.warmup", "replay", str(self.list), NETCL_CACHE_DIR=other)
            self.assertEqual((done.returncode, done.stdout), (0, counts + ", 0 failed\n"), done.stderr)
        done = python(str(self.program), "again", NETCL_CACHE_DIR=other)
        self.assertEqual((done.returncode, done.stdout), (0, "again 15.0 0\n"), done.stderr)

    def test_what_fails_is_named(self):
        with warmup.record(self.list):
            (torch.ones(3, device=D) + 1).cpu()
        content = json.loads(self.list.read_text())
        self.assertGreater(len(content["kernels"]), 0)
        content["kernels"] += [["unary.cl flat", " -DOP=OP_no_such_operator", ""], ["<source>", "", "no OpenCL C"]]
        content["kernels"] += [["unary.cl gone", "", ""], ["gone.cl flat", "", ""]]
        self.list.write_text(json.dumps(content))
        done = python("-m", "torch_netcl.warmup", "replay", str(self.list))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r", 4 failed\n$")
        self.assertRegex(done.stderr, "unary.cl flat -DOP=OP_no_such_operator: .*clBuildProgram")

    def test_other_files_are_refused(self):
        for text in ("", "[]", '{"format": "something", "kernels": []}', '{"format": "torch_netcl kernels 1"}'):
            self.list.write_text(text)
            with self.assertRaisesRegex(ValueError, "no list of kernels"):
                warmup.replay(self.list)
        for arguments in (["record", str(self.list)], ["record", str(self.list), "-m"], []):
            code = "import runpy; runpy.run_module('torch_netcl.warmup', run_name='__main__')"
            done = processes.python(code, *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    run_tests()
