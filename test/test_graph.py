"""torch.accelerator.Graph on netcl: captured work, replayed with other inputs and other random numbers."""

import tempfile
import unittest
import warnings

import torch
from torch import nn
from torch.testing._internal.common_utils import TestCase, run_tests

D = torch.device("netcl", 0)


@unittest.skipIf(not hasattr(torch.accelerator, "Graph"), "this torch has no torch.accelerator.Graph")
class TestGraph(TestCase):
    def captured(self, function):
        """The graph of function(), which ran once before, and what it returned."""
        function()
        torch.netcl.synchronize()
        graph = torch.accelerator.Graph()
        with torch.Stream(device=D), graph:
            result = function()
        return graph, result

    def test_replays_compute_with_what_memory_holds(self):
        x = torch.ones(2000, device=D)
        graph, y = self.captured(lambda: (x.add_(1) * 2).t().contiguous())
        self.assertEqual(x[0].item(), 2)  # the capture itself computed nothing
        for expected in (3, 4):
            graph.replay()
            self.assertEqual(x.cpu(), torch.full((2000,), float(expected)))
            self.assertEqual(y.cpu(), torch.full((2000,), 2.0 * expected))
        x.fill_(10)
        graph.replay()
        self.assertEqual(y[0].item(), 22)

    def test_memory_of_a_graph_is_its_own(self):
        x = torch.arange(1000.0, device=D)
        graph, y = self.captured(lambda: ((x + 1) * 2 - 3).mul_(4).div_(4))
        others = [torch.full((1000,), float(i), device=D) for i in range(50)]
        graph.replay()
        self.assertEqual(y.cpu(), torch.arange(1000.0) * 2 - 1)
        for i, other in enumerate(others):
            self.assertEqual(other.cpu(), torch.full((1000,), float(i)))

    def test_random_numbers(self):
        x = torch.ones(64, device=D)
        nn.functional.dropout(x, 0.5)
        state = torch.netcl.get_rng_state()
        graph = torch.accelerator.Graph()
        with torch.Stream(device=D), graph:
            a, b = nn.functional.dropout(x, 0.5), torch.rand(8, device=D)
        self.assertEqual(torch.netcl.get_rng_state(), state)
        replayed = []
        for _ in range(3):
            graph.replay()
            replayed.append((a.cpu(), b.cpu()))
        after = torch.netcl.get_rng_state()
        torch.netcl.set_rng_state(state)
        eager = [(nn.functional.dropout(x, 0.5).cpu(), torch.rand(8, device=D).cpu()) for _ in range(3)]
        self.assertEqual(replayed, eager)
        self.assertEqual(torch.netcl.get_rng_state(), after)
        self.assertNotEqual(replayed[0][1], replayed[1][1])

    def test_training(self):
        data = torch.randn(12, 32, 16, generator=torch.Generator().manual_seed(0))

        def losses(graphed):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4)).to(D)
            optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
            x = torch.zeros(32, 16, device=D)

            def step():
                optimizer.zero_grad(set_to_none=True)
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            torch.netcl.manual_seed(1)
            for batch in data[:3]:
                x.copy_(batch)
                step()
            torch.netcl.synchronize()
            run = step
            if graphed:
                graph = torch.accelerator.Graph()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # PyTorch's: AccumulateGrad was made on another stream
                    with torch.Stream(device=D), graph:
                        loss = step()

                def run():
                    graph.replay()
                    return loss

            found = []
            for batch in data[3:]:
                x.copy_(batch)
                found.append(run().item())
            return found

        self.assertEqual(losses(True), losses(False), atol=0, rtol=0)

    def test_what_waits_is_refused(self):
        x = torch.ones(4, device=D)
        for name, function in {"item": lambda: x.sum().item(), "cpu": x.cpu, "wait": torch.netcl.synchronize}.items():
            function()
            with self.assertRaisesRegex(RuntimeError, "cannot be captured in a graph", msg=name):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an empty graph
                    with torch.Stream(device=D), torch.accelerator.Graph():
                        function()
            self.assertEqual((x + 1).sum().item(), 8)  # the device goes on

    def test_the_hosts_data_are_refused(self):
        """They would be those of the capture in every replay."""
        x, host = torch.ones(4, device=D), torch.arange(4.0)
        copies = {
            "copy_": lambda: x.copy_(host),
            "not blocking": lambda: x.copy_(host, non_blocking=True),
            "pinned": lambda: x.copy_(host.pin_memory(), non_blocking=True),
            "cast": lambda: x.copy_(host.double()),
            "strided": lambda: x.view(2, 2).copy_(host.view(2, 2).t()),
            "to": lambda: host.to(D) + 1,
            "tensor": lambda: torch.tensor([1.0, 2.0], device=D),
            "0 dimensions": lambda: torch.tensor(3.0, device=D),
            "index": lambda: x[torch.tensor([0, 2])],
        }
        for name, function in copies.items():
            function()
            with self.assertRaisesRegex(RuntimeError, "cannot be captured in a graph", msg=name):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an empty graph
                    with torch.Stream(device=D), torch.accelerator.Graph():
                        function()
        x.fill_(1)
        graph, y = self.captured(lambda: x * 2 + torch.tensor(3.0))  # a number, as on CUDA
        x.fill_(4)
        graph.replay()
        self.assertEqual(y.cpu(), torch.full((4,), 11.0))
        empty = torch.empty(0, device=D)
        graph, _ = self.captured(lambda: (empty.copy_(torch.empty(0)), x.add_(1)))
        graph.replay()
        self.assertEqual(x.cpu(), torch.full((4,), 6.0))

    def test_several_streams(self):
        """A graph that is released waits for all its replays, whose tables it keeps."""
        xs = [torch.ones(10_000 + i, device=D) for i in range(20)]
        graph, _ = self.captured(lambda: torch._foreach_mul_(xs, 2.0))
        streams = [torch.netcl.Stream(D) for _ in range(3)]
        for stream in streams:
            stream.wait_stream(torch.netcl.current_stream())
            with torch.netcl.stream(stream):
                graph.replay()
            torch.netcl.current_stream().wait_stream(stream)
        del graph
        for x in xs:
            self.assertEqual(x.cpu(), torch.full(x.shape, 16.0))

    def test_graphs_that_share_memory(self):
        x = torch.arange(100.0, device=D)
        first, y = self.captured(lambda: (x + 1) * 2)
        second = torch.accelerator.Graph(pool=first.pool())
        with torch.Stream(device=D), second:
            z = (y - 1) * 3
        self.assertEqual(second.pool(), first.pool())
        for _ in range(2):
            first.replay()
            second.replay()
            self.assertEqual(z.cpu(), (torch.arange(100.0) * 2 + 1) * 3)
        self.assertNotEqual(self.captured(lambda: x + 1)[0].pool(), first.pool())

    def test_dump(self):
        x = torch.ones(4, device=D)
        graph, _ = self.captured(lambda: x.add_(1).clone())
        with tempfile.NamedTemporaryFile("r") as file:
            graph.debug_dump(file.name)
            lines = file.read().splitlines()
        self.assertEqual(len(lines), 2)
        sizes = r"global \[\d+, 1, 1\], local \[\d+, 1, 1\], buffers of \[16[, \d]*\] bytes"
        self.assertRegex(lines[0], "for add, " + sizes)

    def test_misuse(self):
        graph = torch.accelerator.Graph()
        with self.assertRaisesRegex(RuntimeError, "without a captured graph"):
            graph.replay()
        with self.assertRaisesRegex(RuntimeError, "without capture_begin"):
            graph.capture_end()
        x = torch.ones(4, device=D)
        graph, y = self.captured(lambda: x + 1)
        with self.assertRaisesRegex(RuntimeError, "holds a capture"):
            graph.capture_begin()
        graph.reset()
        with torch.Stream(device=D), graph:
            self.assertTrue(torch.netcl.is_current_stream_capturing())
            y = x * 3
        self.assertFalse(torch.netcl.is_current_stream_capturing())
        graph.replay()
        self.assertEqual(y.cpu(), torch.full((4,), 3.0))

    def test_a_bad_index_is_raised_after_a_replay(self):
        x, index = torch.arange(5.0, device=D), torch.zeros(3, dtype=torch.long, device=D)
        graph, y = self.captured(lambda: x[index])
        index.fill_(7)
        graph.replay()
        with self.assertRaises(IndexError):
            torch.netcl.synchronize()



@unittest.skipIf(not hasattr(torch.accelerator, "Graph"), "this torch has no torch.accelerator.Graph")
class TestGraphedCallables(TestCase):
    def net(self):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)).to(D)

    def graphed(self, *args, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's: AccumulateGrad was made on another stream
            return torch.netcl.make_graphed_callables(*args, **kwargs)

    def test_training(self):
        """With each gradient of two batches, which are added, and with one of the input; validation runs as before."""
        data = torch.randn(6, 2, 24, 16)

        def run(graph, dtype=None):
            model = self.net()
            buffers = [b.clone() for b in model.buffers()]
            found = []
            with torch.autocast("netcl", dtype=dtype, enabled=dtype is not None, cache_enabled=False):
                if graph:
                    self.graphed(model, (torch.randn(24, 16, device=D, requires_grad=True),))
                for b, before in zip(model.buffers(), buffers, strict=True):
                    b.copy_(before)  # the capture itself counted batches
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
                for batches in data:
                    optimizer.zero_grad()
                    for batch in batches:
                        x = batch.to(D).requires_grad_()
                        loss = model(x).float().square().mean()
                        loss.backward()
                        found += [loss.item(), x.grad.cpu()]
                    found += [p.grad.cpu() for p in model.parameters()]
                    optimizer.step()
                model.eval()
                found += [model(data[0, 0, :5].to(D)).cpu(), *(b.cpu() for b in model.buffers())]
            return found

        for dtype in (None, torch.bfloat16):
            self.assertEqual(run(True, dtype), run(False, dtype), atol=0, rtol=0)

    def test_several(self):
        """Callables that run one after another share their memory; random numbers are new in each replay."""
        torch.manual_seed(0)
        first, second = nn.Linear(16, 8).to(D), nn.Linear(8, 4).to(D)
        x, h = torch.randn(10, 16, device=D), torch.randn(10, 8, device=D, requires_grad=True)
        noise = torch.zeros(10, 4, device=D, requires_grad=True)
        one, two, three = self.graphed(
            (first, lambda t: second(t).relu(), nn.functional.dropout), ((x,), (h,), (noise,))
        )
        for _ in range(3):
            x = torch.randn(10, 16, device=D)
            result = two(one(x))
            grads = torch.autograd.grad(result.sum(), first.parameters())
            expected = second(nn.functional.linear(x, first.weight, first.bias)).relu()
            self.assertEqual(result, expected)
            self.assertEqual(grads, torch.autograd.grad(expected.sum(), first.parameters()))
        ones = torch.ones(10, 4, device=D)
        self.assertNotEqual(three(ones).cpu().clone(), three(ones).cpu())

    def test_results(self):
        """Nested results, among them some without gradients; inputs that nothing depends on."""
        x, unused = torch.randn(6, 5, device=D, requires_grad=True), torch.randn(3, device=D, requires_grad=True)

        def function(pair):
            a, _ = pair
            return {"double": a * 2, "place": a.argmax(1)}, a.detach() + 1

        with self.assertRaisesRegex(RuntimeError, "not have been used"):
            self.graphed(function, ((x, unused),))
        run = self.graphed(function, ((x, unused),), allow_unused_input=True)
        y = torch.randn(6, 5, device=D, requires_grad=True)
        results, other = run((y, unused))
        self.assertEqual(results, function((y, unused))[0])
        self.assertEqual(other, y.detach() + 1)
        self.assertTrue(results["double"].requires_grad)
        self.assertFalse(other.requires_grad or results["place"].requires_grad)
        results["double"].sum().backward()
        self.assertEqual(y.grad.cpu(), torch.full((6, 5), 2.0))
        self.assertIsNone(unused.grad)
        with torch.no_grad():
            self.assertFalse(run((y, unused))[0]["double"].requires_grad)

    def test_errors(self):
        x = torch.randn(6, 16, device=D)
        with self.assertRaisesRegex(RuntimeError, "cache_enabled=False"), torch.autocast("netcl", dtype=torch.bfloat16):
            self.graphed(self.net(), (x,))
        hooked = self.net()
        hooked.register_forward_hook(lambda *args: None)
        with self.assertRaisesRegex(RuntimeError, "hooks"):
            self.graphed(hooked, (x,))
        with self.assertRaisesRegex(TypeError, "sample_args"):
            self.graphed(lambda t, n: t * n, (x, 2))
        with self.assertRaisesRegex(TypeError, "return tensors"):
            self.graphed(lambda t: (t, 1), (x,))
        with self.assertRaises(ValueError):
            self.graphed((torch.sin, torch.cos), ((x,),))
        with self.assertRaisesRegex(RuntimeError, "cannot be captured in a graph"):
            self.graphed(lambda t: t * t.sum().item(), (x,))
        self.assertEqual((x + 1).cpu(), x.cpu() + 1)  # the device goes on
        run = self.graphed(torch.sin, (x,))
        for bad, error in ((x[:3], ValueError), (x.half(), ValueError), (2.0, ValueError), ((x, x), TypeError)):
            with self.assertRaises(error):
                run(bad)
        with self.assertRaises(TypeError):
            run(x, x)
        self.assertEqual(run(x.cpu()), x.sin())  # it is copied

    def test_runs_again_before_backward(self):
        x = torch.randn(6, 16, device=D, requires_grad=True)
        run = self.graphed(torch.sin, (x,))
        first = run(x).sum()
        run(x).sum().backward()
        self.assertEqual(x.grad, x.cos())
        with self.assertRaisesRegex(RuntimeError, "ran again before this backward pass"):
            first.backward()
        run(x).sum().backward()  # adds to what was the graph's own result
        self.assertEqual(x.grad, 2 * x.cos())

    def test_samples_seen_otherwise(self):
        """The same memory with other strides, or lazily conjugated or negated, is another argument."""
        x = torch.randn(5, 5, dtype=torch.complex64, device=D)
        run = self.graphed(lambda t: t * 2, (x,))
        for view in (lambda t: t, lambda t: t.t(), lambda t: t.conj(), lambda t: torch._neg_view(t)):
            x.copy_(torch.randn(5, 5, dtype=torch.complex64))
            expected = view(x.cpu()) * 2
            self.assertEqual(run(view(x)).cpu(), expected)
        empty = torch.ones(0, 3, device=D)
        self.assertEqual(self.graphed(lambda t: (t * 2, x + 1), (empty,))(empty.clone())[0].shape, (0, 3))
        with self.assertRaisesRegex(ValueError, "requires a gradient, but its sample did not"):
            run(torch.zeros(5, 5, dtype=torch.complex64, device=D, requires_grad=True))

    def test_pool_and_stream(self):
        x, pool = torch.ones(50, device=D), torch.netcl.graph_pool_handle()
        self.assertNotEqual(pool, torch.netcl.graph_pool_handle())
        before, stream = torch.netcl.current_stream(), torch.netcl.Stream()
        graphs = [torch.accelerator.Graph() for _ in range(2)]
        results = []
        for graph in graphs:
            with torch.netcl.graph(graph, pool=pool, stream=stream):
                self.assertEqual(torch.netcl.current_stream(), stream)
                results.append(x * 3)
            self.assertEqual(graph.pool(), pool)
        self.assertEqual(torch.netcl.current_stream(), before)
        for graph, result in zip(graphs, results, strict=True):
            x.add_(1)
            graph.replay()
            self.assertEqual(result, x * 3)


if __name__ == "__main__":
    run_tests()
