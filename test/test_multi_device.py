"""Several devices in one process: those of NETCL_SUBDEVICES=2, so that any CPU suffices, and those of two platforms."""

import copy
import itertools
import os
import subprocess
import sys
import threading
import unittest
import warnings
from pathlib import Path

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl

COUNT = torch.netcl.device_count()
SPLIT = bool(os.environ.get("NETCL_SUBDEVICES"))
PLATFORMS = "intel(r) opencl,portable computing language"
TWO = SPLIT or os.environ.get("NETCL_VISIBLE_DEVICES") == PLATFORMS  # then TestSubdevices has started this process


def run(arguments, **env):
    """Runs this Python in this folder; returns the finished process."""
    command = [sys.executable, *arguments]
    folder = Path(__file__).parent
    env = {**os.environ, **env}
    env.pop("CI", None)  # with it PyTorch's run_tests writes XML, which needs another package
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@unittest.skipIf(TWO, "runs itself with two devices")
class TestSubdevices(TestCase):
    def test_two_parts(self):
        done = run(["test_multi_device.py", "TestTwoDevices", "TestOrderAcrossDevices"], NETCL_SUBDEVICES="2")
        if "NETCL_SUBDEVICES=2 is ignored" in done.stderr:
            raise unittest.SkipTest("this device cannot be split in two")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"Ran 19 tests(.|\n)*OK\n")

    def test_two_platforms(self):
        count = "import torch; print(torch.netcl.device_count())"
        if run(["-c", count], NETCL_VISIBLE_DEVICES=PLATFORMS).stdout.strip() != "2":
            raise unittest.SkipTest("this machine has not both runtimes")
        done = run(["test_multi_device.py", "TestOrderAcrossDevices"], NETCL_VISIBLE_DEVICES=PLATFORMS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"Ran 11 tests(.|\n)*OK\n")

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
        for _ in range(20):  # each copy comes after the write on one device and before the read on the other
            y = (y * 2).to(self.B) if y.device == self.A else (y * 0.5 + 1).to(self.A)
        self.assertEqual(y.cpu(), torch.full((3,), 11.0))

    def test_copy_that_fails(self):
        x = torch.ones(1000, device=self.A)
        for entry in ("clEnqueueMapBuffer", "clEnqueueWriteBuffer", "clEnqueueUnmapMemObject"):
            torch.ops.netcl._inject_error(entry, -5, 0, 2)  # a write is repeated once
            try:
                with self.assertRaisesRegex(RuntimeError, f"{entry} failed with CL_OUT_OF_RESOURCES .* aten::copy_"):
                    x.to(self.B)
            finally:
                torch.ops.netcl._end_injection()
            self.assertEqual(x.to(self.B).cpu(), torch.ones(1000))

    def test_sparse_tensors(self):
        """On a device that is not the current one."""
        x = torch.eye(4)
        for layout in (torch.sparse_coo, torch.sparse_csr):
            self.assertEqual(torch.zeros(2, 2, layout=layout, device=self.B).device, self.B)
            self.assertEqual(torch.empty(2, 2, layout=layout, device=self.B).device, self.B)
            sparse = x.to(self.B).to_sparse(layout=layout)
            for t in (sparse, sparse.clone(), torch.zeros_like(sparse), sparse * 2, sparse + sparse, sparse.abs()):
                self.assertEqual(t.device, self.B)
                self.assertEqual((t._values() if t.is_sparse else t.values()).device, self.B)
            self.assertEqual((sparse @ x.to(self.B)).cpu(), x)
            self.assertEqual((sparse @ sparse).to_dense().cpu(), x)
            self.assertEqual(sparse.to(self.A).to_dense().cpu(), x)
        self.assertEqual(torch.netcl.current_device(), 0)

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

    def test_deterministic_reruns(self):
        """The same bits in every run, and on both parts."""

        def gradients(device):
            generator = torch.Generator().manual_seed(0)
            weight = torch.randn(50, 16, generator=generator).to(device).requires_grad_()
            mix = torch.randn(16, 16, generator=generator).to(device).requires_grad_()
            at = torch.randint(0, 50, (3000,), generator=generator).to(device)
            x = torch.nn.functional.embedding(at, weight) @ mix
            rows = torch.zeros(50, 16, device=device).index_add(0, at.flip(0), x)
            rows = rows.scatter_add(0, at[:1000, None].expand(-1, 16), x[:1000])
            torch.nn.functional.cross_entropy(rows[at], at % 16).backward()
            return torch.cat([rows.detach(), weight.grad, mix.grad]).cpu()

        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        first = gradients(self.A)
        for device in (self.A, self.B, self.A, self.B):
            self.assertTrue(torch.equal(first, gradients(device)), device)


def chain(devices, steps=3):
    """The weights after a few steps of a model with its halves on two devices, with autocast and a GradScaler that
    skips one of the steps."""
    generator = torch.Generator().manual_seed(0)
    halves = [torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)) for _ in devices]
    with torch.no_grad():
        for p in itertools.chain(*(h.parameters() for h in halves)):
            p.copy_(torch.randn(p.shape, generator=generator) / 4)
    for half, device in zip(halves, devices, strict=True):
        half.to(device)
    optimizer = torch.optim.SGD([p for h in halves for p in h.parameters()], lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("netcl", init_scale=1024.0)
    scales = []
    for step in range(steps):
        parts = torch.randn(2, 24, 16, generator=generator)  # two micro-batches
        optimizer.zero_grad()
        for x in parts:
            with torch.autocast("netcl", dtype=torch.bfloat16):
                for half, device in zip(halves, devices, strict=True):
                    x = half(x.to(device))
            loss = x.float().square().mean() * (torch.inf if step == 1 else 1)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, [p.detach().cpu() for h in halves for p in h.parameters()]


@unittest.skipIf(not TWO or COUNT < 2, "TestSubdevices runs it")
class TestOrderAcrossDevices(TestCase):
    A, B = torch.device("netcl", 0), torch.device("netcl", 1)

    def test_backward(self):
        for here, there in ((self.A, self.B), (self.B, self.A)):
            x = torch.arange(3.0, device=here, requires_grad=True)
            y = (x.to(there) * 2).exp()
            (y.sum().to(here) * x.sum()).backward()
            z = torch.arange(3.0, requires_grad=True)
            ((z * 2).exp().sum() * z.sum()).backward()
            self.assertEqual(x.grad.cpu(), z.grad)
            self.assertEqual(x.grad.device, here)

    def test_streams_wait_for_each_other(self):
        """A stream waits for the work of another device without a wait of the host."""
        a, b = torch.netcl.Stream(self.A), torch.netcl.Stream(self.B)
        x = torch.randn(400, 400, device=self.A) / 20
        with a:  # the first use of a stream waits for the others
            x @ x
        b.wait_stream(a)
        a.wait_event(b.record_event())
        torch.netcl.synchronize(self.A)
        torch.netcl.synchronize(self.B)
        waits = torch.netcl.host_sync_count()
        done = []
        for _ in range(20):
            with a:
                y = x @ x
                done.append(a.record_event())
            b.wait_stream(a)
            done.append(b.record_event())
            a.wait_event(done[-1])
        self.assertEqual(torch.netcl.host_sync_count(), waits)
        done[-1].synchronize()
        self.assertTrue(all(event.query() for event in done))
        self.assertEqual(y.cpu(), x.cpu() @ x.cpu(), rtol=1e-4, atol=1e-4)

    def test_a_waiting_stream_sees_results(self):
        """Without the wait, the other device would read memory that the long queue has not written yet."""
        for here, there in ((self.A, self.B), (self.B, self.A)):
            a, b = torch.netcl.Stream(here), torch.netcl.Stream(there)
            host = torch.zeros(200_000).pin_memory("netcl")
            for n in range(1, 6):
                with a:
                    x = torch.full((200_000,), 100.0 * n, device=here)
                    for _ in range(100):
                        x.add_(1)
                    host.copy_(x, non_blocking=True)
                b.wait_stream(a)
                with b:
                    y = host.to(there, non_blocking=n % 2 == 0) * 2
                b.synchronize()
                self.assertEqual(y.cpu(), torch.full((200_000,), 200.0 * n + 200), rtol=0, atol=0)

    def test_copies_wait_for_what_the_destination_waited_for(self):
        """The source's own current stream has nothing to wait for."""
        for here, there in ((self.A, self.B), (self.B, self.A)):
            a, b = torch.netcl.Stream(here), torch.netcl.Stream(there)
            for n in range(1, 6):
                with a:
                    x = torch.full((200_000,), 100.0 * n, device=here)
                    for _ in range(100):
                        x.add_(1)
                b.wait_stream(a)
                with b:
                    y = x.to(there, non_blocking=True)
                b.synchronize()
                self.assertEqual(y.cpu(), torch.full((200_000,), 100.0 * n + 100), rtol=0, atol=0)

    def test_an_event_of_the_source_covers_a_copy(self):
        for here, there in ((self.A, self.B), (self.B, self.A)):
            a, b, c = torch.netcl.Stream(here), torch.netcl.Stream(there), torch.netcl.Stream(there)
            w = torch.ones(300, 300, device=there)
            for n, strided in itertools.product(range(1, 6), (False, True)):
                x = torch.full((100_000,), float(n), device=here)
                y = torch.zeros(100_000, 2, device=there)
                y = y[:, 0] if strided else y.view(-1)[:100_000]
                torch.netcl.synchronize(here)
                torch.netcl.synchronize(there)
                with torch.netcl.stream(a), torch.netcl.stream(b):
                    w @ w
                    y.copy_(x, non_blocking=True)
                with torch.netcl.stream(c):
                    c.wait_event(a.record_event())
                    z = y + 0
                c.synchronize()
                self.assertEqual(z.cpu(), torch.full((100_000,), float(n)), rtol=0, atol=0)

    def test_events_of_two_devices_have_no_time_between_them(self):
        first, second = (torch.Event(device, enable_timing=True) for device in (self.A, self.B))
        first.record(torch.netcl.default_stream(self.A))
        second.record(torch.netcl.default_stream(self.B))
        for event in (first, second):
            event.synchronize()
        with self.assertRaisesRegex(RuntimeError, "netcl:0 and netcl:1"):
            first.elapsed_time(second)

    def test_storages_stay_on_their_device(self):
        x = torch.ones(3, device=self.B)
        with self.assertRaisesRegex(RuntimeError, "the devices must match"):
            x.set_(torch.ones(3, device=self.A))
        self.assertEqual(x.set_().resize_(5).fill_(2).cpu(), torch.full((5,), 2.0))
        self.assertEqual(x.untyped_storage().device, self.B)

    def test_waiting_that_cannot_be_left_to_the_device(self):
        b = torch.netcl.Stream(self.B)
        with b:  # the first use of a stream waits for the others
            torch.ones(5, device=self.B)
        for entry in ("clCreateUserEvent", "clSetEventCallback"):
            torch.ones(5, device=self.A)
            torch.ops.netcl._inject_error(entry, -5, 0)
            try:
                waits = torch.netcl.host_sync_count()
                b.wait_event(torch.netcl.default_stream(self.A).record_event())
                self.assertEqual(torch.netcl.host_sync_count(), waits + 1)
            finally:
                torch.ops.netcl._end_injection()
        b.synchronize()

    def test_halves_of_a_model(self):
        expected = chain([self.A, self.A])
        for devices in ([self.A, self.B], [self.B, self.A]):
            scales, weights = chain(devices)
            self.assertEqual(chain(devices)[1], weights, rtol=0, atol=0)  # again the same bits
            self.assertEqual(scales, [1024.0, 512.0, 512.0])
            self.assertEqual(scales, expected[0])
            # bfloat16 has 8 bits: a sum with another rounding moves a weight by a part of lr times a gradient.
            for w, e in zip(weights, expected[1], strict=True):
                self.assertEqual(w, e, rtol=1e-2, atol=2e-3)

    def test_data_parallel(self):
        """Outputs, gradients and updates of nn.DataParallel are those of one device."""
        generator = torch.Generator().manual_seed(0)
        data = torch.randn(10, 6, generator=generator)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 3)
        )
        model.register_buffer("factor", torch.tensor([1 + 2j]))
        alone, spread = copy.deepcopy(model).eval().to(self.A), torch.nn.DataParallel(model.eval().to(self.A), [0, 1])
        self.assertEqual(spread.device_ids, [0, 1])
        every = torch.nn.DataParallel(model)
        self.assertEqual(every.device_ids, list(range(torch.netcl.device_count())))
        for x in (data, data.to(self.A), data[:1]):
            y, z = alone(x.to(self.A)), spread(x)
            self.assertEqual((y, y.device), (z, self.A))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says that it has no NCCL
                for out in (y, z):
                    out.square().sum().backward()
            for p, q in zip(alone.parameters(), spread.module.parameters(), strict=True):
                self.assertEqual(p.grad, q.grad, rtol=1e-4, atol=1e-5)
        spread.train()(data)  # statistics are those of the first device's half
        alone.train()(data[:5].to(self.A))
        self.assertEqual(spread.module[1].running_mean, alone[1].running_mean)
        places = torch.nn.DataParallel(Where(), [0, 1])(data)
        self.assertEqual(places.tolist(), [0] * 5 + [1] * 5)

    def test_comm(self):
        comm = torch.nn.parallel.comm
        x, z = torch.arange(12.0, device=self.A).view(6, 2), torch.ones(3, dtype=torch.complex64, device=self.A)
        for out in (
            comm.broadcast(x, [0, 1]),
            comm.broadcast(x, out=[torch.empty_like(x), torch.empty_like(x, device=self.B)]),
        ):
            self.assertEqual([o.device for o in out], [self.A, self.B])
            self.assertEqual(out[1].cpu(), x.cpu())
        small = comm.broadcast_coalesced([x, x[0], z], [0, 1], buffer_size=50)
        self.assertEqual([t.cpu() for t in small[1]], [t.cpu() for t in small[0]])
        parts = comm.scatter(x, [0, 1], [1, 5])
        self.assertEqual([p.shape[0] for p in parts], [1, 5])
        self.assertEqual(comm.gather(parts, 0, 1).cpu(), x.cpu())
        self.assertEqual(comm.gather(parts, 0, "cpu"), x.cpu())
        self.assertEqual(comm.gather(parts, out=torch.empty_like(x)), x)
        comm.scatter(x, out=[torch.empty(2, 2, device=self.A), torch.empty(4, 2, device=self.B)])
        self.assertEqual(comm.reduce_add([x, x.to(self.B)], 0), 2 * x)
        for bad in (
            lambda: comm.broadcast(x, [1, 0]),
            lambda: comm.scatter(x, [0, 1], [1, 2, 3]),
            lambda: comm.scatter(x, []),
        ):
            with self.assertRaises(RuntimeError):
                bad()


class Where(torch.nn.Module):
    """Tells where each row of its input was."""

    def forward(self, x):
        return torch.full(x.shape[:1], x.device.index, device=x.device)


if __name__ == "__main__":
    run_tests()
