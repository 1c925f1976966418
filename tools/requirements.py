"""Prints what pip should install for the given extras of pyproject.toml.

    python tools/requirements.py intel,demo

So packages can be installed before torch_netcl itself is built.
"""

import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10: pip brings its own
    from pip._vendor import tomli as tomllib


def requirements(extras: list[str]) -> list[str]:
    """The requirements of these extras; raises KeyError for a name that is none."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    return [line for extra in extras for line in project["optional-dependencies"][extra]]


if __name__ == "__main__":
    print(*requirements(sys.argv[1].split(",")))
