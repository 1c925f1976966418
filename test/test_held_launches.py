"""Small launches that are held back (csrc/runtime/LaunchGate.h): which ones, until when, and that results do not
change. They are held on PoCL by default; NETCL_MAX_HELD_LAUNCHES=16 holds them on other runtimes too, so order and
errors are tested on all."""

import os
import subprocess
import sys
import threading
import time
import unittest

import numpy as np
import pyopencl as cl
import pyopencl.array
import torch
from torch.testing._internal.common_utils import TestCase, run_tests

from torch_netcl import interop

D = torch.device("netcl", 0)
NETCL = torch.ops.netcl
POCL = torch.netcl.get_device_properties(D).platform_name == "Portable Computing Language"
TRIES = 500  # the device must finish a launch before the next one, which takes a moment


def calls_of(function):
    """How often `function` calls each OpenCL function."""
    NETCL._inject_error("", 0, 0)
    try:
        function()
    finally:
        counts = NETCL._end_injection()
    return counts


def python(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=300
    )


@unittest.skipIf(
    torch.netcl.get_device_properties(D).device_class == "gpu", "a group of work-items is more than is held back"
)
class TestHeldLaunches(TestCase):
    def setUp(self):
        torch.netcl.synchronize()
        side = torch.netcl.stream(torch.netcl.Stream())  # the default stream may be shared with pyopencl by now
        side.__enter__()
        self.addCleanup(side.__exit__, None, None, None)

    def test_small_launches_behind_an_empty_queue(self):
        x = torch.zeros(16, device=D)
        x.add_(1)
        done = 1

        def work():
            x.add_(1)
            time.sleep(2e-3)
            for _ in range(8):
                x.add_(1)
            torch.netcl.synchronize()

        for _ in range(TRIES):
            torch.netcl.synchronize()  # opens closed gates
            counts = calls_of(work)
            done += 9
            self.assertEqual(counts["clSetUserEventStatus"], counts["clCreateUserEvent"])
            self.assertLess(counts["clCreateUserEvent"], 9)  # one for several launches
            self.assertEqual(x[0].item(), done)
            if counts["clCreateUserEvent"] or not POCL:
                break
        self.assertEqual(counts["clCreateUserEvent"] > 0, POCL)  # other drivers submit only when flushed

    def test_the_first_launch_and_large_ones_go_at_once(self):
        small, large = torch.zeros(16, device=D), torch.zeros(1 << 20, device=D)
        small.add_(1), large.add_(1)

        def one_and_wait():
            for _ in range(5):
                small.add_(1)
                torch.netcl.synchronize()

        def all_large():
            for _ in range(5):
                large.add_(1)
                time.sleep(2e-3)

        for work in (one_and_wait, all_large):
            torch.netcl.synchronize()
            self.assertEqual(calls_of(work)["clCreateUserEvent"], 0, work.__name__)

    def test_held_launches_start_though_nobody_waits(self):
        if not POCL:
            self.skipTest("this driver starts nothing before it is flushed, held back or not")
        host = np.zeros(16, np.float32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        context = interop.context(D)
        queue = cl.CommandQueue(context, interop.device(D))
        buffer = cl.Buffer(context, flags, hostbuf=host)
        x = interop.from_pyopencl(cl.array.Array(queue, host.shape, host.dtype, data=buffer))
        with torch.netcl.stream(torch.netcl.Stream()):
            for done in range(3, 63, 3):
                x.add_(1), x.add_(1), x.add_(1)
                limit = time.monotonic() + 60
                while host[0] != done:  # no call in this loop could submit anything
                    self.assertLess(time.monotonic(), limit, "held back for good")
                    time.sleep(1e-4)
            torch.netcl.synchronize()
        self.assertEqual(x.cpu().numpy(), np.full(16, 60, np.float32))

    def test_a_shared_queue_holds_nothing_back(self):
        code = """if True:
            import time, torch
            from torch_netcl import interop
            x = torch.zeros(16, device="netcl")
            for _ in range(5):
                x.add_(1)
            queue = interop.current_queue()
            queue.finish()
            torch.ops.netcl._inject_error("", 0, 0)
            for _ in range(30):
                x.add_(1)
                time.sleep(1e-3)
            queue.finish()
            print(torch.ops.netcl._end_injection()["clCreateUserEvent"], x[0].item())
        """
        done = python(code, NETCL_MAX_HELD_LAUNCHES="16")
        self.assertEqual(done.stdout.split(), ["0", "35.0"], done.stderr)

    def test_order(self):
        """Launches, copies, fills and reads in turn, on streams that wait for each other."""
        code = """if True:
            import random, time, torch
            random.seed(0)
            streams = [torch.netcl.Stream() for _ in range(3)]
            tensors = [torch.zeros(64, device="netcl") for _ in streams]
            expected = [torch.zeros(64) for _ in streams]
            torch.netcl.synchronize()
            for step in range(400):
                i, j = random.sample(range(3), 2)
                what = random.choice("add add add mul fill copy from read event wait sleep".split())
                with torch.netcl.stream(streams[i]):
                    if what == "add":
                        tensors[i].add_(step), expected[i].add_(step)
                    elif what == "mul":
                        tensors[i].mul_(0.5), expected[i].mul_(0.5)
                    elif what == "fill":
                        tensors[i].fill_(step), expected[i].fill_(step)
                    elif what == "copy":
                        tensors[i].copy_(torch.full((64,), float(step))), expected[i].fill_(step)
                    elif what == "from":
                        streams[i].wait_stream(streams[j])
                        tensors[i].add_(tensors[j], alpha=0.5), expected[i].add_(expected[j], alpha=0.5)
                        streams[j].wait_stream(streams[i])
                    elif what == "read":
                        assert torch.equal(tensors[i].cpu(), expected[i]), step
                    elif what == "event":
                        streams[i].record_event().synchronize()
                    elif what == "wait":
                        streams[i].synchronize()
                    else:
                        time.sleep(1e-3)
            torch.netcl.synchronize()
            assert all(torch.equal(t.cpu(), e) for t, e in zip(tensors, expected))
            print("ok")
        """
        for held in ("1", "16"):
            done = python(code, NETCL_MAX_HELD_LAUNCHES=held)
            self.assertEqual(done.stdout, "ok\n", held + done.stderr)

    def test_threads_on_one_stream(self):
        tensors = [torch.zeros(16, device=D) for _ in range(4)]
        torch.netcl.synchronize()

        def work(x):
            for i in range(200):
                x.add_(1)
                if i % 50 == 7:
                    torch.netcl.synchronize()

        threads = [threading.Thread(target=work, args=(x,)) for x in tensors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.netcl.synchronize()  # the threads used the default stream, and this one reads on another
        for x in tensors:
            self.assertEqual(x.cpu(), torch.full((16,), 200.0))

    def test_errors(self):
        """A gate that cannot be created holds nothing back; one that cannot be opened is opened later; a failed launch
        behind a gate raises its error and blocks nothing."""
        code = f"""if True:
            import time, torch
            N = torch.ops.netcl
            x = torch.zeros(16, device="netcl")
            x.add_(1)
            done = 1
            for entry in ("clCreateUserEvent", "clSetUserEventStatus", "clEnqueueNDRangeKernel"):
                for attempt in range({TRIES}):
                    torch.netcl.synchronize()
                    launch = entry == "clEnqueueNDRangeKernel"  # the second one, which is repeated
                    N._inject_error(entry, -5, int(launch), 1 + launch)
                    failed = 0
                    for _ in range(9):
                        try:
                            x.add_(1)
                            done += 1
                        except RuntimeError as e:
                            assert entry + " failed with CL_OUT_OF_RESOURCES (-5) while running" in str(e), e
                            failed += 1
                        time.sleep(1e-3)
                    torch.netcl.synchronize()
                    calls = N._end_injection()
                    assert failed == launch, (entry, failed)
                    assert x[0].item() == done, (entry, x[0].item(), done)
                    if calls[entry] and calls["clCreateUserEvent"]:
                        break
                else:
                    raise AssertionError(entry + " was never called")
            print("ok")
        """
        done = python(code, NETCL_MAX_HELD_LAUNCHES="16")
        self.assertEqual(done.stdout, "ok\n", done.stderr)


if __name__ == "__main__":
    run_tests()
