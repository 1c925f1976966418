"""Small launches that run in the calling thread (csrc/runtime/ImmediateQueue.h): which ones, and that streams stay in
order."""

import os
import threading
import unittest

import processes
import torch
from torch.testing._internal.common_utils import TestCase, run_tests

D = torch.device("netcl", 0)
PROPERTIES = torch.netcl.get_device_properties(D)
POCL = PROPERTIES.platform_name == "Portable Computing Language"
OFFERED = POCL or "cl_intel_exec_by_local_thread" in PROPERTIES.extensions


def words(code, **env):
    """What a new process prints, or its error."""
    done = processes.python(code, **env)
    return done.stdout.split() if done.returncode == 0 else [done.stderr]


#: How often other threads waited for something to do, while this one made 5000 small launches and read each result.
WAITS = """if True:
    import glob, threading, torch
    def others():
        total = 0
        for path in glob.glob("/proc/self/task/*/status"):
            if path.split("/")[4] != str(threading.get_native_id()):
                fields = dict(line.split(":\\t") for line in open(path))
                total += int(fields["voluntary_ctxt_switches"])
        return total
    x = torch.zeros(16, device="netcl")
    def step():
        x.add_(1)
        return x[0].item()
    for _ in range(2000):
        step()
    before = others()
    for _ in range(5000):
        step()
    print(others() - before, int(step()))
"""


class TestImmediate(TestCase):
    def test_order(self):
        """Small and large launches, copies, fills and reads in turn, on streams that wait for each other."""
        code = """if True:
            import random, torch
            random.seed(0)
            streams = [torch.netcl.Stream() for _ in range(2)]
            tensors = [torch.zeros(1 << 19, device="netcl") for _ in streams]
            small = [torch.zeros(64, device="netcl") for _ in streams]
            expected = [[0.0, torch.zeros(64)] for _ in streams]
            torch.netcl.synchronize()
            for step in range(600):
                i, j = random.sample(range(2), 2)
                what = random.choice("large small small sum fill copy upload read other wait".split())
                large, mine = expected[i]
                with torch.netcl.stream(streams[i]):
                    if what == "large":
                        tensors[i].add_(1)
                        expected[i][0] += 1
                    elif what == "small":
                        small[i].add_(step), mine.add_(step)
                    elif what == "sum":  # a small launch that reads what a large one writes
                        small[i].copy_(tensors[i][:64]), mine.fill_(large)
                    elif what == "fill":
                        small[i].fill_(step), mine.fill_(step)
                    elif what == "copy":
                        tensors[i][-64:].copy_(small[i])
                        small[i].zero_().add_(tensors[i][-64:])
                        tensors[i][-64:].copy_(tensors[i][:64])
                    elif what == "upload":
                        small[i].copy_(torch.full((64,), float(step))), mine.fill_(step)
                    elif what == "read":
                        assert torch.equal(small[i].cpu(), mine), (step, small[i].cpu(), mine)
                        assert tensors[i][-1].item() == large, step
                    elif what == "other":  # what another stream has enqueued, behind an event
                        event = streams[j].record_event()
                        event.wait()
                        small[i].copy_(small[j]), mine.copy_(expected[j][1])
                        streams[j].wait_event(streams[i].record_event())
                    else:
                        streams[i].synchronize()
            torch.netcl.synchronize()
            for i in range(2):
                assert torch.equal(small[i].cpu(), expected[i][1])
                assert bool((tensors[i] == expected[i][0]).all())
            print("ok")
        """
        for most in ("1000000", "60", "0"):
            self.assertEqual(words(code, NETCL_IMMEDIATE_MICROSECONDS=most), ["ok"], most)

    def test_threads(self):
        """Threads that launch the same kernel, each on its stream, and all on one."""
        for own in (True, False):
            results = [None] * 4

            def work(i, own=own, results=results):
                stream = torch.netcl.Stream() if own else torch.netcl.default_stream()
                with torch.netcl.stream(stream):
                    x = torch.full((32,), float(i), device=D)
                    for _ in range(300):
                        x = x + 1
                        if x[3].item() < i:
                            return
                    results[i] = x.cpu()

            threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for i, result in enumerate(results):
                self.assertEqual(result, torch.full((32,), 300.0 + i))

    def test_threads_that_allocate(self):
        """New memory is mapped on the queue whose launches other threads run meanwhile (PoCL hung)."""
        code = """if True:
            import threading, torch
            sums = []
            def small(stream):
                with torch.netcl.stream(stream):
                    y = torch.ones(64, device="netcl")
                    for i in range(3000):
                        y.add_(1)
                        if i % 100 == 0:
                            y.cpu()
                    sums.append(y.sum().item())
            def new(stream):
                with torch.netcl.stream(stream):
                    for i in range(200):
                        torch.empty((1 << 20) * (1 + i % 3), device="netcl").fill_(1)
                        torch.netcl.empty_cache()
            streams = [torch.netcl.Stream() for _ in range(2)]
            threads = [threading.Thread(target=work, args=(s,)) for s in streams for work in (small, new)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(*sums)
        """
        self.assertEqual(words(code), ["192064.0", "192064.0"])

    def test_threads_with_one_tensor(self):
        """Launches of several threads on one stream lose nothing, and a copy of the host sees no half of one."""
        code = """if True:
            import threading, torch
            n = 1 << 14
            x, one = torch.zeros(n, device="netcl"), torch.ones(n, device="netcl")
            torn = []
            def read():
                y = x.cpu()
                if y.min() != y.max():
                    torn.append(y)
            steps = [lambda: x.add_(1), lambda: x.sub_(one, alpha=-1), read]
            for step in steps:
                step()
            x.zero_()
            torch.netcl.synchronize()
            def work(step):
                for _ in range(1000):
                    step()
            threads = [threading.Thread(target=work, args=(step,)) for step in steps]
            [t.start() for t in threads], [t.join() for t in threads]
            print(len(torn), *x.unique().tolist())
        """
        for most in ("1000000", "0"):
            self.assertEqual(words(code, NETCL_IMMEDIATE_MICROSECONDS=most), ["0", "2000.0"], most)

    def test_events(self):
        """An event behind such launches is complete once the device is synchronised, and measures a time."""
        x = torch.zeros(16, device=D)
        begin, end = (torch.netcl.Event(enable_timing=True) for _ in range(2))
        for _ in range(20):
            begin.record()
            x.add_(1)
            end.record()
            torch.netcl.synchronize()
            self.assertTrue(begin.query() and end.query())
            self.assertGreaterEqual(begin.elapsed_time(end), 0)
        self.assertEqual(x[0].item(), 20)

    def test_bad_index_is_raised(self):
        table, bad = torch.zeros(8, device=D), torch.tensor([9], device=D)
        for _ in range(20):
            table[torch.tensor([3], device=D)].sum().item()
        with self.assertRaisesRegex(IndexError, "out of bounds"):
            table[bad].sum().item()
        self.assertEqual(table[torch.tensor([3], device=D)].sum().item(), 0)

    @unittest.skipIf(not OFFERED or PROPERTIES.device_class == "gpu", "the device has no such queue for its kernels")
    def test_the_calling_thread_runs_them(self):
        environment = {} if "POCL_DEVICES" not in os.environ else {"POCL_DEVICES": "pthread basic"}
        waits, value = words(WAITS, NETCL_IMMEDIATE_MICROSECONDS="1000000", **environment)
        self.assertEqual(value, "7001")
        self.assertLess(int(waits), 2500)  # a driver's thread would wait once for each read

    @unittest.skipIf(PROPERTIES.device_class == "gpu", "the variable is for CPU devices")
    def test_variable(self):
        (error,) = words("import torch; torch.zeros(1, device='netcl') + 1", NETCL_IMMEDIATE_MICROSECONDS="x")
        self.assertIn("NETCL_IMMEDIATE_MICROSECONDS must be a number", error)

    @unittest.skipIf(not POCL, "PoCL's device")
    def test_basic_is_no_device_of_ours(self):
        code = "import os, torch; print(torch.netcl.device_count(), os.environ.get('POCL_DEVICES'))"
        self.assertEqual(words(code, NETCL_VISIBLE_DEVICES="pocl"), ["1", str(os.environ.get("POCL_DEVICES"))])


if __name__ == "__main__":
    run_tests()
