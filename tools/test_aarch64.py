"""Runs the wheel for aarch64 on an x86-64 machine: the self-test, the README's example, and programs of all families.

    python tools/test_aarch64.py --fetch                   torch, its requirements and Debian's packages
    python tools/make_wheel.py --arch aarch64 build/aarch64/system/opt/python/torch
    python tools/test_aarch64.py dist/torch_netcl-0.1.0-py3-none-manylinux_2_28_aarch64.whl

`make test-aarch64` does all three. Prints the times, and fails if one part fails. What they are for lies in
build/aarch64 (1.5 GB with PyPI's torch), and a second run takes it from there:

- system: packages of Debian 13 for aarch64, unpacked: Python, the OpenCL loader, PoCL and what these need. The
  processes run with it as their root in a namespace of their own, so they need no rights of this system and do not
  change it.
- qemu-aarch64 of Debian 13. That of Debian 12 does not do: PyTorch ends when it reads /proc/cpuinfo, and memory that
  is reserved takes some of the host's. Every program of the root is replaced by one of this machine that calls qemu
  with the former (CALLER), so the kernel need not know how to start such programs.
- system/opt/python: torch and what it imports. PyPI's torch is a CUDA build. Libraries that only have the names and
  symbols of CUDA's take the place of these, which would be 2 GB.

It needs Debian on x86-64 with a C compiler and g++-aarch64-linux-gnu. The times say nothing of aarch64's speed: under
qemu, `import torch` takes 25 s.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from older_symbols import output, program
from test_wheel import CHECK, example, target_options

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "aarch64"
SYSTEM = WORK / "system"
SUITE = "trixie"
COMPILER = ("aarch64-linux-gnu-g++",)
DEBIAN = "python3 pocl-opencl-icd ocl-icd-libopencl1 libgomp1"
PYPI = "numpy pyopencl pytools siphash24 platformdirs typing_extensions sympy mpmath networkx jinja2 markupsafe"
PYPI += " filelock fsspec setuptools"
# Started under the name of a program for aarch64, which now ends in .aarch64.
CALLER = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char** words) {
  char program[4096];
  const ssize_t size = readlink("/proc/self/exe", program, sizeof program - 9);
  if (size < 0) return perror("/proc/self/exe"), 127;
  strcpy(program + size, ".aarch64");
  char* command[count + 4];
  command[0] = "/opt/qemu-aarch64", command[1] = "-0", command[2] = words[0], command[3] = program;
  memcpy(command + 4, words + 1, count * sizeof *words);
  execv(command[0], command);
  return perror(command[0]), 127;
}
"""
# Mounts what every process needs into the folder $1, and runs the rest of the command line there. PoCL finds the
# memory and the cores in /sys.
ENTER = """
root=$1; shift
for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder" || exit; done
mount -t tmpfs tmpfs "$root/tmp" || exit
exec chroot "$root" "$@"
"""
WITHOUT_DRIVER = """
import torch
try:
    torch.ones(3, device="netcl")
except RuntimeError as error:
    assert "no OpenCL device was found" in str(error) and "pocl-opencl-icd" in str(error), error
else:
    raise AssertionError("there is a device")
"""


def run(*command: str | Path, **options) -> None:
    """Run a command; raises CalledProcessError."""
    subprocess.run([str(word) for word in command], check=True, **options)


# --- what is fetched ----------------------------------------------------------------------------------------


def sources() -> dict[str, str]:
    """This system's files that name Debian's package sources, with the suite that is wanted; SystemExit if there are
    none."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.M))
    found = {}
    for file in (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources")):
        if release.get("ID") == "debian" and file.is_file():
            found[file.name] = re.sub(rf"\b{release['VERSION_CODENAME']}\b", SUITE, file.read_text())
    if not any(re.search(r"^(deb |Types:)", text, re.M) for text in found.values()):
        raise SystemExit("test_aarch64: /etc/apt names no sources of Debian's packages")
    return found


def apt(folder: Path) -> dict[str, str]:
    """The environment in which apt-get knows Debian's packages for aarch64, and nothing of this system."""
    for name in ("parts", "lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    for name, text in sources().items():
        (folder / "parts" / name).write_text(text)
    (folder / "conf").write_text(f"""
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; "amd64"; }};
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{folder}/parts";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "{folder}";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
""")
    environment = {**os.environ, "APT_CONFIG": str(folder / "conf")}
    run("apt-get", "-qq", "update", env=environment)
    return environment


def fetch_system(system: Path) -> None:
    """Unpack Debian's packages into `system`, and qemu beside them."""
    for name in ("bin", "sbin", "lib"):
        (system / "usr" / name).mkdir(parents=True, exist_ok=True)
        (system / name).symlink_to(f"usr/{name}")
    for name in ("proc", "sys", "dev", "tmp", "opt"):
        (system / name).mkdir()
    with tempfile.TemporaryDirectory(dir=WORK) as temporary:
        folder = Path(temporary)
        environment = apt(folder / "apt")
        install = ("apt-get", "-qq", "install", "--yes", "--no-install-recommends", "--download-only")
        run(*install, *DEBIAN.split(), env=environment)
        for package in sorted(folder.glob("apt/cache/archives/*.deb")):
            run("dpkg", "-x", package, system)
        run("apt-get", "-qq", "download", "qemu-user:amd64", env=environment, cwd=folder)
        run("dpkg", "-x", next(folder.glob("qemu-user_*.deb")), folder / "qemu")
        shutil.copy(folder / "qemu/usr/bin/qemu-aarch64", system / "opt")
        (folder / "caller.c").write_text(CALLER)
        run("cc", "-O2", "-static", folder / "caller.c", "-o", system / "opt/caller")
    for file in [*system.glob("usr/bin/*"), *system.glob("usr/sbin/*")]:
        if file.is_file() and not file.is_symlink() and file.read_bytes()[:4] == b"\x7fELF":
            file.rename(f"{file}.aarch64")
            file.hardlink_to(system / "opt/caller")


def python_version(system: Path) -> str:
    """The version of Debian's Python, such as 3.13."""
    return (system / "usr/bin/python3").readlink().name.removeprefix("python")


def fetch_torch(torch: str, system: Path) -> None:
    """Install torch for aarch64 and what it imports into `system`."""
    options = ["--no-deps", "--no-compile", "--only-binary=:all:", *target_options(python_version(system), "aarch64")]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", *options]
    target = system / "opt/python"
    run(*pip, "--target", target, f"torch=={torch}", *PYPI.split())
    libraries = [*target.glob("torch/lib/*.so*"), *target.glob("torch.libs/*.so*")]
    made = stubs(libraries, list(system.glob("usr/lib/*/*.so*")), system / "opt/stubs", COMPILER)
    print(f"libraries without content: {' '.join(made) or 'none'}", flush=True)


def fetch(torch: str) -> None:
    """Fill WORK, unless it is complete."""
    WORK.mkdir(parents=True, exist_ok=True)
    for what, wanted, call in (
        ("system", f"{SUITE} {DEBIAN} {CALLER}", lambda: fetch_system(SYSTEM)),
        ("torch", f"{torch} {PYPI}", lambda: fetch_torch(torch, SYSTEM)),
    ):
        complete = SYSTEM / f".{what}"
        if complete.is_file() and complete.read_text() == wanted:
            continue
        for folder in (SYSTEM,) if what == "system" else (SYSTEM / "opt/python", SYSTEM / "opt/stubs"):
            shutil.rmtree(folder, ignore_errors=True)
        began = time.monotonic()
        call()
        complete.write_text(wanted)
        print(f"{what}: fetched in {time.monotonic() - began:.0f} s", flush=True)


# --- libraries without content ------------------------------------------------------------------------------


def stubs(libraries: list[Path], others: list[Path], folder: Path, compiler: tuple[str, ...]) -> list[str]:
    """Make the libraries that `libraries` need and that are neither among them nor among `others`; returns their names.

    Each defines the symbols that are needed in its versions; the first has those without a version that no library
    defines. They are functions that return 0.
    """
    objdump = program("objdump", compiler)
    needs: set[str] = set()  # the names of libraries
    owner: dict[str, str] = {}  # the library that has a version of symbols
    versioned: dict[str, set[str]] = defaultdict(set)  # the symbols that are needed in each version
    plain: set[str] = set()  # the symbols that are needed without a version
    defined: set[str] = set()
    for library in libraries:
        headers = output(objdump, "-p", str(library))
        needs.update(re.findall(r"NEEDED +(\S+)", headers))
        for name, lines in re.findall(r"required from (\S+):\n((?: +0x.*\n)*)", headers):
            owner.update({version: name for version in re.findall(r" (\S+)$", lines, re.M)})
        for line in output(objdump, "-T", str(library)).splitlines():
            symbol = line.split()[-1] if line.strip() else ""
            if "*UND*" not in line:
                defined.add(symbol)
            elif version := re.search(r"\((\S+)\) +\S+$", line):
                versioned[version[1]].add(symbol)
            elif not re.match(r"\w+ +w ", line):  # a weak symbol may be missing
                plain.add(symbol)
    missing = sorted(needs - {file.name for file in [*libraries, *others]})
    for file in others:
        if file.name in needs:
            lines = output(objdump, "-T", str(file)).splitlines()
            defined.update(line.split()[-1] for line in lines if line.strip() and "*UND*" not in line)
    folder.mkdir(parents=True)
    for i, name in enumerate(missing):
        nodes = {version: sorted(versioned[version]) for version in sorted(owner) if owner[version] == name}
        symbols = {*(plain - defined if i == 0 else ()), *(symbol for names in nodes.values() for symbol in names)}
        script, source = folder / f"{name}.map", folder / f"{name}.c"
        script.write_text("".join(f"{v} {{ {' '.join(f'{s};' for s in names)} }};\n" for v, names in nodes.items()))
        source.write_text("".join(f"long {symbol}(void) {{ return 0; }}\n" for symbol in sorted(symbols)))
        options = [f"-Wl,--version-script={script}"] if nodes else []
        flags = ("-xc", "-fno-builtin", "-w", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname={name}")
        run(*compiler, *flags, *options, source, "-o", folder / name)
        script.unlink()
        source.unlink()
    return missing


# --- the run ------------------------------------------------------------------------------------------------


def inside(*command: str, cpu: str, **environment: str) -> bool:
    """Run a command of SYSTEM, print its output and how long it took; returns whether it succeeded."""
    variables = {
        "PATH": "/usr/bin:/usr/sbin", "HOME": "/tmp", "PYTHONPATH": "/opt/netcl:/opt/python",
        "PYTHONPYCACHEPREFIX": "/opt/cache/python", "LD_LIBRARY_PATH": "/opt/stubs", "QEMU_CPU": cpu,
        "NETCL_CACHE_DIR": "/opt/cache/netcl", "POCL_CACHE_DIR": "/opt/cache/pocl", **environment,
    }  # fmt: skip
    words = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
    words += ["unshare", "--map-root-user", "--mount", "/bin/sh", "-c", ENTER, "sh", str(SYSTEM), *command]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(words, stdout=printed, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read()
    seconds, used = time.monotonic() - began, usage.ru_utime + usage.ru_stime
    verdict = f"FAILED with status {process.returncode}" if process.returncode else "passed"
    print(f"\n{shlex.join(command)}: {verdict} after {seconds:.0f} s, {used:.0f} s of CPU\n{text}", end="", flush=True)
    return process.returncode == 0


def test(wheel: Path, cpu: str) -> bool:
    """Unpack the wheel into SYSTEM and run all parts, two at once; returns whether all passed."""
    for name in ("netcl", "tests"):
        shutil.rmtree(SYSTEM / "opt" / name, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(SYSTEM / "opt/netcl")
    tests = SYSTEM / "opt/tests"
    tests.mkdir()
    for name in ("aarch64_programs.py", "oclgrind_programs.py"):
        shutil.copy(ROOT / "tools" / name, tests)
    (tests / "readme.py").write_text(example() + CHECK)
    (tests / "without_driver.py").write_text(WITHOUT_DRIVER)
    parts = (
        (("/opt/tests/aarch64_programs.py",), {}),
        (("-m", "torch_netcl", "--check"), {}),
        (("/opt/tests/readme.py",), {}),
        (("/opt/tests/without_driver.py",), {"OCL_ICD_VENDORS": "/opt/tests"}),
    )
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(inside, "python3", *words, cpu=cpu, **variables) for words, variables in parts]
        return all([run.result() for run in runs])


def main() -> int:
    """Fetch or test as the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, nargs="?")
    parser.add_argument("--fetch", action="store_true", help="fill build/aarch64 only")
    parser.add_argument("--torch", default="2.13.0", help="the version to fetch, one that the wheel has a library for")
    parser.add_argument("--cpu", default="neoverse-n1", help="as qemu names it: cortex-a72, neoverse-v1, max ...")
    arguments = parser.parse_args()
    if not arguments.fetch and not arguments.wheel:
        parser.error("a wheel is needed, or --fetch")
    if platform.machine() != "x86_64":
        raise SystemExit("test_aarch64: this is for x86-64; on aarch64, install the wheel and run its self-test")
    if not shutil.which(COMPILER[0]):
        raise SystemExit(f"{COMPILER[0]} is missing: apt-get install g++-aarch64-linux-gnu")
    if arguments.fetch:
        fetch(arguments.torch)
        return int(not inside("python3", "-c", "print('it runs here')", cpu=arguments.cpu))
    return int(not test(arguments.wheel.absolute(), arguments.cpu))


if __name__ == "__main__":
    sys.exit(main())
