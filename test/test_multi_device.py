"""Several devices in one process: those of NETCL_SUBDEVICES=2, so that any CPU will do."""

import os
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl

COUNT = torch.netcl.device_count()
SPLIT = bool(os.environ.get("NETCL_SUBDEVICES"))


def run(arguments, **env):
    """The finished process of this Python in this folder."""
    command = [sys.executable, *arguments]
    folder = Path(__file__).parent
    env = {**os.environ, **env}
    env.pop("CI", None)  # with it PyTorch's run_tests writes XML, for which it needs another package
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@unittest.skipIf(SPLIT, "runs itself with NETCL_SUBDEVICES")
class TestSubdevices(TestCase):
    def test_two_parts(self):
        done = run(["test_multi_device.py", "TestTwoDevices"], NETCL_SUBDEVICES="2")
        if "NETCL_SUBDEVICES=2 is ignored" in done.stderr:
            raise unittest.SkipTest("this device cannot be split in two")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"Ran 6 tests(.|\n)*OK\n")

    def test_more_parts_than_units(self):
        done = run(["-c", "import torch; print(torch.netcl.device_count())"], NETCL_SUBDEVICES="100000")
        self.assertEqual(done.stdout.strip(), str(COUNT))
        self.assertIn("NETCL_SUBDEVICES=100000 is ignored", done.stderr)


@unittest.skipIf(not SPLIT or COUNT < 2, "TestSubdevices runs it")
class TestTwoDevices(TestCase):
    A, B = torch.device("netcl", 0), torch.device("netcl", 1)

    def test_parts(self):
        parts = [torch.netcl.get_device_properties(i) for i in range(2)]
        self.assertNotEqual(parts[0].cl_device_id, parts[1].cl_device_id)
        self.assertEqual(parts[0].name, parts[1].name)

    def test_copies(self):
        x = torch.randn(30, 50)
        for view in (x, x.t(), x[::2, 5:], x[:1].expand(30, 50)):
            for dtype in (torch.float32, torch.float16, torch.int32):
                y = view.to(self.A).to(self.B, dtype)
                self.assertEqual((y.device, y.dtype), (self.B, dtype))
                self.assertEqual(y.cpu(), view.to(dtype))
                target = torch.zeros(view.shape[::-1], device=self.A).t()
                target.copy_(y)
                self.assertEqual(target.cpu(), view.to(dtype).float())
        big = torch.arange(5_000_000, device=self.A)
        self.assertEqual(big.to(self.B).sum().item(), big.sum().item())
        y = torch.ones(3, device=self.A)
        for _ in range(20):  # each copy comes after the writer on one device and before the reader on the other
            y = (y * 2).to(self.B) if y.device == self.A else (y * 0.5 + 1).to(self.A)
        self.assertEqual(y.cpu(), torch.full((3,), 11.0))

    def test_copy_that_fails(self):
        x = torch.ones(1000, device=self.A)
        for entry in ("clEnqueueMapBuffer", "clEnqueueWriteBuffer", "clEnqueueUnmapMemObject"):
            torch.ops.netcl._inject_error(entry, -5, 0)
            try:
                with self.assertRaisesRegex(RuntimeError, f"{entry} failed with CL_OUT_OF_RESOURCES .* aten::copy_"):
                    x.to(self.B)
            finally:
                torch.ops.netcl._end_injection()
            self.assertEqual(x.to(self.B).cpu(), torch.ones(1000))

    def test_devices_do_not_mix(self):
        a, b = torch.ones(2, device=self.A), torch.ones(2, device=self.B)
        with self.assertRaisesRegex(RuntimeError, "device"):
            a + b
        with torch.netcl.device(1):
            self.assertEqual(torch.empty(1, device="netcl").device, self.B)
            self.assertEqual(torch.netcl.current_stream().device, self.B)
            self.assertEqual((a + a).device, self.A)
        before = torch.netcl.memory_allocated(0)
        torch.empty(1 << 20, device=self.B)
        self.assertEqual(torch.netcl.memory_allocated(0), before)
        torch.netcl.manual_seed_all(5)
        self.assertEqual(torch.randn(9, device=self.A).cpu(), torch.randn(9, device=self.B).cpu(), rtol=0, atol=0)

    def test_a_kernel_of_users_needs_a_launch_on_each(self):
        add = torch_netcl.compile_kernel(
            "__kernel void add(__global float* x, __global const float* y) { *x += *y; }", "add"
        )
        a, b = torch.ones(1, device=self.A), torch.ones(1, device=self.B)
        with self.assertRaisesRegex(ValueError, "netcl:1"):
            add(a, b, global_size=1)
        add(a, a, global_size=1)
        add(b, b, global_size=1)
        self.assertEqual((a.item(), b.item()), (2, 2))

    def test_two_threads_train_on_two_devices(self):
        def train(device, results, errors):
            try:
                generator = torch.Generator().manual_seed(0)
                x, y = (torch.randn(32, 8, generator=generator).to(device) for _ in range(2))
                model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
                weights = [torch.randn(p.shape, generator=generator) / 4 for p in model.parameters()]
                model.to(device)
                with torch.no_grad():
                    for p, w in zip(model.parameters(), weights, strict=True):
                        p.copy_(w)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for _ in range(20):
                    optimizer.zero_grad()
                    torch.nn.functional.mse_loss(model(x), y).backward()
                    optimizer.step()
                results[device] = torch.cat([p.detach().cpu().flatten() for p in model.parameters()])
            except Exception as e:
                errors.append(e)

        devices = [self.A, self.B, torch.device("cpu")]
        results, errors = {}, []
        threads = [threading.Thread(target=train, args=(d, results, errors)) for d in devices]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(results[self.A], results[self.B], rtol=0, atol=0)
        self.assertEqual(results[self.A], results[torch.device("cpu")], rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    run_tests()
