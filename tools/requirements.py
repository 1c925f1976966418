"""Prints what pip should install for the given extras of pyproject.toml.

    python tools/requirements.py intel,demo

So packages can be installed before torch_netcl itself is built. Those whose marker names another platform are left out.
"""

import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10: pip brings its own
    from pip._vendor import tomli as tomllib
from pip._vendor.packaging.requirements import Requirement


def requirements(extras: list[str]) -> list[str]:
    """The requirements of these extras on this platform, without markers; raises KeyError for a name that is none."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    lines = [Requirement(line) for extra in extras for line in project["optional-dependencies"][extra]]
    return [str(line).partition(";")[0] for line in lines if line.marker is None or line.marker.evaluate()]


if __name__ == "__main__":
    print(*requirements(sys.argv[1].split(",")))
