"""`python -m torch_netcl`, and a machine where nothing is installed."""

import os
import subprocess
import sys
import unittest
from importlib.metadata import entry_points

import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests

from torch_netcl import __main__ as cli


def run(*arguments, **env):
    """The finished process of a fresh Python; the environment is the caller's, with changes."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)


def command(*arguments, **env):
    """`python -m torch_netcl` in a process that has imported torch."""
    return python("import runpy; runpy.run_module('torch_netcl', run_name='__main__')", *arguments, **env)


class TestCommandLine(TestCase):
    def test_report_names_every_device(self):
        done = run("-m", "torch_netcl")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(str(torch.__version__), done.stdout)
        self.assertIn("kernel cache", done.stdout)
        for i in range(torch.netcl.device_count()):
            self.assertIn(f"netcl:{i}  {torch.netcl.get_device_name(i)}", done.stdout)
        self.assertEqual(done.stdout.count("driver"), torch.netcl.device_count())

    @unittest.skipIf(not entry_points(group="torch.backends", name="torch_netcl"), "not installed")
    def test_either_import_order(self):
        for order in ("import torch", "import torch_netcl, torch"):
            done = run("-c", f"{order}; print(torch.netcl.device_count())")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(int(done.stdout), torch.netcl.device_count())

    def test_no_device_visible(self):
        done = command(NETCL_VISIBLE_DEVICES="there-is-no-such-device")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("NETCL_VISIBLE_DEVICES=there-is-no-such-device names none of them: 0 is ", done.stdout)
        done = command("--check", NETCL_VISIBLE_DEVICES="there-is-no-such-device")
        self.assertEqual(done.returncode, 1)

    def test_no_loader(self):
        code = """
import torch
import torch_netcl
assert not torch.netcl.is_available() and torch.netcl.device_count() == 0
assert torch.ones(3).sum() == 3
try:
    torch.ones(3, device="netcl")
except RuntimeError as error:
    print(error)
"""
        done = python(code, NETCL_OPENCL_LIBRARY="/nonexistent/libOpenCL.so.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("pip install", done.stdout)
        done = command(NETCL_OPENCL_LIBRARY="/nonexistent/libOpenCL.so.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "no OpenCL (device|loader) was found.*pip install.*pocl-opencl-icd")

    def test_every_check_passes(self):
        for i in range(torch.netcl.device_count()):
            with torch.netcl.device(i):
                for name, check in cli.CHECKS.items():
                    with self.subTest(name=name, device=i):
                        torch.manual_seed(0)
                        check(torch.device("netcl", i))

    def test_a_failing_check_is_reported(self):
        def wrong(device):
            raise AssertionError("deliberately")

        kept = dict(cli.CHECKS)
        cli.CHECKS.clear()
        cli.CHECKS["wrong"] = wrong
        try:
            self.assertFalse(cli.check())
        finally:
            cli.CHECKS.clear()
            cli.CHECKS.update(kept)


def test_clear_cache_takes_kernels_only(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NETCL_CACHE_DIR", str(tmp_path))
    ours = [tmp_path / f"{'0' * 40}.bin", tmp_path / f"{'1' * 40}.bin.1234"]
    other = [tmp_path / "notes.txt", tmp_path / "torch_netcl-icd-0" / "00-a.icd"]
    for path in ours + other:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 1024)
    assert cli.main(["--clear-cache"]) == 0
    assert "2 kernels (2.0 KiB)" in capsys.readouterr().out
    assert [p.exists() for p in ours + other] == [False, False, True, True]


if __name__ == "__main__":
    run_tests()
