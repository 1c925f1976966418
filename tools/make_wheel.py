"""Builds one wheel that holds a library for each of several versions of torch; torch_netcl picks one at import.

    python tools/make_wheel.py 2.13.0 2.15.0 [--arch aarch64] [--out dist]

pip downloads each torch's wheel, unless it is in the wheelhouse of test_wheel.py. Only the headers, libc10.so and
libtorch_cpu.so are taken out of it; torch is not installed. (The folder of a torch package may be given instead of a
version.) auditwheel, which must be installed, checks where the result can run, and names the wheel accordingly. This
needs a compiler, patchelf and the environment that builds torch_netcl. It may run inside a manylinux container or
elsewhere (see older_symbols.py).

With --arch, it compiles for another machine, such as aarch64, by Debian's compiler for that one. Nothing of that
machine runs here, but tools/test_aarch64.py runs the wheel.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from test_wheel import house_of, target_options

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheel"
HERE = platform.machine()
# torch's own libraries, which the user installs.
EXCLUDED = ("libc10.so", "libtorch_cpu.so")
PARTS = ("torch/include/", "torch/version.py", *(f"torch/lib/{name}" for name in EXCLUDED))


def run(*command: str | Path, **environment: str) -> None:
    """Run a command in the tree; raises CalledProcessError."""
    subprocess.run([str(word) for word in command], cwd=ROOT, env={**os.environ, **environment}, check=True)


def program(name: str, arch: str) -> str:
    """The compiler, or the program of binutils, that makes files for `arch`; SystemExit if Debian's is missing."""
    if arch == HERE:
        return name
    command = f"{arch}-linux-gnu-{name}"
    if not shutil.which(command):
        raise SystemExit(f"{command} is missing: apt-get install g++-{arch.replace('_', '-')}-linux-gnu")
    return command


def compilers(arch: str) -> dict[str, str]:
    """The variables by which setup.py compiles for `arch`; none for this machine."""
    if arch == HERE:
        return {}
    variables = {"CC": program("gcc", arch), "CXX": program("g++", arch)}
    if "NETCL_OPENCL_INCLUDE" not in os.environ:
        # That compiler does not look into /usr/include, and must not.
        folders = (folder for entry in map(Path, sys.path) for folder in entry.glob("nvidia/*/include"))
        if found := next((folder for folder in folders if (folder / "CL/cl.h").is_file()), None):
            variables["NETCL_OPENCL_INCLUDE"] = str(found)
    return variables


def torch_folder(version: str, arch: str = HERE) -> Path:
    """A folder with the headers and libraries of a torch version, downloaded if needed."""
    if (Path(version) / "version.py").is_file():
        return Path(version).absolute()
    name = version if arch == HERE else f"{version}-{arch}"
    unpacked = WORK / f"torch-{name}"
    if not (unpacked / "torch/version.py").is_file():
        downloads = WORK / f"download-{name}"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        if arch != HERE:
            pip += target_options(".".join(platform.python_version_tuple()[:2]), arch)
        house = next(house_of(f"torch=={version}").glob(f"torch-{version}*{arch}.whl"), None)
        if not house:
            run(*pip, "--dest", downloads, f"torch=={version}")
        with zipfile.ZipFile(house or next(downloads.glob("torch-*.whl"))) as wheel:
            # version.py comes last: its presence means that everything else is there.
            for name in sorted(wheel.namelist(), key="torch/version.py".__eq__):
                if name.startswith(PARTS):
                    wheel.extract(name, unpacked)
        shutil.rmtree(downloads, ignore_errors=True)
    return unpacked / "torch"


def build(torch: Path, libraries: Path, arch: str = HERE) -> Path:
    """Compile and link for one torch; returns ``_C-2.13.so`` in `libraries`."""
    version: dict = {}
    exec((torch / "version.py").read_text(), version)
    minor = ".".join(version["__version__"].split(".")[:2])
    # As many folder levels as build/temp has, so that the relative paths are the same for ccache.
    name = minor if arch == HERE else f"{minor}-{arch}"
    temp, place = ROOT / f"build/temp-{name}", ROOT / f"build/lib-{name}"
    run(
        *(sys.executable, "setup.py", "build_ext", "--build-temp", temp, "--build-lib", place),
        NETCL_BUILD_TORCH=str(torch),
        NETCL_BUILD_MANYLINUX="1",
        NETCL_BUILD_CHECK_KERNELS=os.environ.get("NETCL_BUILD_CHECK_KERNELS", "1"),
        **compilers(arch),
    )
    library = libraries / f"_C-{minor}.so"
    shutil.copyfile(place / "torch_netcl/_C.so", library)
    run(program("strip", arch), "--strip-unneeded", library)
    return library


def audit(wheel: Path, checked: Path, arch: str = HERE) -> Path:
    """The wheel named after the systems that can run it, in `checked`; CalledProcessError or RuntimeError if those of
    manylinux_2_28 cannot."""
    excluded = [f"--exclude={name}" for name in EXCLUDED]
    # auditwheel takes the names of its own machine only; for another it chooses the oldest.
    tag = f"manylinux_2_28_{arch}" if arch == HERE else "auto"
    auditwheel = (sys.executable, "-m", "auditwheel")
    run(*auditwheel, "repair", "--plat", tag, "--only-plat", *excluded, "--wheel-dir", checked, wheel)
    named = next(checked.glob("*.whl"))
    if not (match := re.search(rf"manylinux_2_(\d+)_{arch}\.whl$", named.name)) or int(match[1]) > 28:
        raise RuntimeError(f"{named.name} does not run on manylinux_2_28")
    return named


def pack(libraries: Path, out: Path, arch: str = HERE) -> Path:
    """The wheel of all `libraries`, checked and named by auditwheel."""
    plain, checked, base = WORK / "plain", WORK / "checked", WORK / "base"
    for folder in (plain, checked, base):
        shutil.rmtree(folder, ignore_errors=True)
    base.mkdir(parents=True)
    # The build folder must be empty, since anything in it would be packed as well.
    (base / "setup.cfg").write_text(f"[build]\nbuild_base = {base}\n[bdist_wheel]\nplat_name = linux_{arch}\n")
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", plain, ROOT),
        NETCL_LIBRARIES=str(libraries),
        DIST_EXTRA_CONFIG=str(base / "setup.cfg"),
    )
    wheel = audit(next(plain.glob("*.whl")), checked, arch)
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(wheel, out / wheel.name))


def main() -> None:
    """Build for each version named on the command line, then pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch", nargs="+", help="versions, or folders of torch packages")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--arch", default=HERE, help="the machine that the wheel is for, as `uname -m` names it")
    arguments = parser.parse_args()
    compilers(arguments.arch)  # before the downloads
    libraries = WORK / "libraries"
    shutil.rmtree(libraries, ignore_errors=True)
    libraries.mkdir(parents=True)
    for version in arguments.torch:
        torch = torch_folder(version, arguments.arch)
        began = time.monotonic()
        library = build(torch, libraries, arguments.arch)
        print(f"{library.name}: {library.stat().st_size / 2**20:.1f} MiB, {time.monotonic() - began:.0f} s", flush=True)
    wheel = pack(libraries, arguments.out, arguments.arch)
    print(f"{wheel}: {wheel.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
