"""``python -m benchmarks gpu``: a first look at a GPU.

Its stages are the self-test, programs of every operator family, a part of the test suite, the tuner, the times of
products, convolutions, attention, training and copies beside torch CUDA's if the GPU has it, memory, streams and the
profiler. Each is a process of its own with a limit of time, 15 minutes in all; what a stage does not need goes to the
others. If one fails, crashes or hangs, the page says so and the others still run. The page goes to
``benchmarks/results/gpu-<device>.md``; the raw results, all that was printed, and what a failure left (programs that
the driver did not compile; the case repeated with each launch printed) go to ``build/gpu``. With --out all go to that
folder.

``make gpu-bundle`` packs this with the wheels it needs. It needs no torch itself: with --wheels it unpacks what is
missing beside the torch that is there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from datetime import date
from pathlib import Path
from typing import NamedTuple

from . import gpu_page, gpu_platforms

ROOT = Path(__file__).resolve().parent.parent
TESTS = "api autocast grad_scaler training gemm convolution reduce normalization softmax attention pooling sort"
TESTS += " pointwise indexing shape loss embedding scan rnn streams device limits random upsample special"
LIMIT = "LIMIT"  # in a stage's command: the seconds after which it should end by itself
BEGIN = gpu_page.BEGIN  # the line that a case prints before it runs
RESTARTS = 3  # of a stage that a case has ended


class Stage(NamedTuple):
    """A part of the run."""

    seconds: int
    command: list[str]
    cases: bool = False  # it prints a line as each case begins, and can leave out cases (--skip)
    quiet: float = 0  # so many seconds without output mean that it hangs


def python(*arguments: str) -> list[str]:
    """A command of this interpreter."""
    return [sys.executable, *arguments]


def timed(seconds: int, name: str) -> Stage:
    """A stage of gpu_cases.py."""
    return Stage(seconds, python("-m", "benchmarks.gpu_cases", name, "--seconds", LIMIT), True, 60)


def tests() -> list[str]:
    """The command for a part of the test suite; by several processes, since kernels are compiled at their first use."""
    jobs = min(4, (os.cpu_count() or 1) // 2)
    several = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 and importlib.util.find_spec("xdist") else []
    files = [f"test/test_{name}.py" for name in TESTS.split()]
    options = ["-v", "--tb=short", "-mquick", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
    options += ["-o", "faulthandler_timeout=120"]  # the stacks of a test that takes two minutes
    return python("-m", "pytest", "-p", "benchmarks.gpu_tests", "--seconds", LIMIT, *options, *several, *files)


# In order of their value, since a run may be cut short. The figures are seconds of 15 minutes.
STAGES = {
    "device": Stage(30, python("-m", "benchmarks.gpu_cases", "device")),
    "check": Stage(40, python("-m", "torch_netcl", "--check")),
    "families": timed(100, "families"),
    "tests": Stage(190, tests()),
    "tuner": Stage(50, python("-m", "torch_netcl.tune")),
    "gemm": timed(70, "gemm"),
    "convolution": timed(60, "convolution"),
    "attention": timed(40, "attention"),
    "training": timed(150, "training"),
    "operators": timed(50, "operators"),
    "copies": timed(25, "copies"),
    "overhead": timed(25, "overhead"),
    "memory": timed(30, "memory"),
    "streams": timed(15, "streams"),
    "profiler": timed(10, "profiler"),
    "cpu": timed(15, "cpu"),
}


# --- processes ----------------------------------------------------------------------------------------------


def end(child: subprocess.Popen) -> None:
    """End a process and its children."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def run_process(
    command: list[str], seconds: float, log: Path, env: dict[str, str] | None = None, quiet: float = 0
) -> tuple[str, str]:
    """(what the command printed, how it failed: empty if it did not). Its output is in the file `log` at once. It ends,
    with its children, after `seconds`, or when it has printed nothing for `quiet` seconds."""
    began = log.stat().st_size if log.exists() else 0
    with log.open("ab") as file:
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})}, start_new_session=True,
        )  # fmt: skip
    start = spoke = time.monotonic()
    size, problem = began, ""
    try:
        while child.poll() is None and not problem:
            time.sleep(0.05)
            now = time.monotonic()
            if (grown := log.stat().st_size) > size:
                size, spoke = grown, now
            if now - start > seconds:
                problem = f"stopped after {seconds:.0f} s"
            elif quiet and now - spoke > quiet:
                problem = f"stopped, silent for {quiet:.0f} s"
    finally:
        end(child)  # also what it has left behind
    if not problem and child.returncode:
        problem = f"signal {-child.returncode}" if child.returncode < 0 else f"exit status {child.returncode}"
    with log.open("rb") as file:
        file.seek(began)
        return file.read().decode(errors="replace"), problem


class Runner:
    """Runs stages one after another, and keeps the page and the results up to date."""

    def __init__(self, out: Path, page: Path, seconds: float, env: dict[str, str]) -> None:
        self.out, self.page, self.env = out, page, env
        self.end = time.monotonic() + seconds
        self.log = out / "log.txt"
        self.dumps = out / "kept"
        self.results: dict = {"stages": {}}

    def command(self, stage: Stage, seconds: float, *more: str) -> list[str]:
        """The stage's command, which should end by itself before `seconds` are over."""
        # The rest is for the start of the process and for the last case.
        limit = f"{max(seconds - 20, 0.6 * seconds):.0f}"
        return [limit if word == LIMIT else word for word in stage.command] + list(more)

    def run(self, name: str, stage: Stage, seconds: float) -> None:
        """Run a stage; the cases that it has begun are left out when it begins again after a crash."""
        start, printed, problems, done = time.monotonic(), "", [], []
        for _ in range(1 + RESTARTS if stage.cases else 1):
            left = seconds - (time.monotonic() - start)
            if problems and left < 0.3 * seconds:
                break
            with self.log.open("a") as log:
                log.write(f"\n===== {name} {done or ''} ({time.strftime('%H:%M:%S')}, {left:.0f} s)\n")
            self.dumps.mkdir(exist_ok=True)
            skip = [word for case in done for word in ("--skip", case)]
            env = {**self.env, "NETCL_DUMP": str(self.dumps), "NETCL_COMPILE_NOTICE": "-1"}
            output, problem = run_process(self.command(stage, left, *skip), left, self.log, env, stage.quiet)
            printed += output if output.endswith("\n") else output + "\n"
            begun = [json.loads(line)["begin"] for line in output.splitlines() if line.startswith(BEGIN)]
            if not problem.startswith(("signal", "stopped")):
                problems += [problem] if problem else []
                break
            problems.append(problem + (f" in {begun[-1]}" if begun else ""))
            done += begun
            if begun and not problem.startswith("stopped after"):  # that is a slow stage rather than a hang
                self.repeat(name, stage, begun[-1])
            self.keep(f"{name}-{len(problems)}", output)
            if not begun:
                break
        taken = time.monotonic() - start
        rows = gpu_page.rows_of(printed)
        text = "\n".join(line for line in printed.splitlines() if not line.startswith((gpu_page.ROW, BEGIN)))
        self.note(name, problems, taken, rows, text[-200_000:])
        print(f"{name}: {'; '.join(problems) or 'ok'} ({taken:.0f} s)", flush=True)

    def note(self, name: str, problems: list[str], taken: float = 0, rows: list[dict] = (), printed: str = "") -> None:
        """Note the results of a stage."""
        stage = {"problems": problems, "seconds": taken, "rows": list(rows), "printed": printed}
        self.results["stages"][name] = stage
        self.write()

    def repeat(self, name: str, stage: Stage, case: str) -> None:
        """Run a case that ended the process once more, with each program and launch printed and waited for."""
        seconds = min(20.0, 0.1 * (self.end - time.monotonic()))
        if seconds < 3:
            return
        log = self.dumps / f"{name}-repeated.txt"
        env = {"NETCL_LOG": "compile,launch", "NETCL_LAUNCH_BLOCKING": "1", "NETCL_COMPILE_NOTICE": "-1"}
        run_process(self.command(stage, seconds, "--only", case), seconds, log, {**self.env, **env})
        text = log.read_text(errors="replace")
        log.write_text(f"{case}\n{text[-100_000:]}")

    def keep(self, name: str, output: str) -> None:
        """Keep what a crash has left: the end of the output, and programs that the driver was compiling."""
        (self.dumps / f"{name}.txt").write_text(output[-100_000:])

    def write(self) -> None:
        """Write the page, the results and the archive of what was kept."""
        self.page.write_text(gpu_page.page(self.results))
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1))
        if self.dumps.is_dir() and any(self.dumps.iterdir()):
            with tarfile.open(self.out / "kept.tar.gz", "w:gz") as archive:
                archive.add(self.dumps, "kept")

    def run_all(self, names: list[str]) -> int:
        """Run these stages, each with its share of the time that is left; returns the exit status."""
        for i, name in enumerate(names):
            left = self.end - time.monotonic()
            share = left / sum(STAGES[other].seconds for other in names[i:])
            # What earlier stages did not need may double a stage; more is for those behind it, if there are any.
            most = left if name == names[-1] else 2 * STAGES[name].seconds
            seconds = min(STAGES[name].seconds * share, most)
            if seconds < 2:
                self.note(name, ["no time left"])
                continue
            self.run(name, STAGES[name], seconds)
        return int(any(stage["problems"] for stage in self.results["stages"].values()))


# --- the machine --------------------------------------------------------------------------------------------


def unpack(wheels: Path, site: Path) -> None:
    """Unpack the wheels of packages that this interpreter lacks, and netcl's own. No installer is needed."""
    site.mkdir(parents=True, exist_ok=True)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            tops = {name.split("/")[0] for name in archive.namelist()}
            modules = {top.split(".")[0] for top in tops if not top.endswith((".dist-info", ".data", ".libs"))}
            # A folder without a module, such as the one that PoCL's wheel leaves for pyopencl, has no origin.
            specs = map(importlib.util.find_spec, modules)
            if "torch_netcl" not in modules and all(spec and spec.origin for spec in specs):
                continue
            archive.extractall(site)
            print(f"unpacked {wheel.name}", flush=True)


def platform_environment(out: Path) -> tuple[dict, dict[str, str]]:
    """What a process of its own finds, and the variables with which it found a GPU, if it did."""
    log, command = out / "log.txt", python("-m", "benchmarks.gpu_platforms")
    found: list[tuple[dict, dict[str, str]]] = []

    def ask(env: dict[str, str]) -> dict:
        output, problem = run_process(command, 20, log, env)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        answer = json.loads(lines[-1]) if lines else {}
        answer["problem"] = problem or ("" if lines else output[-500:])
        found.append((answer, env))
        return answer

    env: dict[str, str] = {}
    answer = ask(env)
    folder = gpu_platforms.driver_folder()
    if not gpus(answer) and folder:  # the driver is there, but the dynamic linker does not look there
        env = {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))}
        answer = ask(env)
    for loader in answer.get("others", []):
        if not gpus(answer) and loader != answer.get("loader"):  # an old loader reads no OCL_ICD_VENDORS
            answer = ask(env | {"NETCL_OPENCL_LIBRARY": loader})
    return max(found, key=lambda pair: (bool(gpus(pair[0])), len(pair[0].get("platforms", []))))


def gpus(answer: dict) -> list[dict]:
    """The GPUs of all platforms."""
    return [device for platform in answer.get("platforms", []) for device in platform["devices"] if device["gpu"]]


def chosen_device(log: Path) -> str:
    """The name and class of netcl's first device, which another process tells. Empty if there is none."""
    ask = "d = torch.netcl.get_device_properties(); print('device', d.device_class, d.name)"
    output, problem = run_process(python("-c", f"import torch; {ask}"), 120, log)
    last = (output.strip().splitlines() or [""])[-1]
    if problem or not last.startswith("device "):
        print(output[-2000:], problem, file=sys.stderr)
        return ""
    return last.removeprefix("device ")


def place(work: Path) -> None:
    """Let caches and temporary files of all processes be in one folder."""
    for name in ("cache", "tmp"):
        (work / name).mkdir(parents=True, exist_ok=True)
    cache = str(work / "cache")
    for variable in ("NETCL_CACHE_DIR", "CUDA_CACHE_PATH", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "POCL_CACHE_DIR"):
        os.environ[variable] = cache
    os.environ |= {"TMPDIR": str(work / "tmp"), "PYTHONPYCACHEPREFIX": str(work / "pycache")}


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit status: 1 if a stage failed, 2 if there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=15.0, help="the limit of all stages together")
    parser.add_argument("--page", type=Path, metavar="FILE", help="default: benchmarks/results/gpu-<device>.md")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where everything goes, the page as well")
    parser.add_argument("--any-device", action="store_true", help="also run on a CPU, for a rehearsal")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="unpack the wheels in it that are missing")
    args = parser.parse_args(arguments)
    start = time.monotonic()
    if unknown := set(args.stages) - set(STAGES):
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    out = (args.out or ROOT / "build" / "gpu").absolute()
    shutil.rmtree(out / "kept", ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / "log.txt").write_text("")
    os.environ["PYTHONUNBUFFERED"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the stage that runs is ended, too
    if args.wheels:
        work = args.wheels.absolute().parent
        place(work / "work")
        site = work / "work" / f"site-{sys.version_info.major}.{sys.version_info.minor}"
        unpack(args.wheels, site)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
        sys.path.insert(0, str(site))
        importlib.invalidate_caches()
    answer, env = platform_environment(out)
    os.environ |= env
    print(*gpu_page.platforms(answer, env), f"(after {time.monotonic() - start:.1f} s)", sep="\n", flush=True)
    device = chosen_device(out / "log.txt")
    if gpus(answer) and not device.startswith("gpu ") and "NETCL_VISIBLE_DEVICES" not in os.environ:
        env["NETCL_VISIBLE_DEVICES"] = next(p["name"] for p in answer["platforms"] if gpus({"platforms": [p]}))
        os.environ |= env
        device = chosen_device(out / "log.txt")
    allowed = args.any_device or device.startswith("gpu ")
    name = device.partition(" ")[2] or "no device"
    slug = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    page = args.page or (out / "page.md" if args.out else ROOT / "benchmarks" / "results" / f"gpu-{slug}.md")
    runner = Runner(out, page, args.minutes * 60 - (time.monotonic() - start), env)
    runner.results |= {"device": name, "date": date.today().isoformat(), "platforms": answer, "environment": env}
    if not allowed:
        runner.results["problem"] = (
            f"the first device is no GPU ({device or 'there is none'}); see python -m torch_netcl. "
            "NETCL_DEVICE_CLASS=gpu gives a CPU the GPU's kernels."
        )
        runner.write()
        print(runner.results["problem"], page, sep="\n", file=sys.stderr)
        return 2
    status = runner.run_all(args.stages or list(STAGES))
    print(page)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
