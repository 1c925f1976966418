"""Installs a wheel as a new user would, without network, imports torch and runs the README's example on PoCL.

    python tools/test_wheel.py dist/torch_netcl-0.1.0-py3-none-manylinux_2_28_x86_64.whl 2.13.0 2.15.0

For each version of torch, ``pip download`` first fills a wheelhouse (build/wheelhouse, which is kept). An empty
virtual environment then installs from it alone. PATH holds only that environment (no compiler, no make), and none
of the caller's variables are set. Prints a table of the times, and fails if one version does: if netcl has no device
after `import torch`, or if the example does not run on the device or its loss is wrong.

With --fetch, only the wheelhouses are filled, before there is a wheel if none is given (``--fetch - 2.15.0``). With
--offline, nothing is fetched, so every failure is the wheel's. With --smoke, these test files (``library`` is
test/test_library.py) then run against the installed wheel, on Intel's runtime.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "build" / "wheelhouse"
EXTRAS = "pocl,intel,test"
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


def target_options(python: str, machine: str) -> list[str]:
    """pip's options for the wheels of another Python, such as 3.12, or another machine, on a Linux of the last years.

    pip compares the tags by name.
    """
    tags = [*(f"manylinux_2_{minor}" for minor in range(5, 42)), "manylinux2014", "manylinux2010", "manylinux1"]
    platforms = [word for tag in tags for word in ("--platform", f"{tag}_{machine}")]
    return ["--python-version", python, "--implementation", "cp", *platforms]


def fetch(wheel: Path | None, torch: str, python: str, extras: str) -> None:
    """Download what `torch` needs, and `wheel` with its `extras` if there is one."""
    house = house_of(torch)
    house.mkdir(parents=True, exist_ok=True)
    pip = [python, "-m", "pip", "download", "-q", "--only-binary=:all:", "--find-links", house, "--dest", house]
    timed(f"{torch}: download", [*pip, *([f"{wheel}[{extras}]"] if wheel else []), torch])


def run_smoke(torch: str, files: list[str], work: Path, python: Path, env: dict[str, str]) -> float:
    """Run test files in a copy of the tree that lacks torch_netcl, so that they find the installed one."""
    tree = work / "tree"
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        if not name.startswith("torch_netcl/"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    # Kernels are the same for every torch. Tests may call the system's programs.
    env = {**env, "NETCL_VISIBLE_DEVICES": "intel", "NETCL_CACHE_DIR": str(HOUSE / "kernels")}
    env["PATH"] += os.pathsep + os.defpath
    where = "import torch, torch_netcl; assert 'site-packages' in torch_netcl.__file__, torch_netcl.__file__"
    timed(f"{torch}: the installed package", [python, "-c", where], env=env, cwd=tree)
    pytest = [python, "-m", "pytest", "-q", "-n2", "--dist=loadfile", "-mquick"]
    return timed(f"{torch}: smoke", [*pytest, *(f"test/test_{name}.py" for name in files)], env=env, cwd=tree)


def test(wheel: Path, torch: str, python: str, smoke: list[str]) -> list[float]:
    """Install `wheel` in a new environment; returns the times of that, of the import, of the example with cold
    caches and once more, and of the tests in `smoke`."""
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
        times = [timed(f"{torch}: install", [*pip, f"torch_netcl[{EXTRAS if smoke else 'pocl'}]", torch], **options)]
        imports = "import torch; assert torch.netcl.is_available(), 'no device'"
        times.append(timed(f"{torch}: import", [venv / "bin/python", "-c", imports], **options))
        (work / "example.py").write_text(example() + CHECK + CHECK_POCL)
        for state in ("cold", "warm"):
            times.append(timed(f"{torch}: example, {state}", [venv / "bin/python", "example.py"], **options))
        if smoke:
            times.append(run_smoke(torch, smoke, work, venv / "bin/python", alone))
    return times


def main() -> int:
    """Test the wheel named on the command line with each version of torch; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("torch", nargs="+", help="versions; pip's requirements, e.g. torch==2.15.0, also do")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the new environment")
    parser.add_argument("--smoke", default="", help="test files without test_ and .py, e.g. 'library autocast'")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--fetch", action="store_true", help="fill the wheelhouses only")
    only.add_argument("--offline", action="store_true", help="test with what is in the wheelhouses")
    arguments = parser.parse_args()
    wheel = None if str(arguments.wheel) == "-" else arguments.wheel.absolute()
    if wheel and not wheel.stem.endswith(platform.machine()):
        parser.error(f"{wheel.name} is not for this machine; tools/test_aarch64.py runs one for aarch64 elsewhere")
    smoke = arguments.smoke.split()
    rows, failed = [], False
    for version in arguments.torch:
        torch = version if "torch" in version else f"torch=={version}"
        if not arguments.offline:
            fetch(wheel, torch, arguments.python, EXTRAS if smoke else "pocl")
        if arguments.fetch:
            continue
        try:
            times = " | ".join(f"{seconds:.1f} s" for seconds in test(wheel, torch, arguments.python, smoke))
        except subprocess.CalledProcessError as error:
            failed, times = True, f"FAILED: {' '.join(error.cmd[-2:])} | | |{' |' if smoke else ''}"
        rows.append(f"| {torch} | {times} |")
    if rows:
        titles = ["", "install", "import", "README's example, cold", "warm", *(["smoke suite"] if smoke else [])]
        print(f"\n| {' | '.join(titles)} |\n|{'---|' * len(titles)}", *rows, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
