"""What GPUs' drivers do in another way than a CPU's, imitated by a loader in front of the system's (imitated_gpu.c; the
table in docs/gpu.md): commands run only after a flush, binaries are text, logs of builds are never empty, and launches
with what a GPU does not take are errors."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from processes import python
from test_small_devices import GRIDS, PROGRAM
from torch.testing._internal.common_utils import TestCase, run_tests

from torch_netcl import _opencl

HERE = Path(__file__).resolve().parent
COMPILER = os.environ.get("CC", "cc").split()


@unittest.skipUnless(shutil.which(COMPILER[0]), "needs a C compiler")
class TestImitatedGpu(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        loader = _opencl.find_loader()
        cls.env = {"LD_LIBRARY_PATH": os.path.dirname(loader), "NETCL_DEVICE_CLASS": "gpu"}
        cls.env |= {"NETCL_COMPILE_NOTICE": "-1", "NETCL_CACHE_DIR": f"{cls.folder.name}/cache"}
        for group in (256, 1024):  # AMD's largest work-group, and NVIDIA's
            shim = f"{cls.folder.name}/{group}.so"
            command = [*COMPILER, "-shared", "-fPIC", "-O1", "-o", shim, HERE / "imitated_gpu.c", f"-DGROUP={group}"]
            subprocess.run([*command, f'-DLOADER="{loader}"', "-Wl,--no-as-needed", loader, "-ldl"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
        super().tearDownClass()

    def environment(self, group=1024):
        return self.env | {"NETCL_OPENCL_LIBRARY": f"{self.folder.name}/{group}.so"}

    def run_program(self, program, group=1024):
        done = python(PROGRAM + program, timeout=900, **self.environment(group))
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        return done.stdout

    def run_script(self, *arguments, group=1024):
        env = os.environ | self.environment(group)
        done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=1800)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr)[-4000:])
        return done.stdout

    def test_properties(self):
        program = """
p = torch.netcl.get_device_properties(D)
print(p.has_fp16, p.local_mem_size <= 48 << 10, p.max_work_group_size, 4 * p.max_mem_alloc_size <= p.total_memory)
"""
        self.assertEqual(self.run_program(program), "False True 1024 True\n")
        self.assertEqual(self.run_program(program, group=256), "False True 256 True\n")

    def test_families(self):
        """The second process finds all binaries, which are text, on disk."""
        count = "stats = torch.netcl.kernel_cache_stats()\nprint(stats['compiled'] > 0, stats['disk_hits'] > 50)"
        self.run_program(GRIDS, 256)
        self.run_program(GRIDS)
        self.assertEqual(self.run_program(GRIDS + count), "False True\n")

    def test_a_fused_kernel_of_many_buffers(self):
        """torch.compile makes it several."""
        program = """
def f(t, *xs):
    return [x * t + y for x, y in zip(xs[:30], xs[30:])]

xs = [torch.full((300,), float(i), device=D) for i in range(61)]
torch.testing.assert_close(torch.compile(f)(*xs), f(*xs))
"""
        self.run_program(program)

    def test_commands_wait_for_a_flush(self):
        """Whatever waits for a command flushes its queue, also if that is another stream's, or only a question."""
        program = """
import time
x, copy = torch.arange(1000.0, device=D), torch.zeros(1000).pin_memory()
(x + 1).sum().item()
copy.copy_(x + 1, non_blocking=True)
time.sleep(0.2)
print(copy.sum().item())  # no copy yet: nothing has asked for it
done = torch.netcl.current_stream().record_event()
while not done.query(): pass
print(copy[5].item())
s, t = torch.netcl.Stream(), torch.netcl.Stream()
with torch.netcl.stream(s): y = x * 2
t.wait_stream(s)
with torch.netcl.stream(t): z = y * 3
while not t.query(): pass
print(z[5].item(), x.cpu()[5].item())
for _ in range(3):  # mapped memory returns to the driver
    copy = torch.zeros(1000).pin_memory()
    del copy
    torch.accelerator.memory.empty_host_cache()
"""
        self.assertEqual(self.run_program(program), "0.0\n6.0\n30.0 5.0\n")

    def test_streams(self):
        self.run_script("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "", HERE / "test_streams.py")

    def test_logs(self):
        """What a compiler says of a program without an error is not shown, and an error in full."""
        program = """
from torch_netcl.custom_kernel import compile_kernel
print((torch.ones(3, device=D) + 1).tolist())
try: compile_kernel("__kernel void f(__global float* x) { x[0] = nothing; }", "f").build()
except RuntimeError as error: print("ptxas info" in str(error), "identifier 'nothing'" in str(error))
"""
        self.assertEqual(self.run_program(program), "[2.0, 2.0, 2.0]\nTrue True\n")

    def test_an_error_that_comes_late(self):
        """NVIDIA's driver reports a kernel's access out of bounds at the next wait, by a number of its own."""
        program = """
x = torch.ones(3, device=D)
torch.ops.netcl._inject_error("clFinish", -9999, 0, 1)
try: torch.netcl.synchronize()
except RuntimeError as error: print(error)
torch.ops.netcl._end_injection()
"""
        error = "clFinish failed with NVIDIA's error for an illegal access to memory (-9999)"
        self.assertIn(error, self.run_program(program))


if __name__ == "__main__":
    run_tests()
