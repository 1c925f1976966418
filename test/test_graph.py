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
        self.assertRegex(lines[0], r"for add, global \[\d+, 1, 1\], local \[\d+, 1, 1\]")

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


if __name__ == "__main__":
    run_tests()
