"""Programs on several streams that synchronise only where CUDA demands it, compared with the CPU."""

import os
import random
import threading

import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests

D = torch.device("netcl", 0)
PROGRAMS = int(os.environ.get("NETCL_STREAM_PROGRAMS", "25"))
SIZES = (5, 300, 20_000, 300_000)  # by the host, staged, staged, more than is staged
MODULUS = 251  # results stay small integers, so that float has them exactly


class Tensor:
    """A tensor, what it must hold, and which stream wrote or read it when."""

    def __init__(self, value, expected, written):
        self.value, self.expected = value, expected
        self.written = written  # (stream, time), or None if it is complete for every stream
        self.read = {}  # stream: time of the last read


class Program:
    """Random operators on random streams. A stream or the host has a clock: how much of each stream it has seen end."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.streams = [torch.netcl.default_stream(D), torch.netcl.Stream(D), torch.netcl.Stream(D)]
        self.times = [0] * len(self.streams)
        self.clocks = [[0] * len(self.streams) for _ in self.streams]
        self.host = [0] * len(self.streams)
        self.tensors = []
        self.slow = torch.ones(300, 300, device=D)
        torch.netcl.synchronize()

    def see(self, clock, of):
        """`clock` has seen all that stream `of` has so far."""
        seen = [*self.clocks[of]]
        seen[of] = self.times[of]
        clock[:] = map(max, clock, seen)

    def order(self, s, of, time):
        """Stream s waits for that time of another stream, in one of CUDA's ways, if it does not yet."""
        if of == s or self.clocks[s][of] >= time:
            return
        other, how = self.streams[of], self.random.randrange(5)
        if how == 0:
            self.streams[s].wait_stream(other)
        elif how == 1:
            self.streams[s].wait_event(other.record_event())
        else:
            if how == 2:
                other.record_event().synchronize()
            elif how == 3:
                other.synchronize()
            else:
                event = other.record_event()
                while not event.query():
                    pass
            self.see(self.host, of)
        self.see(self.clocks[s], of)

    def on(self, s, reads=(), writes=()):
        """Before stream s reads and writes these tensors."""
        self.clocks[s] = [*map(max, self.clocks[s], self.host)]
        for t in (*reads, *writes):
            if t.written:
                self.order(s, *t.written)
        for t in writes:
            for of, time in t.read.items():
                self.order(s, of, time)
        self.times[s] += 1
        now = self.times[s]
        for t in reads:
            t.read[s] = now
            t.value.record_stream(self.streams[s])
        for t in writes:
            t.written, t.read = (s, now), {}
            t.value.record_stream(self.streams[s])
        return torch.netcl.stream(self.streams[s])

    def from_host(self, s):
        """A blocking copy, from memory that changes at once: no other stream needs to wait for it."""
        n = self.random.choice(SIZES)
        source = torch.randint(0, MODULUS, (n,)).float()
        expected = source.clone()
        if self.random.random() < 0.3:
            source = source.pin_memory()
        with self.on(s):
            if self.random.random() < 0.3:
                value = torch.zeros(n, 2, device=D)[:, 1]
                value.copy_(source)
            else:
                value = source.to(D)
        source.fill_(-1)
        self.see(self.host, s)
        self.tensors.append(Tensor(value, expected, None))

    def from_pinned(self, s):
        source = torch.randint(0, MODULUS, (self.random.choice(SIZES),)).float()
        with self.on(s):
            value = source.pin_memory().to(D, non_blocking=True)
        self.tensors.append(Tensor(value, source, (s, self.times[s])))

    def over(self, s):
        a = self.random.choice(self.tensors)
        with self.on(s, writes=[a]):
            source = torch.randint(0, MODULUS, a.expected.shape).float()
            a.value.copy_(source)
        a.written, a.expected = None, source
        self.see(self.host, s)

    def within(self, s):
        a, k = self.random.choice(self.tensors), self.random.randrange(1, 9)
        with self.on(s, writes=[a]):
            a.value.mul_(k).add_(3).remainder_(MODULUS)
        a.expected = (a.expected * k + 3) % MODULUS

    def made_of(self, s):
        a = self.random.choice(self.tensors)
        like = [t for t in self.tensors if t.expected.shape == a.expected.shape]
        b = self.random.choice(like)
        with self.on(s, reads=[a, b]):
            value = self.random.choice([lambda: a.value.clone(), lambda: torch.stack([a.value, b.value])[0]])()
            value.add_(b.value)
        self.tensors.append(Tensor(value, a.expected + b.expected, (s, self.times[s])))
        self.tensors[-1].expected %= MODULUS
        with self.on(s, writes=[self.tensors[-1]]):
            value.remainder_(MODULUS)

    def slowly(self, s):
        with self.on(s):
            for _ in range(self.random.randrange(1, 4)):
                self.slow @ self.slow

    def to_host(self, s):
        a = self.random.choice(self.tensors)
        with self.on(s, reads=[a]):
            if self.random.random() < 0.5:
                got = a.value.cpu()
            else:
                got = torch.empty(a.expected.shape, pin_memory=True)
                got.copy_(a.value, non_blocking=True)
                self.streams[s].record_event().synchronize()
        self.see(self.host, s)
        torch.testing.assert_close(got, a.expected, rtol=0, atol=0)

    def drop(self, s):
        if len(self.tensors) > 2:
            del self.tensors[self.random.randrange(len(self.tensors))]

    def run(self, steps=40):
        kinds = [self.from_host, self.from_pinned, self.over, self.within, self.made_of, self.slowly, self.to_host]
        self.from_host(0)
        for _ in range(steps):
            self.random.choice([*kinds, self.slowly, self.drop])(self.random.randrange(len(self.streams)))
        for s in range(len(self.streams)):
            self.to_host(s)


class TestStreams(TestCase):
    def tearDown(self):
        torch.netcl.synchronize()

    def test_random_programs(self):
        for seed in range(PROGRAMS):
            torch.manual_seed(seed)
            with self.subTest(seed=seed):
                Program(seed).run()

    def test_a_copy_from_the_host_is_complete_for_other_streams(self):
        s, w = torch.netcl.Stream(), torch.ones(400, 400, device=D)
        torch.netcl.synchronize()
        sources = {
            "small": torch.arange(3.0),
            "staged": torch.arange(100_000.0),
            "large": torch.arange(700_000.0),
            "pinned": torch.arange(100_000.0).pin_memory(),
        }
        for name, source in sources.items():
            target = torch.zeros(source.numel(), 2, device=D)[:, 0]
            torch.netcl.synchronize()
            with torch.netcl.stream(s):
                w @ w
                made = source.to(D)
                w @ w
                target.copy_(source)
            for got in (made.clone(), target.clone()):
                self.assertEqual(got.cpu(), source, msg=name)
        with torch.netcl.stream(s):
            w @ w
            x = torch.tensor([1.0, 2.0, 3.0], device=D)
        self.assertEqual((x + 0).cpu(), torch.tensor([1.0, 2.0, 3.0]))

    def test_an_operator_in_place_waits_for_streams_that_were_recorded(self):
        s, w = torch.netcl.Stream(), torch.ones(600, 600, device=D)
        for n in (16, 100_000):
            x = torch.ones(n, device=D)
            torch.netcl.synchronize()
            with torch.netcl.stream(s):
                slow = w @ w @ w @ w
                read = x * 2 + slow[0, 0] * 0
            x.record_stream(s)
            x.add_(1)
            torch.netcl.current_stream().wait_stream(s)
            self.assertEqual((read.cpu(), x.cpu()), (torch.full((n,), 2.0), torch.full((n,), 2.0)))

    def test_gradients_that_several_streams_share(self):
        # add's backward hands one gradient to two nodes; autograd adds to it in place once one of them has read it.
        def aside(function, *args):
            now, s = torch.netcl.current_stream(), torch.netcl.Stream()
            s.wait_stream(now)
            with torch.netcl.stream(s):
                result = function(*args)
            now.wait_stream(s)
            return result

        for _ in range(50):
            x = torch.arange(16.0, device=D).half().requires_grad_()
            a = x * 3
            b = aside(torch.mul, x, 2)
            c = x * a
            d = aside(torch.add, a, b)
            (b.float().sum() + c.float().sum() + d.float().sum()).backward()
            self.assertEqual(x.grad.cpu(), (6 * torch.arange(16.0) + 7).half())

    def test_copies_from_the_host_wait_only_if_there_are_other_streams(self):
        code = """
import torch
def waits():
    before = torch.netcl.host_sync_count()
    for n in (3, 1000, 100_000):
        torch.ones(n).to("netcl") * 2
    return torch.netcl.host_sync_count() - before
waits()
alone = waits()
with torch.netcl.stream(torch.netcl.Stream()):
    torch.ones(3, device="netcl")
torch.netcl.synchronize()
print(alone, waits() > 0)
"""
        run = python(code)
        self.assertEqual(run.stdout.split(), ["0", "True"], run.stderr)

    def test_a_model_moved_by_one_thread_and_used_by_others(self):
        results = []
        for _ in range(10):
            w = torch.ones(300, 300, device=D)
            w @ w
            model = torch.nn.Linear(64, 64)
            x = torch.randn(8, 64)
            expected = model(x)
            model.to(D)

            def use(model=model, x=x, expected=expected):
                with torch.netcl.stream(torch.netcl.Stream()), torch.no_grad():
                    results.append((model(x.to(D)).cpu(), expected))

            threads = [threading.Thread(target=use) for _ in range(2)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        for got, expected in results:
            self.assertEqual(got, expected.detach(), atol=1e-5, rtol=1e-5)
        self.assertEqual(len(results), 20)

    def test_waits_for_events_raise_what_kernels_reported(self):
        x = torch.arange(5.0, device=D)

        def polled(event):
            while not event.query():
                pass

        for wait in (lambda s: s.record_event().synchronize(), lambda s: polled(s.record_event()), polled):
            s = torch.netcl.Stream()
            with torch.netcl.stream(s):
                x[torch.tensor([7]).to(D)]
            with self.assertRaisesRegex(IndexError, "index 7 is out of bounds"):
                wait(s)
            torch.netcl.synchronize()  # once

    def test_an_idle_stream_says_so(self):
        """At the first question."""
        s = torch.netcl.Stream()
        self.assertTrue(s.query())
        for wait in (s.synchronize, lambda: s.record_event().synchronize(), torch.netcl.synchronize):
            for n in (5, 300_000):
                with torch.netcl.stream(s):
                    x = torch.ones(n, device=D) * 2
                wait()
                self.assertTrue(s.query())
        self.assertEqual(x[0].item(), 2)

    def test_an_event_does_not_wait_for_what_follows(self):
        """Though it looks for reports of kernels."""
        x, w = torch.arange(5.0, device=D), torch.ones(900, 900, device=D)
        x[torch.tensor([1]).to(D)]
        behind = [w @ w]
        for _ in range(5):  # Intel's runtime runs commands in a thread that waits, at times all there are
            torch.netcl.synchronize()
            event = torch.netcl.current_stream().record_event()
            behind = [w @ w for _ in range(64)]
            event.synchronize()
            if not torch.netcl.current_stream().query():
                break
        else:
            self.fail("the wait for the event waited for what follows")
        del behind

    def test_dlpack_makes_the_consumers_stream_wait(self):
        """The number is a stream's id, None the default stream's, -1 says that nobody waits, as with CUDA."""
        side = torch.netcl.Stream(D)
        default = torch.netcl.default_stream(D)
        for producer, consumer, number in (
            (default, side, side.stream_id), (side, default, 0), (side, default, None), (side, side, side.stream_id),
        ):  # fmt: skip
            with self.subTest(number=number):
                for i in range(10):
                    with torch.netcl.stream(producer):
                        x = torch.zeros(500_000, device=D)
                        for _ in range(20):
                            x += i
                        capsule = x.__dlpack__(stream=number)
                    with torch.netcl.stream(consumer):
                        y = torch.from_dlpack(capsule).clone()
                    consumer.synchronize()
                    self.assertEqual(y.cpu(), torch.full((500_000,), 20.0 * i))
                    torch.netcl.synchronize()
        x = torch.ones(3, device=D)
        for number in (12345, -3):
            with self.assertRaisesRegex(RuntimeError, f"stream {number} does not exist"):
                x.__dlpack__(stream=number)
        for number in ("0", 1.0, side):
            with self.assertRaises(TypeError):
                x.__dlpack__(stream=number)
        self.assertEqual(torch.from_dlpack(x.__dlpack__(stream=-1, max_version=(1, 0))), x)

        class Sub(torch.Tensor):
            pass

        with self.assertRaisesRegex(RuntimeError, "stream 99 does not exist"):
            x.as_subclass(Sub).__dlpack__(stream=99)

    def test_events_between_processes_are_refused_at_once(self):
        with self.assertRaisesRegex(NotImplementedError, "interprocess"):
            torch.netcl.Event(interprocess=True)


if __name__ == "__main__":
    run_tests()
