"""Faults that the device must survive: running out of memory, fragmentation, leaks, threads, fork, exit, signals,
hostile input. docs/reliability.md lists them."""

import collections
import gc
import io
import os
import pickle
import random
import tempfile
import threading
import unittest
import zipfile
from pathlib import Path

import numpy as np
import pyopencl.array
import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils.data import DataLoader, TensorDataset

import torch_netcl

D = torch.device("netcl", 0)
FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
MIB = 1 << 20


def resident():
    """The resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def add_up(x, module, parameters, data, sums):
    """In a spawned process."""
    both = [sum(p.sum().item() for p in each) for each in (module.parameters(), parameters)]
    sums.put([x.sum().item(), *both, sum(t.sum().item() for t in data.tensors)])


NEEDS_MEMORY = unittest.skipIf(
    "early_allocation" in os.environ.get("NETCL_DISABLE", ""), "needs more than the 512 MiB of the imitated device"
)


class TestMemory(TestCase):
    def setUp(self):
        gc.collect()
        torch.netcl.synchronize()
        torch.netcl.empty_cache()

    def test_training_goes_on_with_a_smaller_batch(self):
        total = torch.netcl.get_device_properties(D).global_mem_size
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).to(D)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(batch):
            optimizer.zero_grad()
            loss = model(torch.ones(batch, 64, device=D)).square().mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        first = step(16)
        torch.netcl.set_per_process_memory_fraction((torch.netcl.memory_reserved() + 100 * MIB) / total)
        try:
            batch, failed = 1 << 18, 0
            while True:
                try:
                    last = step(batch)
                    break
                except torch.OutOfMemoryError as e:
                    self.assertRegex(str(e), r"Tried to allocate [\d.]+ [MG]iB on .* are allocated by tensors, .* are")
                    failed += 1
                    batch //= 4
            self.assertGreater(failed, 0)
            self.assertGreater(batch, 1000)
            self.assertLess(last, first)
            self.assertLess(step(batch), last)
        finally:
            torch.netcl.set_per_process_memory_fraction(1.0)

    def test_out_of_memory_in_each_part_of_a_step(self):
        """The memory suffices neither for the forward pass, nor for backward, nor for the optimizer's first step, as
        the limit rises. The weights stay as they were, and then the step gives the same result as with enough
        memory."""
        total = torch.netcl.get_device_properties(D).global_mem_size
        data = torch.randn(64, 1024, generator=torch.Generator().manual_seed(0))

        def fresh():
            generator = torch.Generator().manual_seed(1)
            model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(6)))
            for p in model.parameters():
                p.data = torch.randn(p.shape, generator=generator) / 32
            model.to(D)
            return model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)  # an update is all or nothing

        def step(model, optimizer, stage):
            stage[0] = "forward"
            loss = model(data.to(D)).square().mean()
            stage[0] = "backward"
            loss.backward()
            stage[0] = "optimizer"
            optimizer.step()

        expected, optimizer = fresh()
        step(expected, optimizer, [None])
        expected = [p.detach().cpu() for p in expected.parameters()]
        del optimizer
        model, optimizer = fresh()
        before = [p.detach().cpu() for p in model.parameters()]
        gc.collect()
        torch.netcl.empty_cache()
        limit, failed, stage = torch.netcl.memory_reserved(), [], [None]
        torch.netcl.set_per_process_memory_fraction(limit / total)
        filled = self.fill_free_blocks()
        try:
            while True:
                torch.netcl.set_per_process_memory_fraction(limit / total)
                try:
                    step(model, optimizer, stage)
                    break
                except torch.OutOfMemoryError:
                    failed.append(stage[0])
                optimizer.zero_grad()
                optimizer.state.clear()  # torch's AdamW leaves half of the state of its first step
                self.assertEqual([p.detach().cpu() for p in model.parameters()], before, rtol=0, atol=0)
                limit += 8 * MIB
        finally:
            torch.netcl.set_per_process_memory_fraction(1.0)
            del filled
        self.assertEqual(sorted(set(failed)), ["backward", "forward", "optimizer"])
        self.assertEqual([p.detach().cpu() for p in model.parameters()], expected)

    def fill_free_blocks(self):
        """Tensors in every free block of the slabs that other tests' tensors keep: with these blocks, a part of the
        step could succeed at once."""
        filled = []
        for size in (8 * MIB, MIB, 64 * 1024, 512):
            while True:
                try:
                    filled.append(torch.empty(size, dtype=torch.uint8, device=D))
                except torch.OutOfMemoryError:
                    break
        return filled

    def test_cached_blocks_are_given_back_first(self):
        total = torch.netcl.get_device_properties(D).global_mem_size
        torch.netcl.set_per_process_memory_fraction((torch.netcl.memory_reserved() + 70 * MIB) / total)
        try:
            kept = [torch.empty(15 * MIB, dtype=torch.uint8, device=D) for _ in range(4)]
            side = torch.netcl.Stream()
            kept[0].record_stream(side)  # its block waits for `side` before it is free
            del kept
            self.assertEqual(torch.zeros(60 * MIB, dtype=torch.uint8, device=D).amax().item(), 0)
        finally:
            torch.netcl.set_per_process_memory_fraction(1.0)

    @NEEDS_MEMORY
    def test_fragmentation(self):
        """A random trace of one job after another, each with its own sizes and up to 600 MiB in use, freed in any
        order: the reserved memory stays near the peak of the memory in use."""
        rng = random.Random(0)
        torch.netcl.reset_peak_memory_stats()
        before = torch.netcl.memory_allocated()
        live, size, limit = [], 0, 600 * MIB
        for i in range(1_000_000 if FULL else 20_000):
            if i % 2000 == 0:  # another job; a tenth of the tensors outlives the previous one
                rng.shuffle(live)
                del live[len(live) // 10 :]
                size = sum(t.nbytes for t in live)
                phase = limit * (0.4 + 0.3 * (i // 2000 % 3))
                small = [int(2 ** rng.uniform(2, 20)) for _ in range(28)]
                sizes = small + [int(2 ** rng.uniform(20, 24.5)) for _ in range(12)]
            while live and (size > phase or rng.random() < 0.3):
                k = rng.randrange(len(live))
                live[k], live[-1] = live[-1], live[k]
                size -= live.pop().nbytes
            n = rng.choice(sizes)
            live.append(torch.empty(n, dtype=torch.uint8, device=D))
            size += n
        peak = torch.netcl.max_memory_allocated() - before
        reserved = torch.netcl.max_memory_reserved()
        print(
            f"fragmentation: peak {peak / MIB:.0f} MiB in use, {reserved / MIB:.0f} MiB reserved: {reserved / peak:.3f}"
        )
        self.assertGreater(peak, limit / 2)
        self.assertLess(reserved, 1.3 * peak)
        del live
        torch.netcl.empty_cache()
        self.assertLessEqual(torch.netcl.memory_reserved(), before + 64 * MIB)

    def test_phases_keep_their_memory(self):
        """If each step first needs one kind of slab and then another, the process keeps both."""
        torch.netcl.empty_cache()
        calls = []
        for _ in range(4):
            for count, size in ((10, MIB), (3, 6 * MIB), (1, 11 * MIB)):
                del [torch.empty(size, dtype=torch.uint8, device=D) for _ in range(count)][:]
            calls.append(torch.netcl.memory_stats()["num_device_alloc"])
        self.assertEqual(calls[1:], calls[:1] * 3)

    @NEEDS_MEMORY
    def test_memory_given_back_leaves_the_process(self):
        if torch.netcl.get_device_properties(D).device_type != "cpu":
            self.skipTest("the device has memory of its own")
        for _ in range(2):  # the first time, compilers grow the process
            before = resident()
            x = torch.ones(256 * MIB, dtype=torch.uint8, device=D)
            y = x + 1
            torch.netcl.synchronize()
            in_use = resident()
            del x, y
            torch.netcl.empty_cache()
            torch.netcl.synchronize()
        self.assertGreater(in_use - before, 400 * MIB)
        self.assertLess(resident() - before, 50 * MIB)

    def test_training_does_not_leak(self):
        steps = 10_000 if FULL else 200
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to(D)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        scaler = torch.amp.GradScaler("netcl")
        x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))

        def step():
            optimizer.zero_grad()
            with torch.autocast("netcl", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(x.to(D)), y.to(D))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        for _ in range(100):
            step().item()
        gc.collect()
        allocated, rss = torch.netcl.memory_allocated(), resident()
        for i in range(steps):
            loss = step()
            if i % 10 == 0:
                loss.item()
        del loss
        torch.netcl.synchronize()
        gc.collect()
        self.assertEqual(torch.netcl.memory_allocated(), allocated)
        grown = resident() - rss
        print(f"leak: {steps} steps, {allocated} bytes allocated, {rss / MIB:.1f} MiB resident + {grown / MIB:.1f} MiB")
        # The full run would show a leak of 1 KiB per step; the allowance is for memory that the C library keeps.
        self.assertLess(grown, 8 * MIB if FULL else 4 * MIB)


class TestHostThatRunsAhead(TestCase):
    """An event blocks the device, so that nothing that follows finishes during the test."""

    def run_ahead(self, work, counter):
        """Does `work` while the device waits for an event, which is set when `counter` has grown or `work` is
        finished."""
        event = pyopencl.UserEvent(torch_netcl.interop.context())
        pyopencl.enqueue_barrier(torch_netcl.interop.current_queue(), wait_for=[event])
        before, done = counter(), threading.Event()

        def go_on():
            while counter() == before and not done.wait(0.01):
                pass
            event.set_status(pyopencl.command_execution_status.COMPLETE)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            work()
        finally:
            done.set()
            thread.join()
        self.assertGreater(counter(), before)

    def test_staged_copies_are_bounded(self):
        torch.netcl.synchronize()
        x, host = torch.empty(MIB // 4, device=D), torch.ones(MIB // 4)

        def copies():
            for i in range(200):
                x.copy_(host.fill_(i), non_blocking=True)

        self.run_ahead(copies, torch.netcl.host_sync_count)
        self.assertEqual(torch.ops.netcl._backpressure()["most_staged_bytes"], 64 * MIB)
        self.assertEqual(x.mean().item(), 199)
        while torch.ops.netcl._backpressure()["staged_bytes"]:  # until the driver has called its callbacks
            threading.Event().wait(0.01)

    def test_launches_are_bounded(self):
        x = torch.zeros(10, device=D)

        def launches():
            for _ in range(4000):
                x.add_(1)

        self.run_ahead(launches, lambda: torch.ops.netcl._backpressure()["throttles"])
        self.assertEqual(x.cpu(), torch.full((10,), 4000.0))


class TestThreads(TestCase):
    def test_eight_threads_with_streams_and_autograd(self):
        """Each thread runs kernels, copies and backward on its own stream: the results are those of one thread."""
        inputs = [torch.randn(40, 24, generator=torch.Generator().manual_seed(i)) for i in range(8)]

        def work(x, stream):
            with torch.netcl.stream(stream):
                w = x.to(D).requires_grad_()
                for n in (3, 40, 24):
                    ((w @ w.t()).tanh().sum() + w[:n].exp().mean()).backward()
                w.grad.record_stream(torch.netcl.default_stream())
                return w.grad.cpu()

        expected = [work(x, torch.netcl.default_stream()) for x in inputs]
        errors = []

        def run(i):
            try:
                stream = torch.netcl.Stream()
                for _ in range(10):
                    torch.testing.assert_close(work(inputs[i], stream), expected[i], rtol=0, atol=0)
            except Exception as e:
                errors.append(e)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])

    def test_index_error_of_another_stream(self):
        """Synchronising another stream first does not lose the report."""
        x = torch.ones(5, 3, device=D)
        torch.netcl.synchronize()
        side = torch.netcl.Stream()
        with torch.netcl.stream(side):
            for _ in range(20):
                big = torch.randn(300, 300, device=D)
                big = big @ big
            y = x.gather(0, torch.full((1, 3), 9, device=D))
        with self.assertRaisesRegex(IndexError, "gather"):
            torch.netcl.current_stream().synchronize()
            x.cpu()
            side.synchronize()
        self.assertEqual(y.shape, (1, 3))
        torch.netcl.synchronize()


class TestProcesses(TestCase):
    def test_fork(self):
        """If a device may be in use, a child's error says spawn, whatever it calls, and the child exits normally."""
        done = python("""
import os, torch
torch.netcl.init()
x = torch.ones(5, device="netcl") if os.environ.get("USED") else None
def refused(f):
    try:
        f()
    except RuntimeError as e:
        return "spawn" in str(e)
    return False
for round in range(2):
    pid = os.fork()
    if pid == 0:
        ok = refused(lambda: torch.ones(1, device="netcl")) and refused(torch.netcl.Stream().synchronize)
        torch.manual_seed(3)
        ok = ok and torch.rand(3).shape == (3,)
        if x is not None:
            ok = ok and refused(lambda: x + 1) and refused(x.cpu) and refused(lambda: x.copy_(torch.ones(5)))
            ok = ok and refused(torch.netcl.synchronize) and refused(torch.netcl.Event().record)
            ok = ok and refused(torch.netcl.current_stream().query)
            del x
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    x = torch.ones(5, device="netcl")
    s = torch.netcl.Stream()
    x.record_stream(s)
print((x + 1).sum().item())
""")
        self.assertEqual((done.returncode, done.stdout), (0, "10.0\n"), done.stderr)

    def test_data_loader_by_fork_and_spawn(self):
        torch.ones(1, device=D).sum().item()
        data = TensorDataset(torch.arange(12.0))
        for method in ("fork", "spawn"):
            loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context=method, pin_memory=True)
            total = sum(x.to(D, non_blocking=True).sum().item() for (x,) in loader)
            self.assertEqual(total, 66.0)

    def test_arguments_of_a_spawned_process(self):
        context = torch.multiprocessing.get_context("spawn")
        module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(D)
        x = torch.arange(12.0, device=D).view(4, 3)
        data = TensorDataset(torch.ones(5, device=D), torch.zeros(5, device=D))
        sums = context.Queue()
        process = context.Process(target=add_up, args=(x, module, [*module.parameters()], data, sums))
        process.start()
        got = sums.get(timeout=120)
        process.join(60)
        self.assertEqual(process.exitcode, 0)
        weights = sum(p.sum().item() for p in module.parameters())
        self.assertEqual(got, [66.0, weights, weights, 5.0])

    def test_workers_that_persist(self):
        data = TensorDataset(torch.arange(12.0))
        loader = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True, pin_memory=True)
        for _ in range(3):
            self.assertEqual([x.to(D, non_blocking=True).sum().item() for (x,) in loader], [6.0, 22.0, 38.0])

    def test_signals_in_the_middle_of_a_queue(self):
        done = python("""
import signal, torch
hits = []
signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
x = torch.randn(200, 200, device="netcl") / 15
def work():
    y = x
    for _ in range(100): y = (y @ x).tanh()
    for _ in range(30): y = y.cpu().to("netcl")
    torch.netcl.synchronize()
    return y.sum().item()
expected = work()
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while len(hits) < 20: assert work() == expected
signal.setitimer(signal.ITIMER_REAL, 0)
print("same")
""")
        self.assertEqual((done.returncode, done.stdout), (0, "same\n"), done.stderr)

    def test_exit_at_any_point(self):
        """Queued work, live tensors, graphs, threads, streams and exit handlers: there is no output and no signal."""
        start = "import atexit, sys, threading, torch\nx = torch.randn(300, 300, device='netcl', requires_grad=True)\n"
        work = "for _ in range(30): y = (x @ x / 300).tanh()\n"
        ends = [
            "loss = y.sum()",
            "y.sum().backward(); g = x.grad",
            "atexit.register(lambda: print((x * 2).shape, y.sum().item() == y.sum().item()))",
            "s = torch.netcl.Stream(); y.record_stream(s); torch.netcl.set_stream(s); z = y * 2",
            "e = torch.netcl.Event(enable_timing=True); e.record(); sys.exit(0)",
            "t = threading.Thread(target=lambda: [x.sum().item() for _ in range(50)]); t.start()",
            "h = torch.ones(1 << 20).pin_memory(); d = h.to('netcl', non_blocking=True)",
            "class A:\\n  def __del__(self): self.t = None\\na = A(); a.t = y; a.self = a",
        ]
        if not FULL:
            ends = ["; ".join(e for e in ends[:3]), ends[3], ends[5], ends[6]]
        for end in ends:
            done = python(start + work + end.replace("\\n", "\n"))
            self.assertEqual((done.returncode, done.stderr), (0, ""), end)

    def test_exit_waits_for_what_is_queued(self):
        """A driver may still compile for it (PoCL does), with objects that exit() destroys; and its memory may be
        unmapped."""
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(4096)
            done = python(f"""
import numpy as np, pyopencl as cl, pyopencl.array, torch
from torch_netcl import interop
memory = np.memmap({file.name!r}, np.float32, "r+", shape=(1024,))
buffer = cl.Buffer(interop.context(), cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=memory)
y = interop.from_pyopencl(cl.array.Array(interop.current_queue(), (1024,), np.float32, data=buffer))
x = torch.randn(1 << 22, device="netcl")
(x.tanh() + y.mean()).sum().item()
for _ in range(150): x = x.tanh()
y.copy_(x.view(-1)[:1024]).fill_(1)
""")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(np.fromfile(file.name, np.float32), np.ones(1024, np.float32))

    def test_exit_with_daemon_threads(self):
        """Threads that never end, in operators, backward, or a wait: they stop there, without output."""
        for work in (
            "while True: y = (x @ x).tanh().sum().item()",
            "while True: (w @ w).tanh().sum().backward(); w.grad = None",
            "while True: [(x @ x).tanh() for _ in range(200)]; torch.netcl.synchronize()",
        ):
            done = python(f"""
import threading, torch
x = torch.randn(200, 200, device="netcl")
def loop():
    w = x.clone().requires_grad_()
    {work}
ready = threading.Event()
threading.Thread(target=lambda: (ready.set(), loop()), daemon=True).start()
ready.wait()
for _ in range(20): x.exp().sum().item()
""")
            self.assertEqual((done.returncode, done.stderr), (0, ""), work)

    def test_waits_end_though_other_threads_enqueue(self):
        """A wait is for what was enqueued before it: in PoCL, clFinish and blocking copies wait for an empty queue."""
        done = python("""
import threading, torch
w = torch.randn(300, 300, device="netcl")
x, big = torch.ones(3, device="netcl"), torch.ones(1 << 20, device="netcl")
host = torch.ones(1 << 20)
(w @ w).tanh(), x.sum().item(), torch.arange(3, device="netcl")[x.long()]
end = threading.Event()
def fill():
    while not end.is_set(): (w @ w).tanh()
threads = [threading.Thread(target=fill) for _ in range(2)]
for t in threads: t.start()
for _ in range(3):
    assert x.sum().item() == 3 and big.cpu().sum() == big.copy_(host).numel()
    torch.arange(3, device="netcl")[x.long()].tolist()  # reads the device's assertions
    torch.netcl.synchronize()
end.set()
for t in threads: t.join()
""")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_interrupt_during_a_long_queue(self):
        done = python("""
import os, signal, threading, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # which Python leaves out where a shell's "&" ignores it
x = torch.randn(700, 700, device="netcl") / 30
(x @ x).sum().item()
try:
    y = x
    for _ in range(60):
        y = (y @ x).tanh()
    os.kill(os.getpid(), signal.SIGINT)
    torch.netcl.synchronize()
    y.sum().item()
    print("nothing")
except KeyboardInterrupt:
    print("interrupted", (x * 0).sum().item())
""")
        self.assertEqual((done.returncode, done.stdout), (0, "interrupted 0.0\n"), done.stderr)


class TestHostileInput(TestCase):
    def test_devices_mixed(self):
        a, b = torch.ones(3, 3, device=D), torch.ones(3, 3)
        index = torch.zeros(3, dtype=torch.int64)
        operations = [
            lambda: a + b,
            lambda: a @ b,
            lambda: torch.cat([a, b]),
            lambda: torch.where(a > 0, a, b),
            lambda: torch.addmm(a, b, a),
            lambda: a.gather(0, b.long()),
            lambda: a.index_add(0, index, a),
            lambda: a.index_select(0, index),
            lambda: a.masked_scatter(b > 0, a),
            lambda: torch.nn.functional.layer_norm(a, (3,), b[0]),
            lambda: torch.nn.functional.embedding(index, a),
            lambda: torch.nn.functional.conv2d(a[None, None], b[None, None]),
            lambda: torch.nn.functional.conv2d(b[None, None], a[None, None]),
            lambda: torch.nn.functional.linear(b, a),
            lambda: torch.add(a, a, out=b),
            lambda: torch.ops.aten._foreach_add_([a], [b]),
        ]
        for i, operation in enumerate(operations):
            with self.assertRaises((RuntimeError, ValueError, IndexError), msg=str(i)):
                operation()
                torch.netcl.synchronize()
        self.assertEqual((a + a).cpu(), b + b)

    def test_storages_that_are_gone(self):
        x = torch.ones(1000, device=D)
        view, matrix, other = x[10:20], x.view(40, 25), torch.ones(1000, device=D)
        user = torch_netcl.compile_kernel("__kernel void first(__global float* x) { x[0] = 1; }", "first")
        x.untyped_storage().resize_(0)
        for name, operation in {
            "add": lambda: x + 1,
            "copy": lambda: view.cpu(),
            "sum": lambda: x.sum(),
            "fill_": lambda: x.fill_(1),
            "mm": lambda: matrix @ matrix.t(),
            "softmax": lambda: matrix.softmax(1),
            "cumsum": lambda: x.cumsum(0),
            "sort": lambda: x.sort(),
            "index": lambda: x[torch.zeros(3, dtype=torch.int64, device=D)],
            "cat": lambda: torch.cat([x, x]),
            "conv1d": lambda: torch.conv1d(matrix[None], torch.ones(2, 40, 3, device=D)),
            "layer_norm": lambda: torch.nn.functional.layer_norm(matrix, (25,)),
            "out": lambda: torch.mul(other, other, out=x),
            "mm out": lambda: torch.mm(other.view(40, 25), other.view(25, 40)[:, :25], out=matrix),
            "index_select out": lambda: torch.index_select(other, 0, torch.arange(1000, device=D), out=x),
            "scatter_": lambda: x.scatter_(0, torch.zeros(3, dtype=torch.int64, device=D), 1.0),
            "to the device": lambda: x.copy_(torch.ones(1000)),
            "within the device": lambda: x.copy_(other),
            "_foreach_add_": lambda: torch._foreach_add_([x, other], 1.0),
            "a kernel of the user": lambda: user(x, global_size=1),
        }.items():
            with self.subTest(name), self.assertRaisesRegex(RuntimeError, "storage"):
                operation()
                torch.netcl.synchronize()
        x.untyped_storage().resize_(4000)
        self.assertEqual(x.fill_(2).sum().item(), 2000)
        meta = torch.empty(5, device="meta")
        with self.assertRaises((RuntimeError, NotImplementedError)):
            torch.ones(5, device=D) + meta.to(D)

    def test_storages_that_shrink(self):
        """Their tensors keep their sizes, so the storages keep their memory: a kernel that reads beyond it would end
        the process."""
        x = torch.ones(5_000_000, device=D)
        for sizes in ((4,), (0, 4), (4, 400, 16), (0, 4, 0, 8)):
            for size in sizes:
                x.untyped_storage().resize_(size)
                self.assertEqual(x.untyped_storage().nbytes(), size)
            for operation in (x.sum, x.cumsum, x.cpu, lambda: x.fill_(2), lambda: x.view(500, -1) @ x.view(-1, 500)):
                operation(*([0] if operation == x.cumsum else []))
                torch.netcl.synchronize()
        x.untyped_storage().resize_(20_000_000)
        self.assertEqual(x.fill_(3).sum().item(), 15_000_000)

    def test_memory_that_cannot_be_had(self):
        """A tensor whose storage cannot grow keeps its sizes, since there is no memory for others."""
        x, y = torch.ones(4, device=D), torch.empty(0, device=D)
        self.assertEqual(y.set_(x.untyped_storage(), 0, (100,), (1,)).shape, (100,))
        self.assertEqual((y.untyped_storage().nbytes(), x.sum().item()), (400, 4))
        array = pyopencl.array.to_device(torch_netcl.interop.current_queue(), np.ones(4, np.float32))
        foreign = torch_netcl.interop.from_pyopencl(array)
        for name, tensor, operation in (
            ("resize_", x, lambda: x.resize_(1 << 50)),
            ("negative", x, lambda: x.resize_(-1)),
            ("set_", x, lambda: x.set_(x.untyped_storage(), 0, (1 << 50,), (1,))),
            ("negative strides", x, lambda: x.set_(x.untyped_storage(), 3, (4,), (-1,))),
            ("resize_ of another's", foreign, lambda: foreign.resize_(1000)),
            ("set_ to another's", foreign, lambda: foreign.set_(foreign.untyped_storage(), 0, (1000,), (1,))),
        ):
            with self.subTest(name), self.assertRaises(RuntimeError):
                operation()
            self.assertEqual((tensor.shape, tensor.sum().item()), ((4,), 4), name)

    def test_huge_and_negative_sizes(self):
        for operation in (
            lambda: torch.empty(1 << 62, device=D),
            lambda: torch.empty(1 << 40, 1 << 40, device=D),
            lambda: torch.empty(-1, device=D),
            lambda: torch.ones(3, device=D).repeat(1 << 50),
            lambda: torch.ones(4, device=D).as_strided((2,), (-1,), 3),
            lambda: torch.ones(4, device=D).as_strided((100,), (100,)),
            lambda: torch.arange(1e18, device=D),
            lambda: torch.zeros(1 << 33, 1 << 33, device=D),
        ):
            with self.assertRaises((RuntimeError, ValueError, MemoryError)):
                operation()
        self.assertEqual(torch.ones(3, device=D).expand(1 << 40, 3).shape, (1 << 40, 3))
        self.assertEqual(torch.ones(3, device=D).sum().item(), 3)

    def test_crafted_files(self):
        """torch.load with impossible devices, sizes, strides and offsets: an error, or the CPU's result."""

        class Crafted:
            def __init__(self, *how):
                self.how = how

            def __reduce__(self):
                return torch._utils._rebuild_tensor_v2, (STORAGE, *self.how, False, collections.OrderedDict())

        STORAGE = torch.device("meta")  # replaced by the storage when pickled, through its persistent id

        def load(where="netcl:0", offset=0, size=(4,), stride=(1,), numel=4):
            saved, crafted, text = io.BytesIO(), io.BytesIO(), io.BytesIO()
            torch.save(torch.arange(4.0), saved)
            pickler = pickle.Pickler(text, protocol=2)
            storage = ("storage", torch.FloatStorage, "0", where, numel)
            pickler.persistent_id = lambda x: storage if x is STORAGE else None
            pickler.dump(Crafted(offset, size, stride))
            with zipfile.ZipFile(saved) as old, zipfile.ZipFile(crafted, "w") as new:
                for name in old.namelist():
                    new.writestr(name, text.getvalue() if name.endswith("data.pkl") else old.read(name))
            crafted.seek(0)
            return torch.load(crafted).sum().item()

        self.assertEqual(load(), 6)
        for how in (
            *({"where": f"netcl:{w}"} for w in (99, -1, "x", 300, 1 << 70)),
            *({"size": s} for s in ((1 << 40,), (-3,), (1 << 62, 1 << 62))),
            *({"stride": s} for s in ((1 << 50,), (-5,), (1, 1))),
            *({"offset": o} for o in (1 << 60, -5)),
            *({"numel": n} for n in (1 << 20, -4)),
        ):
            with self.subTest(how), self.assertRaises((RuntimeError, TypeError, ValueError, pickle.UnpicklingError)):
                load(**how)

    def test_indices_out_of_range(self):
        x = torch.randn(5, 4, device=D)
        for bad in (5, -6, 1 << 40):
            i = torch.tensor([0, bad], device=D)
            wide = i.view(2, 1).expand(2, 4)
            for operation in (
                lambda: x[i],
                lambda: x.index_select(0, i),
                lambda: x.gather(0, wide),
                lambda: x.clone().scatter_(0, wide, 1.0),
                lambda: x.clone().scatter_add_(0, wide, x[:2]),
                lambda: x.clone().index_add_(0, i, x[:2]),
                lambda: x.clone().index_fill_(0, i, 1.0),
                lambda: x.clone().index_put_((i,), x[:2]),
                lambda: torch.nn.functional.embedding(i, x),
                lambda: torch.nn.functional.nll_loss(x[:2], i),
            ):
                with self.assertRaises((IndexError, RuntimeError), msg=str(bad)):
                    operation()
                    torch.netcl.synchronize()
        self.assertEqual((x + 0).cpu(), x.cpu())


if __name__ == "__main__":
    run_tests()
