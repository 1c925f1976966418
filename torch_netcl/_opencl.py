"""Finds OpenCL before the extension loads: the ICD loader, and the runtimes that it should offer.

This runs at every ``import torch``, so it is pure Python and does not use torch. ICD loaders do not look where pip
installs runtimes: PoCL's .icd file is in pyopencl's wheel, Intel's is below ``sys.prefix`` and holds a wrong path.
`configure` writes a private folder with one .icd file per runtime, including the system's, and names it in
``OCL_ICD_VENDORS``, which ocl-icd and Khronos's loader both read. If the user has set that variable, it is left as
it is.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
LINKER_CACHE = Path("/etc/ld.so.cache")
#: If one of these is in the environment, the user has chosen the runtimes.
USER_VARIABLES = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH")
#: Distributions that contain an .icd file.
RUNTIME_DISTRIBUTIONS = ("pocl-binary-distribution", "intel-opencl-rt")
#: Drivers that containers often mount without their .icd file.
WELL_KNOWN_DRIVERS = ("libnvidia-opencl.so.1",)

_FOLDER_PREFIX = "torch_netcl-icd-"


@dataclass(frozen=True)
class Runtime:
    """One OpenCL runtime: a library that an ICD loader can open."""

    name: str  # of the .icd file, without the suffix
    library: str  # absolute path, or the bare name in the system's file
    origin: str  # "system" or "python"


@dataclass(frozen=True)
class LoaderInfo:
    """What `configure` found and did."""

    library: str | None  # what to dlopen: a path, or libOpenCL.so.1 if the system has one
    runtimes: tuple[Runtime, ...]  # empty if the user chose, see `vendors`
    vendors: str | None  # what the loader reads instead of the system's folder, if anything
    user_choice: bool  # one of USER_VARIABLES was set by the user


# --- cache folder -----------------------------------------------------------------------------------------


def _private_dir(path: Path) -> bool:
    """Create `path` with mode 0700 if needed; returns whether it is a folder that this user can write to."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, ValueError):
        return False
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)


def _only_ours(path: Path) -> bool:
    """Whether `path` is a folder that belongs to this user, and that nobody else can write to."""
    info = path.stat()
    return (
        stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _temporary_dir() -> Path:
    """A folder in the system's temporary folder that no other user can have prepared."""
    path = Path(tempfile.gettempdir()) / f"torch_netcl-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        info = path.lstat()
        mine = info.st_uid == os.getuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(info.st_mode) and mine and os.access(path, os.W_OK | os.X_OK):
            return path
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="torch_netcl-"))


def cache_dir() -> Path:
    """The folder for compiled kernels, which is created with mode 0700 if needed.

    It is NETCL_CACHE_DIR, else $XDG_CACHE_HOME/torch_netcl, else ~/.cache/torch_netcl. If that cannot be created or
    written to, a private folder in the temporary folder is used.
    """
    candidate: Path | None = None
    if explicit := os.environ.get("NETCL_CACHE_DIR"):
        candidate = Path(explicit)
    elif (xdg := os.environ.get("XDG_CACHE_HOME", "")) and os.path.isabs(xdg):
        candidate = Path(xdg) / "torch_netcl"
    else:
        candidate = Path("~/.cache/torch_netcl")
    try:
        candidate = candidate.expanduser().absolute()
    except RuntimeError:  # no home
        return _temporary_dir()
    return candidate if _private_dir(candidate) else _temporary_dir()


# --- the loader -------------------------------------------------------------------------------------------


def _loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _linker_finds(library: str) -> bool:
    """Whether the dynamic linker finds a bare name. It is not opened, since a broken driver may end the process."""
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), "/lib", "/usr/lib", "/lib64", "/usr/lib64"]
    if any(folder and os.path.isfile(os.path.join(folder, library)) for folder in folders):
        return True
    try:
        return b"/" + library.encode() + b"\0" in LINKER_CACHE.read_bytes()  # it lists paths
    except OSError:
        return False


def _pyopencl_libs() -> list[Path]:
    """The folders of pyopencl's wheel that hold shared libraries. This does not import pyopencl."""
    try:
        spec = importlib.util.find_spec("pyopencl")
    except (ImportError, ValueError):
        return []
    roots = list(spec.submodule_search_locations or ()) if spec else []
    folders = [folder for root in map(Path, roots) for folder in (root / ".libs", root.parent / "pyopencl.libs")]
    return [folder for folder in folders if folder.is_dir()]


def find_loader() -> str | None:
    """The ICD loader: NETCL_OPENCL_LIBRARY, else the system's, pyopencl's, or that of sys.prefix (conda, Intel)."""
    if override := os.environ.get("NETCL_OPENCL_LIBRARY"):
        return override
    if _loadable("libOpenCL.so.1"):
        return "libOpenCL.so.1"
    candidates = [path for folder in _pyopencl_libs() for path in sorted(folder.glob("libOpenCL*.so*"))]
    candidates.append(Path(sys.prefix) / "lib" / "libOpenCL.so.1")
    for path in candidates:
        if path.is_file() and _loadable(str(path)):
            return str(path)
    return None


# --- runtimes ---------------------------------------------------------------------------------------------


def _library_of(icd: Path, search: Iterable[Path]) -> str | None:
    """The library that an .icd file refers to: the path in it if that exists, else a file of that name in `search`."""
    try:
        written = icd.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if not written:
        return None
    if os.path.isabs(written) and os.path.isfile(written):
        return written
    for folder in search:
        path = folder / os.path.basename(written)
        if path.is_file():
            return str(path.absolute())
    return None


def _kind(library: str) -> str:
    """libpocl-21062cec.so, libpocl.so.2.9.0 -> libpocl. Two libraries of one kind must not be loaded into one process.
    """
    return os.path.basename(library).split(".")[0].split("-")[0]


def system_runtimes(vendors: Path = SYSTEM_VENDORS) -> list[Runtime]:
    """The runtimes of the system's vendors folder, except those whose library does not exist."""
    found = []
    for icd in sorted(vendors.glob("*.icd")) if vendors.is_dir() else []:
        try:
            written = icd.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        # The dynamic linker finds a bare name.
        if written and (not os.path.isabs(written) or os.path.isfile(written)):
            found.append(Runtime(icd.stem, written, "system"))
    return found


def _python_icds() -> list[Path]:
    """The .icd files of Python distributions and of this environment's prefix."""
    icds: list[Path] = []
    for name in RUNTIME_DISTRIBUTIONS:
        try:
            files = importlib.metadata.distribution(name).files or []
        except importlib.metadata.PackageNotFoundError:
            continue
        icds += [Path(os.path.abspath(f.locate())) for f in files if f.suffix == ".icd"]
    for folder in [*_pyopencl_libs(), Path(sys.prefix) / "etc" / "OpenCL" / "vendors"]:
        icds += sorted(folder.glob("*.icd"))
    return list(dict.fromkeys(icds))


def python_runtimes() -> list[Runtime]:
    """The runtimes that pip or conda installed, except the FPGA emulator, which is not useful for training."""
    found: dict[str, Runtime] = {}
    for icd in _python_icds():
        # <prefix>/etc/OpenCL/vendors/x.icd belongs to a library in <prefix>/lib, whatever path it holds.
        parents = icd.parents
        search = [icd.parent]
        if icd.parent.name == "vendors" and len(parents) > 3:
            search.append(parents[3] / "lib")
        library = _library_of(icd, search)
        if library and "_emu" not in icd.stem and "_emu" not in os.path.basename(library):
            found.setdefault(os.path.realpath(library), Runtime(icd.stem, library, "python"))
    return list(found.values())


def find_runtimes(vendors: Path = SYSTEM_VENDORS) -> list[Runtime]:
    """All runtimes of this machine. If two are of one kind, the system's is used."""
    runtimes = system_runtimes(vendors)
    kinds = {_kind(r.library) for r in runtimes}
    for runtime in python_runtimes():
        if _kind(runtime.library) not in kinds:
            kinds.add(_kind(runtime.library))
            runtimes.append(runtime)
    for library in WELL_KNOWN_DRIVERS:
        if _kind(library) not in kinds and _linker_finds(library):
            runtimes.append(Runtime(_kind(library).removeprefix("lib"), library, "system"))
    return runtimes


def _needs_linker(runtime: Runtime) -> bool:
    """Whether this is the PoCL of the wheel."""
    return runtime.origin == "python" and _kind(runtime.library) == "libpocl"


# --- private folders --------------------------------------------------------------------------------------


def _private_folder(prefix: str, files: dict[str, str], parent: Path, mode: int = 0o600) -> Path:
    """A folder in `parent` that holds `files`, {name: text}. Its name is derived from its content, so it never
    changes."""
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    folder = parent / (prefix + digest)
    # This process runs what the folder holds or names, so no other user may have written it.
    if not _only_ours(parent) or folder.is_symlink() or (folder.exists() and not _only_ours(folder)):
        raise PermissionError(f"others can write to {folder}")
    if folder.is_dir():
        return folder
    # The folder is filled under another name and renamed, so another process sees all of it or nothing.
    scratch = Path(tempfile.mkdtemp(prefix=".icd-", dir=parent))
    try:
        for name, text in files.items():
            (scratch / name).write_text(text, encoding="utf-8")
            (scratch / name).chmod(mode)
        os.rename(scratch, folder)
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)
        if not folder.is_dir():  # otherwise another process was faster
            raise
    return folder


def write_vendors(runtimes: Iterable[Runtime], parent: Path) -> Path:
    """A folder in `parent` with one .icd file per runtime."""
    files = {f"{i:02}-{r.name}.icd": r.library + "\n" for i, r in enumerate(runtimes)}
    return _private_folder(_FOLDER_PREFIX, files, parent)


def provide_linker() -> bool:
    """Whether PoCL finds ``ld``, with which it links each kernel: on PATH, or LLVM's in the package ziglang.

    For the latter, a script named ``ld`` is put into a folder at the end of PATH. Without either, PoCL ends the
    process at its first kernel.
    """
    if shutil.which("ld"):
        return True
    spec = importlib.util.find_spec("ziglang")
    zig = Path(next(iter(spec.submodule_search_locations or ()), "")) / "zig" if spec else Path()
    if not zig.is_file():
        return False
    script = {"ld": f"#!/bin/sh\nexec {shlex.quote(str(zig))} ld.lld \"$@\"\n"}
    for parent in (cache_dir, _temporary_dir):
        try:
            folder = _private_folder("torch_netcl-ld-", script, parent(), 0o700)
        except OSError:
            continue
        os.environ["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH"), str(folder))))
        return shutil.which("ld") is not None
    return False


def _users_choice() -> str | None:
    """The user's choice of runtimes, if any. A folder of ours that a parent process passed on is no choice."""
    for variable in USER_VARIABLES:
        value = os.environ.get(variable)
        if value and not os.path.basename(value.rstrip("/")).startswith(_FOLDER_PREFIX):
            return value
    return None


def _tame_pyopencl_loader(library: str | None) -> None:
    """Prepare the environment for the loader in pyopencl's wheel, which is a patched ocl-icd.

    The loader also lists the .icd files in $PYOPENCL_HOME/.libs, and crashes if the variable is not set. ``import
    pyopencl`` sets it, but may never happen. PoCL is in that folder, so it would be listed twice, or be added to
    the user's own choice. A folder that cannot exist avoids both.
    """
    if library is not None and Path(library).parent in _pyopencl_libs():
        if os.environ.get("PYOPENCL_HOME") in (None, "", str(Path(library).parent.parent)):
            os.environ["PYOPENCL_HOME"] = os.devnull


def configure(vendors: Path = SYSTEM_VENDORS) -> LoaderInfo:
    """Find the loader and the runtimes, and make all of them visible to the loader; never raises.

    It may set OCL_ICD_VENDORS, PYOPENCL_HOME, POCL_WORK_GROUP_SPECIALIZATION and PATH. Loaders read their
    environment once, so this must run before the first OpenCL call of the process.
    """
    library = find_loader()
    # PoCL would compile a kernel twice: for its binary, and for the size of the work-groups at its first launch.
    # netcl's kernels state that size in the source.
    os.environ.setdefault("POCL_WORK_GROUP_SPECIALIZATION", "0")
    _tame_pyopencl_loader(library)
    if (choice := _users_choice()) is not None:
        return LoaderInfo(library, (), choice, True)
    os.environ.pop("OCL_ICD_VENDORS", None)  # inherited from a parent that may have had other runtimes
    runtimes = tuple(find_runtimes(vendors))
    if any(map(_needs_linker, runtimes)) and not provide_linker():
        runtimes = tuple(runtime for runtime in runtimes if not _needs_linker(runtime))
        warnings.warn(
            "PoCL is left out: it links its kernels with `ld`, which is not on PATH. `pip install ziglang` brings one, "
            "and so does the system's package binutils.",
            stacklevel=2,
        )
    # If the system's folder lists all runtimes, the loader needs no help.
    if all((vendors / f"{r.name}.icd").is_file() and r.origin == "system" for r in runtimes):
        return LoaderInfo(library, runtimes, None, False)
    for parent in (cache_dir, _temporary_dir):
        try:
            folder = str(write_vendors(runtimes, parent()))
        except OSError:
            continue
        os.environ["OCL_ICD_VENDORS"] = folder
        return LoaderInfo(library, runtimes, folder, False)
    return LoaderInfo(library, runtimes, None, False)
