"""torch.profiler with netcl's kernels and their device times, its Chrome trace, and NETCL_LOG."""

import json
import re
import tempfile
from pathlib import Path

import torch
from processes import python
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.testing._internal.common_utils import TestCase, run_tests

D = torch.device("netcl", 0)
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def step(x):
    """Some of everything: both copies, a product, element-wise kernels, a reduction, autograd's thread."""
    w = torch.ones(32, 32, device=D, requires_grad=True)
    loss = ((x.to(D) @ w).relu() + torch.zeros(64, 32, device=D)).sum()
    loss.backward()
    return loss.item()


class TestProfiler(TestCase):
    def test_kernels_have_times_and_operators(self):
        x = torch.randn(64, 32)
        step(x)
        with profile(activities=BOTH, record_shapes=True) as p:
            with record_function("my step"):
                step(x)
        averages = {e.key: e for e in p.key_averages()}
        kernels = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.PrivateUse1]
        self.assertTrue(all(e.time_range.elapsed_us() > 0 for e in kernels if not e.name.startswith("Mem")))
        names = {e.name for e in kernels}
        self.assertTrue({"Memcpy HtoD", "Memcpy DtoH"} <= names, names)
        self.assertTrue(any("mm" in name for name in names), names)
        self.assertTrue(any("sum" in name for name in names), names)
        for op in ("aten::mm", "aten::sum", "aten::_copy_from", "my step"):
            self.assertGreater(averages[op].device_time_total, 0, op)
        # Kernels of the backward pass belong to operators of autograd's thread.
        self.assertGreater(averages["MmBackward0"].device_time_total, 0)
        self.assertIn("NETCL", p.key_averages().table())

    def test_chrome_trace(self):
        x = torch.randn(64, 32)
        step(x)
        side = torch.netcl.Stream()
        with profile(activities=BOTH) as p:
            step(x)
            with side:
                step(x)
            torch.netcl.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            p.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        kernels = [e for e in events if e.get("cat") == "kernel"]
        calls = [e for e in events if e.get("cat") == "privateuse1_runtime"]
        operators = [e for e in events if e.get("cat") == "cpu_op"]
        self.assertGreater(len(kernels), 10)
        self.assertEqual(len({e["tid"] for e in kernels}), 2)  # a row for each stream
        self.assertEqual(len(calls), sum(e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") for e in events))
        # Both use one clock: device work lies between the start of the first operator and the end of the last (in us;
        # the fit may be off by 10 ms).
        first = min(e["ts"] for e in operators)
        last = max(e["ts"] + e["dur"] for e in operators)
        for e in kernels:
            self.assertTrue(first - 1e4 < e["ts"] < last + 1e4, (first, e, last))
        flows = [e["ph"] for e in events if e.get("ph") in ("s", "f") and e.get("cat") == "ac2g"]
        self.assertEqual(flows.count("s"), flows.count("f"))
        self.assertGreaterEqual(flows.count("f"), len(kernels))
        self.assertTrue(any("netcl:0" in json.dumps(e) for e in events if e.get("ph") == "M"))

    def test_only_while_recording(self):
        x = torch.randn(64, 32)
        with profile(activities=[ProfilerActivity.CPU]) as p:
            step(x)
        self.assertFalse(any(e.device_type == torch.autograd.DeviceType.PrivateUse1 for e in p.events()))
        step(x)
        with profile(activities=BOTH) as p:
            torch.ones(3, device=D)
        kernels = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.PrivateUse1]
        self.assertEqual(len(kernels), 1, kernels)

    def test_schedule_and_many_launches(self):
        counts = []
        x = torch.ones(10, device=D)

        def ready(p):
            counts.append(sum(e.device_type == torch.autograd.DeviceType.PrivateUse1 for e in p.events()))

        with profile(activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=ready) as p:
            for _ in range(4):
                for _ in range(1500):
                    x = x + 0
                p.step()
        self.assertEqual(counts, [3000])

    def test_log(self):
        code = "import torch; x = torch.ones(5, device='netcl'); (x + 1).cpu(); del x; torch.netcl.empty_cache()"
        with tempfile.TemporaryDirectory() as folder:
            done = python(code, NETCL_LOG="compile,launch,alloc", NETCL_CACHE_DIR=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        for pattern in (
            r"netcl: compiled binary\.cl .* in \d+ ms",
            r"netcl: launch flat for .*add.* on netcl:0 stream 0, global \[\d+\], local \[\d+\]",
            r"netcl: reserve 2097152 bytes of netcl:0, now 2097152",
            r"netcl: alloc 20 bytes at 0x\w+ on netcl:0 stream 0",
            r"netcl: free 20 bytes at 0x\w+",
            r"netcl: release 2097152 bytes of netcl:0",
        ):
            self.assertRegex(done.stderr, pattern)

    def test_plan_log(self):
        """The ways of a family that calls take, by name."""
        code = (
            "import torch, torch.nn.functional as F; x = torch.ones(1, 2, 8, 8, device='netcl', requires_grad=True)\n"
            "F.max_pool2d(x, 2).sum().backward(); F.avg_pool2d(x, 2).sum().backward()\n"
            "F.avg_pool2d(x.to(memory_format=torch.channels_last), 2).sum().backward()\n"
            "large = torch.ones(64, 32, 8, 8, device='netcl').to(memory_format=torch.channels_last)\n"
            "F.batch_norm(x, None, None, training=True), F.batch_norm(large, None, None, training=True)"
        )
        for device_class, pools, norms in (
            ("cpu", ["scatter", "rows", "windows"], ["whole", "channels"]),
            ("gpu", ["gather", "windows", "windows"], ["shares", "shares"]),
        ):
            done = python(code, NETCL_LOG="plan", NETCL_DEVICE_CLASS=device_class)
            plan = r"^netcl: plan aten::%s: (\w+)$"
            self.assertEqual(re.findall(plan % r"\w+_pool2d\w*_backward", done.stderr, re.M), pools)
            self.assertEqual(re.findall(plan % r"\w*batch_norm\w*", done.stderr, re.M), norms)


if __name__ == "__main__":
    run_tests()
