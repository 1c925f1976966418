"""Every example runs for a few steps, writes its files, and runs entirely on the device."""

import csv
import importlib.util
import math
import os
import runpy
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import torch
from processes import python
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

from torch_netcl import train

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ["step", "loss", "grad_norm", "scale", "skipped", "ms"]
NEEDED = ("sklearn", "tqdm", "matplotlib")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


def run_example(script, *args):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep), "OMP_NUM_THREADS": "1"},
    )


@unittest.skipIf(MISSING, f"the demo extra is not installed: {MISSING}")
class TestExamples(TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def check_files(self, name, steps):
        with open(self.folder / f"{name}.csv", newline="") as file:
            header, *rows = csv.reader(file)
        self.assertEqual(header, COLUMNS)
        self.assertEqual([row[0] for row in rows], [str(n) for n in range(1, steps + 1)])
        for row in rows:
            values = dict(zip(COLUMNS, map(float, row), strict=True))
            self.assertIn(values["skipped"], (0, 1))
            self.assertTrue(math.isfinite(values["loss"]))
            self.assertEqual(math.isfinite(values["grad_norm"]), values["skipped"] == 0)
            self.assertGreater(values["scale"], 0)
        self.assertEqual((self.folder / f"{name}.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        return rows

    @parametrize("name,device", [("digits", "netcl"), ("gpt", "netcl"), ("digits", "cpu"), ("gpt", "cpu")])
    def test_script(self, name, device):
        steps = 12
        files = ("--csv", self.folder / f"{name}.csv", "--png", self.folder / f"{name}.png")
        done = run_example(f"{name}.py", "--device", device, "--steps", steps, "--batch-size", 16, *files)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = self.check_files(name, steps)
        losses = [float(row[1]) for row in rows]
        self.assertLess(sum(losses[-4:]), sum(losses[:4]))
        self.assertIn("operators on the host", done.stdout)
        self.assertRegex(done.stdout, r"operators on the host +none\n")

    def test_amp_off_has_no_scale(self):
        done = run_example(
            "digits.py", "--amp", "off", "--steps", 3, "--csv", self.folder / "digits.csv", "--seed", 3
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.folder / "digits.csv", newline="") as file:
            self.assertEqual([float(row["scale"]) for row in csv.DictReader(file)], [1.0, 1.0, 1.0])

    def test_demo_fails_when_a_goal_is_missed(self):
        done = run_example(
            "demo.py", "--steps", 4, "--batch-size", 4, "--csv", self.folder, "--png", self.folder
        )
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for name in ("digits", "gpt"):
            self.check_files(name, 4)
            self.assertIn(f"FAILED {name}: ", done.stderr)
        self.assertNotIn("operators ran on the host", done.stderr)
        amp_dtype = "float16" if torch.float16 in torch.netcl.amp.autocast_dtypes() else "bfloat16"
        self.assertRegex(done.stdout, rf"autocast +{amp_dtype}\n")
        self.assertEqual("autocast uses bfloat16" in done.stdout, amp_dtype == "bfloat16")
        self.assertRegex(done.stdout, r"kernels compiled +\d+\n")
        before = "" if sys.prefix == sys.base_prefix else r"source \S*activate && "
        self.assertRegex(done.stdout, rf"next +{before}python \S*gpt\.py --steps 300\n")

    def test_readme(self):
        tool = runpy.run_path(str(ROOT / "tools" / "test_wheel.py"))
        script = self.folder / "readme.py"
        script.write_text(tool["example"]() + tool["CHECK"])
        done = run_example(script)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"loss \d\.\d+ in torch\.")
        self.assertNotIn("CPU", done.stderr)  # no operator fell back

    def test_devices_that_are_not_there(self):
        """The examples and torch_netcl.train say what to type."""
        with mock.patch.object(sys, "path", [str(ROOT / "examples"), *sys.path]):
            pick = runpy.run_path(str(ROOT / "examples" / "common.py"))["pick_device"]
        for pick_device in (pick, train._pick_device):
            kinds = [pick_device(name).type for name in ("cpu", "netcl", "netcl:0")]
            self.assertEqual(kinds, ["cpu", "netcl", "netcl"])
            count = torch.netcl.device_count()
            said = {"nonsense": "unknown device 'nonsense'", "opencl": "called netcl: --device netcl",
                    f"netcl:{count}": f"there are {count} netcl devices, so no netcl:{count}; try"}
            if not torch.cuda.is_available():
                said["cuda"] = "there are 0 cuda devices, so no cuda; try --device netcl"
            for name, message in said.items():
                with self.assertRaisesRegex(SystemExit, message):
                    pick_device(name)

    @parametrize("script", ["demo", "digits", "generate", "gpt"])
    def test_device_in_a_script(self, script):
        """Each script ends with what to type, before it loads data or makes a model."""
        path = str(ROOT / "examples" / f"{script}.py")
        code = f"import runpy, sys\nsys.path.insert(0, {os.path.dirname(path)!r})\n"
        code += f"runpy.run_path({path!r}, run_name='__main__')"
        said = {"opencl": "called netcl: --device netcl", "netcl:9": "so no netcl:9; try --device netcl"}
        if not torch.cuda.is_available():
            said["cuda"] = "so no cuda; try --device netcl"
        for device, message in said.items():
            done = python(code, "--device", device)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertRegex(done.stderr, rf"\A.*{message}.*\n\Z")  # one line, no traceback


instantiate_parametrized_tests(TestExamples)

if __name__ == "__main__":
    run_tests()
