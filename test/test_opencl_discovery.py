"""The search for the ICD loader and the OpenCL runtimes: the system's, pip's, both, none, the user's own."""

import ast
import ctypes
import importlib.metadata
import importlib.util
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from processes import python

SOURCE = Path(__file__).resolve().parents[1] / "torch_netcl" / "_opencl.py"


def load_module():
    """torch_netcl._opencl alone: without torch, and without setting up the device."""
    spec = importlib.util.spec_from_file_location("_opencl_under_test", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


oc = load_module()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    """The caller's variables do not count, and nothing is written outside tmp_path."""
    for variable in (*oc.USER_VARIABLES, "NETCL_OPENCL_LIBRARY", "XDG_CACHE_HOME", "PYOPENCL_HOME"):
        monkeypatch.setenv(variable, "")  # so that the values set by configure() are undone as well
        monkeypatch.delenv(variable)
    monkeypatch.setenv("NETCL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(oc.tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def no_python_runtimes(monkeypatch):
    """Pretends that pip has installed no runtime."""
    monkeypatch.setattr(oc, "_python_icds", lambda: [])
    monkeypatch.setattr(oc, "WELL_KNOWN_DRIVERS", ())


def make_icd(folder: Path, name: str, content: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.icd"
    path.write_text(content)
    return path


def make_library(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return str(path)


def installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def run_python(code: str, **env: str) -> str:
    """Runs a new Python with only the given OpenCL variables; returns its standard output."""
    unset = (*oc.USER_VARIABLES, "NETCL_OPENCL_LIBRARY", "PYOPENCL_HOME")
    clean = {k: v for k, v in os.environ.items() if k not in unset}
    clean.update(env, OPENCL_SOURCE=str(SOURCE))
    prelude = """
        import importlib.util, os, sys
        spec = importlib.util.spec_from_file_location("_opencl", os.environ["OPENCL_SOURCE"])
        oc = sys.modules["_opencl"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(oc)
    """
    program = textwrap.dedent(prelude) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program], env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


LIST_PLATFORMS = """
    import ctypes
    info = oc.configure()
    cl = ctypes.CDLL(info.library)
    count = ctypes.c_uint()
    cl.clGetPlatformIDs(0, None, ctypes.byref(count))
    ids = (ctypes.c_void_p * count.value)()
    cl.clGetPlatformIDs(count, ids, None)
    for platform in map(ctypes.c_void_p, ids):
        name = ctypes.create_string_buffer(256)
        assert cl.clGetPlatformInfo(platform, 0x0902, ctypes.c_size_t(256), name, None) == 0
        print(name.value.decode())
"""


# --- cache folder -----------------------------------------------------------------------------------------


def test_cache_dir_order(monkeypatch, tmp_path):
    assert oc.cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("NETCL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert oc.cache_dir() == tmp_path / "xdg" / "torch_netcl"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/invalid")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert oc.cache_dir() == tmp_path / "home" / ".cache" / "torch_netcl"


def test_cache_dir_is_private():
    folder = oc.cache_dir()
    assert folder.is_dir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_cache_dir_falls_back_to_a_temporary_one(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")  # even root cannot create a folder in a file
    monkeypatch.setenv("NETCL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    folder = oc.cache_dir()
    assert folder.is_dir() and folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert oc.cache_dir() == folder  # stable, so that the next process finds its kernels


def test_temporary_folder_that_others_may_write_to_is_not_used(monkeypatch, tmp_path):
    planted = tmp_path / f"torch_netcl-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    assert oc._temporary_dir() != planted
    planted.rmdir()
    (tmp_path / "elsewhere").mkdir()
    planted.symlink_to(tmp_path / "elsewhere")
    assert oc._temporary_dir() != planted


# --- runtimes ---------------------------------------------------------------------------------------------


def test_system_runtimes(tmp_path):
    vendors = tmp_path / "vendors"
    assert oc.system_runtimes(vendors) == []
    there = make_library(tmp_path / "libreal.so")
    make_icd(vendors, "a", there + "\n")
    make_icd(vendors, "b", "libbyname.so.1\n")
    make_icd(vendors, "c", str(tmp_path / "libgone.so"))
    make_icd(vendors, "d", "")
    assert [(r.name, r.library, r.origin) for r in oc.system_runtimes(vendors)] == [
        ("a", there, "system"),
        ("b", "libbyname.so.1", "system"),
    ]


def test_placeholder_path_is_resolved_next_to_the_prefix(monkeypatch, tmp_path):
    icd = make_icd(tmp_path / "etc/OpenCL/vendors", "intel-cpu", "/opt/placeholder/lib/libintelocl.so\n")
    emulator = make_icd(
        tmp_path / "etc/OpenCL/vendors", "intel-fpga_emu", "/opt/placeholder/lib/libintelocl_emu.so"
    )
    library = make_library(tmp_path / "lib/libintelocl.so")
    make_library(tmp_path / "lib/libintelocl_emu.so")
    monkeypatch.setattr(oc, "_python_icds", lambda: [icd, emulator])
    assert oc.python_runtimes() == [oc.Runtime("intel-cpu", library, "python")]


def test_library_beside_its_icd_file(monkeypatch, tmp_path):
    icd = make_icd(tmp_path / ".libs", "pocl", "libpocl-1234.so")  # no newline, no folder, as in the wheel
    library = make_library(tmp_path / ".libs/libpocl-1234.so")
    missing = make_icd(tmp_path / ".libs", "other", "libother.so")
    monkeypatch.setattr(oc, "_python_icds", lambda: [icd, missing, icd])
    assert oc.python_runtimes() == [oc.Runtime("pocl", library, "python")]


def test_one_runtime_of_a_kind(monkeypatch, tmp_path):
    vendors = tmp_path / "vendors"
    system = make_library(tmp_path / "usr/libpocl.so.2.9.0")
    make_icd(vendors, "pocl", system)
    icd = make_icd(tmp_path / ".libs", "pocl", "libpocl-1234.so")
    make_library(tmp_path / ".libs/libpocl-1234.so")
    monkeypatch.setattr(oc, "_python_icds", lambda: [icd])
    monkeypatch.setattr(oc, "WELL_KNOWN_DRIVERS", ())
    assert [r.library for r in oc.find_runtimes(vendors)] == [system]


def test_driver_without_an_icd_file(monkeypatch, tmp_path, no_python_runtimes):
    monkeypatch.setattr(oc, "WELL_KNOWN_DRIVERS", ("libc.so.6", "libthereisnone.so.1"))
    info = oc.configure(tmp_path / "vendors")
    assert [r.library for r in info.runtimes] == ["libc.so.6"]
    assert [p.read_text() for p in Path(info.vendors).iterdir()] == ["libc.so.6\n"]


# --- configure --------------------------------------------------------------------------------------------


def test_nothing_installed(monkeypatch, tmp_path, no_python_runtimes):
    monkeypatch.setattr(oc, "_loadable", lambda library: False)
    monkeypatch.setattr(oc, "_pyopencl_libs", lambda: [])
    monkeypatch.setattr(oc.sys, "prefix", str(tmp_path))
    assert oc.configure(tmp_path / "vendors") == oc.LoaderInfo(None, (), None, False)
    assert "OCL_ICD_VENDORS" not in os.environ


def test_system_alone_is_left_as_it_is(tmp_path, no_python_runtimes):
    vendors = tmp_path / "vendors"
    make_icd(vendors, "a", make_library(tmp_path / "libreal.so"))
    info = oc.configure(vendors)
    assert info.vendors is None and len(info.runtimes) == 1
    assert "OCL_ICD_VENDORS" not in os.environ


def test_system_and_python_together(monkeypatch, tmp_path):
    vendors = tmp_path / "vendors"
    system = make_library(tmp_path / "libgpu.so")
    make_icd(vendors, "gpu", system)
    icd = make_icd(tmp_path / ".libs", "pocl", "libpocl-1234.so")
    library = make_library(tmp_path / ".libs/libpocl-1234.so")
    monkeypatch.setattr(oc, "_python_icds", lambda: [icd])
    monkeypatch.setattr(oc, "WELL_KNOWN_DRIVERS", ())
    info = oc.configure(vendors)
    assert os.environ["OCL_ICD_VENDORS"] == info.vendors
    folder = Path(info.vendors)
    assert folder.parent == tmp_path / "cache" and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {p.name: p.read_text() for p in folder.iterdir()} == {
        "00-gpu.icd": system + "\n",
        "01-pocl.icd": library + "\n",
    }
    # The same again, as in a child process that inherited the variable: the folder is the same, and nothing is left
    # over.
    assert oc.configure(vendors) == info
    assert os.listdir(tmp_path / "cache") == [folder.name]


def test_inherited_folder_is_not_a_choice(monkeypatch, tmp_path, no_python_runtimes):
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "elsewhere" / "torch_netcl-icd-0123456789abcdef"))
    info = oc.configure(tmp_path / "vendors")
    assert not info.user_choice and "OCL_ICD_VENDORS" not in os.environ


@pytest.mark.parametrize("variable", oc.USER_VARIABLES)
def test_user_is_obeyed(monkeypatch, tmp_path, variable):
    monkeypatch.setenv(variable, "/my/own")
    info = oc.configure(tmp_path / "vendors")
    assert info.user_choice and info.vendors == "/my/own"
    assert {v: os.environ[v] for v in oc.USER_VARIABLES if v in os.environ} == {variable: "/my/own"}
    assert not (tmp_path / "cache").exists()


def test_unwritable_cache_uses_a_temporary_folder(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NETCL_CACHE_DIR", str(tmp_path / "file"))
    icd = make_icd(tmp_path / ".libs", "pocl", "libpocl-1234.so")
    make_library(tmp_path / ".libs/libpocl-1234.so")
    monkeypatch.setattr(oc, "_python_icds", lambda: [icd])
    info = oc.configure(tmp_path / "vendors")
    assert Path(info.vendors).parent == tmp_path / f"torch_netcl-{os.getuid()}"


def test_folder_that_others_may_write_to_is_not_used(tmp_path):
    """The library that an .icd file names is loaded into the process."""
    runtime = [oc.Runtime("a", "/a.so", "python")]
    folder = oc.write_vendors(runtime, tmp_path)
    assert oc.write_vendors(runtime, tmp_path) == folder
    folder.chmod(0o777)
    with pytest.raises(PermissionError):
        oc.write_vendors(runtime, tmp_path)
    folder.chmod(0o700)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        oc.write_vendors(runtime, tmp_path)
    folder.unlink()
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError):
        oc.write_vendors(runtime, tmp_path)


def test_failing_write_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(oc.os, "rename", lambda a, b: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        oc.write_vendors([oc.Runtime("a", "liba.so", "python")], tmp_path)
    assert os.listdir(tmp_path) == []


def test_lost_race_is_no_error(monkeypatch, tmp_path):
    runtimes = [oc.Runtime("a", "liba.so", "python")]
    rename = os.rename

    def other_process_first(source, target):
        os.mkdir(target)
        (Path(target) / "00-a.icd").write_text("liba.so\n")
        rename(source, target)  # fails, as the target is not empty

    monkeypatch.setattr(oc.os, "rename", other_process_first)
    folder = oc.write_vendors(runtimes, tmp_path)
    assert os.listdir(tmp_path) == [folder.name]

# --- the linker that PoCL calls -----------------------------------------------------------------------------


@pytest.fixture
def pocl_wheel(monkeypatch, tmp_path):
    """Pretends that PoCL's wheel is the only runtime, and that `ld` is not on PATH."""
    icd = make_icd(tmp_path / ".libs", "pocl", "libpocl-1234.so")
    make_library(tmp_path / ".libs/libpocl-1234.so")
    monkeypatch.setattr(oc, "_python_icds", lambda: [icd])
    monkeypatch.setattr(oc, "WELL_KNOWN_DRIVERS", ())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_pocl_without_a_linker_is_left_out(monkeypatch, tmp_path, pocl_wheel):
    monkeypatch.setattr(oc.importlib.util, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="PoCL is left out.*binutils"):
        assert oc.configure(tmp_path / "vendors").runtimes == ()
    assert os.environ["PATH"] == str(tmp_path / "bin")


def test_ziglang_has_a_linker_for_pocl(monkeypatch, tmp_path, pocl_wheel):
    package = tmp_path / "a folder's/ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "zig").write_text('#!/bin/sh\necho "$@"\n')
    (package / "zig").chmod(0o700)
    monkeypatch.syspath_prepend(package.parent)
    for _ in range(2):  # the second time is like a child process that inherited PATH
        assert [runtime.name for runtime in oc.configure(tmp_path / "vendors").runtimes] == ["pocl"]
        first, folder = os.environ["PATH"].split(os.pathsep)
        assert first == str(tmp_path / "bin")
        assert subprocess.check_output(["ld", "-o", "x y"], text=True) == "ld.lld -o x y\n"
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


# --- the loader -------------------------------------------------------------------------------------------


def test_loader_override(monkeypatch):
    monkeypatch.setenv("NETCL_OPENCL_LIBRARY", "/my/libOpenCL.so")
    assert oc.find_loader() == "/my/libOpenCL.so"


@pytest.mark.skipif(importlib.util.find_spec("pyopencl") is None, reason="needs pyopencl")
def test_loader_of_the_pyopencl_wheel(monkeypatch):
    if not any(folder.glob("libOpenCL*") for folder in oc._pyopencl_libs()):
        pytest.skip("this pyopencl carries no loader")
    loadable = oc._loadable
    monkeypatch.setattr(oc, "_loadable", lambda library: "/" in library and loadable(library))
    library = oc.find_loader()
    assert library is not None and hasattr(ctypes.CDLL(library), "clGetPlatformIDs")
    code = "oc.find_loader(); assert 'pyopencl' not in sys.modules and 'torch' not in sys.modules"
    run_python(code)


@pytest.mark.skipif(not oc.find_runtimes(), reason="no OpenCL runtime")
def test_real_loader_lists_every_pip_runtime():
    out = run_python(LIST_PLATFORMS)
    if installed("intel-opencl-rt"):
        assert "Intel(R) OpenCL" in out
        assert "FPGA" not in out
    if installed("pocl-binary-distribution"):
        assert "Portable Computing Language" in out
    assert len(set(out.splitlines())) == len(out.splitlines())  # no device twice


def test_users_choice_is_all_that_the_real_loader_lists():
    intel = [r.library for r in oc.python_runtimes() if "intelocl" in r.library]
    if not intel or oc.find_loader() is None:
        pytest.skip("needs Intel's runtime and a loader")
    assert run_python(LIST_PLATFORMS, OCL_ICD_VENDORS=intel[0]).splitlines() == ["Intel(R) OpenCL"]


@pytest.mark.skipif(importlib.util.find_spec("pyopencl") is None, reason="needs pyopencl")
@pytest.mark.skipif(not oc.find_runtimes(), reason="no OpenCL runtime")
def test_no_platform_twice_after_pyopencl():
    out = run_python("    import pyopencl" + LIST_PLATFORMS)
    assert len(set(out.splitlines())) == len(out.splitlines()) > 0


@pytest.mark.skipif(importlib.util.find_spec("pyopencl") is None, reason="needs pyopencl")
@pytest.mark.skipif(not oc.find_runtimes(), reason="no OpenCL runtime")
def test_pyopencl_sees_and_builds_on_the_same_runtimes():
    out = run_python(
        """
        oc.configure()
        import pyopencl as cl
        for platform in cl.get_platforms():
            for device in platform.get_devices():
                context = cl.Context([device])
                try:
                    # exp comes from the kernel library that PoCL must find beside itself
                    cl.Program(context, "kernel void f(global float *x) { *x = exp(*x); }").build()
                    print(platform.name, "ok")
                except cl.RuntimeError as error:
                    # An old PoCL on a CPU younger than its LLVM: the front end was found and refused.
                    assert "unknown target CPU" in str(error), error
                    print(platform.name, "old")
        """,
        PYOPENCL_NO_CACHE="1",
    )
    if installed("intel-opencl-rt"):
        assert "Intel(R) OpenCL ok" in out
    if installed("pocl-binary-distribution"):
        assert "Portable Computing Language" in out


@pytest.mark.skipif(not oc.find_runtimes(), reason="no OpenCL runtime")
def test_runtime_listed_twice_is_one_device(tmp_path):
    runtime = oc.find_runtimes()[0]
    for name in ("a", "b"):
        make_icd(tmp_path / "vendors", name, runtime.library)
    code = """if True:
        import torch, torch_netcl
        print([torch.netcl.get_device_name(i) for i in range(torch.netcl.device_count())])
    """
    done = python(code, OCL_ICD_VENDORS=str(tmp_path / "vendors"), NETCL_VISIBLE_DEVICES=None)
    assert done.returncode == 0, done.stderr
    names = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    assert len(names) == len(set(names)) == 1
