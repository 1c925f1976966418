"""Installs a wheel as a new user would, without network, runs the README's example on PoCL, and prints the times.

    python tools/test_wheel.py dist/torch_netcl-0.1.0-py3-none-manylinux_2_28_x86_64.whl 2.13.0 2.15.0

For each version of torch, ``pip download`` first fills a wheelhouse (build/wheelhouse, which is kept). An empty
virtual environment then installs from it alone. PATH holds only that environment (no compiler, no make), and none
of the caller's variables are set. Fails if the example does not run on the device or if its loss is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "build" / "wheelhouse"
# What follows the example; the second part holds for the wheel's [pocl].
CHECK = """
assert loss.device.type == "netcl" and 1.5 < loss.item() < 2.5, loss
"""
CHECK_POCL = """
import platform
assert torch.netcl.get_device_properties().platform_name == "Portable Computing Language"
print("torch", torch.__version__, "on", torch.netcl.get_device_name(), "Python", platform.python_version())
"""


def example() -> str:
    """The README's Python code."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return code


def timed(what: str, command: list[str | Path], **options) -> None:
    """Run a command and print how long it took; raises CalledProcessError."""
    began = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, **options)
    print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)


def fill(house: Path, wheel: Path, torch: str, python: str) -> None:
    """Download everything that the wheel and `torch` need to `house`."""
    house.mkdir(parents=True, exist_ok=True)
    pip = [python, "-m", "pip", "download", "-q", "--only-binary=:all:", "--find-links", house, "--dest", house]
    timed(f"torch {torch}: download", [*pip, f"{wheel}[pocl]", torch])


def run(house: Path, torch: str, python: str) -> None:
    """Install from `house` into a new environment and run the example there, first with cold caches, then again."""
    with tempfile.TemporaryDirectory() as folder:
        venv, work = Path(folder) / "venv", Path(folder) / "work"
        work.mkdir()
        timed("empty environment", [python, "-m", "venv", venv])
        alone = {"PATH": str(venv / "bin"), "HOME": str(work), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
        for tool in ("cc", "gcc", "g++", "c++", "clang", "make", "ninja", "ld"):
            assert shutil.which(tool, path=alone["PATH"]) is None, tool
        options = {"env": alone, "cwd": work}
        pip = [venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--find-links", house]
        timed(f"torch {torch}: install", [*pip, "torch_netcl[pocl]", torch], **options)
        (work / "example.py").write_text(example() + CHECK + CHECK_POCL)
        for state in ("cold", "warm"):
            timed(f"torch {torch}: example, {state}", [venv / "bin/python", "example.py"], **options)


def main() -> None:
    """Test the wheel named on the command line with each version of torch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("torch", nargs="+", help="versions; pip's requirements, e.g. torch==2.15.0, also do")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the new environment")
    arguments = parser.parse_args()
    for version in arguments.torch:
        torch = version if "torch" in version else f"torch=={version}"
        house = HOUSE / re.sub(r"[^\w.]+", "-", torch)
        for old in house.glob("torch_netcl-*"):
            old.unlink()
        fill(house, arguments.wheel.absolute(), torch, arguments.python)
        shutil.copy(arguments.wheel, house)
        run(house, torch, arguments.python)


if __name__ == "__main__":
    main()
