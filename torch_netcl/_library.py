"""Chooses the build of the extension for the installed torch, and replaces ``torch.netcl`` if there is none."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import re
import sys
import types
import warnings
from pathlib import Path

import torch

# As in csrc/Module.cpp. The file is searched before it is loaded, since the static initialisers of a library that was
# built for another torch would end the process.
_MARK = re.compile(rb"netcl built for torch (\d+\.\d+)")


def minor_version(version: str) -> str:
    """``"2.13.0+cpu"`` -> ``"2.13"``: the part of the version that determines the C++ interface."""
    return ".".join(version.split(".")[:2])


def built_for(library: Path) -> str:
    """The minor version of torch that a library was built for, or ``""`` if it does not say."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        mark = _MARK.search(content)
        return mark[1].decode() if mark else ""


def choose(folder: Path, torch_version: str) -> Path:
    """The library in ``folder`` that was built for ``torch_version``; raises ImportError if there is none.

    A build in the source tree creates ``_C.so``. A wheel may hold one library per version, ``_C-2.13.so`` and so
    on.
    """
    wanted = minor_version(torch_version)
    found = {library: built_for(library) for library in sorted(folder.glob("_C*.so"))}
    for library, version in found.items():
        if version == wanted:
            return library
    if found:
        versions = " and ".join(sorted(set(filter(None, found.values()))))
        raise ImportError(
            f"torch_netcl was built for torch {versions or 'of another version'} and this is torch {torch_version}: "
            f"install torch {versions}, or run `pip install --no-build-isolation .` in torch_netcl's sources."
        )
    raise ImportError(
        f"torch_netcl is not built: there is no _C.so in {folder}. Run `pip install --no-build-isolation -e .` in its "
        "folder, or start Python elsewhere if torch_netcl is installed."
    )


def load(library: Path) -> None:
    """Open ``library`` and register its operators; raises ImportError if torch does not accept them."""
    other = torch._C._get_privateuse1_backend_name()
    if other not in ("privateuseone", "netcl"):
        raise ImportError(f"torch has room for one backend from outside, and {other} has taken it.")
    torch.ops.load_library(str(library))
    register = ctypes.CDLL(str(library)).netcl_register  # csrc/aten/support/Library.cpp
    register.restype = ctypes.c_char_p
    if refusal := register():
        raise ImportError(
            f"torch {torch.__version__} refuses {library.name}, which was built for torch {built_for(library)}: "
            + refusal.decode(errors="replace")
        )


def torch_is_being_imported() -> bool:
    """Whether torch imports this package, through its entry point, in the middle of its own import."""
    return bool(getattr(torch.__spec__, "_initializing", False))


def runs_as_program() -> bool:
    """Whether this is ``python -m torch_netcl``, which says what is wrong."""
    words = sys.orig_argv
    return sys.argv[:1] == ["-m"] and any(words[i : i + 2] == ["-m", "torch_netcl"] for i in range(len(words)))


class Unavailable(types.ModuleType):
    """``torch.netcl`` if the extension did not load: it has no device, and other attributes raise an error with the
    reason."""

    def __init__(self, reason: str):
        super().__init__("torch.netcl", "The OpenCL backend, which could not be loaded.")
        self.reason = reason

    def is_available(self) -> bool:
        """False."""
        return False

    def is_initialized(self) -> bool:
        """False."""
        return False

    def device_count(self) -> int:
        """0."""
        return 0

    def _lazy_init(self) -> None:
        raise RuntimeError(self.reason)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"torch.netcl.{name}: {self.reason}")


def give_up(error: Exception) -> None:
    """Warn, and make ``torch.netcl`` a module without a device: ``import torch`` must not fail because of torch_netcl.
    """
    cause = f": {error.__cause__}" if error.__cause__ else ""
    reason = f"The OpenCL backend is not available. {error}{cause}"
    if not runs_as_program():
        with contextlib.suppress(Warning):  # python -W error
            warnings.warn(reason, stacklevel=2)
    # It raises if another package has given this backend a name.
    with contextlib.suppress(RuntimeError):
        torch.utils.rename_privateuse1_backend("netcl")
    # As torch._register_device_module() does, which raises if there is a module already.
    torch.netcl = sys.modules["torch.netcl"] = Unavailable(reason)
