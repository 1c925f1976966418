"""Packs a folder, and a .tar.gz of it, that tests and times a GPU on a machine without network and compiler.

    python tools/gpu_bundle.py --python 3.12 --torch 2.11.0 [--wheel FILE] [--out dist/gpu-bundle]

It holds the wheel with the library for that torch (make_wheel.py builds it, unless a wheel is given), the wheels that
netcl and its tests need with that Python, the tests and the benchmarks. On the machine, `run.sh` unpacks what is
missing beside the torch that is there, and runs benchmarks/gpu.py. `make gpu-bundle` calls this.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import make_wheel
from test_wheel import target_options

ROOT = Path(__file__).resolve().parent.parent
#: numpy comes with torch in practice; the bundle holds none, since it would be two thirds of it.
PACKAGES = "pyopencl pytools siphash24 platformdirs typing_extensions expecttest hypothesis sortedcontainers pytest"
PACKAGES += " pytest-xdist execnet iniconfig pluggy packaging pygments tqdm"
LARGEST = 60 << 20
LEFT_OUT = ("torch_netcl/", "kernels/", "csrc/", "benchmarks/results/", ".ci/")
RUN = """#!/bin/sh
# Tests and times the first GPU, beside the torch of $PYTHON (default: python3). It writes to this folder, and the
# results to $OUT (default: results). README.txt says more.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
cd "$here/tree" || exit 1
exec "${PYTHON:-python3}" -B -m benchmarks.gpu --wheels "$here/wheels" --out "${OUT:-$here/results}" "$@"
"""
README = """torch_netcl {version} for torch {torch}, Python {python}, {machine}

sh run.sh                     tests and times the first GPU in 15 minutes
sh run.sh --minutes 9         does less
sh run.sh device check gemm   runs some stages
sh run.sh --any-device        rehearses on a CPU

It needs a Python with torch and numpy, no network, no compiler. PYTHON chooses the interpreter, OUT the folder of the
results: page.md, results.json, log.txt (all that was printed), kept.tar.gz (what failures left).
docs/gpu.md in torch_netcl's repository says what the page shows.
"""


def download(python: str, machine: str, to: Path) -> None:
    """Fetch the wheels of PACKAGES for a Python that need not be here."""
    to.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--dest", to]
    subprocess.run([*pip, *target_options(python, machine), *PACKAGES.split()], check=True)


def build(version: str) -> Path:
    """The wheel with the library for a version of torch."""
    libraries, out = make_wheel.WORK / "bundle-libraries", make_wheel.WORK / "bundle"
    for folder in (libraries, out):
        shutil.rmtree(folder, ignore_errors=True)
    libraries.mkdir(parents=True)
    make_wheel.build(make_wheel.torch_folder(version), libraries)
    return make_wheel.pack(libraries, out)


def copy_tree(to: Path) -> None:
    """Copy tests, benchmarks and what they use, but not the package, which the wheel has."""
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        if not name.startswith(LEFT_OUT):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def version_of(wheel: Path) -> str:
    """The version in a wheel's name, after checking that it can be read."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None, wheel
    return wheel.name.split("-")[1]


def main() -> int:
    """Build the bundle that the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12", metavar="VERSION")
    parser.add_argument("--torch", default="2.11.0", metavar="VERSION", help="or the folder of a torch package")
    parser.add_argument("--wheel", type=Path, help="a wheel that has the library for that torch")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "gpu-bundle")
    args = parser.parse_args()
    wheel = args.wheel or build(args.torch)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / args.out.name
        download(args.python, platform.machine(), bundle / "wheels")
        shutil.copy(wheel, bundle / "wheels")
        copy_tree(bundle / "tree")
        facts = {"version": version_of(wheel), "torch": args.torch, "python": args.python}
        (bundle / "README.txt").write_text(README.format(**facts, machine=platform.machine()))
        (bundle / "run.sh").write_text(RUN)
        (bundle / "run.sh").chmod(0o755)
        shutil.rmtree(args.out, ignore_errors=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(bundle, args.out)
    packed = args.out.with_name(args.out.name + ".tar.gz")
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(args.out, args.out.name)
    size = size_of(args.out)
    print(f"{args.out}: {size / 2**20:.1f} MiB; {packed.name}: {packed.stat().st_size / 2**20:.1f} MiB")
    return int(size > LARGEST)


if __name__ == "__main__":
    sys.exit(main())
