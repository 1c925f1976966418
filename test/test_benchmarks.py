"""The benchmarks run and report what they should; no test asserts a speed."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

ROOT = Path(__file__).resolve().parent.parent


def benchmarks(*arguments, module="benchmarks"):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600
    )


class TestBenchmarks(TestCase):
    def test_chart(self):
        """The picture of two tables is well-formed and has a bar for each family and table."""
        spec = importlib.util.spec_from_file_location("chart", ROOT / "benchmarks" / "chart.py")
        chart = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(chart)
        results = sorted((ROOT / "benchmarks" / "results").glob("epyc-avx512bf16-*.md"))
        self.assertEqual(len(results), 2)
        picture = ElementTree.fromstring(chart.chart(results))
        texts = [t.text for t in picture.iter("{http://www.w3.org/2000/svg}text")]
        self.assertLess(set(chart.FAMILIES), set(texts))
        bars = list(picture.iter("{http://www.w3.org/2000/svg}rect"))
        self.assertEqual(len(bars), 2 * (1 + len(chart.FAMILIES)))  # one of each colour is in the legend
        self.assertGreater(min(float(bar.get("width")) for bar in bars), 0)
        self.assertEqual(chart.ratios(results[0])["training/mlp/float32"], chart.families(results[0])[-3])

    def test_table_and_json(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = Path(folder, "a.json"), Path(folder, "b.json")
            quick = ("scale/add_1e3", "optimizer/unscale", "--samples", "2", "--sample-ms", "1")
            run = benchmarks(*quick, "--json", str(first))
            self.assertEqual(run.returncode, 0, run.stderr)
            content = json.loads(first.read_text())
            self.assertEqual([r["name"] for r in content["results"]], ["scale/add_1e3", "optimizer/unscale"])
            add, unscale = content["results"]
            self.assertEqual(add["launches"], 1)
            self.assertLess(unscale["launches"], 10)
            for result in (add, unscale):
                self.assertEqual(result["ratio"], result["cpu"]["seconds"] / result["netcl"]["seconds"])
                self.assertEqual(result["fallbacks"], {})
            self.assertGreaterEqual(unscale["peak_bytes"], 100 * 100_000 * 4)
            self.assertGreater(unscale["copy_rate"], 0)
            self.assertIsNone(add["copy_rate"])
            facts = content["environment"]
            self.assertTrue(facts["driver"])
            self.assertGreater(min(v for k, v in facts.items() if k.startswith("measured")), 0)
            self.assertRegex(run.stdout, r"scale/add_1e3.*\(\d+%\)")
            run = benchmarks("scale/add_1e3", *quick[2:], "--no-cpu", "--baseline", str(first), "--json", str(second))
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("before / now", run.stdout)
            self.assertIsNone(json.loads(second.read_text())["results"][0]["cpu"])

    def test_names(self):
        names = benchmarks("--list").stdout.split()
        self.assertEqual(len(names), len(set(names)))
        families = {name.split("/")[0] for name in names}
        self.assertLessEqual({"elementwise", "gemm", "convolution", "attention", "optimizer", "training"}, families)
        run = benchmarks("no such case")
        self.assertEqual(run.returncode, 1)
        self.assertIn("--list", run.stderr)

    def test_compile(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.json")
            quick = ("--size", "65536", "--samples", "2", "--sample-ms", "1", "--no-cpu", "--json", str(path))
            run = benchmarks("compile", "add_norm_gelu", *quick)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertRegex(run.stdout, r"compile/add_norm_gelu \|.*(met|missed) \|")
            (result,) = json.loads(path.read_text())["results"]
            self.assertEqual(result["launches"], [3, 1])
            self.assertEqual(set(result["times"]), {"netcl eager", "netcl compiled"})
        self.assertIn("compile/cold_gpt", benchmarks("compile", "--list").stdout)

    def test_small(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.json")
            run = benchmarks("small", "add_", "mlp_step", "--samples", "2", "--sample-ms", "1", "--json", str(path))
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertRegex(run.stdout, r"small/add_sum_item \| [\d.]+ \| [\d.]+ \| [\d.]+ \| ≤ \d.* \| 2 \| 1 \|")
            results = {r["name"]: r for r in json.loads(path.read_text())["results"]}
        self.assertEqual(set(results), {"small/add_16_enqueue", "small/add_sum_item", "small/mlp_step"})
        for result in results.values():
            self.assertEqual(result["times_cpu"], result["netcl_us"] / result["cpu_us"])
            self.assertEqual(result["met"], result["times_cpu"] <= result["target"])
            self.assertEqual(result["fallbacks"], {})
        self.assertIn("small/generate_beam4", benchmarks("small", "--list").stdout)

    def test_loops(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.json")
            quick = ("digits float32", "--samples", "2", "--sample-ms", "1", "--json", str(path))
            run = benchmarks("loops", *quick)
            self.assertEqual(run.returncode, 0, run.stderr)
            share = r" [\d.]+( \(missed\))? \|"
            self.assertRegex(run.stdout, rf"loops/digits/float32/item \|( [\d.]+ \|){{4}}{share}( [\d.]+ \|){{3}}")
            results = {r["name"]: r for r in json.loads(path.read_text())["results"]}
        ways = ("item", "item10", "default", "sgd", "clip", "validate")
        self.assertEqual(set(results), {f"loops/digits/float32/{way}" for way in ways})
        for result in results.values():
            self.assertEqual(result["share"], result["unwaited"]["ms"] / result["netcl"]["ms"])
            self.assertGreater(result["cpu"]["cores"], 0)
        names = benchmarks("loops", "--list").stdout.split()
        self.assertLessEqual({"loops/gpt_demo/trainer", "loops/gpt_demo/ddp", "loops/resnet18/loader"}, set(names))

    def test_loops_of_libraries(self):
        """Every loop with a loader, a trainer or two processes makes its steps."""
        names = [x for x in benchmarks("loops", "--list").stdout.split() if x.count("/") == 2]
        self.assertGreater(len(names), 5)
        run = benchmarks("loops", *names, "--samples", "1", "--sample-ms", "1", "--no-cpu")
        self.assertEqual(run.returncode, 0, run.stderr)
        for name in names:
            self.assertIn(f"| {name} | ", run.stdout)

    def test_balance(self):
        run = benchmarks("balance", "mlp", "--units", "1", "128")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"\| mlp \| 1 \| \d+ \| 1.00 \| 0 \| 0% \| \|")  # one unit has no neighbour
        self.assertRegex(run.stdout, r"\| mlp \| 128 \| \d+ \| [\d.]+ \| \d+ \|")
        self.assertEqual(benchmarks("balance", "no such model").returncode, 2)

    def test_sweep(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.json")
            run = benchmarks("tril", "empty", "--json", str(path), module="benchmarks.sweep")
            self.assertEqual(run.returncode, 0, run.stderr)
            content = json.loads(path.read_text())
        self.assertIn("1 operators of OpInfo", run.stdout)
        # The larger sizes are left out if the machine is slow.
        cases = {(r["name"], r["direction"]) for r in content["rows"] if r["elements"] == 1000}
        self.assertEqual(cases, {("tril", "forward"), ("tril", "backward")})
        self.assertEqual(list(content["failed"]), ["empty"])
        self.assertEqual(benchmarks("no such operator", module="benchmarks.sweep").returncode, 2)

    @unittest.skipIf(not hasattr(torch.accelerator, "Graph"), "this torch has no torch.accelerator.Graph")
    def test_thin_launches(self):
        """What a GPU with 132 units gets of a small step, in the launches that a graph lists."""
        run = benchmarks("balance", "--gpu", "mlp")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"\| mlp \| \d+ \| \d+ \| \| \|\n")
        env = {**os.environ, "NETCL_DEVICE_CLASS": "gpu", "NETCL_COMPUTE_UNITS": "132"}
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks.thin", "mlp"], cwd=ROOT, env=env, capture_output=True, text=True
        )
        found = json.loads(run.stdout.splitlines()[-1])
        work = [work for kernel, operator, _, work in found if (kernel, operator) == ("gemm_tiled", "addmm")]
        self.assertEqual(work, [256 * 784 * 1024, 256 * 1024 * 1024, 256 * 1024 * 10])

    def test_turns(self):
        run = benchmarks(str(ROOT), "scale/add_1e3", "no such case", module="benchmarks.turns")
        self.assertRegex(run.stdout, r"\| scale/add_1e3 \| [\d.]+ \| [\d.]+ \| [\d.]+ \|\n\n1 cases", run.stderr)
        self.assertEqual(run.returncode, "above 1.05: none" not in run.stdout)  # the clock decides, not this test
        run = benchmarks(str(ROOT), "no such case", module="benchmarks.turns")
        self.assertEqual((run.returncode, run.stderr), (1, "no case of that name in both trees\n"))

    def test_gpu(self):
        """Stages run one after another, and the page has their results (test_gpu_runner.py: what if they fail)."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "results")
            command = [sys.executable, "-m", "benchmarks", "gpu", "device", "streams", "profiler"]
            run = subprocess.run(
                [*command, "--minutes", "9", "--out", out],
                env={**os.environ, "NETCL_DEVICE_CLASS": "gpu"}, capture_output=True, text=True, timeout=600,
            )  # fmt: skip
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            text, results = (out / "page.md").read_text(), json.loads((out / "results.json").read_text())
        self.assertRegex(text, r"## device: ok[^#]*kernels shaped for a gpu")
        self.assertRegex(text, r"## streams: ok[^#]*\| waits between streams \| right \|")
        self.assertRegex(text, r"## profiler: ok[^#]*\d kernels, [\d.]+ ms")
        self.assertEqual([stage["problems"] for stage in results["stages"].values()], [[], [], []])


if __name__ == "__main__":
    run_tests()
