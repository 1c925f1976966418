"""Kernels are built by other threads: what is enqueued meanwhile runs in order, and errors come to light."""

import re
import tempfile
import time
import unittest
from pathlib import Path

import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests

START = """
import threading
import torch
D = torch.device("netcl", 0)
NETCL = torch.ops.netcl
def deferred():
    return NETCL._backpressure()["deferred"]
"""


POCL = "Portable" in torch.netcl.get_device_properties(0).platform_name


def read(path):
    """What is in a file of /proc; nothing if the process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def builders(folder):
    """The processes that still build for this folder, some seconds after the program that they serve has ended."""
    deadline = time.monotonic() + 20
    while True:
        every = [p for p in Path("/proc").glob("[0-9]*") if b"_builder.py" in read(p / "cmdline")]
        found = [p for p in every if folder.encode() in read(p / "environ")]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


class TestBuilds(TestCase):
    def run_cold(self, code, before="", **env):
        """What the code prints in a process without a kernel on disk."""
        with tempfile.TemporaryDirectory() as folder:
            run = python(before + START + code, **{"NETCL_LAUNCH_BLOCKING": None, "NETCL_CACHE_DIR": folder, **env})
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout.split()

    def test_order_of_launches_fills_and_copies(self):
        code = """
def work(device):
    x = torch.arange(4000, dtype=torch.float32, device=device)
    y = x * 2 + 1
    y[10:20] = 7
    z = y.clone()
    y.zero_()
    z += torch.tensor([3.0]).to(device)
    z[:4] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    half = z.half().float().sum().reshape(1)
    del x
    x = torch.full((4000,), -1.0, device=device)  # perhaps in the old one's memory, while launches wait
    return torch.cat([y, z, half, x, z.view(40, 100).sort(1).values.flatten(), z.view(40, 100).cumsum(1).flatten()])
got = work(D)
waited = deferred()
torch.testing.assert_close(got.cpu(), work("cpu"))
print(waited)
"""
        self.assertEqual(self.run_cold(code, NETCL_COMPILE_THREADS="0"), ["0"])
        for threads in ("1", "3"):
            self.assertGreater(int(self.run_cold(code, NETCL_COMPILE_THREADS=threads)[0]), 8)

    def test_streams_events_and_threads(self):
        code = """
side = torch.netcl.Stream()
x = torch.ones(1000, device=D) * 2.5
with torch.netcl.stream(side):
    side.wait_stream(torch.netcl.default_stream(D))
    y = x.exp().sqrt()
    done = side.record_event()
torch.netcl.default_stream(D).wait_event(done)
z = y + 1
results = {}
def run(i):
    a = torch.full((500,), float(i), device=D)
    for k in range(3):
        a = [torch.sin, torch.cos, torch.tanh, torch.atan][(i + k) % 4](a) * (k + 1)
    results[i] = a
threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
for t in threads: t.start()
for t in threads: t.join()
while not torch.netcl.current_stream().query():
    pass
for i, a in results.items():
    b = torch.full((500,), float(i))
    for k in range(3):
        b = [torch.sin, torch.cos, torch.tanh, torch.atan][(i + k) % 4](b) * (k + 1)
    torch.testing.assert_close(a.cpu(), b)
torch.testing.assert_close(z.cpu(), (torch.ones(1000) * 2.5).exp().sqrt() + 1)
print(deferred() > 0)
"""
        self.assertEqual(self.run_cold(code, NETCL_COMPILE_THREADS="2"), ["True"])

    def test_an_error_names_the_operator_and_is_over(self):
        code = """
x = torch.ones(50, device=D)
torch.netcl.synchronize()
NETCL._inject_error("clCreateKernel", -6, 0)
try:
    y = x * 3.5
    z = x.exp()
    y.cpu()
    print("silent")
except RuntimeError as error:
    print("clCreateKernel" in str(error), "CL_OUT_OF_HOST_MEMORY" in str(error), "mul" in str(error))
NETCL._end_injection()
torch.testing.assert_close((x * 3.5 + x.exp()).cpu(), torch.ones(50) * 3.5 + torch.ones(50).exp())
print("ok")
"""
        for threads in ("0", "1"):
            self.assertEqual(self.run_cold(code, NETCL_COMPILE_THREADS=threads), ["True", "True", "True", "ok"])

    def test_an_error_while_a_tensor_is_freed_is_raised_later(self):
        code = """
side = torch.netcl.Stream()
x = torch.ones(50, device=D)
torch.netcl.synchronize()
with torch.netcl.stream(side):
    NETCL._inject_error("clCreateKernel", -6, 0)
    y = x * 3.5
    x.record_stream(side)
    del x  # its memory is free when `side` has come this far, so the multiplication's kernel must be built now
    print("freed", deferred() > 0)
    NETCL._end_injection()
    y + 1  # no operator takes the blame for another one
    try:
        side.synchronize()
        print("silent")
    except RuntimeError as error:
        print("clCreateKernel" in str(error), "mul" in str(error))
side.synchronize()
torch.testing.assert_close((torch.ones(50, device=D) * 3.5).cpu(), torch.full((50,), 3.5))
print("ok")
"""
        self.assertEqual(self.run_cold(code, NETCL_COMPILE_THREADS="1"), ["freed", "True", "True", "True", "ok"])

    def test_a_program_that_the_driver_refuses_is_kept(self):
        """NETCL_DUMP: with its options and the driver's log; programs that compile are not."""
        code = """
import torch, torch_netcl
broken = torch_netcl.compile_kernel("__kernel void broken(__global float *x) { no_such_name; }", "broken", "-DMARK=7")
try:
    broken(torch.ones(3, device="netcl"), global_size=1)
except RuntimeError as error:
    assert "no_such_name" in str(error), error
assert torch.ones(3, device="netcl").add(1).sum().item() == 6
"""
        with tempfile.TemporaryDirectory() as folder:
            run = python(code, NETCL_DUMP=folder, NETCL_CACHE_DIR=folder + "/cache")
            self.assertEqual(run.returncode, 0, run.stderr)
            (kept,) = Path(folder).glob("*.cl")
            parts = ("// options: ", "-DMARK=7", "void broken", "CL_BUILD_PROGRAM_FAILURE", "no_such_name")
            self.assertRegex(kept.read_text(), "(?s)" + ".*".join(parts))

    def test_what_comes_behind_a_failed_launch_runs(self):
        """And each error is raised, by the next wait, whatever it is."""
        code = """
x, w, numbers = torch.ones(50, device=D), torch.ones(3, device=D), torch.arange(50, device=D)
side = torch.netcl.Stream()
torch.netcl.synchronize()
def polled(ended):
    while not ended():
        pass
FIRST, SECOND = torch.exp, torch.bitwise_not
for wait in WAITS:
    NETCL._inject_error("clCreateKernel", -6, 0, 2)
    lost = [FIRST(x), SECOND(numbers)]
    kept, filled = w + 2, w.clone()
    filled.zero_()
    w.mul_(2)
    try:
        kept.cpu() if wait is None else wait()
        print("silent")
    except RuntimeError as error:
        text = str(error)
        print(text.count("clCreateKernel"), FIRST.__name__ in text, SECOND.__name__ in text, "Not run" in text)
    NETCL._end_injection()
    torch.netcl.synchronize()  # no error comes twice
    torch.testing.assert_close((kept.cpu(), filled.cpu()), (w.cpu() / 2 + 2, torch.zeros(3)))
    torch.testing.assert_close((FIRST(x).cpu(), SECOND(numbers).cpu()), (FIRST(x.cpu()), SECOND(numbers.cpu())))
"""
        for wait in (
            "None",
            "torch.netcl.synchronize",
            "lambda: torch.netcl.current_stream().record_event().synchronize()",
            "lambda: polled(torch.netcl.current_stream().query)",
        ):
            got = self.run_cold(code.replace("WAITS", f"[{wait}]"), NETCL_COMPILE_THREADS="1")
            self.assertEqual(got, ["2", "True", "True", "True"], wait)

    def test_the_rest_of_a_failed_operator_does_not_run(self):
        """It would read what was not written, perhaps as places in memory."""
        code = """
x = torch.randn(70, 70, device=D)
torch.netcl.synchronize()
NETCL._inject_error("clCreateKernel", -6, 1)  # geqrf copies its input first
y = torch.geqrf(x)
try:
    torch.netcl.synchronize()
    print("silent")
except RuntimeError as error:
    print("geqrf" in str(error), "commands" in str(error))
"""
        # Without the CPU's LAPACK, which takes matrices of this size.
        result = self.run_cold(code, NETCL_COMPILE_THREADS="1", NETCL_CPU_FALLBACK="error")
        self.assertEqual(result, ["True", "True"])

    def test_an_error_that_nothing_waited_for_is_a_warning_at_exit(self):
        code = """
x = torch.ones(50, device=D)
torch.netcl.synchronize()
NETCL._inject_error("clCreateKernel", -6, 0)
y = x * 3.5
"""
        with tempfile.TemporaryDirectory() as folder:
            run = python(START + code, NETCL_CACHE_DIR=folder, NETCL_COMPILE_THREADS="1")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("clCreateKernel failed with CL_OUT_OF_HOST_MEMORY", run.stderr)
        self.assertRegex(run.stderr, "Not run.*mul")

    def test_default_number_of_threads(self):
        code = """
x = torch.ones(50, device=D) * 2.5
y = x.exp()
print(deferred() > 0)
"""
        self.assertEqual(self.run_cold(code, NETCL_COMPILE_THREADS=""), ["True"])
        # Without a process for each, PoCL's threads would wait for each other.
        alone = "import sys\nsys.executable = 'no-python'\n"
        printed = self.run_cold(code, alone, NETCL_COMPILE_THREADS="", OMP_NUM_THREADS="1")
        self.assertEqual(printed, [str(not POCL)])

    CHAIN = """
x = torch.linspace(-2, 2, 600, device=D).view(20, 30)
y = (x.sigmoid() + x.exp()).softmax(1).cumsum(0).sort(1).values.sum(1)
print(y.cpu().sum().item())
"""

    @unittest.skipUnless(POCL, "only PoCL's programs are built by other processes")
    def test_other_processes(self):
        def run(threads, before=""):
            with tempfile.TemporaryDirectory() as folder:
                env = {"NETCL_LOG": "compile", "NETCL_CACHE_DIR": folder, "NETCL_LAUNCH_BLOCKING": None}
                env["OMP_NUM_THREADS"] = "1"  # a process of its own, since `before` comes before torch's import
                done = python(before + START + self.CHAIN, NETCL_COMPILE_THREADS=threads, **env)
                self.assertEqual(builders(folder), [])
                # PoCL's functions that a program calls. Those of another CPU are not inlined, at a tenth of the speed.
                programs = {p.name: p.read_bytes() for p in Path(folder).glob("*.bin")}
                called = {name: set(re.findall(rb"_Z\w+?_cl_\w+", binary)) for name, binary in programs.items()}
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout, done.stderr.count("in another process"), called

        *expected, called = run("0")
        self.assertEqual(expected[1], 0)
        text, elsewhere, called_elsewhere = run("3")
        self.assertEqual(text, expected[0])
        self.assertGreater(elsewhere, 0)
        self.assertGreater(len(called), 5)
        self.assertEqual(called_elsewhere, called)
        # An interpreter that is not there, or that ends at once: the program builds all itself.
        with tempfile.TemporaryDirectory() as folder:
            ends = Path(folder) / "python3"
            ends.write_text("#!/bin/sh\nexit 1\n")
            ends.chmod(0o700)
            for executable in ("/nowhere/python3", str(ends)):
                *got, _ = run("3", f"import sys\nsys.executable = {executable!r}\n")
                self.assertEqual(got, expected)

    def test_what_an_operator_lacks_is_said_at_once(self):
        code = """
try:
    torch.erfinv(torch.ones(3, device=D, dtype=torch.complex64))
    print("silent")
except (NotImplementedError, RuntimeError) as error:
    print(type(error).__name__)
"""
        self.assertEqual(self.run_cold(code, NETCL_COMPILE_THREADS="1"), ["NotImplementedError"])

    def test_exit_while_kernels_are_built(self):
        code = """
x = torch.ones(300, 300, device=D)
y = (x @ x).softmax(1).cumsum(0).sort(1).values
print("left")
"""
        self.assertEqual(self.run_cold(code, NETCL_COMPILE_THREADS="2"), ["left"])


if __name__ == "__main__":
    run_tests()
