"""Installs a wheel as a new user would, without network, imports torch and runs the README's example on PoCL.

    python tools/test_wheel.py dist/torch_netcl-0.1.0-py3-none-manylinux_2_28_x86_64.whl 2.13.0 2.15.0

For each version of torch, ``pip download`` first fills a wheelhouse (build/wheelhouse, which is kept). An empty
virtual environment then installs from it alone. PATH holds only that environment (no compiler, no make), and none
of the caller's variables are set. Prints a table of the times, and fails if one version does: if netcl has no device
after `import torch`, or if the example does not run on the device or its loss is wrong.

With --fetch, only the wheelhouses are filled, before there is a wheel if none is given (``--fetch - 2.15.0``). With
--offline, nothing is fetched, so every failure is the wheel's.
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


def timed(what: str, command: list[str | Path], **options) -> float:
    """Run a command, print how long it took, and return that; raises CalledProcessError."""
    began = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, **options)
    seconds = time.monotonic() - began
    print(f"{what}: {seconds:.1f} s", flush=True)
    return seconds


def house_of(torch: str) -> Path:
    """The wheelhouse for a requirement of torch."""
    return HOUSE / re.sub(r"[^\w.]+", "-", torch)


def fetch(wheel: Path | None, torch: str, python: str) -> None:
    """Download what `torch` needs, and `wheel` if there is one."""
    house = house_of(torch)
    house.mkdir(parents=True, exist_ok=True)
    pip = [python, "-m", "pip", "download", "-q", "--only-binary=:all:", "--find-links", house, "--dest", house]
    timed(f"{torch}: download", [*pip, *([f"{wheel}[pocl]"] if wheel else []), torch])


def test(wheel: Path, torch: str, python: str) -> list[float]:
    """Install `wheel` in a new environment; returns the times of that, of the import, and of the example with cold
    caches and once more."""
    house = house_of(torch)
    for old in house.glob("torch_netcl-*"):
        old.unlink()
    shutil.copy(wheel, house)
    with tempfile.TemporaryDirectory() as folder:
        venv, work = Path(folder) / "venv", Path(folder) / "work"
        work.mkdir()
        timed("empty environment", [python, "-m", "venv", venv])
        alone = {"PATH": str(venv / "bin"), "HOME": str(work), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
        alone["NETCL_VISIBLE_DEVICES"] = "pocl"  # the system may have others
        for tool in ("cc", "gcc", "g++", "c++", "clang", "make", "ninja", "ld"):
            assert shutil.which(tool, path=alone["PATH"]) is None, tool
        options = {"env": alone, "cwd": work}
        pip = [venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--find-links", house]
        times = [timed(f"{torch}: install", [*pip, "torch_netcl[pocl]", torch], **options)]
        imports = "import torch; assert torch.netcl.is_available(), 'no device'"
        times.append(timed(f"{torch}: import", [venv / "bin/python", "-c", imports], **options))
        (work / "example.py").write_text(example() + CHECK + CHECK_POCL)
        for state in ("cold", "warm"):
            times.append(timed(f"{torch}: example, {state}", [venv / "bin/python", "example.py"], **options))
    return times


def main() -> int:
    """Test the wheel named on the command line with each version of torch; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("torch", nargs="+", help="versions; pip's requirements, e.g. torch==2.15.0, also do")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the new environment")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--fetch", action="store_true", help="fill the wheelhouses only")
    only.add_argument("--offline", action="store_true", help="test with what is in the wheelhouses")
    arguments = parser.parse_args()
    wheel = None if str(arguments.wheel) == "-" else arguments.wheel.absolute()
    rows, failed = [], False
    for version in arguments.torch:
        torch = version if "torch" in version else f"torch=={version}"
        if not arguments.offline:
            fetch(wheel, torch, arguments.python)
        if arguments.fetch:
            continue
        try:
            times = " | ".join(f"{seconds:.1f} s" for seconds in test(wheel, torch, arguments.python))
        except subprocess.CalledProcessError as error:
            failed, times = True, f"FAILED: {' '.join(error.cmd[-2:])} | | |"
        rows.append(f"| {torch} | {times} |")
    if rows:
        print("\n| | install | import | README's example, cold | warm |\n|---|---|---|---|---|", *rows, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
