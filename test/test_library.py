"""The choice of the library for each torch, and that `import torch` works if torch_netcl cannot be loaded."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl
from torch_netcl import _library

PACKAGE = Path(torch_netcl.__file__).parent
MARK = b"netcl built for torch "


class TestChoice(TestCase):
    def folder(self, **libraries):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, version in libraries.items():
            (folder / f"{name.replace('_2', '-2.')}.so").write_bytes(b"\x7fELF" + MARK + version.encode() + b"\0")
        return folder

    def test_minor_version(self):
        self.assertEqual([_library.minor_version(v) for v in ("2.13.0+cpu", "2.9.1", "2.15.0a0+git12")],
                         ["2.13", "2.9", "2.15"])

    def test_the_library_of_this_torch(self):
        folder = self.folder(_C_213="2.13.0", _C_214="2.14.1")
        self.assertEqual(_library.choose(folder, "2.13.2+cpu").name, "_C-2.13.so")
        self.assertEqual(_library.choose(folder, "2.14.0").name, "_C-2.14.so")

    def test_a_library_of_another_torch_is_refused(self):
        folder = self.folder(_C="2.13.0")
        for version in ("2.1.3", "2.12.1", "2.130.0"):
            with self.assertRaisesRegex(ImportError, "built for torch 2.13 and this is torch " + version):
                _library.choose(folder, version)

    def test_no_library(self):
        with self.assertRaisesRegex(ImportError, "not built"):
            _library.choose(self.folder(), "2.13.0")

    def test_the_loaded_library_says_its_version(self):
        library = _library.choose(PACKAGE, torch.__version__)
        self.assertEqual(_library.built_for(library), _library.minor_version(torch.__version__))


class TestImport(TestCase):
    def run_with(self, *arguments, library=None, autoload="1", forked=False):
        """Runs Python with a copy of the package, with another library or none, that comes first on the path. A forked
        process has imported torch without the backend, and then loads it as `import torch` does."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "torch_netcl"
            shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("_C*.so", "__pycache__"))
            if library is not None:
                (copy / "_C.so").write_bytes(library)
            env = {"PYTHONPATH": folder, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
            if forked:
                return python(arguments[-1], **env)
            command, env = [sys.executable, *arguments], {**os.environ, **env}
            return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)

    def other_torch(self):
        content = _library.choose(PACKAGE, torch.__version__).read_bytes()
        self.assertEqual(content.count(MARK), 1)
        at = content.index(MARK) + len(MARK)
        return content[:at] + b"2.10" + content[at + 4 :]

    def test_import_torch_survives(self):
        code = """
import torch
assert not torch.netcl.is_available() and torch.netcl.device_count() == 0
print(torch.ones(2).sum().item())
def compile_kernel():
    from torch_netcl import compile_kernel
for f in (torch.netcl.__getattr__, lambda _: torch.ones(1, device="netcl"), lambda _: compile_kernel()):
    try:
        f("synchronize")
    except (AttributeError, ImportError, RuntimeError) as error:
        print(type(error).__name__, error)
"""
        broken = MARK + _library.minor_version(torch.__version__).encode() + b".0"
        cases = {"is not built": None, "built for torch 2.10": self.other_torch(), "ELF header|too short": broken}
        for expected, library in cases.items():
            done = self.run_with("-c", code, library=library, forked=library != broken)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, f"not available.*({expected})")
            first, *refusals = done.stdout.splitlines()
            self.assertEqual(first, "2.0")
            self.assertEqual([line.split()[0] for line in refusals], ["AttributeError", "RuntimeError", "ImportError"])
            for line in refusals:
                self.assertRegex(line, "compile_kernel" if line.startswith("ImportError") else expected)

    CODE = """
import torch
assert torch.ones(2).sum().item() == 2 and not torch.netcl.is_available()
try:
    torch.ones(1, device="netcl")
except RuntimeError as error:
    print(error)
"""

    def survives(self, done, expected):
        """`import torch` works, warns, and the first use of a device raises; both say why."""
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, expected)
        self.assertRegex(done.stderr, expected)

    def fails_the_wheel(self, done):
        """What tools/test_wheel.py runs in an empty environment fails, as it must for .ci/run to fail."""
        self.assertEqual(done.returncode, 1)
        self.assertIn("AssertionError: no device", done.stderr)

    CHECK = re.search(r'imports = "(.*)"', (Path(__file__).parents[1] / "tools" / "test_wheel.py").read_text())[1]

    def test_warnings_as_errors(self):
        done = self.run_with("-W", "error", "-c", self.CODE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("not built", done.stdout)

    def test_the_command_line_says_why(self):
        done = self.run_with("-m", "torch_netcl", "--check")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertRegex(done.stdout, r"torch +2\.[\s\S]*kernel cache.*\n\nThe OpenCL backend is not.*not built")

    def test_a_kernel_of_another_signature(self):
        """As torch 2.15 changed that of _scaled_mm_v2: the dispatcher raises while the operators are registered."""
        env = {**os.environ, "NETCL_TEST_FAULT": "signature"}
        done = subprocess.run([sys.executable, "-c", self.CODE], env=env, capture_output=True, text=True)
        self.survives(done, r"refuses _C.*\.so[\s\S]*relu")
        self.fails_the_wheel(python(self.CHECK, NETCL_TEST_FAULT="signature"))
        # Nothing of the library is left in the dispatcher.
        code = "import torch; print(torch._C._dispatch_dump_table('aten::add.Tensor').count('netcl'))"
        self.assertEqual(python(code, NETCL_TEST_FAULT="signature").stdout.strip(), "0")

    def test_a_missing_symbol(self):
        content = _library.choose(PACKAGE, torch.__version__).read_bytes()
        symbol = b"\0_ZN2at4_ops20convolution_backward4call"
        self.assertTrue(symbol in content)
        broken = content.replace(symbol, symbol[:-1] + b"k")
        done = self.run_with("-c", self.CODE, library=broken)
        self.survives(done, "undefined symbol: _ZN2at4_ops20convolution_backward4calk")
        self.fails_the_wheel(self.run_with("-c", self.CHECK, library=broken, forked=True))

    def test_another_backend(self):
        """torch has room for one, and the first is left alone."""
        code = """
import torch
torch.utils.rename_privateuse1_backend("other")
torch.__spec__._initializing = True  # as while torch calls the entry points
import torch_netcl
print(torch.device("other", 0), torch.netcl.is_available(), torch.netcl.reason)
"""
        done = python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "^other:0 False .*other has taken it")

    @unittest.skipUnless(shutil.which(os.environ.get("CC", "cc").split()[0]), "needs a C compiler")
    def test_a_driver_that_ends_the_process(self):
        """When it is loaded, and when it is asked for its platforms."""
        fault = "#include <stdlib.h>\nATTRIBUTE void* clGetExtensionFunctionAddress(const char* name) { abort(); }\n"
        for attribute in ("__attribute__((constructor))", ""):
            with tempfile.TemporaryDirectory() as folder:
                source, driver = Path(folder) / "driver.c", Path(folder) / "libdriver.so"
                source.write_text(fault.replace("ATTRIBUTE", attribute))
                command = [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", str(driver), str(source)]
                subprocess.run(command, check=True)
                (Path(folder) / "broken.icd").write_text(f"{driver}\n")
                env = {k: v for k, v in os.environ.items() if k != "NETCL_VISIBLE_DEVICES"}
                env["OCL_ICD_VENDORS"] = folder
                done = subprocess.run([sys.executable, "-c", self.CODE], env=env, capture_output=True, text=True)
                self.survives(done, "driver ends the process that looks for devices")
                self.fails_the_wheel(python(self.CHECK, NETCL_VISIBLE_DEVICES=None, OCL_ICD_VENDORS=folder))

    def test_an_explicit_import_raises(self):
        done = self.run_with("-c", "import torch, torch_netcl", autoload="0", forked=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "ImportError: torch_netcl is not built")


if __name__ == "__main__":
    run_tests()
