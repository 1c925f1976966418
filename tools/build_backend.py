"""setuptools' build backend, which builds for the torch that the package will run with.

The extension works with one minor version of torch. An isolated build would take the newest from the registry,
whatever the environment holds. So if the environment holds a torch, this backend uses it, and nothing is
downloaded. (uv hides the environment from the build; use ``--no-build-isolation`` there. Otherwise the build takes
the newest torch, and the package requires it.)
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from setuptools.build_meta import *  # noqa: F403

_TORCH = "torch>=2.11"


def _environment_with_torch() -> Path | None:
    folder = Path(sysconfig.get_paths()["purelib"])
    return folder if (folder / "torch" / "version.py").is_file() else None


def _requirements() -> list[str]:
    return [] if _environment_with_torch() else [_TORCH]


def get_requires_for_build_wheel(config_settings: dict | None = None) -> list[str]:
    """The requirements of PEP 517, with torch unless the environment holds it."""
    return _requirements()


def get_requires_for_build_editable(config_settings: dict | None = None) -> list[str]:
    """The requirements of PEP 660, with torch unless the environment holds it."""
    return _requirements()


def get_requires_for_build_sdist(config_settings: dict | None = None) -> list[str]:
    """The requirements of PEP 517, with torch unless the environment holds it: setup.py needs torch's headers."""
    return _requirements()


# Last, so that the tools of the isolated environment come first.
if (_folder := _environment_with_torch()) and str(_folder) not in sys.path:
    sys.path.append(str(_folder))

