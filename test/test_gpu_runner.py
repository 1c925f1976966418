"""The runner of `make gpu` and of the bundle of `make gpu-bundle`: stages that crash or hang cost only themselves, and
drivers are found. No device is needed."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import unittest.mock
import zipfile
from pathlib import Path

from torch.testing._internal.common_utils import TestCase, run_tests

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from benchmarks import gpu, gpu_page, gpu_platforms  # noqa: E402

# A stage of three cases, of which the second ends the process; --skip and --only are those of gpu_cases.py.
CASES = """
import ctypes, os, sys
words = sys.argv[1:]
pairs = list(zip(words, words[1:]))
for name in ("one", "two", "three"):
    if ("--skip", name) in pairs or ("--only" in words and ("--only", name) not in pairs):
        continue
    print('{"begin": "%s"}' % name, flush=True)
    if name == "two":
        print("launches:", os.environ.get("NETCL_LOG"), flush=True)
        open(os.path.join(os.environ.get("NETCL_DUMP", "/nowhere"), "two.cl"), "w").write("__kernel")
        ctypes.string_at(0)
    print('{"name": "%s", "value": "right"}' % name, flush=True)
"""
HANGS = "import time; print('begun', flush=True); time.sleep(600)"


def answer(*names_of_gpus: str, **more) -> str:
    """What gpu_platforms.py prints."""
    facts = {"name": "", "memory": 0, "driver": "1", "gpu": True}
    platforms = [{"name": "P", "version": "3", "devices": [facts | {"name": name}]} for name in names_of_gpus]
    found = {"loader": "libOpenCL.so.1", "by": "", "others": [], "runtimes": [], "platforms": platforms}
    return json.dumps(found | more)


def folder_for(case: unittest.TestCase) -> Path:
    """A folder that lasts until the test ends."""
    folder = tempfile.TemporaryDirectory()
    case.addCleanup(folder.cleanup)
    return Path(folder.name)


class TestGpuRunner(TestCase):
    def run_stages(self, **stages: gpu.Stage) -> tuple[dict, str, list[str]]:
        """The results, the page and the names of kept files."""
        folder = folder_for(self)
        with unittest.mock.patch.object(gpu, "STAGES", stages), unittest.mock.patch("builtins.print"):
            runner = gpu.Runner(folder, folder / "page.md", 120, {})
            self.assertEqual(runner.run_all(list(stages)), 1)
        kept = folder / "kept.tar.gz"
        names = tarfile.open(kept).getnames() if kept.exists() else []
        stored = json.loads((folder / "results.json").read_text())
        self.assertEqual(stored, json.loads(json.dumps(runner.results)))
        return stored["stages"], (folder / "page.md").read_text(), names

    def test_failing_stages(self):
        """Each ends as it should, and the one after them runs."""
        crash = "import ctypes; print('before', flush=True); ctypes.string_at(0)"
        stages, page, kept = self.run_stages(
            fails=gpu.Stage(20, gpu.python("-c", "raise ValueError('no tile fits')")),
            crashes=gpu.Stage(20, gpu.python("-c", crash)),
            hangs=gpu.Stage(3, gpu.python("-c", HANGS)),
            silent=gpu.Stage(60, gpu.python("-c", HANGS), quiet=1),
            works=gpu.Stage(60, gpu.python("-c", "print('well')")),
        )
        self.assertRegex(page, r"## fails: exit status 1[^#]*no tile fits")
        self.assertRegex(page, r"## crashes: signal 11[^#]*before")
        self.assertRegex(page, r"## hangs: stopped after \d s[^#]*begun")
        self.assertRegex(page, r"## silent: stopped, silent for 1 s[^#]*begun")
        self.assertRegex(page, r"## works: ok[^#]*well")
        self.assertEqual(stages["works"]["problems"], [])
        self.assertIn("kept/crashes-1.txt", kept)

    def test_children_end_with_a_stage(self):
        code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        stages, *_ = self.run_stages(fails=gpu.Stage(20, gpu.python("-c", code + "print(p.pid); sys.exit(3)")))
        self.assertEqual(stages["fails"]["problems"], ["exit status 3"])
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            state = Path("/proc", stages["fails"]["printed"].strip(), "stat")
            while state.read_text().rpartition(")")[2].split()[0] not in "ZX":
                time.sleep(0.01)  # the signal has been sent

    def test_a_case_that_crashes(self):
        """It is named, repeated with its launches printed, and left out; the other cases run."""
        stages, page, kept = self.run_stages(cases=gpu.Stage(60, gpu.python("-c", CASES), cases=True))
        self.assertEqual(stages["cases"]["problems"], ["signal 11 in two"])
        self.assertEqual([row["name"] for row in stages["cases"]["rows"]], ["one", "three"])
        self.assertRegex(page, r"\| one \| right \|\n\| three \| right \|")
        self.assertLess({"kept/cases-1.txt", "kept/cases-repeated.txt", "kept/two.cl"}, set(kept))

    def test_the_page_of_documentation(self):
        """docs/gpu.md has the stages in their order, with their seconds."""
        rows = re.findall(r"^\| (`[a-z`, ]+`) \| ([\d, ]+) \| ", (ROOT / "docs/gpu.md").read_text(), re.M)
        said = {}
        for names, seconds in rows:
            said |= zip(re.findall(r"\w+", names), map(int, seconds.split(", ")), strict=True)
        self.assertEqual(list(said.items()), [(name, stage.seconds) for name, stage in gpu.STAGES.items()])
        self.assertEqual(sum(said.values()), 900)

    def test_no_time_left(self):
        folder = folder_for(self)
        with unittest.mock.patch.object(gpu, "STAGES", {"late": gpu.Stage(5, gpu.python("-c", "0"))}):
            runner = gpu.Runner(folder, folder / "page.md", 0, {})
            self.assertEqual(runner.run_all(["late"]), 1)
        self.assertIn("## late: no time left", (folder / "page.md").read_text())

    def test_why_a_test_failed(self):
        """The plugin says it at once, and ends the run when its time is over, which is no failure."""
        folder = folder_for(self)
        options = ["-v", "-p", "no:cacheprovider", "-p", "benchmarks.gpu_tests", "--seconds", "0"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        for status, code in ((1, "assert 1 == 2, 'why'"), (0, "pass")):
            (folder / "test_it.py").write_text(f"def test_a(): {code}\ndef test_b(): pass\n")
            command = gpu.python("-m", "pytest", *options, str(folder / "test_it.py"))
            run = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
            self.assertEqual(run.returncode, status, run.stdout + run.stderr)
            lines = gpu_page.tests(run.stdout.splitlines())
            self.assertEqual(lines[0], "1 failed" if status else "1 passed")
            self.assertIn("the time is over", lines[-1])
            if status:
                self.assertRegex(lines[1], r"\[netcl\] test_it.py::test_a: AssertionError: why")


class TestPlatforms(TestCase):
    def found(self, *answers: str, folder: str | None = None) -> tuple[dict, dict, list[dict]]:
        """What the runner chooses if its processes answer so, and the variables that each was given."""
        given, answers = [], list(answers)

        def run(command, seconds, log, env):
            given.append(env)
            return answers.pop(0), ""

        with unittest.mock.patch.object(gpu, "run_process", run), \
                unittest.mock.patch.object(gpu_platforms, "driver_folder", lambda: folder):  # fmt: skip
            return *gpu.platform_environment(Path("/nowhere")), given

    def test_at_once(self):
        chosen, env, given = self.found(answer("H100"), folder="/usr/local/nvidia/lib64")
        self.assertEqual((env, given), ({}, [{}]))
        self.assertEqual(gpu.gpus(chosen)[0]["name"], "H100")

    def test_a_driver_outside_the_linkers_folders(self):
        with unittest.mock.patch.dict(os.environ, LD_LIBRARY_PATH="/mine"):
            chosen, env, _ = self.found(answer(), answer("H100"), folder="/usr/local/nvidia/lib64")
        self.assertEqual(env, {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/mine"})
        self.assertIn("H100", "\n".join(gpu_page.platforms(chosen, env)))

    def test_a_loader_that_ignores_variables(self):
        _, env, given = self.found(answer(others=["/site/libOpenCL.so"]), answer("H100"))
        self.assertEqual(env, {"NETCL_OPENCL_LIBRARY": "/site/libOpenCL.so"})
        self.assertEqual(len(given), 2)

    def test_none(self):
        """A driver that ends the process, and no GPU."""
        chosen, env, _ = self.found("")
        self.assertEqual(env, {})
        self.assertIn("no OpenCL platform", "\n".join(gpu_page.platforms(chosen, env)))

    def test_folders(self):
        """A driver without an .icd file is found in the first folder that has it, and offered to the loader. If it
        cannot be opened, that is said."""
        folder = str(folder_for(self))
        self.assertIsNone(gpu_platforms.driver_folder([folder, "/nowhere"]))
        Path(folder, gpu_platforms.NVIDIA).write_text("no library")
        self.assertEqual(gpu_platforms.driver_folder(["/nowhere", folder]), folder)
        env = {k: v for k, v in os.environ.items() if not k.startswith("OCL_ICD")} | {"LD_LIBRARY_PATH": folder}
        ask = gpu.python("-m", "benchmarks.gpu_platforms")
        run = subprocess.run(ask, cwd=ROOT, env=env, capture_output=True, text=True)
        said = json.loads(run.stdout.splitlines()[-1])
        self.assertIn(["nvidia", gpu_platforms.NVIDIA, "system"], said["runtimes"])
        self.assertIn("netcl's own", said["by"])
        self.assertIn(f"cannot be opened: {folder}/{gpu_platforms.NVIDIA}", "\n".join(gpu_page.platforms(said, {})))

    def test_wheels(self):
        """What this Python has is not unpacked again. A folder without a module is not the module."""
        folder = folder_for(self)
        (folder / "only" / "a_folder").mkdir(parents=True)
        sys.path.append(str(folder / "only"))
        self.addCleanup(sys.path.remove, str(folder / "only"))
        for name, module in (("absent", "surely_absent"), ("pytest", "pytest"), ("hollow", "a_folder")):
            with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{module}/__init__.py", "")
                wheel.writestr(f"{name}-1.dist-info/METADATA", "")
        with unittest.mock.patch("builtins.print"):
            gpu.unpack(folder, folder / "site")
        unpacked = {p.name for p in (folder / "site").iterdir()}
        self.assertEqual(unpacked, {"surely_absent", "absent-1.dist-info", "a_folder", "hollow-1.dist-info"})


if __name__ == "__main__":
    run_tests()
