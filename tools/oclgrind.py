"""Runs tools/oclgrind_programs.py and oclgrind_misfits.py under Oclgrind, a simulated OpenCL device that reports data
races, accesses out of bounds, and wrong calls of OpenCL. There it also rehearses the first stages of `make gpu`, the
devices and the self-test. Exits with 1 if it reports anything, or if a result is wrong.

``make gpu-races`` fetches Oclgrind and runs this, once with the kernels for CPUs and once with those for GPUs. There
each tensor has a buffer of its own (NETCL_SEPARATE_BUFFERS), since an overrun inside a shared buffer is none to
Oclgrind; groups have 64 work-items and, of the kernels for GPUs, 16 KiB of local memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = "usr/lib/x86_64-linux-gnu"
# A report begins with what is wrong, at the start of a line, and names the kernel, unless a call was wrong.
REPORT = re.compile(r"^(\S.*?)(?: at | detected|$).*?(?:\n\s+.*?)*?\n\s+Kernel:\s*(\S+)", re.M)


def environment(tools: Path, log: Path, device_class: str, cache: str) -> dict[str, str]:
    """The variables with which a process sees Oclgrind alone."""
    icd = Path(cache, "oclgrind.icd")
    icd.write_text(f"{tools}/usr/lib/oclgrind/liboclgrind-rt-icd.so\n")
    return {
        **os.environ,
        "LD_LIBRARY_PATH": f"{tools}/{LIBRARIES}:{tools}/usr/lib/llvm-14/lib",
        "OCL_ICD_VENDORS": cache,
        "OCLGRIND_PCH_DIR": f"{tools}/{LIBRARIES}/oclgrind/21.10",
        # combine.h and vector.h in kernels/common
        "OCLGRIND_BUILD_OPTIONS": "-O0 -DATOMIC_READS -DALWAYS_INLINE=static",
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_CHECK_API": "1",
        "OCLGRIND_LOG": str(log),
        "OCLGRIND_GLOBAL_MEM_SIZE": str(2 << 30),
        "OCLGRIND_MAX_ERRORS": "100000",
        "OCLGRIND_NUM_THREADS": "1",
        "NETCL_VISIBLE_DEVICES": "oclgrind",
        "NETCL_DEVICE_CLASS": device_class,
        # OpenCL promises 32 KiB of local memory; the kernels for GPUs do with half.
        "NETCL_DISABLE": "work_groups,local_memory" + ("_32k" if device_class == "cpu" else ""),
        "NETCL_SEPARATE_BUFFERS": "1",
        "NETCL_LAUNCH_BLOCKING": "1",
        "NETCL_COMPILE_NOTICE": "-1",
        "NETCL_CACHE_DIR": cache,
        "PYTHONPATH": str(ROOT),
    }


def kinds(log: str) -> list[str]:
    """What Oclgrind reports in these lines, each kind once for each kernel; the first line if it has another form."""
    found = {f"{what} in {kernel}" for what, kernel in REPORT.findall(log)}
    return sorted(found) or log.strip().splitlines()[:1]


def run(tools: Path, device_class: str, command: list[str]) -> list[str]:
    """Problems of the programs that a script of tools/ and its arguments run: the wrong results, and Oclgrind's reports
    by program and kernel."""
    found: list[str] = []
    count = seen = 0
    with tempfile.TemporaryDirectory() as cache:
        log = Path(cache, "log")
        log.touch()
        programs = subprocess.Popen(
            [sys.executable, ROOT / "tools" / command[0], *command[1:]],
            env=environment(tools.resolve(), log, device_class, cache), cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        for line in programs.stdout:
            family, name, problem = json.loads(line)
            count += 1
            reports = log.read_text()[seen:]
            seen += len(reports)
            found += [f"{family}: {name}: {what}" for what in [*kinds(reports), *([problem] if problem else [])]]
        if programs.wait():
            found.append(f"the programs ended with status {programs.returncode} after {count}")
        if (rest := log.read_text()[seen:]).strip():
            found.append(f"at the end: {rest.strip().splitlines()[0]}")
    print(f"{command[0]}, kernels for a {device_class}: {count} programs, {len(found)} problems", flush=True)
    return found if count else ["no program ran"]


def rehearse(tools: Path, device_class: str, run_sh: Path | None) -> list[str]:
    """Problems of the stages `device` and `check` of benchmarks/gpu.py, or of a bundle's run.sh."""
    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder, "log"), Path(folder, "out")
        log.touch()
        env = environment(tools.resolve(), log, device_class, folder)
        command = [sys.executable, "-m", "benchmarks.gpu"]
        if run_sh:  # which has its own package
            # A copy, since it unpacks its wheels there, and both classes may do so at once.
            command = ["sh", shutil.copytree(run_sh.resolve().parent, Path(folder, "bundle")) / run_sh.name]
            env |= {"PYTHON": sys.executable, "PYTHONPATH": ""}
        command += ["--any-device", "--minutes", "60", "--out", out, "device", "check"]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
        found = [f"the rehearsal: {done.stdout[-500:]}{done.stderr[-500:]}"] if done.returncode else []
        found += [f"the rehearsal: {what}" for what in kinds(log.read_text())]
        page = (out / "page.md").read_text() if (out / "page.md").exists() else ""
    seconds = "".join(re.findall(r"check: ok (\(.*\))", done.stdout))
    print(f"device and check, kernels for a {device_class}: {len(found)} problems {seconds}", flush=True)
    return found if "Oclgrind" in page else [*found, "the rehearsal's page does not name Oclgrind"]


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", help='of oclgrind_programs.py, "misfits" or "check" (default: all)')
    parser.add_argument("--tools", type=Path, default=ROOT / "build" / "oclgrind" / "root", help="where Oclgrind is")
    parser.add_argument("--class", dest="classes", action="append", choices=["cpu", "gpu"], help="default: both")
    parser.add_argument("--bundle", type=Path, metavar="run.sh", help="rehearse this bundle instead of this tree")
    args = parser.parse_args()
    families = [name for name in args.families if name not in ("misfits", "check")]
    with tempfile.TemporaryDirectory() as folder:
        commands = []
        if families or not args.families:
            commands.append(["oclgrind_programs.py", *families])
        if not args.families or "misfits" in args.families:
            recorded = Path(folder, "calls")
            script = ROOT / "tools" / "oclgrind_misfits.py"
            subprocess.run([sys.executable, script, "record", recorded], check=True, cwd=ROOT)
            commands.append(["oclgrind_misfits.py", "run", str(recorded)])
        # Oclgrind runs a program in one thread, so there is a core for each class.
        classes = args.classes or ["cpu", "gpu"]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            found = [threads.submit(run, args.tools, kind, command) for command in commands for kind in classes]
            if not args.families or "check" in args.families:
                found += [threads.submit(rehearse, args.tools, kind, args.bundle) for kind in classes]
            problems = [problem for each in found for problem in each.result()]
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
